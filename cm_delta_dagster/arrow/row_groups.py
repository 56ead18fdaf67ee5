"""Skipping row groups by the statistics of a Parquet footer.

Conservative: a condition that cannot be evaluated on statistics excludes no row group. The rows of the remaining groups are
filtered later.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow.parquet as pq

from cm_delta_dagster.arrow.columns import FileLayout
from cm_delta_dagster.protocol.predicates.predicates import (
    And,
    Comparison,
    ComparisonOperator,
    In,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    column_path,
    columns_of,
    fold,
)
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructType
from cm_delta_dagster.protocol.statistics.data_skipping import is_ordered_by_bytes

_Op = ComparisonOperator
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    **dict.fromkeys(("float", "double"), (int, float)),
    "string": str,
    "date": date,
}


def kept_row_groups(
    metadata: pq.FileMetaData,
    layout: FileLayout,
    predicate: Predicate | None,
    schema: StructType,
    partition_names: Collection[str],
) -> list[int]:
    """Positions of the row groups that may hold a row for which ``predicate`` is true.

    Values of partition columns inside a file are ignored: partition values come from the log.
    """
    groups = range(metadata.num_row_groups)
    if predicate is None:
        return list(groups)
    leaves = _leaves(layout, predicate, schema, partition_names)
    if not leaves:
        return list(groups)
    return [group for group in groups if _may_match(predicate, metadata.row_group(group), leaves)]


def _leaves(
    layout: FileLayout, predicate: Predicate, schema: StructType, partition_names: Collection[str]
) -> dict[str, tuple[int, str]]:
    """Parquet column and type of each flat column of the predicate that is stored with its own type."""
    leaves = {}
    for column in columns_of(predicate):
        path = column_path(column)
        item = schema.field(path[0]) if len(path) == 1 else None
        if item is None or item.name in partition_names:
            continue
        if not isinstance(item.type, PrimitiveType) or not is_ordered_by_bytes(item):
            continue
        leaf = layout.flat_leaf(item)
        if leaf is not None:
            leaves[column] = (leaf, item.type.name)
    return leaves


def _may_match(predicate: Predicate, group: pq.RowGroupMetaData, leaves: Mapping[str, tuple[int, str]]) -> bool:
    chunks: dict[int, _Chunk] = {}

    def leaf_may_match(leaf: Predicate) -> bool:
        if not isinstance(leaf, Comparison | In | IsNull | IsNotNull) or leaf.column not in leaves:
            return True
        position, kind = leaves[leaf.column]
        if position not in chunks:
            column = group.column(position)
            chunks[position] = _Chunk(statistics=column.statistics, num_values=column.num_values)
        return _may_hold(leaf, chunks[position], kind)

    return fold(predicate, leaf_may_match, _combined)


def _combined(node: And | Or | Not, answers: Sequence[bool]) -> bool:
    if isinstance(node, Not):
        return True
    return all(answers) if isinstance(node, And) else any(answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Footer entry of a column in one row group."""

    statistics: pq.Statistics | None
    num_values: int


def _may_hold(leaf: Predicate, chunk: _Chunk, kind: str) -> bool:
    statistics = chunk.statistics
    if statistics is None:
        return True
    nulls = statistics.null_count if statistics.has_null_count else None
    match leaf:
        case IsNull():
            return nulls != 0
        case IsNotNull():
            return nulls is None or nulls < chunk.num_values
        case In(values=values) if statistics.has_min_max:
            return any(_may_compare(_Op.EQ, value, statistics, kind) for value in values if value is not None)
        case Comparison(operator=operator, value=value) if statistics.has_min_max and value is not None:
            return _may_compare(operator, value, statistics, kind)
    return True


def _may_compare(operator: ComparisonOperator, value: Any, statistics: pq.Statistics, kind: str) -> bool:
    if (
        kind not in _KINDS
        or not isinstance(value, _KINDS[kind])
        or isinstance(value, bool | datetime)
        or value != value
    ):
        return True
    try:
        least, greatest = statistics.min, statistics.max
        if kind == "string":
            # Python compares texts by code points, which is the order of their UTF-8 bytes.
            least, greatest = str(least), str(greatest)
        is_above, is_below = value > greatest, value < least
        is_lowest, is_highest = value <= least, value >= greatest
    except (TypeError, ValueError, OverflowError, UnicodeDecodeError):
        return True
    # The maximum of floats excludes NaN, which is greater than all numbers.
    may_be_above_all = kind in ("float", "double")
    match operator:
        case _Op.EQ | _Op.NULL_SAFE_EQ:
            return not (is_above or is_below)
        case _Op.LT:
            return not is_lowest
        case _Op.LE:
            return not is_below
        case _Op.GT:
            return may_be_above_all or not is_highest
        case _Op.GE:
            return may_be_above_all or not is_above
        case _:
            return True
