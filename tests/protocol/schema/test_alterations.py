"""Changes of a schema by name."""

from collections.abc import Callable

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.schema.alterations import (
    Position,
    add_column,
    comment_column,
    drop_column,
    find_column,
    move_column,
    rename_column,
    replace_type,
    set_nullable,
)
from cm_delta_dagster.protocol.schema.type_text import parse_column_type
from cm_delta_dagster.protocol.schema.types import INTEGER, LONG, STRING, StructField, StructType, data_type_text

SCHEMA = StructType(
    (
        StructField("Id", LONG, False),
        StructField("s", parse_column_type("struct<a: int, b: string>").type, True, {"k": 1}),
        StructField("l", parse_column_type("array<struct<x: int, y: int>>").type),
        StructField("m", parse_column_type("map<struct<k: int>, array<int>>").type),
    )
)
X = StructField("new", INTEGER)


def text(schema: StructType) -> str:
    return ", ".join(f"{item.name} {data_type_text(item.type)}" for item in schema.fields)


BEFORE = "Id bigint, s struct<a:int,b:string>, l array<struct<x:int,y:int>>, m map<struct<k:int>,array<int>>"


@pytest.mark.requirements("META-6")
@pytest.mark.parametrize(
    ("change", "old", "new"),
    [
        (lambda s: add_column(s, (), X), "array<int>>", "array<int>>, new int"),
        (lambda s: add_column(s, (), X, Position()), "Id bigint", "new int, Id bigint"),
        (lambda s: add_column(s, (), X, Position(after="ID")), "Id bigint", "Id bigint, new int"),
        (lambda s: add_column(s, ("S",), X, Position(after="A")), "a:int", "a:int,new:int"),
        (lambda s: add_column(s, ("s",), X), "b:string", "b:string,new:int"),
        (lambda s: add_column(s, ("l", "Element"), X, Position()), "x:int", "new:int,x:int"),
        (lambda s: add_column(s, ("m", "key"), X), "k:int", "k:int,new:int"),
        (lambda s: rename_column(s, ("ID",), "n"), "Id", "n"),
        (lambda s: rename_column(s, ("l", "element", "x"), "z"), "x:", "z:"),
        (lambda s: drop_column(s, ("s", "A")), "a:int,", ""),
        (lambda s: drop_column(s, ("id",)), "Id bigint, ", ""),
        (lambda s: drop_column(s, ("l", "element", "y")), ",y:int", ""),
        (lambda s: move_column(s, ("l", "element", "y"), Position()), "x:int,y:int", "y:int,x:int"),
        (lambda s: move_column(s, ("id",), Position(after="S")), "Id bigint, s struct<a:int,b:string>",
         "s struct<a:int,b:string>, Id bigint"),
        (lambda s: replace_type(s, ("s", "a"), LONG), "a:int", "a:bigint"),
        (lambda s: replace_type(s, ("m", "VALUE", "element"), LONG), "array<int>", "array<bigint>"),
        (lambda s: replace_type(s, ("m", "key", "k"), LONG), "k:int", "k:bigint"),
    ],
)  # fmt: skip
def test_changes_at_every_level(change: Callable[[StructType], StructType], old: str, new: str) -> None:
    after = change(SCHEMA)
    assert text(SCHEMA) == BEFORE
    assert text(after) == BEFORE.replace(old, new)
    assert [item.metadata for item in after.fields if item.name == "s"] == [{"k": 1}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: add_column(s, (), StructField("ID", LONG)), "'Id' exists at the same level"),
        (lambda s: add_column(s, ("s",), StructField("A", LONG)), "'a' exists at the same level"),
        (lambda s: add_column(s, ("none",), X), "no column 'none': the columns there are Id, s, l, m"),
        (lambda s: add_column(s, ("s", "a"), X), "is of type int and has no fields"),
        (lambda s: add_column(s, ("l",), X), "continues with 'element'"),
        (lambda s: add_column(s, ("m",), X), "continues with 'key' or 'value'"),
        (lambda s: add_column(s, (), X, Position(after="no")), "cannot be placed after 'no'"),
        (lambda s: add_column(s, (), StructField("n", LONG, False)), "NOT NULL: the rows that exist"),
        (lambda s: add_column(s, (), StructField("n", parse_column_type("array<struct<a: int not null>>").type)),
         "NOT NULL field inside an array or a map"),
        (lambda s: rename_column(s, ("s",), "ID"), "Column 's' cannot be renamed to 'ID': 'Id' exists"),
        (lambda s: rename_column(s, ("id",), "ID"), "'Id' exists"),
        (lambda s: rename_column(s, ("s",), ""), "empty name"),
        (lambda s: rename_column(s, ("no",), "x"), "no column 'no'"),
        (lambda s: rename_column(s, ("l", "element"), "x"), "is a part of the column 'l'"),
        (lambda s: drop_column(s, ("m", "key", "k")), "the last one of 'm.key'"),
        (lambda s: drop_column(s, ("m", "value")), "cannot be dropped by itself"),
        (lambda s: drop_column(StructType((X,)), ("new",)), "the last one of the table"),
        (lambda s: move_column(s, ("s",), Position(after="s")), "after itself"),
        (lambda s: move_column(s, ("s", "a"), Position(after="Id")), "the columns there are b"),
        (lambda s: comment_column(s, ("s", "no"), ""), "the columns there are a, b"),
        (lambda s: find_column(s, ("id", "x")), "is of type bigint"),
        (lambda s: find_column(s, ()), "There is no column"),
    ],
)  # fmt: skip
def test_changes_that_cannot_be_made(change: Callable[[StructType], object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        change(SCHEMA)


def test_comments_and_nullability_keep_the_rest() -> None:
    commented = comment_column(SCHEMA, ("S",), "text")
    assert commented.fields[1].metadata == {"k": 1, "comment": "text"}
    assert comment_column(commented, ("s",), None) == SCHEMA
    assert comment_column(SCHEMA, ("s",), "").fields[1].metadata == {"k": 1, "comment": ""}
    assert set_nullable(SCHEMA, ("ID",), True).fields[0] == StructField("Id", LONG, True)


def test_a_found_column_names_the_field_that_holds_it() -> None:
    found = find_column(SCHEMA, ("M", "value", "ELEMENT"))
    assert (found.path, found.owner, found.inner) == (("m", "value", "element"), ("m",), ("value", "element"))
    assert (found.field.name, found.type) == ("m", INTEGER)
    found = find_column(SCHEMA, ("L", "element", "X"))
    assert (found.owner, found.inner, found.field.name) == (("l", "element", "x"), (), "x")
    assert find_column(SCHEMA, ("s", "B")).type == STRING
