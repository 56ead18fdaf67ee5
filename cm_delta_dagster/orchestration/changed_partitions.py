"""From the partition values that a commit changed to the partition keys of an asset. Room: orchestration; no Spark, no I/O
but a look at the instance's dynamic partitions.

The feed tells partition values as the log writes them, without the type of their column. A value therefore belongs to
a key if its text is the key, or if both are the same number or the same instant; a date or time belongs to the window
that holds it. A value that fits no key, or more than one, is said to be unknown, never guessed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.partition_values import parse_partition_value
from cm_delta_dagster.protocol.schema.types import TIMESTAMP, TIMESTAMP_NTZ

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOST_VALUES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedAsset:
    """An asset on a watched table.

    Attributes:
        partitions: None for an asset without partitions, or whose definition the sensor was not given.
        partition_expr: column of each dimension, ``""`` for the only one.
    """

    key: dg.AssetKey
    partitions: dg.PartitionsDefinition[Any] | None = None
    partition_expr: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetParts:
    """What of an asset a commit changed.

    Attributes:
        keys: partition keys, sorted; of several dimensions ``MultiPartitionKey``.
        unknown: why something beside ``keys`` changed too, or may have; None if the keys are all.
    """

    keys: tuple[str, ...] = ()
    unknown: str | None = None


class PartitionFinder:
    """Finds the partition keys of one asset. Remembers what it found, so make one for each tick."""

    def __init__(self, asset: WatchedAsset, instance: dg.DagsterInstance) -> None:
        self._asset = asset
        self._dimensions: dict[str, _Dimension] = {}
        for name, part in _parts(asset.partitions).items():
            self._dimensions[name] = (
                _Windows(part) if isinstance(part, dg.TimeWindowPartitionsDefinition) else _Keys(part, instance)
            )

    def parts_of(self, changed: Sequence[Mapping[str, str | None]] | None) -> AssetParts:
        """Partition keys for the partition values of a commit; ``changed`` is None if the commit does not tell them."""
        if not self._dimensions:
            return AssetParts()
        if changed is None:
            return AssetParts(
                unknown="The commit does not tell which partitions it changed: the table has no partition columns, or "
                "too many partitions or the schema changed."
            )
        keys: set[str] = set()
        strangers: list[str] = []
        for values in changed:
            key = self._key(values)
            if key is None:
                strangers.append(json.dumps(dict(values)))
            else:
                keys.add(key)
        return AssetParts(keys=tuple(sorted(keys)), unknown=_strangers_text(strangers, self._asset))

    def _key(self, values: Mapping[str, str | None]) -> str | None:
        by_column = {column.casefold(): text for column, text in values.items()}
        found: dict[str, str] = {}
        for name, dimension in self._dimensions.items():
            text = by_column.get(self._asset.partition_expr.get(name, "").casefold())
            key = None if text is None else dimension.key_of(text)
            if key is None:
                return None
            found[name] = key
        return found[""] if tuple(found) == ("",) else dg.MultiPartitionKey(found)


def _parts(definition: dg.PartitionsDefinition[Any] | None) -> Mapping[str, dg.PartitionsDefinition[Any]]:
    if definition is None:
        return {}
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return {part.name: part.partitions_def for part in definition.partitions_defs}
    return {"": definition}


def _strangers_text(strangers: Sequence[str], asset: WatchedAsset) -> str | None:
    if not strangers:
        return None
    columns = ", ".join(sorted(set(asset.partition_expr.values()))) or "no column"
    more = f" and {len(strangers) - _MOST_VALUES_SHOWN} more" if len(strangers) > _MOST_VALUES_SHOWN else ""
    return (
        f"The commit changed {'; '.join(sorted(strangers)[:_MOST_VALUES_SHOWN])}{more}, for which the asset, partitioned "
        f"by {columns}, has no partition key."
    )


class _Keys:
    """Static and dynamic keys: the text itself, or the same number or instant."""

    def __init__(self, definition: dg.PartitionsDefinition[Any], instance: dg.DagsterInstance) -> None:
        self._keys = frozenset(definition.get_partition_keys(dynamic_partitions_store=instance))
        self._by_value: dict[Any, set[str]] = {}
        for key in self._keys:
            for value in _readings(key):
                self._by_value.setdefault(value, set()).add(key)

    def key_of(self, text: str) -> str | None:
        if text in self._keys:
            return text
        found: set[str] = set()
        for value in _readings(text):
            found |= self._by_value.get(value, set())
        return found.pop() if len(found) == 1 else None


class _Windows:
    """Time windows of any format: the key itself, or the window that holds the date or time."""

    def __init__(self, definition: dg.TimeWindowPartitionsDefinition) -> None:
        self._definition = definition
        self._zone: tzinfo = ZoneInfo(definition.timezone)
        self._known: dict[str, str | None] = {}

    def key_of(self, text: str) -> str | None:
        if text not in self._known:
            found = {key for key in (self._same(text), *map(self._around, self._moments(text))) if key is not None}
            self._known[text] = found.pop() if len(found) == 1 else None
        return self._known[text]

    def _same(self, text: str) -> str | None:
        try:
            window = self._definition.time_window_for_partition_key(text)
        except (ValueError, OverflowError, StopIteration):
            return None
        return text if self._around(window.start) == text else None

    def _around(self, moment: datetime) -> str | None:
        try:
            key = self._definition.get_partition_key_for_timestamp(moment.timestamp())
            return key if self._definition.has_partition_key(key) else None
        except (
            ValueError,
            OverflowError,
        ):  # At the ends of the calendar, e.g. 9999-12-31 for "never", no window has two.
            return None

    def _moments(self, text: str) -> tuple[datetime, ...]:
        if _DATE.fullmatch(text):
            try:
                return (datetime.combine(date.fromisoformat(text), datetime.min.time(), self._zone),)
            except ValueError:
                return ()
        moment = _moment(text)
        if moment is None or moment.tzinfo is not None:
            return () if moment is None else (moment,)
        # Without a zone it is the wall time of a timestamp_ntz, or a timestamp that an older writer wrote in UTC.
        return moment.replace(tzinfo=self._zone), moment.replace(tzinfo=UTC)


_Dimension = _Keys | _Windows


def _readings(text: str) -> tuple[Any, ...]:
    """What a text may mean beside itself: a number, an instant."""
    moment = _moment(text)
    if moment is not None:
        return (moment if moment.tzinfo is None else moment.astimezone(UTC),)
    try:
        number = Decimal(text)
    except InvalidOperation:
        return ()
    return (number,) if number.is_finite() else ()


def _moment(text: str) -> datetime | None:
    """A date and time, with or without a zone; a bare date is none."""
    if _DATE.fullmatch(text):
        return None
    for kind in (TIMESTAMP_NTZ, TIMESTAMP):
        try:
            value = parse_partition_value(text, kind)
        except CorruptLogError:
            continue
        return value if isinstance(value, datetime) else None
    return None
