"""The schema JSON of the log, and column names."""

import json

import pytest
from hypothesis import given, settings

from cm_delta_dagster.errors import CorruptLogError, SchemaMismatchError
from cm_delta_dagster.protocol.schema.types import (
    LONG,
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    check_column_names,
    check_unique_names,
    data_type_text,
    parse_schema,
    schema_text,
    schema_to_json,
    walk_fields,
)
from tests.protocol.schema.strategies import PRIMITIVES, schemas

PUBLISHED = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": "integer", "nullable": False, "metadata": {"comment": "x"}},
        {
            "name": "b",
            "type": {
                "type": "struct",
                "fields": [{"name": "d", "type": "integer", "nullable": False, "metadata": {}}],
            },
            "nullable": True,
            "metadata": {},
        },
        {
            "name": "c",
            "type": {"type": "array", "elementType": "integer", "containsNull": False},
            "nullable": True,
            "metadata": {},
        },
        {
            "name": "e",
            "type": {
                "type": "array",
                "elementType": {
                    "type": "struct",
                    "fields": [{"name": "d", "type": "integer", "nullable": False, "metadata": {}}],
                },
                "containsNull": True,
            },
            "nullable": True,
            "metadata": {},
        },
        {
            "name": "f",
            "type": {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True},
            "nullable": True,
            "metadata": {},
        },
    ],
}


def column(type_value: object, name: str = "x") -> str:
    field = {"name": name, "type": type_value, "nullable": True, "metadata": {}}
    return json.dumps({"type": "struct", "fields": [field]})


def only_type(type_value: object) -> DataType:
    return parse_schema(column(type_value)).fields[0].type


@pytest.mark.requirements("SCHEMA-10", "SCHEMA-7", "META-3")
@settings(deadline=None)
@given(schemas)
def test_a_written_schema_is_one_line_and_parses_to_itself(schema: StructType) -> None:
    text = schema_to_json(schema)

    assert parse_schema(text) == schema
    assert "\n" not in text


@pytest.mark.requirements("SCHEMA-1", "SCHEMA-5", "SCHEMA-6", "SCHEMA-10")
def test_the_published_example_is_reproduced_in_full() -> None:
    schema = parse_schema(json.dumps(PUBLISHED))

    assert json.loads(schema_to_json(schema)) == PUBLISHED
    assert schema.names == ("a", "b", "c", "e", "f")
    assert schema.fields[2].type == ArrayType(PrimitiveType("integer"), False)


@pytest.mark.requirements("SCHEMA-2", "SCHEMA-11")
@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_primitive_keeps_its_name(name: str) -> None:
    assert only_type(name) == PrimitiveType(name)


@pytest.mark.requirements("SCHEMA-3")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("decimal(10,2)", DecimalType(10, 2)),
        ("decimal( 38 , 38 )", DecimalType(38, 38)),
        ("decimal", DecimalType(10, 0)),
        ("decimal(1,0)", DecimalType(1, 0)),
    ],
)
def test_decimals_are_read_in_every_allowed_spelling(text: str, expected: DecimalType) -> None:
    assert only_type(text) == expected


@pytest.mark.requirements("SCHEMA-4", "UP-INT-1", "X19")
@pytest.mark.parametrize(
    "text", ["int", "bigint", "tinyint", "decimal(39,0)", "decimal(0,0)", "decimal(5,6)", "decimal(5,-1)", "LONG",
             "geometry(OGC:CRS84)", "interval", "interval month to day", "decimal(5)", ""],
)  # fmt: skip
def test_an_unknown_type_is_refused_by_column_and_type(text: str) -> None:
    with pytest.raises(CorruptLogError, match=r"s\.element") as caught:
        parse_schema(column({"type": "array", "elementType": text, "containsNull": True}, "s"))

    assert text.replace(" ", "") in str(caught.value).replace(" ", "")


@pytest.mark.requirements("SCHEMA-1")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '"long"',
        "{}",
        '{"type":"struct"}',
        '{"type":"struct","fields":[1]}',
        '{"type":"struct","fields":[{"name":"a","type":"long"}]}',
        '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{}}]}',
        column({"type": "array", "containsNull": True}),
        column({"type": "udt", "class": "x"}),
        column(7),
        "[" * 100_000,
    ],
)
def test_broken_schema_text_is_reported_as_damage(text: str) -> None:
    with pytest.raises(CorruptLogError):
        parse_schema(text)


def test_a_map_without_the_null_flag_may_hold_null() -> None:
    """Ruling X20, SCHEMA-6."""
    assert only_type({"type": "map", "keyType": "string", "valueType": "long"}) == MapType(STRING, LONG, True)


@pytest.mark.requirements("SCHEMA-8")
def test_a_field_is_found_ignoring_case() -> None:
    schema = StructType((StructField("Name", STRING),))

    assert schema.field("nAME") == StructField("Name", STRING)
    assert schema.field("other") is None


def test_schemas_with_metadata_can_be_hashed() -> None:
    """Schemas are keys of caches."""
    assert len({StructType((StructField("a", LONG, True, {"k": value}),)) for value in (1, 1, 2)}) == 2


@pytest.mark.requirements("SCHEMA-8")
@pytest.mark.parametrize("level", ["top", "struct", "array", "map"])
def test_names_that_differ_only_in_case_are_refused_at_every_level(level: str) -> None:
    struct = StructType((StructField("id", LONG), StructField("ID", LONG)))
    wrapped: dict[str, DataType] = {"struct": struct, "array": ArrayType(struct), "map": MapType(STRING, struct)}
    schema = struct if level == "top" else StructType((StructField("x", wrapped[level]),))

    with pytest.raises(SchemaMismatchError, match="'id' and 'ID'"):
        check_column_names(schema)


@pytest.mark.requirements("SCHEMA-8")
def test_a_name_may_occur_at_several_levels() -> None:
    check_column_names(StructType((StructField("a", StructType((StructField("a", LONG),))), StructField("b.c", LONG))))


@pytest.mark.requirements("SCHEMA-8")
@pytest.mark.parametrize("name", ["", "a b", "a,b", "a;b", "{", "}", "(", ")", "a\nb", "a\tb", "a=b"])
def test_names_that_need_column_mapping_are_refused(name: str) -> None:
    schema = StructType((StructField("s", StructType((StructField(name, LONG),))),))

    check_unique_names(schema)
    with pytest.raises(SchemaMismatchError, match="cannot store"):
        check_column_names(schema)


@pytest.mark.requirements("SCHEVO-1")
def test_types_are_shown_as_spark_shows_them() -> None:
    struct = StructType((StructField("a", PrimitiveType("integer")), StructField("b", ArrayType(LONG))))

    assert data_type_text(MapType(STRING, struct)) == "map<string,struct<a:int,b:array<bigint>>>"
    assert data_type_text(DecimalType(10, 2)) == "decimal(10,2)"
    shown = schema_text(StructType((StructField("s", struct, False), StructField("t", STRING))))
    assert shown == "  s: struct not null\n    a: int\n    b: array<bigint>\n  t: string"


@pytest.mark.requirements("SCHEMA-9")
def test_paths_contain_the_elements_of_arrays_and_maps() -> None:
    inner = StructType((StructField("i", LONG),))
    schema = StructType((StructField("a", ArrayType(inner)), StructField("m", MapType(inner, inner))))

    assert [".".join(path) for path, _ in walk_fields(schema)] == ["a", "a.element.i", "m", "m.key.i", "m.value.i"]
