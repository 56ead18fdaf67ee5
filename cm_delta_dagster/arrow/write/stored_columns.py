"""Columns of the rows of a caller as the columns that data files and partition values have (protocol heading "Data Files").

The schema of the table holds every value of the rows: :mod:`cm_delta_dagster.protocol.schema.evolution` has compared them.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from cm_delta_dagster.arrow.columns import FileColumn, FileLayout
from cm_delta_dagster.arrow.schema import arrow_type
from cm_delta_dagster.arrow.write.generated_values import generated_needs_spark
from cm_delta_dagster.arrow.write.missing_values import default_needs_spark
from cm_delta_dagster.arrow.write.row_rules import rules_need_spark
from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, InvalidDataError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.empty_partition_text import stored_as_null
from cm_delta_dagster.protocol.actions.paths import HIVE_DEFAULT_PARTITION
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, field_id, physical_name
from cm_delta_dagster.protocol.features.computed_columns import check_sources
from cm_delta_dagster.protocol.features.iceberg_compat import active_versions
from cm_delta_dagster.protocol.features.identity_columns import check_not_given
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from cm_delta_dagster.protocol.schema.char_types import char_width
from cm_delta_dagster.protocol.schema.evolution import as_nullable
from cm_delta_dagster.protocol.schema.types import (
    BINARY,
    VARIANT,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    walk_types,
)
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteSpec

_FIELD_ID = b"PARQUET:field_id"


def needs_spark(offered: StructType, layout: TableLayout) -> str | None:
    """What of the table only Spark can do for these rows, for a message; None if Arrow stores them as Spark does.

    Raises:
        CorruptLogError: an invariant in the log cannot be read.
    """
    reason = rules_need_spark(layout) or generated_needs_spark(layout)
    if reason is not None:
        return reason
    for item in layout.schema.fields:
        if offered.field(item.name) is None and default_needs_spark(item):
            return f"the rows lack the column {item.name!r}, whose default only Spark evaluates"
    return files_need_spark(layout)


def files_need_spark(layout: TableLayout) -> str | None:
    """Why only Spark can write the files of the table, for a message; None if Arrow writes them as Spark does."""
    if active_versions(layout.properties.configuration):
        return "the table is compatible with Iceberg"
    kind = type_for_spark(layout.schema)
    return None if kind is None else f"the table has a column of {kind}"


def type_for_spark(schema: StructType) -> str | None:
    """A type in the schema whose values only Spark writes, with its article, for a message; None if there is none."""
    kinds = list(walk_types(schema))
    if VARIANT in kinds:
        return "the type variant"
    has_interval = any(isinstance(kind, PrimitiveType) and kind.name.startswith("interval") for kind in kinds)
    return "an interval type" if has_interval else None


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of the table, and how its values are made of those of the rows.

    Attributes:
        stored: the field of data files, with its name there; all values may be null.
        width: of a ``char(n)`` column, 0 of any other.
        is_partition: whether the table is partitioned by it.
    """

    item: StructField
    column: FileColumn
    stored: pa.Field
    has_empty_as_null: bool
    width: int
    is_partition: bool

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """The values of a batch as readers of the table will see them.

        Raises:
            InvalidDataError: a value that the type cannot hold.
        """
        try:
            if self.column.source is not None:
                position = batch.schema.get_field_index(self.column.source)
                _check_micros(batch.column(position), self.item.name)
            array = self.column.values(batch)
        except pa.ArrowException as error:
            raise InvalidDataError(
                f"The column {self.item.name!r} has a value that cannot be stored: {error}. Nothing was committed. Correct it."
            ) from error
        return self.as_read(array)

    def as_read(self, array: pa.Array) -> pa.Array:
        """Values of the type of the column as readers of the table will see them."""
        if self.has_empty_as_null:
            array = without_empty(array, self.item.type)
        return pc.utf8_rpad(array, self.width) if self.width else array

    def stored_values(self, array: pa.Array) -> pa.Array:
        """The result of :meth:`as_read` as data files have it: with their names of fields, and ``char`` strings without blanks.

        A partition column that is nothing but blanks keeps them, because the empty text would be NULL.
        """
        if self.width:
            trimmed = pc.utf8_rtrim(array, " ")
            array = pc.if_else(pc.equal(trimmed, ""), array, trimmed) if self.is_partition else trimmed
        return array if array.type == self.stored.type else _relabelled(array, self.stored.type)


def stored_columns(offered: pa.Schema, layout: TableLayout, spec: WriteSpec) -> list[StoredColumn]:
    """One for each column of the table, in the order of its schema, and then for the hidden columns of ``spec``.

    Args:
        offered: the schema of the rows.

    Raises:
        InvalidArgumentError: a column of the rows has an Arrow type that is not converted to that of the table, or is an identity
            column that is always generated.
    """
    if not spec.is_filled:
        check_not_given(layout.schema, tuple(offered.names), action="gives")
        check_sources(layout.schema, from_arrow_schema(offered))
    rows = FileLayout(schema=offered, file="(the rows)", mapping=ColumnMappingMode.NONE)
    columns = converted_columns(offered, layout)
    return [*columns, *(_hidden_column(item, rows) for item in spec.hidden_columns)]


