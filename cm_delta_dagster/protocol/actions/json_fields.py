"""Fields of actions from parsed JSON, with the types that the protocol requires (protocol heading "Actions").

Every function raises :class:`FieldError` if a required field is missing or a field has another type. The caller adds the version
and the action to the message. A whole number may have the form of a decimal number, such as ``1e2``, as delta-spark reads it.
"""

import json
from collections.abc import Mapping
from typing import Any

MAX_EXACT = 2.0**53
"""Decimal numbers up to this one have the value that their text says."""


class FieldError(ValueError):
    """A field of an action cannot be read.

    Attributes:
        field: its name.
        why: what is wrong, as the predicate of a sentence.
    """

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field} {why}")
        self.field, self.why = field, why


def required(row: Mapping[str, Any], name: str) -> Any:
    """The value of a field that must not be missing."""
    if name not in row:
        raise FieldError(name, "is missing")
    return row[name]


def text(row: Mapping[str, Any], name: str) -> str:
    """A required string."""
    return as_text(required(row, name), name)


def as_text(value: Any, name: str) -> str:
    """``value``, which must be a string that can be encoded in UTF-8."""
    if not isinstance(value, str):
        raise FieldError(name, "is not a string")
    if value.isascii():
        return value
    try:
        value.encode()  # JSON can contain an escaped lone surrogate, which is not valid in names of files and columns.
    except UnicodeEncodeError:
        raise FieldError(name, "contains half of a surrogate pair, which is not a character") from None
    return value


def optional_text(row: Mapping[str, Any], name: str) -> str | None:
    """A string, or None if it is missing or null."""
    return None if row.get(name) is None else text(row, name)


def long(row: Mapping[str, Any], name: str) -> int:
    """A required 64-bit integer."""
    return as_long(required(row, name), name)


def as_long(value: Any, name: str, *, bits: int = 64) -> int:
    """``value``, which must be a whole number of ``bits`` bits."""
    if type(value) is float and value.is_integer() and abs(value) <= MAX_EXACT:
        value = int(value)
    if type(value) is not int or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise FieldError(name, f"is not a whole number of {bits} bits")
    return value


def optional_boolean(row: Mapping[str, Any], name: str) -> bool | None:
    """True or false, or None if it is missing or null."""
    value = row.get(name)
    if value is not None and not isinstance(value, bool):
        raise FieldError(name, "is not true or false")
    return value


def optional_long(row: Mapping[str, Any], name: str) -> int | None:
    """A 64-bit integer, or None if it is missing or null."""
    return None if row.get(name) is None else long(row, name)


def optional_list(row: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """An array of strings, or None if it is missing or null."""
    values = row.get(name)
    if values is None:
        return None
    if not isinstance(values, list):
        raise FieldError(name, "is not an array")
    return tuple(as_text(value, name) for value in values)


def optional_texts(row: Mapping[str, Any], name: str) -> dict[str, str] | None:
    """A map of strings, or None if it is missing or null. Keys with null are left out; booleans and integers become text."""
    values = row.get(name)
    if values is None:
        return None
    if not isinstance(values, dict):
        raise FieldError(name, "is not an object")
    return {
        as_text(key, name): as_text(json.dumps(value) if isinstance(value, bool | int) else value, name)
        for key, value in values.items()
        if value is not None
    }


def nullable_texts(values: Any, name: str) -> dict[str, str | None]:
    """A map from strings to strings or null."""
    if not isinstance(values, dict):
        raise FieldError(name, "is not an object")
    return {as_text(key, name): None if value is None else as_text(value, name) for key, value in values.items()}
