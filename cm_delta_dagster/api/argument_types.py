"""Types of the arguments of public methods, checked by their annotations before anything is done.

Only annotations of which each type is in the table are checked. Values that many types can have, such as conditions, points in
time, rows, and names of choices, are checked where they are used.
"""

import inspect
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from operator import index
from types import NoneType, UnionType

from cm_delta_dagster.client.commits.context import CommitProperties, Idempotency
from cm_delta_dagster.errors import InvalidArgumentError


def _is_number(value: object) -> bool:
    """Whether it is a whole number, also one of NumPy."""
    if isinstance(value, bool):
        return False
    try:
        index(value)  # type: ignore[arg-type]  # Whether it can is the question.
    except TypeError:
        return False
    return True


def _is_list_of_texts(value: object) -> bool:
    """An iterator is not read here, and its values are checked where it is."""
    if isinstance(value, list | tuple):
        return all(isinstance(text, str) for text in value)
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def _is_of(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


_CHECKS: Mapping[object, tuple[Callable[[object], bool], str]] = {
    int: (_is_number, "a whole number"),
    bool: (_is_of(bool), "True or False"),
    str: (_is_of(str, os.PathLike), "a text"),
    Sequence[str]: (_is_list_of_texts, "a list of texts, e.g. ['id']"),
    Mapping: (_is_of(Mapping), "a mapping, e.g. {'name': 'value'}"),
    Idempotency: (_is_of(Idempotency), "an Idempotency, e.g. Idempotency(app_id='nightly', version=1)"),
    CommitProperties: (
        _is_of(CommitProperties),
        'CommitProperties, e.g. commit_properties=CommitProperties(tags={"job": "nightly"})',
    ),
}
"""By type in an annotation, whether a value is of it, and what to give."""

_WORDS: Mapping[str, str] = {
    "assignments": "the values by column, e.g. {'status': \"'done'\"}",
    "target_size": "a whole number of bytes, e.g. 128 * 1024 * 1024",
    "min_size": "a whole number of bytes, e.g. 128 * 1024 * 1024",
    "max_bytes": "a whole number of bytes, e.g. 128 * 1024 * 1024",
    "trigger": "a mapping, e.g. {'availableNow': True}",
}
"""By name of an argument, what to give if that says more than the type."""

_MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class TypeCheck:
    """The check of one argument."""

    name: str
    accepts: tuple[Callable[[object], bool], ...]
    words: str
    timestamp: bool
    """Whether the function has an argument ``timestamp``, which a time is meant for."""

    def refuse_other(self, value: object) -> None:
        """Raise InvalidArgumentError if ``value`` is of another type."""
        if any(accept(value) for accept in self.accepts):
            return
        text = repr(value)
        what = text if len(text) <= _MAX_SHOWN and "\n" not in text else f"of type {type(value).__name__}"
        if isinstance(value, date) and self.timestamp:
            raise InvalidArgumentError(f"{self.name} is {what}; give {self.words}, or the time as timestamp=....")
        part = f": its {self.name}" if isinstance(getattr(value, self.name, None), str) else ""
        raise InvalidArgumentError(f"{self.name} is {what}; give {self.words}{part}.")


def type_checks(parameters: Iterable[inspect.Parameter]) -> Mapping[str, TypeCheck]:
    """The checks of the arguments of a function, by name."""
    by_name = {parameter.name: parameter for parameter in parameters}
    checks = {}
    for name, parameter in by_name.items():
        keys = [_key(kind) for kind in _alternatives(parameter.annotation) if kind is not NoneType]
        takes_none = parameter.default is None or NoneType in _alternatives(parameter.annotation)
        if parameter.kind is not parameter.VAR_KEYWORD and keys and all(key in _CHECKS for key in keys):
            accepts = (*(_CHECKS[key][0] for key in keys), *((_is_of(NoneType),) if takes_none else ()))
            words = _WORDS.get(name) or " or ".join(_CHECKS[key][1] for key in keys)
            checks[name] = TypeCheck(name, accepts, words, timestamp="timestamp" in by_name)
    return checks


def choices(annotation: object) -> tuple[str, ...]:
    """The values of the enumeration in an annotation; none if it has none."""
    return tuple(
        member.value
        for kind in _alternatives(annotation)
        if isinstance(kind, type) and issubclass(kind, StrEnum)
        for member in kind
    )


def _alternatives(annotation: object) -> tuple[object, ...]:
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _key(kind: object) -> object:
    """The key of the table for a type: mappings are not compared by the types of their keys and values."""
    return Mapping if typing.get_origin(kind) is Mapping else kind
