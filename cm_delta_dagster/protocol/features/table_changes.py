"""Changes of a table's columns that depend on its features, its properties or its other columns (protocol headings "Change
Metadata", "Column Mapping", "Type Widening").

Each function returns another definition, which :func:`~cm_delta_dagster.protocol.features.enablement.changed_definition` completes.
Refusals are those of delta-spark.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features import type_widening
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.features.enablement import COLUMN_MAPPING_MODE, TableDefinition
from cm_delta_dagster.protocol.features.expressions import uses_column
from cm_delta_dagster.protocol.features.table_properties import CONSTRAINT_PREFIX
from cm_delta_dagster.protocol.schema import alterations
from cm_delta_dagster.protocol.schema.alterations import Position, find_column
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA, length_limits
from cm_delta_dagster.protocol.schema.column_paths import column_path, path_text
from cm_delta_dagster.protocol.schema.evolution import GENERATION_EXPRESSION, IDENTITY_PREFIX
from cm_delta_dagster.protocol.schema.type_text import ColumnType, parse_column_type
from cm_delta_dagster.protocol.schema.types import (
    STRING,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    check_column_names,
    check_writable_types,
    data_type_text,
    walk_fields,
)
from cm_delta_dagster.remedies import OverwriteWithSchema, SetTableProperty

STATS_COLUMNS = "delta.dataSkippingStatsColumns"
INVARIANTS = "delta.invariants"


def add_columns(
    table: TableDefinition, columns: Iterable[tuple[Sequence[str], StructField, Position | None]]
) -> TableDefinition:
    """Add columns one after the other.

    Args:
        columns: for each its path, the field without the names above, and its position among its neighbours.
    """
    schema = table.schema
    for path, item, position in columns:
        schema = alterations.add_column(schema, path[:-1], item, position)
        check_writable_types(StructType((item,)))
    check_column_names(schema, any_characters=table.mapping is not ColumnMappingMode.NONE)
    return table.with_schema(schema)


def rename_column(table: TableDefinition, path: Sequence[str], to: str) -> TableDefinition:
    """Rename a column, also among the partition columns and in ``delta.dataSkippingStatsColumns``.

    Raises:
        InvalidArgumentError: the table has no column mapping, or another column or a constraint uses the column.
    """
    _require_mapping(table, "renamed")
    column = find_column(table.schema, path)
    schema = alterations.rename_column(table.schema, column.path, to)
    check_column_names(schema, any_characters=True)
    _refuse_dependents(table, column.path, "renamed")
    partitions = tuple(to if (name,) == column.path else name for name in table.metadata.partition_columns)
    renamed = (*column.path[:-1], to)
    changed = _with_stats_columns(table, column.path, lambda rest: (*renamed, *rest)).with_schema(schema)
    return replace(changed, metadata=replace(changed.metadata, partition_columns=partitions))


def drop_column(table: TableDefinition, path: Sequence[str]) -> TableDefinition:
    """Drop a column. Its values stay in the files and are not read any more.

    Raises:
        InvalidArgumentError: the table has no column mapping, the column is the last one or a partition column, or another
            column or a constraint uses it.
    """
    _require_mapping(table, "dropped")
    column = find_column(table.schema, path)
    if len(column.path) == 1 and column.path[0] in table.metadata.partition_columns:
        raise InvalidArgumentError(
            f"Column {path_text(column.path)!r} is a partition column, and the partitioning of a table cannot change. Nothing was "
            "changed. Copy the rows to a table with another partitioning."
        )
    schema = alterations.drop_column(table.schema, column.path)
    _refuse_dependents(table, column.path, "dropped")
    return _with_stats_columns(table, column.path, lambda rest: None).with_schema(schema)


def change_type(table: TableDefinition, path: Sequence[str], new_type: ColumnType) -> TableDefinition:
    """Widen the type of a column, or of an element, key or value.

    Raises:
        InvalidArgumentError: the change is not a widening, type widening is not enabled, the column is generated or an identity
            column, or another column or a constraint uses it.
    """
    column = find_column(table.schema, path)
    before, after = column.type, new_type.type
    if before == after:
        return _with_declared_type(table, column, new_type)
    text = f"Column {path_text(column.path)!r} cannot change from {data_type_text(before)} to {data_type_text(after)}"
    if isinstance(before, StructType | ArrayType | MapType) or isinstance(after, StructType | ArrayType | MapType):
        raise InvalidArgumentError(
            f"{text}: nested types change part by part. Nothing was changed. Add, rename, drop or change the single fields, e.g. "
            f"{path_text((*column.path, 'x'))!r}."
        )
    if before != VOID and not type_widening.may_widen(before, after):
        raise InvalidArgumentError(
            f"{text}: only a wider type can hold every value that is stored. Nothing was changed. Add a column, or overwrite the "
            "table with cast rows and their schema."
        ).with_remedy(OverwriteWithSchema())
    if before != VOID and not _is_true(table, type_widening.ENABLED):
        raise InvalidArgumentError(
            f"{text}: the table does not have {type_widening.ENABLED} = true. Nothing was changed. Set the property first; "
            "readers must then support the table feature typeWidening."
        ).with_remedy(SetTableProperty(key=type_widening.ENABLED, value="true"))
    _check_may_widen(table, column.path, before, after)
    schema = alterations.replace_type(table.schema, column.path, after)
    return table.with_schema(type_widening.with_type_changes(table.schema, schema))


def check_widened_columns(table: TableDefinition, schema: StructType) -> None:
    """Check the types that a write widens.

    Args:
        schema: of the table after the write, which records the changes of types.

    Raises:
        InvalidArgumentError: a column whose type changes is generated or an identity column, or a generated column, a constraint
            or an invariant uses it; or the table has Iceberg compatibility and Iceberg does not have the change.
    """
    before = dict(walk_fields(table.schema))
    for path, item in walk_fields(schema):
        old = before.get(path)
        if old is not None:
            for inside, narrow, wide in type_widening.widenings(old.type, item.type):
                _check_may_widen(table, (*path, *inside), narrow, wide)


def _check_may_widen(table: TableDefinition, path: Sequence[str], before: DataType, after: DataType) -> None:
    """Refuse to widen the type of a column, or of an element, key or value, on which something else depends."""
    metadata = find_column(table.schema, path[:1]).field.metadata
    text = f"Column {path_text(path)!r} cannot change from {data_type_text(before)} to {data_type_text(after)}"
    if GENERATION_EXPRESSION in metadata:
        raise InvalidArgumentError(
            f"{text}: it is a generated column, whose type is that of its expression "
            f"{metadata[GENERATION_EXPRESSION]!r}. Nothing was changed. In a write, cast the values or leave the column out."
        )
    if any(key.startswith(IDENTITY_PREFIX) for key in metadata):
        raise InvalidArgumentError(
            f"{text}: it is an identity column, whose type is bigint. Nothing was changed. In a write, cast the values or leave "
            "the column out."
        )
    compatible = any(_is_true(table, key) for key in type_widening.ICEBERG_KEYS)
    if compatible and not type_widening.iceberg_reads(before, after):
        raise InvalidArgumentError(
            f"{text}: Iceberg does not have this change, and the table has Iceberg compatibility enabled. Nothing was changed. "
            "Cast the values, or disable the compatibility first."
        )
    _refuse_dependents(table, path, "changed to a wider type")


def set_not_null(table: TableDefinition, path: Sequence[str], *, has_rows: bool) -> TableDefinition:
    """Forbid NULL in a column. Raises InvalidArgumentError if it permits NULL and the table has rows."""
    column = find_column(table.schema, path)
    schema = alterations.set_nullable(table.schema, column.path, False)
    if has_rows and column.field.nullable:
        raise InvalidArgumentError(
            f"Column {path_text(column.path)!r} cannot become NOT NULL: the table has rows, and its files are not known to have "
            f"no NULL. Nothing was changed. Add a CHECK constraint `{path_text(column.path)} IS NOT NULL`, which checks the rows."
        )
    for item in schema.fields:
        alterations.check_nested_not_null(item, (item.name,))
    return table.with_schema(schema)


# --- what uses a column -----------------------------------------------------------------------------------------------


def _refuse_dependents(table: TableDefinition, path: Sequence[str], verb: str) -> None:
    """Refuse to change a column that an expression of the table uses."""
    for what, text, remedy in _expressions(table, path):
        if uses_column(text, tuple(path)):
            raise InvalidArgumentError(
                f"Column {path_text(path)!r} cannot be {verb}: {what} uses it ({text}). Nothing was changed. {remedy}"
            )


def _expressions(table: TableDefinition, path: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """What uses columns, its SQL text and what to do, except for the expression of the column itself."""
    for key, text in table.metadata.configuration.items():
        if key.startswith(CONSTRAINT_PREFIX):
            name = key.removeprefix(CONSTRAINT_PREFIX)
            yield f"the constraint {name!r}", text, "Drop the constraint first, and add it again afterwards."
    for place, item in walk_fields(table.schema):
        if GENERATION_EXPRESSION in item.metadata and place != tuple(path):
            yield (
                f"the generated column {path_text(place)!r}",
                str(item.metadata[GENERATION_EXPRESSION]),
                "Drop the generated column first.",
            )
        if INVARIANTS in item.metadata:
            yield (
                f"the invariant of column {path_text(place)!r}",
                _invariant(str(item.metadata[INVARIANTS])),
                "Overwrite the table with rows and their schema, which removes invariants.",
            )


def _invariant(text: str) -> str:
    """The SQL of an invariant, which the log holds as JSON."""
    try:
        return str(json.loads(text)["expression"]["expression"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text


# --- parts ------------------------------------------------------------------------------------------------------------


def _require_mapping(table: TableDefinition, verb: str) -> None:
    if table.mapping is ColumnMappingMode.NONE:
        raise InvalidArgumentError(
            f"Columns of this table cannot be {verb}, because its data files name them. Nothing was changed. Set the property "
            f"{COLUMN_MAPPING_MODE} = 'name' first; readers must then support column mapping."
        ).with_remedy(SetTableProperty(key=COLUMN_MAPPING_MODE, value="name"))


def _is_true(table: TableDefinition, key: str) -> bool:
    return table.metadata.configuration.get(key, "").lower() == "true"


def _with_stats_columns(
    table: TableDefinition, path: Sequence[str], change: Callable[[Sequence[str]], Sequence[str] | None]
) -> TableDefinition:
    """With ``change`` applied to what follows ``path`` in the columns that get statistics; None removes the column."""
    listed = table.properties.data_skipping_stats_columns
    if not listed:
        return table
    lowered = tuple(name.lower() for name in path)
    kept: list[str] = []
    for text in listed.split(","):
        names = column_path(text.strip())
        is_within = tuple(name.lower() for name in names[: len(lowered)]) == lowered
        changed = change(names[len(lowered) :]) if is_within else names
        kept += [] if changed is None else [path_text(changed)]
    return table.with_properties(**{STATS_COLUMNS: ",".join(kept) or None})


def _with_declared_type(
    table: TableDefinition, column: alterations.FoundColumn, new_type: ColumnType
) -> TableDefinition:
    """A string column with another declared length: it may only grow, or the limit may go."""
    declared = _declared_inside(column) if column.inner else column.field.metadata.get(CHAR_METADATA)
    new = new_type.metadata.get(CHAR_METADATA)
    if column.type != STRING or declared == new:
        return table
    if column.inner:
        raise InvalidArgumentError(
            f"Column {path_text(column.path)!r} cannot change from {declared or 'string'} to {new or 'string'}: declared lengths "
            "inside arrays and maps do not change. Nothing was changed. Add another column."
        )
    if not _holds(declared, new):
        raise InvalidArgumentError(
            f"Column {path_text(column.path)!r} cannot change from {declared or 'string'} to {new}: stored values may be longer. "
            "Nothing was changed. Only a longer varchar or string is possible."
        )
    metadata = {key: value for key, value in column.field.metadata.items() if key != CHAR_METADATA}
    if new is not None:
        metadata[CHAR_METADATA] = new
    changed = alterations.edit_field(table.schema, column.path, lambda item: replace(item, metadata=metadata))
    return table.with_schema(changed)


def _declared_inside(column: alterations.FoundColumn) -> str | None:
    """The declared type of an element, a key or a value; None for an ordinary string."""
    limits = length_limits(column.field)
    for step in column.inner:
        limits = None if limits is None else limits.inside.get(step)
    if limits is None or limits.limit is None:
        return None
    return f"{'char' if limits.is_char else 'varchar'}({limits.limit})"


def _holds(declared: object, new: object) -> bool:
    if new is None:
        return True
    if declared is None or not str(new).startswith("varchar("):
        return False
    return _length(new) >= _length(declared)


def _length(declared: object) -> int:
    return int(str(declared).rpartition("(")[2].rstrip(")"))


def column_type(data_type: DataType | str) -> ColumnType:
    """The type that a caller names. Raises InvalidArgumentError."""
    return parse_column_type(data_type) if isinstance(data_type, str) else ColumnType(type=data_type)
