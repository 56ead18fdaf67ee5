"""Maps the partition values that a commit changed to partition keys of an asset.

The commit feed has partition values as the log serializes them, without the type of their column. A value belongs to a key if
its text is the key, or if both are the same number or the same instant; a date or time belongs to the window that contains it. A
value that belongs to no key, or to several, is reported as unknown.
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

from cm_delta_dagster.errors import CorruptLogError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.partition_values import names_zone, parse_partition_value
from cm_delta_dagster.protocol.schema.types import TIMESTAMP, TIMESTAMP_NTZ

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}", re.ASCII)
"""How the text of a timestamp begins that delta writers make; other texts may be of any type."""
_MAX_LISTED_VALUES = 3
_NOT_IN_KEYS = ("...", "|", ",", "[", "]")
"""Dagster refuses the first in a key, and the others in a key of several dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedAsset:
    """An asset on a watched table.

    Attributes:
        partitions: None for an asset without partitions or without a known definition.
        partition_expr: column of each dimension; the key is ``""`` for a single dimension.
    """

    key: dg.AssetKey
    partitions: dg.PartitionsDefinition[Any] | None = None
    partition_expr: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetParts:
    """The partitions of an asset that a commit changed.

    Attributes:
        keys: partition keys, sorted; ``MultiPartitionKey`` for several dimensions.
        positions: for a key, the positions of its partition values among those of the commit; a time window can have several.
        unknown: why the commit may have changed more than ``keys``; None if the keys are complete.
    """

    keys: tuple[str, ...] = ()
    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unknown: str | None = None


class PartitionFinder:
    """Finds the partition keys of one asset. Caches results and dynamic partitions, so create one for each tick.

    Args:
        adds: whether a value without a key becomes a new key of a dynamic dimension.
    """

    def __init__(self, asset: WatchedAsset, instance: dg.DagsterInstance, *, adds: bool = False) -> None:
        self._asset = asset
        self._dimensions: dict[str, _KeyMatcher] = {}
        for name, part in _parts(asset.partitions).items():
            self._dimensions[name] = (
                _WindowMatches(part)
                if isinstance(part, dg.TimeWindowPartitionsDefinition)
                else _KeyMatches(part, instance, adds=adds)
            )

    def new_keys(self) -> Mapping[str, frozenset[str]]:
        """The keys to add, by the name of the dynamic partitions definition."""
        keys_by_definition: dict[str, frozenset[str]] = {}
        for dimension in self._dimensions.values():
            if isinstance(dimension, _KeyMatches) and dimension.new and dimension.name is not None:
                keys_by_definition[dimension.name] = keys_by_definition.get(dimension.name, frozenset()) | dimension.new
        return keys_by_definition

    def parts_of(self, changed: Sequence[Mapping[str, str | None]] | None) -> AssetParts:
        """Partition keys for the partition values of a commit; ``changed`` is None if the feed does not have them."""
        if not self._dimensions:
            return AssetParts()
        if changed is None:
            return AssetParts(
                unknown="The changed partitions of the commit are unknown: the table has no partition columns, or the "
                "commit changed the schema or too many partitions."
            )
        positions: dict[str, tuple[int, ...]] = {}
        unmatched: list[str] = []
        for position, values in enumerate(changed):
            key = self._key(values)
            if key is None:
                unmatched.append(json.dumps(dict(values)))
            else:
                positions[key] = (*positions.get(key, ()), position)
        unknown = _unknown_text(unmatched, self._asset)
        return AssetParts(keys=tuple(sorted(positions)), positions=positions, unknown=unknown)

    def _key(self, values: Mapping[str, str | None]) -> str | None:
        by_column = {column.casefold(): text for column, text in values.items()}
        key_by_dimension: dict[str, str] = {}
        for name, dimension in self._dimensions.items():
            text = by_column.get(self._asset.partition_expr.get(name, "").casefold())
            key = None if text is None else dimension.key_of(text)
            if key is None:
                return None
            key_by_dimension[name] = key
        return key_by_dimension[""] if tuple(key_by_dimension) == ("",) else dg.MultiPartitionKey(key_by_dimension)


def _parts(definition: dg.PartitionsDefinition[Any] | None) -> Mapping[str, dg.PartitionsDefinition[Any]]:
    if definition is None:
        return {}
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return {part.name: part.partitions_def for part in definition.partitions_defs}
    return {"": definition}


