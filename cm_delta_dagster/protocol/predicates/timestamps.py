"""Moments and time zones as people and Spark write them (requirement TT-9).

Not for partition values, whose form the protocol prescribes (``protocol.partition_values``).
"""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MOMENT = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?\s*(\S*))?)?)?"
)
_FIRST = ("0", "1", "1", "0", "0", "0")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def parse_timestamp(text: str) -> datetime | None:
    """The moment of ``2026``, ``2026-01``, ``2026-01-31``, ``2026-01-31 12:00``, ``2026-01-31T12:00:00.5Z`` and the like.

    Returns:
        With a time zone if the text names one; None for what is no moment, or of a zone that nobody knows.
    """
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        return None
    *numbers, fraction, zone_name = found.groups()
    year, month, day, hour, minute, second = map(
        int, [number or first for number, first in zip(numbers, _FIRST, strict=True)]
    )
    zone = zone_of(zone_name) if zone_name else None
    if zone_name and zone is None:
        return None
    microsecond = int((fraction or "")[:6].ljust(6, "0"))
    with suppress(ValueError):
        return datetime(year, month, day, hour, minute, second, microsecond, zone)
    return None


def zone_of(name: str) -> tzinfo | None:
    """The zone of a region's name, ``UTC``, ``Z``, or an offset as in ``+01:00``, ``+1`` and ``UTC+8``; None for others."""
    if name in ("Z", "UT"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes, seconds = offset.groups()
        away = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        with suppress(ValueError):
            return timezone(-away if sign == "-" else away)
        return None
    with suppress(ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo(name)
    return None
