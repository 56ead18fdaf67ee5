"""Statistics: choice of columns, statistics from Parquet footers, row counts of many files."""

import io
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.schema.types import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from cm_delta_dagster.protocol.statistics.statistics import (
    footer_statistics,
    logical_row_count,
    num_records,
    statistics_columns,
    truncate_lower_bound,
    truncate_upper_bound,
)

LONG = PrimitiveType("long")
STRING = PrimitiveType("string")
SCHEMA = StructType(
    (
        StructField("p", STRING),
        StructField("a", LONG),
        StructField(
            "s", StructType((StructField("x", LONG), StructField("y", StructType((StructField("z", STRING),)))))
        ),
        StructField("l", ArrayType(LONG)),
        StructField("m", MapType(STRING, LONG)),
        StructField("c,d", LONG),
    )
)


def paths(configuration: Mapping[str, str], **more: Any) -> list[str]:
    columns = statistics_columns(SCHEMA, ["P"], TableProperties(configuration), **more)
    return ["/".join(column.path) for column in columns]


@pytest.mark.requirements("STATS-8")
@pytest.mark.parametrize(
    ("count", "expected"),
    [
        ("0", []),
        ("2", ["a", "s/x"]),
        ("4", ["a", "s/x", "s/y/z", "l"]),
        ("-1", ["a", "s/x", "s/y/z", "l", "m", "c,d"]),
        ("32", ["a", "s/x", "s/y/z", "l", "m", "c,d"]),
    ],
)
def test_the_first_leaves_without_partition_columns_have_statistics(count: str, expected: list[str]) -> None:
    assert paths({"delta.dataSkippingNumIndexedCols": count}) == expected


@pytest.mark.requirements("STATS-8")
def test_a_list_of_columns_overrides_their_number() -> None:
    assert paths({"delta.dataSkippingStatsColumns": "`c,d`, S, p, gone", "delta.dataSkippingNumIndexedCols": "1"}) == [
        "s/x",
        "s/y/z",
        "c,d",
    ]
    clustered = {"delta.dataSkippingNumIndexedCols": "1"}
    assert paths(clustered, clustering_columns=[("s", "y", "z")]) == ["a", "s/y/z"]


@pytest.mark.requirements("STATS-5")
def test_truncated_upper_bounds_of_strings_get_a_suffix() -> None:
    last = "\U0010ffff"
    assert truncate_lower_bound("é" * 40) == "é" * 32
    assert truncate_upper_bound("a" * 32) == "a" * 32
    assert truncate_upper_bound("a" * 33) == "a" * 32 + "\x7f"
    assert truncate_upper_bound("a" * 32 + "\x7f") == "a" * 32 + last
    assert truncate_upper_bound("a" * 32 + last + "b") == "a" * 32 + last + "\x7f"
    assert truncate_upper_bound(last * 64) == last * 64
    assert truncate_upper_bound(last * 70) is None


@pytest.mark.requirements("STATS-5")
@given(st.text(st.sampled_from("a~\x7f\x80é\uffff\U0010ffff"), max_size=80))
def test_bounds_of_strings_enclose_the_string(text: str) -> None:
    """In UTF-8 byte order."""
    upper = truncate_upper_bound(text)
    assert truncate_lower_bound(text).encode() <= text.encode()
    assert upper is None or text.encode() <= upper.encode()
    assert upper is None or len(upper) <= 66


def footer(table: pa.Table, **options: Any) -> pq.FileMetaData:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return pq.read_metadata(sink)


def stats(schema: StructType, table: pa.Table, **options: Any) -> dict[str, Any]:
    columns = statistics_columns(schema, [], TableProperties({}))
    text = footer_statistics(footer(table, **options), schema, columns)
    assert "\n" not in text
    parsed: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return parsed


def single(data_type: Any, values: list[Any], arrow_type: pa.DataType, **options: Any) -> tuple[Any, Any, Any]:
    found = stats(StructType((StructField("v", data_type),)), pa.table({"v": pa.array(values, arrow_type)}), **options)
    assert found["numRecords"] == len(values)
    assert found["tightBounds"] is True
    return found["minValues"].get("v"), found["maxValues"].get("v"), found["nullCount"].get("v")


@pytest.mark.requirements("STATS-7")
@pytest.mark.parametrize("as_integer", [True, False])
@pytest.mark.parametrize(("precision", "scale"), [(5, 2), (18, 2), (38, 2), (38, 0)])
def test_decimals_are_exact_for_every_physical_type(precision: int, scale: int, as_integer: bool) -> None:
    low, high = Decimal((1, (9,) * precision, -scale)), Decimal((0, (5,), -scale))
    values = [high, None, low]
    kind = pa.decimal128(precision, scale)
    got = single(DecimalType(precision, scale), values, kind, store_decimal_as_integer=as_integer)
    assert got == (low, high, 1)
    assert str(got[0]) == f"{low:f}"


@pytest.mark.requirements("STATS-7")
def test_a_decimal_of_another_scale_than_the_column_has_no_bounds() -> None:
    assert single(DecimalType(9, 3), [Decimal("1.25")], pa.decimal128(9, 2)) == (None, None, 0)


