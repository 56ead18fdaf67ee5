"""Fields of actions from parsed JSON, with the types that the protocol requires (protocol heading "Actions").

Every function raises KeyError if a required field is missing, and TypeError or ValueError if a field has another type. The
caller adds the version and the line to the message.
"""

import json
from collections.abc import Mapping
from typing import Any


def text(row: Mapping[str, Any], name: str) -> str:
    """A required string."""
    return as_text(row[name], name)


def as_text(value: Any, name: str) -> str:
    """``value``, which must be a string that can be encoded in UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is not a string")
    value.encode()  # JSON can contain an escaped lone surrogate, which is not valid in names of files and columns.
    return value


def optional_text(row: Mapping[str, Any], name: str) -> str | None:
    """A string, or None if it is missing or null."""
    return None if row.get(name) is None else text(row, name)


def long(row: Mapping[str, Any], name: str) -> int:
    """A required 64-bit integer."""
    value = row[name]
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise TypeError(f"{name} is not a whole number of 64 bits")
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
        raise TypeError(f"{name} is not an array")
    return tuple(as_text(value, name) for value in values)


def optional_texts(row: Mapping[str, Any], name: str) -> dict[str, str] | None:
    """A map of strings, or None if it is missing or null. Keys with null are left out; booleans and integers become text."""
    values = row.get(name)
    if values is None:
        return None
    if not isinstance(values, dict):
        raise TypeError(f"{name} is not an object")
    return {
        as_text(key, name): as_text(json.dumps(value) if isinstance(value, bool | int) else value, name)
        for key, value in values.items()
        if value is not None
    }


def nullable_texts(values: Any, name: str) -> dict[str, str | None]:
    """A map from strings to strings or null."""
    if not isinstance(values, dict):
        raise TypeError(f"{name} is not an object")
    return {as_text(key, name): None if value is None else as_text(value, name) for key, value in values.items()}
