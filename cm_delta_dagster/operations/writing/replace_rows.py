"""Overwrites that replace only a part of the table: the rows of a condition, the partitions or the keys that the new rows have."""

from collections.abc import Sequence
from datetime import UTC, tzinfo
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa

from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows
from cm_delta_dagster.arrow.write.row_rules import guard_needs_spark
from cm_delta_dagster.arrow.write.stored_columns import files_need_spark
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.operations.writing.change_counts import ChangeCounts, VectorCounts
from cm_delta_dagster.operations.writing.change_rows import RowChangeRun
from cm_delta_dagster.operations.writing.delete_rows import delete_rows, delete_whole_files, matching_files
from cm_delta_dagster.operations.writing.engines.arrow_clauses import ArrowClause
from cm_delta_dagster.operations.writing.engines.arrow_files import inserted_rows
from cm_delta_dagster.operations.writing.engines.arrow_join import ArrowJoin
from cm_delta_dagster.operations.writing.engines.arrow_merge import ArrowMerge
from cm_delta_dagster.operations.writing.engines.arrow_source import (
    arrow_source_facts,
    keyed_source,
    source_needs_spark,
)
from cm_delta_dagster.operations.writing.engines.few_files import gathering_of_inserts
from cm_delta_dagster.operations.writing.engines.spark_changes import SparkChanges
from cm_delta_dagster.operations.writing.file_writes import layout_for_arrow
from cm_delta_dagster.operations.writing.merge_rows import SMALL_SOURCE, cached, declare_read
from cm_delta_dagster.operations.writing.rows import WriteRows
from cm_delta_dagster.operations.writing.table_files import kept_row_ids
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction
from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.actions.partition_values import parse_partition_value
from cm_delta_dagster.protocol.changes.row_changes import ClauseAction, ClauseKind
from cm_delta_dagster.protocol.features.column_mapping import stored_names
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    And,
    Comparison,
    ComparisonOperator,
    Predicate,
    quote_column,
)
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from cm_delta_dagster.protocol.schema.char_types import char_width
from cm_delta_dagster.protocol.schema.types import StructField, StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import WrittenFiles
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count
from cm_delta_dagster.spark.changes.change_clauses import ChangeClause
from cm_delta_dagster.spark.changes.key_ranges import source_range
from cm_delta_dagster.spark.changes.row_changes import ChangeSource, RowChangeQuery
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import DataFrame, F, SparkSession
from cm_delta_dagster.spark.session.session import default_zone
from cm_delta_dagster.spark.write.stored_values import as_read

_MOST_PARTITIONS = 100
"""Up to this many replaced partitions, a concurrent change of another partition is no conflict."""


def replace_where(write: WriteTransaction, rows: WriteRows, where: Predicate) -> ChangeCounts:
    """Replace the rows that satisfy ``where``; the caller commits. Files are rewritten, as delta-spark does."""
    write.transaction.read(where)
    files = matching_files(write.transaction.snapshot, where)
    if rows.needs_no_spark and not files.mixed.num_rows:
        write.add_new_rows(rows, where)
        return delete_whole_files(write, files)
    layout = write.layout
    reason = files_need_spark(layout) or guard_needs_spark(where, layout.schema)
    by_arrow = reason is None and rows.needs_no_spark
    session = None if by_arrow else rows.needed_session(reason or "they are rows of Spark")
    added = write.add_new_rows(rows, where)
    counts = delete_rows(write, session, files, marks=False)
    _record_inserts(write, session, added)
    return counts


def replace_partitions(write: WriteTransaction, rows: WriteRows) -> ChangeCounts:
    """Replace the partitions in which ``rows`` are; the caller commits. The table has partitions."""
    snapshot = write.transaction.snapshot
    write.transaction.keeps_row_ids = True  # No row is copied.
    added = write.add_new_rows(rows)
    fields = snapshot.layout.partition_fields
    session = rows.session
    zone = default_zone(snapshot.time_zone, session) if session is not None else snapshot.time_zone or UTC
    written = {_values(texts, fields, zone) for texts in added.rows_by_partition}
    mask = [values in written for values in _partitions(snapshot, fields, zone)]
    _declare_read(write, list(added.rows_by_partition), fields)
    removed = snapshot.files.filter(pa.array(mask, pa.bool_()))
    num_rows = logical_row_count(removed)
    return ChangeCounts(
        removed_files=removed,
        num_updated_rows={},
        num_deleted_rows=None if num_rows is None else {ClauseKind.NOT_MATCHED_BY_SOURCE: num_rows},
        num_copied_rows=0,
        num_inserted_rows=added.num_rows,
        vectors=VectorCounts(removed=sum(removed["deletionVector"].is_valid().to_pylist())),
    )


