"""The daily tables: flights, weather, and both joined, with one partition for each day."""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.orchestration import SparkResource
from resources.raw_data import RawData

DAYS = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")

FLIGHT_KEY = ("date", "carrier", "flight", "origin", "sched_dep_time")
"""What identifies a flight; late corrections are merged by it."""

_FLIGHT_COLUMNS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay double, arr_time int, sched_arr_time int, "
    "arr_delay double, carrier string, flight int, tailnum string, origin string, dest string, air_time double, "
    "distance double, hour int, minute int, time_hour timestamp"
)
_WEATHER_COLUMNS = (
    "origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, wind_dir int, "
    "wind_speed double, wind_gust double, precip double, pressure double, visib double, time_hour timestamp"
)


FOLLOWS_FLIGHTS_AND_WEATHER = (
    dg.AutomationCondition.any_deps_updated()
    .allow(dg.AssetSelection.assets(["nyc", "flights"], ["nyc", "weather"]))
    .since_last_handled()
    & ~dg.AutomationCondition.any_deps_missing()
    & ~dg.AutomationCondition.any_deps_in_progress()
    & ~dg.AutomationCondition.in_progress()
)
"""A day is joined again when its flights or its weather changed, in Dagster or outside."""


def _days(context: dg.AssetExecutionContext, frame: DataFrame) -> DataFrame:
    """The rows of the days that this run materializes, with their date as the first column."""
    dated = frame.select(F.make_date("year", "month", "day").alias("date"), "*")
    keys = sorted(context.partition_keys)
    return dated.where(F.col("date").between(keys[0], keys[-1]) & F.col("date").cast("string").isin(keys))


@dg.asset(
    key=["nyc", "flights"],
    group_name="nyc",
    kinds={"deltalake", "pyspark"},
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"partition_expr": "date"},
)
def flights(context: dg.AssetExecutionContext, spark: SparkResource, raw: RawData) -> DataFrame:
    """Every flight that left one of the three New York airports."""
    frame = spark.spark_session.read.csv(raw.path("flights"), header=True, nullValue="NA", schema=_FLIGHT_COLUMNS)
    # Three files for each day, as from three parallel loaders: small files for compaction.
    return _days(context, frame).repartition(3)


@dg.asset(
    key=["nyc", "weather"],
    group_name="nyc",
    kinds={"deltalake", "pyspark"},
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"partition_expr": "date"},
)
def weather(context: dg.AssetExecutionContext, spark: SparkResource, raw: RawData) -> DataFrame:
    """Hourly weather at the three airports."""
    frame = spark.spark_session.read.csv(raw.path("weather"), header=True, nullValue="NA", schema=_WEATHER_COLUMNS)
    return _days(context, frame).repartition("date")


@dg.asset(
    key=["nyc", "flights_enriched"],
    group_name="nyc",
    kinds={"deltalake", "pyspark"},
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    ins={
        "flights": dg.AssetIn(["nyc", "flights"]),
        "weather": dg.AssetIn(
            ["nyc", "weather"], metadata={"columns": ["origin", "time_hour", "temp", "wind_speed", "precip"]}
        ),
        "planes": dg.AssetIn(["nyc", "planes"]),
        "airports": dg.AssetIn(["nyc", "airports"]),
    },
    automation_condition=FOLLOWS_FLIGHTS_AND_WEATHER,
    metadata={"partition_expr": "date"},
)
def flights_enriched(flights: DataFrame, weather: DataFrame, planes: DataFrame, airports: DataFrame) -> DataFrame:
    """Flights with the weather at departure, the plane and the name of the destination."""
    plane = planes.select("tailnum", "manufacturer", "model", F.col("year").alias("plane_year"))
    destination = airports.select(F.col("faa").alias("dest"), F.col("name").alias("dest_name"))
    return (
        flights.join(weather, ["origin", "time_hour"], "left")
        .join(F.broadcast(plane), "tailnum", "left")
        .join(F.broadcast(destination), "dest", "left")
        .repartition(2)
    )
