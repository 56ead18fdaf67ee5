"""Which of the known keys a misspelt metadata key resembles.

A write without its key ``mode`` replaces the whole table, and an input without its key ``where`` has all rows. So a key that
resembles a known key is an error. Ordinary words that resemble a known key by chance are metadata of the user.
"""

import re
from collections.abc import Mapping

_MIN_LETTERS = 4
"""Shorter names, such as ``on``, resemble too many words; only their case is compared."""
_LONG = 12
"""A name of so many letters may have two errors."""

_RESEMBLE_MODES = (
    "code made model modem more move node outputcode outputmodel outputmodes outputnode rode safemode schemamodel"
)
_RESEMBLE_NAMES = "cable catalogs schemas scheme stable tablet tablenames tables"
_RESEMBLE_OTHERS = "chances charges columnar generate generates here identify there versions were"
_RESEMBLE_PEERS = "appends mere merged merger merges overwrites predicates upserts upset verge"
ORDINARY_WORDS = frozenset(" ".join((_RESEMBLE_MODES, _RESEMBLE_NAMES, _RESEMBLE_OTHERS, _RESEMBLE_PEERS)).split())
"""Words that resemble a known key and that users have in their own metadata, without separators."""


def letters(key: str) -> str:
    """The key in lower case, without separators: what two spellings of one key have in common."""
    return re.sub(r"[-_ .:]", "", key.lower())


def similar_key(key: str, meanings: Mapping[str, str]) -> str | None:
    """The meaning of the most similar name of ``meanings``, None if no name is similar enough.

    A name is similar if the key has other letters case and separators, or one letter too many, too few, replaced or exchanged with
    its neighbour; for long names two of these.

    Args:
        meanings: by the :func:`letters` of a name.
    """
    plain = letters(key)
    if plain in meanings:
        return meanings[plain]
    if plain in ORDINARY_WORDS or not plain.isalpha():
        return None  # Names with numbers are numbered by the user.
    distances = {
        name: edit_distance(plain, name)
        for name in meanings
        if len(name) >= _MIN_LETTERS and abs(len(name) - len(plain)) <= _max_errors(name)
    }
    similar = sorted((distance, name) for name, distance in distances.items() if distance <= _max_errors(name))
    return meanings[similar[0][1]] if similar else None


def _max_errors(name: str) -> int:
    return 2 if len(name) >= _LONG else 1


def edit_distance(first: str, second: str) -> int:
    """How many letters are inserted, deleted, replaced, or exchanged with their neighbour, to make one text of the other."""
    before: list[int] = []
    last = list(range(len(second) + 1))
    for row, letter in enumerate(first, start=1):
        current = [row]
        for column, other in enumerate(second, start=1):
            distance = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == second[column - 2] and first[row - 2] == other:
                distance = min(distance, before[column - 2] + 1)
            current.append(distance)
        before, last = last, current
    return last[-1]