def replace_keys(write: WriteTransaction, rows: WriteRows, keys: Sequence[str]) -> ChangeCounts:
    """Delete the rows that have the keys of one of ``rows``, and add ``rows``; the caller commits.

    Args:
        keys: columns of table and rows, as the table spells them.

    Raises:
        InvalidDataError: a key of ``rows`` is NULL, which equals nothing, so that each run would add its row again.
    """
    layout = layout_for_arrow(write.table, write.layout)
    reason = rows.reason_for_spark(layout) or source_needs_spark(rows.schema, layout, keys, None)
    if reason is not None:
        return _replace_keys_by_spark(write, rows.spark(reason), keys)
    snapshot = write.transaction.snapshot
    source = keyed_source(rows.arrow_rows, layout, keys)
    _check_no_nulls([name for name in keys if source.stored[name].null_count], snapshot.partition_columns)
    read = arrow_source_facts(source, layout, None).key_range
    declare_read(write, read)
    added = write.add_rows(ArrowRows(source=source.stored, schema=from_arrow_schema(source.stored.schema)))
    clause = ArrowClause(kind=ClauseKind.MATCHED, action=ClauseAction.DELETE)
    engine = ArrowMerge(
        transaction=write,
        join=ArrowJoin(source=source, schema=layout.schema, clauses=[clause]),
        read=None if isinstance(read, AlwaysTrue) else read,
        row_ids=kept_row_ids(snapshot),
    )
    candidates = snapshot.matching_files(read) if added.num_rows else snapshot.files.slice(0, 0)
    counts = RowChangeRun(write=write, engine=engine, candidates=candidates, may_match_twice=True).run()
    _record_inserts(write, None, added)
    return counts


def _replace_keys_by_spark(write: WriteTransaction, frame: DataFrame, keys: Sequence[str]) -> ChangeCounts:
    snapshot = write.transaction.snapshot
    fields = StructType(tuple(item for key in keys if (item := snapshot.schema.field(key)) is not None))
    clause = ChangeClause(kind=ClauseKind.MATCHED, action=ClauseAction.DELETE, values={})
    on = reduce(and_, [F.col(f"target.{quoted(name)}") == F.col(f"source.{quoted(name)}") for name in fields.names])
    with cached(frame) as rows:
        stored_keys = as_read(rows, fields, partition_columns=snapshot.partition_columns)
        pairs = [(item.name, item) for item in fields.fields]
        facts = source_range(stored_keys, pairs, partition_columns=snapshot.partition_columns)
        _check_no_nulls(facts.null_keys, snapshot.partition_columns)
        declare_read(write, facts.key_range)
        source = ChangeSource(frame=stored_keys, alias="source", on=on, is_small=facts.num_rows <= SMALL_SOURCE)
        added = write.add_new_rows(rows, gathering=gathering_of_inserts(write.layout, source, facts.num_rows))
        query = RowChangeQuery(
            schema=snapshot.schema,
            target_alias="target",
            clauses=(clause,),
            source=source,
            row_ids=kept_row_ids(snapshot),
        )
        counts = RowChangeRun(
            write=write,
            engine=SparkChanges(transaction=write, session=frame.sparkSession, query=query, may_match_twice=True),
            candidates=snapshot.matching_files(facts.key_range) if facts.num_rows else snapshot.files.slice(0, 0),
            may_match_twice=True,
        ).run()
        _record_inserts(write, frame.sparkSession, added)
    return counts


def _check_no_nulls(names: Sequence[str], partition_columns: Sequence[str]) -> None:
    if names:
        is_partition = names[0].lower() in {name.lower() for name in partition_columns}
        empty = " or the empty text, which a partition column stores as NULL" if is_partition else ""
        raise InvalidDataError(
            f"A row has NULL{empty} in the key column {names[0]!r}. NULL equals no value, so the row would replace no row of the "
            "table, and each run would add it again. Nothing was committed. Fill the value, or leave the row out; to replace rows "
            f"whose {names[0]} is NULL, overwrite them with a condition."
        )


def _declare_read(
    write: WriteTransaction, partitions: Sequence[Sequence[str | None]], fields: Sequence[StructField]
) -> None:
    if len(partitions) > _MOST_PARTITIONS:
        write.transaction.read_whole_table()
        return
    for texts in partitions:
        values: list[tuple[str, Any]] = [
            (quote_column((item.name,)), parse_partition_value(text, item.type))
            for text, item in zip(texts, fields, strict=True)
        ]
        parts = [Comparison(name, ComparisonOperator.NULL_SAFE_EQ, value) for name, value in values]
        write.transaction.read(And(tuple(parts)))


def _record_inserts(write: WriteTransaction, session: SparkSession | None, added: WrittenFiles) -> None:
    """Record the added rows, by Arrow without a session. A reader of changes reads only the change files of a commit with some."""
    if write.changes and added.num_rows:
        rows = inserted_rows(write, added) if session is None else write.inserted_changes(session, added)
        write.add_changes(rows)


def _values(texts: Sequence[str | None], fields: Sequence[StructField], zone: tzinfo) -> tuple[str, ...]:
    """A partition by its values as they are read: texts of the same value are equal."""
    return tuple(repr(_value(text, item, zone)) for text, item in zip(texts, fields, strict=True))


def _value(text: str | None, item: StructField, zone: tzinfo) -> Any:
    value = parse_partition_value(text, item.type, zone=zone)
    if isinstance(value, str):
        return value.ljust(char_width(item))
    return value + 0.0 if isinstance(value, float) else value  # 0.0 equals -0.0.


def _partitions(snapshot: Snapshot, fields: Sequence[StructField], zone: tzinfo) -> list[tuple[str, ...]]:
    """The partition of each live file."""
    names = stored_names([item.name for item in fields], snapshot.schema, snapshot.column_mapping)
    columns = [partition_column(snapshot.files, name).to_pylist() for name in names]
    known: dict[tuple[str | None, ...], tuple[str, ...]] = {}
    partitions = []
    for texts in zip(*columns, strict=True):
        if texts not in known:
            known[texts] = _values(texts, fields, zone)
        partitions.append(known[texts])
    return partitions
