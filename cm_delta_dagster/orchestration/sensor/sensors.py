"""A sensor over the catalog's commit feed. A tick makes one catalog query and needs neither Spark nor storage.

A commit that was made outside of this Dagster instance becomes an ``AssetMaterialization`` for each changed partition, or, if
it changed no data, an ``AssetObservation``, which triggers nothing.

A commit of a run of this instance (tag ``dagster/run_id``) is reported only if the run ended without storing the event. Until
the run ends, its commits are pending in the cursor; later commits are reported meanwhile.

Dagster stores the events of a tick before its cursor, so a crash in between repeats the tick. Events that the instance already
has are recognized by table id, version and partition. Repeated run requests have the same run key and are deduplicated by
Dagster. ``sensor_tick`` implements a tick, ``feed_cursor`` the cursor.
"""

import functools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias

import dagster as dg

from cm_delta_dagster.api.keyword_hints import checking_keywords
from cm_delta_dagster.catalog.commit_feed import CommitFeed, FeedPage, FeedTable
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CatalogError, InvalidArgumentError
from cm_delta_dagster.operations.arguments import duration_ms
from cm_delta_dagster.orchestration.metadata.metadata_keys import DEFAULT_READ_KEYS, WRITE_KEYS, own_entries
from cm_delta_dagster.orchestration.metadata.setting_names import SettingName
from cm_delta_dagster.orchestration.metadata.write_contract import (
    NamingDefaults,
    ambiguous_table,
    parse_partition_expr,
    table_identifier,
)
from cm_delta_dagster.orchestration.runs.intervals import interval_seconds
from cm_delta_dagster.orchestration.sensor.changed_partitions import WatchedAsset
from cm_delta_dagster.orchestration.sensor.feed_cursor import FeedCursor, WatchedCommit
from cm_delta_dagster.orchestration.sensor.sensor_tick import LaunchFor, LaunchPlan, SensorTick

WatchedAssets: TypeAlias = Mapping[dg.AssetKey, str] | Mapping[str, str] | Iterable[dg.AssetSpec | dg.AssetsDefinition]

_MAX_BATCH_SIZE = 5000
"""Commits of one tick."""


class FirstTick(SettingName):
    """Where a sensor without a cursor starts."""

    FROM_NOW = "from_now"
    """At the next commit; earlier commits are not reported."""

    FROM_BEGINNING = "from_beginning"
    """At the first commit of the catalog."""