def converted_columns(offered: pa.Schema, layout: TableLayout) -> list[StoredColumn]:
    """As :func:`stored_columns`, for rows that need not be complete."""
    rows = FileLayout(schema=offered, file="(the rows)", mapping=ColumnMappingMode.NONE)
    empty_as_null = set(stored_as_null(layout.schema, layout.partition_columns))
    partitions = {item.name for item in layout.partition_fields}
    columns = []
    for item in layout.schema.fields:
        try:
            column = rows.column(StructField(item.name, as_nullable(item.type)))
        except (CorruptLogError, UnsupportedFeatureError) as error:
            kind = offered.field(item.name).type if item.name in offered.names else "of another spelling"
            raise InvalidArgumentError(
                f"The column {item.name!r} of the rows has the Arrow type {kind}, which is not converted to that of the table. "
                "Nothing was written. Cast the column first."
            ) from error
        columns.append(
            StoredColumn(
                item,
                column,
                _stored_field(item, layout.mapping),
                has_empty_as_null=item.name in empty_as_null,
                width=char_width(item),
                is_partition=item.name in partitions,
            )
        )
    return columns


def _hidden_column(item: StructField, rows: FileLayout) -> StoredColumn:
    stored = _stored_field(item, ColumnMappingMode.NONE)
    return StoredColumn(item, rows.column(item), stored, has_empty_as_null=False, width=0, is_partition=False)


def _stored_field(item: StructField, mapping: ColumnMappingMode) -> pa.Field:
    """The field of data files, all of whose values may be null, as Spark writes it."""
    mapped = mapping is not ColumnMappingMode.NONE
    metadata = {_FIELD_ID: str(field_id(item)).encode()} if mapped else None
    return pa.field(physical_name(item, mapping), _stored_type(item.type, mapping), nullable=True, metadata=metadata)


def _stored_type(data_type: DataType, mapping: ColumnMappingMode) -> pa.DataType:
    match data_type:
        case StructType():
            return pa.struct([_stored_field(item, mapping) for item in data_type.fields])
        case ArrayType():
            return pa.list_(pa.field("element", _stored_type(data_type.element_type, mapping)))
        case MapType():
            key = pa.field("key", _stored_type(data_type.key_type, mapping), nullable=False)
            return pa.map_(key, pa.field("value", _stored_type(data_type.value_type, mapping)))
        case _:
            return arrow_type(data_type)


def _relabelled(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The same values, with the names of fields that ``target`` has."""
    if pat.is_struct(target):
        children = [_relabelled(array.field(place), target.field(place).type) for place in range(target.num_fields)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if pat.is_map(target):
        parts = [_relabelled(array.keys, target.key_type), _relabelled(array.items, target.item_type)]
        entry = pa.struct([target.key_field, target.item_field])
        entries = pa.Array.from_buffers(entry, len(parts[0]), [None], children=parts)
        return pa.Array.from_buffers(target, len(array), array.buffers()[:2], -1, array.offset, [entries])
    if pat.is_list(target):
        values = _relabelled(array.values, target.value_type)
        return pa.Array.from_buffers(target, len(array), array.buffers()[:2], -1, array.offset, [values])
    return array


def without_empty(array: pa.Array, data_type: DataType) -> pa.Array:
    """NULL for the texts that a partition column stores as NULL."""
    empty = [b""] if data_type == BINARY else ["", HIVE_DEFAULT_PARTITION]
    is_empty = pc.is_in(array, value_set=pa.array(empty, array.type))
    return pc.if_else(is_empty, pa.scalar(None, array.type), array)


def _check_micros(array: pa.Array, name: str) -> None:
    """Refuse times with a fraction of a microsecond, which Delta does not store.

    Raises:
        InvalidDataError: naming the column.
    """
    kind = array.type
    if pat.is_timestamp(kind) and kind.unit == "ns":
        try:
            array.cast(pa.timestamp("us", kind.tz))
        except pa.ArrowInvalid as error:
            raise InvalidDataError(
                f"The column {name!r} has a time with a fraction of a microsecond, which Delta does not store. Nothing was "
                "committed. Round the column to microseconds."
            ) from error
    elif not _has_nanoseconds(kind):
        return
    elif pat.is_dictionary(kind):
        _check_micros(array.dictionary_decode(), name)
    elif pat.is_run_end_encoded(kind):
        _check_micros(pc.run_end_decode(array), name)
    elif pat.is_struct(kind):
        for place, item in enumerate(kind):
            _check_micros(pc.struct_field(array, [place]), f"{name}.{item.name}")
    elif pat.is_map(kind):
        array = array.filter(array.is_valid())
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        for part, values in (("key", array.keys), ("value", array.items)):
            _check_micros(values.slice(first, last - first), f"{name}.{part}")
    else:
        _check_micros(pc.list_flatten(array), f"{name}.element")


def _has_nanoseconds(kind: pa.DataType) -> bool:
    """Whether a type has times in nanoseconds inside."""
    if pat.is_timestamp(kind):
        return bool(kind.unit == "ns")
    if pat.is_dictionary(kind) or pat.is_run_end_encoded(kind):
        return _has_nanoseconds(kind.value_type)
    return any(_has_nanoseconds(kind.field(place).type) for place in range(kind.num_fields))
