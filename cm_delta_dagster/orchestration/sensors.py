"""A sensor over the catalog's commit feed. Room: orchestration; one catalog query a tick, no Spark, no storage.

Commits made outside of this Dagster instance become events: ``AssetMaterialization`` where data changed, one for each
partition that changed, so that downstream assets are triggered; ``AssetObservation`` for maintenance, which triggers
nothing.

Commits of runs of this instance (tag ``dagster/run_id``) are known already, unless the run ended without recording the
event: then the sensor records it. While the run is under way its commits wait in the cursor and block nobody.

Dagster stores the events of a tick before its cursor, so a crash in between repeats the tick; events that are already
in the instance are recognised by table id, version and partition. Run requests repeat with the same run key, which
Dagster drops. What a tick does is in ``sensor_tick``, its place in the feed in ``feed_cursor``.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, TypeAlias

import dagster as dg

from cm_delta_dagster.catalog.commit_feed import CommitFeed, FeedPage
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CatalogError, InvalidArgumentError
from cm_delta_dagster.orchestration.changed_partitions import WatchedAsset
from cm_delta_dagster.orchestration.feed_cursor import FeedCursor, WatchedCommit
from cm_delta_dagster.orchestration.sensor_tick import LaunchFor, LaunchPlan, SensorTick
from cm_delta_dagster.orchestration.write_contract import (
    DEFAULT_READ_KEYS,
    WRITE_KEYS,
    TableNames,
    names_one_table,
    own_entries,
    parse_partition_expr,
    table_identifier,
)

WatchedAssets: TypeAlias = Mapping[dg.AssetKey, str] | Mapping[str, str] | Iterable[dg.AssetSpec | dg.AssetsDefinition]

_MOST_COMMITS = 5000
"""Of one batch."""


class FirstTick(StrEnum):
    """Where a sensor without a cursor begins."""

    FROM_NOW = "from_now"
    """With the next commit; what happened before is not reported."""

    FROM_BEGINNING = "from_beginning"
    """With the first commit that the catalog knows."""


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
            manager. Only the latter tell the sensor of their partitions.
        catalog: key of the CatalogResource.
        job, target: if given, launched for tables with new data: once for the newest version of the batch, with the run
            key ``<table id>:<version>``; if it is partitioned as the asset is, once for each partition that changed,
            with the run key ``<table id>:<version>:<partition>``.
        launch_for: which commits launch it.
        launch_on: of the watched assets, those whose commits launch it; None: all.
        batch_size: commits looked at in one tick; the rest follow in the next ticks.
        tick_seconds: time after which a tick ends, however many commits are left; Dagster allows 60.

    Raises:
        InvalidArgumentError: an asset's metadata does not name a table, two asset keys mean one table, or the batch is
            too large.
    """
    if not 1 <= batch_size <= _MOST_COMMITS:
        raise InvalidArgumentError(f"batch_size is {batch_size}; give 1 to {_MOST_COMMITS} commits.")
    watched = watched_tables(assets, names=TableNames(catalog=default_catalog, schema=default_schema))
    identifiers = [TableIdentifier.parse(table) for table in watched]
    launches = job is not None or target is not None
    launching = _launching_tables(watched, launch_on) if launches else frozenset()

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
        cursor = FeedCursor.from_text(context.cursor) if context.cursor else None
        try:
            source = getattr(context.resources, catalog).client.catalog
            page = _page(source, cursor, identifiers, limit=_limit(context, cursor, first_tick, batch_size))
        except CatalogError as error:
            return dg.SkipReason(f"The catalog does not answer; the sensor keeps its place and tries again. {error}")
        if cursor is None:
            cursor = _starting_cursor(context, page, first_tick)
        lost = cursor.lost_place(page, watched)
        if lost is not None:
            return _restart(context, cursor, page, lost)
        tick = SensorTick(
            instance=context.instance,
            watched=watched,
            cursor=replace(cursor, catalog_id=page.catalog_id),
            sensor_name=name,
            launch=LaunchPlan(
                tables=launching,
                launch_for=launch_for,
                partitions=_job_partitions(context, name) if launches else None,
            ),
            deadline=time.monotonic() + tick_seconds,
        )
        # The last commit seen comes first, to be recognised.
        tick.run([WatchedCommit.of(entry) for entry in page.entries if entry.position > cursor.position])
        outcome = tick.outcome()
        for warning in outcome.warnings:
            context.log.warning(warning)
        return outcome.result

    return sensor


