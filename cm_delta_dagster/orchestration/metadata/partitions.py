"""Translates partition keys of an asset to a condition over the columns of its table, and back.

Keys are handled as a set, not as a range, because the keys of a mapped input need not be contiguous. A key without an exact
value in the column's type is an error before anything is written; otherwise the condition would match other rows.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import dagster as dg

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import And, Comparison, ComparisonOperator, In, Or, Predicate
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA, char_width, length_limits
from cm_delta_dagster.protocol.schema.types import DecimalType, PrimitiveType, StructField, StructType, data_type_text

_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_LONGEST_KEY_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyedValues:
    """A dimension whose keys are single values of the column."""

    column: str
    by_key: Mapping[str, Any]
    width: int = 0
    """Of a ``char(n)`` column, whose values have blanks at the end; 0 of any other."""

    def predicate(self, keys: Iterable[str]) -> Predicate:
        values = tuple(sorted(self.by_key[key] for key in set(keys)))
        if len(values) == 1:
            return Comparison(self.column, ComparisonOperator.EQ, values[0])
        return In(self.column, values)

    def key_of(self, value: Any) -> str | None:
        padded = value.ljust(self.width) if self.width else value
        return next((key for key, own in self.by_key.items() if own == padded), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """A dimension whose keys are half-open intervals of the column."""

    column: str
    by_key: Mapping[str, tuple[Any, Any]]

    def predicate(self, keys: Iterable[str]) -> Predicate:
        parts = tuple(
            And(
                (
                    Comparison(self.column, ComparisonOperator.GE, start),
                    Comparison(self.column, ComparisonOperator.LT, end),
                )
            )
            for start, end in merge_intervals(self.by_key[key] for key in set(keys))
        )
        return parts[0] if len(parts) == 1 else Or(parts)

    def key_of(self, value: Any) -> str | None:
        return next((key for key, (start, end) in self.by_key.items() if start <= value < end), None)


_Dimension: TypeAlias = _KeyedValues | _Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSlice:
    """The rows of a set of partition keys.

    Attributes:
        where: true for exactly these rows; false for every row if there is no key.
        keys: the keys, in the order of Dagster.
        columns: table column of each dimension.
    """

    where: Predicate
    keys: tuple[str, ...]
    columns: Mapping[str, str]
    _dimensions: Mapping[str, _Dimension]
    _by_key: Mapping[str, Mapping[str, str]]

    def predicate_of(self, key: str) -> Predicate:
        """True for the rows of one of :attr:`keys`."""
        parts = tuple(self._dimensions[name].predicate((own,)) for name, own in self._by_key[key].items())
        return parts[0] if len(parts) == 1 else And(parts)

    def key_of(self, values: Mapping[str, Any]) -> str | None:
        """The key of a row with these values of :attr:`columns`; None if the row belongs to none of :attr:`keys`."""
        keys: dict[str, str] = {}
        for name, dimension in self._dimensions.items():
            value = values[dimension.column]
            key = None if value is None else dimension.key_of(value)
            if key is None:
                return None
            keys[name] = key
        if tuple(keys) == ("",):
            return keys[""]
        whole = str(dg.MultiPartitionKey(keys))
        return whole if whole in self.keys else None


def partition_slice(
    definition: dg.PartitionsDefinition[Any],
    *,
    keys: Sequence[str],
    partition_expr: Mapping[str, str],
    schema: StructType,
) -> PartitionSlice:
    """Translate partition keys into a predicate.

    Args:
        definition: of the asset.
        keys: partition keys of the definition, in any order, contiguous or not.
        partition_expr: column of each dimension; the key is ``""`` for a single dimension.
        schema: of the table; the type of the column determines the value of a key.

    Raises:
        InvalidArgumentError: a dimension without a column, an unknown column, or a key without a value in its type.
    """
    parts = _dimension_definitions(definition)
    columns = _dimension_columns(tuple(parts), partition_expr)
    rows = [_split(definition, key) for key in keys]
    dimensions: dict[str, _Dimension] = {}
    for name, part in parts.items():
        column = schema.field(columns[name])
        if column is None:
            raise InvalidArgumentError(
                f"'partition_expr' names the column {columns[name]!r}, which does not exist. Columns: "
                f"{', '.join(schema.names)}."
            )
        own_keys = dict.fromkeys(row[name] for row in rows)
        dimensions[name] = _dimension(part, column, own_keys)
    names = tuple(dimensions)
    return PartitionSlice(
        where=_predicate(names, {tuple(row[name] for name in names) for row in rows}, dimensions),
        keys=tuple(str(key) for key in keys),
        columns={name: dimension.column for name, dimension in dimensions.items()},
        _dimensions=dimensions,
        _by_key={str(key): row for key, row in zip(keys, rows, strict=True)},
    )


def check_partition_expr(definition: dg.PartitionsDefinition[Any], partition_expr: Mapping[str, str]) -> None:
    """Raise InvalidArgumentError unless ``partition_expr`` names one column for each dimension of the definition."""
    _dimension_columns(tuple(_dimension_definitions(definition)), partition_expr)


def partition_columns(
    definition: dg.PartitionsDefinition[Any] | None, *, partition_expr: Mapping[str, str], schema: StructType
) -> tuple[str, ...]:
    """Columns by which a new table for this asset is partitioned.

    Columns of a timestamp type are omitted, because each instant would become a directory. ``partition_by`` overrides
    this.
    """
    if definition is None:
        return ()
    columns = _dimension_columns(tuple(_dimension_definitions(definition)), partition_expr)
    fields = [schema.field(column) for column in columns.values()]
    return tuple(
        field.name
        for field in fields
        if field is not None and data_type_text(field.type) not in ("timestamp", "timestamp_ntz")
    )


def keys_text(keys: Sequence[str]) -> str:
    """Partition keys for commit tags and transaction ids: all keys if the text is short, otherwise the first, the last and
    the number of keys.
    """
    text = ",".join(str(key) for key in keys)
    if len(text) <= _LONGEST_KEY_TEXT:
        return text
    return f"{keys[0]}...{keys[-1]} ({len(keys)} keys)"


def names_all_keys(text: str, keys: Collection[str]) -> bool:
    """Whether ``keys``, a subset of the keys of which ``keys_text`` made ``text``, are all of these keys."""
    return len(text) == len(",".join(keys)) or text.endswith(f" ({len(keys)} keys)")


def merge_intervals(intervals: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The union of half-open intervals, sorted; adjacent and overlapping ones are joined."""
    merged: list[tuple[Any, Any]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _dimension_definitions(definition: dg.PartitionsDefinition[Any]) -> Mapping[str, dg.PartitionsDefinition[Any]]:
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return {part.name: part.partitions_def for part in definition.partitions_defs}
    return {"": definition}


def _dimension_columns(names: Sequence[str], partition_expr: Mapping[str, str]) -> Mapping[str, str]:
    if set(partition_expr) != set(names):
        if tuple(names) == ("",):
            raise InvalidArgumentError(
                f"The asset has one partition dimension, but 'partition_expr' is {dict(partition_expr)}; give the name "
                "of one column."
            )
        raise InvalidArgumentError(
            f"The asset has the partition dimensions {', '.join(sorted(names))}, but 'partition_expr' is "
            f"{dict(partition_expr)}; give a dict that names one column for each of them."
        )
    return {name: partition_expr[name] for name in names}


def _split(definition: dg.PartitionsDefinition[Any], key: str) -> Mapping[str, str]:
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return {"": str(key)}
    whole = key if isinstance(key, dg.MultiPartitionKey) else definition.get_partition_key_from_str(str(key))
    return whole.keys_by_dimension


def _predicate(names: Sequence[str], rows: set[tuple[str, ...]], dimensions: Mapping[str, _Dimension]) -> Predicate:
    """The predicate of ``rows``, one key for each dimension. Keys that form a full product become one conjunction."""
    if not rows:
        return Or(())
    first = dimensions[names[0]]
    if len(names) == 1:
        return first.predicate(row[0] for row in rows)
    rests: dict[str, set[tuple[str, ...]]] = {}
    for row in rows:
        rests.setdefault(row[0], set()).add(row[1:])
    groups: dict[frozenset[tuple[str, ...]], list[str]] = {}
    for key in sorted(rests):
        groups.setdefault(frozenset(rests[key]), []).append(key)
    parts = tuple(
        And((first.predicate(keys), _predicate(names[1:], set(rest), dimensions))) for rest, keys in groups.items()
    )
    return parts[0] if len(parts) == 1 else Or(parts)


def _dimension(definition: dg.PartitionsDefinition[Any], field: StructField, keys: Iterable[str]) -> _Dimension:
    column, kind = field.name, field.type
    name = data_type_text(kind)
    if isinstance(definition, dg.TimeWindowPartitionsDefinition) and name in ("date", "timestamp", "timestamp_ntz"):
        windows = {key: _window(definition, key, column) for key in keys}
        bounds = {"date": _dates, "timestamp": _instants, "timestamp_ntz": _wall_times}[name]
        return _Windows(column=column, by_key={key: bounds(window, key, column) for key, window in windows.items()})
    integral = isinstance(kind, PrimitiveType) and kind.name in _INTEGER_BITS
    if isinstance(definition, dg.TimeWindowPartitionsDefinition) and name != "string" and not integral:
        raise InvalidArgumentError(
            f"The column {column} has the type {name}, which cannot hold time windows. Use date, timestamp, "
            "timestamp_ntz, a string in the format of the partition keys, or an integer if the keys are numbers."
        )
    values = {key: _value(key, field) for key in keys}
    _check_one_key_a_value(definition, values, field)
    return _KeyedValues(column=column, by_key=values, width=char_width(field))


def _check_one_key_a_value(
    definition: dg.PartitionsDefinition[Any], values: Mapping[str, Any], field: StructField
) -> None:
    """Refuse two keys with one value: each would replace the rows of the other. Only these types have several texts for a value."""
    if not isinstance(field.type, DecimalType) and data_type_text(field.type) != "timestamp" and not char_width(field):
        return
    every = dict(values)
    if isinstance(definition, dg.StaticPartitionsDefinition):
        every |= {
            key: value for key in definition.get_partition_keys() if (value := _value_or_none(key, field)) is not None
        }
    owners: dict[Any, str] = {}
    for key, value in every.items():
        other = owners.setdefault(value, key)
        if other != key and not {key, other}.isdisjoint(values):
            raise InvalidArgumentError(
                f"The partition keys {other!r} and {key!r} are the same value of the column {field.name} "
                f"({_declared(field)}), so each would replace the rows of the other. Nothing was written. Keep one of "
                "the two."
            )


def _window(definition: dg.TimeWindowPartitionsDefinition, key: str, column: str) -> dg.TimeWindow:
    try:
        window = definition.time_window_for_partition_key(key)
    except (ValueError, StopIteration) as error:
        raise _no_value(key, f"time window of the format {definition.fmt!r}", column) from error
    # For an unaligned key Dagster returns the next window. A key may end with the UTC offset that Dagster adds to a
    # repeated hour.
    if not key.startswith(window.start.strftime(definition.fmt)):
        raise _no_value(key, f"time window: the nearest one begins at {window.start.isoformat()}", column)
    return window


def _instants(window: dg.TimeWindow, key: str, column: str) -> tuple[datetime, datetime]:
    return window.start.astimezone(UTC), window.end.astimezone(UTC)


def _wall_times(window: dg.TimeWindow, key: str, column: str) -> tuple[datetime, datetime]:
    start, end = window.start.replace(tzinfo=None, fold=0), window.end.replace(tzinfo=None, fold=0)
    real = window.end.astimezone(UTC) - window.start.astimezone(UTC)
    # A skipped hour has no rows, so only repeated hours are ambiguous.
    if real < timedelta(hours=23) and (end - start < real or window.start.fold):
        raise InvalidArgumentError(
            f"The partition {key!r} contains an hour that its time zone repeats at the end of daylight saving time. The "
            f"column {column} (timestamp_ntz) has no time zone, so the repeated hour is ambiguous. Use a column of type "
            "timestamp, or partitions in UTC."
        )
    return start, end


def _dates(window: dg.TimeWindow, key: str, column: str) -> tuple[date, date]:
    for moment in (window.start, window.end):
        before = (moment.astimezone(UTC) - timedelta(microseconds=1)).astimezone(moment.tzinfo)
        if before.date() == moment.date():
            raise InvalidArgumentError(
                f"The partition {key!r} begins or ends within a day ({moment.isoformat()}), but the column {column} is a "
                "date, which does not determine the partition of a row. Use a timestamp column."
            )
    return window.start.date(), window.end.date()


def _value(key: str, field: StructField) -> Any:
    """The column's value for a key. Only the canonical text of a value is accepted."""
    try:
        value = _parse(key, field)
    except (ValueError, InvalidOperation) as error:
        raise _no_value(key, _declared(field), field.name) from error
    if value is None:
        raise InvalidArgumentError(
            f"The column {field.name} has the type {_declared(field)}, which cannot be a partition of an asset. Use a string, an "
            "integer, a decimal, a boolean, a date or a timestamp."
        )
    return value


def _value_or_none(key: str, field: StructField) -> Any:
    try:
        return _parse(key, field)
    except (ValueError, InvalidOperation):
        return None


def _declared(field: StructField) -> str:
    return str(field.metadata.get(CHAR_METADATA, data_type_text(field.type)))


def _parse(key: str, field: StructField) -> Any:
    kind = field.type
    if not key:
        raise ValueError("empty")
    if isinstance(kind, DecimalType):
        return _parse_decimal(key, kind)
    if not isinstance(kind, PrimitiveType):
        return None
    match kind.name:
        case "string":
            return _parse_text(key, field)
        case "byte" | "short" | "integer" | "long":
            limit = 1 << (_INTEGER_BITS[kind.name] - 1)
            if not re.fullmatch(r"0|-?[1-9][0-9]*", key) or not -limit <= int(key) < limit:
                raise ValueError(key)
            return int(key)
        case "boolean":
            return {"true": True, "false": False}.get(key) if key in ("true", "false") else _fail(key)
        case "date":
            day = date.fromisoformat(key)
            return day if day.isoformat() == key else _fail(key)
        case "timestamp":
            moment = datetime.fromisoformat(key)
            return moment if moment.tzinfo is not None else _fail(key)
        case "timestamp_ntz":
            wall = datetime.fromisoformat(key)
            return wall if wall.tzinfo is None else _fail(key)
    return None


def _parse_text(key: str, field: StructField) -> str:
    limits = length_limits(field)
    if limits is None or limits.limit is None:
        return key
    if len(key) > limits.limit:
        raise ValueError(key)
    return key.ljust(limits.limit) if limits.is_char else key


def _parse_decimal(key: str, kind: DecimalType) -> Decimal:
    number = Decimal(key)
    if not number.is_finite() or format(number, "f") != key:
        raise ValueError(key)
    if -int(number.as_tuple().exponent) > kind.scale or number.adjusted() >= kind.precision - kind.scale:
        raise ValueError(key)
    return number


def _fail(key: str) -> Any:
    raise ValueError(key)


def _no_value(key: str, kind: str, column: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The partition key {key!r} is not the usual text of a {kind}, so no value of the column {column} belongs to it. "
        "Nothing was written. Change the key or the type of the column."
    )
