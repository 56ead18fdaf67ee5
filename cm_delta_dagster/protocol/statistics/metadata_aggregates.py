"""Aggregates answered by the log alone (headings "Per-file Statistics", "Deletion Vectors"): row counts, least and greatest
values, where they are exact (SKIP-6).

The rules are those of delta-spark's metadata-only queries, and stricter where writers differ: bounds count only if they are
tight, of files without deletion vectors, and of types whose bounds are written without loss. What cannot be told exactly is
left out of the answer, for the caller to read rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.actions.partition_values import partition_value_array
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import DataType, DecimalType, PrimitiveType, StructField, StructType
from cm_delta_dagster.protocol.statistics.data_skipping import (
    is_ordered_by_bytes,
    keep_mask,
    partition_matches_exactly,
    was_float,
)
from cm_delta_dagster.protocol.statistics.file_index import FileIndex
from cm_delta_dagster.protocol.statistics.stats_json import ColumnPath

_WHOLE = frozenset({"byte", "short", "integer", "long", "date"})
_FLOATING = frozenset({"float", "double"})
_WIDE_BOUNDS = r'"tightBounds"\s*:\s*false'


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAggregates:
    """What the log tells exactly.

    Attributes:
        num_rows: rows, None if the log does not tell.
        minimums, maximums: by column, only those that are known; None as a value is SQL's NULL: there is no value.
    """

    num_rows: int | None
    minimums: Mapping[str, Any] = field(default_factory=dict)
    maximums: Mapping[str, Any] = field(default_factory=dict)


def metadata_aggregates(
    files: pa.Table,
    columns: Sequence[str] = (),
    *,
    schema: StructType,
    partition_columns: Sequence[str],
    mapping: ColumnMappingMode = ColumnMappingMode.NONE,
    where: Predicate | None = None,
    index: FileIndex | None = None,
) -> MetadataAggregates:
    """Exact aggregates of the rows of live ``files`` for which ``where`` holds.

    Args:
        files: columns of ``ADD_SCHEMA``.
        columns: top-level columns whose least and greatest value are wanted, found ignoring case.
        where: a condition; if partition values alone do not decide it for every file, nothing is known.
        index: remembers parsed columns of ``files``.

    Raises:
        InvalidArgumentError: a column that the table does not have.
    """
    fields = [_known(name, schema) for name in columns]
    index = index or FileIndex()
    if where is not None:
        shape: dict[str, Any] = {"schema": schema, "partition_columns": partition_columns, "mapping": mapping}
        files = files.filter(keep_mask(files, where, index=index, **shape))
        if files.num_rows and not pc.all(partition_matches_exactly(files, where, **shape)).as_py():
            return MetadataAggregates(num_rows=None)
        index = FileIndex()
    wanted: dict[ColumnPath, DataType] = {
        (physical_name(item, mapping),): item.type
        for item in fields
        if _is_exact(item) and item.name not in partition_columns
    }
    statistics = index.statistics(files, wanted)
    counts = _logical_counts(files, statistics.num_records)
    if counts.null_count:
        return MetadataAggregates(num_rows=None)
    # Files without rows may have no statistics, and their partition values are nobody's.
    has_rows = pc.greater(counts, 0)
    minimums: dict[str, Any] = {}
    maximums: dict[str, Any] = {}
    for item in fields:
        path = (physical_name(item, mapping),)
        if item.name in partition_columns:
            if _is_exact_partition(item):
                values = partition_value_array(partition_column(files.filter(has_rows), path[0]), item.type)
                bounds = pc.min_max(values)
                minimums[item.name], maximums[item.name] = bounds["min"].as_py(), bounds["max"].as_py()
        elif path in wanted and _has_exact_bounds(files):
            known = (statistics.minimums[path], statistics.maximums[path])
            low, high = (values.filter(has_rows) for values in known)
            only_nulls = pc.equal(statistics.null_counts[path], statistics.num_records).filter(has_rows)
            if _is_complete(low, only_nulls):
                minimums[item.name] = _value(pc.min(low), item.type)
            # NaN is the greatest value and is missing from the bounds of some writers.
            if _is_complete(high, only_nulls) and getattr(item.type, "name", "") not in _FLOATING:
                maximums[item.name] = _value(pc.max(high), item.type)
    return MetadataAggregates(num_rows=pc.sum(counts).as_py() or 0, minimums=minimums, maximums=maximums)


def _known(name: str, schema: StructType) -> StructField:
    item = schema.field(name)
    if item is None:
        raise InvalidArgumentError(f"The table has no column {name!r}; its columns are {', '.join(schema.names)}.")
    return item


def _is_exact(item: StructField) -> bool:
    """Whether statistics hold the column's bounds without loss: no decimals, strings and timestamps (SKIP-4)."""
    return isinstance(item.type, PrimitiveType) and item.type.name in _WHOLE | _FLOATING and not was_float(item)


def _is_exact_partition(item: StructField) -> bool:
    whole = isinstance(item.type, PrimitiveType) and item.type.name in _WHOLE | {"string"}
    return (whole or isinstance(item.type, DecimalType)) and is_ordered_by_bytes(item)


def _logical_counts(files: pa.Table, records: pa.Array) -> pa.Array:
    """Rows of each file, deleted ones not counted (DV-22); null where unknown."""
    vectors = files["deletionVector"].combine_chunks()
    if isinstance(vectors, pa.ChunkedArray):
        vectors = pa.concat_arrays(vectors.chunks)
    deleted = pc.struct_field(vectors, "cardinality").fill_null(0)
    counts = pc.subtract(records, deleted)
    return pc.if_else(pc.less(counts, 0), pa.scalar(None, pa.int64()), counts)


def _has_exact_bounds(files: pa.Table) -> bool:
    has_vector = pc.any(pc.is_valid(files["deletionVector"])).as_py() or False
    return not has_vector and not (pc.any(pc.match_substring_regex(files["stats"], _WIDE_BOUNDS)).as_py() or False)


def _is_complete(bounds: pa.Array, only_nulls: pa.BooleanArray) -> bool:
    """Whether every file either has the bound or says that all of its values are null."""
    known = pc.or_(bounds.is_valid(), pc.and_(bounds.is_null(), only_nulls.fill_null(False)))
    return only_nulls.null_count == 0 and bool(pc.all(known).as_py() in (True, None))


def _value(bound: pa.Scalar, data_type: DataType) -> Any:
    value = bound.as_py()
    # -0.0 and 0.0 are one value.
    return value + 0.0 if isinstance(value, float) else value
