"""Columns as a user defines them, with defaults and generation expressions, and partition columns."""

from typing import Any

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.column_specs import (
    Column,
    check_column_specs,
    check_partition_columns,
    schema_of_columns,
)
from cm_delta_dagster.protocol.features.default_columns import default_of, has_defaults, with_default
from cm_delta_dagster.protocol.features.generated_columns import check_no_default, generated_columns, sources_of
from cm_delta_dagster.protocol.features.identity_columns import Identity
from cm_delta_dagster.protocol.schema.evolution import CURRENT_DEFAULT, GENERATION_EXPRESSION
from cm_delta_dagster.protocol.schema.types import LONG, STRING, VARIANT, ArrayType, StructField, StructType

ID, AT = Column("id", "bigint"), Column("at", "timestamp")


def nested(**metadata: Any) -> StructType:
    inner = StructType((StructField("id", LONG, metadata=metadata),))
    return StructType((StructField("id", LONG), StructField("s", inner)))


def test_a_column_becomes_a_field_with_its_metadata() -> None:
    column = Column("c", "varchar(5)", nullable=False, comment="", default="'x'")
    field = column.as_field()
    assert (field.name, field.type, field.nullable) == ("c", STRING, False)
    assert field.metadata["comment"] == "" and field.metadata[CURRENT_DEFAULT] == "'x'"
    assert "varchar(5)" in field.metadata.values()
    assert Column("c", LONG).as_field() == StructField("c", LONG)
    assert Column("c", LONG, generated="id").as_field().metadata == {GENERATION_EXPRESSION: "id"}


def test_only_columns_define_a_schema() -> None:
    assert list(schema_of_columns([ID, AT]).names) == ["id", "at"]
    with pytest.raises(InvalidArgumentError, match="'b' is not a Column"):
        schema_of_columns([ID, "b"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (nested(CURRENT_DEFAULT="1"), "The nested field 's.id' has a default value"),
        (schema_of_columns([ID, Column("c", LONG, default="id")]), "uses 'id'; a default cannot depend on columns"),
        (schema_of_columns([Column("c", LONG, default="rand()")]), "so it is not a constant"),
        (nested(**{GENERATION_EXPRESSION: "1"}), "The nested field 's.id' has a generation expression"),
        (schema_of_columns([ID, Column("c", VARIANT, generated="id")]), "has the type variant"),
        (schema_of_columns([ID, Column("c", ArrayType(VARIANT), generated="id")]), "has the type variant"),
        (
            schema_of_columns([ID, Column("c", LONG, generated="id", default="1")]),
            "is generated and also has a default",
        ),
        (schema_of_columns([ID, Column("c", LONG, generated="id", identity=Identity())]), "or is an identity column"),
        (schema_of_columns([ID, Column("c", LONG, generated="rand()")]), "rand"),
        (
            schema_of_columns([ID, Column("c", LONG, generated="size(transform(array(id), x -> x))")]),
            "has a lambda function",
        ),
        (
            schema_of_columns([ID, Column("c", LONG, generated="id + 1"), Column("d", LONG, generated="c + 1")]),
            "uses 'c', which is generated itself. Nothing was written. Repeat its expression instead: id \\+ 1",
        ),
    ],
)
def test_a_definition_that_a_write_could_not_evaluate_is_refused(schema: StructType, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        check_column_specs(schema, ())


def test_valid_definitions_are_accepted() -> None:
    schema = schema_of_columns([
        ID,
        AT,
        Column("d", "date", generated="CAST(at AS DATE)"),
        Column("e", LONG, default="1 + 1"),
        Column("f", "timestamp", default="current_timestamp()"),
        Column("g", VARIANT),
        Column("n", LONG, identity=Identity()),
    ])  # fmt: skip
    check_column_specs(schema, ())
    assert generated_columns(schema) == {"d": "CAST(at AS DATE)"} and has_defaults(schema)
    assert sources_of(schema, "d") == ("at",) and sources_of(schema, "id") == () and sources_of(schema, "none") == ()
    check_no_default(schema, "e")
    with pytest.raises(InvalidArgumentError, match="its value is always CAST"):
        check_no_default(schema, "d")


def test_a_default_is_set_replaced_and_removed() -> None:
    schema = StructType(
        (
            StructField("a", LONG, metadata={"EXISTS_DEFAULT": "5", "k": 1}),
            StructField("s", nested()),
            StructField("b", LONG),
        )
    )
    assert not has_defaults(schema)
    changed = with_default(schema, "A", "7")
    assert changed.fields[0].metadata == {"k": 1, CURRENT_DEFAULT: "7"} and changed.fields[1:] == schema.fields[1:]
    assert default_of(changed.fields[0]) == "7" and default_of(changed.fields[2]) is None
    assert with_default(changed, "a", None).fields[0].metadata == {"k": 1}
    with pytest.raises(InvalidArgumentError, match="uses 'b'"):
        with_default(schema, "a", "b")
    for column in ("c", ("s", "id")):
        with pytest.raises(InvalidArgumentError, match="that can have a default; its columns are a, s, b"):
            with_default(schema, column, "1")


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (("c",), "'c' is not in the schema, whose columns are a, s, .hidden"),
        (("s",), "'s' is of type struct<"),
        ((".hidden",), "directories that readers treat as hidden"),
        (("a", "A"), "named twice"),
    ],
)
def test_partition_columns_that_no_table_can_have_are_refused(columns: tuple[str, ...], why: str) -> None:
    schema = StructType((StructField("a", LONG), StructField("s", nested()), StructField(".hidden", LONG)))
    with pytest.raises(InvalidArgumentError, match=why):
        check_partition_columns(schema, columns)


def test_partition_columns_are_spelled_as_in_the_schema_and_leave_a_column() -> None:
    schema = StructType((StructField("a", LONG), StructField("B", LONG)))
    assert [check_partition_columns(schema, columns) for columns in ((), ("b",), ("A",))] == [(), ("B",), ("a",)]
    with pytest.raises(InvalidArgumentError, match="Every column is a partition column"):
        check_partition_columns(schema, ("b", "a"))
    assert check_partition_columns(StructType(()), ()) == ()
