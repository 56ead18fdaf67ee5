"""A merge by Arrow of a large stream into a large table, in a process whose memory is limited. Prints figures as JSON.

Run it as ``python -m tests.operations.writing.engines.large_merge DIRECTORY VECTORS TABLE_ROWS SOURCE_ROWS [LIMIT_BYTES]``.
"""

import json
import os
import re
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster import DeltaTable, connect

_BATCH_ROWS = 2**18
_STEP = 11
"""The source has the ids 0, 11, 22, ... in another order; ids beyond the rows of the table are new."""
_FACTOR = 7_654_321
"""It has no divisor in common with powers of 10, so that its multiples visit all rows of the source."""
_LABEL_LETTERS = 60
_SCHEMA = pa.schema({"id": pa.int64(), "quantity": pa.int32(), "price": pa.float64(), "label": pa.string()})


def _rows(ids: np.ndarray, quantity: int) -> pa.RecordBatch:
    labels = pc.utf8_lpad(pa.array(ids).cast(pa.string()), _LABEL_LETTERS, "-")
    columns = [pa.array(ids), pa.array(np.full(len(ids), quantity, np.int32)), pa.array(ids * 0.25), labels]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _table_rows(num_rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, num_rows, _BATCH_ROWS):
        yield _rows(np.arange(first, min(num_rows, first + _BATCH_ROWS)), 1)


def _source_rows(num_rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, num_rows, _BATCH_ROWS):
        numbers = np.arange(first, min(num_rows, first + _BATCH_ROWS))
        yield _rows(numbers * _FACTOR % num_rows * _STEP, 2)


def _check(table: DeltaTable, num_table_rows: int, num_source_rows: int) -> int:
    """Read the table, and compare every row. Returns the number of rows."""
    seen = np.zeros(max(num_table_rows, num_source_rows * _STEP), np.bool_)
    num_rows = 0
    for batch in table.scan(columns=["id", "quantity"]).to_batches():
        ids, quantities = (batch.column(name).to_numpy() for name in ("id", "quantity"))
        merged = (ids % _STEP == 0) & (ids < num_source_rows * _STEP)
        assert np.array_equal(quantities, np.where(merged, 2, 1))
        seen[ids] = True
        num_rows += len(ids)
    expected = np.zeros(len(seen), np.bool_)
    expected[:num_table_rows] = True
    expected[: num_source_rows * _STEP : _STEP] = True
    assert np.array_equal(seen, expected)
    assert num_rows == int(expected.sum())
    return num_rows


def _peaks() -> dict[str, int]:
    """The most memory that the process had, in MiB: resident, and of that last what is no page of a file."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return {name: int(kilobytes) // 1024 for name, kilobytes in re.findall(r"(VmHWM|RssAnon):\s+(\d+)", status)}


def main(
    home: str, vectors: str, num_table_rows: int, num_source_rows: int, limit: int | None = None
) -> dict[str, object]:
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    lake = connect(f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}", spark=lambda: None)  # type: ignore[arg-type,return-value]
    seconds: dict[str, float] = {}
    started = time.monotonic()
    table = lake.create_table(
        "main.large.t",
        "id BIGINT, quantity INT, price DOUBLE, label STRING",
        properties={"delta.enableDeletionVectors": vectors},
    )
    table.append(pa.RecordBatchReader.from_batches(_SCHEMA, _table_rows(num_table_rows)))
    seconds["append"] = time.monotonic() - started
    peaks = {"after the append": _peaks()}
    started, processor = time.monotonic(), time.process_time()
    result = table.upsert(pa.RecordBatchReader.from_batches(_SCHEMA, _source_rows(num_source_rows)), on=["id"])
    seconds["merge"] = time.monotonic() - started
    seconds["merge, processor"] = time.process_time() - processor
    peaks["after the merge"] = _peaks()
    num_rows = _check(table, num_table_rows, num_source_rows)
    source_bytes = num_source_rows * _rows(np.arange(_BATCH_ROWS), 2).nbytes // _BATCH_ROWS
    return {
        "source bytes": source_bytes,
        "seconds": seconds,
        "peaks in MiB": peaks,
        "rows": num_rows,
        "metrics": dict(result.metrics),
    }


if __name__ == "__main__":
    directory, has_vectors, *numbers = sys.argv[1:]
    os.makedirs(directory, exist_ok=True)
    print(json.dumps(main(directory, has_vectors, *map(int, numbers))))
