"""The source of a merge as Arrow has it: in memory, or, if it is large, in temporary local files."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import chain, starmap

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.joined_rows import JoinSource
from cm_delta_dagster.arrow.keyed_rows import KeyedRows
from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.arrow.schema import arrow_type
from cm_delta_dagster.arrow.spill.spooled_rows import sized_batches, spooled
from cm_delta_dagster.arrow.spilled_keys import SpilledKeys
from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows, caller_batches
from cm_delta_dagster.arrow.write.row_rules import guard_needs_spark
from cm_delta_dagster.arrow.write.stored_columns import StoredColumn, converted_columns, without_empty
from cm_delta_dagster.errors import SchemaMismatchError
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
    INTEGERS,
    VARIANT,
    VOID,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)

_MOST_BYTES = 2**29
"""A source of more bytes is kept in temporary files."""
_CHUNK_ROWS = 2**20
_CHUNK_BYTES = 2**26
"""So many rows or bytes of a large source are converted and written at a time."""
_KEY, _OFFERED, _STORED = "k.", "o.", "s."
"""What the names of columns begin with while those of a source are in one table."""


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


def key_needs_spark(pair: KeyPair, layout: TableLayout, offered: StructType) -> str | None:
    """Why only Spark can compare a column of the table with one of the source, for a message; None if Arrow can."""
    item, taken = layout.schema.field(pair.target), offered.field(pair.source)
    assert item is not None and taken is not None, "both sides have the columns of a key"
    is_looked_up = _is_looked_up(item) and _is_looked_up(taken) and not _is_nested(item.type)
    if char_width(item):
        # A partition column has no empty texts, and other texts of blanks.
        is_looked_up &= item.name not in stored_as_null(layout.schema, layout.partition_columns)
    if (
        is_looked_up
        and char_width(taken) in (0, char_width(item))
        and (item.type == taken.type or {item.type, taken.type} <= set(INTEGERS))
    ):
        return None
    return f"only Spark compares the column {item.name!r} of the table with the column {taken.name!r} of the source"


def _is_looked_up(item: StructField) -> bool:
    return COLLATIONS_METADATA not in item.metadata


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

    def converted(batch: pa.RecordBatch) -> pa.Table:
        stored = _values(columns, batch)
        for column in columns:
            if column.item.name in keys:
                _check_stored(column, batch, stored, keys)
        return stored

    stored = _all_values(rows, converted)
    return JoinSource(keys=_keyed(stored.select(list(keys)), keys, ()), offered=stored.select([]), stored=stored)


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
        InvalidArgumentError: a column has an Arrow type that is not converted.
    """
    named = {*offered, *(pair.source for pair in keys)}
    fields = [StructField(item.name, as_nullable(item.type)) for item in rows.schema.fields if item.name in named]
    plain = replace(layout, schema=StructType(tuple(fields)), partition_columns=(), mapping=ColumnMappingMode.NONE)
    stored_fields = tuple(item for item in layout.schema.fields if item.name in stored)
    offered_columns = converted_columns(rows.source.schema, plain)
    stored_columns = converted_columns(rows.source.schema, replace(layout, schema=StructType(stored_fields)))
    empty_as_null = stored_as_null(layout.schema, layout.partition_columns)

    def converted(batch: pa.RecordBatch) -> pa.Table:
        values, by_name = _values(offered_columns, batch), {}
        for number, pair in enumerate(keys):
            item, taken = layout.schema.field(pair.target), rows.schema.field(pair.source)
            assert item is not None and taken is not None, "both sides have the columns of a key"
            key = values[pair.source].combine_chunks()
            if item.type in INTEGERS:
                key = key.cast(arrow_type(max(item.type, taken.type, key=INTEGERS.index)))
            if char_width(item):
                key = pc.utf8_rpad(key, char_width(item))
            by_name[f"{_KEY}{number}"] = without_empty(key, item.type) if item.name in empty_as_null else key
        sides = ((_OFFERED, values), (_STORED, _values(stored_columns, batch)))
        by_name |= {f"{side}{name}": table[name] for side, table in sides for name in table.column_names}
        return pa.table(by_name)

    table = _all_values(rows, converted)
    names = [pair.target for pair in keys]
    return JoinSource(
        keys=_keyed(
            _with_prefix(table, _KEY).rename_columns(names), names, [pair.target for pair in keys if pair.has_nulls]
        ),
        offered=_with_prefix(table, _OFFERED),
        stored=_with_prefix(table, _STORED),
    )


def _with_prefix(table: pa.Table, prefix: str) -> pa.Table:
    """The columns whose names begin with a prefix, without it."""
    names = [name for name in table.column_names if name.startswith(prefix)]
    return table.select(names).rename_columns([name.removeprefix(prefix) for name in names])


def _keyed(rows: pa.Table, names: Sequence[str], null_safe: Collection[str]) -> KeyedRows | SpilledKeys:
    is_large = rows.num_columns and rows.column(0).num_chunks > 1
    return (SpilledKeys if is_large else KeyedRows)(rows, names, null_safe)


def _all_values(rows: ArrowRows, converted: Callable[[pa.RecordBatch], pa.Table]) -> pa.Table:
    """The values of all rows: in memory and not chunked, or, of many bytes, in a file and in several chunks.

    Args:
        converted: returns the values of a batch.
    """
    batches = sized_batches(caller_batches(rows.reader()), num_rows=_CHUNK_ROWS, num_bytes=_CHUNK_BYTES)
    parts = map(converted, chain(batches, [pa.RecordBatch.from_pylist([], rows.source.schema)]))
    taken, size = [], 0
    for part in parts:
        taken.append(part)
        size += part.nbytes
        if size > _MOST_BYTES:
            return spooled(chain(taken, parts))
    return pa.concat_tables(taken).combine_chunks()


def _values(columns: Sequence[StoredColumn], batch: pa.RecordBatch) -> pa.Table:
    """The values of columns under their names. With no column there are no rows."""
    return pa.table([column.values(batch) for column in columns], [column.item.name for column in columns])


def _check_stored(column: StoredColumn, batch: pa.RecordBatch, stored: pa.Table, keys: Sequence[str]) -> None:
    """Refuse a key that a partition column stores as NULL."""
    if not column.has_empty_as_null:
        return
    offered = batch.column(column.column.source)
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
        outside = _outside(source, layout, where)
    return SourceFacts(
        num_rows=source.num_rows,
        duplicate=None if keys.duplicate is None else _key_text(keys.rows, keys.names, keys.duplicate),
        outside=outside,
        key_range=arrow_key_range(keys, layout),
    )


def _outside(source: JoinSource, layout: TableLayout, where: Predicate) -> str | None:
    """The key of a row for which the slice is not true; None if there is none."""
    first = 0
    for batch in source.stored.to_batches():
        answer = row_filter(where, layout.schema).answer(batch.column, batch.num_rows)
        row = pc.index(answer.fill_null(False), pa.scalar(False)).as_py()
        if row >= 0:
            return _key_text(source.keys.rows, source.keys.names, first + row)
        first += batch.num_rows
    return None


def arrow_key_range(keys: KeyedRows | SpilledKeys, layout: TableLayout) -> Predicate:
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
