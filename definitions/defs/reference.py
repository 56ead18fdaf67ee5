"""Reference tables: small, without partitions, merged by key on every run."""

import dagster as dg
from pyspark.sql import DataFrame

from cm_delta_dagster.orchestration import SparkResource
from resources.raw_data import RawData


def _csv(spark: SparkResource, raw: RawData, name: str, columns: str) -> DataFrame:
    return spark.spark_session.read.csv(raw.path(name), header=True, nullValue="NA", schema=columns)


@dg.asset(
    key=["nyc", "airlines"],
    group_name="nyc",
    kinds={"deltalake", "pyspark"},
    metadata={"mode": "merge", "merge_keys": ["carrier"]},
)
def airlines(spark: SparkResource, raw: RawData) -> DataFrame:
    """The sixteen carriers."""
    return _csv(spark, raw, "airlines", "carrier string, name string")


@dg.asset(
    key=["nyc", "airports"],
    group_name="nyc",
    kinds={"deltalake", "pyspark"},
    metadata={"mode": "merge", "merge_keys": ["faa"]},
)
def airports(spark: SparkResource, raw: RawData) -> DataFrame:
    """Airports of the United States by FAA code."""
    columns = "faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string"
    return _csv(spark, raw, "airports", columns)


@dg.asset(
    key=["nyc", "planes"],
    group_name="nyc",
    kinds={"deltalake", "pyspark"},
    metadata={"mode": "merge", "merge_keys": ["tailnum"]},
)
def planes(spark: SparkResource, raw: RawData) -> DataFrame:
    """Aircraft by tail number."""
    columns = (
        "tailnum string, year int, type string, manufacturer string, model string, engines int, seats int, "
        "speed int, engine string"
    )
    return _csv(spark, raw, "planes", columns)
