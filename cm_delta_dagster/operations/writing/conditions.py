"""Conditions of the verbs that have Spark: what a write or a read by Spark is asked for. Layer: operations.

A write evaluates its condition more than once and declares it to the check for conflicts. So the present time is replaced by
the moment of the call, and what would give another answer the second time is refused before anything is written.
"""

from datetime import UTC, datetime
from typing import TypeAlias

from pyspark.sql import Column, SparkSession

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.arguments import as_predicate
from cm_delta_dagster.protocol.actions.empty_partition_text import check_no_empty_text
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.predicates.sql_tokens import Clock
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.conditions import check_repeatable, column_predicate
from cm_delta_dagster.spark.session import session_time_zone

Condition: TypeAlias = Predicate | str | Column
"""SQL text, a predicate value, or a Column of pyspark."""


def read_condition(where: Condition | None, schema: StructType) -> Predicate | None:
    """The condition of a read by Spark. Raises InvalidArgumentError for anything else than a :data:`Condition`."""
    return column_predicate(where, schema) if isinstance(where, Column) else as_predicate(where, schema)


def write_condition(
    where: Condition | None, snapshot: Snapshot, *, session: SparkSession, now_ms: int
) -> Predicate | None:
    """The condition of a write: which rows are deleted, replaced or merged.

    Args:
        now_ms: epoch milliseconds that ``current_timestamp()`` and its kin stand for.

    Raises:
        InvalidArgumentError: not a :data:`Condition`, one that is not deterministic, or one that asks for the empty text in a
            partition column, which no row has.
    """
    schema = snapshot.schema
    if isinstance(where, str):
        predicate: Predicate | None = parse_predicate(
            where,
            schema,
            clock=lambda: Clock(now=datetime.fromtimestamp(now_ms / 1000, UTC), zone=session_time_zone(session)),
        )
    else:
        predicate = read_condition(where, schema)
    if predicate is None or isinstance(predicate, AlwaysTrue):
        return predicate
    check_repeatable(predicate, schema, session)
    check_no_empty_text(predicate, snapshot.partition_columns)
    return predicate
