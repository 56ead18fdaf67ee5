"""The tables of casts and of time zones, checked with Spark itself."""

import datetime as dt
from functools import reduce
from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.protocol.predicates.zone_rules import DISPUTED_ZONES, instant_micros
from tests.support.cast_cases import CAST_CASES, ZONE

_SETTINGS = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": ZONE}


def _cast(kind: str) -> str:
    value = f"CAST(text AS {kind})"
    if kind == "date":
        value = f"unix_date({value})"
    if kind == "timestamp":
        value = f"unix_micros({value})"
    if kind == "timestamp_ntz":
        days = f"CAST(unix_date(CAST({value} AS DATE)) AS BIGINT)"
        seconds = f"(hour({value}) * 60 + minute({value})) * 60"
        value = f"({days} * 86400 + {seconds}) * 1000000 + CAST(extract(SECOND FROM {value}) * 1000000 AS BIGINT)"
    return f"CAST({value} AS STRING)"


@pytest.mark.requirements("PART-4")
def test_the_table_of_casts_is_that_of_spark(spark: SparkSession) -> None:
    before = {name: spark.conf.get(name) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        parts: list[DataFrame] = []
        for kind, cases in CAST_CASES.items():
            texts = spark.createDataFrame(pa.table({"kind": [kind] * len(cases), "text": list(cases)}))
            parts.append(texts.selectExpr("kind", "text", f"{_cast(kind)} AS value"))
        rows = reduce(DataFrame.unionAll, parts).collect()
    finally:
        for name, setting in before.items():
            spark.conf.set(name, str(setting))
    assert [row for row in rows if row.value != CAST_CASES[row.kind][row.text]] == []


@pytest.mark.requirements("PART-6")
def test_python_converts_old_local_times_as_spark_does_in_all_other_zones(spark: SparkSession) -> None:
    if not hasattr(spark, "sparkContext"):
        pytest.skip("Spark Connect hides the names of the zones that the JDK has.")
    known = set(spark._jvm.java.time.ZoneId.getAvailableZoneIds())  # type: ignore[union-attr]
    names = sorted(name for name in (available_timezones() & known) - DISPUTED_ZONES if "/" in name)
    hours = [dt.datetime(year, month, 3, 5) for year in (1, 1582, *range(1850, 1975, 3)) for month in (1, 7)]
    locals_ = [(hour - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) for hour in hours]
    table = pa.table({"zone": [name for name in names for _ in locals_], "local": locals_ * len(names)})
    frame = spark.createDataFrame(table)
    converted = frame.selectExpr(
        "zone", "local", "unix_micros(to_utc_timestamp(timestamp_micros(local), zone)) AS instant"
    )
    wrong: dict[str, int] = {}
    for row in converted.toArrow().to_pylist():
        if instant_micros(row["local"], ZoneInfo(row["zone"])) != row["instant"]:
            wrong[row["zone"]] = wrong.get(row["zone"], 0) + 1
    assert wrong == {}
