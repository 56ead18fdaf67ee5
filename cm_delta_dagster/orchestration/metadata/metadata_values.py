"""Checks the form of metadata values. Every function raises InvalidArgumentError that names the key."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from cm_delta_dagster.api.table.merge_keys import is_key
from cm_delta_dagster.errors import InvalidArgumentError


def choice(value: Any, kind: type[StrEnum], key: str) -> Any:
    """The member of ``kind`` with that value."""
    text = value.value if isinstance(value, StrEnum) else value
    if text not in [member.value for member in kind]:
        raise InvalidArgumentError(
            f"The metadata key {key!r} is {value!r}; it must be one of {', '.join(member.value for member in kind)}."
        )
    return kind(text)


def text_or_none(value: Any, key: str) -> str | None:
    """A text that is not blank, or None."""
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise InvalidArgumentError(f"The metadata key {key!r} is {value!r}; it must be a non-empty text.")


def switch(value: Any, key: str, *, default: bool = False) -> bool:
    """True or False; run tags give them as text."""
    is_on = {"true": True, "false": False}.get(str(value).lower()) if value is not None else default
    if is_on is None:
        raise InvalidArgumentError(f"The metadata key {key!r} is {value!r}; it must be true or false.")
    return is_on


def column_names(value: Any, key: str) -> tuple[str, ...]:
    """Column names, given as a list or as text separated by commas; empty for None."""
    if value is None:
        return ()
    items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not items or not all(isinstance(item, str) and item for item in items):
        raise InvalidArgumentError(
            f"The metadata key {key!r} is {value!r}; it must be a column name or a list of them."
        )
    if len({item.lower() for item in items}) < len(items):
        raise InvalidArgumentError(f"The metadata key {key!r} names a column twice: {', '.join(items)}.")
    return tuple(items)


def keys_or_condition(value: Any, key: str) -> tuple[str, ...] | str:
    """What matches the rows of a merge: key columns, as a list or text separated by commas, or the text of a condition.

    A text is a condition unless it consists of names, as for ``table.merge(source, on)``; no keys for None.
    """
    if isinstance(value, str) and value.strip() and not all(is_key(part.strip()) for part in value.split(",")):
        return value
    return column_names(value, key)
