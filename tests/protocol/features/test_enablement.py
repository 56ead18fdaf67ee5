"""What properties and columns demand of metadata and protocol: ids, physical names, row tracking columns, features."""

import itertools
from collections.abc import Callable

import pytest

from cm_delta_dagster.errors import IllegalCommitError, InvalidArgumentError
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.features.column_ids import MAX_COLUMN_ID, with_ids_of
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME, ColumnMappingMode, field_id
from cm_delta_dagster.protocol.features.enablement import (
    TableDefinition,
    changed_definition,
    check_change_feed_columns,
    check_enabled_by_hand,
    new_definition,
    without_own_metadata,
)
from cm_delta_dagster.protocol.features.protocol_evolution import catalog_managed_protocol
from cm_delta_dagster.protocol.features.row_tracking import (
    MATERIALIZED_ROW_COMMIT_VERSION,
    MATERIALIZED_ROW_ID,
    row_id_columns,
)
from cm_delta_dagster.protocol.features.table_features import supports
from cm_delta_dagster.protocol.schema.alterations import add_column, drop_column, rename_column
from cm_delta_dagster.protocol.schema.type_text import parse_column_type
from cm_delta_dagster.protocol.schema.types import (
    INTEGER,
    LONG,
    TIMESTAMP_NTZ,
    VARIANT,
    StructField,
    StructType,
    schema_to_json,
    walk_fields,
)
from cm_delta_dagster.remedies import DropOrRenameColumn, EnableTableFeature

NESTED = StructType(
    (
        StructField("a", LONG),
        StructField("s", parse_column_type("struct<x: int, l: array<struct<y: int>>>").type),
        StructField("m", parse_column_type("map<struct<k: int>, struct<v: int>>").type),
    )
)
PATHS = ["a", "s", "s.x", "s.l", "s.l.element.y", "m", "m.key.k", "m.value.v"]
MODE = "delta.columnMapping.mode"


