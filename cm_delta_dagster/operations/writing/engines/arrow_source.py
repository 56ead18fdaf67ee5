"""The source of a merge as Arrow has it in memory."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import starmap

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.joined_rows import JoinSource
from cm_delta_dagster.arrow.keyed_rows import KeyedRows
from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.arrow.schema import arrow_type
from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows, caller_batches
from cm_delta_dagster.arrow.write.row_rules import guard_needs_spark
from cm_delta_dagster.arrow.write.stored_columns import StoredColumn, converted_columns, without_empty
from cm_delta_dagster.errors import InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.protocol.actions.empty_partition_text import stored_as_null
from cm_delta_dagster.protocol.changes.source_facts import SourceFacts, check_keys_are_stored
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.features.computed_columns import check_sources
from cm_delta_dagster.protocol.features.row_tracking import row_id_namesake
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.key_ranges import MOST_PARTITIONS, key_range
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate, column_path, columns_of
from cm_delta_dagster.protocol.predicates.references import KeyPair
from cm_delta_dagster.protocol.schema.char_types import COLLATIONS_METADATA, char_width
from cm_delta_dagster.protocol.schema.evolution import as_nullable
from cm_delta_dagster.protocol.schema.types import (
    DOUBLE,
    FLOAT,
    INTEGERS,
    VARIANT,
    VOID,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)


def source_needs_spark(
    offered: StructType, layout: TableLayout, keys: Sequence[str], where: Predicate | None
) -> str | None:
    """Why only Spark can merge rows by their keys, for a message; None if Arrow can.

    Args:
        offered: the columns of the rows.
        layout: of the table after the merge.
        where: the slice of the merge.
    """
    for item in layout.schema.fields:
        if item.name in keys and not _is_looked_up(item):
            return f"only Spark compares the key column {item.name!r}"
    reason = ids_need_spark(layout.schema) or lacks_generated_source(layout.schema, offered)
    if reason is not None:
        return reason
    if where is None:
        return None
    if any(offered.field(column_path(column)[0]) is None for column in columns_of(where)):
        return "the rows lack a column of the slice"
    return guard_needs_spark(where, layout.schema)


def key_needs_spark(pair: KeyPair, schema: StructType, offered: StructType) -> str | None:
    """Why only Spark can compare a column of the table with one of the source, for a message; None if Arrow can."""
    item, taken = schema.field(pair.target), offered.field(pair.source)
    assert item is not None and taken is not None, "both sides have the columns of a key"
    is_looked_up = _is_looked_up(item) and not char_width(item) and not _is_nested(item.type)
    if is_looked_up and (item.type == taken.type or {item.type, taken.type} <= set(INTEGERS)):
        return None
    return f"only Spark compares the column {item.name!r} of the table with the column {taken.name!r} of the source"


def _is_looked_up(item: StructField) -> bool:
    return item.type not in (FLOAT, DOUBLE) and COLLATIONS_METADATA not in item.metadata


def _is_nested(data_type: DataType) -> bool:
    return not isinstance(data_type, PrimitiveType | DecimalType) or data_type in (VARIANT, VOID)


def ids_need_spark(schema: StructType) -> str | None:
    """Why only Spark can change rows of a table with this schema, for a message; None if Arrow can."""
    name = row_id_namesake(schema)
    return None if name is None else f"the table has a column named {name!r}"


def lacks_generated_source(schema: StructType, offered: StructType) -> str | None:
    """Why only Spark can insert rows with the columns ``offered``, for a message; None if Arrow can."""
    try:
        check_sources(schema, offered)
    except SchemaMismatchError:
        return "the rows lack a column from which a generated column is computed"
    return None


def keyed_source(rows: ArrowRows, layout: TableLayout, keys: Sequence[str]) -> JoinSource:
    """The rows as readers of the table will see them, with the columns that they have of the table.

    Raises:
        InvalidDataError: the stream of the rows failed, a value cannot be stored, or a key would be stored as NULL.
        InvalidArgumentError: a column has an Arrow type that is not converted.
    """
    columns = [column for column in converted_columns(rows.source.schema, layout) if column.column.source is not None]
    batches = _in_memory(rows)
    stored = _values(columns, batches)
    for column in columns:
        if column.item.name in keys:
            _check_stored(column, batches, stored, keys)
    return JoinSource(keys=KeyedRows(stored.select(list(keys)), keys), offered=stored.select([]), stored=stored)


def join_source(
    rows: ArrowRows, layout: TableLayout, keys: Sequence[KeyPair], *, stored: Collection[str], offered: Collection[str]
) -> JoinSource:
    """The rows for a merge with clauses.

    Args:
        keys: of which :func:`key_needs_spark` says nothing.
        stored: columns that clauses take as the table stores them, under the names of the table.
        offered: columns that expressions name.

    Raises:
        InvalidDataError: the stream of the rows failed, or a value cannot be stored.
        InvalidArgumentError: a column has an Arrow type that is not converted, or more than 2 GiB of values.
    """
    named = {*offered, *(pair.source for pair in keys)}
    fields = [StructField(item.name, as_nullable(item.type)) for item in rows.schema.fields if item.name in named]
    plain = replace(layout, schema=StructType(tuple(fields)), partition_columns=(), mapping=ColumnMappingMode.NONE)
    stored_fields = tuple(item for item in layout.schema.fields if item.name in stored)
    batches = _in_memory(rows)
    offered_rows = _values(converted_columns(rows.source.schema, plain), batches)
    columns = converted_columns(rows.source.schema, replace(layout, schema=StructType(stored_fields)))
    empty_as_null = stored_as_null(layout.schema, layout.partition_columns)
    by_name = {}
    for pair in keys:
        item, taken = layout.schema.field(pair.target), rows.schema.field(pair.source)
        assert item is not None and taken is not None, "both sides have the columns of a key"
        values = offered_rows[pair.source].combine_chunks()
        if item.type in INTEGERS:
            values = values.cast(arrow_type(max(item.type, taken.type, key=INTEGERS.index)))
        by_name[pair.target] = without_empty(values, item.type) if item.name in empty_as_null else values
    null_safe = [pair.target for pair in keys if pair.has_nulls]
    return JoinSource(
        keys=KeyedRows(pa.table(by_name), list(by_name), null_safe),
        offered=offered_rows,
        stored=_values(columns, batches),
    )


def _in_memory(rows: ArrowRows) -> list[pa.RecordBatch]:
    """The rows, usually in one batch, and in one without rows if there are none."""
    table = pa.Table.from_batches(list(caller_batches(rows.reader())), rows.source.schema).combine_chunks()
    return table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]


def _values(columns: Sequence[StoredColumn], batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The values of columns under their names. With no column there are no rows."""
    names = [column.item.name for column in columns]
    parts = [pa.table([column.values(batch) for column in columns], names) for batch in batches]
    rows = pa.concat_tables(parts).combine_chunks()
    for name in names:
        if rows[name].num_chunks > 1:
            raise InvalidArgumentError(
                f"The column {name!r} of the rows has more than 2 GiB of values, which Arrow does not hold in memory as one "
                "column. Nothing was committed. Merge the rows in parts, or by Spark."
            )
    return rows


