"""Engines of the command ``cm-delta sql``. Each takes a client and a statement and returns the rows as an Arrow table."""

import logging

import pyarrow as pa

from cm_delta_dagster.api.connection import Connection
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.spark.errors import spark_errors
from cm_delta_dagster.spark.session import is_connect, running_session


def spark_rows(client: DeltaClient, statement: str, *, limit: int) -> pa.Table:
    """At most ``limit`` rows of the statement, run by Spark. Raises what ``Connection.sql`` and the rows raise."""
    is_own = running_session() is None
    lake = Connection(client)
    if is_own and not is_connect(lake.spark):
        # A command shows its rows and errors only.
        lake.spark.sparkContext.setLogLevel("ERROR")
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    frame = lake.sql(statement)
    with spark_errors("computing the rows"):
        return frame.limit(limit).toArrow()
