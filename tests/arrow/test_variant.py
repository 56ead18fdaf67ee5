"""Variants: the bytes of the specification as JSON, and shredded ones put together again."""

import datetime as dt
import json
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.arrow.shredding import unshredded
from cm_delta_dagster.arrow.variant import double_text, float_text, json_texts, variant_to_json
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.schema.types import LONG, STRING, VARIANT, ArrayType, MapType, StructField, StructType
from tests.arrow.data_files import DataFiles, columns
from tests.support.variant_texts import variant_columns_to_json

EMPTY = b"\x01\x00\x00"
KEYS = b"\x01\x02\x00\x01\x03abc"
"""The names ``a`` and ``bc``."""


def _primitive(kind: int, content: bytes = b"") -> bytes:
    return bytes([kind << 2]) + content


@pytest.mark.requirements("UP-VAR-1")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (_primitive(0), "null"),
        (_primitive(1), "true"),
        (_primitive(2), "false"),
        (_primitive(3, b"\xff"), "-1"),
        (_primitive(4, struct.pack("<h", -300)), "-300"),
        (_primitive(5, struct.pack("<i", 70000)), "70000"),
        (_primitive(6, struct.pack("<q", -(2**63))), str(-(2**63))),
        (_primitive(7, struct.pack("<d", 1e10)), "1.0E10"),
        (_primitive(7, struct.pack("<d", float("nan"))), '"NaN"'),
        (_primitive(8, b"\x02" + struct.pack("<i", -1250)), "-12.5"),
        (_primitive(9, b"\x00" + struct.pack("<q", 10**17)), str(10**17)),
        (_primitive(10, b"\x25" + (10**37).to_bytes(16, "little", signed=True)), "1"),
        (_primitive(10, b"\x0a" + (-(10**38) + 1).to_bytes(16, "little", signed=True)), "-" + "9" * 28 + "." + "9" * 10),
        (_primitive(11, struct.pack("<i", -1)), '"1969-12-31"'),
        (_primitive(12, struct.pack("<q", -1)), '"1969-12-31 23:59:59.999999+00:00"'),
        (_primitive(13, struct.pack("<q", 1_500_000)), '"1970-01-01 00:00:01.5"'),
        (_primitive(14, struct.pack("<f", 1.1)), "1.1"),
        (_primitive(15, b"\x02\x00\x00\x00\x00\xff"), '"AP8="'),
        (_primitive(16, b"\x03\x00\x00\x00\xc3\xa9\x22"), '"é\\""'),
        (_primitive(17, struct.pack("<q", 3_600_000_001)), '"01:00:00.000001"'),
        (_primitive(18, struct.pack("<q", 1)), '"1970-01-01 00:00:00.000000001+00:00"'),
        (_primitive(20, bytes(range(16))), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
        (b"\x0d\x61\x62\x63", '"abc"'),
        (b"\x02\x02\x00\x01\x00\x02\x04\x0c\x01\x0c\x02", '{"a":1,"bc":2}'),
        # Values may lie in another order than names, and an object may be empty.
        (b"\x02\x02\x00\x01\x02\x00\x04\x0c\x01\x0c\x02", '{"a":2,"bc":1}'),
        (b"\x02\x00\x00", "{}"),
        (b"\x03\x02\x00\x01\x03\x00\x0c\x07", "[null,7]"),
        (b"\x13\x01\x00\x00\x00\x00\x01\x00", "[null]"),
    ],
)  # fmt: skip
def test_bytes_of_the_specification_become_json(value: bytes, text: str) -> None:
    assert variant_to_json(KEYS, value) == text


@pytest.mark.parametrize(
    ("metadata", "value"),
    [
        (b"", b"\x00"),
        (b"\x02\x00\x00", b"\x00"),
        (b"\x01\x05\x00", b"\x00"),
        (b"\x01\x01\x00\x01\xff", b"\x00"),
        (KEYS, b""),
        (KEYS, _primitive(21)),
        (KEYS, _primitive(6, b"\x00")),
        (KEYS, _primitive(16, b"\xff\xff\xff\xff")),
        (KEYS, b"\x02\x01\x07\x00\x01\x00"),
        (KEYS, b"\x03\xff\x00"),
        (KEYS, b"\x03\x01\xf0\xf1"),
        (KEYS, _primitive(11, struct.pack("<i", 2**31 - 1))),
        (KEYS, b"\x03\x01\x00\x00" * 3),
    ],
)
def test_damaged_variants_are_errors(metadata: bytes, value: bytes) -> None:
    with pytest.raises(CorruptLogError):
        variant_to_json(metadata, value)


