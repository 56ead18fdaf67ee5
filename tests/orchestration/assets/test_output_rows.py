"""Outputs of Arrow, pandas and polars: every type is written as it is, or refused with the name of its column."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cm_delta_dagster.arrow.write.stored_columns import stored_columns
from cm_delta_dagster.errors import InvalidArgumentError, InvalidDataError
from cm_delta_dagster.operations.tables.create import first_schema
from cm_delta_dagster.operations.writing.engine_choice import no_session
from cm_delta_dagster.operations.writing.rows import RowsForArrow
from cm_delta_dagster.orchestration.assets.output_rows import output_rows
from cm_delta_dagster.orchestration.metadata.frame_types import DtypeBackend, FrameType, from_batches
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec
from tests.support.stored_types import STORED_TYPES

_NUMBERS = [[1], None, [2, 3]]


def rows_of(value: Any) -> pa.Table:
    """The rows as the data files of a new table would have them."""
    rows = output_rows(value, name="the asset", session=no_session)
    layout = TableLayout(location="file:///t", schema=first_schema(rows.schema), partition_columns=())
    for_arrow = rows.written_to(layout)
    assert isinstance(for_arrow, RowsForArrow)
    columns = stored_columns(for_arrow.rows.source.schema, layout, WriteSpec())
    batches = [
        pa.RecordBatch.from_arrays(
            [column.stored_values(column.values(batch)) for column in columns], names=layout.schema.names
        )
        for batch in for_arrow.rows.reader()
    ]
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize(
    "case",
    [case for case in STORED_TYPES if case.plain is case.stored and case.name != "nanoseconds"],
    ids=lambda case: case.name,
)
def test_every_arrow_type_is_written_with_its_values(case: Any) -> None:
    found = rows_of(pa.table({"c": case.array()}))
    found.validate(full=True)
    assert found["c"].to_pylist() == case.expected


_FRACTION = pa.array([1_000, 1_001], pa.timestamp("ns"))


@pytest.mark.parametrize(
    "values",
    [
        _FRACTION,
        _FRACTION.dictionary_encode(),
        pc.run_end_encode(_FRACTION),
        pa.StructArray.from_arrays([_FRACTION], ["t"]),
        pa.ListArray.from_arrays([0, 1, 2], _FRACTION),
        pa.ListViewArray.from_arrays([0, 1], [1, 1], _FRACTION),
        pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], _FRACTION),
    ],
    ids=lambda values: str(values.type).partition("<")[0],
)
def test_a_fraction_of_a_microsecond_is_refused_at_any_place(values: pa.Array) -> None:
    with pytest.raises(InvalidDataError, match=r"'c.*Round the column to microseconds"):
        rows_of(pa.table({"c": values}))


def test_list_views_at_any_level_keep_their_elements() -> None:
    """A cast of pyarrow loses them."""
    views = pa.large_list_view(pa.int64())
    nested = pa.array([{"x": [1]}, None, {"x": [2, 3]}], pa.struct({"x": views}))
    chunks = pa.chunked_array([pa.array(_NUMBERS, views), pa.array(_NUMBERS, views).take(pa.array([2, 0, 1]))])
    found = rows_of(pa.table({"c": chunks, "s": pa.chunked_array([nested, nested])}))
    assert found["c"].to_pylist() == [*_NUMBERS, [2, 3], [1], None]
    assert found["s"].to_pylist() == [{"x": [1]}, None, {"x": [2, 3]}] * 2


def test_run_end_encoded_values_are_written() -> None:
    runs = pa.array(["x", "x", None], pa.run_end_encoded(pa.int32(), pa.string()))
    assert rows_of(pa.table({"c": runs}))["c"].to_pylist() == ["x", "x", None]


def _pandas(*values: Any, **options: Any) -> pd.DataFrame:
    return pd.DataFrame({"fine": range(len(values)), "c": pd.Series(list(values), **options)})


def _polars(values: list[Any], kind: Any) -> pl.DataFrame:
    return pl.DataFrame({"fine": range(len(values)), "c": pl.Series(values, dtype=kind)})


REFUSED = {
    "mixed": (_pandas(1, "x"), "values of int and str in column 'c'"),
    "numbers": (_pandas("a", 1.5), "values of float and str in column 'c'"),
    "booleans": (_pandas(True, 1), "values of bool and int in column 'c'"),
    "structs": (_pandas({"x": 1}, 2), "values of dict and int in column 'c'"),
    "objects": (_pandas(object()), "values of object in column 'c'"),
    "large": (_pandas(2**70), "values of int in column 'c'"),
    "times": (_pandas(dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 5)), "dates and times in column 'c'"),
    "complex": (_pandas(1 + 2j), "pandas type complex128 in column 'c'"),
    "sparse": (pd.DataFrame({"c": pd.arrays.SparseArray([0, 1])}), r"pandas type Sparse\[int64, 0\] in column 'c'"),
    "long_double": (pd.DataFrame({"c": np.array([1.5], dtype="longdouble")}), "in column 'c'"),
    "period": (pd.DataFrame({"c": pd.period_range("2020", periods=2)}), "Column 'c' has the Arrow type .*period"),
    "interval": (pd.DataFrame({"c": pd.interval_range(0, 2)}), "Column 'c' has the Arrow type .*interval"),
    "timedelta": (_pandas(dt.timedelta(1)), "Column 'c' has the Arrow type duration"),
    "time": (_pandas(dt.time(1)), "Column 'c' has the Arrow type time"),
    "surrogate": (_pandas("\ud800"), "values of str in column 'c'"),
    "names": (pd.DataFrame([[1, 2]], columns=["c", "c"]), "Duplicate column names"),
    "int128": (_polars([1], pl.Int128), "polars type Int128 in column 'c'"),
    "uint128": (_polars([1], pl.UInt128), "polars type UInt128 in column 'c'"),
    "int128_list": (_polars([[1]], pl.List(pl.Int128)), r"polars type List\(Int128\) in column 'c'"),
    "int128_struct": (_polars([{"x": 1}], pl.Struct({"x": pl.Int128})), "in column 'c'.*Cast the column to pl.Int64"),
    "int128_lazy": (_polars([1], pl.Int128).lazy(), "LazyFrame .* polars type Int128 in column 'c'"),
    "object": (_polars([object()], pl.Object), "polars type Object in column 'c'"),
    "polars_time": (_polars([dt.time(1)], pl.Time), "Column 'c' has the Arrow type time64"),
    "polars_duration": (_polars([dt.timedelta(1)], pl.Duration), "Column 'c' has the Arrow type duration"),
    "arrow_time": (pa.table({"c": pa.array([1], pa.time64("us"))}), "Column 'c' has the Arrow type time64"),
    "wide_decimal": (pa.table({"c": pa.array([1], pa.decimal256(50, 2))}), "Column 'c' has the Arrow type decimal256"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_stored_is_refused_with_its_column(name: Any) -> None:
    value, message = REFUSED[name]
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        rows_of(value)
    assert "_pli128" not in str(caught.value)


def test_other_types_of_polars_and_pandas_are_written() -> None:
    categories = pl.DataFrame(
        {
            "cat": pl.Series(["x", None], dtype=pl.Categorical),
            "enum": pl.Series(["x", None], dtype=pl.Enum(["x"])),
            "u64": pl.Series([2**64 - 1, None], dtype=pl.UInt64),
            "list": pl.Series([["x"], None], dtype=pl.List(pl.Categorical)),
            "array": pl.Series([["x", "y"], None], dtype=pl.Array(pl.String, 2)),
            "f16": pl.Series([1.5, None], dtype=pl.Float16),
        }
    )
    assert rows_of(categories).to_pylist() == [
        {"cat": "x", "enum": "x", "u64": Decimal(2**64 - 1), "list": ["x"], "array": ["x", "y"], "f16": 1.5},
        dict.fromkeys(categories.columns),
    ]
    pandas = pd.DataFrame(
        {"c": pd.Categorical(["a", None]), "n": pd.array([1, None], "Int64"), "d": [None, Decimal("1.50")]}
    )
    assert rows_of(pandas).to_pylist() == [{"c": "a", "n": 1, "d": None}, {"c": None, "n": None, "d": Decimal("1.50")}]


STORED = pa.table(
    {
        "long": pa.array([9007199254740993, None], pa.int64()),
        "byte": pa.array([1, None], pa.int8()),
        "flag": pa.array([True, None]),
        "real": pa.array([1.5, None], pa.float32()),
        "text": pa.array(["x", None]),
        "bytes": pa.array([b"x", None]),
        "day": pa.array([dt.date(1, 1, 1), None]),
        "at": pa.array([dt.datetime(9999, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        "local": pa.array([dt.datetime(1, 1, 1), None], pa.timestamp("us")),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "list": pa.array([[1, None], None], pa.list_(pa.field("element", pa.int64()))),
        "struct": pa.array([{"x": None}, None], pa.struct({"x": pa.int32()})),
        "map": pa.array([[("k", None)], None], pa.map_(pa.string(), pa.int64())),
    }
)


def test_a_pandas_input_keeps_types_and_values_by_default() -> None:
    frame = from_batches(STORED.to_reader(), FrameType.PANDAS)
    assert frame["long"][0] == 9007199254740993 and frame["long"].isna()[1]
    assert rows_of(frame).equals(STORED)
    changed = frame.assign(long=frame["long"] + 1, text=frame["text"].str.upper())
    assert rows_of(changed).select(["long", "text"]).to_pylist() == [
        {"long": 9007199254740994, "text": "X"},
        {"long": None, "text": None},
    ]


def test_the_types_of_a_pandas_input_can_be_chosen() -> None:
    nullable = from_batches(STORED.to_reader(), FrameType.PANDAS, dtype_backend=DtypeBackend.NUMPY_NULLABLE)
    assert [str(nullable[name].dtype) for name in ("long", "byte", "flag", "real")] == [
        "Int64",
        "Int8",
        "boolean",
        "Float32",
    ]
    flat = ["long", "byte", "flag", "real", "text", "bytes", "day", "at", "local"]
    assert rows_of(nullable[flat]).equals(STORED.select(flat))
    plain = from_batches(STORED.to_reader(), FrameType.PANDAS, dtype_backend=DtypeBackend.NUMPY)
    assert str(plain["long"].dtype) == "float64"
