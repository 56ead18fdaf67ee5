"""Names of storage options: an unknown one is refused before the first request, with the name that was probably meant.

The file systems of fsspec ignore names that they do not know, or fail at the first request with an error of their library.
"""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from cm_delta_dagster.errors import InvalidArgumentError

_CACHES = frozenset({"use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache"})
"""Options that fsspec takes for every file system."""

_LEAST_SIMILARITY = 0.75


def parameters_of(filesystem: type[Any]) -> frozenset[str]:
    """Names that the constructors of the class and its bases take."""
    names = {name for constructor in constructors_of(filesystem) for name in named_parameters(constructor)}
    return frozenset(names) | _CACHES


def constructors_of(filesystem: type[Any]) -> list[Any]:
    """The constructors of the class and its bases."""
    return [vars(cls)["__init__"] for cls in filesystem.__mro__ if "__init__" in vars(cls)]


def named_parameters(function: Any) -> frozenset[str]:
    """Names that a caller can give as keywords."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind in named and name not in ("self", "args")
    )


def check_names(
    options: Mapping[str, Any],
    *,
    known: Iterable[str],
    nested: Mapping[str, Iterable[str]],
    synonyms: Mapping[str, str],
    elsewhere: Mapping[str, str],
    store: str,
) -> None:
    """Raise InvalidArgumentError for the first option that the store does not take. No message has a value.

    Args:
        known: names of options.
        nested: names within an option that is a mapping itself, by the name of that option.
        synonyms: what other programs call an option, and its name here: ``name``, or ``option.name`` within a mapping.
        elsewhere: options of other stores, and the names of these stores.
        store: name of the store.
    """
    names = set(known) | set(nested)
    inner = {f"{option}.{name}": f"{option}.{name}" for option, within in nested.items() for name in within}
    targets = {
        **{inner_name.rpartition(".")[2]: inner_name for inner_name in inner},
        **inner,
        **synonyms,
        **{name: name for name in names},
    }
    for name, value in options.items():
        if name not in names:
            raise InvalidArgumentError(_unknown(name, names, targets, elsewhere, store))
        if name not in nested or value is None:
            continue
        if not isinstance(value, Mapping):
            raise InvalidArgumentError(
                f"The storage option {name} is of type {type(value).__name__}. Give a mapping of names to values, e.g. "
                f"{name}={{{_quoted(sorted(nested[name])[0])}: ...}}."
            )
        for key in value:
            if key not in nested[name]:
                own = {
                    inner_name.rpartition(".")[2]: inner_name
                    for inner_name in inner
                    if inner_name.startswith(f"{name}.")
                }
                aliases = {alias: target for alias, target in synonyms.items() if target.startswith(f"{name}.")}
                raise InvalidArgumentError(_unknown(f"{name}.{key}", set(), {**targets, **own, **aliases}, {}, store))


def _unknown(name: str, names: set[str], targets: Mapping[str, str], elsewhere: Mapping[str, str], store: str) -> str:
    problem = f"{store} has no storage option {name!r}."
    if name in elsewhere:
        return (
            f"{problem} It is an option of {elsewhere[name]}. Correct the location, or give options by prefix of the location, "
            "so that each store gets its own."
        )
    meant = _meant(name, targets)
    if meant is not None:
        return f"{problem} Did you mean {_written(meant)}?"
    listed = f" Its options are {', '.join(sorted(names))}." if names else ""
    return f"{problem} Check the spelling.{listed}"


def _meant(name: str, targets: Mapping[str, str]) -> str | None:
    by_lower_case = {spelling.lower(): target for spelling, target in targets.items()}
    if name.lower() in by_lower_case:
        return by_lower_case[name.lower()]
    last = name.lower().rpartition(".")[2]
    close = difflib.get_close_matches(last, by_lower_case, n=1, cutoff=_LEAST_SIMILARITY)
    return by_lower_case[close[0]] if close else None


def _written(target: str) -> str:
    option, _, name = target.rpartition(".")
    return f"{option}={{{_quoted(name)}: ...}}" if option else repr(name)


def _quoted(name: str) -> str:
    return f'"{name}"'
