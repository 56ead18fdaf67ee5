"""Metadata of asset events: the standard ``dagster/...`` keys, the ``cm_delta/`` keys, row counts and data versions.

All values come from the snapshot after the write; no function starts a Spark job.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.catalog.ratification import TableCounts
from cm_delta_dagster.client.commits.changed_partitions import PartitionFigures
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.writing.write import WriteOutcome, WriteResult
from cm_delta_dagster.orchestration.metadata.partitions import PartitionSlice
from cm_delta_dagster.orchestration.metadata.schema_changes import SCHEMA_CHANGES, change_table, changes, columns_of
from cm_delta_dagster.protocol.actions.file_columns import partition_column, size_of
from cm_delta_dagster.protocol.actions.partition_values import parse_partition_value
from cm_delta_dagster.protocol.features.column_mapping import stored_names
from cm_delta_dagster.protocol.predicates.predicates import IsNull, Not, Or, Predicate, partition_only
from cm_delta_dagster.protocol.schema.types import StructType, data_type_text
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count

STORAGE_KIND = "deltalake"

TABLE_NAME = "dagster/table_name"
URI = "dagster/uri"
STORAGE_KIND_KEY = "dagster/storage_kind"
COLUMN_SCHEMA = "dagster/column_schema"
COLUMN_LINEAGE = "dagster/column_lineage"
ROW_COUNT = "dagster/row_count"
PARTITION_ROW_COUNT = "dagster/partition_row_count"

COMMIT_VERSION = "cm_delta/commit_version"
TABLE_ID = "cm_delta/table_id"
OPERATION = "cm_delta/operation"
VERSION_READ = "cm_delta/version_read"
PARTITIONS_READ = "cm_delta/partitions_read"
FILES_READ = "cm_delta/files_read"
FILES_TOTAL = "cm_delta/files_total"
OUTCOME = "cm_delta/outcome"
TRANSACTION_ID = "cm_delta/transaction_id"
NOTHING_WRITTEN = "nothing_written"
METRICS = "cm_delta/metrics"
OUTPUT_ROWS = "cm_delta/output_rows"
UNPUBLISHED_COMMITS = "cm_delta/unpublished_commits"
READ = "read"
"""Value of ``OPERATION`` in the observation of a read."""
READ_BY = "cm_delta/read_by"
READ_LAG = "cm_delta/read_lag_versions"
CHANGES_READ = "cm_delta/changes_read"

SMALL_FILE_BYTES = 32 * 1024 * 1024
"""Files below this size count as small, as for the compaction of a maintenance policy by default."""

_MAX_COUNTED_KEYS = 2000
_MAX_PROVEN_KEYS = 100
"""For each key, the statistics of all files are evaluated."""


def data_version(table_id: str, version: int) -> dg.DataVersion:
    """The data version of an asset: table id and newest version that changed data. Maintenance does not change it."""
    return dg.DataVersion(f"{table_id}@{version}")


def column_schema(schema: StructType) -> dg.TableSchema:
    """Columns with their Spark type names, nullability and comments."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=field.name,
                type=data_type_text(field.type),
                description=field.metadata.get("comment"),
                constraints=dg.TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema.fields
        ]
    )


def table_metadata(snapshot: Snapshot) -> dict[str, Any]:
    """The standard keys of a table at one version, and the numbers that show its state."""
    sizes = snapshot.files["size"]
    return {
        **standard_metadata(
            table=snapshot.identifier,
            location=snapshot.location,
            schema=snapshot.schema,
            counts=TableCounts(
                num_rows=snapshot.num_rows, num_files=snapshot.num_files, size_bytes=snapshot.size_bytes
            ),
        ),
        TABLE_ID: snapshot.table_id,
        "cm_delta/small_files": pc.sum(pc.less(sizes, SMALL_FILE_BYTES)).as_py() or 0,
        UNPUBLISHED_COMMITS: snapshot.version - snapshot.published_version,
    }


