"""Which names could be meant by one that does not exist, for messages."""

import difflib
from collections.abc import Iterable

MAX_SHOWN = 3
_LEAST_SIMILARITY = 0.6


def similar_names(unknown: str, known: Iterable[str], *, least: float = _LEAST_SIMILARITY) -> tuple[str, ...]:
    """Up to three of ``known`` that are most similar to ``wanted``, ignoring case; the most similar first.

    Args:
        least: the similarity, from 0 to 1, that a name needs.
    """
    lowered = {name.lower(): name for name in known}
    close = difflib.get_close_matches(unknown.lower(), lowered, n=MAX_SHOWN, cutoff=least)
    return tuple(lowered[name] for name in close)


def did_you_mean(names: Iterable[str]) -> str:
    """A sentence with a space before it; empty without names."""
    alternatives = " or ".join(names)
    return f" Did you mean {alternatives}?" if alternatives else ""
