"""The source of a merge by key as Arrow has it in memory."""

from collections.abc import Sequence
from itertools import starmap

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.keyed_rows import KeyedRows
from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.arrow.write.arrow_rows import ArrowRows, caller_batches
from cm_delta_dagster.arrow.write.row_rules import guard_needs_spark
from cm_delta_dagster.arrow.write.stored_columns import StoredColumn, converted_columns
from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.protocol.changes.source_facts import SourceFacts, check_keys_are_stored
from cm_delta_dagster.protocol.features.computed_columns import check_sources
from cm_delta_dagster.protocol.features.row_tracking import row_id_namesake
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.key_ranges import MOST_PARTITIONS, key_range
from cm_delta_dagster.protocol.predicates.predicates import AlwaysTrue, Predicate, column_path, columns_of
from cm_delta_dagster.protocol.schema.char_types import COLLATIONS_METADATA
from cm_delta_dagster.protocol.schema.types import DOUBLE, FLOAT, StructType


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
        if item.name in keys and (item.type in (FLOAT, DOUBLE) or COLLATIONS_METADATA in item.metadata):
            return f"only Spark compares the key column {item.name!r}"
    if (name := row_id_namesake(layout.schema)) is not None:
        return f"the table has a column named {name!r}"
    try:
        check_sources(layout.schema, offered)
    except SchemaMismatchError:
        return "the rows lack a column from which a generated column is computed"
    if where is None:
        return None
    if any(offered.field(column_path(column)[0]) is None for column in columns_of(where)):
        return "the rows lack a column of the slice"
    return guard_needs_spark(where, layout.schema)


def keyed_source(rows: ArrowRows, layout: TableLayout, keys: Sequence[str]) -> KeyedRows:
    """The rows as readers of the table will see them, with the columns that they have of the table.

    Raises:
        InvalidDataError: the stream of the rows failed, a value cannot be stored, or a key would be stored as NULL.
        InvalidArgumentError: a column has an Arrow type that is not converted.
    """
    columns = [column for column in converted_columns(rows.source.schema, layout) if column.column.source is not None]
    table = pa.Table.from_batches(list(caller_batches(rows.reader())), rows.source.schema).combine_chunks()
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    names = [column.item.name for column in columns]
    parts = [pa.table([column.values(batch) for column in columns], names) for batch in batches]
    for batch, part in zip(batches, parts, strict=True):
        for column in columns:
            if column.item.name in keys:
                _check_stored(column, batch, part, keys)
    return KeyedRows(pa.concat_tables(parts).combine_chunks(), keys)


def _check_stored(column: StoredColumn, batch: pa.RecordBatch, stored: pa.Table, keys: Sequence[str]) -> None:
    """Refuse a key that a partition column stores as NULL."""
    if not column.has_empty_as_null:
        return
    lost = pc.and_(batch.column(column.column.source).is_valid(), stored[column.item.name].combine_chunks().is_null())
    row = pc.index(lost, pa.scalar(True)).as_py()
    if row >= 0:
        text = _key_text(stored, [name for name in keys if name != column.item.name], row)
        text = ", ".join(part for part in (text, f"{column.item.name} = ") if part)
        facts = SourceFacts(num_rows=0, duplicate=None, outside=None, key_range=AlwaysTrue(), empty_key=text)
        check_keys_are_stored(facts)


def arrow_source_facts(source: KeyedRows, layout: TableLayout, where: Predicate | None) -> SourceFacts:
    """The facts of a source of :func:`keyed_source`.

    Args:
        where: the slice of the merge.
    """
    duplicate, outside = source.duplicate(), None
    if where is not None:
        answer = row_filter(where, layout.schema).answer(
            lambda name: source.rows[name].combine_chunks(), source.rows.num_rows
        )
        row = pc.index(answer.fill_null(False), pa.scalar(False)).as_py()
        outside = _key_text(source.rows, source.names, row) if row >= 0 else None
    fields = [(name, item.type) for name in source.names if (item := layout.schema.field(name)) is not None]
    known = key_range(fields, source.bounds(layout.partition_columns, MOST_PARTITIONS + 1))
    return SourceFacts(
        num_rows=source.rows.num_rows,
        duplicate=None if duplicate is None else _key_text(source.rows, source.names, duplicate),
        outside=outside,
        key_range=AlwaysTrue() if guard_needs_spark(known, layout.schema) else known,
    )


def _key_text(rows: pa.Table, keys: Sequence[str], row: int) -> str:
    values = [(name, rows[name][row]) for name in keys]
    return ", ".join(starmap(_part, values))


def _part(name: str, value: pa.Scalar) -> str:
    return f"{name} = {value.as_py() if value.is_valid else 'NULL'}"
