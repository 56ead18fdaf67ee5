"""One tick of a commit sensor: from a sequence of commits to events, run requests and the next cursor."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import dagster as dg

from cm_delta_dagster.catalog.commit_feed import FeedTable
from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.metadata.partitions import names_all_keys
from cm_delta_dagster.orchestration.metadata.setting_names import SettingName
from cm_delta_dagster.orchestration.sensor.changed_partitions import AssetParts, PartitionFinder, WatchedAsset
from cm_delta_dagster.orchestration.sensor.feed_cursor import FeedCursor, SeenCommit, WatchedCommit
from cm_delta_dagster.orchestration.sensor.known_commits import TXN_ID, KnownCommits
from cm_delta_dagster.protocol.schema.types import parse_schema

FEED_POSITION = "cm_delta/feed_position"
_PARTITION_TAG = "dagster/partition"
_SENSOR_TAG = "dagster/sensor_name"
_MAX_EVENTS = 2000
"""Number of events and requests after which a tick ends; Dagster stores each of them separately."""
_MAX_LISTED_VERSIONS = 10
_MAX_PENDING_CHARACTERS = 500_000
"""Maximum size of the pending commits in a cursor, in characters. At this size the sensor stops advancing in the feed."""


class LaunchFor(SettingName):
    """Which data-changing commits launch the sensor's job."""

    EVERY_COMMIT = "every_commit"
    """All commits except those of runs that this sensor launched, so that it does not trigger itself."""

    FOREIGN_COMMITS = "foreign_commits"
    """Commits that are reported, that is, commits for which no run of this instance has stored an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """What a sensor launches, and for which commits.

    Attributes:
        tables: full names of the tables whose commits launch the job; empty if there is no job.
        partitions: of the job; for an asset with the same partitions, each changed partition launches a run.
        adds_partitions: whether a partition value without a key becomes a key of a dynamic partitions definition.
        job: name of the job, if the sensor has several.
        checks_job: name of the job of the checks; None if they are not launched.
        checks: the checks of each asset.
    """

    tables: frozenset[str] = frozenset()
    launch_for: LaunchFor = LaunchFor.EVERY_COMMIT
    partitions: dg.PartitionsDefinition[Any] | None = None
    adds_partitions: bool = False
    job: str | None = None
    checks_job: str | None = None
    checks: Mapping[dg.AssetKey, Collection[dg.AssetCheckKey]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickOutcome:
    """The result for Dagster, and the sentences and warnings that the sensor logs."""

    result: dg.SensorResult
    reported: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())


class SensorTick:
    """Processes the commits of one tick and collects events, run requests and the next cursor.

    Args:
        cursor: where the last tick stopped.
        table_of: what the catalog knows of a table, by table id; None if it does not know the table any more.
        deadline: when the tick has to end, as a value of ``time.monotonic()``.
    """

    def __init__(
        self,
        *,
        instance: dg.DagsterInstance,
        watched: Mapping[str, tuple[WatchedAsset, ...]],
        cursor: FeedCursor,
        sensor_name: str,
        launch: LaunchPlan,
        table_of: Callable[[str], FeedTable | None],
        deadline: float,
    ) -> None:
        self._instance = instance
        self._watched = watched
        self._cursor = cursor
        self._sensor_name = sensor_name
        self._plan = launch
        self._deadline = deadline
        self._table_of = table_of
        self._tables: dict[str, dict[str, Any]] = {}
        self._reported: dict[tuple[str, int, str], int] = {}
        self._position, self._seen = cursor.position, cursor.seen
        self._known = KnownCommits(instance, since_ms=0)
        self._finders: dict[dg.AssetKey, PartitionFinder] = {}
        self._pending: dict[tuple[str, int], WatchedCommit] = {}
        self._pending_text = 0
        self._is_cut = False
        self._events: list[dg.AssetMaterialization | dg.AssetObservation] = []
        self._newest: dict[tuple[str, str | None], WatchedCommit] = {}
        self._checked: dict[str, tuple[WatchedCommit, set[dg.AssetCheckKey]]] = {}
        self._warnings: list[str] = []

    def run(self, commits: Sequence[WatchedCommit]) -> None:
        """Process the pending commits of the cursor, then ``commits``, until the deadline."""
        every = (*self._cursor.pending, *commits)
        since_ms = 0 if self._cursor.recovering_until else min((commit.ratified_ms for commit in every), default=0)
        assets = frozenset(asset.key for commit in every for asset in self._watched.get(commit.table, ()))
        self._known = KnownCommits(self._instance, since_ms=since_ms, assets=assets)
        for commit in self._cursor.pending:
            if self._must_stop():
                self._wait(commit)
            else:
                self._process(commit)
        for commit in commits:
            if self._must_stop():
                self._is_cut = True
                return
            if self._pending_text >= _MAX_PENDING_CHARACTERS:
                self._warnings.append(
                    f"{len(self._pending)} commits of runs under way are pending, which is the most that the cursor can "
                    f"store; the sensor stays at feed position {self._position} until those runs end."
                )
                self._is_cut = True
                return
            self._process(commit)
            self._position = commit.position
            self._seen = SeenCommit(position=commit.position, table=commit.table, txn_id=commit.txn_id)

    def warn(self, text: str) -> None:
        """Have the tick log a warning and show it as the reason if it launches nothing."""
        self._warnings.append(text)

    def outcome(self, *, reached: int | None = None) -> TickOutcome:
        """The result of the tick.

        Args:
            reached: position up to which the page shows every commit of the watched tables; None if it is its last entry.
        """
        position = self._position if reached is None or self._is_cut else max(self._position, reached)
        cursor = replace(
            self._cursor,
            position=position,
            seen=self._seen,
            pending=tuple(sorted(self._pending.values(), key=lambda commit: commit.position)),
            recovering_until=self._cursor.recovering_until if self._cursor.recovering_until > position else 0,
        ).to_text()
        requests = [self._request(commit, partition) for (_, partition), commit in self._newest.items()]
        requests += self._check_requests()
        reported = self._report_texts()
        added = [
            dg.DynamicPartitionsDefinition(name=name).build_add_request(sorted(keys))
            for name, keys in sorted(self._new_keys().items())
        ]
        if requests:
            result = dg.SensorResult(
                asset_events=self._events,
                run_requests=requests,
                dynamic_partitions_requests=added,
                cursor=cursor,
            )
        else:
            # Dagster 1.13 marks every tick without a run request as skipped, also one with events, and shows this text.
            waiting = f"; {len(self._pending)} of runs under way wait" if self._pending else ""
            nothing = f"No commits to report up to feed position {self._position}{waiting}."
            texts = [*reported, f"{len(self._pending)} commits of runs under way wait."] if waiting else reported
            reason = " ".join([*(texts if reported else [nothing]), *self._warnings])
            result = dg.SensorResult(
                asset_events=self._events,
                skip_reason=reason,
                dynamic_partitions_requests=added,
                cursor=cursor,
            )
        return TickOutcome(result=result, reported=reported, warnings=tuple(self._warnings))

    def _new_keys(self) -> Mapping[str, frozenset[str]]:
        """The dynamic partition keys that this tick adds, by the name of the definition."""
        keys_by_definition: dict[str, frozenset[str]] = {}
        for finder in self._finders.values():
            for name, keys in finder.new_keys().items():
                keys_by_definition[name] = keys_by_definition.get(name, frozenset()) | keys
        return keys_by_definition

    def _report_texts(self) -> tuple[str, ...]:
        """What this tick reports, a sentence for each version, the newest first."""
        texts = []
        for (table, version, kind), partitions in reversed(self._reported.items()):
            plural = "" if partitions == 1 else "s"
            what = f"{partitions} partition{plural}" if partitions else kind
            texts.append(f"Reported version {version} of {table}: {what}.")
        more = len(texts) - _MAX_LISTED_VERSIONS
        return (*texts[:_MAX_LISTED_VERSIONS], *([f"And {more} other versions."] if more > 0 else ()))

    def _must_stop(self) -> bool:
        return len(self._events) + len(self._newest) >= _MAX_EVENTS or time.monotonic() >= self._deadline

    def _process(self, commit: WatchedCommit) -> None:
        for asset in self._watched.get(commit.table, ()):
            run = self._run_for(commit, asset.key)
            if run is not None and commit.is_creation:
                continue  # The run writes its rows next, or has failed, which Dagster reports.
            recorded = None if run is None else self._known.recorded_partitions(run, commit, asset.key)
            if recorded is not None and _is_whole(recorded, commit):
                self._launch_for_own(commit, asset, recorded)
            elif run is not None and not run.is_finished:
                self._wait(commit)
            else:
                self._report(commit, asset, run, recorded or frozenset())

    def _run_for(self, commit: WatchedCommit, asset_key: dg.AssetKey) -> dg.DagsterRun | None:
        """The run of this instance that made the commit and stores its events for this asset; None if there is none."""
        if commit.run_asset not in (None, asset_key.to_user_string()):
            return None
        return self._known.run_of(commit)

    def _report(
        self, commit: WatchedCommit, asset: WatchedAsset, run: dg.DagsterRun | None, recorded: frozenset[str]
    ) -> None:
        """Report the partitions of the commit without an event, and launch the job for all of them.

        Args:
            recorded: partitions for which the run of the commit stored events.
        """
        parts = self._parts_of(commit, asset, run)
        parts = replace(parts, keys=tuple(sorted({*parts.keys, *recorded})))
        partitions: list[str | None] = list(parts.keys)
        if parts.unknown is not None or not partitions:
            partitions.append(None)
        recovering = commit.position <= self._cursor.recovering_until
        if recovering and self._known.newest_reported(commit.table_id, asset.key) > commit.version:
            return
        missing = [
            partition
            for partition in partitions
            if not self._known.is_reported(commit, asset.key, None if partition is None else str(partition))
        ]
        self._events += [self._event(commit, asset, partition, parts, run) for partition in missing]
        if missing:
            kind = "changed data" if commit.data_change else "maintenance"
            keys = sum(partition is not None for partition in missing)
            place = (commit.table, commit.version, kind)
            self._reported[place] = max(keys, self._reported.get(place, 0))
        if commit.data_change and (missing or not recovering):
            self._launch_checks(commit, asset)
        if recorded and recorded.issuperset(parts.keys):
            self._launch_for_own(commit, asset, recorded)
        elif commit.data_change and (missing or not recovering):
            # Also repeats the requests of a tick that died before Dagster stored them; known run keys are dropped.
            self._launch(commit, asset, parts)

    def _parts_of(self, commit: WatchedCommit, asset: WatchedAsset, run: dg.DagsterRun | None) -> AssetParts:
        if not commit.data_change:
            return AssetParts()
        if run is not None and commit.run_partition is not None and run.tags.get(_PARTITION_TAG):
            return AssetParts(keys=(run.tags[_PARTITION_TAG],))
        if asset.key not in self._finders:
            self._finders[asset.key] = PartitionFinder(asset, self._instance, adds=self._plan.adds_partitions)
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
            **self._table_metadata(commit),
            **facts.standard_metadata(table=commit.table, location=None, schema=None, counts=commit.counts),
            **facts.change_figures(commit.figures_of(parts.positions.get(partition or "", ()))),
            facts.COMMIT_VERSION: commit.version,
            facts.TABLE_ID: commit.table_id,
            facts.OPERATION: commit.operation,
            facts.METRICS: dg.MetadataValue.json(dict(commit.metrics)),
            FEED_POSITION: commit.position,
            TXN_ID: commit.txn_id,
            "cm_delta/committed_at": dg.MetadataValue.timestamp(commit.committed_ms / 1000),
            "cm_delta/reported_by": self._sensor_name,
        }
        if commit.engine is not None:
            metadata["cm_delta/engine"] = commit.engine
        if commit.principal is not None:
            metadata["cm_delta/principal"] = commit.principal
        if commit.user_metadata is not None:
            metadata["cm_delta/user_metadata"] = commit.user_metadata
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

    def _table_metadata(self, commit: WatchedCommit) -> Mapping[str, Any]:
        """Location, columns and backlog of a table, as the catalog knows them now."""
        if commit.table_id not in self._tables:
            table = self._table_of(commit.table_id)
            metadata: dict[str, Any] = {}
            if table is not None:
                schema = None if table.metadata is None else parse_schema(table.metadata.schema_string)
                metadata = facts.standard_metadata(
                    table=commit.table, location=table.location, schema=schema, counts=None
                )
                metadata[facts.UNPUBLISHED_COMMITS] = table.latest_version - table.published_version
            self._tables[commit.table_id] = metadata
        return self._tables[commit.table_id]

    def _launch_for_own(self, commit: WatchedCommit, asset: WatchedAsset, recorded: frozenset[str]) -> None:
        """Launch the job for a commit of a run of this instance, which has its events already."""
        if commit.data_change and self._plan.launch_for is LaunchFor.EVERY_COMMIT:
            self._launch(commit, asset, AssetParts(keys=tuple(sorted(recorded))))

    def _launch(self, commit: WatchedCommit, asset: WatchedAsset, parts: AssetParts) -> None:
        run = self._known.run_of(commit)
        launched_here = run is not None and run.tags.get(_SENSOR_TAG) == self._sensor_name
        if commit.table not in self._plan.tables or launched_here:
            return
        same_partitions = self._plan.partitions is not None and self._plan.partitions == asset.partitions
        if same_partitions and (parts.unknown is not None or not parts.keys):
            self._warnings.append(
                f"Version {commit.version} of {commit.table} launches no run for changes without a partition key: "
                f"{parts.unknown or 'the event of its run has no partition.'} Launch the job for the changed partitions."
            )
        for partition in self._existing(parts.keys, commit) if same_partitions else (None,):
            newest = self._newest.get((commit.table_id, partition))
            if newest is None or newest.version < commit.version:
                self._newest[commit.table_id, partition] = commit

    def _launch_checks(self, commit: WatchedCommit, asset: WatchedAsset) -> None:
        """Launch the checks of the asset once for the newest version of its table."""
        checks = self._plan.checks.get(asset.key, ())
        if checks:
            newest, known = self._checked.get(commit.table_id, (commit, set()))
            self._checked[commit.table_id] = (
                max(newest, commit, key=lambda known_commit: known_commit.version),
                {*known, *checks},
            )

    def _check_requests(self) -> Iterator[dg.RunRequest]:
        for commit, checks in self._checked.values():
            yield dg.RunRequest(
                run_key=f"{commit.table_id}:{commit.version}:checks",
                job_name=self._plan.checks_job,
                asset_check_keys=sorted(checks),
                tags=_commit_tags(commit),
            )

    def _existing(self, keys: Sequence[str], commit: WatchedCommit) -> Sequence[str]:
        """The ``keys`` that the job has. Dagster rejects the whole tick for a request with an unknown key."""
        assert self._plan.partitions is not None
        with dg.partition_loading_context(dynamic_partitions_store=self._instance):
            new = frozenset[str]().union(*self._new_keys().values())
            existing = [key for key in keys if key in new or self._plan.partitions.has_partition_key(key)]
        if len(existing) < len(keys):
            unknown = ", ".join(sorted(set(keys).difference(existing)))
            self._warnings.append(
                f"Version {commit.version} of {commit.table} launches no run for {unknown}: this partition does not exist any more."
            )
        return existing

    def _request(self, commit: WatchedCommit, partition: str | None) -> dg.RunRequest:
        key = f"{commit.table_id}:{commit.version}"
        return dg.RunRequest(
            run_key=key if partition is None else f"{key}:{partition}",
            partition_key=partition,
            job_name=self._plan.job,
            tags=_commit_tags(commit),
        )

    def _wait(self, commit: WatchedCommit) -> None:
        key = (commit.table_id, commit.version)
        if key not in self._pending:
            self._pending[key] = commit
            self._pending_text += len(json.dumps(asdict(commit)))


def _commit_tags(commit: WatchedCommit) -> Mapping[str, str]:
    """Tags of a run that is launched for a commit."""
    return {"cm_delta_commit/table": commit.table, "cm_delta_commit/version": str(commit.version)}


def _is_whole(recorded: frozenset[str], commit: WatchedCommit) -> bool:
    """Whether the run has stored the events of all partitions that its commit wrote; Dagster stores them one by one."""
    return not recorded or commit.run_partition is None or names_all_keys(commit.run_partition, recorded)