def watched_tables(assets: WatchedAssets, *, names: TableNames) -> Mapping[str, tuple[WatchedAsset, ...]]:
    """Assets of each table, by full table name. Raises InvalidArgumentError."""
    found: dict[str, list[WatchedAsset]] = {}
    implied: dict[str, dg.AssetKey] = {}

    def add(asset: WatchedAsset, entries: Mapping[str, Any]) -> None:
        table = str(table_identifier(entries, asset_path=asset.key.path, names=names))
        if "table" not in entries:
            other = implied.setdefault(table, asset.key)
            if other != asset.key:
                raise names_one_table(table, asset.key.to_user_string(), other.to_user_string())
        found.setdefault(table, []).append(asset)

    if isinstance(assets, Mapping):
        for key, table in assets.items():
            asset_key = key if isinstance(key, dg.AssetKey) else dg.AssetKey.from_user_string(key)
            add(WatchedAsset(key=asset_key), {"table": table})
    else:
        for item in assets:
            for spec in [item] if isinstance(item, dg.AssetSpec) else item.specs:
                where = f"The metadata of {spec.key.to_user_string()}"
                entries = own_entries(spec.metadata, known=WRITE_KEYS | DEFAULT_READ_KEYS, where=where)
                expr = parse_partition_expr(entries.get("partition_expr"))
                add(WatchedAsset(key=spec.key, partitions=spec.partitions_def, partition_expr=expr), entries)
    return {table: tuple(own) for table, own in sorted(found.items())}


def _launching_tables(
    watched: Mapping[str, tuple[WatchedAsset, ...]], launch_on: Iterable[dg.AssetKey] | None
) -> frozenset[str]:
    if launch_on is None:
        return frozenset(watched)
    wanted = set(launch_on)
    unknown = wanted.difference(asset.key for own in watched.values() for asset in own)
    if unknown:
        names = ", ".join(sorted(key.to_user_string() for key in unknown))
        raise InvalidArgumentError(f"launch_on names assets that the sensor does not watch: {names}.")
    return frozenset(table for table, own in watched.items() if any(asset.key in wanted for asset in own))


def _limit(
    context: dg.SensorEvaluationContext, cursor: FeedCursor | None, first_tick: FirstTick, batch_size: int
) -> int:
    if cursor is not None:
        return batch_size + 1
    from_now = not context.cursor and first_tick is FirstTick.FROM_NOW
    return 0 if from_now else batch_size


def _page(
    source: CommitFeed, cursor: FeedCursor | None, identifiers: Iterable[TableIdentifier], *, limit: int
) -> FeedPage:
    after = 0 if cursor is None else cursor.reads_after({str(identifier) for identifier in identifiers})
    return source.feed_page(after=after, limit=limit, identifiers=identifiers)


def _starting_cursor(context: dg.SensorEvaluationContext, page: FeedPage, first_tick: FirstTick) -> FeedCursor:
    if context.cursor:
        context.log.warning(
            "The cursor is unreadable; starting over. Versions that Dagster has seen are not reported again."
        )
        return FeedCursor(position=0, recovering_until=page.latest_position)
    start = page.latest_position if first_tick is FirstTick.FROM_NOW else 0
    return FeedCursor(position=start, first_position=start)


def _restart(context: dg.SensorEvaluationContext, cursor: FeedCursor, page: FeedPage, lost: str) -> dg.SensorResult:
    """Begin anew in a feed that is another one than before: better to look at a commit twice than never."""
    same = cursor.catalog_id == page.catalog_id and cursor.first_position <= page.latest_position
    start = cursor.first_position if same else 0
    reason = (
        f"The catalog was replaced or restored from a copy: {lost}. The next tick begins at feed position {start}; commits "
        f"that have events already are not reported again, all others are. {len(cursor.pending)} commits that waited for "
        "their runs were of the former feed and are forgotten."
    )
    context.log.warning(reason)
    begin = FeedCursor(position=start, first_position=start, catalog_id=page.catalog_id)
    return dg.SensorResult(skip_reason=reason, cursor=begin.to_text())


def _job_partitions(context: dg.SensorEvaluationContext, sensor_name: str) -> dg.PartitionsDefinition[Any] | None:
    """Partitions of the job that the sensor launches; None where the code location is not known, as in a unit test."""
    repository = context.repository_def
    if repository is None or not repository.has_sensor_def(sensor_name):
        return None
    job_name = repository.get_sensor_def(sensor_name).job_name
    return None if job_name is None else repository.get_job(job_name).partitions_def
