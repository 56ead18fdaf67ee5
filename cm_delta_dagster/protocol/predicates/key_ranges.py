"""Ranges of the keys of a merge as conditions on the table, by which files are skipped (protocol heading "Per-file Statistics")."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from cm_delta_dagster.protocol.predicates.predicates import (
    Comparison,
    ComparisonOperator,
    In,
    Predicate,
    conjunction,
    quote_column,
)
from cm_delta_dagster.protocol.schema.types import DATE, TIMESTAMP, TIMESTAMP_NTZ, DataType

MOST_PARTITIONS = 100
"""Up to this many partition values, the condition of a merge lists them; beyond, it has their range."""
_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def key_range(keys: Sequence[tuple[str, DataType]], values: Mapping[str, Any]) -> Predicate:
    """A predicate that holds for every row of the table whose keys are those of a row of the source.

    Args:
        keys: columns of the table with their types.
        values: bounds of the keys of the source, by ``min_k0``, ``max_k0``, ``min_k1``, ..., and the first sorted values by
            ``all_k0``, ...; dates as days and timestamps as microseconds since the epoch, ``timestamp_ntz`` as ISO text.
    """
    parts: list[Predicate] = []
    for i, (name, data_type) in enumerate(keys):
        least, greatest = values.get(f"min_k{i}"), values.get(f"max_k{i}")
        if least is None or greatest is None:
            continue
        known: list[Any] = values.get(f"all_k{i}") or []
        try:
            low, high, *named = (_value(bound, data_type) for bound in (least, greatest, *known))
        except (ValueError, OverflowError):
            continue  # Python's dates cannot hold the bound: no condition on this key.
        column = quote_column((name,))
        if 0 < len(named) <= MOST_PARTITIONS:
            parts.append(In(column, tuple(named)))
            continue
        parts.append(Comparison(column, ComparisonOperator.GE, low))
        parts.append(Comparison(column, ComparisonOperator.LE, high))
    return conjunction(parts)


def _value(bound: Any, data_type: DataType) -> Any:
    if data_type == DATE:
        return _EPOCH_DAY + dt.timedelta(days=bound)
    if data_type == TIMESTAMP:
        return _EPOCH + dt.timedelta(microseconds=bound)
    if data_type == TIMESTAMP_NTZ:
        return dt.datetime.fromisoformat(bound)
    return bound
