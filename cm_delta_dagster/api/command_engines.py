"""What commands of ``cm-delta`` read or rewrite rows. The command line imports this module when such a command runs."""

import logging

import pyarrow as pa

from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.maintenance.apply_optimize import apply_optimize
from cm_delta_dagster.operations.maintenance.arrow_rewrite import rewrite_needs_spark
from cm_delta_dagster.operations.maintenance.optimize import plan_optimize
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizePlan, OptimizeResult
from cm_delta_dagster.operations.tables.alter import AlterResult
from cm_delta_dagster.operations.tables.alter_with_rewrite import alter_with_rewrite
from cm_delta_dagster.operations.tables.alterations import Alteration
from cm_delta_dagster.operations.writing.engine_choice import SessionSource, no_session
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.session.session import is_connect, running_session


def spark_rows(client: DeltaClient, statement: str, *, limit: int) -> pa.Table:
    """At most ``limit`` rows of the statement, run by Spark. Raises what ``Connection.sql`` and the rows raise."""
    frame = _connection(client).sql(statement)
    with spark_errors("computing the rows"):
        return frame.limit(limit).toArrow() if frame.columns else pa.table({})


def planned(
    client: DeltaClient, name: str, *, where: str | None, z_order_by: tuple[str, ...], full: bool
) -> OptimizePlan:
    """What OPTIMIZE would rewrite. Needs no Java. Raises as ``plan_optimize``."""
    return plan_optimize(client.table(name), where=where, z_order_by=z_order_by, full=full)


def optimized(
    client: DeltaClient, name: str, *, where: str | None, z_order_by: tuple[str, ...], full: bool
) -> OptimizeResult:
    """What OPTIMIZE rewrote. Raises as ``optimize``. Spark starts only if Arrow cannot write the files of the table."""
    table = client.table(name)
    plan = plan_optimize(table, where=where, z_order_by=z_order_by, full=full)
    session: SessionSource = no_session if rewrite_needs_spark(plan) is None else lambda: _connection(client).spark
    return apply_optimize(table, plan, spark=session)


def altered(client: DeltaClient, name: str, alteration: Alteration) -> AlterResult:
    """What ALTER TABLE changed; data files are rewritten if it requires that. Raises as ``alter_with_rewrite``."""
    return alter_with_rewrite(client.table(name), alteration, spark=running_session)


def _connection(client: DeltaClient) -> Connection:
    """A connection whose session shows errors only, unless it ran before the command."""
    is_own = running_session() is None
    lake = Connection(client)
    if is_own and not is_connect(lake.spark):
        lake.spark.sparkContext.setLogLevel("ERROR")
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return lake
