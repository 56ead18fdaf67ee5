"""Computes exact row counts, minima and maxima from the log (protocol headings "Per-file Statistics", "Deletion Vectors").

The rules are those of delta-spark's metadata-only queries, and stricter where writers differ: bounds are used only if they are
tight, belong to files without deletion vectors and have a type whose bounds are written without loss. Aggregates that are not
known exactly are left out; the caller then reads rows.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.actions.partition_values import partition_value_array
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import (
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)
from cm_delta_dagster.protocol.statistics.data_skipping import (
    is_ordered_by_bytes,
    keep_mask,
    partition_matches_exactly,
    was_float,
)
from cm_delta_dagster.protocol.statistics.file_index import FileIndex
from cm_delta_dagster.protocol.statistics.stats_json import WIDE_BOUNDS, ParsedStatistics

_WHOLE = frozenset({"byte", "short", "integer", "long", "date"})
_FLOATING = frozenset({"float", "double"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAggregates:
    """Aggregates that are known exactly.

    Attributes:
        num_rows: number of rows; None if it is not known.
        minimums, maximums: known values by column; None stands for NULL, the result if no row has a value.
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
    zone: tzinfo | None = None,
) -> MetadataAggregates:
    """Compute exact aggregates of the rows in live ``files`` for which ``where`` holds.

    Args:
        files: columns of ``ADD_SCHEMA``.
        columns: names of top-level columns, matched ignoring case, whose minima and maxima are computed.
        schema, partition_columns, mapping: those of the table.
        where: a condition. The result is empty unless partition values decide it for every file.
        index: cache of parsed columns of ``files``.
        zone: time zone of ``timestamp`` partition values that state none; None if it is unknown.

    Raises:
        InvalidArgumentError: the table does not have one of the ``columns``.
    """
    fields = [_existing_field(name, schema) for name in columns]
    index = index or FileIndex()
    if where is not None:
        shape: dict[str, Any] = {
            "schema": schema,
            "partition_columns": partition_columns,
            "mapping": mapping,
            "zone": zone,
        }
        files = files.filter(keep_mask(files, where, index=index, **shape))
        if files.num_rows and not pc.all(partition_matches_exactly(files, where, **shape)).as_py():
            return MetadataAggregates(num_rows=None)
        index = FileIndex()
    with_statistics = [item for item in fields if _is_exact(item) and item.name not in partition_columns]
    types: dict[ColumnPath, DataType] = {(physical_name(item, mapping),): item.type for item in with_statistics}
    statistics = index.statistics(files, types)
    counts = _logical_counts(files, statistics.num_records)
    if counts.null_count:
        return MetadataAggregates(num_rows=None)
    # Files without rows may lack statistics, and their partition values do not count.
    has_rows = pc.greater(counts, 0)
    exact = types if types and _has_exact_bounds(files) else {}
    bounds: dict[str, Mapping[str, Any]] = {}
    for item in fields:
        path = (physical_name(item, mapping),)
        if item.name in partition_columns and _is_exact_partition(item):
            values = partition_value_array(partition_column(files.filter(has_rows), path[0]), item.type)
            with suppress(OverflowError, ValueError):  # Python has no years after 9999.
                bounds[item.name] = pc.min_max(values).as_py()
        elif path in exact:
            bounds[item.name] = _exact_bounds(statistics, path, has_rows, item.type)
    minimums = {name: known["min"] for name, known in bounds.items() if "min" in known}
    maximums = {name: known["max"] for name, known in bounds.items() if "max" in known}
    return MetadataAggregates(num_rows=pc.sum(counts).as_py() or 0, minimums=minimums, maximums=maximums)


def _exact_bounds(
    statistics: ParsedStatistics, path: ColumnPath, has_rows: pa.BooleanArray, data_type: DataType
) -> dict[str, Any]:
    """The ``min`` and ``max`` of a column over the files with rows, if they are known exactly."""
    low, high = (bounds[path].filter(has_rows) for bounds in (statistics.minimums, statistics.maximums))
    only_nulls = pc.equal(statistics.null_counts[path], statistics.num_records).filter(has_rows)
    bounds = {}
    if _is_complete(low, only_nulls):
        bounds["min"] = _value(pc.min(low), data_type)
    # NaN is the greatest value, and the bounds of some writers ignore it.
    if _is_complete(high, only_nulls) and getattr(data_type, "name", "") not in _FLOATING:
        bounds["max"] = _value(pc.max(high), data_type)
    return bounds


def _existing_field(name: str, schema: StructType) -> StructField:
    item = schema.field(name)
    if item is None:
        raise InvalidArgumentError(f"The table has no column {name!r}; its columns are {', '.join(schema.names)}.")
    return item


def _is_exact(item: StructField) -> bool:
    """Whether statistics contain the column's bounds without loss; not so for decimals, strings and timestamps."""
    return isinstance(item.type, PrimitiveType) and item.type.name in _WHOLE | _FLOATING and not was_float(item)


def _is_exact_partition(item: StructField) -> bool:
    whole = isinstance(item.type, PrimitiveType) and item.type.name in _WHOLE | {"string"}
    return (whole or isinstance(item.type, DecimalType)) and is_ordered_by_bytes(item)


def _logical_counts(files: pa.Table, records: pa.Array) -> pa.Array:
    """Rows of each file without those marked as deleted by its deletion vector; null where unknown."""
    vectors = files["deletionVector"].combine_chunks()
    if isinstance(vectors, pa.ChunkedArray):
        vectors = pa.concat_arrays(vectors.chunks)
    deleted = pc.struct_field(vectors, "cardinality").fill_null(0)
    counts = pc.subtract(records, deleted)
    return pc.if_else(pc.less(counts, 0), pa.scalar(None, pa.int64()), counts)


def _has_exact_bounds(files: pa.Table) -> bool:
    has_vector = pc.any(pc.is_valid(files["deletionVector"])).as_py() or False
    return not has_vector and not (pc.any(pc.match_substring_regex(files["stats"], WIDE_BOUNDS)).as_py() or False)


def _is_complete(bounds: pa.Array, only_nulls: pa.BooleanArray) -> bool:
    """Whether each file has the bound, or has only nulls in the column."""
    known = pc.or_(bounds.is_valid(), pc.and_(bounds.is_null(), only_nulls.fill_null(False)))
    return only_nulls.null_count == 0 and bool(pc.all(known).as_py() in (True, None))


def _value(bound: pa.Scalar, data_type: DataType) -> Any:
    value = bound.as_py()
    # Converts -0.0 to 0.0; the two are equal in Spark.
    return value + 0.0 if isinstance(value, float) else value
