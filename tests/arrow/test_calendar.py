"""Files in Spark's old calendar."""

import datetime as dt
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
import pytest

from cm_delta_dagster.arrow.calendar import legacy_calendar, modern_dates, modern_moments
from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.protocol.schema.types import DATE, TIMESTAMP, TIMESTAMP_NTZ
from tests.arrow.data_files import DataFiles, columns

_VERSION = b"org.apache.spark.version"
_DATETIME = b"org.apache.spark.legacyDateTime"
_INT96 = b"org.apache.spark.legacyINT96"


@pytest.mark.requirements("PQ-2")
@pytest.mark.parametrize(
    ("footer", "datetimes", "int96"),
    [
        (None, False, False),
        ({}, False, False),
        ({_DATETIME: b"", _INT96: b""}, False, False),
        ({_VERSION: b"2.4.5"}, True, True),
        ({_VERSION: b"3.0.1"}, False, True),
        ({_VERSION: b"3.5.0"}, False, False),
        ({_VERSION: b"3.5.0", _DATETIME: b""}, True, False),
        ({_VERSION: b"4.2.0", _INT96: b""}, False, True),
    ],
)
def test_keys_in_the_footer_determine_the_calendar(
    footer: dict[bytes, bytes] | None, datetimes: bool, int96: bool
) -> None:
    """By the rules of Spark, which reads these keys only in files of its own."""
    found = legacy_calendar(footer)
    assert (found.datetimes, found.int96) == (datetimes, int96)


def _rebase_tables(name: str) -> list[dict[str, Any]]:
    """Spark's own tables of differences, from its jar."""
    for jar in (Path(pyspark.__file__).parent / "jars").glob("spark-*.jar"):
        with zipfile.ZipFile(jar) as archive:
            if name in archive.namelist():
                return json.loads(archive.read(name))
    raise AssertionError(f"{name} is in no jar of Spark")


_ZONES = ("UTC", "America/Los_Angeles", "Europe/Berlin", "Asia/Tokyo", "Asia/Kolkata", "America/Sao_Paulo")


@pytest.mark.parametrize("zone", _ZONES)
def test_moments_are_moved_as_spark_moves_them(zone: str) -> None:
    """Compared with the table of differences that Spark itself uses, away from the seconds at which clocks changed."""
    table = next(row for row in _rebase_tables("julian-gregorian-rebase-micros.json") if row["tz"] == zone)
    switches, differences = np.array(table["switches"]), np.array(table["diffs"])
    rng = np.random.default_rng(0)
    seconds = np.sort(rng.integers(switches[0], 0, 5000))
    near = np.abs(seconds[:, None] - switches[None, :]).min(axis=1) < 86_400
    seconds = seconds[~near]
    expected = seconds + differences[np.searchsorted(switches, seconds, side="right") - 1]
    moments = pa.array(seconds * 1_000_000 + 123_456, pa.timestamp("us"))
    assert modern_moments(moments, zone).view(pa.int64()).to_pylist() == (expected * 1_000_000 + 123_456).tolist()


@pytest.mark.requirements("PQ-2")
def test_dates_keep_their_year_month_and_day() -> None:
    """1000-01-01 was written as another day number; 29 February 1500 is 1 March now; recent ones stay."""
    written = [
        dt.date(1000, 1, 6),
        dt.date(1500, 3, 10),
        dt.date(1582, 10, 14),
        dt.date(1582, 10, 15),
        dt.date(1970, 1, 1),
    ]
    days = pa.array([*written, None], pa.date32())
    found = modern_dates(days).to_pylist()
    assert found[:2] == [dt.date(1000, 1, 1), dt.date(1500, 3, 1)]
    assert found[2:] == [dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(1970, 1, 1), None]


@pytest.mark.requirements("PQ-2")
def test_a_zone_may_be_an_offset() -> None:
    """Spark notes the session's zone as it was spelled."""
    moments = pa.array([-30609878400000000], pa.timestamp("us"))
    assert modern_moments(moments, "+00:00") == modern_moments(moments, "UTC")
    assert modern_moments(moments, "UTC+2") == modern_moments(moments, "Etc/GMT-2")


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="Nowhere"):
        modern_moments(pa.array([-(10**17)], pa.timestamp("us")), "Nowhere/Land")


@pytest.mark.requirements("PQ-2")
@pytest.mark.parametrize("is_int96", [False, True])
def test_only_marked_columns_of_marked_files_are_moved(data_files: DataFiles, is_int96: bool) -> None:
    """Each sort of timestamp by its own mark; timestamps without a zone never."""
    micros = -30609878400000000  # 1000-01-06 in the calendar of today
    moments = pa.array([micros], pa.timestamp("us"))
    plain = pa.table({"t": moments, "n": moments, "d": pa.array([dt.date(1000, 1, 6)])})
    footer = {_VERSION: b"3.2.1", (_INT96 if is_int96 else _DATETIME): b"", b"org.apache.spark.timeZone": b"UTC"}
    for table in (plain, plain.replace_schema_metadata(footer), plain.replace_schema_metadata({_VERSION: b"3.2.1"})):
        data_files.add(table, use_deprecated_int96_timestamps=is_int96)
    found = data_files.read(columns(t=TIMESTAMP, n=TIMESTAMP_NTZ, d=DATE))
    moved = micros - 5 * 86_400_000_000

    assert found["t"].combine_chunks().view(pa.int64()).to_pylist() == [micros, moved, micros]
    assert found["n"].combine_chunks().view(pa.int64()).to_pylist() == [micros] * 3
    assert found["d"].to_pylist()[0] == found["d"].to_pylist()[2] == dt.date(1000, 1, 6)
    assert found["d"].to_pylist()[1] == (dt.date(1000, 1, 6) if is_int96 else dt.date(1000, 1, 1))


@pytest.mark.requirements("PQ-3")
def test_old_times_of_zones_with_uncertain_rules_are_left_to_spark() -> None:
    old = pa.array([-3_000_000_000_000_000], pa.timestamp("us"))
    with pytest.raises(UnsupportedFeatureError, match="Europe/Stockholm"):
        modern_moments(old, "Europe/Stockholm")
    recent = pa.array([0], pa.timestamp("us"))
    assert modern_moments(recent, "Europe/Stockholm").equals(recent)
