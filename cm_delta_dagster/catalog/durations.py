"""Durations: the longest that users can give, and their texts."""

import re
from datetime import timedelta

from cm_delta_dagster.errors import InvalidArgumentError

LONGEST_MS = 100 * 366 * 24 * 60 * 60 * 1000
"""A hundred years in milliseconds. A time that far ahead is still a date, and fits the columns of the catalog."""
LONGEST = timedelta(milliseconds=LONGEST_MS)

_UNITS = {unit: timedelta(**{f"{unit}s": 1}) for unit in ("week", "day", "hour", "minute", "second", "millisecond")}
_SPANS = ((24 * 60 * 60 * 1000, "day"), (60 * 60 * 1000, "hour"), (60 * 1000, "minute"))
_NUMBER = r"\d+(?:\.\d+)?"
_WORDS = re.compile(rf"({_NUMBER})\s*({'|'.join(_UNITS)})s?\b[\s,]*", re.IGNORECASE)
_ISO = re.compile(
    rf"P(?=[\dT])(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=\d)(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?",
    re.IGNORECASE,
)


def is_duration(value: object, *, at_least: int = 0) -> bool:
    """Whether ``value`` is a whole number of milliseconds up to a hundred years."""
    return isinstance(value, int) and not isinstance(value, bool) and at_least <= value <= LONGEST_MS


def milliseconds_of(duration: timedelta) -> int:
    """A duration in whole milliseconds."""
    return duration // timedelta(milliseconds=1)


def parse_duration(text: object, *, name: str) -> timedelta:
    """The duration of a text: ``7 days``, ``1 hour 30 minutes``, or ISO 8601 without months and years, ``P7D``, ``PT90S``.

    Args:
        name: the argument or option, for the message.

    Raises:
        InvalidArgumentError: it is another text, no text, or longer than a hundred years.
    """
    amounts = _amounts(text.strip()) if isinstance(text, str) else ()
    try:
        duration = sum((float(amount) * _UNITS[unit] for unit, amount in amounts), timedelta(0))
    except OverflowError:
        duration = timedelta.max
    if not amounts or duration > LONGEST:
        raise InvalidArgumentError(
            f"{name} is {text!r}; give a duration up to a hundred years, e.g. '7 days', '90 minutes', or in ISO 8601 'P7D' or "
            "'PT90M'."
        )
    return duration


def _amounts(text: str) -> tuple[tuple[str, str], ...]:
    if (iso := _ISO.fullmatch(text)) is not None:
        units = ("week", "day", "hour", "minute", "second")
        return tuple((unit, amount) for unit, amount in zip(units, iso.groups(), strict=True) if amount is not None)
    words = _WORDS.findall(text)
    return tuple((unit.lower(), amount) for amount, unit in words) if not _WORDS.sub("", text) else ()


def duration_text(duration: timedelta) -> str:
    """A duration in ISO 8601: ``P7D``, ``PT1H30M``, ``PT0S``."""
    seconds, days = duration.seconds, f"{duration.days}D" if duration.days else ""
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60 + duration.microseconds / 1_000_000
    parts = ((hours, "H"), (minutes, "M"), (rest, "S"))
    time = "".join(f"{amount:.6f}".rstrip("0").rstrip(".") + unit for amount, unit in parts if amount)
    return f"P{days}T{time}" if time else f"P{days}" if days else "PT0S"


def span_text(span_ms: int) -> str:
    """Format a duration: ``7 days`` for 604800000 ms. Uses days, hours or minutes if they give a whole number, else seconds."""
    for length, name in _SPANS:
        if span_ms >= length and span_ms % length == 0:
            return f"{span_ms // length:,} {name}{'' if span_ms == length else 's'}"
    return f"{span_ms / 1000:g} seconds"