def standard_metadata(
    *, table: str, location: str | None, schema: StructType | None, counts: TableCounts | None
) -> dict[str, Any]:
    """The standard keys as far as they are known: name, location, storage kind, columns, rows, files and bytes."""
    entries: dict[str, Any] = {TABLE_NAME: table, STORAGE_KIND_KEY: STORAGE_KIND}
    if location is not None:
        entries[URI] = location
    if schema is not None:
        entries[COLUMN_SCHEMA] = column_schema(schema)
    if counts is not None:
        entries |= {"cm_delta/table_files": counts.num_files, "cm_delta/table_bytes": counts.size_bytes}
        if counts.num_rows is not None:
            entries[ROW_COUNT] = counts.num_rows
    return entries


def write_metadata(
    result: WriteResult, *, operation: str, part: PartitionSlice | None, duration_seconds: float
) -> dict[str, Any]:
    """Metadata of one write: the table after it, the partition, the commit, files, bytes and duration.

    Dagster adds these entries to the event of every partition, so what is counted by partition is not among them if the write
    has several; :func:`figures_by_key` has it.
    """
    entries = table_metadata(result.snapshot)
    if part is None or len(part.keys) == 1:
        rows = None if part is None else partition_row_count(result.snapshot, part)
        if rows is not None:
            entries[PARTITION_ROW_COUNT] = rows
        entries |= {
            OUTPUT_ROWS: result.num_output_rows,
            "cm_delta/added_files": result.num_added_files,
            "cm_delta/removed_files": result.num_removed_files,
            "cm_delta/added_bytes": result.added_bytes,
            "cm_delta/removed_bytes": result.removed_bytes,
        }
    if result.replaced_schema is not None:
        differences = changes(columns_of(result.replaced_schema), columns_of(result.snapshot.schema))
        entries |= {SCHEMA_CHANGES: change_table(differences)} if differences else {}
    return {
        **entries,
        COMMIT_VERSION: result.version,
        OPERATION: operation,
        METRICS: dg.MetadataValue.json(dict(result.metrics)),
        OUTCOME: result.outcome.value,
        "cm_delta/conflict_retries": result.retries,
        "cm_delta/duration_seconds": round(duration_seconds, 3),
    }


def change_figures(figures: PartitionFigures | None) -> dict[str, int]:
    """What a commit did to a partition, as entries of its event, as far as it is known."""
    if figures is None:
        return {}
    entries = {
        OUTPUT_ROWS: figures.added_rows,
        "cm_delta/added_files": figures.added_files,
        "cm_delta/removed_files": figures.removed_files,
        "cm_delta/added_bytes": figures.added_bytes,
        "cm_delta/removed_bytes": figures.removed_bytes,
    }
    return {key: value for key, value in entries.items() if value is not None}


def partition_row_count(snapshot: Snapshot, part: PartitionSlice) -> int | None:
    """Rows of the slice; None if the log does not determine the number.

    The log determines it if the table is partitioned by the columns of the slice, or if the statistics of each file prove
    that all or none of its rows are in the slice, as for files that were written partition by partition.
    """
    return _row_count(snapshot, part.where, columns=tuple(part.columns.values()))


def _row_count(snapshot: Snapshot, predicate: Predicate, *, columns: Sequence[str]) -> int | None:
    files = snapshot.matching_files(predicate)
    if not partition_only(predicate, snapshot.partition_columns):
        outside = Or((Not(predicate), *(IsNull(column) for column in columns)))
        mixed = pc.is_in(files["path"], value_set=snapshot.matching_files(outside)["path"].combine_chunks())
        if pc.any(mixed).as_py():
            return None
    return logical_row_count(files)


def figures_by_key(result: WriteResult, part: PartitionSlice) -> Mapping[str, Mapping[str, int]]:
    """The figures of each partition key of a write to several partitions, as entries for the event of that partition.

    Those of :func:`stored_figures`, and, of a table that is partitioned by the columns of the slice, the rows written.
    """
    figures = {key: dict(figures_of_key) for key, figures_of_key in stored_figures(result.snapshot, part).items()}
    if figures and partition_only(part.where, result.snapshot.partition_columns):
        for key, rows in _rows_written(result, part).items():
            figures[key][OUTPUT_ROWS] = rows
    return figures


