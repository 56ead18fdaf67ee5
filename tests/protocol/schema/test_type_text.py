"""Types as SQL text."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.schema.type_text import declared_text, parse_type
from cm_delta_dagster.protocol.schema.types import StructType, data_type_text


@pytest.mark.parametrize(
    ("text", "parsed", "declared"),
    [
        ("BIGINT", "bigint", None),
        ("decimal( 10 , 2 )", "decimal(10,2)", None),
        ("decimal(5)", "decimal(5,0)", None),
        ("dec", "decimal(10,0)", None),
        ("timestamp_ntz", "timestamp_ntz", None),
        ("map<string, array<struct<x: double>>>", "map<string,array<struct<x:double>>>", None),
        ("varchar(3)", "string", "varchar(3)"),
        ("STRUCT<N: varchar(2), `m`: array<char(2)>>", "struct<N:string,m:array<string>>",
         "struct<N:varchar(2),m:array<char(2)>>"),
    ],
)  # fmt: skip
def test_types_are_parsed(text: str, parsed: str, declared: str | None) -> None:
    """SCHEMA-1."""
    assert (data_type_text(parse_type(text)), declared_text(text)) == (parsed, declared)


def test_fields_of_a_struct_have_nullability_and_comments() -> None:
    """SCHEMA-1."""
    found = parse_type("struct<`a b`: int not null comment 'it''s', `not` string>".replace("''", "\\'"))
    assert isinstance(found, StructType)
    assert [(item.name, item.nullable) for item in found.fields] == [("a b", False), ("not", True)]


@pytest.mark.parametrize(
    "text", ["", "foo", "array<int", "decimal(a)", "int(3)", "varchar", "char(0)", "struct<a>", "int int"]
)
def test_other_texts_are_refused(text: str) -> None:
    """SCHEMA-1."""
    with pytest.raises(InvalidArgumentError, match="not a type"):
        parse_type(text)
