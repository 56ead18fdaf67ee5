"""Reading a table as Arrow, without a JVM.

Returns the same rows as ``read``, for sensors, checks, previews and notebooks. A query reads one snapshot; files and row groups
that cannot hold a requested row are not read. This module does not use Spark.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from cm_delta_dagster.arrow.scan import scan_batches
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.arguments import names_version
from cm_delta_dagster.operations.reading.metadata_query import known_row_count
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.storage.store import Store


def read_arrow(scan: SnapshotScan) -> pa.Table:
    """The rows of a scan in memory.

    Types, nullability, comments and metadata are the table's. Timestamps are in UTC. A variant is a struct of its two parts;
    ``arrow.variant`` converts it to JSON.

    Raises:
        InvalidArgumentError: the same column twice, or a condition that only Spark can evaluate.
        ObjectNotFoundError: a data file is missing. TableStorageMissingError: the whole table directory is.
        CorruptLogError: a data file or a deletion vector is damaged.
        UnsupportedFeatureError: a type or a type change that this client does not support.
    """
    return read_batches(scan).read_all()


def read_batches(scan: SnapshotScan) -> pa.RecordBatchReader:
    """:func:`read_arrow` as a stream of record batches, of which only a few are in memory at a time.

    Files are read while the stream is read, which raises their errors. Close or delete the stream to stop early.
    """
    with names_version(scan.snapshot, store=scan.store):
        request = ScanRequest(
            files=scan.files, columns=scan.columns, predicate=scan.predicate, row_tracking=scan.row_ids
        )
        batches = scan_batches(store=scan.store, layout=scan.snapshot.layout, request=request)
    return pa.RecordBatchReader.from_batches(batches.schema, _named(batches, scan.snapshot, scan.store))


def count_rows(scan: SnapshotScan) -> int:
    """The number of rows, from the log if it is exact there, else by reading one column. Raises as :func:`read_arrow`."""
    known = known_row_count(scan)
    if known is not None:
        return known
    with read_batches(replace(scan, columns=scan.snapshot.schema.names[:1])) as batches:
        return sum(batch.num_rows for batch in batches)


def _named(batches: pa.RecordBatchReader, snapshot: Snapshot, store: Store) -> Iterator[pa.RecordBatch]:
    with names_version(snapshot, store=store):
        yield from batches
