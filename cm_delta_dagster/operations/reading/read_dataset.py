"""Reading a table as a ``pyarrow.dataset.Dataset``, without a JVM."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from cm_delta_dagster.arrow.dataset import DeltaDataset
from cm_delta_dagster.arrow.implied_predicates import both
from cm_delta_dagster.operations.reading.read_arrow import read_batches
from cm_delta_dagster.operations.reading.snapshot_scan import SnapshotScan
from cm_delta_dagster.protocol.predicates.predicates import Predicate


def read_dataset(scan: SnapshotScan) -> DeltaDataset:
    """The rows of a scan as a dataset; errors are those of ``read_arrow``.

    Data files are read when a scanner of the dataset is read.
    """

    def read(names: Sequence[str] | None, implied: Predicate | None) -> pa.RecordBatchReader:
        return read_batches(replace(scan, columns=names, where=both(scan.predicate, implied)))

    return DeltaDataset(read, schema=scan.snapshot.schema, arrow_schema=read(scan.columns, None).schema)
