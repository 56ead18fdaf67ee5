"""``stats_parsed``: conversion from and to JSON texts."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from cm_delta_dagster.protocol.log.stats_parsed import stats_struct, stats_texts
from cm_delta_dagster.protocol.schema.types import ArrayType, DecimalType, PrimitiveType, StructField, StructType

_SCHEMA = StructType(
    (
        StructField("id", PrimitiveType("long")),
        StructField("small", PrimitiveType("byte")),
        StructField("price", DecimalType(38, 10)),
        StructField("name", PrimitiveType("string")),
        StructField("day", PrimitiveType("date")),
        StructField("at", PrimitiveType("timestamp")),
        StructField("local", PrimitiveType("timestamp_ntz")),
        StructField("ratio", PrimitiveType("double")),
        StructField("flag", PrimitiveType("boolean")),
        StructField("list", ArrayType(PrimitiveType("long"))),
        StructField("nested", StructType((StructField("inner", PrimitiveType("integer")),))),
        StructField("unindexed", PrimitiveType("string")),
        StructField("p", PrimitiveType("string")),
    )
)
_BOUNDS = (
    '{"id":9007199254740993,"small":-3,"price":1234567890123456789012345678.0000000001,"name":"a\\"\\\\\\u0001é",'
    '"day":"2020-01-02","at":"2020-01-02T03:04:05.678Z","local":"2020-01-02T03:04:05.678","ratio":0.1,"nested":{"inner":4}}'
)
_STATS = (
    f'{{"numRecords":5,"tightBounds":false,"minValues":{_BOUNDS},"maxValues":{_BOUNDS},'
    '"nullCount":{"id":0,"flag":2,"list":1,"nested":{"inner":3}}}'
)


def _parse(texts: list[str | None]) -> pa.Array:
    parsed = stats_struct(pa.array(texts, pa.string()), _SCHEMA, without=frozenset({"p"}))
    assert parsed is not None
    return parsed


@pytest.mark.requirements("CKPT-10", "CKPT-11", "X4")
def test_bounds_have_the_types_of_their_columns() -> None:
    value = _parse([_STATS, None, "broken"]).to_pylist()
    bounds = {
        "id": 9007199254740993,
        "small": -3,
        "price": Decimal("1234567890123456789012345678.0000000001"),
        "name": 'a"\\\x01é',
        "day": date(2020, 1, 2),
        "at": datetime(2020, 1, 2, 3, 4, 5, 678000, UTC),
        "local": datetime(2020, 1, 2, 3, 4, 5, 678000),
        "ratio": 0.1,
        "nested": {"inner": 4},
    }
    counts = {"id": 0, "flag": 2, "list": 1, "nested": {"inner": 3}}
    expected = {"numRecords": 5, "tightBounds": False, "minValues": bounds, "maxValues": bounds, "nullCount": counts}
    assert value == [expected, None, None]


@pytest.mark.requirements("CKPT-11")
def test_types_in_the_struct_are_native() -> None:
    kind = _parse([_STATS]).type.field("minValues").type
    assert kind.field("small").type == pa.int8()
    assert kind.field("price").type == pa.decimal128(38, 10)
    assert kind.field("at").type == pa.timestamp("us", "UTC")
    assert kind.field("local").type == pa.timestamp("us")
    assert kind.get_field_index("unindexed") < 0 and kind.get_field_index("flag") < 0


@pytest.mark.requirements("CKPT-12")
def test_texts_from_the_struct_are_equivalent_to_the_original_texts() -> None:
    texts = stats_texts(_parse([_STATS, None])).to_pylist()
    assert texts[1] is None
    again = json.loads(texts[0], parse_float=Decimal)
    before = json.loads(_STATS, parse_float=Decimal)
    for section in ("minValues", "maxValues"):
        for column, suffix in (("at", "Z"), ("local", "")):
            assert again[section].pop(column) == f"2020-01-02T03:04:05.678000{suffix}"
            before[section].pop(column)
    assert again == before
    assert _parse(texts).equals(_parse([_STATS, None]))


@pytest.mark.requirements("CKPT-10")
def test_a_table_without_statistics_has_no_struct() -> None:
    assert stats_struct(pa.array([None, "{}"], pa.string()), _SCHEMA, without=frozenset()) is None
    assert stats_struct(pa.array([], pa.string()), _SCHEMA, without=frozenset()) is None


@pytest.mark.requirements("CKPT-11", "SKIP-2")
def test_only_bounds_that_do_not_fit_their_type_are_dropped() -> None:
    values = _parse(['{"minValues":{"small":300}}', '{"minValues":{"small":3}}']).to_pylist()
    assert [(value or {}).get("minValues") for value in values] == [None, {"small": 3}]


@pytest.mark.requirements("STATS-2")
def test_tight_bounds_inside_a_string_is_ignored() -> None:
    value = _parse(['{"numRecords":1,"minValues":{"name":"\\"tightBounds\\":false"}}'])
    assert value.type.get_field_index("tightBounds") < 0


@pytest.mark.requirements("CKPT-11", "X4")
def test_the_misspelled_null_counts_is_ignored() -> None:
    kind = pa.struct({"numRecords": pa.int64(), "nullCounts": pa.struct({"id": pa.int64()})})
    assert stats_texts(pa.array([{"numRecords": 1, "nullCounts": {"id": 1}}], kind)).to_pylist() == ['{"numRecords":1}']


@pytest.mark.requirements("STATS-7")
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_non_finite_bounds_are_left_out(number: float) -> None:
    kind = pa.struct({"minValues": pa.struct({"x": pa.float64()})})
    assert json.loads(stats_texts(pa.array([{"minValues": {"x": number}}], kind))[0].as_py()) == {"minValues": {}}


@pytest.mark.requirements("STATS-7", "CKPT-12")
def test_small_decimals_are_not_written_in_scientific_notation() -> None:
    kind = pa.struct({"x": pa.decimal128(20, 10)})
    assert stats_texts(pa.array([{"x": Decimal("0.0000000001")}], kind)).to_pylist() == ['{"x":0.0000000001}']
