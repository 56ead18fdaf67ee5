"""Which offered columns fit a table, and the schema of the table after the write."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.protocol.schema.evolution import (
    SchemaMode,
    assigned_fields,
    evolved_by_merge,
    fits,
    reconcile_schemas,
)
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
)

TABLE = StructType(
    (
        StructField("Id", LONG, False, {"comment": "key"}),
        StructField("name", STRING),
        StructField("s", StructType((StructField("x", LONG), StructField("y", STRING)))),
    )
)


def struct(**types: DataType) -> StructType:
    return StructType(tuple(StructField(name, data_type) for name, data_type in types.items()))


def merged(table: StructType, offered: StructType) -> StructType:
    return reconcile_schemas(table, offered, mode=SchemaMode.MERGE)


def strict(table: StructType, offered: StructType) -> StructType:
    return reconcile_schemas(table, offered, mode=SchemaMode.STRICT)


@pytest.mark.requirements("SCHEVO-2")
@pytest.mark.parametrize("mode", [SchemaMode.STRICT, SchemaMode.MERGE])
def test_missing_nullable_columns_and_other_case_keep_the_schema(mode: SchemaMode) -> None:
    assert reconcile_schemas(TABLE, struct(ID=LONG, S=struct(X=LONG)), mode=mode) == TABLE


@pytest.mark.requirements("SCHEVO-1")
def test_an_unknown_column_is_refused_and_both_schemas_are_shown() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        strict(TABLE, struct(id=LONG, extra=STRING))

    message = str(caught.value)
    assert "'extra' does not exist" in message
    assert "  Id: bigint not null" in message
    assert "  extra: string" in message


@pytest.mark.requirements("SCHEVO-1")
def test_an_unknown_nested_field_is_refused_by_its_path() -> None:
    with pytest.raises(SchemaMismatchError, match=r"'s\.z'"):
        strict(TABLE, struct(id=LONG, s=struct(z=LONG)))


@pytest.mark.requirements("SCHEVO-2", "SCHEMA-9")
@pytest.mark.parametrize("mode", [SchemaMode.STRICT, SchemaMode.MERGE])
def test_a_missing_column_that_may_not_be_null_is_refused(mode: SchemaMode) -> None:
    with pytest.raises(SchemaMismatchError, match="'Id' is missing"):
        reconcile_schemas(TABLE, struct(name=STRING), mode=mode)


@pytest.mark.requirements("SCHEVO-2")
@pytest.mark.parametrize("key", ["CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.start"])
def test_a_missing_column_that_the_writer_fills_is_accepted(key: str) -> None:
    table = StructType((StructField("a", LONG, False, {key: "1"}), StructField("b", LONG)))

    assert strict(table, struct(b=LONG)) == table


BYTE, SHORT, INTEGER, FLOAT, DOUBLE, DATE, TIMESTAMP, NTZ, VOID = (
    PrimitiveType(name)
    for name in ["byte", "short", "integer", "float", "double", "date", "timestamp", "timestamp_ntz", "void"]
)


@pytest.mark.requirements("SCHEVO-1")
@pytest.mark.parametrize(
    ("offered", "column"),
    [
        (BYTE, SHORT), (BYTE, INTEGER), (BYTE, LONG), (SHORT, INTEGER), (SHORT, LONG), (INTEGER, LONG), (FLOAT, DOUBLE),
        (DecimalType(5, 2), DecimalType(7, 4)), (DecimalType(5, 2), DecimalType(6, 2)), (VOID, STRING),
        (ArrayType(INTEGER), ArrayType(LONG)), (MapType(SHORT, FLOAT), MapType(INTEGER, DOUBLE)),
        (BYTE, FLOAT), (BYTE, DOUBLE), (SHORT, FLOAT), (SHORT, DOUBLE), (INTEGER, DOUBLE), (DATE, NTZ),
        (BYTE, DecimalType(3, 0)), (SHORT, DecimalType(7, 2)), (INTEGER, DecimalType(12, 2)), (INTEGER, DecimalType(20, 2)),
        (LONG, DecimalType(19, 0)), (LONG, DecimalType(38, 19)), (DecimalType(18, 0), LONG), (DecimalType(9, 0), INTEGER),
        (DecimalType(4, 0), SHORT), (DecimalType(2, 0), BYTE), (ArrayType(INTEGER), ArrayType(DOUBLE)),
        (struct(a=MapType(DATE, LONG)), struct(a=MapType(NTZ, DecimalType(22, 1)))),
    ],
)  # fmt: skip
def test_narrower_values_fit_a_wider_column_which_keeps_its_type(offered: DataType, column: DataType) -> None:
    table = struct(c=column)

    assert fits(offered, column)
    assert strict(table, struct(c=offered)) == table
    assert merged(table, struct(c=offered)) == table


@pytest.mark.requirements("SCHEVO-1", "SCHEVO-5")
@pytest.mark.parametrize(
    ("offered", "column"),
    [
        (LONG, INTEGER), (DOUBLE, FLOAT), (LONG, DOUBLE), (INTEGER, FLOAT), (LONG, STRING), (STRING, LONG), (DATE, TIMESTAMP),
        (TIMESTAMP, NTZ), (NTZ, TIMESTAMP), (INTEGER, DecimalType(9, 0)), (DecimalType(7, 2), DecimalType(7, 4)),
        (LONG, DecimalType(18, 0)), (LONG, DecimalType(20, 2)), (DecimalType(19, 0), LONG), (DecimalType(4, 1), LONG),
        (DecimalType(3, 0), BYTE), (FLOAT, DecimalType(38, 10)), (DecimalType(5, 2), DOUBLE), (NTZ, DATE),
        (DecimalType(7, 4), DecimalType(9, 2)), (ArrayType(LONG), LONG), (struct(a=LONG), MapType(STRING, LONG)),
        (ArrayType(STRING), ArrayType(LONG)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", [SchemaMode.STRICT, SchemaMode.MERGE])
def test_types_that_could_change_values_are_refused(offered: DataType, column: DataType, mode: SchemaMode) -> None:
    assert not fits(offered, column)
    with pytest.raises(SchemaMismatchError, match="in the offered rows"):
        reconcile_schemas(struct(c=column), struct(c=offered), mode=mode)


@pytest.mark.requirements("SCHEVO-3")
def test_merging_appends_new_columns_at_every_level_as_nullable() -> None:
    new = StructType((StructField("k", LONG, False),))
    offered = StructType(
        (
            StructField("New", ArrayType(new, False), False, {"comment": "n"}),
            StructField("id", LONG),
            StructField("s", StructType((StructField("z", LONG, False),))),
        )
    )

    result = merged(TABLE, offered)

    assert result.names == ("Id", "name", "s", "New")
    assert result.fields[:2] == TABLE.fields[:2]
    assert result.fields[2].type == struct(x=LONG, y=STRING, z=LONG)
    assert result.fields[3] == StructField("New", ArrayType(struct(k=LONG), True), True, {"comment": "n"})


@pytest.mark.requirements("SCHEVO-3")
def test_merging_reaches_into_arrays_and_maps() -> None:
    table = struct(a=ArrayType(struct(x=LONG)), m=MapType(STRING, struct(x=LONG)))
    offered = struct(a=ArrayType(struct(y=LONG)), m=MapType(STRING, struct(y=LONG)))

    both = struct(x=LONG, y=LONG)
    assert merged(table, offered) == struct(a=ArrayType(both), m=MapType(STRING, both))


@pytest.mark.requirements("SCHEVO-4")
def test_an_overwrite_uses_the_offered_schema() -> None:
    offered = struct(other=STRING)

    assert reconcile_schemas(TABLE, offered, mode=SchemaMode.OVERWRITE) == offered


@pytest.mark.requirements("SCHEMA-8")
@pytest.mark.parametrize("mode", list(SchemaMode))
def test_offered_columns_that_differ_only_in_case_are_refused(mode: SchemaMode) -> None:
    with pytest.raises(SchemaMismatchError, match="same level"):
        reconcile_schemas(TABLE, struct(id=LONG, ID=LONG), mode=mode)


column_sets = st.lists(st.sampled_from("abcdef"), unique=True).map(lambda names: struct(**dict.fromkeys(names, LONG)))


@pytest.mark.requirements("SCHEVO-3")
@settings(deadline=None)
@given(column_sets, column_sets)
def test_after_merging_the_same_rows_fit_strictly(table: StructType, offered: StructType) -> None:
    """Merging keeps the existing columns and is idempotent."""
    result = merged(table, offered)

    assert result.fields[: len(table.fields)] == table.fields
    assert strict(result, offered) == result
    assert merged(result, offered) == result


@pytest.mark.requirements("SCHEVO-4", "UP-TW-2")
def test_a_merge_widens_types_where_the_caller_permits_it() -> None:
    """At every level, and never to a narrower type."""
    table = struct(a=INTEGER, s=struct(x=INTEGER), l=ArrayType(INTEGER), m=MapType(INTEGER, INTEGER))
    offered = struct(a=LONG, s=struct(x=LONG), l=ArrayType(LONG), m=MapType(LONG, LONG))

    def widens(column: DataType, given: DataType) -> bool:
        return (column, given) == (INTEGER, LONG)

    assert reconcile_schemas(table, offered, mode=SchemaMode.MERGE, widens=widens) == offered
    assert reconcile_schemas(offered, table, mode=SchemaMode.MERGE, widens=widens) == offered
    for refused in (
        lambda: merged(table, offered),
        lambda: reconcile_schemas(table, offered, mode=SchemaMode.STRICT, widens=widens),
        lambda: reconcile_schemas(table, struct(a=STRING), mode=SchemaMode.MERGE, widens=widens),
    ):
        with pytest.raises(SchemaMismatchError):
            refused()


@pytest.mark.requirements("UP-VOID-1")
def test_a_merge_gives_a_void_column_the_offered_type() -> None:
    assert merged(struct(a=VOID), struct(a=LONG)) == struct(a=LONG)
    assert merged(struct(a=LONG), struct(a=VOID)) == struct(a=LONG)


@pytest.mark.requirements("SCHEVO-3", "UP-TW-2")
def test_a_merge_with_evolution_changes_only_what_the_table_permits() -> None:
    """NOT NULL columns may be missing in the source, and a type that is not widened stays."""
    source = struct(name=LONG, s=struct(x=DOUBLE, z=LONG), new=STRING)
    result = evolved_by_merge(TABLE, source)
    assert result.fields[:2] == TABLE.fields[:2]
    assert result.fields[2:] == (
        StructField("s", struct(x=LONG, y=STRING, z=LONG)),
        StructField("new", STRING),
    )
    widened = evolved_by_merge(TABLE, source, widens=lambda column, given: (column, given) == (LONG, DOUBLE))
    assert widened.fields[:2] == TABLE.fields[:2]
    assert widened.fields[2].type == struct(x=DOUBLE, y=STRING, z=LONG)


@pytest.mark.parametrize(
    ("offered", "fault"),
    [
        (
            struct(name=ArrayType(LONG, True)),
            "column 'name' is string in the table and array<bigint> in the offered rows",
        ),
        (struct(s=STRING), "column 's' is struct<.*> in the table and string"),
        (struct(s=struct(y=MapType(STRING, LONG, True))), "column 's.y' is string in the table and map"),
    ],
)
def test_a_merge_with_evolution_converts_no_nested_values(offered: StructType, fault: str) -> None:
    """As in delta-spark; without evolution they are cast."""
    with pytest.raises(SchemaMismatchError, match=fault):
        evolved_by_merge(TABLE, offered)
    assert evolved_by_merge(TABLE, struct(name=VOID, s=VOID)) == TABLE


_KINDS = {
    "number": (PrimitiveType("byte"), LONG, PrimitiveType("double"), DecimalType(8, 2)),
    "time": (PrimitiveType("date"), PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz")),
    "text": (STRING,),
    "binary": (PrimitiveType("binary"),),
    "boolean": (PrimitiveType("boolean"),),
    "variant": (PrimitiveType("variant"),),
}


@pytest.mark.parametrize("offered", _KINDS)
@pytest.mark.parametrize("column", _KINDS)
def test_a_merge_with_evolution_converts_what_delta_spark_converts(offered: str, column: str) -> None:
    """Numbers, times, texts to both and to bytes, and everything to text."""
    converts = offered == column or column == "text" or (offered == "text" and column in ("number", "time", "binary"))
    for have in _KINDS[offered]:
        for want in _KINDS[column]:
            if converts:
                assert evolved_by_merge(struct(a=want), struct(a=have)) == struct(a=want)
            else:
                with pytest.raises(SchemaMismatchError, match="Schema evolution does not convert them"):
                    evolved_by_merge(struct(a=want), struct(a=have))


def test_only_assigned_fields_of_a_source_change_the_schema() -> None:
    """A struct that is assigned has all its fields, and one of which a field is assigned only that field."""
    inner = struct(x=LONG, y=STRING)
    offered = struct(a=LONG, b=LONG, s=inner, u=inner, v=inner)
    paths = [("A",), ("s", "X"), ("u",), ("u", "x"), ("v", "none"), ("unknown",)]
    assert assigned_fields(offered, paths) == struct(a=LONG, s=struct(x=LONG), u=inner)
    assert assigned_fields(offered, []) == struct()
