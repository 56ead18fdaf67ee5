"""Rows, files and bytes of a table after a commit, which the committer reports to the catalog with the commit.

They are computed from the state before the commit and from what the commit adds and removes.
"""

import json
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.catalog.ratification import TableCounts
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, size_of
from cm_delta_dagster.protocol.statistics.statistics import logical_row_count, num_records

_MAX_PARSED_ONE_BY_ONE = 64
"""Below this number the setup of the columnar parser takes longer than the parsing."""
MAX_COUNTED_FILES = 20_000
"""Of a table with more files, rows are reported only while the client knows their number from its last commit."""


def counts_after(base: Snapshot, adds: Sequence[AddFile], removed: Collection[str]) -> TableCounts:
    """The counts of the table after a commit on ``base``.

    Args:
        adds: added files; a file that is in the table is in ``removed`` too.
        removed: paths of the files that the commit removes or adds again.
    """
    before = base.reported_counts
    if before is None or (before.num_rows is None and before.num_files <= MAX_COUNTED_FILES):
        before = _counts_of(base)
    if not removed:
        gone = ADD_SCHEMA.empty_table()
    elif len(removed) == before.num_files:
        gone = base.files
    else:
        gone = base.files.filter(pc.is_in(base.files["path"], value_set=pa.array(list(removed), pa.string())))
    return TableCounts(
        num_rows=_rows_after(before, adds, gone),
        num_files=before.num_files - gone.num_rows + len(adds),
        size_bytes=before.size_bytes - size_of(gone) + sum(add.size for add in adds),
    )


def _counts_of(snapshot: Snapshot) -> TableCounts:
    num_files = snapshot.num_files
    is_large = num_files > MAX_COUNTED_FILES
    return TableCounts(
        num_rows=None if is_large else snapshot.num_rows, num_files=num_files, size_bytes=snapshot.size_bytes
    )


def _rows_after(before: TableCounts, adds: Sequence[AddFile], gone: pa.Table) -> int | None:
    added = _rows_of(adds)
    if added is None or gone.num_rows == before.num_files:
        return added
    removed = logical_row_count(gone)
    return None if before.num_rows is None or removed is None else before.num_rows - removed + added


def row_counts(adds: Sequence[AddFile]) -> Sequence[int | None]:
    """The number of rows of each file, without those that its deletion vector deletes; None if its statistics do not say it."""
    if len(adds) <= _MAX_PARSED_ONE_BY_ONE:
        records = [_num_records(add.stats) for add in adds]
    else:
        records = num_records(pa.array([add.stats for add in adds], pa.string())).to_pylist()
    return [
        count if count is None or add.deletion_vector is None else count - add.deletion_vector.cardinality
        for add, count in zip(adds, records, strict=True)
    ]


def _rows_of(adds: Sequence[AddFile]) -> int | None:
    counts = row_counts(adds)
    return None if None in counts else sum(count for count in counts if count is not None)


def _num_records(stats: str | None) -> int | None:
    try:
        number = None if stats is None else json.loads(stats).get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        return None
    return number if isinstance(number, int) and not isinstance(number, bool) else None
