"""Late corrections, merged into ``main.nyc.flights`` by a script without Dagster.

Run it as ``python -m definitions.late_corrections``.

The delays of every flight of Hawaiian Airlines in June were recorded an hour too high, and one flight is missing. The sensor of
the demo reports the commit and launches the report again.
"""

import datetime

from pyspark.sql import functions as F

from cm_delta_dagster import CommitContext, WriteResult
from definitions.defs.flights import FLIGHT_KEY
from resources.local import connect_local, local_spark


def merge_corrections() -> WriteResult:
    """One merge, one commit: thirty flights corrected, one added."""
    with connect_local(local_spark().spark_session) as lake:
        flights = lake.table("main.nyc.flights")
        june = flights.to_df(where="date >= DATE '2013-06-01' AND date <= DATE '2013-06-30' AND carrier = 'HA'")
        corrected = june.withColumn("dep_delay", F.col("dep_delay") - 60).withColumn(
            "arr_delay", F.col("arr_delay") - 60
        )
        forgotten = (
            june.limit(1)
            .withColumn("date", F.lit(datetime.date(2013, 6, 30)))
            .withColumn("day", F.lit(30))
            .withColumn("flight", F.lit(9999))
        )
        return flights.merge(
            corrected.unionByName(forgotten),
            on=FLIGHT_KEY,
            within="date >= DATE '2013-06-01' AND date <= DATE '2013-06-30'",
            context=CommitContext(user_metadata="late corrections of Hawaiian Airlines, June"),
        )


if __name__ == "__main__":
    result = merge_corrections()
    print(f"main.nyc.flights is at version {result.version}: {dict(result.metrics)}")
