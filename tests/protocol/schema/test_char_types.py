"""Declared types of strings in the metadata of columns."""

import pytest

from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA, CharWidths, char_width, char_widths
from cm_delta_dagster.protocol.schema.types import LONG, STRING, ArrayType, DataType, MapType, StructField, StructType


def declared(data_type: DataType, text: str) -> StructField:
    return StructField("c", data_type, True, {CHAR_METADATA: text})


STRUCT = StructType((StructField("a", STRING), StructField("b c", ArrayType(STRING, True)), StructField("n", LONG)))
THREE = CharWidths(3)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (declared(STRING, "char(3)"), THREE),
        (declared(STRING, "CHAR(3)"), THREE),
        (declared(STRING, "varchar(3)"), None),
        (StructField("c", STRING), None),
        (declared(LONG, "char(3)"), None),
        (declared(ArrayType(STRING, True), "array<char(3)>"), CharWidths(inside={"element": THREE})),
        (declared(MapType(STRING, STRING, True), "map<char(3),varchar(2)>"), CharWidths(inside={"key": THREE})),
        (declared(MapType(LONG, STRING, True), "map<bigint,char(3)>"), CharWidths(inside={"value": THREE})),
        (
            declared(STRUCT, "struct<a:char(3),b c:array<char(3)>,n:decimal(10,2)>"),
            CharWidths(inside={"a": THREE, "b c": CharWidths(inside={"element": THREE})}),
        ),
        (
            declared(STRUCT, "struct<`b c`:array<char(3)>,x:map<int,int>>"),
            CharWidths(inside={"b c": CharWidths(inside={"element": THREE})}),
        ),
        (declared(STRUCT, "struct<old:char(3),b c:array<string>,n:bigint>"), CharWidths(inside={"a": THREE})),
        (declared(STRUCT, "struct<n:char(3)>"), None),
        (declared(STRUCT, "struct<a:char(3),b c:array<char(3)"), None),
        (declared(STRUCT, "struct<char(3)>"), None),
        (declared(ArrayType(STRING, True), "array<char(3),char(4)>"), None),
    ],
)  # fmt: skip
def test_widths_are_found_at_any_depth(item: StructField, expected: CharWidths | None) -> None:
    """A field is found by its name, or by its position after a rename; text that is not understood changes nothing."""
    assert char_widths(item) == expected
    assert char_width(item) == (expected.width if expected else 0)
