"""Former names of renamed columns."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.protocol.features.column_ids import with_ids_of
from cm_delta_dagster.protocol.schema.alterations import add_column, drop_column, rename_column
from cm_delta_dagster.protocol.schema.evolution import SchemaMode, evolved_by_merge, reconcile_schemas
from cm_delta_dagster.protocol.schema.former_names import FORMER_NAMES, PHYSICAL_NAME, former_names
from cm_delta_dagster.protocol.schema.types import LONG, ArrayType, StructField, StructType

Change = Callable[[StructType], StructType]


def table(*names: str) -> StructType:
    return StructType(tuple(StructField(name, LONG) for name in names))


def rename(old: str, new: str) -> Change:
    return lambda schema: rename_column(schema, old.split("."), new)


def add(name: str) -> Change:
    return lambda schema: add_column(schema, (), StructField(name, LONG), None)


def drop(name: str) -> Change:
    return lambda schema: drop_column(schema, (name,))


def replaced(*names: str) -> Change:
    return lambda schema: with_ids_of(table(*names), schema)


CASES: dict[str, tuple[list[Change], dict[str, str | None]]] = {
    "renamed": ([rename("a", "b")], {"a": "b", "A": "b"}),
    "renamed twice": ([rename("a", "b"), rename("b", "c")], {"a": "c", "b": "c"}),
    "renamed back": ([rename("a", "b"), rename("b", "a")], {"b": "a"}),
    "swapped": ([rename("a", "t"), rename("x", "a"), rename("t", "x")], {"t": "x"}),
    "dropped after the rename": ([rename("a", "b"), drop("b")], {"a": None, "b": None}),
    "added again": ([rename("a", "b"), add("a")], {}),
    "added again and dropped": ([rename("a", "b"), add("a"), drop("a")], {"a": None}),
    "taken by another column, which moves on": ([rename("a", "b"), rename("x", "a"), rename("a", "y")], {"a": "y"}),
    "kept by a new schema": ([rename("a", "b"), replaced("b", "n")], {"a": "b"}),
    "taken in a new schema": ([rename("a", "b"), replaced("b", "a"), drop("a")], {"a": None}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_name_that_a_column_had_is_not_added_by_a_write_that_merges_schemas(case: str) -> None:
    """A name that another column took since, or whose column was dropped, is new."""
    changes, expected = CASES[case]
    schema = table("a", "x")
    for change in changes:
        schema = change(schema)
    for name, now in expected.items():
        offered = table(name)
        if now is None:
            assert reconcile_schemas(schema, offered, mode=SchemaMode.MERGE).names == (*schema.names, name)
            continue
        for mode in (SchemaMode.MERGE, SchemaMode.STRICT):
            with pytest.raises(SchemaMismatchError, match=f"column '{name}' was renamed to '{now}'"):
                reconcile_schemas(schema, offered, mode=mode)
        with pytest.raises(SchemaMismatchError, match=f"column '{name}' was renamed to '{now}'"):
            evolved_by_merge(schema, offered)
        assert reconcile_schemas(schema, offered, mode=SchemaMode.OVERWRITE) == offered


def test_a_field_inside_of_an_array_has_former_names_too() -> None:
    schema = StructType((StructField("s", ArrayType(table("a"))),))
    schema = rename_column(schema, ("s", "element", "a"), "b")
    with pytest.raises(SchemaMismatchError, match=r"column 's\.element\.a' was renamed to 's\.element\.b'"):
        reconcile_schemas(schema, StructType((StructField("s", ArrayType(table("a"))),)), mode=SchemaMode.MERGE)


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        ({PHYSICAL_NAME: "a"}, ("a",)),
        ({PHYSICAL_NAME: "B"}, ()),
        ({PHYSICAL_NAME: "col-0a1b2c3d-0000-4000-8000-0123456789ab"}, ()),
        ({PHYSICAL_NAME: "a", FORMER_NAMES: []}, ()),
        ({PHYSICAL_NAME: "a", FORMER_NAMES: ["c", "b", 5]}, ("c",)),
        ({FORMER_NAMES: "damaged"}, ()),
    ],
)
def test_the_physical_name_is_the_first_name_where_another_client_renamed_a_column(
    metadata: dict[str, object], names: tuple[str, ...]
) -> None:
    """Not if this client recorded names, or the physical name was generated."""
    assert former_names(StructField("b", LONG, True, metadata)) == names


def test_a_name_that_is_added_again_stays_new_where_it_is_a_physical_name() -> None:
    renamed = StructType((replace(StructField("b", LONG), metadata={PHYSICAL_NAME: "a"}),))
    schema = drop_column(add_column(renamed, (), StructField("A", LONG), None), ("A",))
    assert reconcile_schemas(schema, table("a"), mode=SchemaMode.MERGE).names == ("b", "a")


def test_rows_that_were_read_from_a_table_do_not_carry_former_names() -> None:
    offered = StructType((StructField("n", LONG, True, {FORMER_NAMES: ["m"], "comment": "c"}),))
    merged = reconcile_schemas(table("a"), offered, mode=SchemaMode.MERGE)
    assert merged.fields[1].metadata == {"comment": "c"}
    assert reconcile_schemas(table("a"), offered, mode=SchemaMode.OVERWRITE).fields[0].metadata == {"comment": "c"}