class Names:
    """Gives ``<prefix>-1``, ``<prefix>-2`` and so on."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers)}"


def plain(schema: StructType = NESTED, **properties: str) -> TableDefinition:
    metadata = Metadata(id="x", schema_string=schema_to_json(schema), configuration=properties)
    return TableDefinition(protocol=catalog_managed_protocol(), metadata=metadata)


def created(schema: StructType = NESTED, **properties: str) -> TableDefinition:
    return new_definition(plain(schema, **properties), new_name=Names())


def mapped(definition: TableDefinition) -> dict[str, tuple[int, str]]:
    return {
        ".".join(path): (field_id(item), str(item.metadata[PHYSICAL_NAME]))
        for path, item in walk_fields(definition.schema)
    }


@pytest.mark.requirements("COLMAP-3", "COLMAP-4", "COLMAP-5", "COLMAP-7")
@pytest.mark.parametrize("mode", ["name", "id"])
def test_every_field_of_a_new_mapped_table_has_an_id_and_a_name_of_its_own(mode: str) -> None:
    table = created(**{MODE: mode})
    assert mapped(table) == {path: (number, f"col-{number}") for number, path in enumerate(PATHS, 1)}
    assert table.metadata.configuration == {MODE: mode, MAX_COLUMN_ID: "8"}
    assert supports(table.protocol, "columnMapping")
    assert "columnMapping" in (table.protocol.reader_features or ())
    assert mapped(created(table.schema, **{MODE: mode})) == mapped(table), (
        "ids that a schema brings from another table are not taken over"
    )


@pytest.mark.requirements("COLMAP-none-1")
def test_a_new_table_without_mapping_has_no_ids() -> None:
    assert created() == plain()
    other = created(**{MODE: "name"}).with_properties(**{MODE: None, MAX_COLUMN_ID: None})
    assert created(other.schema).schema == NESTED


@pytest.mark.requirements("COLMAP-6", "COLMAP-7", "COLMAP-14")
def test_the_upgrade_to_name_mode_keeps_the_names_of_the_files() -> None:
    before = created()
    after = changed_definition(before, before.with_properties(**{MODE: "name"}), new_name=Names())
    assert mapped(after) == {path: (number, path.rpartition(".")[2]) for number, path in enumerate(PATHS, 1)}
    assert after.metadata.configuration == {MODE: "name", MAX_COLUMN_ID: "8"}
    assert supports(after.protocol, "columnMapping")
    added = after.with_schema(add_column(after.schema, (), StructField("new", INTEGER)))
    assert mapped(changed_definition(after, added, new_name=Names()))["new"] == (9, "col-1")


@pytest.mark.requirements("COLMAP-14")
@pytest.mark.parametrize(
    ("old", "new"), [("none", "id"), ("name", "id"), ("id", "name"), ("name", "none"), ("id", "none"), ("name", None)]
)
def test_other_changes_of_the_mode_are_refused(old: str, new: str | None) -> None:
    """This client does not rewrite files to remove a mapping."""
    before = created(**{MODE: old})
    with pytest.raises(InvalidArgumentError, match="Nothing was changed"):
        changed_definition(before, before.with_properties(**{MODE: new}), new_name=Names())


@pytest.mark.requirements("COLMAP-4", "COLMAP-5", "COLMAP-10", "COLMAP-12")
def test_ids_of_dropped_columns_are_not_given_again() -> None:
    """At every level."""
    names = Names()
    table = new_definition(plain(**{MODE: "name"}), new_name=names)
    dropped = changed_definition(table, table.with_schema(drop_column(table.schema, ("m",))), new_name=names)
    assert dropped.metadata.configuration[MAX_COLUMN_ID] == "8"
    item = StructField("m", parse_column_type("struct<v: int>").type)
    schema = add_column(dropped.schema, (), item)
    again = changed_definition(dropped, dropped.with_schema(schema), new_name=names)
    assert (mapped(again)["m"], mapped(again)["m.v"]) == ((9, "col-9"), (10, "col-10"))
    assert mapped(again)["s.l.element.y"] == (5, "col-5")
    assert again.metadata.configuration[MAX_COLUMN_ID] == "10"
    assert changed_definition(again, again, new_name=names) is again


@pytest.mark.requirements("COLMAP-5")
def test_a_replaced_schema_keeps_the_ids_of_columns_that_stay() -> None:
    """A column of another type is another column."""
    before = created(**{MODE: "name"})
    offered = StructType(
        (
            StructField("A", INTEGER, True, {COLUMN_ID: 77, PHYSICAL_NAME: "foreign"}),
            StructField("s", parse_column_type("struct<x: int, l: array<struct<y: int, z: int>>>").type),
            StructField("m", LONG),
        )
    )
    schema = with_ids_of(without_own_metadata(offered), before.schema)
    found = mapped(changed_definition(before, before.with_schema(schema), new_name=Names()))
    assert found == {
        "A": (9, "col-1"),
        "s": (2, "col-2"),
        "s.x": (3, "col-3"),
        "s.l": (4, "col-4"),
        "s.l.element.y": (5, "col-5"),
        "s.l.element.z": (10, "col-2"),
        "m": (11, "col-3"),
    }


@pytest.mark.requirements("COLMAP-4")
def test_all_ids_used() -> None:
    table = created(**{MODE: "name"}).with_properties(**{MAX_COLUMN_ID: str(2**31 - 1)})
    wanted = table.with_schema(add_column(table.schema, (), StructField("new", INTEGER)))
    with pytest.raises(IllegalCommitError, match="all 2147483647 column ids"):
        changed_definition(table, wanted, new_name=Names())


@pytest.mark.requirements("ROWTRK-1", "ROWTRK-8", "ROWTRK-9")
def test_row_tracking_names_its_columns_once() -> None:
    table = created(**{"delta.enableRowTracking": "true"})
    columns = row_id_columns(table.protocol, table.metadata, "t")
    assert (columns.row_id, columns.row_commit_version) == ("_row-id-col-1", "_row-commit-version-col-2")
    assert supports(table.protocol, "domainMetadata")
    off = table.with_properties(**{"delta.enableRowTracking": "false"})
    on = changed_definition(off, off.with_properties(**{"delta.enableRowTracking": "true"}), new_name=Names())
    assert {on.metadata.configuration[key] for key in (MATERIALIZED_ROW_ID, MATERIALIZED_ROW_COMMIT_VERSION)} == {
        "_row-id-col-1",
        "_row-commit-version-col-2",
    }
    for name in ("_row-id-col-1", "_row-commit-version-col-2"):
        wanted = table.with_schema(add_column(table.schema, (), StructField(name, INTEGER)))
        with pytest.raises(InvalidArgumentError, match="store row ids under that name"):
            changed_definition(table, wanted, new_name=Names())


@pytest.mark.requirements("UP-RT-1")
def test_row_tracking_cannot_be_enabled_while_it_is_suspended() -> None:
    with pytest.raises(InvalidArgumentError, match="rowTrackingSuspended"):
        created(**{"delta.enableRowTracking": "true", "delta.rowTrackingSuspended": "true"})


@pytest.mark.requirements("TF-11")
def test_features_that_only_a_user_enables() -> None:
    """As delta-spark does."""
    table = created()
    wanted = table.with_schema(add_column(table.schema, (), StructField("t", TIMESTAMP_NTZ)))
    after = changed_definition(table, wanted, new_name=Names())
    with pytest.raises(InvalidArgumentError, match="clients that lack them could not open") as refused:
        check_enabled_by_hand(table.protocol, after.protocol)
    assert refused.value.remedy == EnableTableFeature(feature="timestampNtz")
    enabled = changed_definition(table, table, new_name=Names(), features=["timestampNtz"])
    check_enabled_by_hand(enabled.protocol, changed_definition(enabled, wanted, new_name=Names()).protocol)
    variant = table.with_schema(add_column(table.schema, (), StructField("v", VARIANT)))
    with_variant = changed_definition(table, variant, new_name=Names())
    check_enabled_by_hand(table.protocol, with_variant.protocol)
    assert "variantType" in (with_variant.protocol.reader_features or ())


@pytest.mark.requirements("COLMAP-1", "COLMAP-2")
def test_the_mode_of_a_definition_is_that_of_its_property() -> None:
    assert plain(**{MODE: "id"}).mapping is ColumnMappingMode.ID
    with pytest.raises(InvalidArgumentError, match="columnMapping"):
        created(**{MODE: "both"})


FEED = "delta.enableChangeDataFeed"


@pytest.mark.requirements("CDF-9")
@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_commit_timestamp", "_CHANGE_TYPE"])
def test_a_table_with_a_change_feed_has_no_column_named_like_one_of_the_feed(name: str) -> None:
    """Neither when it is created nor later, as in delta-spark; a field of a struct may have the name."""
    named = StructType((StructField("a", LONG), StructField(name, LONG)))
    inside = StructType((StructField("a", LONG), StructField("s", named)))
    with pytest.raises(InvalidArgumentError, match=f"cannot have the column '{name}'"):
        new_definition(plain(named, **{FEED: "true"}), new_name=Names())
    without = new_definition(plain(named), new_name=Names())
    with pytest.raises(InvalidArgumentError, match=r"leave delta\.enableChangeDataFeed off"):
        changed_definition(without, without.with_properties(**{FEED: "true"}), new_name=Names())
    enabled = new_definition(plain(inside, **{FEED: "true"}), new_name=Names())
    with pytest.raises(InvalidArgumentError, match=f"cannot have the column '{name}'"):
        changed_definition(enabled, enabled.with_schema(named), new_name=Names())


def test_a_table_of_another_writer_that_has_such_a_column_can_be_changed() -> None:
    named = StructType((StructField("a", LONG), StructField("_change_type", LONG)))
    table = new_definition(plain(named), new_name=Names()).with_properties(**{FEED: "true"})
    changed = changed_definition(table, table.with_properties(**{"delta.appendOnly": "true"}), new_name=Names())
    assert changed.metadata.configuration["delta.appendOnly"] == "true"


@pytest.mark.parametrize(
    ("change", "column"),
    [
        (lambda schema: schema, None),
        (lambda schema: add_column(schema, ("s",), StructField("new", INTEGER)), None),
        (lambda schema: drop_column(schema, ("m",)), "m"),
        (lambda schema: drop_column(schema, ("s", "x")), "x"),
        (lambda schema: rename_column(schema, ("a",), "b"), "a"),
    ],
    ids=["unchanged", "added", "dropped", "dropped field", "renamed"],
)
def test_rows_are_not_written_with_a_change_that_readers_of_the_feed_cannot_follow(
    change: Callable[[StructType], StructType], column: str | None
) -> None:
    """A range of versions of the feed has one schema."""
    before = created(**{MODE: "name", FEED: "true"})
    after = changed_definition(before, before.with_schema(change(before.schema)), new_name=Names())
    check_change_feed_columns(before, after.with_properties(**{FEED: None}))
    if column is None:
        check_change_feed_columns(before, after)
        return
    with pytest.raises(InvalidArgumentError, match=f"column '{column}'") as refused:
        check_change_feed_columns(before, after)
    assert refused.value.remedy == DropOrRenameColumn(column=column)


def test_rows_are_not_written_with_the_introduction_of_column_mapping_while_the_feed_is_on() -> None:
    before = created(**{FEED: "true"})
    after = changed_definition(before, before.with_properties(**{MODE: "name"}), new_name=Names())
    check_change_feed_columns(before, before)
    with pytest.raises(InvalidArgumentError, match="append them"):
        check_change_feed_columns(before, after)
