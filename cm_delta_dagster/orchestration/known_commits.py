"""What a Dagster instance already knows of commits, from its event log. Room: orchestration; reads events, writes none."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from cm_delta_dagster.operations.writing.write import WriteOutcome
from cm_delta_dagster.orchestration import metadata as facts
from cm_delta_dagster.orchestration.feed_cursor import WatchedCommit

TXN_ID = "cm_delta/txn_id"
_BY_A_RUN = facts.OUTCOME
"""Key that events of our own runs have and events of sensors do not."""

_PAGE = 1000
_CLOCK_SKEW_MS = 60 * 60 * 1000
"""By so much the clocks of the catalog's clients and of the instance may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What an event that speaks of a commit says beside its version. ``txn_id`` is empty in events of runs and of older
    releases."""

    partition: str | None
    txn_id: str
    by_a_run: bool


class KnownCommits:
    """Answers for one tick. Each asset's events are read once, as far back as the oldest commit of the tick.

    Args:
        since_ms: when the oldest of the commits asked about was ratified, epoch milliseconds; 0 for all events.
    """

    def __init__(self, instance: dg.DagsterInstance, *, since_ms: int) -> None:
        self._instance = instance
        self._since_ms = since_ms
        self._runs: dict[str, dg.DagsterRun | None] = {}
        self._recorded: dict[str, Mapping[tuple[dg.AssetKey, str, int], frozenset[str]]] = {}
        self._reported: dict[dg.AssetKey, Mapping[tuple[str, int], Sequence[_Record]]] = {}
        self._newest: dict[tuple[dg.AssetKey, str], int] = {}

    def run_of(self, commit: WatchedCommit) -> dg.DagsterRun | None:
        """The run of this instance that made the commit; None for commits of others."""
        if commit.run_id is None:
            return None
        if commit.run_id not in self._runs:
            self._runs[commit.run_id] = self._instance.get_run_by_id(commit.run_id)
        return self._runs[commit.run_id]

    def recorded_partitions(
        self, run: dg.DagsterRun, commit: WatchedCommit, asset_key: dg.AssetKey
    ) -> frozenset[str] | None:
        """Partitions for which the run itself recorded the commit, empty for an event without; None if it did not."""
        # Read after the run's status: a run that has ended by then records nothing more.
        if run.run_id not in self._recorded:
            self._recorded[run.run_id] = self._records_of(run.run_id)
        return self._recorded[run.run_id].get((asset_key, commit.table_id, commit.version))

    def is_reported(self, commit: WatchedCommit, asset_key: dg.AssetKey, partition: str | None) -> bool:
        """Whether an event of the asset and partition speaks of the commit, whoever made the event."""
        own = self.run_of(commit) is not None
        return any(
            _speaks_of(record, commit, partition, own=own)
            for record in self._events_of(asset_key).get((commit.table_id, commit.version), ())
        )

    def newest_reported(self, table_id: str, asset_key: dg.AssetKey) -> int:
        """Newest version of the table that an event of the asset speaks of; -1 for none."""
        if (asset_key, table_id) not in self._newest:
            versions = [version for own, version in self._events_of(asset_key) if own == table_id]
            self._newest[asset_key, table_id] = max(versions, default=-1)
        return self._newest[asset_key, table_id]

    def _records_of(self, run_id: str) -> Mapping[tuple[dg.AssetKey, str, int], frozenset[str]]:
        found: dict[tuple[dg.AssetKey, str, int], frozenset[str]] = {}
        kinds = {dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION}
        for entry in self._instance.all_logs(run_id, of_type=kinds):
            event = entry.asset_materialization or entry.asset_observation
            commit = None if event is None else _commit_of(event.metadata)
            if event is not None and commit is not None:
                key = (event.asset_key, *commit)
                own = frozenset() if event.partition is None else frozenset({event.partition})
                found[key] = found.get(key, frozenset()) | own
        return found

    def _events_of(self, asset_key: dg.AssetKey) -> Mapping[tuple[str, int], Sequence[_Record]]:
        if asset_key not in self._reported:
            found: dict[tuple[str, int], list[_Record]] = {}
            for event in self._events_since(asset_key):
                commit = _commit_of(event.metadata)
                if commit is not None:
                    found.setdefault(commit, []).append(_record(event))
            self._reported[asset_key] = found
        return self._reported[asset_key]

    def _events_since(self, asset_key: dg.AssetKey) -> Iterator[dg.AssetMaterialization | dg.AssetObservation]:
        after = (self._since_ms - _CLOCK_SKEW_MS) / 1000
        wanted = dg.AssetRecordsFilter(asset_key, after_timestamp=after if after > 0 else None)
        for fetch in (self._instance.fetch_materializations, self._instance.fetch_observations):
            page = fetch(wanted, limit=_PAGE)
            while page.records:
                for record in page.records:
                    event = record.asset_materialization or record.asset_observation
                    if event is not None:
                        yield event
                if not page.has_more:
                    break
                page = fetch(wanted, limit=_PAGE, cursor=page.cursor)


def _speaks_of(record: _Record, commit: WatchedCommit, partition: str | None, *, own: bool) -> bool:
    if record.by_a_run:
        # A run that continues another reports that one's commit; a commit of others is never a run's to report, and an
        # equal version then belongs to a past of the table that a restored catalog has lost.
        return own and (partition is None or record.partition in (None, partition))
    if record.txn_id not in ("", commit.txn_id):
        return False
    return record.partition == partition or (record.txn_id == "" and record.partition is None)


def _record(event: dg.AssetMaterialization | dg.AssetObservation) -> _Record:
    txn = event.metadata.get(TXN_ID)
    return _Record(
        partition=event.partition,
        txn_id="" if txn is None else str(txn.value),
        by_a_run=_BY_A_RUN in event.metadata,
    )


def _commit_of(metadata: Mapping[str, dg.MetadataValue[Any]]) -> tuple[str, int] | None:
    """Table id and version of the commit that an event reports; None for other events, such as those of reads, and of
    writes and maintenance that found nothing to do: they name the version that they looked at."""
    outcome = metadata.get(facts.OUTCOME)
    if outcome is not None and outcome.value == WriteOutcome.NOTHING_TO_DO.value:
        return None
    table_id, version = metadata.get(facts.TABLE_ID), metadata.get(facts.COMMIT_VERSION)
    if table_id is None or version is None or not isinstance(version.value, int):
        return None
    return str(table_id.value), version.value
