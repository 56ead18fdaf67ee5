"""Timestamps and time zones in the forms that Spark accepts, and times as messages show them.

Partition values have the form that the protocol prescribes; ``protocol.actions.partition_values`` parses them.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cm_delta_dagster.errors import InvalidArgumentError

_MOMENT = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?\s*(\S*))?)?)?"
)
_FIRST = ("0", "1", "1", "0", "0", "0")
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(?:(\d{1,2})|(\d{1,2}):(\d{1,2})|(\d{1,2}):(\d\d):(\d\d)|(\d\d)(\d\d)(\d\d)?)", re.ASCII
)
_LARGEST_OFFSET = timedelta(hours=18)
_SHORT_NAMES: Mapping[str, str] = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00",
    "MST": "-07:00",
    "HST": "-10:00",
}
"""The short names of time zones that Java knows, ``ZoneId.SHORT_IDS``."""


def parse_timestamp(text: str) -> datetime | None:
    """The timestamp of ``2026``, ``2026-01``, ``2026-01-31``, ``2026-01-31 12:00``, ``2026-01-31T12:00:00.5Z`` and so on.

    Returns:
        A datetime, with a time zone if the text names one; None if the text is not a timestamp or its time zone is unknown.
    """
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        return None
    *numbers, fraction, zone_name = match.groups()
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


def as_zone(zone: tzinfo | str | None) -> tzinfo | None:
    """Return a time zone that is given by its name.

    Raises:
        InvalidArgumentError: there is no such time zone, or the value is neither a name nor a ``datetime.tzinfo``.
    """
    named_zone = zone_of(zone) if isinstance(zone, str) else zone
    if isinstance(named_zone, tzinfo) or zone is None:
        return named_zone
    raise InvalidArgumentError(
        f"{zone!r} is not a time zone. Give the name of a region, as in 'Europe/Berlin', 'UTC', an offset "
        "such as '+02:00', or a datetime.tzinfo."
    )


class DeferredZone(tzinfo):
    """A time zone that is looked up when a time is converted for the first time.

    Args:
        source: returns the zone; it may raise an error, which the conversion then raises.
    """

    def __init__(self, source: Callable[[], tzinfo]) -> None:
        self._source = source
        self._zone: tzinfo | None = None

    def __reduce__(self) -> tuple[Callable[[tzinfo], tzinfo], tuple[tzinfo]]:
        return (_same_zone, (self.zone,))

    @property
    def zone(self) -> tzinfo:
        """The zone itself."""
        if self._zone is None:
            self._zone = self._source()
        return self._zone

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return self.zone.utcoffset(moment)

    def dst(self, moment: datetime | None) -> timedelta | None:
        return self.zone.dst(moment)

    def tzname(self, moment: datetime | None) -> str | None:
        return self.zone.tzname(moment)


def _same_zone(zone: tzinfo) -> tzinfo:
    return zone


def utc_text(epoch_ms: int) -> str:
    """``2026-01-31T12:00:00.000Z``; the number of milliseconds if the calendar does not have that time."""
    try:
        moment = datetime.fromtimestamp(epoch_ms // 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return f"{epoch_ms} ms since 1970"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{epoch_ms % 1000:03d}Z"


def zone_of(name: str) -> tzinfo | None:
    """The time zone that Spark takes for a text; None if it knows none.

    A text is the name of a region or a short name of Java, ``UTC``, ``Z``, or an offset of at most 18 hours such as ``+01:00``,
    ``+1``, ``UTC+8``.
    """
    if name in ("Z", "UT"):
        return UTC
    known = _SHORT_NAMES.get(name, name)
    offset = _OFFSET.fullmatch(known)
    if offset is not None:
        sign, *parts = offset.groups()
        hours, minutes, seconds = [int(part) for part in parts if part is not None] + [0] * (
            3 - sum(part is not None for part in parts)
        )
        away = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        is_valid = minutes < 60 and seconds < 60 and away <= _LARGEST_OFFSET
        return timezone(-away if sign == "-" else away) if is_valid else None
    with suppress(ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo(known)
    return None
