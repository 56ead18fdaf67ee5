"""Texts as values, as Spark's ``CAST`` reads them without ANSI mode (protocol heading "Partition Value Serialization").

Each function returns None where Spark returns NULL, and for a time of day without a date, which Spark reads as a time of today.
Blanks and control characters around a text do not count.
"""

import datetime as dt
import math
import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from cm_delta_dagster.protocol.predicates.timestamps import zone_of

_AROUND = "".join(map(chr, range(33))) + "\x7f"
_INTEGER = re.compile(r"([+-]?)(\d*)(?:\.\d*)?", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?")  # Java accepts the digits of all scripts.
_FLOAT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[dDfF]?", re.ASCII)
_HEX_FLOAT = re.compile(r"([+-]?0[xX](?:[\da-fA-F]+\.?[\da-fA-F]*|\.[\da-fA-F]+)[pP][+-]?\d+)[dDfF]?", re.ASCII)
_FLOAT_NAMES = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    "nan": math.nan,
}
_SIGNED_NAN = ("+NaN", "-NaN")
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_DATE = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(
    r"([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?([^\d.].*)?)?)?)?)?)?",
    re.ASCII | re.DOTALL,
)
_DAY_MICROS = 86_400_000_000
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class TimestampText:
    """A timestamp as a text has it.

    Attributes:
        local_micros: microseconds from 1970-01-01 00:00 to the local time, of any year.
        zone: the zone that the text names; None if it names none.
    """

    local_micros: int
    zone: dt.tzinfo | None


def integer_of(text: str, bits: int) -> int | None:
    """A whole number of so many bits; digits after a point are cut off."""
    match = _INTEGER.fullmatch(text.strip(_AROUND))
    if match is None or match[0] in ("", "+", "-"):
        return None
    value = int(f"{match[1]}{match[2] or '0'}")
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def boolean_of(text: str) -> bool | None:
    """``true``, ``t``, ``yes``, ``y``, ``1`` and their opposites, ignoring case."""
    word = text.strip(_AROUND).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def float_of(text: str) -> float | None:
    """A number of 64 bits in the forms of Java, such as ``1e5``, ``1d`` and ``0x1p3``, or infinity or NaN."""
    stripped = text.strip(_AROUND)
    if stripped.lower() in _FLOAT_NAMES:
        return _FLOAT_NAMES[stripped.lower()]
    if stripped in _SIGNED_NAN:
        return math.nan
    if (plain := _FLOAT.fullmatch(stripped)) is not None:
        return float(plain[1])
    if (hexadecimal := _HEX_FLOAT.fullmatch(stripped)) is not None:
        try:
            return float.fromhex(hexadecimal[1])
        except OverflowError:
            return math.copysign(math.inf, -1 if stripped.startswith("-") else 1)
    return None


def decimal_of(text: str, precision: int, scale: int) -> Decimal | None:
    """A decimal, rounded half up to the scale."""
    stripped = text.strip(_AROUND)
    if _DECIMAL.fullmatch(stripped) is None:
        return None
    exact = Decimal(stripped)
    if exact and exact.adjusted() >= _MOST_DIGITS:
        return None
    try:
        rounded = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(prec=2 * _MOST_DIGITS + 1))
    except InvalidOperation:
        return None
    return rounded if rounded.copy_abs() < Decimal(10) ** (precision - scale) else None


def days_of(text: str) -> int | None:
    """Days from 1970-01-01 to a date of any year; what follows a blank or ``T`` does not count."""
    match = _DATE.fullmatch(text.strip(_AROUND))
    days = None if match is None else _days(*match.groups()[:4])
    return days if days is not None and -(1 << 31) <= days < 1 << 31 else None


def timestamp_of(text: str) -> TimestampText | None:
    """A timestamp of any year; parts from the right may be missing, and what is below a microsecond is cut off."""
    match = _TIMESTAMP.fullmatch(text.strip(_AROUND))
    if match is None:
        return None
    days = _days(*match.groups()[:4])
    hour, minute, second = (int(part or 0) for part in match.groups()[4:7])
    named = (match[9] or "").strip(_AROUND)
    zone = zone_of(named) if named else None
    if days is None or hour > 23 or minute > 59 or second > 59 or (named and zone is None):
        return None
    micros = int((match[8] or "")[:6].ljust(6, "0"))
    local = days * _DAY_MICROS + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros
    return TimestampText(local, zone)


def date_text(days: int) -> str:
    """The text of a date of any year; years before 0000 and after 9999 have a sign."""
    cycles, day_of_cycle = divmod(days + _EPOCH_DAY - 1, _CYCLE_DAYS)
    date = dt.date.fromordinal(day_of_cycle + 1)
    year = date.year + cycles * _CYCLE_YEARS
    sign = "-" if year < 0 else "+" if year > dt.MAXYEAR else ""
    return f"{sign}{abs(year):04}-{date.month:02}-{date.day:02}"


def timestamp_texts(micros: int) -> tuple[str, str]:
    """The text of the date and of the time of day, with six digits of a second."""
    days, rest = divmod(micros, _DAY_MICROS)
    seconds, fraction = divmod(rest, 1_000_000)
    return date_text(days), f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"


def _days(sign: str, year_text: str, month_text: str | None, day_text: str | None) -> int | None:
    """Days since the epoch; None if the calendar does not have the date."""
    year = int(sign + year_text)
    cycles, year_of_cycle = divmod(year, _CYCLE_YEARS)
    try:
        # Python has the years from 1 to 9999; the calendar repeats after 400 years.
        date = dt.date(_CYCLE_YEARS + year_of_cycle, int(month_text or 1), int(day_text or 1))
    except ValueError:
        return None
    return date.toordinal() - _EPOCH_DAY + (cycles - 1) * _CYCLE_DAYS
