"""Rules for the rows of a write, checked over batches of Arrow: NOT NULL, lengths, constraints, and the condition of the write."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.nullability import promises, promises_inside
from cm_delta_dagster.arrow.predicates import RowFilter, row_filter
from cm_delta_dagster.arrow.scalar_values import scalar_values
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError, InvalidDataError, PartitionMismatchError
from cm_delta_dagster.protocol.features.constraints import Constraint, check_constraints, invariants
from cm_delta_dagster.protocol.features.expressions import known_columns
from cm_delta_dagster.protocol.features.row_messages import (
    constraint_text,
    failed_text,
    guard_text,
    length_text,
    null_text,
    shown_columns,
)
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.predicates import Comparison, Predicate, leaves, short_sql
from cm_delta_dagster.protocol.predicates.scalar_expressions import scalar_expression
from cm_delta_dagster.protocol.predicates.scalars import columns_of_scalar
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.char_types import char_width, length_limits
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import (
    BOOLEAN,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

BatchColumns = Mapping[str, pa.Array]
"""The rows of a batch as readers of the table will see them: an array for each column of the table, by its name."""
_NumpyRows = npt.NDArray[np.int64]


class BatchRule(Protocol):
    """Something that every row must satisfy."""

    def check(self, columns: BatchColumns, num_rows: int) -> None:
        """Raise the error for the first row of a batch that breaks the rule."""


def guard_needs_spark(guard: Predicate, schema: StructType) -> str | None:
    """Why only Spark can evaluate ``guard``, for a message; None if Arrow can."""
    try:
        row_filter(guard, schema)
    except InvalidArgumentError:
        return f"only Spark evaluates the condition {short_sql(guard)}"
    return None


def rules_need_spark(layout: TableLayout) -> str | None:
    """Which rule of the table only Spark can check, for a message; None if Arrow can check all.

    Raises:
        CorruptLogError: an invariant in the log cannot be read.
    """
    for constraint in _constraints(layout):
        if _condition(constraint, layout.schema) is None:
            return f"only Spark evaluates {constraint.description}"
    for item in layout.schema.fields:
        limits = length_limits(item)
        if limits is not None and limits.limit is None:
            return f"the column {item.name!r} has parts with a limited length"
    return None


def row_rules(layout: TableLayout, guard: Predicate | None = None) -> Sequence[BatchRule]:
    """What the rows of a write must satisfy.

    Args:
        layout: of the table after the write, of which :func:`rules_need_spark` says nothing.
        guard: the condition that the write declares.

    Raises:
        InvalidArgumentError: only Spark can evaluate ``guard``.
    """
    schema = layout.schema
    rules: list[BatchRule] = [_NotNull(item, schema) for item in schema.fields if item.type != VOID and promises(item)]
    for item in schema.fields:
        limits = length_limits(item)
        if limits is not None and limits.limit is not None:
            rules.append(_MaxLength(item, limits.limit, schema))
    for constraint in _constraints(layout):
        condition = _condition(constraint, schema)
        assert condition is not None, "only Spark evaluates it"
        shown = known_columns(constraint.expression, schema)
        rules.append(
            _Condition(condition, constraint.description, constraint_text(constraint), shown, InvalidDataError, schema)
        )
    if guard is not None:
        rules.append(guard_rule(guard, schema))
    return rules


def guard_rule(guard: Predicate, schema: StructType) -> BatchRule:
    """That every row satisfies the condition that a write declares.

    Raises:
        InvalidArgumentError: only Spark can evaluate ``guard``.
    """
    condition = row_filter(guard, schema)
    shown = tuple((item.name,) for item in schema.fields if item.name in condition.columns)
    return _Condition(condition, "the condition of the write", guard_text(guard), shown, PartitionMismatchError, schema)


def _constraints(layout: TableLayout) -> Iterator[Constraint]:
    yield from invariants(layout.schema)
    yield from check_constraints(layout.properties.configuration)


def _condition(constraint: Constraint, schema: StructType) -> RowFilter | None:
    """The compiled expression; None if only Spark can evaluate it, or say what is wrong with it."""
    try:
        predicate = parse_predicate(constraint.expression, schema)
        condition = row_filter(predicate, schema)
    except InvalidArgumentError:
        scalar = scalar_expression(constraint.expression, schema)
        if scalar is None or scalar.type != BOOLEAN:
            return None
        used = tuple(dict.fromkeys(columns_of_scalar(scalar)))
        return RowFilter(used, partial(scalar_values, scalar))
    # Spark does not fill the literal with blanks here, and has rules of its own for integers that no column holds.
    if any(char_width(item) for item in schema.fields if item.name in condition.columns):
        return None
    return None if any(map(_is_beyond_long, leaves(predicate))) else condition


def _is_beyond_long(leaf: Predicate) -> bool:
    return isinstance(leaf, Comparison) and isinstance(leaf.value, int) and not -(2**63) <= leaf.value < 2**63


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition that must be true; NULL breaks it."""

    condition: RowFilter
    rule: str
    text: str
    shown: Sequence[ColumnPath]
    error: type[CmDeltaError]
    schema: StructType

    def check(self, columns: BatchColumns, num_rows: int) -> None:
        try:
            is_true = self.condition.answer(columns.__getitem__, num_rows).fill_null(False)
        except pa.ArrowInvalid as error:
            raise InvalidDataError(failed_text(self.rule, str(error))) from error
        row = pc.index(is_true, pa.scalar(False)).as_py()
        if row >= 0:
            raise self.error(self.text + row_text(columns, row, self.shown, self.schema))


