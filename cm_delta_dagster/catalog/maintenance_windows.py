"""Windows of time in which maintenance is permitted, e.g. ``Mon-Fri 22:00-06:00 Europe/Berlin``."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from cm_delta_dagster.errors import InvalidArgumentError

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = "|".join(_DAYS)
_PATTERN = re.compile(
    rf"(?:(?P<days>(?:{_DAY})(?:-(?:{_DAY}))?(?:,(?:{_DAY})(?:-(?:{_DAY}))?)*)\s+)?"
    r"(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)(?:\s+(?P<zone>\S+))?",
    re.IGNORECASE | re.ASCII,
)
_MINUTES_OF_A_DAY = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceWindow:
    """A time of day on some days of the week; ``str()`` returns the text that :meth:`parse` takes.

    Attributes:
        days: 0 (Monday) to 6, the days on which the window begins.
        start, end: minutes since midnight; an end at or before the start is on the next day.
        zone: name of the time zone.
    """

    days: frozenset[int]
    start: int
    end: int
    zone: str = "UTC"

    @classmethod
    def parse(cls, text: str) -> "MaintenanceWindow":
        """``[days] HH:MM-HH:MM [zone]``: days such as ``Mon-Fri,Sun``, else every day; a zone as ``Europe/Berlin``, else UTC.

        Raises InvalidArgumentError for any other text.
        """
        match = _PATTERN.fullmatch(text.strip()) if isinstance(text, str) else None
        start = end = None
        if match is not None:
            start, end = _minutes(match["start"]), _minutes(match["end"], is_end=True)
        if match is None or start is None or end is None:
            raise InvalidArgumentError(
                f"{text!r} is not a maintenance window: write e.g. 22:00-06:00, or Mon-Fri 22:00-06:00 Europe/Berlin."
            )
        zone = match["zone"] or "UTC"
        _zone(zone)
        return cls(days=_days(match["days"]), start=start, end=end, zone=zone)

    def contains(self, now_ms: int) -> bool:
        """Whether the window is open at ``now_ms``, epoch milliseconds."""
        now = datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone(_zone(self.zone))
        minute = now.hour * 60 + now.minute
        today, yesterday = now.weekday(), (now - timedelta(days=1)).weekday()
        if self.start < self.end:
            return today in self.days and self.start <= minute < self.end
        return (today in self.days and minute >= self.start) or (yesterday in self.days and minute < self.end)

    def __str__(self) -> str:
        days = "" if len(self.days) == len(_DAYS) else ",".join(_DAYS[day].title() for day in sorted(self.days)) + " "
        return f"{days}{_time(self.start)}-{_time(self.end)} {self.zone}"


def _minutes(text: str, *, is_end: bool = False) -> int | None:
    hours, minutes = int(text[:2]), int(text[3:])
    minute_of_day = hours * 60 + minutes
    latest = _MINUTES_OF_A_DAY if is_end else _MINUTES_OF_A_DAY - 1
    return minute_of_day if minutes < 60 and minute_of_day <= latest else None


def _time(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _days(text: str | None) -> frozenset[int]:
    if text is None:
        return frozenset(range(len(_DAYS)))
    days: set[int] = set()
    for part in text.lower().split(","):
        first, _, last = part.partition("-")
        start, end = _DAYS.index(first), _DAYS.index(last or first)
        days.update(day % len(_DAYS) for day in range(start, (end if end >= start else end + len(_DAYS)) + 1))
    return frozenset(days)


def _zone(name: str) -> tzinfo:
    if name.upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:  # Unknown, or the machine has no data for it.
        raise InvalidArgumentError(
            f"{name!r} is not a time zone that this machine knows; give the name of a region, e.g. Europe/Berlin, or UTC."
        ) from error
