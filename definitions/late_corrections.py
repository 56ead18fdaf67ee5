"""Late corrections, merged into ``main.nyc.flights`` by a script without Dagster.

Run it as ``python -m definitions.late_corrections``.

The delays of every flight of Hawaiian Airlines in June were recorded an hour too high, and one flight is missing. The sensor of
the demo reports the commits and launches the report again.
"""

from pyspark.sql import functions as F

from cm_delta_dagster import CommitProperties, Connection, WriteResult
from definitions.defs.flights import FLIGHT_KEY
from definitions.defs.months import month_end, month_key
from resources.local import connect_local, local_spark

JUNE = 6
MISSING_FLIGHT = 9999
"""Number of the flight that is missing in the raw file."""


def correct(lake: Connection) -> tuple[WriteResult, WriteResult]:
    """Two commits: thirty flights are corrected by a merge, and one is appended."""
    flights = lake.table("main.nyc.flights")
    june = month_key(JUNE)
    properties = CommitProperties(user_metadata="late corrections of Hawaiian Airlines, June")
    recorded = flights.to_df(where=f"month = DATE '{june}' AND carrier = 'HA' AND flight <> {MISSING_FLIGHT}")
    earlier = {name: F.col(name) - 60 for name in ("dep_delay", "arr_delay")}
    merged = flights.upsert(
        recorded.withColumns(earlier), on=FLIGHT_KEY, where=f"month = DATE '{june}'", commit_properties=properties
    )
    missing = recorded.orderBy(*FLIGHT_KEY).limit(1)
    missing = missing.withColumns(
        {"date": F.lit(month_end(june)), "flight": F.lit(MISSING_FLIGHT), "dep_delay": F.lit(0.0)}
    )
    return merged, flights.append(missing, commit_properties=properties)


if __name__ == "__main__":
    with connect_local(local_spark().spark_session) as lake:
        for result in correct(lake):
            print(f"main.nyc.flights is at version {result.version}: {dict(result.metrics)}")
