"""Which files are rewritten together: bin packing of small files and of files with many deleted rows."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.statistics.statistics import num_records

MAX_DELETED_ROWS_RATIO = 0.05
"""Share of deleted rows from which a file is rewritten regardless of its size. The reference implementation uses the same."""

PACKED_TAG = "OPTIMIZE_TARGET_SIZE"
"""Tag of a rewritten file with its target size. A bin that holds only files packed for the same size is not rewritten."""


def pack(
    files: pa.Table, *, partition_columns: Sequence[str], target_size: int, min_size: int, all_files: bool = False
) -> tuple[pa.Table, ...]:
    """Assign files to bins, each to be rewritten as one file.

    Candidates are files smaller than ``min_size`` and files with many deleted rows. The candidates of a partition are packed
    in order of size into bins of at most ``target_size``. A bin without a file with many deleted rows is dropped if it holds
    one file, or only files that an earlier run packed for the same target size. With ``all_files`` every file is in a bin.
    """
    files = files.append_column("sparse", is_sparse(files)).append_column("packed", _is_packed(files, target_size))
    if not all_files:
        files = files.filter(pc.or_(pc.less(files["size"], min_size), files["sparse"]))
    codes = []
    for number, name in enumerate(partition_columns):
        values = partition_column(files, name)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        codes.append(f"partition {number}")
        files = files.append_column(codes[-1], values.dictionary_encode(null_encoding="encode").indices)
    keys = [(name, "ascending") for name in (*codes, "size", "path")]
    files = files.take(pc.sort_indices(files, sort_keys=keys)) if files.num_rows else files
    partitions = list(zip(*(files[name].to_pylist() for name in codes), strict=True)) or [()] * files.num_rows
    spans = _spans(partitions, files["size"].to_pylist(), target_size)
    adds = files.drop_columns([*codes, "sparse", "packed"])
    sparse, packed = files["sparse"].to_pylist(), files["packed"].to_pylist()
    return tuple(
        adds.slice(start, end - start)
        for start, end in spans
        if all_files or any(sparse[start:end]) or (end - start > 1 and not all(packed[start:end]))
    )


def _spans(partitions: Sequence[tuple[int, ...]], sizes: Sequence[int], target_size: int) -> list[tuple[int, int]]:
    """Split files sorted by partition into ranges [start, end) of one partition and at most ``target_size`` bytes."""
    spans = []
    start = total = 0
    for position, size in enumerate(sizes):
        if position > start and (partitions[position] != partitions[start] or total + size > target_size):
            spans.append((start, position))
            start, total = position, 0
        total += size
    if sizes:
        spans.append((start, len(sizes)))
    return spans


def is_sparse(files: pa.Table) -> pa.Array:
    """Whether the share of deleted rows of a file is at least :data:`MAX_DELETED_ROWS_RATIO`."""
    deleted = deleted_rows(files)
    share = pc.divide(pc.cast(deleted, pa.float64()), pc.cast(num_records(files["stats"]), pa.float64()))
    return pc.and_(pc.greater(deleted, 0), pc.fill_null(pc.greater_equal(share, MAX_DELETED_ROWS_RATIO), True))


def _is_packed(files: pa.Table, target_size: int) -> pa.Array:
    tags = files["tags"].combine_chunks()
    targets = pc.map_lookup(tags, pa.scalar(PACKED_TAG, tags.type.key_type), "first")
    return pc.fill_null(pc.equal(targets, str(target_size)), False)


def deleted_rows(files: pa.Table) -> pa.Array:
    """The number of deleted rows of each file."""
    vectors = files["deletionVector"].combine_chunks()
    return pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
