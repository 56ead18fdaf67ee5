"""Conditions of reads and writes by Spark.

A write evaluates its condition several times and declares it to conflict detection. Therefore ``current_timestamp()`` is
replaced by the time of the call, and a non-deterministic condition is refused before anything is written.
"""

from datetime import UTC, datetime, tzinfo
from typing import TypeAlias

from pyspark.sql import Column, SparkSession

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.arguments import as_predicate
from cm_delta_dagster.protocol.actions.empty_partition_text import check_no_empty_text, stored_as_null
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate
from cm_delta_dagster.protocol.predicates.sql_checks import Clock
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.conditions import check_repeatable, check_time_zone, column_predicate
from cm_delta_dagster.spark.session.session import session_time_zone

Condition: TypeAlias = Predicate | str | Column
"""SQL text, a predicate value, or a pyspark Column."""


def read_condition(where: Condition | None, schema: StructType, *, zone: tzinfo | None = None) -> Predicate | None:
    """Parse the condition of a read by Spark. Raises InvalidArgumentError unless it is a :data:`Condition`.

    Args:
        zone: time zone of literals in SQL text that name none; None for that of the session.
    """
    return column_predicate(where, schema) if isinstance(where, Column) else as_predicate(where, schema, zone=zone)


def write_condition(
    where: Condition | None, snapshot: Snapshot, *, session: SparkSession, now_ms: int
) -> Predicate | None:
    """Parse the condition of a write: which rows it deletes, replaces or merges.

    Args:
        now_ms: value of ``current_timestamp()`` and similar functions, in epoch milliseconds.

    Raises:
        InvalidArgumentError: not a :data:`Condition`, not deterministic, or a part that Spark would evaluate in another time zone
            than the table's.
    """
    schema = snapshot.schema
    if isinstance(where, str):
        predicate: Predicate | None = parse_predicate(
            where,
            schema,
            clock=lambda: Clock(now=datetime.fromtimestamp(now_ms / 1000, UTC), zone=session_time_zone(session)),
            zone=snapshot.time_zone,
        )
    else:
        predicate = read_condition(where, schema)
    if predicate is None or isinstance(predicate, AlwaysTrue):
        return predicate
    check_time_zone(predicate, schema, zone=snapshot.time_zone, session=session)
    check_repeatable(predicate, schema, session)
    return predicate


def slice_condition(
    where: Condition | None, snapshot: Snapshot, *, session: SparkSession, now_ms: int
) -> Predicate | None:
    """As :func:`write_condition`, for a slice of the table to which the write adds rows.

    Raises:
        InvalidArgumentError: also if it compares a partition column with the empty text, which no row has.
    """
    predicate = write_condition(where, snapshot, session=session, now_ms=now_ms)
    if predicate is not None:
        check_no_empty_text(predicate, stored_as_null(snapshot.schema, snapshot.partition_columns))
    return predicate
