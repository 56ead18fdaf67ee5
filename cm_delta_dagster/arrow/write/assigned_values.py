"""New values of columns that a change assigns, computed over batches of Arrow."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.scalar_values import scalar_values
from cm_delta_dagster.arrow.schema import arrow_field, arrow_type
from cm_delta_dagster.arrow.write.generated_values import GeneratedValues
from cm_delta_dagster.arrow.write.literal_values import NotLiteralError, literal_value
from cm_delta_dagster.arrow.write.stored_columns import StoredColumn, stored_columns
from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.features.row_messages import failed_text
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.assigned_paths import assignment_trees
from cm_delta_dagster.protocol.predicates.scalars import ColumnValue, Scalar, columns_of_scalar, paths_of_scalar
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.evolution import holds_same
from cm_delta_dagster.protocol.schema.types import (
    DOUBLE,
    INTEGERS,
    DataType,
    StructField,
    StructType,
    data_type_text,
)
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec


@dataclass(frozen=True, slots=True)
class AssignedValue:
    """A value for the column ``item``: a constant, or what an expression computes from other columns."""

    item: StructField
    text: str
    value: pa.Scalar | Scalar

    @property
    def paths(self) -> Iterator[ColumnPath]:
        """The columns and fields that it is computed from."""
        return iter(()) if isinstance(self.value, pa.Scalar) else paths_of_scalar(self.value)

    def values(self, columns: Callable[[str], pa.Array], num_rows: int) -> pa.Array:
        """The value of each row.

        Args:
            columns: the columns of the rows before the change, by the first part of their paths in the expression.

        Raises:
            InvalidDataError: a value cannot be computed, or the column cannot hold it.
        """
        kind = arrow_type(self.item.type)
        if isinstance(self.value, pa.Scalar):
            return pa.repeat(self.value, num_rows)
        try:
            computed = scalar_values(self.value, columns, num_rows)
            if isinstance(self.value, ColumnValue) and holds_same(self.value.type, self.item.type):
                return computed  # Nested fields may differ in whether they may be NULL.
            # A number of 64 bits becomes the nearest one that DOUBLE has, as in Spark.
            return computed if computed.type == kind else computed.cast(kind, safe=self.item.type != DOUBLE)
        except pa.ArrowInvalid as error:
            what = f"the value {self.text!r} of column {self.item.name!r} ({data_type_text(self.item.type)})"
            raise InvalidDataError(failed_text(what, str(error))) from error


@dataclass(frozen=True, slots=True)
class AssignedFields:
    """A value for the struct column ``item``: the struct ``old`` with new values of some fields. It is not NULL."""

    item: StructField
    old: ColumnValue
    fields: Mapping[str, "AssignedValue | AssignedFields"]

    @property
    def paths(self) -> Iterator[ColumnPath]:
        """The columns and fields that it is computed from."""
        yield self.old.path
        for value in self.fields.values():
            yield from value.paths

    def values(self, columns: Callable[[str], pa.Array], num_rows: int) -> pa.Array:
        """As :meth:`AssignedValue.values`."""
        old = scalar_values(self.old, columns, num_rows)
        arrays = []
        for place, name in enumerate(old.type.names):
            value = self.fields.get(name)
            arrays.append(pc.struct_field(old, [place]) if value is None else value.values(columns, num_rows))
        return pa.StructArray.from_arrays(arrays, names=old.type.names)


NewValue: TypeAlias = AssignedValue | AssignedFields


def new_values(
    values: Iterable[tuple[ColumnPath, AssignedValue]], schema: StructType, *, prefix: ColumnPath = ()
) -> list[NewValue]:
    """The values of columns, of values for columns and fields at paths in the schema of the table.

    Args:
        prefix: of the paths of columns of the table in expressions.

    Raises:
        InvalidArgumentError: two values are assigned to the same column or field, or to a struct and a field of it.
    """
    return [
        _new_value(tree, item, (*prefix, name))
        for name, tree in assignment_trees(values).items()
        if (item := schema.field(name)) is not None
    ]


def _new_value(tree: "AssignedValue | dict[str, Any]", item: StructField, path: ColumnPath) -> NewValue:
    if isinstance(tree, AssignedValue):
        return tree
    assert isinstance(item.type, StructType), "only a struct has fields"
    fields = {
        name: _new_value(part, field, (*path, name))
        for name, part in tree.items()
        if (field := item.type.field(name)) is not None
    }
    return AssignedFields(item, ColumnValue(path, item.type), fields)


def assigned_value(text: str, item: StructField, scalar: Scalar | None, *, now_ms: int) -> AssignedValue | None:
    """The value that the SQL expression ``text`` gives to a column; None if only Spark can compute or convert it.

    Args:
        scalar: the expression; None if only Spark evaluates it.
        now_ms: value of ``current_timestamp()``, in epoch milliseconds.
    """
    try:
        constant = literal_value(text, item, now_ms=now_ms)
        return AssignedValue(item, text, pa.scalar(constant, arrow_type(item.type)))
    except NotLiteralError:
        pass
    if scalar is None or not _is_stored(scalar.type, item.type):
        return None
    if not any(columns_of_scalar(scalar)) and scalar.type != item.type:
        return None  # A constant that the column cannot hold is refused also where no row changes.
    return AssignedValue(item, text, scalar)


def _is_stored(computed: DataType, column: DataType) -> bool:
    """Whether Arrow converts values as Spark does when it stores them."""
    return holds_same(computed, column) or (computed in INTEGERS and (column in INTEGERS or column == DOUBLE))


@dataclass(frozen=True, slots=True)
class UpdatedRows:
    """Rows with new values of some columns, in which the generated columns without one are computed again."""

    columns: Sequence[StoredColumn]
    generated: GeneratedValues

    @classmethod
    def of(cls, names: Collection[str], layout: TableLayout) -> "UpdatedRows":
        """For changes of the columns ``names`` of a table that is ``layout`` after the change."""
        rows = pa.schema([arrow_field(item) for item in layout.schema.fields])
        columns = stored_columns(rows, layout, WriteSpec(is_filled=True))
        stay = [name for name in layout.schema.names if name in names or name not in generated_columns(layout.schema)]
        as_read = {column.item.name: column.as_read for column in columns}
        return cls(columns, GeneratedValues.of(layout, stay, as_read))

    def changed(self, batch: pa.RecordBatch, values: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """The rows after the change. Columns that are not in the schema of the table stay.

        Args:
            values: the new values by column.

        Raises:
            InvalidDataError: a generated value cannot be computed.
        """
        batch = with_columns(batch, values)
        if not self.generated.missing:
            return batch
        read = {column.item.name: column.values(batch) for column in self.columns}
        completed = self.generated.completed(read, batch.num_rows)
        return with_columns(batch, {column.name: completed[column.name] for column in self.generated.missing})


@dataclass(frozen=True, slots=True)
class AssignedValues:
    """The values of an UPDATE."""

    assigned: Sequence[NewValue]
    rows: UpdatedRows

    @classmethod
    def of(cls, assigned: Sequence[NewValue], layout: TableLayout) -> "AssignedValues":
        """For a table that is ``layout`` after the change."""
        return cls(assigned, UpdatedRows.of({value.item.name for value in assigned}, layout))

    def applied(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows after the change.

        Raises:
            InvalidDataError: a value cannot be computed, or a column cannot hold it.
        """
        return self.rows.changed(
            batch, {value.item.name: value.values(batch.column, batch.num_rows) for value in self.assigned}
        )


def with_columns(batch: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """The batch with other values of some columns."""
    arrays = [columns.get(name, array) for name, array in zip(batch.schema.names, batch.columns, strict=True)]
    # The new values may be NULL where the rules of the table, which are checked later, forbid it.
    fields = [pa.field(name, array.type) for name, array in zip(batch.schema.names, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
