"""One evaluation of a commit sensor: commits go in, events, run requests and the next cursor come out.

What happened to each commit is decided in ``_take``; how far to go in one evaluation in ``run``.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import dagster as dg

from cm_delta_dagster.orchestration import metadata as facts
from cm_delta_dagster.orchestration.changed_partitions import AssetParts, PartitionFinder, WatchedAsset
from cm_delta_dagster.orchestration.feed_cursor import FeedCursor, SeenCommit, WatchedCommit
from cm_delta_dagster.orchestration.known_commits import TXN_ID, KnownCommits
from cm_delta_dagster.orchestration.partitions import stands_for

FEED_POSITION = "cm_delta/feed_position"
_PARTITION_TAG = "dagster/partition"
_SENSOR_TAG = "dagster/sensor_name"
_MOST_EVENTS = 2000
"""After so many events and requests a tick ends; Dagster stores each by itself."""
_MOST_PENDING_TEXT = 2_000_000
"""Characters of waiting commits that a cursor holds. More wait in the feed, with everything that comes after them."""


class LaunchFor(StrEnum):
    """Which data-changing commits launch the sensor's job."""

    EVERY_COMMIT = "every_commit"
    """All, whoever made them; only commits of runs that this sensor itself launched do not, so that it never feeds itself."""

    FOREIGN_COMMITS = "foreign_commits"
    """Those that are reported, that is, commits that no run of this instance accounts for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """What a sensor launches, and for which commits.

    Attributes:
        tables: whose commits launch it; none: nothing is launched.
        partitions: of the job; a commit on an asset partitioned likewise launches a run for each changed partition.
    """

    tables: frozenset[str] = frozenset()
    launch_for: LaunchFor = LaunchFor.EVERY_COMMIT
    partitions: dg.PartitionsDefinition[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TickOutcome:
    """What Dagster is told, and what the sensor should log as a warning."""

    result: dg.SensorResult
    warnings: tuple[str, ...] = field(default=())


class SensorTick:
    """Takes commits in, collects events and run requests, knows the next cursor.

    Args:
        cursor: where the last evaluation stopped, in the feed ``catalog_id``.
        deadline: of ``time.monotonic()``.
    """

    def __init__(
        self,
        *,
        instance: dg.DagsterInstance,
        watched: Mapping[str, tuple[WatchedAsset, ...]],
        cursor: FeedCursor,
        sensor_name: str,
        launch: LaunchPlan,
        deadline: float,
    ) -> None:
        self._instance = instance
        self._watched = watched
        self._cursor = cursor
        self._sensor_name = sensor_name
        self._plan = launch
        self._deadline = deadline
        self._position, self._seen = cursor.position, cursor.seen
        self._known = KnownCommits(instance, since_ms=0)
        self._finders: dict[dg.AssetKey, PartitionFinder] = {}
        self._pending: dict[tuple[str, int], WatchedCommit] = {}
        self._pending_text = 0
        self._events: list[dg.AssetMaterialization | dg.AssetObservation] = []
        self._newest: dict[tuple[str, str | None], WatchedCommit] = {}
        self._warnings: list[str] = []

    def run(self, commits: Sequence[WatchedCommit]) -> None:
        """Look at what waited, then at ``commits``, until time runs out."""
        every = (*self._cursor.pending, *commits)
        since_ms = 0 if self._cursor.recovering_until else min((commit.ratified_ms for commit in every), default=0)
        self._known = KnownCommits(self._instance, since_ms=since_ms)
        for commit in self._cursor.pending:
            if self._must_stop():
                self._wait(commit)
            else:
                self._take(commit)
        for commit in commits:
            if self._must_stop():
                return
            if self._pending_text >= _MOST_PENDING_TEXT:
                self._warnings.append(
                    f"{len(self._pending)} commits of runs under way wait, and the cursor holds no more; the sensor "
                    f"stays at feed position {self._position} until those runs end."
                )
                return
            self._take(commit)
            self._position = commit.position
            self._seen = SeenCommit(position=commit.position, table=commit.table, txn_id=commit.txn_id)

    def outcome(self) -> TickOutcome:
        """What Dagster is told."""
        cursor = replace(
            self._cursor,
            position=self._position,
            seen=self._seen,
            pending=tuple(sorted(self._pending.values(), key=lambda commit: commit.position)),
            recovering_until=self._cursor.recovering_until if self._cursor.recovering_until > self._position else 0,
        ).to_text()
        requests = [self._request(commit, partition) for (_, partition), commit in self._newest.items()]
        if self._events or requests:
            result = dg.SensorResult(asset_events=self._events, run_requests=requests, cursor=cursor)
        else:
            waiting = f"; {len(self._pending)} of runs under way wait" if self._pending else ""
            reason = " ".join([f"No commits to report up to feed position {self._position}{waiting}.", *self._warnings])
            result = dg.SensorResult(skip_reason=reason, cursor=cursor)
        return TickOutcome(result=result, warnings=tuple(self._warnings))

    def _must_stop(self) -> bool:
        return len(self._events) + len(self._newest) >= _MOST_EVENTS or time.monotonic() >= self._deadline

    def _take(self, commit: WatchedCommit) -> None:
        for asset in self._watched.get(commit.table, ()):
            run = self._run_for(commit, asset.key)
            if run is not None and commit.is_creation:
                continue  # The run goes on to write, or has failed and says so itself.
            recorded = None if run is None else self._known.recorded_partitions(run, commit, asset.key)
            if recorded is not None and _is_whole(recorded, commit):
                self._launch_for_own(commit, asset, recorded)
            elif run is not None and not run.is_finished:
                self._wait(commit)
            else:
                self._flush(commit, asset, run, recorded or frozenset())

    def _run_for(self, commit: WatchedCommit, asset_key: dg.AssetKey) -> dg.DagsterRun | None:
        """The run of this instance that accounts for the commit on this asset."""
        if commit.run_asset not in (None, asset_key.to_user_string()):
            return None
        return self._known.run_of(commit)

    def _flush(
        self, commit: WatchedCommit, asset: WatchedAsset, run: dg.DagsterRun | None, recorded: frozenset[str]
    ) -> None:
        """Report what of the commit has no event yet, and launch for all of it; ``recorded`` is what its run came to record."""
        parts = self._parts_of(commit, asset, run)
        parts = replace(parts, keys=tuple(sorted({*parts.keys, *recorded})))
        wanted: list[str | None] = list(parts.keys)
        if parts.unknown is not None or not wanted:
            wanted.append(None)
        recovering = commit.position <= self._cursor.recovering_until
        if recovering and self._known.newest_reported(commit.table_id, asset.key) > commit.version:
            return
        missing = [
            partition
            for partition in wanted
            if not self._known.is_reported(commit, asset.key, None if partition is None else str(partition))
        ]
        self._events += [self._event(commit, asset, partition, parts, run) for partition in missing]
        if recorded and recorded.issuperset(parts.keys):
            self._launch_for_own(commit, asset, recorded)
        elif commit.data_change and (missing or not recovering):
            # Also of a tick that died before its runs were requested; Dagster drops a run key that it knows.
            self._launch(commit, asset, parts)

    def _parts_of(self, commit: WatchedCommit, asset: WatchedAsset, run: dg.DagsterRun | None) -> AssetParts:
        if not commit.data_change:
            return AssetParts()
        if run is not None and commit.run_partition is not None and run.tags.get(_PARTITION_TAG):
            return AssetParts(keys=(run.tags[_PARTITION_TAG],))
        if asset.key not in self._finders:
            self._finders[asset.key] = PartitionFinder(asset, self._instance)
        return self._finders[asset.key].parts_of(commit.changed)

    def _event(
        self,
        commit: WatchedCommit,
        asset: WatchedAsset,
        partition: str | None,
        parts: AssetParts,
        run: dg.DagsterRun | None,
    ) -> dg.AssetMaterialization | dg.AssetObservation:
        metadata: dict[str, Any] = {
            "dagster/table_name": commit.table,
            facts.COMMIT_VERSION: commit.version,
            facts.TABLE_ID: commit.table_id,
            facts.OPERATION: commit.operation,
            facts.METRICS: dg.MetadataValue.json(dict(commit.metrics)),
            FEED_POSITION: commit.position,
            TXN_ID: commit.txn_id,
            "cm_delta/committed_at": dg.MetadataValue.timestamp(commit.committed_ms / 1000),
            "cm_delta/reported_by": self._sensor_name,
        }
        if run is not None:
            metadata["cm_delta/lost_by_run"] = dg.MetadataValue.dagster_run(run.run_id)
        tags = {"dagster/data_version": facts.data_version(commit.table_id, commit.data_version).value}
        if not commit.data_change:
            return dg.AssetObservation(asset_key=asset.key, metadata=metadata, tags=tags)
        return dg.AssetMaterialization(
            asset_key=asset.key,
            description=parts.unknown if partition is None else None,
            metadata=metadata,
            tags=tags,
            partition=partition,
        )

    def _launch_for_own(self, commit: WatchedCommit, asset: WatchedAsset, recorded: frozenset[str]) -> None:
        """A commit of this instance's runs needs no event; downstream it is as new as any other."""
        if commit.data_change and self._plan.launch_for is LaunchFor.EVERY_COMMIT:
            self._launch(commit, asset, AssetParts(keys=tuple(sorted(recorded))))

    def _launch(self, commit: WatchedCommit, asset: WatchedAsset, parts: AssetParts) -> None:
        run = self._known.run_of(commit)
        launched_here = run is not None and run.tags.get(_SENSOR_TAG) == self._sensor_name
        if commit.table not in self._plan.tables or launched_here:
            return
        likewise = self._plan.partitions is not None and self._plan.partitions == asset.partitions
        if likewise and (parts.unknown is not None or not parts.keys):
            self._warnings.append(
                f"Version {commit.version} of {commit.table} launches no run for what is not known by its partition: "
                f"{parts.unknown or 'the event of its run names none.'} Launch the job for the partitions concerned."
            )
        for partition in self._existing(parts.keys, commit) if likewise else (None,):
            newest = self._newest.get((commit.table_id, partition))
            if newest is None or newest.version < commit.version:
                self._newest[commit.table_id, partition] = commit

    def _existing(self, keys: Sequence[str], commit: WatchedCommit) -> Sequence[str]:
        """Those of ``keys`` that the job has; a request for another one would make Dagster reject the whole tick."""
        assert self._plan.partitions is not None
        with dg.partition_loading_context(dynamic_partitions_store=self._instance):
            found = [key for key in keys if self._plan.partitions.has_partition_key(key)]
        if len(found) < len(keys):
            gone = ", ".join(sorted(set(keys).difference(found)))
            self._warnings.append(
                f"Version {commit.version} of {commit.table} launches no run for {gone}: there is no such partition any more."
            )
        return found

    def _request(self, commit: WatchedCommit, partition: str | None) -> dg.RunRequest:
        key = f"{commit.table_id}:{commit.version}"
        return dg.RunRequest(
            run_key=key if partition is None else f"{key}:{partition}",
            partition_key=partition,
            tags={"cm_delta_commit/table": commit.table, "cm_delta_commit/version": str(commit.version)},
        )

    def _wait(self, commit: WatchedCommit) -> None:
        key = (commit.table_id, commit.version)
        if key not in self._pending:
            self._pending[key] = commit
            self._pending_text += len(json.dumps(asdict(commit)))


def _is_whole(recorded: frozenset[str], commit: WatchedCommit) -> bool:
    """Whether a run's events name all partitions that its commit wrote; Dagster stores one after the other."""
    return not recorded or commit.run_partition is None or stands_for(commit.run_partition, recorded)
