"""Reading a table as Arrow, without a JVM.

Returns the same rows as ``read``, for sensors, checks, previews and notebooks. A query reads one snapshot; files and row groups
that cannot hold a requested row are not read. This module does not use Spark.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from cm_delta_dagster.arrow.scan import scan_batches
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import as_predicate, names_table, names_version
from cm_delta_dagster.protocol.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID, row_id_columns
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.storage.store import Store


@names_table
def read_arrow(
    table: ReadableTable,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
    version: int | None = None,
    timestamp_ms: int | None = None,
) -> pa.Table:
    """The rows of the table in memory: at its latest version, at ``version``, or as of ``timestamp_ms``.

    Types, nullability, comments and metadata are the table's. Timestamps are in UTC. A variant is a struct of its two parts;
    ``arrow.variant`` converts it to JSON.

    Args:
        columns: columns to return, in this order, found ignoring case; all of the table for None. A table with row tracking
            also has ``_row_id`` and ``_row_commit_version``, which must be named to be returned.
        where: condition on the rows, SQL text or a predicate value; also selects files and row groups.
        timestamp_ms: epoch milliseconds.

    Raises:
        VersionNotFoundError: no such version or time.
        InvalidArgumentError: an unknown column, the same column twice, or a condition that only Spark can evaluate.
        ObjectNotFoundError: a data file is missing. TableStorageMissingError: the whole table directory is.
        CorruptLogError: the log, a data file or a deletion vector is damaged.
        UnsupportedFeatureError: the table needs a feature that this client does not support.
    """
    snapshot = snapshot_to_read(table, version=version, timestamp_ms=timestamp_ms)
    return read_snapshot_batches(snapshot, store=table.store, columns=columns, where=where).read_all()


@names_table
def read_batches(
    table: ReadableTable,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
    version: int | None = None,
    timestamp_ms: int | None = None,
) -> pa.RecordBatchReader:
    """:func:`read_arrow` as a stream of record batches, of which only a few are in memory at a time.

    Files are read while the stream is read, which raises their errors. Close or delete the stream to stop early.
    """
    snapshot = snapshot_to_read(table, version=version, timestamp_ms=timestamp_ms)
    return read_snapshot_batches(snapshot, store=table.store, columns=columns, where=where)


def snapshot_to_read(table: ReadableTable, *, version: int | None, timestamp_ms: int | None) -> Snapshot:
    """The latest snapshot, that of ``version``, or as of ``timestamp_ms``. Raises InvalidArgumentError, VersionNotFoundError."""
    return table.snapshot(version=_checked(version), timestamp_ms=timestamp_ms)


def read_snapshot_batches(
    snapshot: Snapshot,
    *,
    store: Store,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> pa.RecordBatchReader:
    """:func:`read_batches` for a given snapshot."""
    with names_version(snapshot, store=store):
        batches = _scan(snapshot, store, columns, where)
    return pa.RecordBatchReader.from_batches(batches.schema, _named(batches, snapshot, store))


def _scan(
    snapshot: Snapshot, store: Store, columns: Sequence[str] | None, where: Predicate | str | None
) -> pa.RecordBatchReader:
    schema = snapshot.schema
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns is the text {columns!r}; give a list of names, e.g. [{columns!r}].")
    asked = {name.lower() for name in columns or () if schema.field(name) is None}
    wants_row_ids = bool(asked & {ROW_ID, ROW_COMMIT_VERSION})
    predicate = as_predicate(where, schema, zone=snapshot.time_zone)
    request = ScanRequest(
        files=snapshot.matching_files(predicate),
        columns=columns,
        predicate=predicate,
        row_tracking=row_id_columns(snapshot.protocol, snapshot.metadata, snapshot.identifier)
        if wants_row_ids
        else None,
    )
    return scan_batches(store=store, layout=snapshot.layout, request=request)


def _named(batches: pa.RecordBatchReader, snapshot: Snapshot, store: Store) -> Iterator[pa.RecordBatch]:
    with names_version(snapshot, store=store):
        yield from batches


def _checked(version: int | None) -> int | None:
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise InvalidArgumentError(f"version is {version!r}; give a whole number.")
    return version
