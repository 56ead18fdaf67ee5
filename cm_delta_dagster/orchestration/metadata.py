"""Metadata of asset events: the standard ``dagster/...`` keys, the ``cm_delta/`` keys, row counts and data versions.

All values come from the snapshot after the write; no function starts a Spark job.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.writing.write import WriteResult
from cm_delta_dagster.orchestration.partitions import PartitionSlice
from cm_delta_dagster.protocol.actions.file_columns import partition_column
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
NOTHING_WRITTEN = "nothing_written"
METRICS = "cm_delta/metrics"
CHANGES_READ = "cm_delta/changes_read"
ALTERED = "cm_delta/altered"

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
    """The standard keys of a table at one version."""
    entries: dict[str, Any] = {
        TABLE_NAME: snapshot.identifier,
        URI: snapshot.location,
        STORAGE_KIND_KEY: STORAGE_KIND,
        COLUMN_SCHEMA: column_schema(snapshot.schema),
        TABLE_ID: snapshot.table_id,
    }
    if snapshot.num_rows is not None:
        entries[ROW_COUNT] = snapshot.num_rows
    return entries


def write_metadata(
    result: WriteResult, *, operation: str, part: PartitionSlice | None, duration_seconds: float
) -> dict[str, Any]:
    """Metadata of one write: the table after it, the partition, the commit, files, bytes and duration."""
    entries = table_metadata(result.snapshot)
    # Dagster adds these entries to the event of every partition, so a count is valid only for a single partition.
    rows = None if part is None or len(part.keys) != 1 else partition_row_count(result.snapshot, part)
    if rows is not None:
        entries[PARTITION_ROW_COUNT] = rows
    return {
        **entries,
        COMMIT_VERSION: result.version,
        OPERATION: operation,
        METRICS: dg.MetadataValue.json(dict(result.metrics)),
        OUTCOME: result.outcome.value,
        "cm_delta/output_rows": result.num_output_rows,
        "cm_delta/added_files": result.num_added_files,
        "cm_delta/removed_files": result.num_removed_files,
        "cm_delta/added_bytes": result.added_bytes,
        "cm_delta/removed_bytes": result.removed_bytes,
        "cm_delta/conflict_retries": result.retries,
        "cm_delta/duration_seconds": round(duration_seconds, 3),
    }


def partition_row_count(snapshot: Snapshot, part: PartitionSlice) -> int | None:
    """Rows of the slice; None if the log does not determine the number.

    The log determines it if the table is partitioned by the columns of the slice, or if the statistics of each file prove
    that all or none of its rows are in the slice, as for files that were written partition by partition.
    """
    return _row_count(snapshot, part.predicate, columns=tuple(part.columns.values()))


def _row_count(snapshot: Snapshot, predicate: Predicate, *, columns: Sequence[str]) -> int | None:
    files = snapshot.matching_files(predicate)
    if not partition_only(predicate, snapshot.partition_columns):
        outside = Or((Not(predicate), *(IsNull(column) for column in columns)))
        mixed = pc.is_in(files["path"], value_set=snapshot.matching_files(outside)["path"].combine_chunks())
        if pc.any(mixed).as_py():
            return None
    return logical_row_count(files)


def rows_by_key(snapshot: Snapshot, part: PartitionSlice) -> Mapping[str, int]:
    """Rows of each partition key of the slice, 0 for empty ones. Keys whose number the log does not determine are omitted."""
    columns = tuple(part.columns.values())
    if len(part.keys) > _MAX_COUNTED_KEYS:
        return {}
    if not partition_only(part.predicate, snapshot.partition_columns):
        keys = part.keys if len(part.keys) <= _MAX_PROVEN_KEYS else ()
        counted = {key: _row_count(snapshot, part.predicate_of(key), columns=columns) for key in keys}
        return {key: rows for key, rows in counted.items() if rows is not None}
    files = snapshot.matching_files(part.predicate)
    names = [f"value_{position}" for position in range(len(columns))]
    stored = stored_names(columns, snapshot.schema, snapshot.column_mapping)
    texts = pa.table([partition_column(files, column) for column in stored], names=names)
    counts = dict.fromkeys(part.keys, 0)
    for row in texts.group_by(names).aggregate([]).to_pylist():
        fields = {column: snapshot.schema.field(column) for column in columns}
        values = {
            column: parse_partition_value(row[name], field.type, zone=snapshot.time_zone or UTC)
            for name, (column, field) in zip(names, fields.items(), strict=True)
            if field is not None
        }
        key = part.key_of(values)
        if key is None:
            continue
        mask = None
        for name in names:
            same = pc.equal(texts[name], row[name]) if row[name] is not None else pc.is_null(texts[name])
            mask = same if mask is None else pc.and_(mask, same)
        rows = logical_row_count(files.filter(mask))
        if rows is None:
            return {}
        counts[key] += rows
    return counts