@checking_keywords
def ratified_commit_sensor(
    *,
    name: str,
    assets: WatchedAssets,
    catalog: str = "catalog",
    job: Any = None,
    target: Any = None,
    minimum_interval: timedelta = timedelta(seconds=30),
    batch_size: int = 1000,
    tick_limit: timedelta = timedelta(seconds=40),
    first_tick: FirstTick = FirstTick.FROM_NOW,
    launch_for: LaunchFor = LaunchFor.EVERY_COMMIT,
    launch_on: Iterable[dg.AssetKey] | None = None,
    launch_checks: bool = False,
    add_dynamic_partitions: bool = False,
    default_catalog: str = "main",
    default_schema: str = "default",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """A sensor that reports ratified commits as events of ``assets``.

    Args:
        assets: asset key to table name, or assets and specs whose metadata or key names the table as for the IO
            manager. With the first form, commits are reported without partitions.
        catalog: key of the CatalogResource.
        job, target: launched for each table with new data, once for the newest version of the tick, with the run key
            ``<table id>:<version>``. If the job is partitioned as the asset is, it is launched for each changed
            partition, with the run key ``<table id>:<version>:<partition>``.
        launch_for: which commits launch the job.
        launch_on: the watched assets whose commits launch the job; None: all.
        launch_checks: whether the checks of an asset are launched when new data of it is reported: Dagster shows a check that ran
            before the newest materialization as out of date. They run in the job ``<name>_checks``.
        add_dynamic_partitions: whether a new value of a partition column becomes a key of the asset's dynamic partitions.
        batch_size: maximum number of commits of one tick; the rest follows in the next ticks.
        minimum_interval: time between two ticks.
        tick_limit: time after which a tick ends and leaves the remaining commits to the next; Dagster allows 60.

    Raises:
        InvalidArgumentError: an asset's metadata does not name a table, two asset keys have the same table, or
            ``batch_size`` is out of range.
    """
    if not 1 <= batch_size <= _MAX_BATCH_SIZE:
        raise InvalidArgumentError(f"batch_size is {batch_size}; give 1 to {_MAX_BATCH_SIZE} commits.")
    watched = watched_tables(assets, names=NamingDefaults(catalog=default_catalog, schema=default_schema))
    jobs = _Jobs.of(name, watched, job=job, target=target, checks=launch_checks)
    evaluation = _SensorEvaluation(
        name=name,
        catalog=catalog,
        watched=watched,
        launching=_launching_tables(watched, launch_on) if jobs.launches else frozenset(),
        jobs=jobs,
        launch_for=launch_for,
        adds_partitions=add_dynamic_partitions,
        first_tick=first_tick,
        batch_size=batch_size,
        tick_seconds=duration_ms(tick_limit, name="tick_limit") / 1000,
    )
    decorate = dg.sensor(
        name=name,
        description=f"Ratified commits of {', '.join(watched)}.",
        minimum_interval_seconds=interval_seconds(minimum_interval),
        default_status=default_status,
        required_resource_keys={catalog},
        **jobs.arguments,
    )

    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        return evaluation.evaluate(context)

    return decorate(sensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """What the sensor launches.

    Attributes:
        arguments: those of ``dagster.sensor``.
        launches: whether commits launch a job.
        job, checks: name of this job and of that of the checks, if the sensor launches checks.
    """

    arguments: Mapping[str, Any]
    launches: bool
    job: str | None = None
    checks: str | None = None

    @classmethod
    def of(
        cls, name: str, watched: Mapping[str, tuple[WatchedAsset, ...]], *, job: Any, target: Any, checks: bool
    ) -> "_Jobs":
        launches = job is not None or target is not None
        if not checks:
            return cls(arguments={"job": job, "target": target}, launches=launches)
        keys = sorted({asset.key for own in watched.values() for asset in own})
        of_checks = dg.define_asset_job(
            f"{name}_checks",
            selection=dg.AssetSelection.checks_for_assets(*keys),
            description="Checks of tables with new data.",
            executor_def=dg.in_process_executor,
        )
        if not launches:
            return cls(arguments={"jobs": [of_checks]}, launches=False, checks=of_checks.name)
        own = job if target is None else _job_of(name, target)
        return cls(arguments={"jobs": [own, of_checks]}, launches=True, job=own.name, checks=of_checks.name)


def _job_of(name: str, target: Any) -> Any:
    """The job of what the argument ``target`` of a sensor can be."""
    if hasattr(target, "name") and not isinstance(target, dg.AssetsDefinition):
        return target
    return dg.define_asset_job(f"{name}_job", selection=[target] if isinstance(target, dg.AssetsDefinition) else target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SensorEvaluation:
    """The configuration of one sensor and its evaluation function.

    Attributes:
        catalog: key of the CatalogResource.
        launching: full names of the tables whose commits launch the job.
    """

    name: str
    catalog: str
    watched: Mapping[str, tuple[WatchedAsset, ...]]
    launching: frozenset[str]
    jobs: _Jobs
    launch_for: LaunchFor
    adds_partitions: bool
    first_tick: FirstTick
    batch_size: int
    tick_seconds: float

    def evaluate(self, context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """One tick: read a page of the feed and report its commits."""
        cursor = FeedCursor.from_text(context.cursor) if context.cursor else None
        try:
            client = getattr(context.resources, self.catalog).client
            limit = self._limit(context, cursor)
            page = self._page(client.feed, cursor, limit=limit)
        except CatalogError as error:
            return dg.SkipReason(f"The catalog is not available; the sensor keeps its cursor and retries. {error}")
        if cursor is None:
            cursor = _starting_cursor(context, page, self.first_tick)
        lost = cursor.lost_place(page, self.watched)
        if lost is not None:
            return _restart(context, cursor, page, lost)
        gap = cursor.gap(page)
        if gap is not None:
            cursor = self._after_gap(client.feed, cursor, page)
        tick = SensorTick(
            instance=context.instance,
            watched=self.watched,
            cursor=replace(cursor, catalog_id=page.catalog_id),
            sensor_name=self.name,
            launch=LaunchPlan(
                tables=self.launching,
                launch_for=self.launch_for,
                partitions=_job_partitions(context, self.name, self.jobs.job) if self.jobs.launches else None,
                adds_partitions=self.adds_partitions,
                job=self.jobs.job,
                checks_job=self.jobs.checks,
                checks=self._checks(context) if self.jobs.checks else {},
            ),
            table_of=lambda table_id: _table_of(client, page, table_id),
            deadline=time.monotonic() + self.tick_seconds,
        )
        if gap is not None:
            tick.warn(
                f"{gap}, before this sensor read them. It continues after them, and examines the newest commit of each table that "
                "lies there. Older commits that lie there are not reported."
            )
        # The page starts with the last commit seen, which lost_place has compared with the cursor.
        tick.run([WatchedCommit.of(entry) for entry in page.entries if entry.position > cursor.position])
        outcome = tick.outcome(reached=None if len(page.entries) >= limit else page.latest_position)
        for text in outcome.reported:
            context.log.info(text)
        for warning in outcome.warnings:
            context.log.warning(warning)
        return outcome.result

    def _checks(self, context: dg.SensorEvaluationContext) -> Mapping[dg.AssetKey, tuple[dg.AssetCheckKey, ...]]:
        """The checks of the watched assets; none if the code location is unknown, as in a unit test."""
        if context.repository_def is None:
            return {}
        graph, keys = context.repository_def.asset_graph, {asset.key for own in self.watched.values() for asset in own}
        return {key: tuple(graph.get_check_keys_for_assets({key})) for key in keys}

    def _after_gap(
        self,
        source: CommitFeed,
        cursor: FeedCursor,
        page: FeedPage,
    ) -> FeedCursor:
        """Where a sensor continues that was off for longer than the retention: after the gap, with the newest commits in it."""
        newest = [WatchedCommit.of(entry) for entry in source.newest_deleted_commits(_identifiers(tuple(self.watched)))]
        known = {(commit.table_id, commit.version) for commit in cursor.pending}
        missed = [commit for commit in newest if (commit.table_id, commit.version) not in known]
        return replace(cursor, position=page.deleted_up_to, seen=None, pending=(*cursor.pending, *missed))

    def _limit(self, context: dg.SensorEvaluationContext, cursor: FeedCursor | None) -> int:
        if cursor is not None:
            return self.batch_size + 1
        from_now = not context.cursor and self.first_tick is FirstTick.FROM_NOW
        return 0 if from_now else self.batch_size

    def _page(self, source: CommitFeed, cursor: FeedCursor | None, *, limit: int) -> FeedPage:
        after = 0 if cursor is None else cursor.reads_after(self.watched)
        return source.feed_page(after=after, limit=limit, identifiers=_identifiers(tuple(self.watched)))


@functools.lru_cache(maxsize=32)
def _identifiers(tables: tuple[str, ...]) -> frozenset[TableIdentifier]:
    """The identifiers of the watched tables, parsed once for all ticks of a process."""
    return frozenset(map(TableIdentifier.parse, tables))


def _table_of(client: DeltaClient, page: FeedPage, table_id: str) -> FeedTable | None:
    """The table of a commit; a pending commit of an earlier tick takes one more query if its table has no newer commit."""
    table = page.tables.get(table_id)
    if table is not None:
        return table
    try:
        entry = client.registry.load_table_by_id(table_id)
    except CatalogError:
        return None
    return FeedTable(
        location=entry.location,
        latest_version=entry.ratified.latest_version,
        published_version=entry.ratified.published_version,
        metadata=None if entry.definition is None else entry.definition.metadata,
    )


def watched_tables(assets: WatchedAssets, *, names: NamingDefaults) -> Mapping[str, tuple[WatchedAsset, ...]]:
    """Assets of each table, by full table name. Raises InvalidArgumentError."""
    by_table: dict[str, list[WatchedAsset]] = {}
    implied: dict[str, dg.AssetKey] = {}

    def add(asset: WatchedAsset, entries: Mapping[str, Any]) -> None:
        table = str(table_identifier(entries, asset_path=asset.key.path, names=names))
        if "table" not in entries:
            other = implied.setdefault(table, asset.key)
            if other != asset.key:
                raise ambiguous_table(table, asset.key.to_user_string(), other.to_user_string())
        by_table.setdefault(table, []).append(asset)

    if isinstance(assets, Mapping):
        for key, table in assets.items():
            asset_key = key if isinstance(key, dg.AssetKey) else dg.AssetKey.from_user_string(key)
            add(WatchedAsset(key=asset_key), {"table": table})
    else:
        for item in assets:
            for spec in [item] if isinstance(item, dg.AssetSpec) else item.specs:
                place = f"The metadata of {spec.key.to_user_string()}"
                entries = own_entries(spec.metadata, known=WRITE_KEYS | DEFAULT_READ_KEYS, place=place)
                expr = parse_partition_expr(entries.get("partition_expr"))
                add(WatchedAsset(key=spec.key, partitions=spec.partitions_def, partition_expr=expr), entries)
    return {table: tuple(own) for table, own in sorted(by_table.items())}


def _launching_tables(
    watched: Mapping[str, tuple[WatchedAsset, ...]], launch_on: Iterable[dg.AssetKey] | None
) -> frozenset[str]:
    if launch_on is None:
        return frozenset(watched)
    launching = set(launch_on)
    unknown = launching.difference(asset.key for own in watched.values() for asset in own)
    if unknown:
        names = ", ".join(sorted(key.to_user_string() for key in unknown))
        raise InvalidArgumentError(f"launch_on names assets that the sensor does not watch: {names}.")
    return frozenset(table for table, own in watched.items() if any(asset.key in launching for asset in own))


def _starting_cursor(context: dg.SensorEvaluationContext, page: FeedPage, first_tick: FirstTick) -> FeedCursor:
    if context.cursor:
        context.log.warning(
            "The cursor cannot be read, so the sensor starts at the beginning of the feed. Commits that have events are not "
            "reported again."
        )
        return FeedCursor(position=0, recovering_until=page.latest_position)
    start = page.latest_position if first_tick is FirstTick.FROM_NOW else 0
    return FeedCursor(position=start, first_position=start)


def _restart(context: dg.SensorEvaluationContext, cursor: FeedCursor, page: FeedPage, lost: str) -> dg.SensorResult:
    """Start again in a feed that is not the one of the cursor. Commits may be examined twice, but none is missed."""
    same = cursor.catalog_id == page.catalog_id and cursor.first_position <= page.latest_position
    start = cursor.first_position if same else 0
    reason = (
        f"The catalog was replaced or restored from a copy: {lost}. The next tick begins at feed position {start}; commits "
        f"that have events are not reported again, all others are. {len(cursor.pending)} commits that waited for "
        "their runs belong to the former feed and are dropped."
    )
    context.log.warning(reason)
    begin = FeedCursor(position=start, first_position=start, catalog_id=page.catalog_id)
    return dg.SensorResult(skip_reason=reason, cursor=begin.to_text())


def _job_partitions(
    context: dg.SensorEvaluationContext, sensor_name: str, job: str | None
) -> dg.PartitionsDefinition[Any] | None:
    """Partitions of the job that the sensor launches; None if the code location is unknown, as in a unit test."""
    repository = context.repository_def
    if repository is None or not repository.has_sensor_def(sensor_name):
        return None
    job_name = job or repository.get_sensor_def(sensor_name).job_name
    return None if job_name is None else repository.get_job(job_name).partitions_def
