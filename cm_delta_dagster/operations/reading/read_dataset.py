"""Reading a table as a ``pyarrow.dataset.Dataset``, without a JVM."""

from collections.abc import Sequence

import pyarrow as pa

from cm_delta_dagster.arrow.dataset import DeltaDataset
from cm_delta_dagster.arrow.implied_predicates import both
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.arguments import as_predicate, names_table
from cm_delta_dagster.operations.reading.read_arrow import read_snapshot_batches, snapshot_to_read
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.storage.store import Store


@names_table
def read_dataset(
    table: ReadableTable,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
    version: int | None = None,
    timestamp_ms: int | None = None,
) -> DeltaDataset:
    """The rows of one version as a dataset; arguments and errors are those of ``read_arrow``.

    The log is read now, and data files when a scanner of the dataset is read.
    """
    snapshot = snapshot_to_read(table, version=version, timestamp_ms=timestamp_ms)
    return snapshot_dataset(snapshot, store=table.store, columns=columns, where=where)


def snapshot_dataset(
    snapshot: Snapshot,
    *,
    store: Store,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> DeltaDataset:
    """:func:`read_dataset` for a given snapshot."""
    condition = as_predicate(where, snapshot.schema, zone=snapshot.time_zone)

    def read(names: Sequence[str] | None, implied: Predicate | None) -> pa.RecordBatchReader:
        return read_snapshot_batches(snapshot, store=store, columns=names, where=both(condition, implied))

    return DeltaDataset(read, schema=snapshot.schema, arrow_schema=read(columns, None).schema)