@dataclass(frozen=True, slots=True)
class _MaxLength:
    """A string has at most ``limit`` characters."""

    item: StructField
    limit: int
    schema: StructType

    def check(self, columns: BatchColumns, num_rows: int) -> None:
        is_longer = pc.greater(pc.utf8_length(columns[self.item.name]), self.limit).fill_null(False)
        row = pc.index(is_longer, pa.scalar(True)).as_py()
        if row >= 0:
            raise InvalidDataError(length_text(self.item) + row_text(columns, row, [(self.item.name,)], self.schema))


@dataclass(frozen=True, slots=True)
class _NotNull:
    """Neither the column nor what is inside of it is NULL where the schema forbids it."""

    item: StructField
    schema: StructType

    def check(self, columns: BatchColumns, num_rows: int) -> None:
        array = columns[self.item.name]
        rows = np.arange(len(array))
        broken = next(_nulls(array, self.item.type, self.item.nullable, self.item.name, rows), None)
        if broken is not None:
            path, row = broken
            raise InvalidDataError(null_text(path, self.item) + row_text(columns, row, (), self.schema))


def _nulls(
    array: pa.Array, data_type: DataType, nullable: bool, path: str, rows: _NumpyRows
) -> Iterator[tuple[str, int]]:
    """Where NULLs are that the type forbids: the path of the field, and the row of the first.

    A field of a NULL struct is NULL, as in delta-spark; that of a NULL element is not.

    Args:
        rows: the row to which each value of ``array`` belongs.
    """
    if not nullable and array.null_count:
        yield path, int(rows[pc.index(array.is_null(), pa.scalar(True)).as_py()])
    if not promises_inside(data_type):
        return
    match data_type:
        case StructType():
            for position, item in enumerate(data_type.fields):
                child = pc.struct_field(array, [position])
                yield from _nulls(child, item.type, item.nullable, f"{path}.{item.name}", rows)
        case ArrayType():
            entries, owners = _entries(array, rows)
            values = entries.values.slice(entries.offsets[0].as_py(), len(owners))
            yield from _elements(values, data_type.element_type, data_type.contains_null, f"{path}.element", owners)
        case MapType():
            entries, owners = _entries(array, rows)
            first = entries.offsets[0].as_py()
            keys, values = (part.slice(first, len(owners)) for part in (entries.keys, entries.items))
            yield from _elements(keys, data_type.key_type, True, f"{path}.key", owners)
            yield from _elements(values, data_type.value_type, data_type.value_contains_null, f"{path}.value", owners)


def _entries(array: pa.Array, rows: _NumpyRows) -> tuple[pa.Array, _NumpyRows]:
    """The lists or maps that are not null, and the row of each of their entries."""
    valid = array.filter(array.is_valid())
    kept = rows[array.is_valid().to_numpy(zero_copy_only=False)]
    return valid, np.repeat(kept, np.diff(valid.offsets.to_numpy()))


def _elements(
    values: pa.Array, data_type: DataType, nullable: bool, path: str, rows: _NumpyRows
) -> Iterator[tuple[str, int]]:
    if not nullable:
        yield from _nulls(values, VOID, False, path, rows)
    is_valid = values.is_valid()
    kept = rows[is_valid.to_numpy(zero_copy_only=False)]
    yield from _nulls(values.filter(is_valid), data_type, True, path, kept)


def row_text(columns: BatchColumns, row: int, named: Sequence[ColumnPath], schema: StructType) -> str:
    """The values of a row for a message; see :func:`shown_columns`."""
    paths = shown_columns(named, schema)
    return ", ".join(f"{'.'.join(path)} = {_text(_value(columns, row, path))}" for path in paths) + "."


def _value(columns: BatchColumns, row: int, path: ColumnPath) -> pa.Scalar:
    value = columns[path[0]].slice(row, 1)
    for name in path[1:]:
        value = pc.struct_field(value, [value.type.get_field_index(name)])
    return value[0]


def _text(scalar: pa.Scalar) -> str:
    return str(scalar.as_py()) if scalar.is_valid else "NULL"
