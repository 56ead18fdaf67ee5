"""Fields of actions out of parsed JSON, with the types that the protocol gives them (protocol "Actions").

Every function raises KeyError for a required field that is absent, and TypeError or ValueError for one of another type; the
caller says where that was.
"""

import json
from collections.abc import Mapping
from typing import Any


def text(row: Mapping[str, Any], name: str) -> str:
    """A required string."""
    return as_text(row[name], name)


def as_text(value: Any, name: str) -> str:
    """``value``, which must be a string with a form in UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is not a string")
    value.encode()  # JSON can escape half of a surrogate pair, which no file name and no column name can hold.
    return value


def optional_text(row: Mapping[str, Any], name: str) -> str | None:
    """A string, or None where it is absent or null."""
    return None if row.get(name) is None else text(row, name)


def long(row: Mapping[str, Any], name: str) -> int:
    """A required whole number of 64 bits."""
    value = row[name]
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise TypeError(f"{name} is not a whole number of 64 bits")
    return value


def optional_long(row: Mapping[str, Any], name: str) -> int | None:
    """A whole number of 64 bits, or None where it is absent or null."""
    return None if row.get(name) is None else long(row, name)


def optional_list(row: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """An array of strings, or None where it is absent or null."""
    values = row.get(name)
    if values is None:
        return None
    if not isinstance(values, list):
        raise TypeError(f"{name} is not an array")
    return tuple(as_text(value, name) for value in values)


def optional_texts(row: Mapping[str, Any], name: str) -> dict[str, str] | None:
    """A map of strings. Keys without a value are left out, which some writers leave behind; scalars become their text."""
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
