"""Changes of columns that features, properties and other columns permit or refuse."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from cm_delta_dagster.errors import InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.features.enablement import TableDefinition
from cm_delta_dagster.protocol.features.protocol_evolution import catalog_managed_protocol
from cm_delta_dagster.protocol.features.table_changes import (
    STATS_COLUMNS,
    add_columns,
    change_type,
    check_widened_columns,
    drop_column,
    rename_column,
    set_not_null,
)
from cm_delta_dagster.protocol.features.type_widening import TYPE_CHANGES, with_type_changes
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA
from cm_delta_dagster.protocol.schema.type_text import parse_column_type
from cm_delta_dagster.protocol.schema.types import INTEGER, LONG, StructField, StructType, schema_to_json

MAPPED = {"delta.columnMapping.mode": "name"}
WIDENS = {"delta.enableTypeWidening": "true"}
INVARIANT = '{"expression":{"expression":"inv > 3"}}'


def field(name: str, type_text: str, **metadata: object) -> StructField:
    found = parse_column_type(type_text)
    return StructField(name, found.type, True, {**found.metadata, **metadata})


def table(**properties: str) -> TableDefinition:
    schema = StructType(
        (
            field("id", "int"),
            field("p", "smallint"),
            field("st", "struct<a: int, b: struct<c: int>, l: array<int>>"),
            field("g", "int", **{"delta.generationExpression": "src + 1"}),
            field("src", "int"),
            field("inv", "int", **{"delta.invariants": INVARIANT}),
            field("m", "map<int, array<int>>"),
            field("name", "varchar(5)"),
            field("nothing", "void"),
            field("d", "date"),
            field("number", "bigint", **{"delta.identity.start": 1, "delta.identity.step": 1}),
        )
    )
    configuration = {"delta.constraints.ck": "ST.b.c > 0 AND id IS NOT NULL", **properties}
    metadata = Metadata(
        id="x", schema_string=schema_to_json(schema), partition_columns=("p",), configuration=configuration
    )
    return TableDefinition(protocol=catalog_managed_protocol(), metadata=metadata)


Change = Callable[[TableDefinition], TableDefinition]


@pytest.mark.requirements("CHK-5", "COLMAP-14", "GEN-1")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: drop_column(t, ("p",)), "is a partition column"),
        (lambda t: drop_column(t, ("ID",)), "the constraint 'ck' uses it"),
        (lambda t: drop_column(t, ("st",)), "the constraint 'ck' uses it"),
        (lambda t: drop_column(t, ("st", "b")), "the constraint 'ck' uses it"),
        (lambda t: drop_column(t, ("src",)), r"the generated column 'g' uses it \(src \+ 1\)"),
        (lambda t: drop_column(t, ("inv",)), r"the invariant of column 'inv' uses it \(inv > 3\)"),
        (lambda t: rename_column(t, ("src",), "x"), "the generated column 'g' uses it"),
        (lambda t: rename_column(t, ("st", "B", "c"), "x"), "the constraint 'ck' uses it"),
        (lambda t: rename_column(t, ("st", "a"), "B"), "'b' exists"),
        (lambda t: change_type(t, ("id",), parse_column_type("bigint")), "the constraint 'ck' uses it"),
        (lambda t: change_type(t, ("src",), parse_column_type("bigint")), "the generated column 'g' uses it"),
        (lambda t: change_type(t, ("g",), parse_column_type("bigint")), "it is a generated column"),
        (lambda t: change_type(t, ("number",), parse_column_type("decimal(22,1)")), "it is an identity column"),
        (lambda t: change_type(t, ("p",), parse_column_type("tinyint")), "only a wider type"),
        (lambda t: change_type(t, ("p",), parse_column_type("string")), "only a wider type"),
        (lambda t: change_type(t, ("st",), parse_column_type("struct<a: bigint>")), "nested types change part by part"),
        (lambda t: change_type(t, ("name",), parse_column_type("varchar(4)")), "stored values may be longer"),
        (lambda t: change_type(t, ("name",), parse_column_type("char(9)")), "stored values may be longer"),
        (lambda t: set_not_null(t, ("id",), has_rows=True), "cannot become NOT NULL"),
    ],
)
def test_changes_that_something_else_forbids(change: Change, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as refusal:
        change(table(**MAPPED, **WIDENS))
    assert "Nothing was changed" in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "is_used"),
    [
        (INVARIANT, True),
        ("inv > 3", True),
        ("[" * 5000 + "inv", True),
        ("[5]", False),
        ('{"expression":5}', False),
        ('{"x":5}', False),
    ],
    ids=["usual", "SQL", "nested deeply", "list", "number", "another key"],
)
def test_an_invariant_that_is_not_written_as_usual_is_taken_as_sql(text: str, is_used: bool) -> None:
    """A column that it may use stays."""
    before = table(**MAPPED)
    fields = [
        replace(item, metadata={"delta.invariants": text}) if item.name == "inv" else item
        for item in before.schema.fields
    ]
    changed = before.with_schema(StructType(tuple(fields)))
    assert drop_column(changed, ("d",)).schema.field("d") is None
    if not is_used:
        assert drop_column(changed, ("inv",)).schema.field("inv") is None
        return
    with pytest.raises(InvalidArgumentError, match="the invariant of column 'inv' uses it"):
        drop_column(changed, ("inv",))


@pytest.mark.requirements("COLMAP-11", "COLMAP-12", "META-4")
def test_what_nothing_uses_can_be_dropped_and_renamed() -> None:
    before = table(**MAPPED, **{STATS_COLUMNS: "st.a,p, id,`src`"})
    after = rename_column(rename_column(before, ("P",), "part x"), ("st", "a"), "z")
    assert after.metadata.partition_columns == ("part x",)
    assert after.metadata.configuration[STATS_COLUMNS] == "st.z,`part x`,id,src"
    assert drop_column(after, ("st", "z")).metadata.configuration[STATS_COLUMNS] == "`part x`,id,src"
    gone = drop_column(drop_column(before, ("g",)), ("src",))
    assert gone.schema.field("src") is None
    only = drop_column(table(**MAPPED, **{STATS_COLUMNS: "m"}), ("m",))
    assert STATS_COLUMNS not in only.metadata.configuration


@pytest.mark.requirements("COLMAP-13")
def test_without_mapping_columns_keep_their_names() -> None:
    for change in (lambda t: rename_column(t, ("m",), "n"), lambda t: drop_column(t, ("m",))):
        with pytest.raises(InvalidArgumentError, match=r"Set the property delta\.columnMapping\.mode = 'name'"):
            change(table())
    with pytest.raises(SchemaMismatchError, match="cannot store"):
        add_columns(table(), [(("a b",), field("a b", "int"), None)])
    assert add_columns(table(**MAPPED), [(("a b",), field("a b", "int"), None)]).schema.field("A B") is not None
    with pytest.raises(SchemaMismatchError, match="reserved"):
        rename_column(table(**MAPPED), ("m",), "__cm_delta_x")


@pytest.mark.requirements("UP-TW-1", "UP-TW-2", "UP-TW-3", "UP-TW-4")
def test_types_are_widened_and_the_change_is_recorded() -> None:
    """The path names the part of an array or a map."""
    with pytest.raises(InvalidArgumentError, match=r"does not have delta\.enableTypeWidening = true"):
        change_type(table(), ("p",), parse_column_type("int"))
    after = table(**WIDENS)
    for path, wanted in [
        ("p", "int"), ("P", "bigint"), ("st.a", "bigint"), ("st.l.element", "bigint"), ("m.key", "bigint"),
        ("m.value.element", "decimal(12,2)"), ("d", "timestamp_ntz"),
    ]:  # fmt: skip
        after = change_type(after, tuple(path.split(".")), parse_column_type(wanted))
    top = {item.name: item for item in after.schema.fields}
    struct = top["st"].type
    assert isinstance(struct, StructType)
    changes = {name: item.metadata.get(TYPE_CHANGES) for name, item in top.items()}
    assert changes["p"] == [{"fromType": "short", "toType": "integer"}, {"fromType": "integer", "toType": "long"}]
    assert changes["m"] == [
        {"fromType": "integer", "toType": "long", "fieldPath": "key"},
        {"fromType": "integer", "toType": "decimal(12,2)", "fieldPath": "value.element"},
    ]
    assert changes["d"] == [{"fromType": "date", "toType": "timestamp_ntz"}]
    assert changes["st"] is None
    assert [item.metadata.get(TYPE_CHANGES) for item in struct.fields] == [
        [{"fromType": "integer", "toType": "long"}],
        None,
        [{"fromType": "integer", "toType": "long", "fieldPath": "element"}],
    ]


@pytest.mark.requirements("UP-TW-3")
@pytest.mark.parametrize(("name", "message"), [("id", "constraint 'ck'"), ("src", "generated column 'g'"), ("p", "")])
def test_a_write_does_not_widen_a_column_that_an_expression_uses(name: str, message: str) -> None:
    """As an alteration."""
    before = table(**WIDENS)
    fields = [replace(item, type=LONG) if item.name == name else item for item in before.schema.fields]
    after = with_type_changes(before.schema, StructType(tuple(fields)))
    check_widened_columns(before, before.schema)
    if not message:
        check_widened_columns(before, after)
        return
    with pytest.raises(
        InvalidArgumentError, match=f"'{name}' cannot be changed to a wider type: the {message} uses it"
    ):
        check_widened_columns(before, after)


@pytest.mark.requirements("UP-TW-3")
@pytest.mark.parametrize(
    ("name", "wanted", "message"), [("g", "bigint", "a generated"), ("number", "decimal(22,1)", "an identity")]
)
def test_a_write_does_not_widen_a_column_that_the_table_computes(name: str, wanted: str, message: str) -> None:
    """Its type would no longer be that of its expression, or one that can be numbered."""
    before, wider = table(**WIDENS), parse_column_type(wanted).type
    fields = [replace(item, type=wider) if item.name == name else item for item in before.schema.fields]
    with pytest.raises(InvalidArgumentError, match=f"'{name}' cannot change.*{message} column.*cast the values"):
        check_widened_columns(before, with_type_changes(before.schema, StructType(tuple(fields))))


@pytest.mark.requirements("UP-TW-6")
def test_iceberg_compatibility_permits_only_the_changes_of_iceberg() -> None:
    iceberg = table(**WIDENS, **{"delta.enableIcebergCompatV2": "true"})
    assert change_type(iceberg, ("m", "key"), parse_column_type("bigint"))
    for path, wanted in (("m.key", "double"), ("m.key", "decimal(12,0)"), ("d", "timestamp_ntz")):
        with pytest.raises(InvalidArgumentError, match="Iceberg"):
            change_type(iceberg, tuple(path.split(".")), parse_column_type(wanted))


@pytest.mark.requirements("UP-VOID-1")
def test_void_becomes_any_type_and_a_declared_length_may_grow() -> None:
    """Neither needs type widening, neither is recorded."""
    after = change_type(table(), ("nothing",), parse_column_type("int")).schema.field("nothing")
    assert after == StructField("nothing", INTEGER)
    longer = change_type(table(), ("name",), parse_column_type("varchar(6)")).schema.field("name")
    assert longer is not None
    assert longer.metadata == {CHAR_METADATA: "varchar(6)"}
    free = change_type(table(), ("name",), parse_column_type("string")).schema.field("name")
    assert free is not None
    assert free.metadata == {}
    assert change_type(table(), ("name",), parse_column_type("varchar(5)")) == table()


@pytest.mark.parametrize("new", ["varchar(4)", "varchar(6)", "char(5)", "string"])
def test_a_declared_length_inside_an_array_or_a_map_does_not_change(new: str) -> None:
    """Neither to a longer one nor to none; the type that it has is accepted."""
    before = table()
    for name, part in (
        ("array<varchar(5)>", "element"),
        ("map<varchar(5), int>", "key"),
        ("map<int,varchar(5)>", "value"),
    ):
        with_strings = add_columns(before, [(("texts",), field("texts", name), None)])
        assert change_type(with_strings, ("texts", part), parse_column_type("varchar(5)")) == with_strings
        with pytest.raises(InvalidArgumentError, match=rf"from varchar\(5\) to {re.escape(new)}"):
            change_type(with_strings, ("texts", part), parse_column_type(new))
    free = add_columns(before, [(("texts",), field("texts", "array<string>"), None)])
    assert change_type(free, ("texts", "element"), parse_column_type("string")) == free


@pytest.mark.requirements("META-6")
def test_not_null_of_a_table_without_rows() -> None:
    after = set_not_null(table(), ("st", "a"), has_rows=False)
    struct = after.schema.fields[2].type
    assert isinstance(struct, StructType)
    assert [item.nullable for item in struct.fields] == [False, True, True]
    assert set_not_null(after, ("st", "a"), has_rows=True) == after
