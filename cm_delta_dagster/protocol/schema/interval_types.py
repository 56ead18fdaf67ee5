"""Interval types (protocol heading "Interval Types"): their names, and their text as partition values.

There are two families: a signed number of months and a signed number of microseconds. A narrowed name such as ``interval day``
denotes the same type and is kept as the log spells it. Parquet files contain the number.
"""

import re
from collections.abc import Iterator, Mapping

_YEAR_MONTH = ("year", "month")
_DAY_TIME = ("day", "hour", "minute", "second")
_MICROS: Mapping[str, int] = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_BELOW: Mapping[str, int] = {"month": 12, "hour": 24, "minute": 60, "second": 60}
_SEPARATORS: Mapping[str, str] = {"month": "-", "hour": " ", "minute": ":", "second": ":"}
_LITERAL = re.compile(r"interval\s+([+-]?)'([+-]?)([^']*)'\s+([a-z]+)(?:\s+to\s+([a-z]+))?", re.ASCII | re.IGNORECASE)


def _names(units: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for first in range(len(units)):
        for last in range(first, len(units)):
            chosen = units[first : last + 1]
            yield "interval " + (chosen[0] if len(chosen) == 1 else f"{chosen[0]} to {chosen[-1]}"), chosen


_UNITS: Mapping[str, tuple[str, ...]] = dict([*_names(_YEAR_MONTH), *_names(_DAY_TIME)])

YEAR_MONTH_NAMES: frozenset[str] = frozenset(name for name, units in _UNITS.items() if units[0] in _YEAR_MONTH)
"""``interval year to month`` and its narrowed spellings: months."""
DAY_TIME_NAMES: frozenset[str] = frozenset(_UNITS) - YEAR_MONTH_NAMES
"""``interval day to second`` and its narrowed spellings: microseconds."""


def parse_interval(text: str, name: str) -> int | None:
    """Months or microseconds of an ANSI literal such as ``INTERVAL '1-6' YEAR TO MONTH``.

    Args:
        text: the literal.
        name: type of the column. The literal may have any spelling of the family of the type. Its value must be a multiple of
            the smallest unit of the type, for example whole days for ``interval day``.

    Returns:
        None for other text, a value outside of 32 (months) or 64 bits (microseconds), or a fraction of the smallest unit.
    """
    match = _LITERAL.fullmatch(text)
    if match is None:
        return None
    outer, inner, digits, first, last = match.groups()
    spelled = "interval " + (f"{first} to {last}" if last else first).lower()
    units = _UNITS.get(spelled, ())
    if not units or (units[0] in _YEAR_MONTH) != (name in YEAR_MONTH_NAMES):
        return None
    amount = _amount(digits, units)
    if amount is None:
        return None
    value = -amount if (outer == "-") != (inner == "-") else amount
    bits = 32 if name in YEAR_MONTH_NAMES else 64
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) and not value % _smallest(name) else None


def interval_text(value: int, name: str) -> str:
    """The literal of months or microseconds, in the canonical spelling of the family of ``name``."""
    sign, amount = "-" if value < 0 else "", abs(value)
    if name in YEAR_MONTH_NAMES:
        return f"INTERVAL '{sign}{amount // 12}-{amount % 12}' YEAR TO MONTH"
    seconds, micros = divmod(amount, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    fraction = f".{micros:06d}" if micros else ""
    return f"INTERVAL '{sign}{day} {hour:02d}:{minute:02d}:{second:02d}{fraction}' DAY TO SECOND"


def _smallest(name: str) -> int:
    last = _UNITS[name][-1]
    return {"year": 12, "month": 1, "second": 1}.get(last) or _MICROS[last]


def _amount(digits: str, units: tuple[str, ...]) -> int | None:
    pattern = r"(\d{1,19})" + "".join(_SEPARATORS[unit] + r"(\d{1,2})" for unit in units[1:])
    match = re.fullmatch(pattern + (r"(?:\.(\d{1,9}))?" if units[-1] == "second" else ""), digits, re.ASCII)
    if match is None:
        return None
    numbers = dict(zip(units, map(int, match.groups()[: len(units)]), strict=True))
    if any(numbers[unit] >= _BELOW[unit] for unit in units[1:]):
        return None
    if units[0] in _YEAR_MONTH:
        return numbers.get("year", 0) * 12 + numbers.get("month", 0)
    fraction = (match[len(units) + 1] or "") if units[-1] == "second" else ""
    if fraction[6:].strip("0"):
        return None
    return sum(number * _MICROS[unit] for unit, number in numbers.items()) + int(fraction[:6].ljust(6, "0"))
