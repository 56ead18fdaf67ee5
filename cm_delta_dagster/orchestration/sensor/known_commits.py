"""Which commits the event log of a Dagster instance already has events for. Reads events, writes none."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import dagster as dg

from cm_delta_dagster.operations.writing.write import WriteOutcome
from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.sensor.feed_cursor import WatchedCommit

TXN_ID = "cm_delta/txn_id"
_RUN_EVENT_KEY = facts.OUTCOME
"""Metadata key of events of this package's IO manager and jobs; events of sensors do not have it."""

_PAGE = 1000
_EVENTS_EACH = 40
"""So many recent events for each asset of a tick are read at once; if there are more, each asset is read by itself."""
_FEW_ASSETS = 2
"""For so few assets, the queries of each asset are not more than the ones for all."""
_CLOCK_SKEW_MS = 60 * 60 * 1000
"""Maximum difference between the clocks of the catalog's clients and of the instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """An event of a commit. ``txn_id`` is empty in events of runs and of older releases."""

    partition: str | None
    txn_id: str
    is_run_event: bool


class KnownCommits:
    """Finds events of commits, for one tick. The events of its assets are read once, back to the oldest commit of the tick.

    Args:
        since_ms: when the oldest commit of the tick was ratified, epoch milliseconds; 0 for all events.
        assets: the assets of the tick.
    """

    def __init__(
        self, instance: dg.DagsterInstance, *, since_ms: int, assets: frozenset[dg.AssetKey] = frozenset()
    ) -> None:
        self._instance = instance
        self._after = (since_ms - _CLOCK_SKEW_MS) / 1000
        self._unread = assets
        self._runs: dict[str, dg.DagsterRun | None] = {}
        self._recorded: dict[str, Mapping[tuple[dg.AssetKey, str, int], frozenset[str]]] = {}
        self._reported: dict[dg.AssetKey, Mapping[tuple[str, int], Sequence[_Record]]] = {}
        self._newest: dict[tuple[dg.AssetKey, str], int] = {}

    def run_of(self, commit: WatchedCommit) -> dg.DagsterRun | None:
        """The run of this instance that made the commit; None for a foreign commit."""
        if commit.run_id is None:
            return None
        if commit.run_id not in self._runs:
            self._runs[commit.run_id] = self._instance.get_run_by_id(commit.run_id)
        return self._runs[commit.run_id]

    def recorded_partitions(
        self, run: dg.DagsterRun, commit: WatchedCommit, asset_key: dg.AssetKey
    ) -> frozenset[str] | None:
        """Partitions for which the run stored an event of the commit, empty if the event has none; None without an event."""
        # The status of the run was read before: a run that had ended by then stores no more events.
        if run.run_id not in self._recorded:
            self._recorded[run.run_id] = self._records_of(run.run_id)
        return self._recorded[run.run_id].get((asset_key, commit.table_id, commit.version))

    def is_reported(self, commit: WatchedCommit, asset_key: dg.AssetKey, partition: str | None) -> bool:
        """Whether the asset has an event of the commit for the partition, from a run or a sensor."""
        own = self.run_of(commit) is not None
        return any(
            _is_event_of(record, commit, partition, own=own)
            for record in self._events_of(asset_key).get((commit.table_id, commit.version), ())
        )

    def newest_reported(self, table_id: str, asset_key: dg.AssetKey) -> int:
        """Newest version of the table with an event of the asset; -1 if there is none."""
        if (asset_key, table_id) not in self._newest:
            versions = [version for own, version in self._events_of(asset_key) if own == table_id]
            self._newest[asset_key, table_id] = max(versions, default=-1)
        return self._newest[asset_key, table_id]

    def _records_of(self, run_id: str) -> Mapping[tuple[dg.AssetKey, str, int], frozenset[str]]:
        records: dict[tuple[dg.AssetKey, str, int], frozenset[str]] = {}
        kinds = {dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION}
        for entry in self._instance.all_logs(run_id, of_type=kinds):
            event = entry.asset_materialization or entry.asset_observation
            commit = None if event is None else _commit_of(event.metadata)
            if event is not None and commit is not None:
                key = (event.asset_key, *commit)
                own = frozenset() if event.partition is None else frozenset({event.partition})
                records[key] = records.get(key, frozenset()) | own
        return records

    def _events_of(self, asset_key: dg.AssetKey) -> Mapping[tuple[str, int], Sequence[_Record]]:
        if asset_key in self._unread:
            self._read_together()
        if asset_key not in self._reported:
            self._reported[asset_key] = _by_commit(self._events_since(asset_key))
        return self._reported[asset_key]

    def _read_together(self) -> None:
        """Read the recent events of the assets of the tick by one query for each type, unless the instance has many of them."""
        assets, self._unread = self._unread, frozenset()
        if self._after <= 0 or len(assets) <= _FEW_ASSETS:
            return
        limit, storage = _EVENTS_EACH * len(assets), self._instance.event_log_storage
        events_by_asset: dict[dg.AssetKey, list[tuple[float, _Event]]] = {key: [] for key in assets}
        for event_type in (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION):
            records_filter = dg.EventRecordsFilter(event_type=event_type, after_timestamp=self._after)
            records = storage.get_event_records(records_filter, limit=limit)
            if len(records) == limit:
                return
            for record in records:
                event = record.asset_materialization or record.asset_observation
                if event is not None and event.asset_key in events_by_asset:
                    events_by_asset[event.asset_key].append((record.timestamp, event))
        wiped = self._wiped([key for key, events in events_by_asset.items() if events])
        for key, events in events_by_asset.items():
            self._reported[key] = _by_commit(event for at, event in events if at > wiped.get(key, 0))

    def _wiped(self, assets: Sequence[dg.AssetKey]) -> Mapping[dg.AssetKey, float]:
        """When the events of an asset were wiped, epoch seconds; older events count no more."""
        records = self._instance.get_asset_records(assets) if assets else ()
        details = ((record.asset_entry.asset_key, record.asset_entry.asset_details) for record in records)
        return {
            key: asset_details.last_wipe_timestamp or 0 for key, asset_details in details if asset_details is not None
        }

    def _events_since(self, asset_key: dg.AssetKey) -> Iterator["_Event"]:
        records_filter = dg.AssetRecordsFilter(asset_key, after_timestamp=self._after if self._after > 0 else None)
        for fetch in (self._instance.fetch_materializations, self._instance.fetch_observations):
            page = fetch(records_filter, limit=_PAGE)
            while page.records:
                for record in page.records:
                    event = record.asset_materialization or record.asset_observation
                    if event is not None:
                        yield event
                if not page.has_more:
                    break
                page = fetch(records_filter, limit=_PAGE, cursor=page.cursor)


_Event: TypeAlias = dg.AssetMaterialization | dg.AssetObservation


def _by_commit(events: Iterable[_Event]) -> Mapping[tuple[str, int], Sequence[_Record]]:
    by_commit: dict[tuple[str, int], list[_Record]] = {}
    for event in events:
        commit = _commit_of(event.metadata)
        if commit is not None:
            by_commit.setdefault(commit, []).append(_record(event))
    return by_commit


def _is_event_of(record: _Record, commit: WatchedCommit, partition: str | None, *, own: bool) -> bool:
    if record.is_run_event:
        # A run that continues another one reports the commit of that run. A run never reports a foreign commit: an event
        # with an equal version then belongs to a commit that a restored catalog has lost.
        return own and (partition is None or record.partition in (None, partition))
    if record.txn_id not in ("", commit.txn_id):
        return False
    return record.partition == partition or (record.txn_id == "" and record.partition is None)


def _record(event: _Event) -> _Record:
    txn = event.metadata.get(TXN_ID)
    return _Record(
        partition=event.partition,
        txn_id="" if txn is None else str(txn.value),
        is_run_event=_RUN_EVENT_KEY in event.metadata,
    )


def _commit_of(metadata: Mapping[str, dg.MetadataValue[Any]]) -> tuple[str, int] | None:
    """Table id and version of the commit that an event reports. None for events of reads, and for those of writes and
    maintenance with nothing to do, which name the version that they read.
    """
    outcome = metadata.get(facts.OUTCOME)
    if outcome is not None and outcome.value == WriteOutcome.NOTHING_TO_DO.value:
        return None
    table_id, version = metadata.get(facts.TABLE_ID), metadata.get(facts.COMMIT_VERSION)
    if table_id is None or version is None or not isinstance(version.value, int):
        return None
    return str(table_id.value), version.value
