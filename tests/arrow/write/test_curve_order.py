"""Ordering rows along a curve in memory and by a temporary file."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cm_delta_dagster.arrow.write import curve_order
from cm_delta_dagster.arrow.write.curve_order import CurveOrder
from cm_delta_dagster.protocol.schema.types import LONG, DataType, StructField, StructType
from cm_delta_dagster.protocol.statistics.curve_ranges import LayoutColumn
from cm_delta_dagster.protocol.statistics.curves import curve_for
from tests.arrow.curve_values import VALUES, rows_of

pytestmark = pytest.mark.fast
TYPES: dict[str, DataType] = {"n": LONG, **{name: data_type for name, (data_type, _) in VALUES.items()}}


def _order(rows: pa.Table, names: list[str], *, num_files: int, count: int | None = None) -> CurveOrder:
    return CurveOrder(
        columns=[LayoutColumn(path=(name,), type=TYPES[name]) for name in names],
        curve=curve_for(len(names), hilbert=len(names) <= 4),
        keys=lambda: iter(rows.select(names).to_batches(max_chunksize=777)),
        count=lambda: rows.num_rows if count is None else count,
        num_files=num_files,
    )


def _files(rows: pa.Table, names: list[str], *, num_files: int, count: int | None = None) -> list[pa.Table]:
    order = _order(rows, names, num_files=num_files, count=count)
    return [pa.Table.from_batches(list(file), rows.schema) for file in order.files(rows.to_batches(max_chunksize=500))]


@pytest.fixture
def spilling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows do not fit into memory."""
    monkeypatch.setattr(curve_order, "_RUN_BYTES", 1 << 16)
    monkeypatch.setattr(curve_order, "_BUCKET_BYTES", 1 << 14)
    monkeypatch.setattr(curve_order, "_TAKEN_ROWS", 300)


@pytest.mark.requirements("OPT-5", "CLUST-5")
@pytest.mark.parametrize("names", [*([name] for name in VALUES), list(VALUES), ["n", "string", "double"]], ids="-".join)
def test_the_order_by_a_temporary_file_is_that_in_memory(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is in one file, for all types, and files have about equally many rows."""
    rows = rows_of(4_000)
    in_memory = _files(rows, names, num_files=5)
    monkeypatch.setattr(curve_order, "_RUN_BYTES", 1 << 16)
    monkeypatch.setattr(curve_order, "_BUCKET_BYTES", 1 << 14)
    monkeypatch.setattr(curve_order, "_PLACED_ROWS", 70)
    spilled = _files(rows, names, num_files=5)
    assert [file["n"].to_pylist() for file in in_memory] == [file["n"].to_pylist() for file in spilled]
    for files in (in_memory, spilled):  # NaN is not equal to NaN, its text is.
        written = pa.concat_tables(files).sort_by("n").to_pylist()
        assert str(written) == str(rows.sort_by("n").to_pylist())
    assert all(400 <= file.num_rows <= 1_200 for file in in_memory)


@pytest.mark.parametrize("name", VALUES)
def test_rows_by_one_column_are_sorted_as_the_type_is(name: str) -> None:
    """NULL comes first and NaN last."""
    rows = rows_of(200).select(["n", name])
    (file,) = _files(rows, [name], num_files=1)
    values = file[name]
    assert values.slice(0, values.null_count).null_count == values.null_count
    known = values.drop_null().to_pylist()
    assert known == sorted(known, key=lambda value: (value != value, value))


@pytest.mark.usefixtures("spilling")
@pytest.mark.parametrize("recorded", [1, 10**9])
def test_a_wrong_number_of_rows_in_the_log_loses_no_row(recorded: int) -> None:
    rows = rows_of(3_000)
    files = _files(rows, ["n", "string"], num_files=3, count=recorded)
    assert sorted(number for file in files for number in file["n"].to_pylist()) == list(range(3_000))


def test_equal_rows_fill_several_files_and_stay_in_order() -> None:
    rows = pa.table({"n": pa.array([7] * 1_000), "row": range(1_000)})
    files = _files(rows, ["n"], num_files=4)
    assert [number for file in files for number in file["row"].to_pylist()] == list(range(1_000))
    assert [file.num_rows for file in files] == pytest.approx([250] * 4, abs=60)
    assert list(_order(rows, ["n"], num_files=4).files([])) == []


def test_a_field_of_a_struct_orders_rows() -> None:
    inner = pa.array([{"a.b": 3}, None, {"a.b": 1}, {"a.b": None}, {"a.b": 2}], pa.struct([("a.b", pa.int64())]))
    kind = StructType((StructField("a.b", LONG),))
    order = CurveOrder(
        columns=[LayoutColumn(path=("s", "a.b"), type=kind.fields[0].type)],
        curve=curve_for(1, hilbert=True),
        keys=lambda: (),
        count=lambda: 5,
        num_files=1,
    )
    ((batch,),) = [list(file) for file in order.files(pa.table({"s": inner}).to_batches())]
    assert batch["s"].to_pylist() == [None, {"a.b": None}, {"a.b": 1}, {"a.b": 2}, {"a.b": 3}]


@pytest.mark.usefixtures("spilling")
@pytest.mark.parametrize("fails_at", [9, None])
def test_the_temporary_file_goes_in_every_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int | None
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = rows_of(4_000)

    def batches() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(rows.to_batches(max_chunksize=100)):
            if number == fails_at:
                raise KeyError("lost")
            yield batch

    def opened() -> int:
        links = (
            os.readlink(f"/proc/self/fd/{number}")
            for number in os.listdir("/proc/self/fd")
            if number.isdigit() and os.path.islink(f"/proc/self/fd/{number}")
        )
        return sum(str(tmp_path) in link for link in links)

    files = _order(rows, ["n"], num_files=3).files(batches())
    if fails_at is None:
        next(files)
        assert opened() == 1 and not list(tmp_path.iterdir())
    else:
        with pytest.raises(KeyError):
            next(files)
    files.close()
    gc.collect()
    assert opened() == 0 and not list(tmp_path.iterdir())
