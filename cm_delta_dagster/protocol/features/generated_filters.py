"""Conditions on generated columns that follow from a condition on the columns that they are computed from.

A table that is partitioned by ``CAST(at AS DATE)`` is queried by ``at``; the derived condition on the date excludes partitions.
Expressions that never decrease while their column grows have such conditions. The writer computed times of day, months and years in
the time zone of its session, which is not known, so bounds are wider by a day, which covers every zone.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cm_delta_dagster.protocol.actions.paths import HIVE_DEFAULT_PARTITION
from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.predicates.predicates import (
    Comparison,
    ComparisonOperator,
    In,
    IsNull,
    Or,
    Predicate,
    column_path,
    conjunction,
    conjuncts,
    quote_column,
)
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA, COLLATIONS_METADATA
from cm_delta_dagster.protocol.schema.types import (
    DATE,
    INTEGER,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    StructType,
)

_Op = ComparisonOperator
_DAY = dt.timedelta(days=1)
_NAME = r"\s*(?:`(?P<quoted>[^`]+)`|(?P<name>[A-Za-z_]\w*))\s*"
_CAST = re.compile(rf"CAST\s*\({_NAME}AS\s+DATE\s*\)", re.IGNORECASE)
_TO_DATE = re.compile(rf"(?:TO_DATE|DATE)\s*\({_NAME}\)", re.IGNORECASE)
_YEAR = re.compile(rf"YEAR\s*\({_NAME}\)", re.IGNORECASE)
_TRUNC = re.compile(rf"DATE_TRUNC\s*\(\s*['\"](?P<unit>\w+)['\"]\s*,{_NAME}\)", re.IGNORECASE)
_PREFIX = re.compile(rf"(?:SUBSTR|SUBSTRING)\s*\({_NAME},\s*1\s*,\s*(?P<length>\d+)\s*\)", re.IGNORECASE)
_LENGTHS: Mapping[str, dt.timedelta] = {
    "hour": dt.timedelta(hours=2),
    "day": 2 * _DAY,
    "week": 8 * _DAY,
    "month": 32 * _DAY,
    "quarter": 93 * _DAY,
    "year": 367 * _DAY,
}
"""At least the length of each unit of ``date_trunc``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Monotone:
    """A generated column that never decreases while ``source`` grows.

    ``lowest`` and ``highest`` give bounds of the generated value for a source of at least, or at most, a value.
    """

    column: str
    source: str
    lowest: Callable[[Any], Any]
    highest: Callable[[Any], Any]


def with_generated_filters(predicate: Predicate, schema: StructType) -> Predicate:
    """``predicate`` and the conditions on generated columns that follow from it; itself if none does."""
    columns = tuple(_monotone_columns(schema))
    if not columns:
        return predicate
    derived: list[Predicate] = []
    for part in conjuncts(predicate):
        if isinstance(part, Comparison | In):
            path = column_path(part.column)
            for column in columns:
                if len(path) == 1 and path[0].lower() == column.source.lower():
                    derived += _derived(part, column)
    return conjunction([predicate, *derived]) if derived else predicate


def _derived(part: Comparison | In, column: _Monotone) -> Iterator[Predicate]:
    values = [part.value] if isinstance(part, Comparison) else list(part.values)
    name = quote_column((column.column,))
    low: Any = None
    high: Any = None
    try:
        if isinstance(part, In) or part.operator is _Op.EQ:
            if values:
                low, high = column.lowest(min(values)), column.highest(max(values))
        elif part.operator in (_Op.GE, _Op.GT):
            low = column.lowest(part.value)
        elif part.operator in (_Op.LE, _Op.LT):
            high = column.highest(part.value)
    except (TypeError, OverflowError, ValueError, AttributeError):
        return  # A value of another type, or beyond Python's dates: no condition.
    # A partition column stores the empty text as NULL, which is then within the bounds.
    has_null = isinstance(high if low is None else low, str) and not low
    for operator, bound in ((_Op.GE, low), (_Op.LE, high)):
        if bound is not None:
            comparison = Comparison(name, operator, bound)
            yield Or((comparison, IsNull(name))) if has_null else comparison


def _monotone_columns(schema: StructType) -> Iterator[_Monotone]:
    for name, text in generated_columns(schema).items():
        item = schema.field(name)
        if item is not None and (column := _monotone(name, item.type, text.strip(), schema)) is not None:
            yield column


def _monotone(name: str, data_type: DataType, text: str, schema: StructType) -> _Monotone | None:
    for pattern, make in ((_CAST, _date), (_TO_DATE, _date), (_YEAR, _year), (_TRUNC, _truncated), (_PREFIX, _prefix)):
        match = pattern.fullmatch(text)
        if match is None:
            continue
        groups = match.groupdict()
        source = schema.field(next(groups[key] for key in ("quoted", "name") if groups.get(key)))
        if source is None or CHAR_METADATA in source.metadata or COLLATIONS_METADATA in source.metadata:
            continue  # Such strings are not compared bytewise.
        bounds = make(source.type, data_type, groups)
        if bounds is not None:
            return _Monotone(column=name, source=source.name, lowest=bounds[0], highest=bounds[1])
    return None


_BoundFunctions = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _date(source: DataType, target: DataType, groups: Mapping[str, Any]) -> _BoundFunctions | None:
    if target != DATE or source not in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        return None
    return (lambda value: _day(value) - _slack(source)), (lambda value: _day(value) + _slack(source))


def _year(source: DataType, target: DataType, groups: Mapping[str, Any]) -> _BoundFunctions | None:
    if target != INTEGER or source not in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        return None
    return (lambda value: (_day(value) - _slack(source)).year), (lambda value: (_day(value) + _slack(source)).year)


def _truncated(source: DataType, target: DataType, groups: Mapping[str, Any]) -> _BoundFunctions | None:
    length = _LENGTHS.get(str(groups["unit"]).lower())
    if length is None or source != target or source not in (TIMESTAMP, TIMESTAMP_NTZ):
        return None
    # The result is at most the value, and within one unit of it.
    return (lambda value: value - length), (lambda value: value)


def _prefix(source: DataType, target: DataType, groups: Mapping[str, Any]) -> _BoundFunctions | None:
    length = int(groups["length"])
    # A partition column stores the text of that name as NULL; shorter texts never equal it.
    if source != STRING or target != STRING or not 1 <= length < len(HIVE_DEFAULT_PARTITION):
        return None
    return (lambda value: value[:length]), (lambda value: value[:length])


def _day(value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo is None else value.astimezone(dt.UTC)).date()
    if not isinstance(value, dt.date):
        raise TypeError
    return value


def _slack(source: DataType) -> dt.timedelta:
    return _DAY if source == TIMESTAMP else dt.timedelta()