def _check_stored(
    column: StoredColumn, batches: Sequence[pa.RecordBatch], stored: pa.Table, keys: Sequence[str]
) -> None:
    """Refuse a key that a partition column stores as NULL."""
    if not column.has_empty_as_null:
        return
    offered = pa.chunked_array([batch.column(column.column.source) for batch in batches])
    lost = pc.and_(offered.is_valid(), stored[column.item.name].is_null())
    row = pc.index(lost, pa.scalar(True)).as_py()
    if row >= 0:
        text = _key_text(stored, [name for name in keys if name != column.item.name], row)
        text = ", ".join(part for part in (text, f"{column.item.name} = ") if part)
        facts = SourceFacts(num_rows=0, duplicate=None, outside=None, key_range=AlwaysTrue(), empty_key=text)
        check_keys_are_stored(facts)


def arrow_source_facts(source: JoinSource, layout: TableLayout, where: Predicate | None) -> SourceFacts:
    """The facts of a source of :func:`keyed_source`.

    Args:
        where: the slice of the merge.
    """
    keys, outside = source.keys, None
    if where is not None:
        answer = row_filter(where, layout.schema).answer(
            lambda name: source.stored[name].combine_chunks(), source.num_rows
        )
        row = pc.index(answer.fill_null(False), pa.scalar(False)).as_py()
        outside = _key_text(keys.rows, keys.names, row) if row >= 0 else None
    return SourceFacts(
        num_rows=source.num_rows,
        duplicate=None if keys.duplicate is None else _key_text(keys.rows, keys.names, keys.duplicate),
        outside=outside,
        key_range=arrow_key_range(keys, layout),
    )


def arrow_key_range(keys: KeyedRows, layout: TableLayout) -> Predicate:
    """A condition that every row of the table with one of the keys satisfies, and that Arrow evaluates."""
    fields = [(name, item.type) for name in keys.names if (item := layout.schema.field(name)) is not None]
    if any(keys.rows.schema.field(name).type != arrow_type(data_type) for name, data_type in fields):
        return AlwaysTrue()  # The keys are wider integers.
    known = key_range(fields, keys.bounds(layout.partition_columns, MOST_PARTITIONS + 1))
    return AlwaysTrue() if guard_needs_spark(known, layout.schema) else known


def _key_text(rows: pa.Table, keys: Sequence[str], row: int) -> str:
    values = [(name, rows[name][row]) for name in keys]
    return ", ".join(starmap(_part, values))


def _part(name: str, value: pa.Scalar) -> str:
    return f"{name} = {value.as_py() if value.is_valid else 'NULL'}"
