"""The result of a write whose commit another process, or a ratification, made: read from the actions of the commit."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.writing.write_result import WriteOutcome, WriteResult
from cm_delta_dagster.protocol.actions.file_columns import partition_column, size_of
from cm_delta_dagster.protocol.features.column_mapping import stored_names
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count, num_records


def committed_write(table: Table, version: int, *, retries: int = 0) -> WriteResult:
    """The result of the write that is ``version`` of the table. A file that only got a deletion vector counts as neither.

    Raises:
        VersionNotFoundError: the log does not hold that version any more.
    """
    snapshot = table.snapshot(version=version)
    (commit,) = table.commit_actions(version, version)
    added, removed = _without(commit.adds, commit.removes), _without(commit.removes, commit.adds)
    replaces_metadata = commit.metadata is not None and version > 0
    return WriteResult(
        table_id=table.table_id,
        version=version,
        data_version=snapshot.data_version,
        outcome=WriteOutcome.COMMITTED,
        num_output_rows=logical_row_count(added) or 0,
        num_added_files=added.num_rows,
        num_removed_files=removed.num_rows,
        added_bytes=size_of(added),
        removed_bytes=size_of(removed),
        retries=retries,
        metrics={} if commit.commit_info is None else dict(commit.commit_info.operation_metrics or {}),
        snapshot=snapshot,
        rows_by_partition=_rows_by_partition(added, snapshot),
        replaced_schema=table.snapshot(version=version - 1).schema if replaces_metadata else None,
    )


def _without(files: pa.Table, others: pa.Table) -> pa.Table:
    """The files whose path is not among ``others``."""
    return files.filter(pc.invert(pc.is_in(files["path"], value_set=others["path"].combine_chunks())))


def _rows_by_partition(added: pa.Table, snapshot: Snapshot) -> dict[tuple[str | None, ...], int]:
    names = stored_names(snapshot.partition_columns, snapshot.schema, snapshot.column_mapping)
    columns = [partition_column(added, name).to_pylist() for name in names]
    texts = list(zip(*columns, strict=True)) if columns else [()] * added.num_rows
    rows: Counter[tuple[str | None, ...]] = Counter()
    for values, count in zip(texts, num_records(added["stats"]).to_pylist(), strict=True):
        rows[values] += count or 0
    return dict(rows)
