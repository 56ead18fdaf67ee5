"""Every physical form of every type, and every widening."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from tests.arrow.data_files import DataFiles, columns

UTC = dt.UTC
_EPOCH = dt.datetime(1970, 1, 1)
_FIRST = dt.datetime(1, 1, 1)
_MOMENT = dt.datetime(2020, 1, 2, 3, 4, 5, 678901)


@pytest.mark.requirements("PQ-2", "PQ-3", "NTZ-2", "UP-TW-2", "UP-TW-5")
@pytest.mark.parametrize(
    ("stored", "values", "wanted", "expected"),
    [
        # PQ-2: the forms of one type
        (pa.int32(), [1, -128, None], BYTE, None),
        (pa.int32(), [1, -32768], SHORT, None),
        (pa.uint8(), [255], SHORT, None),
        (pa.uint32(), [2**32 - 1], LONG, None),
        (pa.large_string(), ["a", None], STRING, None),
        (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a", None], STRING, None),
        (pa.binary(), [b"caf\xc3\xa9"], STRING, ["café"]),
        (pa.binary(2), [b"\x00\xff"], BINARY, None),
        (pa.string(), ["é"], BINARY, [b"\xc3\xa9"]),
        (pa.bool_(), [True, None, False], BOOLEAN, None),
        (pa.decimal128(9, 2), [Decimal("1.23"), None, Decimal("-9999999.99")], DecimalType(9, 2), None),
        (pa.decimal128(38, 10), [Decimal("-1.5")], DecimalType(38, 10), None),
        (pa.int32(), [0, -719162], DATE, [dt.date(1970, 1, 1), dt.date(1, 1, 1)]),
        # PQ-3, NTZ-2: other units, rounded down
        (pa.timestamp("ms", "UTC"), [5, None], TIMESTAMP, [_EPOCH.replace(microsecond=5000, tzinfo=UTC), None]),
        (pa.timestamp("ns"), [-1, 1999], TIMESTAMP_NTZ, [_EPOCH - dt.datetime.resolution, _EPOCH.replace(microsecond=1)]),
        (pa.timestamp("us"), [_MOMENT], TIMESTAMP, [_MOMENT.replace(tzinfo=UTC)]),
        (pa.timestamp("us", "UTC"), [_MOMENT.replace(tzinfo=UTC)], TIMESTAMP_NTZ, [_MOMENT]),
        # UP-TW-2, UP-TW-5: every widening
        *[(pa.int8(), [-128, 127, None], wider, None) for wider in (SHORT, INTEGER, LONG)],
        (pa.int8(), [5], DOUBLE, [5.0]),
        *[(pa.int16(), [-32768, None], wider, None) for wider in (INTEGER, LONG)],
        (pa.int16(), [7], DOUBLE, [7.0]),
        (pa.int32(), [2**31 - 1, None], LONG, None),
        (pa.int32(), [2**31 - 1], DOUBLE, [float(2**31 - 1)]),
        (pa.float32(), [1.5, float("inf"), None], DOUBLE, None),
        (pa.int32(), [-(2**31)], DecimalType(10, 0), [Decimal(-(2**31))]),
        (pa.int32(), [1], DecimalType(12, 2), [Decimal("1.00")]),
        (pa.int8(), [-128], DecimalType(11, 1), [Decimal("-128.0")]),
        (pa.int64(), [2**63 - 1], DecimalType(20, 0), [Decimal(2**63 - 1)]),
        (pa.int64(), [-(2**63)], DecimalType(38, 18), [Decimal(-(2**63))]),
        (pa.decimal128(5, 2), [Decimal("123.45")], DecimalType(10, 2), None),
        (pa.decimal128(5, 2), [Decimal("-123.45")], DecimalType(38, 20), None),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)], TIMESTAMP_NTZ, [_FIRST, dt.datetime(9999, 12, 31)]),
    ],
)  # fmt: skip
def test_a_stored_form_is_read_as_the_tables_type(
    data_files: DataFiles, stored: pa.DataType, values: list[Any], wanted: DataType, expected: list[Any] | None
) -> None:
    """At the top and inside of lists, maps and structs."""
    array = pa.array(values, stored)
    places = {
        "c": array,
        "l": pa.array([values], pa.list_(stored)),
        "m": pa.array([[("k", value) for value in values]], pa.map_(pa.string(), stored)),
        "s": pa.array([{"x": value} for value in values], pa.struct({"x": stored})),
    }
    for position, (name, place) in enumerate(places.items()):
        table = pa.table({name: place})
        data_files.add(table, store_schema=position % 2 == 0)
    expected = values if expected is None else expected
    inner = StructType((StructField("x", wanted),))
    schema = columns(c=wanted, l=ArrayType(wanted), m=MapType(STRING, wanted), s=inner)
    found = data_files.read(schema)

    assert found["c"].to_pylist()[: len(values)] == expected
    assert found["l"].drop_null().to_pylist() == [expected]
    assert found["m"].drop_null().to_pylist() == [[("k", value) for value in expected]]
    assert found["s"].drop_null().to_pylist() == [{"x": value} for value in expected]


@pytest.mark.requirements("UP-TW-5", "PQ-3")
@pytest.mark.parametrize(
    ("stored", "values", "wanted"),
    [
        (pa.int64(), [1], INTEGER),
        (pa.int64(), [1], DOUBLE),
        (pa.int64(), [1], TIMESTAMP),
        (pa.int32(), [300], BYTE),
        (pa.float64(), [1.5], FLOAT),
        (pa.float64(), [1.0], LONG),
        (pa.string(), ["1"], INTEGER),
        (pa.binary(), [b"\xff"], STRING),
        (pa.date32(), [dt.date(2020, 1, 1)], TIMESTAMP),
        (pa.timestamp("us"), [_MOMENT], DATE),
        (pa.decimal128(10, 3), [Decimal("1.234")], DecimalType(10, 2)),
        (pa.decimal128(10, 2), [Decimal("12345678.90")], DecimalType(5, 2)),
        (pa.int32(), [1], DecimalType(5, 0)),
        (pa.timestamp("ms"), [2**62], TIMESTAMP_NTZ),
        (pa.list_(pa.int64()), [[1]], LONG),
        (pa.int64(), [1], ArrayType(LONG)),
        (pa.struct({"a": pa.int64()}), [{"a": 1}], MapType(STRING, LONG)),
        (pa.bool_(), [True], INTEGER),
    ],
)
def test_what_would_change_a_value_is_refused(
    data_files: DataFiles, stored: pa.DataType, values: list[Any], wanted: DataType
) -> None:
    path = data_files.add(pa.table({"c": pa.array(values, stored)}), version="2.6")
    with pytest.raises(CorruptLogError, match=path):
        data_files.read(columns(c=wanted))


@pytest.mark.requirements("PQ-2")
@pytest.mark.parametrize("stored", [pa.decimal128(9, 2), pa.decimal128(18, 2), pa.decimal128(30, 2)])
def test_decimals_are_read_from_integers_too(data_files: DataFiles, stored: pa.DataType) -> None:
    """INT32, INT64 and fixed bytes."""
    values = [Decimal("-1.23"), None, Decimal("12.00")]
    data_files.add(pa.table({"c": pa.array(values, stored)}), store_decimal_as_integer=True)
    kinds = pq.ParquetFile(data_files.root / "part-00000.parquet").schema.column(0).physical_type
    assert kinds == {9: "INT32", 18: "INT64", 30: "FIXED_LEN_BYTE_ARRAY"}[stored.precision]
    assert data_files.rows(columns(c=DecimalType(30, 2))) == [(value,) for value in values]


@pytest.mark.requirements("PQ-2")
def test_old_and_far_moments_survive_int96(data_files: DataFiles) -> None:
    """Nanoseconds in 64 bits end in 1677 and 2262, INT96 does not."""
    micros = [-62135596800000000, -1, 0, 253402300799999999, None]
    moments = pa.array(micros, pa.timestamp("us"))
    inside = pa.array([[value] for value in micros], pa.list_(pa.timestamp("us")))
    data_files.add(pa.table({"t": moments, "n": moments, "l": inside}), use_deprecated_int96_timestamps=True)
    found = data_files.read(columns(t=TIMESTAMP, n=TIMESTAMP_NTZ, l=ArrayType(TIMESTAMP)))
    assert found["t"].combine_chunks().view(pa.int64()).to_pylist() == micros
    assert found["n"].combine_chunks().view(pa.int64()).to_pylist() == micros
    assert found["l"].combine_chunks().values.view(pa.int64()).to_pylist() == micros


@pytest.mark.requirements("UP-TW-5")
def test_files_of_a_table_may_differ_in_type(data_files: DataFiles) -> None:
    """Old files and recent ones in one result."""
    data_files.add(pa.table({"c": pa.array([1, 2], pa.int8())}))
    data_files.add(pa.table({"c": pa.array([300], pa.int16())}))
    data_files.add(pa.table({"c": pa.array([2**40], pa.int64())}))
    assert data_files.rows(columns(c=LONG)) == [(1,), (2,), (300,), (2**40,)]


@pytest.mark.requirements("PQ-2")
def test_lists_with_other_inner_names_are_read(data_files: DataFiles) -> None:
    """Two levels, and Spark's legacy names, are tested with files of Spark."""
    lists = pa.array([[1, 2], [], None, [3]], pa.list_(pa.field("element", pa.int32(), False)))
    data_files.add(pa.table({"l": lists}), use_compliant_nested_type=False)
    assert data_files.rows(columns(l=ArrayType(INTEGER))) == [([1, 2],), ([],), (None,), ([3],)]


def test_sliced_and_fixed_size_lists_are_read(data_files: DataFiles) -> None:
    array = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    data_files.add(pa.table({"l": array, "g": array.cast(pa.large_list(pa.int64()))}))
    assert data_files.rows(columns(l=ArrayType(LONG), g=ArrayType(LONG))) == [([1, 2],) * 2, (None,) * 2, ([3, 4],) * 2]


def test_floats_keep_nan_and_signed_zero(data_files: DataFiles) -> None:
    data_files.add(pa.table({"f": pa.array([float("nan"), -0.0, float("-inf")], pa.float32())}))
    found = data_files.read(columns(f=DOUBLE))["f"].to_numpy()
    assert np.isnan(found[0]) and np.signbit(found[1]) and found[2] == float("-inf")