def _unknown_text(unmatched: Sequence[str], asset: WatchedAsset) -> str | None:
    if not unmatched:
        return None
    columns = ", ".join(sorted(set(asset.partition_expr.values()))) or "no column"
    more = f" and {len(unmatched) - _MAX_LISTED_VALUES} more" if len(unmatched) > _MAX_LISTED_VALUES else ""
    return (
        f"The commit changed {'; '.join(sorted(unmatched)[:_MAX_LISTED_VALUES])}{more}, for which the asset, partitioned "
        f"by {columns}, has no partition key."
    )


class _KeyMatches:
    """Static and dynamic keys: the same text, number or instant.

    Attributes:
        name: of the dynamic partitions definition to which keys are added; None if none are.
        new: keys to add.
    """

    def __init__(self, definition: dg.PartitionsDefinition[Any], instance: dg.DagsterInstance, *, adds: bool) -> None:
        self.name = definition.name if adds and isinstance(definition, dg.DynamicPartitionsDefinition) else None
        self.new: frozenset[str] = frozenset()
        self._keys = frozenset(definition.get_partition_keys(dynamic_partitions_store=instance))
        self._by_value: dict[Any, set[str]] = {}
        for key in self._keys:
            for value in _typed_values(key):
                self._by_value.setdefault(value, set()).add(key)

    def key_of(self, text: str) -> str | None:
        if text in self._keys:
            return text
        keys: set[str] = set()
        for value in _typed_values(text):
            keys |= self._by_value.get(value, set())
        if not keys and self.name is not None and _may_be_key(text):
            self.new |= {text}
            return text
        return keys.pop() if len(keys) == 1 else None


def _may_be_key(text: str) -> bool:
    """Whether Dagster accepts the text as the key of a dynamic partition."""
    return bool(text) and text.isprintable() and not any(part in text for part in _NOT_IN_KEYS)


class _WindowMatches:
    """Time windows of any format: the key itself, or the window that contains the date or time."""

    def __init__(self, definition: dg.TimeWindowPartitionsDefinition) -> None:
        self._definition = definition
        self._zone: tzinfo = ZoneInfo(definition.timezone)
        self._known: dict[str, str | None] = {}

    def key_of(self, text: str) -> str | None:
        if text not in self._known:
            windows = {
                key for key in (self._exact(text), *map(self._window_at, self._instants(text))) if key is not None
            }
            self._known[text] = windows.pop() if len(windows) == 1 else None
        return self._known[text]

    def _exact(self, text: str) -> str | None:
        try:
            window = self._definition.time_window_for_partition_key(text)
        except (ValueError, OverflowError, StopIteration):
            return None
        return text if self._window_at(window.start) == text else None

    def _window_at(self, moment: datetime) -> str | None:
        try:
            key = self._definition.get_partition_key_for_timestamp(moment.timestamp())
            return key if self._definition.has_partition_key(key) else None
        except (ValueError, OverflowError):  # No window ends after the last date, e.g. for 9999-12-31.
            return None

    def _instants(self, text: str) -> tuple[datetime, ...]:
        if _DATE.fullmatch(text):
            try:
                return (datetime.combine(date.fromisoformat(text), datetime.min.time(), self._zone),)
            except ValueError:
                return ()
        moment = _timestamp(text)
        if moment is None or moment.tzinfo is not None:
            return () if moment is None else (moment,)
        # A text without a zone is a timestamp_ntz, or a timestamp in UTC from an older writer.
        return moment.replace(tzinfo=self._zone), moment.replace(tzinfo=UTC)


_KeyMatcher = _KeyMatches | _WindowMatches


def _typed_values(text: str) -> tuple[Any, ...]:
    """The number or instant that a text represents, if any."""
    moment = _timestamp(text)
    if moment is not None:
        return (moment if moment.tzinfo is None else moment.astimezone(UTC),)
    try:
        number = Decimal(text)
    except InvalidOperation:
        return ()
    return (number,) if number.is_finite() else ()


def _timestamp(text: str) -> datetime | None:
    """The date and time of a text, with or without a zone; None for a date without time."""
    if not _MOMENT.match(text):
        return None
    try:
        value = parse_partition_value(text, TIMESTAMP if names_zone(text) else TIMESTAMP_NTZ)
    except (CorruptLogError, UnsupportedFeatureError):
        return None
    return value if isinstance(value, datetime) else None
