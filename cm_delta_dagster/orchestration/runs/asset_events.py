"""Reads from Dagster's events what an automation condition compares: the newest event of each partition, and what it has read.

The events are read from the instance and not through the caches of the evaluation, which were filled before other parts of the
condition were evaluated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.event_api import AssetRecordsFilter

from cm_delta_dagster.orchestration.metadata.metadata import stopped_at_schema
from cm_delta_dagster.orchestration.runs.versions_read import TableVersion, versions_read, versions_read_by_run

DATA_VERSION_TAG = "dagster/data_version"
_INPUT_EVENT_TAG = "dagster/input_event_pointer/"
_NOTHING_READ = -1
_CHUNK = 200
_MAX_EARLIER_EVENTS = 20
"""Events that are searched for one that says what was read, for each partition whose newest event does not."""

Partition = str | None
"""A partition key; None for an asset without partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """What a materialization has read.

    Attributes:
        events: for upstream assets, the id of the newest event when the step began.
        versions: for upstream assets, the version of the table that was read, where it is known.
        is_partial: whether it left changes unread that the next materialization can read.
    """

    event_id: int
    run_id: str
    events: Mapping[str, int]
    versions: Mapping[str, TableVersion]
    is_partial: bool = False

    @classmethod
    def of(cls, record: Any) -> "Consumption":
        """What the event says."""
        event = record.asset_materialization
        tags, metadata = ({}, {}) if event is None else (event.tags or {}, event.metadata)
        return cls(
            event_id=record.storage_id,
            run_id=record.run_id,
            events={
                name.removeprefix(_INPUT_EVENT_TAG): int(value) if value.isdecimal() else _NOTHING_READ
                for name, value in tags.items()
                if name.startswith(_INPUT_EVENT_TAG)
            },
            versions=versions_read(metadata),
            is_partial=stopped_at_schema(metadata),
        )

    @property
    def is_known(self) -> bool:
        """Whether the event says what was read. One that the sensor reports for a commit from outside of Dagster does not."""
        return bool(self.events or self.versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestEvents:
    """The newest event of each partition of an asset that has one: its id and its data version.

    Attributes:
        ids: of an asset with partitions also that of its newest event, as that of the partition None, if it has no partition. It
            may have changed any partition.
        undefined: for an asset without partitions, the partition that its newest event has nevertheless.
    """

    ids: Mapping[Partition, int]
    data_versions: Mapping[Partition, str]
    undefined: Partition = None


@dataclass(slots=True)
class AssetEvents:
    """The events of one evaluation of a condition; each answer is read once."""

    instance: dg.DagsterInstance
    graph: BaseAssetGraph[Any]
    _earlier: dict[tuple[dg.AssetKey, int], Mapping[Partition, str]] = field(default_factory=dict)
    _runs: dict[tuple[dg.AssetKey, int], str] = field(default_factory=dict)

    def is_partitioned(self, key: dg.AssetKey) -> bool:
        """Whether the asset is defined with partitions in this code location."""
        return bool(self.graph.get(key).is_partitioned)

    def last_ids(self, keys: Sequence[dg.AssetKey]) -> Mapping[dg.AssetKey, int]:
        """The id of the event that was stored last for each asset, zero for none. Every new event changes one of them."""
        records = {record.asset_entry.asset_key: record.asset_entry for record in self.instance.get_asset_records(keys)}
        last_ids = {}
        for key in keys:
            if self._is_observed(key):
                last = next(iter(self._fetch(key, limit=1)), None)
            else:
                last = records[key].last_materialization_record if key in records else None
            last_ids[key] = 0 if last is None else last.storage_id
        return last_ids

    def newest(self, key: dg.AssetKey) -> NewestEvents:
        """The newest event of each partition."""
        versions = self._data_versions(key)
        last = next(iter(self._fetch(key, limit=1)), None)
        ids: dict[Partition, int] = {}
        if self.is_partitioned(key):
            by_key = self.instance.get_latest_storage_id_by_partition(key, event_type=self._event_type(key))
            ids.update(by_key.items())
            if last is not None and last.partition_key is None:
                ids[None] = last.storage_id
            return NewestEvents(ids=ids, data_versions=versions)
        if last is None:
            return NewestEvents(ids=ids, data_versions=versions)
        ids[None] = last.storage_id
        return NewestEvents(ids=ids, data_versions=versions, undefined=last.partition_key)

    def data_versions_before(self, key: dg.AssetKey, event_id: int) -> Mapping[Partition, str]:
        """The data version of each partition after the event with this id, and before all later ones."""
        versions = self._earlier.get((key, event_id))
        if versions is None:
            versions = self._earlier[key, event_id] = self._data_versions(key, before=event_id + 1)
        return versions

    def run_of(self, key: dg.AssetKey, event_id: int) -> str:
        """The run that stored an event; empty for none."""
        run_id = self._runs.get((key, event_id))
        if run_id is None:
            records = self._fetch(key, limit=1, storage_ids=[event_id])
            run_id = self._runs[key, event_id] = next((record.run_id for record in records), "")
        return run_id

    def consumption(self, key: dg.AssetKey, ids: Mapping[Partition, int]) -> Mapping[Partition, Consumption]:
        """What the newest materialization of each partition has read.

        Args:
            ids: the newest event of each partition.
        """
        consumption: dict[Partition, Consumption] = {}
        event_ids = sorted(ids.values())
        for start in range(0, len(event_ids), _CHUNK):
            chunk = event_ids[start : start + _CHUNK]
            for record in self._fetch(key, limit=len(chunk), storage_ids=chunk):
                consumption[record.partition_key] = Consumption.of(record)
        known = {
            partition: read if read.is_known else self._earlier_consumption(key, partition) or read
            for partition, read in consumption.items()
        }
        return self._with_reads_of_ops(known) if self._is_graph(key) else known

    def _with_reads_of_ops(self, consumption: Mapping[Partition, Consumption]) -> Mapping[Partition, Consumption]:
        """With what other ops of the graph have read, which the event of the last op does not say."""
        runs = {
            run_id: self.instance.get_run_by_id(run_id)
            for run_id in {read.run_id for read in consumption.values()} - {""}
        }
        by_run = {run_id: versions_read_by_run(run.tags) for run_id, run in runs.items() if run is not None}
        return {
            partition: replace(read, versions={**by_run.get(read.run_id, {}), **read.versions})
            for partition, read in consumption.items()
        }

    def _is_graph(self, key: dg.AssetKey) -> bool:
        node = self.graph.get(key)
        return node.is_materializable and isinstance(node.assets_def.node_def, dg.GraphDefinition)

    def _earlier_consumption(self, key: dg.AssetKey, partition: Partition) -> Consumption | None:
        partitions = None if partition is None else [partition]
        records = self._fetch(key, limit=_MAX_EARLIER_EVENTS, asset_partitions=partitions)
        return next((read for read in map(Consumption.of, records) if read.is_known), None)

    def _data_versions(self, key: dg.AssetKey, before: int | None = None) -> Mapping[Partition, str]:
        last = dict(self._data_versions_of(self._fetch(key, limit=1, before_storage_id=before)))
        if not self.is_partitioned(key):
            return last
        tags = self.instance.event_log_storage.get_latest_tags_by_partition(
            key, self._event_type(key), tag_keys=[DATA_VERSION_TAG], before_cursor=before
        )
        return {**last, **{partition: tags_of_event[DATA_VERSION_TAG] for partition, tags_of_event in tags.items()}}

    @staticmethod
    def _data_versions_of(records: Sequence[Any]) -> Iterator[tuple[Partition, str]]:
        for record in records:
            event = record.asset_materialization or record.event_log_entry.asset_observation
            tags = {} if event is None else event.tags or {}
            if DATA_VERSION_TAG in tags:
                yield None, tags[DATA_VERSION_TAG]

    def _fetch(self, key: dg.AssetKey, *, limit: int, **conditions: Any) -> Sequence[Any]:
        fetch = self.instance.fetch_observations if self._is_observed(key) else self.instance.fetch_materializations
        return fetch(AssetRecordsFilter(asset_key=key, **conditions), limit=limit).records

    def _event_type(self, key: dg.AssetKey) -> dg.DagsterEventType:
        observed = self._is_observed(key)
        return dg.DagsterEventType.ASSET_OBSERVATION if observed else dg.DagsterEventType.ASSET_MATERIALIZATION

    def _is_observed(self, key: dg.AssetKey) -> bool:
        return bool(self.graph.get(key).is_observable)
