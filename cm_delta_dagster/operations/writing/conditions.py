"""Conditions of reads and writes by Spark.

A write evaluates its condition several times and declares it to conflict detection. Therefore ``current_timestamp()`` is
replaced by the time of the call, and a non-deterministic condition is refused before anything is written.
"""

from datetime import UTC, datetime, tzinfo
from typing import TypeAlias

from cm_delta_dagster.arrow.write.row_rules import guard_needs_spark
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.arguments import as_predicate
from cm_delta_dagster.operations.writing.engine_choice import EngineChoice
from cm_delta_dagster.operations.writing.rows import zone_of_expressions
from cm_delta_dagster.protocol.actions.empty_partition_text import check_no_empty_text, stored_as_null
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate, column_path, columns_of
from cm_delta_dagster.protocol.predicates.sql_checks import Clock
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.char_types import char_widths
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteEngine
from cm_delta_dagster.spark.expressions.conditions import check_repeatable, check_time_zone, column_predicate
from cm_delta_dagster.spark.library import Column, SparkSession, is_column
from cm_delta_dagster.spark.session.session import running_session, session_time_zone

_CHARS_ARE_STRINGS = "spark.sql.legacy.charVarcharAsString"

Condition: TypeAlias = Predicate | str | Column
"""SQL text, a predicate value, or a pyspark Column."""


def read_condition(where: Condition | None, schema: StructType, *, zone: tzinfo | None = None) -> Predicate | None:
    """Parse the condition of a read by Spark. Raises InvalidArgumentError unless it is a :data:`Condition`.

    Args:
        zone: time zone of literals in SQL text that name none; None for that of the session.
    """
    return column_predicate(where, schema) if is_column(where) else as_predicate(where, schema, zone=zone)


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
    return _of_slice(write_condition(where, snapshot, session=session, now_ms=now_ms), snapshot)


def slice_without_spark(where: Condition, snapshot: Snapshot, *, now_ms: int) -> Predicate | None:
    """The condition of :func:`slice_condition` if Arrow can evaluate it; None if only Spark can.

    Raises:
        InvalidArgumentError: not a :data:`Condition`, or it compares a partition column with the empty text.
    """
    return _of_slice(condition_without_spark(where, snapshot, now_ms=now_ms), snapshot)


def condition_without_spark(where: Condition, snapshot: Snapshot, *, now_ms: int) -> Predicate | None:
    """The condition of :func:`write_condition` if Arrow can evaluate it; None if only Spark can.

    Raises:
        InvalidArgumentError: not a :data:`Condition`.
    """
    if is_column(where):
        return None
    zone = snapshot.time_zone
    if isinstance(where, str):
        clock = Clock(now=datetime.fromtimestamp(now_ms / 1000, UTC), zone=zone_of_expressions(zone))
        predicate: Predicate | None = parse_predicate(where, snapshot.schema, clock=lambda: clock, zone=zone)
    else:
        predicate = as_predicate(where, snapshot.schema)
    return None if predicate is None or guard_needs_spark(predicate, snapshot.schema) else predicate


def change_condition(
    where: Condition | None, snapshot: Snapshot, choice: EngineChoice, *, now_ms: int
) -> tuple[Predicate | None, SparkSession | None]:
    """The condition of DELETE or UPDATE, and the session if only Spark evaluates it or was chosen.

    Raises:
        InvalidArgumentError: as :func:`write_condition`, or there is no session.
    """
    predicate = None
    if where is None:
        return None, None
    if choice.engine is not WriteEngine.SPARK:
        predicate = condition_without_spark(where, snapshot, now_ms=now_ms)
    running = running_session()
    if predicate is not None and (running is None or compares_as_spark(running, snapshot.schema, predicate)):
        return predicate, None
    text = f" {where}" if isinstance(where, str) else ""
    reason = "it was chosen" if choice.engine is WriteEngine.SPARK else f"only Spark evaluates the condition{text}"
    session = choice.needed_session(reason, "This change needs")
    return write_condition(where, snapshot, session=session, now_ms=now_ms), session


def compares_as_spark(session: SparkSession, schema: StructType, predicate: Predicate | None) -> bool:
    """Whether Spark compares ``char(n)`` columns as Arrow does. A setting of the session makes them plain strings."""
    names = {column_path(column)[0] for column in columns_of(predicate)} if predicate is not None else ()
    fields = [schema.field(name) for name in names]
    has_chars = any(item is not None and char_widths(item) is not None for item in fields)
    return not has_chars or str(session.conf.get(_CHARS_ARE_STRINGS, "false")).lower() != "true"


def _of_slice(predicate: Predicate | None, snapshot: Snapshot) -> Predicate | None:
    if predicate is not None:
        check_no_empty_text(predicate, stored_as_null(snapshot.schema, snapshot.partition_columns))
    return predicate
