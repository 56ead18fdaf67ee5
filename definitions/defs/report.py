"""The report: one row for each carrier and month. It is materialized again when the flights change."""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@dg.asset(
    key=["nyc", "carrier_months"],
    group_name="nyc",
    kinds={"deltalake", "pyspark"},
    ins={
        "flights": dg.AssetIn(
            ["nyc", "flights"],
            metadata={"columns": ["date", "carrier", "dep_delay", "arr_delay", "distance"]},
            partition_mapping=dg.AllPartitionMapping(),
        ),
        "airlines": dg.AssetIn(["nyc", "airlines"]),
    },
)
def carrier_months(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Flights, cancellations and mean delays of each carrier in each month."""
    return (
        flights.groupBy(F.month("date").alias("month"), "carrier")
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
