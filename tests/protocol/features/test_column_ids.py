"""Ids and physical names of columns."""

import pytest

from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.features.column_ids import (
    MAX_COLUMN_ID,
    ColumnIds,
    assign_column_ids,
    highest_column_id,
    strip_metadata,
    with_ids_of,
)
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME
from cm_delta_dagster.protocol.schema.types import (
    LONG,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    walk_fields,
)


def item(name: str, data_type: DataType = LONG, number: int | None = None) -> StructField:
    metadata = {} if number is None else {COLUMN_ID: number, PHYSICAL_NAME: f"col-{number}"}
    return StructField(name, data_type, metadata=metadata)


def struct(*fields: StructField) -> StructType:
    return StructType(fields)


def ids_of(schema: StructType) -> dict[str, int | None]:
    return {".".join(path): field.metadata.get(COLUMN_ID) for path, field in walk_fields(schema)}


def test_fields_without_both_get_the_next_id_and_a_name_parents_first() -> None:
    half = StructField("h", LONG, metadata={COLUMN_ID: 1})
    schema = struct(item("a", number=4), item("s", struct(item("x"))), half)
    ids = ColumnIds(highest=4, new_name=lambda field: f"new-{field.name}")
    changed = assign_column_ids(schema, ids)
    assert ids_of(changed) == {"a": 4, "s": 5, "s.x": 6, "h": 7} and ids.highest == 7
    assert [field.metadata[PHYSICAL_NAME] for field in changed.fields] == ["col-4", "new-s", "new-h"]


def test_the_last_id_is_given_and_no_higher_one() -> None:
    ids = ColumnIds(highest=2**31 - 2, new_name=lambda field: field.name)
    assert ids.with_id(item("a")).metadata[COLUMN_ID] == 2**31 - 1
    with pytest.raises(IllegalCommitError, match="'b' cannot be added: the table has used all 2147483647 column ids"):
        ids.with_id(item("b"))


@pytest.mark.parametrize(
    ("recorded", "highest"), [(None, 6), ("9", 9), ("5", 6), ("", 6), ("-9", 6), ("x", 6), ("\u0669", 6)]
)
def test_the_highest_id_is_that_of_the_property_or_of_a_column(recorded: str | None, highest: int) -> None:
    schema = struct(item("a", number=2), item("s", struct(item("x", number=6))), item("b"))
    assert highest_column_id(schema, {} if recorded is None else {MAX_COLUMN_ID: recorded}) == highest


def test_a_table_without_ids_has_the_highest_id_zero() -> None:
    assert highest_column_id(struct(item("a")), {}) == 0


def test_metadata_is_removed_by_prefix_at_every_level() -> None:
    inner = struct(StructField("x", LONG, metadata={"p.a": 1, "q": 2}))
    schema = struct(StructField("s", inner, metadata={"p.b": 1}))
    assert [field.metadata for _, field in walk_fields(strip_metadata(schema, ("p.", "r.")))] == [{}, {"q": 2}]


@pytest.mark.parametrize(
    ("new", "earlier", "expected"),
    [
        (LONG, LONG, {"a": 1}),
        (LONG, STRING, {"a": None}),
        (struct(item("x"), item("y")), struct(item("x", number=2)), {"a": 1, "a.x": 2, "a.y": None}),
        (struct(item("x")), LONG, {"a": None, "a.x": None}),
        (ArrayType(LONG), ArrayType(LONG), {"a": 1}),
        (ArrayType(LONG), ArrayType(STRING), {"a": None}),
        (MapType(STRING, LONG), MapType(STRING, LONG), {"a": 1}),
        (MapType(STRING, LONG), MapType(LONG, LONG), {"a": None}),
        (MapType(STRING, LONG), MapType(STRING, STRING), {"a": None}),
    ],
    ids=str,
)
def test_a_column_of_the_same_name_and_type_keeps_its_ids(
    new: DataType, earlier: DataType, expected: dict[str, int | None]
) -> None:
    replaced = with_ids_of(struct(item("a", new), item("b")), struct(item("A", earlier, 1)))
    assert ids_of(replaced) == expected | {"b": None}
    assert replaced.fields[0].name == "a"
