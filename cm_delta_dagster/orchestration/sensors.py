"""A sensor over the catalog's commit feed. Room: orchestration; one catalog query a tick, no Spark, no storage.

Commits made outside of this Dagster instance become events: ``AssetMaterialization`` where data changed, so that
downstream assets are triggered, ``AssetObservation`` for maintenance, which triggers nothing.

Commits of runs of this instance (tag ``dagster/run_id``) are known already, unless the run ended without recording the
materialization: then the sensor records it. While the run is under way its commits wait in the cursor and block nobody.

Dagster stores the events of a tick before its cursor, so a crash in between repeats the tick; events that are already
in the instance are recognised by table id and version. Run requests repeat with the same run key, which Dagster drops.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

import dagster as dg

from cm_delta_dagster.catalog.catalog import FeedEntry, TableIdentifier
from cm_delta_dagster.errors import CatalogError, InvalidArgumentError
from cm_delta_dagster.orchestration import metadata as facts
from cm_delta_dagster.orchestration.runs import ASSET_KEY_TAG, RUN_ID_TAG
from cm_delta_dagster.orchestration.write_contract import (
    DEFAULT_READ_KEYS,
    WRITE_KEYS,
    TableNames,
    own_entries,
    table_identifier,
)

WatchedAssets: TypeAlias = Mapping[dg.AssetKey, str] | Mapping[str, str] | Iterable[dg.AssetSpec | dg.AssetsDefinition]

FEED_POSITION = "cm_delta/feed_position"
_PARTITION_TAG = "dagster/partition"
_SENSOR_TAG = "dagster/sensor_name"
_MARGIN = 50
_MOST_COMMITS = 5000
"""Of one batch. Dagster reads at most 10,000 events at a time, and as many as there are commits are compared."""


class FirstTick(StrEnum):
    """Where a sensor without a cursor begins."""

    FROM_NOW = "from_now"
    """With the next commit; what happened before is not reported."""

    FROM_BEGINNING = "from_beginning"
    """With the first commit that the catalog knows."""


class LaunchFor(StrEnum):
    """Which data-changing commits launch the sensor's job."""

    EVERY_COMMIT = "every_commit"
    """All, whoever made them; only commits of runs that this sensor itself launched do not, so that it never feeds itself."""

    FOREIGN_COMMITS = "foreign_commits"
    """Those that are reported, that is, commits that no run of this instance accounts for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCommit:
    """What the sensor needs to know of a commit; small enough to wait in the cursor."""

    position: int
    table: str
    table_id: str
    version: int
    data_version: int
    committed_ms: int
    operation: str
    data_change: bool
    run_id: str | None = None
    run_asset: str | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, entry: FeedEntry) -> "WatchedCommit":
        summary = entry.summary
        return cls(
            position=entry.position,
            table=str(entry.identifier),
            table_id=entry.table_id,
            version=entry.version,
            data_version=entry.data_version,
            committed_ms=summary.in_commit_timestamp,
            operation=summary.operation,
            data_change=summary.data_change,
            run_id=summary.tags.get(RUN_ID_TAG),
            run_asset=summary.tags.get(ASSET_KEY_TAG),
            metrics=dict(summary.metrics),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedCursor:
    """How far the sensor has come.

    Attributes:
        position: feed position up to which every commit was reported, is known or waits in ``pending``.
        pending: commits of runs that had not ended; at most one for each run and table, the newest.
        recovering_until: after an unreadable cursor: up to this position, older versions than the newest one known to
            Dagster count as reported.
    """

    position: int
    pending: tuple[WatchedCommit, ...] = ()
    recovering_until: int = 0

    def to_text(self) -> str:
        return json.dumps({"format": 1, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "FeedCursor | None":
        """None if the text is no cursor of this sensor."""
        try:
            value = json.loads(text)
            if value.pop("format") != 1 or not isinstance(value["position"], int):
                return None
            pending = tuple(WatchedCommit(**item) for item in value.pop("pending"))
            return cls(pending=pending, **value)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def ratified_commit_sensor(
    *,
    name: str,
    assets: WatchedAssets,
    catalog: str = "catalog",
    job: Any = None,
    target: Any = None,
    minimum_interval_seconds: int = 30,
    batch_size: int = 1000,
    tick_seconds: float = 40.0,
    first_tick: FirstTick = FirstTick.FROM_NOW,
    launch_for: LaunchFor = LaunchFor.EVERY_COMMIT,
    launch_on: Iterable[dg.AssetKey] | None = None,
    default_catalog: str = "main",
    default_schema: str = "default",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """A sensor that reports ratified commits as events of ``assets``.

    Args:
        assets: asset key to table name, or assets and specs whose metadata (or key) names the table as for the IO
            manager.
        catalog: key of the CatalogResource.
        job, target: if given, launched once for each reported table with the newest version of the batch; the run key
            is ``<table id>:<version>``.
        launch_for: which commits launch it.
        launch_on: of the watched assets, those whose commits launch it; None: all.
        batch_size: commits looked at in one tick; the rest follow in the next ticks.
        tick_seconds: time after which a tick ends, however many commits are left; Dagster allows 60.

    Raises:
        InvalidArgumentError: an asset's metadata does not name a table, or the batch is too large.
    """
    if not 1 <= batch_size <= _MOST_COMMITS:
        raise InvalidArgumentError(f"batch_size is {batch_size}; give 1 to {_MOST_COMMITS} commits.")
    watched = watched_tables(assets, names=TableNames(catalog=default_catalog, schema=default_schema))
    launches = job is not None or target is not None
    launching = _launching_tables(watched, launch_on)

    @dg.sensor(
        name=name,
        description=f"Ratified commits of {', '.join(watched)}.",
        job=job,
        target=target,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={catalog},
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            source = getattr(context.resources, catalog).client.catalog
            cursor = _starting_cursor(context, source, first_tick)
            identifiers = [TableIdentifier.parse(table) for table in watched]
            entries = source.feed(after=cursor.position, limit=batch_size, identifiers=identifiers)
        except CatalogError as error:
            return dg.SkipReason(f"The catalog does not answer; the sensor keeps its place and tries again. {error}")
        tick = _Tick(
            instance=context.instance,
            watched=watched,
            cursor=cursor,
            sensor_name=name,
            launch_for=launch_for,
            launching=launching,
            deadline=time.monotonic() + tick_seconds,
        )
        tick.run([WatchedCommit.of(entry) for entry in entries])
        return tick.result(launches=launches)

    return sensor


def watched_tables(assets: WatchedAssets, *, names: TableNames) -> Mapping[str, tuple[dg.AssetKey, ...]]:
    """Assets of each table, by full table name. Raises InvalidArgumentError."""
    found: dict[str, list[dg.AssetKey]] = {}

    def add(key: dg.AssetKey, metadata: Mapping[str, Any]) -> None:
        entries = own_entries(
            metadata, known=WRITE_KEYS | DEFAULT_READ_KEYS, where=f"The metadata of {key.to_user_string()}"
        )
        identifier = table_identifier(entries, asset_path=key.path, names=names)
        found.setdefault(str(identifier), []).append(key)

    if isinstance(assets, Mapping):
        for key, table in assets.items():
            asset_key = key if isinstance(key, dg.AssetKey) else dg.AssetKey.from_user_string(key)
            add(asset_key, {"table": table})
    else:
        for item in assets:
            for spec in [item] if isinstance(item, dg.AssetSpec) else item.specs:
                add(spec.key, spec.metadata)
    return {table: tuple(keys) for table, keys in sorted(found.items())}


def _launching_tables(
    watched: Mapping[str, tuple[dg.AssetKey, ...]], launch_on: Iterable[dg.AssetKey] | None
) -> frozenset[str]:
    if launch_on is None:
        return frozenset(watched)
    wanted = set(launch_on)
    unknown = wanted.difference(*watched.values())
    if unknown:
        names = ", ".join(sorted(key.to_user_string() for key in unknown))
        raise InvalidArgumentError(f"launch_on names assets that the sensor does not watch: {names}.")
    return frozenset(table for table, keys in watched.items() if wanted & set(keys))


def _starting_cursor(context: dg.SensorEvaluationContext, source: Any, first_tick: FirstTick) -> FeedCursor:
    if not context.cursor:
        return FeedCursor(position=source.latest_feed_position() if first_tick is FirstTick.FROM_NOW else 0)
    cursor = FeedCursor.from_text(context.cursor)
    if cursor is not None:
        return cursor
    context.log.warning(
        "The cursor is unreadable; starting over. Versions that Dagster has seen are not reported again."
    )
    return FeedCursor(position=0, recovering_until=source.latest_feed_position())


class _Tick:
    """One evaluation: takes commits in, collects events and run requests, knows the next cursor."""

    def __init__(
        self,
        *,
        instance: dg.DagsterInstance,
        watched: Mapping[str, tuple[dg.AssetKey, ...]],
        cursor: FeedCursor,
        sensor_name: str,
        launch_for: LaunchFor,
        launching: frozenset[str],
        deadline: float,
    ) -> None:
        self._instance = instance
        self._watched = watched
        self._cursor = cursor
        self._sensor_name = sensor_name
        self._launch_for = launch_for
        self._launching = launching
        self._deadline = deadline
        self._position = cursor.position
        self._pending: dict[tuple[str | None, str], WatchedCommit] = {}
        self._events: list[dg.AssetMaterialization | dg.AssetObservation] = []
        self._newest: dict[str, WatchedCommit] = {}
        self._runs: dict[str, dg.DagsterRun | None] = {}
        self._run_records: dict[str, set[tuple[dg.AssetKey, str, int]]] = {}
        self._reported: dict[dg.AssetKey, set[tuple[str, int]]] = {}

    def run(self, commits: Sequence[WatchedCommit]) -> None:
        """Look at what waited, then at ``commits``, until time runs out."""
        expected = len(commits) + len(self._cursor.pending)
        for commit in self._cursor.pending:
            self._take(commit, expected)
        for commit in commits:
            if time.monotonic() >= self._deadline:
                break
            self._take(commit, expected)
            self._position = commit.position

    def result(self, *, launches: bool) -> dg.SensorResult:
        """What Dagster is told."""
        cursor = FeedCursor(
            position=self._position,
            pending=tuple(self._pending.values()),
            recovering_until=self._cursor.recovering_until if self._cursor.recovering_until > self._position else 0,
        ).to_text()
        if not self._events and not (launches and self._newest):
            waiting = f"; {len(self._pending)} of runs under way wait" if self._pending else ""
            return dg.SensorResult(
                skip_reason=f"No commits to report up to feed position {self._position}{waiting}.", cursor=cursor
            )
        requests = [
            dg.RunRequest(
                run_key=f"{commit.table_id}:{commit.version}",
                tags={"cm_delta_commit/table": commit.table, "cm_delta_commit/version": str(commit.version)},
            )
            for commit in self._newest.values()
            if launches
        ]
        return dg.SensorResult(asset_events=self._events, run_requests=requests, cursor=cursor)

    def _take(self, commit: WatchedCommit, expected: int) -> None:
        for asset_key in self._watched.get(commit.table, ()):
            decision = self._is_known(commit, asset_key)
            if decision is None:
                self._wait(commit)
            elif decision:
                self._launch_for_own(commit)
            elif not self._was_reported(commit, asset_key, expected):
                self._report(commit, asset_key)
            elif commit.data_change and commit.position > self._cursor.recovering_until:
                # Reported by a tick that died before its runs were requested; Dagster drops a run key that it knows.
                self._launch(commit)

    def _is_known(self, commit: WatchedCommit, asset_key: dg.AssetKey) -> bool | None:
        """Whether Dagster knows of the commit without us; None while that is not decided."""
        if commit.run_id is None or commit.run_asset not in (None, asset_key.to_user_string()):
            return False
        run = self._run(commit.run_id)
        if run is None:
            return False
        if not commit.data_change:
            return True  # Our maintenance jobs observe their own results.
        records = self._records_of(run)
        if any(
            key == asset_key and table_id == commit.table_id and v >= commit.version for key, table_id, v in records
        ):
            return True
        return False if run.is_finished else None

    def _launch_for_own(self, commit: WatchedCommit) -> None:
        """A commit of this instance's runs needs no event; downstream it is as new as any other."""
        run = None if commit.run_id is None else self._run(commit.run_id)
        launched_here = run is not None and run.tags.get(_SENSOR_TAG) == self._sensor_name
        if commit.data_change and self._launch_for is LaunchFor.EVERY_COMMIT and not launched_here:
            self._launch(commit)

    def _launch(self, commit: WatchedCommit) -> None:
        newest = self._newest.get(commit.table_id)
        if commit.table not in self._launching:
            return
        if newest is None or newest.version < commit.version:
            self._newest[commit.table_id] = commit

    def _wait(self, commit: WatchedCommit) -> None:
        key = (commit.run_id, commit.table_id)
        known = self._pending.get(key)
        if known is None or known.version < commit.version:
            self._pending[key] = commit

    def _run(self, run_id: str) -> dg.DagsterRun | None:
        if run_id not in self._runs:
            self._runs[run_id] = self._instance.get_run_by_id(run_id)
        return self._runs[run_id]

    def _records_of(self, run: dg.DagsterRun) -> set[tuple[dg.AssetKey, str, int]]:
        # Read after the run's status: a run that has ended by then records nothing more.
        if run.run_id not in self._run_records:
            logs = self._instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
            events = [entry.asset_materialization for entry in logs]
            self._run_records[run.run_id] = {
                (event.asset_key, *commit)
                for event in events
                if event is not None
                for commit in _commit_of(event.metadata)
            }
        return self._run_records[run.run_id]

    def _was_reported(self, commit: WatchedCommit, asset_key: dg.AssetKey, expected: int) -> bool:
        if asset_key not in self._reported:
            self._reported[asset_key] = self._events_of(asset_key, limit=min(expected, _MOST_COMMITS) + _MARGIN)
        known = self._reported[asset_key]
        if (commit.table_id, commit.version) in known:
            return True
        if commit.position > self._cursor.recovering_until:
            return False
        return any(table_id == commit.table_id and version >= commit.version for table_id, version in known)

    def _events_of(self, asset_key: dg.AssetKey, *, limit: int) -> set[tuple[str, int]]:
        """Commits that the newest events of the asset speak of."""
        materializations = self._instance.fetch_materializations(asset_key, limit=limit).records
        observations = self._instance.fetch_observations(asset_key, limit=limit).records
        found = [record.asset_materialization for record in materializations]
        seen = [record.asset_observation for record in observations]
        return {
            commit
            for event in (
                *found,
                *(event for event in seen if event is None or facts.VERSION_READ not in event.metadata),
            )
            if event is not None
            for commit in _commit_of(event.metadata)
        }

    def _report(self, commit: WatchedCommit, asset_key: dg.AssetKey) -> None:
        metadata: dict[str, Any] = {
            "dagster/table_name": commit.table,
            facts.COMMIT_VERSION: commit.version,
            facts.TABLE_ID: commit.table_id,
            facts.OPERATION: commit.operation,
            facts.METRICS: dg.MetadataValue.json(dict(commit.metrics)),
            FEED_POSITION: commit.position,
            "cm_delta/committed_at": dg.MetadataValue.timestamp(commit.committed_ms / 1000),
            "cm_delta/reported_by": self._sensor_name,
        }
        tags = {"dagster/data_version": facts.data_version(commit.table_id, commit.data_version).value}
        run = None if commit.run_id is None else self._runs.get(commit.run_id)
        self._reported[asset_key].add((commit.table_id, commit.version))
        if not commit.data_change:
            self._events.append(dg.AssetObservation(asset_key=asset_key, metadata=metadata, tags=tags))
            return
        if run is not None:
            metadata["cm_delta/lost_by_run"] = dg.MetadataValue.dagster_run(run.run_id)
        self._events.append(
            dg.AssetMaterialization(
                asset_key=asset_key,
                metadata=metadata,
                tags=tags,
                partition=None if run is None else run.tags.get(_PARTITION_TAG),
            )
        )
        self._launch(commit)


def _commit_of(metadata: Mapping[str, dg.MetadataValue[Any]]) -> Iterator[tuple[str, int]]:
    table_id, version = metadata.get(facts.TABLE_ID), metadata.get(facts.COMMIT_VERSION)
    if table_id is not None and version is not None and isinstance(version.value, int):
        yield str(table_id.value), version.value
