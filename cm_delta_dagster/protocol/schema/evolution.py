"""Schema enforcement and evolution: which offered columns fit a table, and the schema of the table after the write.

Protocol headings "Change Metadata", "Consistency Between Table Metadata and Data Files".
Names are compared ignoring case, and the spelling of the table is kept. Types of existing columns change only if the caller permits
to widen them. Rows are checked elsewhere.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.protocol.schema.former_names import FORMER_NAMES, renamed_since
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    check_unique_names,
    data_type_text,
    schema_text,
)

CURRENT_DEFAULT = "CURRENT_DEFAULT"
"""Key in the metadata of a field with a default value."""
GENERATION_EXPRESSION = "delta.generationExpression"
"""Key in the metadata of a generated column."""
IDENTITY_PREFIX = "delta.identity."
"""Prefix of the keys in the metadata of an identity column."""


_TABLE_METADATA = ("delta.", CURRENT_DEFAULT, "EXISTS_DEFAULT", FORMER_NAMES)


class SchemaMode(StrEnum):
    """How a write may change the schema of the table."""

    STRICT = "strict"
    """Not at all: every offered column must exist and have a type that fits."""
    MERGE = "merge"
    """New columns and nested fields are appended as nullable, unless a column of the table had their name before it was renamed."""
    OVERWRITE = "overwrite"
    """The offered schema replaces the schema of the table. Only for writes that replace all rows."""


# Every value of the key type can be stored unchanged in a column of each of the listed types.
_HOLDS_UNCHANGED: dict[DataType, tuple[DataType, ...]] = {
    BYTE: (SHORT, INTEGER, LONG, FLOAT, DOUBLE),
    SHORT: (INTEGER, LONG, FLOAT, DOUBLE),
    INTEGER: (LONG, DOUBLE),
    FLOAT: (DOUBLE,),
    DATE: (TIMESTAMP_NTZ,),
}
_DIGITS: dict[DataType, int] = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 19}
"""Digits of the greatest value of each integer type."""

_TIMES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)


_RENAMED = "Offer renamed columns under their new names; a further column with a former name must be added to the table first. "


def _never(column: DataType, offered: DataType) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """How a write may change the schema, and what it may not change.

    Attributes:
        faults: columns whose type or absence does not fit.
        clashes: those of them whose values Spark does not convert implicitly.
        renamed: columns that are offered under a former name.
    """

    mode: SchemaMode
    widens: Callable[[DataType, DataType], bool] = _never
    faults: list[str] = field(default_factory=list)
    clashes: list[str] = field(default_factory=list)
    renamed: list[str] = field(default_factory=list)


def reconcile_schemas(
    table: StructType,
    offered: StructType,
    *,
    mode: SchemaMode,
    widens: Callable[[DataType, DataType], bool] = _never,
) -> StructType:
    """Schema of the table after a write of ``offered``; with STRICT it equals ``table``.

    Args:
        table: current schema.
        offered: schema of the rows to write.
        mode: how the write may change the schema.
        widens: whether with MERGE the type of a column (first argument) may become the offered type (second).

    Raises:
        SchemaMismatchError: a column is unknown, has a type that does not fit, is NOT NULL and missing, or occurs twice. The
            message lists the faults and shows both schemas.
    """
    check_unique_names(offered)
    offered = without_table_metadata(offered)
    if mode is SchemaMode.OVERWRITE:
        return offered
    rules = _Rules(mode=mode, widens=widens)
    result = _reconcile_struct(table, offered, "", rules)
    if rules.faults:
        raise SchemaMismatchError(
            "The offered columns do not fit the table:\n"
            + "\n".join(f"  - {fault}" for fault in rules.faults)
            + f"\nSchema of the table:\n{schema_text(table)}\nOffered schema:\n{schema_text(offered)}\n"
            + "Nothing was written. "
            + (_RENAMED if rules.renamed else "")
            + "Cast or drop the columns, or allow the schema to be merged where columns are new."
        )
    return result


def evolved_by_merge(
    table: StructType, offered: StructType, *, widens: Callable[[DataType, DataType], bool] = _never
) -> StructType:
    """Schema of the table after a merge with schema evolution.

    Columns and nested fields that the table lacks are added. Types become those of the source only where ``widens`` permits it;
    otherwise they stay, and the values are cast, or refused, where they are assigned.

    Args:
        offered: the columns of the source that the clauses assign, see :func:`assigned_fields`.

    Raises:
        SchemaMismatchError: a type of the source is not converted implicitly to that of the table, e.g. a nested one to a text; or
            a column is offered under a former name.
    """
    check_unique_names(offered)
    rules = _Rules(mode=SchemaMode.MERGE, widens=widens)
    result = _reconcile_struct(table, without_table_metadata(offered), "", rules)
    if rules.renamed:
        raise SchemaMismatchError(
            f"The source does not fit the table: {'; '.join(rules.renamed)}. Schema evolution does not add a column under a former "
            "name. Nothing was written. Rename the column of the source, or add the column to the table first."
        )
    if rules.clashes:
        raise SchemaMismatchError(
            f"The source does not fit the table: {'; '.join(rules.clashes)}. Schema evolution does not convert them. Nothing was "
            "written. Cast the columns of the source, or merge without schema evolution."
        )
    return result


def assigned_fields(offered: StructType, paths: Collection[Sequence[str]]) -> StructType:
    """The columns of ``offered`` to which ``paths`` assign; of a struct only the assigned fields, unless it is assigned itself."""
    lowered = [tuple(name.lower() for name in path) for path in paths]
    fields = []
    for item in offered.fields:
        inner = [path[1:] for path in lowered if path[0] == item.name.lower()]
        if () in inner:
            fields.append(item)
        elif inner and isinstance(item.type, StructType):
            inside = assigned_fields(item.type, inner)
            fields += [replace(item, type=inside)] if inside.fields else []
    return StructType(tuple(fields))


def without_table_metadata(schema: StructType) -> StructType:
    """A schema of rows without the metadata that has a meaning only in a table: defaults, generation, identity, column mapping.

    Rows that were read from a table may carry it.
    """
    return StructType(tuple(_plain_field(item) for item in schema.fields))


def holds_same(left: DataType, right: DataType) -> bool:
    """Whether both types have the same values, apart from where NULL is allowed and metadata of fields."""
    return _plain_type(as_nullable(left)) == _plain_type(as_nullable(right))


def _plain_field(item: StructField) -> StructField:
    metadata = {key: value for key, value in item.metadata.items() if not key.startswith(_TABLE_METADATA)}
    return StructField(item.name, _plain_type(item.type), item.nullable, metadata)


def _plain_type(data_type: DataType) -> DataType:
    match data_type:
        case StructType():
            return without_table_metadata(data_type)
        case ArrayType():
            return ArrayType(_plain_type(data_type.element_type), data_type.contains_null)
        case MapType():
            return MapType(
                _plain_type(data_type.key_type), _plain_type(data_type.value_type), data_type.value_contains_null
            )
        case _:
            return data_type


def fits(offered: DataType, column: DataType) -> bool:
    """Whether every value of ``offered`` can be stored in ``column`` unchanged; struct fields are matched by name and may be
    missing if they are nullable.
    """
    rules = _Rules(mode=SchemaMode.STRICT)
    _reconcile_type(column, offered, "", rules)
    return not rules.faults


def _reconcile_struct(table: StructType, offered: StructType, path: str, rules: _Rules) -> StructType:
    fields = [_reconcile_field(item, offered.field(item.name), path, rules) for item in table.fields]
    for item in offered.fields:
        if table.field(item.name) is not None:
            continue
        now = renamed_since(table.fields, item.name)
        if now is not None:
            fault = f"column {_join(path, item.name)!r} was renamed to {_join(path, now.name)!r}"
            rules.faults.append(fault)
            rules.renamed.append(fault)
        elif rules.mode is SchemaMode.STRICT:
            rules.faults.append(f"column {_join(path, item.name)!r} does not exist in the table")
        else:
            # Existing files have no value for the column, so it must be nullable.
            fields.append(StructField(item.name, as_nullable(item.type), True, item.metadata))
    return StructType(tuple(fields))


def _reconcile_field(item: StructField, offered: StructField | None, path: str, rules: _Rules) -> StructField:
    here = _join(path, item.name)
    if offered is None:
        if not item.nullable and not _is_filled_by_writer(item):
            rules.faults.append(f"column {here!r} is missing, and the table does not allow null in it")
        return item
    # An offered column may be nullable and contain no null: NOT NULL is checked on the rows.
    return StructField(item.name, _reconcile_type(item.type, offered.type, here, rules), item.nullable, item.metadata)


def _reconcile_type(column: DataType, offered: DataType, path: str, rules: _Rules) -> DataType:
    if isinstance(column, StructType) and isinstance(offered, StructType):
        return _reconcile_struct(column, offered, path, rules)
    if isinstance(column, ArrayType) and isinstance(offered, ArrayType):
        element = _reconcile_type(column.element_type, offered.element_type, f"{path}.element", rules)
        return ArrayType(element, column.contains_null)
    if isinstance(column, MapType) and isinstance(offered, MapType):
        return MapType(
            _reconcile_type(column.key_type, offered.key_type, f"{path}.key", rules),
            _reconcile_type(column.value_type, offered.value_type, f"{path}.value", rules),
            column.value_contains_null,
        )
    if rules.mode is SchemaMode.MERGE and offered != column and (column == VOID or rules.widens(column, offered)):
        return offered
    if not _value_fits(offered, column):
        fault = f"column {path!r} is {data_type_text(column)} in the table and {data_type_text(offered)} in the offered rows"
        rules.faults.append(fault)
        if not _is_converted(offered, column):
            rules.clashes.append(fault)
    return column


def _value_fits(offered: DataType, column: DataType) -> bool:
    if offered in (column, VOID) or column in _HOLDS_UNCHANGED.get(offered, ()):
        return True
    if isinstance(column, DecimalType):
        whole = column.precision - column.scale
        if isinstance(offered, DecimalType):
            return offered.scale <= column.scale and offered.precision - offered.scale <= whole
        return offered in _DIGITS and _DIGITS[offered] <= whole
    # One digit less than the greatest value has.
    return (
        isinstance(offered, DecimalType)
        and offered.scale == 0
        and column in _DIGITS
        and offered.precision < _DIGITS[column]
    )


def _is_converted(offered: DataType, column: DataType) -> bool:
    """Whether Spark converts the offered type implicitly: numbers to numbers, times to times, texts to both, and all to texts."""
    if column == STRING:
        return isinstance(offered, PrimitiveType | DecimalType)
    kinds = (_is_number, _TIMES.__contains__)
    if offered == STRING:
        return column == BINARY or any(is_kind(column) for is_kind in kinds)
    return any(is_kind(offered) and is_kind(column) for is_kind in kinds)


def _is_number(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or data_type in (BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE)


def as_nullable(data_type: DataType) -> DataType:
    """The type, in which every field, element and value may be null."""
    match data_type:
        case StructType():
            return StructType(
                tuple(StructField(item.name, as_nullable(item.type), True, item.metadata) for item in data_type.fields)
            )
        case ArrayType():
            return ArrayType(as_nullable(data_type.element_type), True)
        case MapType():
            return MapType(as_nullable(data_type.key_type), as_nullable(data_type.value_type), True)
        case _:
            return data_type


def _is_filled_by_writer(item: StructField) -> bool:
    """Whether the writer computes the value of a missing column: a default, generated or identity column."""
    return any(
        key in (CURRENT_DEFAULT, GENERATION_EXPRESSION) or key.startswith(IDENTITY_PREFIX) for key in item.metadata
    )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
