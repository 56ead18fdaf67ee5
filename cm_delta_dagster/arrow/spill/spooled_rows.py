"""A table of Arrow whose values are in a temporary local file, from which the operating system reads them when they are used.

The file is in the directory for temporary files (``TMPDIR``) and has no name. It goes when the table goes, or the process ends.
"""

import mmap
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cm_delta_dagster.arrow.spill.temporary_space import drop_file, temporary_file, temporary_space


def spooled(tables: Iterable[pa.Table]) -> pa.Table:
    """The rows of some tables with one schema, at least one, as a table whose values are in a file.

    Raises:
        EngineError: the directory for temporary files is full, or cannot be written.
    """
    rest = iter(tables)
    first = next(rest)
    file = temporary_file()
    try:
        with temporary_space():
            writer = pa.ipc.new_stream(file, first.schema)
        for table in chain([first], rest):
            with temporary_space():
                writer.write_table(table)
        with temporary_space():
            writer.close()
            file.flush()
        values = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    finally:
        drop_file(file)
    return pa.ipc.open_stream(pa.BufferReader(values)).read_all()


def sized_batches(batches: Iterable[pa.RecordBatch], *, num_rows: int, num_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that have about ``num_rows`` rows, or ``num_bytes``, which is less; the last is smaller."""
    taken: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        step = max(1, min(num_rows, batch.num_rows * num_bytes // max(1, batch.nbytes)))
        for first in range(0, batch.num_rows, step):
            part = batch.slice(first, step)
            taken.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if rows >= num_rows or size >= num_bytes:
                yield _joined(taken)
                taken, rows, size = [], 0, 0
    if taken:
        yield _joined(taken)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def taken_rows(column: pa.ChunkedArray, rows: npt.NDArray[np.int64]) -> pa.Array:
    """The values of a column at some rows. Each chunk is read once, in the order of the file."""
    if column.num_chunks == 1:
        return column.chunk(0).take(pa.array(rows))
    starts = np.cumsum([0, *map(len, column.chunks)])
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    ends = np.searchsorted(ordered, starts)
    parts = [
        chunk.take(pa.array(ordered[ends[number] : ends[number + 1]] - starts[number]))
        for number, chunk in enumerate(column.chunks)
        if ends[number] < ends[number + 1]
    ]
    if not parts:
        return pa.array([], column.type)
    places = np.empty(len(rows), np.int64)
    places[order] = np.arange(len(rows))
    return pa.concat_arrays(parts).take(pa.array(places))