def test_a_variant_that_contains_itself_ends() -> None:
    """Offsets that point back must not make a reader run for ever."""
    with pytest.raises(CorruptLogError):
        variant_to_json(EMPTY, b"\x03\x01\x00\x00")


@given(metadata=st.binary(max_size=12), value=st.binary(max_size=24))
def test_any_bytes_give_json_or_an_error_of_ours(metadata: bytes, value: bytes) -> None:
    try:
        text = variant_to_json(metadata, value)
    except CorruptLogError:
        return
    json.loads(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (-0.0, "-0.0"), (1e7, "1.0E7"), (123.0, "123.0"), (0.001, "0.001"), (9.9e-4, "9.9E-4"), (1.5e300, "1.5E300")],
)  # fmt: skip
def test_numbers_have_the_text_of_java(value: float, text: str) -> None:
    assert double_text(value) == text
    assert float_text(0.1) == "0.1"


# --- in columns -------------------------------------------------------------------------------------------------------

_VARIANT = pa.struct({"metadata": pa.binary(), "value": pa.binary()})
_ONE = {"metadata": EMPTY, "value": b"\x0c\x01"}


@pytest.mark.requirements("UP-VAR-2")
def test_variants_at_every_level_become_json(data_files: DataFiles) -> None:
    """As rows they are structs of two parts; a struct leaves out what is null, a list does not."""
    null = {"metadata": EMPTY, "value": b"\x00"}
    inner = pa.struct({"v": _VARIANT, "n": pa.int64()})
    table = pa.table(
        {
            "v": pa.array([_ONE, None], _VARIANT),
            "s": pa.array([{"v": null, "n": 2}, {"v": None, "n": None}], inner),
            "l": pa.array([[_ONE, None], []], pa.list_(_VARIANT)),
            "m": pa.array([[("k", _ONE), ("l", None)], None], pa.map_(pa.string(), _VARIANT)),
            "id": [1, 2],
        }
    )
    data_files.add(table)
    fields = StructType((StructField("v", VARIANT), StructField("n", LONG)))
    schema = columns(v=VARIANT, s=fields, l=ArrayType(VARIANT), m=MapType(STRING, VARIANT), id=LONG)
    found = data_files.read(schema)

    assert found["v"].to_pylist() == [_ONE, None]
    assert variant_columns_to_json(found, schema).to_pylist() == [
        {"v": "1", "s": '{"v":null,"n":2}', "l": "[1,null]", "m": '{"k":1,"l":null}', "id": 1},
        {"v": None, "s": "{}", "l": "[]", "m": None, "id": 2},
    ]


def test_parts_may_stand_in_any_order_and_a_struct_without_them_is_refused(data_files: DataFiles) -> None:
    swapped = pa.struct({"value": pa.binary(), "metadata": pa.binary()})
    data_files.add(pa.table({"v": pa.array([_ONE], swapped)}))
    assert data_files.rows(columns(v=VARIANT)) == [(_ONE,)]
    data_files.add(pa.table({"v": [{"a": 1}]}))
    with pytest.raises(CorruptLogError, match="variant"):
        data_files.read(columns(v=VARIANT))


# --- shredded ---------------------------------------------------------------------------------------------------------


def _shredded(typed: pa.DataType, rows: list[Any], metadata: bytes = EMPTY) -> list[str | None]:
    """JSON of variants given as (value, typed_value) or None."""
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", typed)])
    cells = [None if row is None else {"metadata": metadata, "value": row[0], "typed_value": row[1]} for row in rows]
    array = unshredded(pa.array(cells, kind), "v")
    array.validate(full=True)
    return json_texts(array, VARIANT)


_MOMENT = dt.datetime(2020, 1, 2, 3, 4, 5, 600000)
_ITEM = pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])