def stored_figures(snapshot: Snapshot, part: PartitionSlice) -> Mapping[str, Mapping[str, int]]:
    """The rows of each partition key in the table; if it is partitioned by the columns of the slice, files and bytes too.

    What the log does not determine is omitted.
    """
    columns = tuple(part.columns.values())
    if len(part.keys) > _MAX_COUNTED_KEYS:
        return {}
    if not partition_only(part.where, snapshot.partition_columns):
        keys = part.keys if len(part.keys) <= _MAX_PROVEN_KEYS else ()
        counted = {key: _row_count(snapshot, part.predicate_of(key), columns=columns) for key in keys}
        return {key: {PARTITION_ROW_COUNT: rows} for key, rows in counted.items() if rows is not None}
    figures: dict[str, dict[str, int]] = {
        key: {PARTITION_ROW_COUNT: 0, "cm_delta/partition_files": 0, "cm_delta/partition_bytes": 0} for key in part.keys
    }
    for key, files in _files_by_key(snapshot, part):
        own, rows = figures[key], logical_row_count(files)
        own["cm_delta/partition_files"] += files.num_rows
        own["cm_delta/partition_bytes"] += size_of(files)
        if rows is None or PARTITION_ROW_COUNT not in own:
            own.pop(PARTITION_ROW_COUNT, None)
        else:
            own[PARTITION_ROW_COUNT] += rows
    return figures


def _files_by_key(snapshot: Snapshot, part: PartitionSlice) -> Iterator[tuple[str, pa.Table]]:
    """The files of each value of the partition columns, with the key that the value belongs to."""
    columns = tuple(part.columns.values())
    files = snapshot.matching_files(part.where)
    names = [f"value_{position}" for position in range(len(columns))]
    stored = stored_names(columns, snapshot.schema, snapshot.column_mapping)
    texts = pa.table([partition_column(files, column) for column in stored], names=names)
    for row in texts.group_by(names).aggregate([]).to_pylist():
        key = part.key_of(_typed(snapshot, dict(zip(columns, (row[name] for name in names), strict=True))))
        if key is None:
            continue
        mask = None
        for name in names:
            same = pc.equal(texts[name], row[name]) if row[name] is not None else pc.is_null(texts[name])
            mask = same if mask is None else pc.and_(mask, same)
        yield key, files.filter(mask)


def _rows_written(result: WriteResult, part: PartitionSlice) -> Mapping[str, int]:
    """Rows in the files that the write added, of each key; empty if another attempt wrote them."""
    if result.outcome is not WriteOutcome.COMMITTED:
        return {}
    snapshot, written = result.snapshot, dict.fromkeys(part.keys, 0)
    for texts, rows in result.rows_by_partition.items():
        by_name = dict(zip(map(str.lower, snapshot.partition_columns), texts, strict=True))
        key = part.key_of(_typed(snapshot, {column: by_name[column.lower()] for column in part.columns.values()}))
        if key is not None:
            written[key] += rows
    return written


def _typed(snapshot: Snapshot, texts: Mapping[str, str | None]) -> dict[str, Any]:
    fields = {column: snapshot.schema.field(column) for column in texts}
    return {
        column: parse_partition_value(text, item.type, zone=snapshot.time_zone or UTC)
        for (column, text), item in zip(texts.items(), fields.values(), strict=True)
        if item is not None
    }


def stopped_at_schema(metadata: Mapping[str, Any]) -> bool:
    """Whether a materialization with this metadata left changes unread that its schema could not represent."""
    entry = metadata.get(CHANGES_READ)
    listed: Any = None if entry is None else entry.value
    positions = listed.values() if isinstance(listed, Mapping) else ()
    return any(isinstance(position, Mapping) and "stopped_before" in position for position in positions)
