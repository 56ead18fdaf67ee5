"""Types of columns as SQL text."""

import pytest
from hypothesis import given

from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA, char_width
from cm_delta_dagster.protocol.schema.type_text import parse_column_type
from cm_delta_dagster.protocol.schema.types import (
    BYTE,
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
    data_type_text,
)
from tests.protocol.schema.strategies import schemas


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("bigint", LONG),
        (" LONG ", LONG),
        ("Integer", INTEGER),
        ("tinyint", BYTE),
        ("short", SHORT),
        ("timestamp_ntz", TIMESTAMP_NTZ),
        ("timestamp_ltz", TIMESTAMP),
        ("decimal", DecimalType(10, 0)),
        ("numeric(5)", DecimalType(5, 0)),
        ("dec( 10 , 2 )", DecimalType(10, 2)),
        ("array<array<int>>", ArrayType(ArrayType(INTEGER))),
        ("map<string, array<bigint>>", MapType(STRING, ArrayType(LONG))),
        (
            "struct<a: int not null comment 'it\\'s', `b c` decimal(3,1)>",
            StructType((StructField("a", INTEGER, False, {"comment": "it's"}), StructField("b c", DecimalType(3, 1)))),
        ),
    ],
)
def test_types_are_read_as_by_spark(text: str, wanted: DataType) -> None:
    found = parse_column_type(text)
    assert (found.type, dict(found.metadata)) == (wanted, {})


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("VARCHAR(5)", "varchar(5)"),
        ("character(3)", "char(3)"),
        ("struct<a: INT, b: array<char(2)>>", "struct<a:int,b:array<char(2)>>"),
    ],
)
def test_declared_lengths_go_to_the_metadata_of_the_column(text: str, declared: str) -> None:
    found = parse_column_type(text)
    assert found.metadata == {CHAR_METADATA: declared}
    assert char_width(StructField("c", found.type, True, found.metadata)) == (3 if declared == "char(3)" else 0)


@given(schemas)
def test_the_text_of_a_type_is_read_as_that_type(schema: StructType) -> None:
    """If no name needs backquotes; a struct of a column has at least one field."""
    for item in schema.fields:
        written = data_type_text(item.type)
        if not any(mark in written for mark in (" ", ".", "$", "struct<>")):
            assert data_type_text(parse_column_type(written).type) == written


@pytest.mark.parametrize(
    "text",
    ["", "blob", "int int", "array<int", "array int", "map<int>", "decimal(39,1)", "decimal(x)", "varchar", "char(0)",
     "struct<>", "struct<a>", "struct<a int, A int>", "struct<a int comment x>", "'int'", "int;", "array<" * 4000],
)  # fmt: skip
def test_what_is_not_a_type_is_refused(text: str) -> None:
    with pytest.raises(CmDeltaError):
        parse_column_type(text)
    with pytest.raises(InvalidArgumentError, match="is not the type of a column"):
        parse_column_type("blob")