@pytest.mark.requirements("UP-VSH-1")
@pytest.mark.parametrize(
    ("typed", "value", "text"),
    [
        (pa.bool_(), True, "true"),
        (pa.int8(), -1, "-1"),
        (pa.int16(), 300, "300"),
        (pa.int32(), -70000, "-70000"),
        (pa.int64(), 2**62, str(2**62)),
        (pa.float32(), 1.5, "1.5"),
        (pa.float64(), 0.1, "0.1"),
        (pa.decimal128(5, 2), Decimal("-1.20"), "-1.2"),
        (pa.decimal128(18, 0), Decimal(10**17), str(10**17)),
        (pa.decimal128(38, 2), Decimal("99999999999999999999999999999999.25"), "99999999999999999999999999999999.25"),
        (pa.date32(), dt.date(1, 1, 1), '"0001-01-01"'),
        (pa.timestamp("us", "UTC"), _MOMENT.replace(tzinfo=dt.UTC), '"2020-01-02 03:04:05.6+00:00"'),
        (pa.timestamp("us"), _MOMENT, '"2020-01-02 03:04:05.6"'),
        (pa.timestamp("ns"), 1, '"1970-01-01 00:00:00.000000001"'),
        (pa.time64("us"), dt.time(1, 2, 3), '"01:02:03"'),
        (pa.string(), "x" * 63, '"' + "x" * 63 + '"'),
        (pa.string(), "é" * 63, '"' + "é" * 63 + '"'),
        (pa.binary(), b"\x00\xff", '"AP8="'),
        (pa.binary(16), bytes(16), '"00000000-0000-0000-0000-000000000000"'),
        (pa.list_(_ITEM), [{"value": None, "typed_value": 1}, {"value": b"\x00", "typed_value": None}], "[1,null]"),
    ],
)  # fmt: skip
def test_typed_values_are_put_back(typed: pa.DataType, value: Any, text: str) -> None:
    """Next to values that did not fit the type, and to no variant at all."""
    assert _shredded(typed, [(None, value), (b"\x0c\x05", None), None]) == [text, "5", None]


def _field(value: bytes | None = None, typed: Any = None) -> dict[str, Any]:
    return {"value": value, "typed_value": typed}


@pytest.mark.requirements("UP-VSH-1")
def test_objects_are_merged_from_typed_and_other_fields() -> None:
    """Some fields typed, some in ``value``, some absent, in the order of their names; deep as well."""
    inner = pa.struct([("value", pa.binary()), ("typed_value", pa.int64())])
    deep = pa.struct([("value", pa.binary()), ("typed_value", pa.struct({"x": inner}))])
    typed = pa.struct({"z": inner, "d": deep})
    other = b"\x02\x01\x00\x00\x02\x0c\x01"
    rows = [
        (other, {"z": _field(typed=5), "d": _field()}),
        (None, {"z": _field(b"\x00"), "d": _field(typed={"x": _field(typed=7)})}),
        (None, {"z": _field(), "d": _field(typed={"x": _field()})}),
        (b"\x0c\x09", None),
    ]
    assert _shredded(typed, rows, KEYS) == ['{"a":1,"z":5}', '{"d":{"x":7},"z":null}', '{"d":{}}', "9"]


@pytest.mark.parametrize(
    ("typed", "row"),
    [
        (pa.int32(), (None, None)),
        (pa.struct({"a": pa.struct({"value": pa.binary()})}), (b"\x0c\x01", {"a": {"value": None}})),
        (pa.list_(pa.struct({"value": pa.binary()})), (None, [{"value": None}])),
        (pa.uint32(), (None, 1)),
    ],
)
def test_shredded_variants_that_make_no_sense_are_errors(typed: pa.DataType, row: tuple[Any, Any]) -> None:
    with pytest.raises(CorruptLogError):
        _shredded(typed, [row])


@pytest.mark.requirements("UP-VSH-1")
@settings(deadline=None)
@given(
    rows=st.lists(
        st.none() | st.dictionaries(st.sampled_from("abcd"), st.integers(-(2**40), 2**40) | st.none(), max_size=4),
        max_size=8,
    ),
    many=st.integers(0, 300),
)
def test_any_object_survives_shredding(rows: list[dict[str, int | None] | None], many: int) -> None:
    """Also objects and lists of more than 255 entries."""
    typed = pa.struct({**dict.fromkeys("abcd", _ITEM), "list": pa.struct({"typed_value": pa.list_(_ITEM)})})
    cells: list[Any] = []
    for row in rows:
        fields = {name: _field() for name in "abcd"}
        for name, number in (row or {}).items():
            fields[name] = _field(b"\x00") if number is None else _field(typed=number)
        listed = {"typed_value": [_field(typed=number) for number in range(many)]}
        cells.append(None if row is None else (None, {**fields, "list": listed}))
    found = _shredded(typed, cells)
    expected = [None if row is None else {**row, "list": list(range(many))} for row in rows]
    assert [None if text is None else json.loads(text) for text in found] == expected