@pytest.mark.requirements("STATS-6", "STATS-7")
def test_timestamps_are_rounded_outwards_to_milliseconds() -> None:
    early, late = datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2020, 1, 1, 0, 0, 0, 123_001)
    assert single(PrimitiveType("timestamp_ntz"), [late, None, early], pa.timestamp("us")) == (
        "1969-12-31T23:59:59.999",
        "2020-01-01T00:00:00.124",
        1,
    )
    low, high, _ = single(PrimitiveType("timestamp"), [early.replace(tzinfo=UTC)] * 2, pa.timestamp("us", "UTC"))
    assert (low, high) == ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z")
    assert single(PrimitiveType("timestamp"), [5], pa.timestamp("ms", "UTC"))[:2] == ("1970-01-01T00:00:00.005Z",) * 2
    assert single(PrimitiveType("timestamp"), [5], pa.timestamp("ns", "UTC")) == (None, None, 0)


@pytest.mark.requirements("STATS-7")
def test_timestamps_without_a_four_digit_year_have_no_bound() -> None:
    far = pa.array([0, 2**62]).cast(pa.timestamp("us"))
    assert single(PrimitiveType("timestamp_ntz"), far.cast(pa.int64()).to_pylist(), pa.timestamp("us")) == (
        "1970-01-01T00:00:00.000",
        None,
        0,
    )
    assert single(PrimitiveType("date"), [date(2020, 1, 1), None], pa.date32()) == ("2020-01-01", "2020-01-01", 1)
    assert single(PrimitiveType("date"), [0, 3_000_000], pa.date32()) == ("1970-01-01", None, 0)


@pytest.mark.requirements("STATS-7")
def test_dates_of_the_julian_calendar_have_no_bounds() -> None:
    table = pa.table({"v": pa.array([date(1500, 1, 1)])})
    schema = StructType((StructField("v", PrimitiveType("date")),))
    assert stats(schema, table)["minValues"] == {"v": "1500-01-01"}
    legacy = table.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    assert stats(schema, legacy)["minValues"] == {}


@pytest.mark.requirements("STATS-7")
def test_floats_of_writers_that_ignore_nan_have_no_bounds() -> None:
    """The footer that pyarrow writes for [1, NaN] has the maximum 1."""
    assert single(PrimitiveType("double"), [1.0, float("nan")], pa.float64()) == (None, None, 0)


@pytest.mark.requirements("STATS-7")
def test_columns_without_an_order_have_a_null_count_only() -> None:
    assert single(PrimitiveType("boolean"), [True, None], pa.bool_()) == (None, None, 1)
    assert single(PrimitiveType("binary"), [b"a", None], pa.binary()) == (None, None, 1)
    assert single(ArrayType(LONG), [[1, 2], None], pa.list_(pa.int64())) == (None, None, None)


@pytest.mark.requirements("STATS-5", "STATS-7")
def test_string_bounds_are_truncated_json_strings() -> None:
    assert single(STRING, ['quo"te\n', "é" * 40, None], pa.string()) == ('quo"te\n', "é" * 32 + "\U0010ffff", 1)


@pytest.mark.requirements("STATS-4")
def test_columns_of_nulls_have_no_bounds() -> None:
    assert single(LONG, [None, None], pa.int64()) == (None, None, 2)
    assert single(LONG, [], pa.int64()) == (None, None, None)


@pytest.mark.requirements("STATS-1")
def test_bounds_and_null_counts_are_taken_over_all_row_groups() -> None:
    assert single(LONG, [5, None, None, None, -3, 9], pa.int64(), row_group_size=2) == (-3, 9, 3)
    assert single(LONG, [5, 6], pa.int64(), write_statistics=False) == (None, None, None)
    assert single(PrimitiveType("byte"), [-5, 6], pa.int8()) == (-5, 6, 0)


@pytest.mark.requirements("STATS-1")
def test_nested_fields_have_nested_statistics() -> None:
    table = pa.table({"s": pa.array([{"x": 1, "y": {"z": "q"}}, None]), "a": [1, 2], "gone": [1, 2]})
    found = stats(SCHEMA, table)
    assert found["minValues"] == {"a": 1, "s": {"x": 1, "y": {"z": "q"}}}
    assert found["nullCount"] == {"a": 0, "s": {"x": 1, "y": {"z": 1}}}


@pytest.mark.requirements("STATS-1")
def test_columns_with_the_same_dotted_path_have_no_statistics() -> None:
    schema = StructType((StructField("a.b", LONG), StructField("a", StructType((StructField("b", LONG),)))))
    found = stats(schema, pa.table({"a.b": [1], "a": [{"b": 2}]}))
    assert found["minValues"] == found["nullCount"] == {}


@pytest.mark.requirements("STATS-1", "SKIP-2")
def test_row_counts_are_parsed_from_many_texts() -> None:
    texts = ['{"numRecords":3}', None, '{"numRecords":"3"}', '{"numRecords":4,"x":{"y":[1,"2020-01-01"]}}', "{"]
    assert num_records(pa.array(texts, pa.string())).to_pylist() == [3, None, None, 4, None]
    assert num_records(pa.chunked_array([texts[:1], texts[3:]], pa.string())).to_pylist() == [3, 4, None]
    assert num_records(pa.array([], pa.string())).to_pylist() == []


@pytest.mark.requirements("DV-22", "SKIP-6")
def test_deleted_rows_are_not_counted() -> None:
    vectors = pa.array([{"cardinality": 2}, None], pa.struct([pa.field("cardinality", pa.int64())]))
    stats_texts = pa.array(['{"numRecords":5}', '{"numRecords":1}'])
    table = pa.table({"stats": stats_texts, "deletionVector": vectors})
    assert logical_row_count(table) == 4
    assert logical_row_count(table.slice(1)) == 1
    assert logical_row_count(table.slice(0, 0)) == 0
    assert logical_row_count(table.set_column(0, "stats", [pa.array(['{"numRecords":5}', "{}"])])) is None
