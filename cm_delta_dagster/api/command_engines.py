"""What commands of ``cm-delta`` run by Spark. The command line imports this module when such a command runs."""

import logging

import pyarrow as pa

from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.maintenance.authorization import require_permission
from cm_delta_dagster.operations.maintenance.optimize import optimize, plan_optimize
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizePlan, OptimizeResult
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
    """What OPTIMIZE rewrote. Raises as ``optimize``; a run that the catalog denies does not start Spark."""
    table = client.table(name)
    if not table.maintenance_decision(MaintenanceKind.DATA_REORGANIZATION).allowed:
        require_permission(table, MaintenanceKind.DATA_REORGANIZATION)  # Raises; the audit has the refusal.
    return optimize(table, spark=lambda: _connection(client).spark, where=where, z_order_by=z_order_by, full=full)


def _connection(client: DeltaClient) -> Connection:
    """A connection whose session shows errors only, unless it ran before the command."""
    is_own = running_session() is None
    lake = Connection(client)
    if is_own and not is_connect(lake.spark):
        lake.spark.sparkContext.setLogLevel("ERROR")
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return lake
