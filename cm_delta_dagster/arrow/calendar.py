"""Conversion of dates and timestamps from Spark's legacy calendar.

Spark 2, and later versions if configured so, wrote dates and timestamps in the hybrid Julian and Gregorian calendar and recorded
that in the footer. As in Spark, a local time of the legacy calendar becomes the same year, month, day and time of the proleptic
Gregorian calendar, which Delta uses. Files without such an entry use the proleptic Gregorian calendar already.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.protocol.predicates.timestamps import zone_of
from cm_delta_dagster.protocol.predicates.zone_rules import DISPUTED_BEFORE_1900, region_name

_VERSION = b"org.apache.spark.version"
_LEGACY_DATETIME = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96 = b"org.apache.spark.legacyINT96"
_TIME_ZONE = b"org.apache.spark.timeZone"
_FIRST_WITH_DATETIME = b"3.0.0"
_FIRST_WITH_INT96 = b"3.1.0"

_SWITCH_DAY = -141427
"""1582-10-15, the first day on which both calendars agree."""
_JULIAN_MARCH_OF_YEAR_0 = -719470
_GREGORIAN_MARCH_OF_YEAR_0 = -719468
_DAY = 86_400_000_000
_SECOND = 1_000_000
# Java's legacy time zones have no changes before 1900; earlier timestamps use today's standard offset.
_OLD_CLOCK_BEGINS = -2_208_988_800 * _SECOND
_TODAY = dt.datetime(2030, 1, 1)
_EARLIEST = dt.datetime(1, 1, 3)

Days = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LegacyCalendar:
    """Which values of a file are in the legacy calendar (Julian before 1582-10-15).

    Attributes:
        datetimes: dates and INT64 timestamps are.
        int96: INT96 timestamps are.
        zone: the time zone of the writer; UTC if the file names none.
    """

    datetimes: bool = False
    int96: bool = False
    zone: str = "UTC"

    @property
    def is_any(self) -> bool:
        return self.datetimes or self.int96


PROLEPTIC = LegacyCalendar()


def legacy_calendar(footer: Mapping[bytes, bytes] | None) -> LegacyCalendar:
    """The calendar by the key-value metadata of a Parquet footer, by Spark's rules."""
    version = (footer or {}).get(_VERSION)
    if footer is None or version is None:
        return PROLEPTIC
    datetimes = version < _FIRST_WITH_DATETIME or _LEGACY_DATETIME in footer
    int96 = version < _FIRST_WITH_INT96 or _LEGACY_INT96 in footer
    if not (datetimes or int96):
        return PROLEPTIC
    return LegacyCalendar(datetimes, int96, footer.get(_TIME_ZONE, b"UTC").decode())


def modern_dates(days: pa.Array) -> pa.Array:
    """``date32`` of the legacy calendar as ``date32`` of the proleptic calendar."""
    values = days.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
    if not (values < _SWITCH_DAY).any():
        return days
    return _with_nulls_of(days, _modern_days(values).astype(np.int32), pa.date32())


def modern_moments(moments: pa.Array, zone: str) -> pa.Array:
    """Timestamps in microseconds by the legacy calendar in ``zone``, as timestamps of the proleptic calendar.

    Raises:
        UnsupportedFeatureError: the zone is not known here.
    """
    micros = moments.view(pa.int64()).fill_null(0).to_numpy()
    early = micros < _OLD_CLOCK_BEGINS
    if not early.any():
        return moments
    distinct, position = np.unique(micros[early], return_inverse=True)
    result = micros.copy()
    result[early] = _modern_micros(distinct, _zone(zone))[position]
    return _with_nulls_of(moments, result, moments.type)


def _with_nulls_of(array: pa.Array, values: npt.NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    plain = pa.int32() if kind == pa.date32() else pa.int64()
    return pa.array(values, type=plain, mask=missing).view(kind)


def _modern_days(days: Days) -> Days:
    since_march = days - _JULIAN_MARCH_OF_YEAR_0
    year = (4 * since_march + 3) // 1461
    day_of_year = since_march - 1461 * year // 4
    # A 29 February that the new calendar does not have becomes 1 March: the year is counted from March.
    modern = 365 * year + year // 4 - year // 100 + year // 400 + day_of_year + _GREGORIAN_MARCH_OF_YEAR_0
    return np.where(days < _SWITCH_DAY, modern, days)


def _modern_micros(micros: Days, zone: dt.tzinfo) -> Days:
    wall_clock = micros + _standard_offset(zone)
    modern_wall_clock = _modern_days(wall_clock // _DAY) * _DAY + wall_clock % _DAY
    offsets = np.fromiter((_offset_of(int(local), zone) for local in modern_wall_clock), np.int64, len(micros))
    return modern_wall_clock - offsets


def _standard_offset(zone: dt.tzinfo) -> int:
    today = _TODAY.replace(tzinfo=zone)
    return _micros(today.utcoffset()) - _micros(today.dst())


def _offset_of(local_micros: int, zone: dt.tzinfo) -> int:
    try:
        local = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=local_micros)
    except OverflowError:
        local = _EARLIEST  # Zones have no rules before the first year: the offset is that of the beginning.
    return _micros(max(local, _EARLIEST).replace(tzinfo=zone).utcoffset())


def _micros(offset: dt.timedelta | None) -> int:
    return (offset or dt.timedelta(0)) // dt.timedelta(microseconds=1)


def _zone(name: str) -> dt.tzinfo:
    zone = zone_of(name)
    if zone is not None and region_name(zone) in DISPUTED_BEFORE_1900:
        raise UnsupportedFeatureError(
            f"The file holds times before 1900 in Spark's old calendar, written in the time zone {name!r}. Its rules at that time "
            "are not the same in Spark, Python and the operating system. Read the table through Spark."
        )
    if zone is None:
        raise UnsupportedFeatureError(
            f"The file holds times in Spark's old calendar, written in the time zone {name!r}, which is not known here. "
            "Install tzdata, or read the table through Spark."
        )
    return zone
