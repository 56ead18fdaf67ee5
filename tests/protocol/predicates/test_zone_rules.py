"""Local times as instants."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from cm_delta_dagster.protocol.predicates.timestamps import DeferredZone, zone_of
from cm_delta_dagster.protocol.predicates.zone_rules import (
    DISPUTED_BEFORE_1900,
    DISPUTED_ZONES,
    DisputedTimeError,
    instant_micros,
    region_name,
)

_HOUR = 3_600_000_000


def _local(*parts: int) -> int:
    return (dt.datetime(*parts) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # type: ignore[arg-type]


def test_a_local_time_is_converted_by_the_rules_of_its_zone() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert instant_micros(_local(2024, 7, 1), berlin) == _local(2024, 7, 1) - 2 * _HOUR
    assert instant_micros(_local(2024, 3, 31, 2, 30), berlin) == _local(2024, 3, 31, 1, 30), "in the gap"
    assert instant_micros(_local(2024, 10, 27, 2, 30), berlin) == _local(2024, 10, 27, 0, 30), "in the overlap"
    assert instant_micros(_local(1850, 1, 1), berlin) == _local(1850, 1, 1) - 3_208_000_000


def test_years_that_python_does_not_have_follow_the_same_rules() -> None:
    """The calendar repeats after 400 years."""
    berlin, cycle = ZoneInfo("Europe/Berlin"), 146_097 * 24 * _HOUR
    for month in (1, 7):
        near = _local(2400, month, 1)
        for cycles in (1, 20, 700):
            far = near + cycles * cycle
            assert instant_micros(far, berlin) - far == instant_micros(near, berlin) - near
    assert instant_micros(_local(1, 1, 1) - cycle, berlin) == _local(1, 1, 1) - cycle - 3_208_000_000


def test_times_before_1970_are_refused_where_the_rules_differ() -> None:
    stockholm = ZoneInfo("Europe/Stockholm")
    for zone in (stockholm, DeferredZone(lambda: stockholm)):
        with pytest.raises(DisputedTimeError, match="Europe/Stockholm"):
            instant_micros(_local(1850, 1, 1), zone)
    assert instant_micros(_local(1970, 1, 2), stockholm) == _local(1970, 1, 2) - _HOUR
    assert instant_micros(_local(1850, 1, 1), dt.timezone(dt.timedelta(hours=1))) == _local(1850, 1, 1) - _HOUR


def test_the_lists_hold_regions() -> None:
    assert DISPUTED_BEFORE_1900 < DISPUTED_ZONES
    assert all(region_name(zone) == name for name in DISPUTED_ZONES if (zone := zone_of(name)) is not None)
    assert region_name(dt.UTC) is None


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("+1", 1),
        ("+01", 1),
        ("+1:00", 1),
        ("+01:0", 1),
        ("+0130", 1.5),
        ("UTC+1:30", 1.5),
        ("EST", -5),
        ("-18:00", -18),
    ],
)
def test_offsets_are_understood_as_spark_does(name: str, hours: float) -> None:
    zone = zone_of(name)
    assert zone is not None and zone.utcoffset(None) == dt.timedelta(hours=hours)


@pytest.mark.parametrize("name", ["+053", "+18:01", "+19", "+01:60", "+01:0:30", "utc", "europe/nowhere"])
def test_other_texts_are_no_zones(name: str) -> None:
    assert zone_of(name) is None
