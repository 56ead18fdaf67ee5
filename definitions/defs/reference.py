"""Reference tables: small and without partitions. Each run replaces the airlines, and merges the others by key."""

from datetime import timedelta

import dagster as dg
import polars as pl
from pyspark.sql import DataFrame

from cm_delta_dagster.orchestration import SparkResource
from resources.raw_data import RawData

_EVERY_QUARTER = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=120), warn_window=timedelta(days=100))


def _csv(spark: SparkResource, raw: RawData, name: str, columns: str) -> DataFrame:
    return spark.spark_session.read.csv(raw.path(name), header=True, nullValue="NA", schema=columns)


@dg.asset(
    key=["nyc", "airlines"],
    group_name="nyc",
    owners=["team:reference-data"],
    freshness_policy=_EVERY_QUARTER,
)
def airlines(raw: RawData) -> pl.DataFrame:
    """The sixteen carriers, read by polars and written without Spark."""
    return pl.read_csv(raw.local_path("airlines"))


@dg.asset(
    key=["nyc", "airports"],
    group_name="nyc",
    owners=["team:reference-data"],
    freshness_policy=_EVERY_QUARTER,
    metadata={"mode": "merge", "on": ["faa"]},
)
def airports(spark: SparkResource, raw: RawData) -> DataFrame:
    """Airports of the United States by FAA code."""
    columns = (
        "faa string COMMENT 'FAA code', name string, lat double COMMENT 'Latitude in degrees', "
        "lon double COMMENT 'Longitude in degrees', alt int COMMENT 'Altitude in feet', "
        "tz int COMMENT 'Offset from UTC in hours', dst string COMMENT 'Rule of daylight saving time', tzone string"
    )
    return _csv(spark, raw, "airports", columns)


@dg.asset(
    key=["nyc", "planes"],
    group_name="nyc",
    owners=["team:reference-data"],
    freshness_policy=_EVERY_QUARTER,
    metadata={"mode": "merge", "on": ["tailnum"]},
)
def planes(spark: SparkResource, raw: RawData) -> DataFrame:
    """Aircraft by tail number."""
    columns = (
        "tailnum string COMMENT 'Tail number', year int COMMENT 'Year in which the plane was built', type string, "
        "manufacturer string, model string, engines int, seats int, speed int COMMENT 'Cruising speed in miles per hour', "
        "engine string COMMENT 'Kind of engine'"
    )
    return _csv(spark, raw, "planes", columns)
