"""The report: one row for each carrier and month. It is materialized again when the flights change."""

from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from definitions.defs.flights import commented

_COMMENTS = {
    "carrier": "Two-letter code of the carrier",
    "month": "First day of the month",
    "flights": "Number of flights",
    "cancelled": "Number of flights that did not depart",
    "mean_dep_delay": "Mean departure delay in minutes",
    "mean_arr_delay": "Mean arrival delay in minutes",
    "miles": "Sum of the distances in miles",
    "name": "Name of the carrier",
}


@dg.asset(
    key=["nyc", "carrier_months"],
    group_name="nyc",
    owners=["team:analytics"],
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(days=45), warn_window=timedelta(days=35)),
    ins={
        "flights": dg.AssetIn(
            ["nyc", "flights"],
            metadata={"columns": ["month", "carrier", "dep_delay", "arr_delay", "distance"]},
            partition_mapping=dg.AllPartitionMapping(),
        ),
        "airlines": dg.AssetIn(["nyc", "airlines"]),
    },
)
def carrier_months(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Flights, cancellations and mean delays of each carrier in each month.

    The sensor `ratified_commits` materializes it again after each commit of the flights, also from outside Dagster.
    """
    counted = (
        flights.groupBy("month", "carrier")
        .agg(
            F.count("*").alias("flights"),
            F.sum(F.col("dep_delay").isNull().cast("long")).alias("cancelled"),
            F.round(F.avg("dep_delay"), 2).alias("mean_dep_delay"),
            F.round(F.avg("arr_delay"), 2).alias("mean_arr_delay"),
            F.sum("distance").alias("miles"),
        )
        .join(F.broadcast(airlines), "carrier", "left")
        .orderBy("carrier", "month")
        .coalesce(1)
    )
    return commented(counted, _COMMENTS)
