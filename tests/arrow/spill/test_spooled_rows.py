"""Rows in a file, and rows in batches of a size."""

import numpy as np
import pyarrow as pa
import pytest

from cm_delta_dagster.arrow.spill.spooled_rows import sized_batches, spooled, taken_rows

pytestmark = pytest.mark.fast


def _rows() -> pa.Table:
    nested = [None if i % 5 == 0 else {"a": [i] * (i % 3), "b": "x" * i} for i in range(20)]
    return pa.table({"i": range(20), "s": [None if i % 4 == 0 else "x" * i for i in range(20)], "n": nested})


def test_rows_are_taken_from_a_file_in_any_order() -> None:
    rows = _rows()
    stored = spooled(rows.slice(first, 3) for first in range(0, 20, 3))
    assert stored.equals(rows)
    for numbers in ([], [0], [19, 0, 7, 7, 3, 18], [4] * 6):
        for name in rows.column_names:
            taken = taken_rows(stored[name], np.array(numbers, np.int64))
            assert taken.to_pylist() == [rows[name][number].as_py() for number in numbers]


def test_batches_have_the_rows_or_bytes_that_are_asked_for() -> None:
    rows = _rows().select(["i"])
    by_rows = [
        batch.num_rows for batch in sized_batches(rows.to_batches(max_chunksize=4), num_rows=10, num_bytes=2**20)
    ]
    assert by_rows == [12, 8]
    by_bytes = list(sized_batches(rows.to_batches(), num_rows=100, num_bytes=40))
    assert [batch.num_rows for batch in by_bytes] == [5, 5, 5, 5]
    assert pa.Table.from_batches(by_bytes) == rows
