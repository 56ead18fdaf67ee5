"""Texts that callers give for the catalog to store."""

from typing import TypeGuard

from cm_delta_dagster.errors import InvalidArgumentError


def is_storable(value: object) -> TypeGuard[str]:
    """Whether ``value`` is a text that every database can hold: Unicode characters other than U+0000."""
    return isinstance(value, str) and "\0" not in value and value.encode(errors="replace").decode() == value


def checked_text(value: object, *, what: str) -> str:
    """``value`` as text. Raises InvalidArgumentError.

    Args:
        what: what it is, e.g. ``a reason``, for the message.
    """
    if is_storable(value):
        return value
    raise InvalidArgumentError(
        f"{value!r} was given as {what}. Nothing was changed. Give a text of Unicode characters other than U+0000."
    )


def checked_reason(value: object) -> str:
    """The reason of a change, for the audit. Raises InvalidArgumentError."""
    return checked_text(value, what="a reason")
