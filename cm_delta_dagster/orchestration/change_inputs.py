"""Inputs that hold the changes of a table since the asset was last materialized.

The position, the version of the input up to which the asset has read, is recorded in two places. The event of the materialization
has it as metadata. If the asset is stored by this package, the commit of its table also has it, as a ``txn`` action, so that rows
and position are committed together: after a crash between commit and event, the next run continues after the commit. Of two runs
that read the same changes, the second one to commit fails.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import Progress
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError, VersionNotFoundError
from cm_delta_dagster.operations.reading.change_query import (
    ChangeRange,
    TableChanges,
    find_changes,
    no_changes,
    rows_as_inserts,
)
from cm_delta_dagster.orchestration import metadata as facts
from cm_delta_dagster.orchestration.write_contract import ChangesFrom

_APP_PREFIX = "dagster-changes:"
_PAGE = 100
_DROPPED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """The asset that reads changes.

    Attributes:
        table: name of the table in which this package stores the asset; None if another IO manager or the function stores it.
    """

    asset_key: dg.AssetKey
    table: TableIdentifier | None
    instance: dg.DagsterInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesRead:
    """What one step has read of one table.

    Attributes:
        recorded: the version that the asset's table has recorded; None for none.
        after: the version up to which the asset had read; None for nothing.
        version: the version up to which it has read now.
    """

    table_id: str
    table: str
    app_id: str
    recorded: int | None
    after: int | None
    version: int

    @property
    def progress(self) -> Progress:
        """What the commit of the asset records."""
        return Progress(app_id=self.app_id, after=self.recorded, version=self.version)


@dataclass(slots=True)
class _StepReads:
    reads: dict[str, ChangesRead] = field(default_factory=dict)


_steps: "weakref.WeakKeyDictionary[Any, _StepReads]" = weakref.WeakKeyDictionary()


def reads_of(step_context: Any) -> tuple[ChangesRead, ...]:
    """The changes that the step has read as inputs."""
    found = None if step_context is None else _steps.get(step_context)
    return () if found is None else tuple(found.reads.values())


def consumer_of(step_context: Any, *, name: str) -> dg.AssetKey:
    """The asset that the step materializes.

    Args:
        name: of the input, for messages.

    Raises:
        InvalidArgumentError: the step materializes no asset, several, or a partitioned one: there is no single last
            materialization.
    """
    keys = step_context.get_output_asset_keys()
    if len(keys) != 1:
        listed = ", ".join(sorted(key.to_user_string() for key in keys)) or "no asset"
        raise InvalidArgumentError(
            f"The input {name} reads the changes since the last materialization, and its step materializes {listed}. Read changes "
            "in a function that materializes one asset."
        )
    if step_context.entity_partitions_def is not None:
        raise InvalidArgumentError(
            f"The input {name} reads the changes since the last materialization, and its asset is partitioned: each partition "
            "would read all changes. Read them in an asset without partitions, or read rows and select by the partition."
        )
    key: dg.AssetKey
    (key,) = keys
    return key


def io_manager_of(step_context: Any, asset_key: dg.AssetKey) -> Any:
    """The IO manager that stores an asset of the step; None if it has none."""
    layer = step_context.job_def.asset_layer
    for output in step_context.step.step_outputs:
        if layer.get_asset_key_for_node_output(step_context.node_handle, output.name) == asset_key:
            key = step_context.op_def.output_def_named(output.name).io_manager_key
            return getattr(step_context.resources, key, None)
    return None


def changes_since(
    client: DeltaClient,
    table: Table,
    snapshot: Snapshot,
    *,
    consumer: Consumer | None,
    first: ChangesFrom | None,
    step_context: Any,
) -> tuple[TableChanges, ChangesRead | None]:
    """The changes up to ``snapshot`` that the consumer has not read. The step remembers them for its output.

    Args:
        consumer: None in a unit test, which reads like a first materialization.
        first: where a first materialization begins; None for all rows as inserts.

    Raises:
        VersionNotFoundError: the commits after the position have been removed, or the table was restored from a copy.
        InvalidArgumentError: the change data feed was not enabled for all of these versions.
    """
    if consumer is None:
        return _first_changes(table, snapshot, first)[0], None
    app_id = f"{_APP_PREFIX}{consumer.asset_key.to_user_string()}:{table.table_id}"
    own = _own_snapshot(client, consumer)
    stored = None if own is None else own.transactions.get(app_id)
    recorded = None if stored is None else stored.version
    reported = _reported(consumer, table.table_id, own)
    known = [version for version in (recorded, reported) if version is not None and version != _DROPPED]
    after = max(known, default=None)
    if after is None:
        changes, end = _first_changes(table, snapshot, first)
    else:
        changes, end = _changes_after(table, snapshot, after), max(after, snapshot.version)
    read = ChangesRead(
        table_id=table.table_id,
        table=str(table.identifier),
        app_id=app_id,
        recorded=recorded,
        after=after,
        version=end,
    )
    _steps.setdefault(step_context, _StepReads()).reads[app_id] = read
    return changes, read


def changes_metadata(reads: tuple[ChangesRead, ...], written: Snapshot | None) -> dict[str, Any]:
    """Metadata of a materialization: the position in each input.

    Args:
        written: the asset's table after its write, whose positions count; None if this package does not store the asset, or
            nothing was written.
    """
    positions = {}
    for read in reads:
        stored = None if written is None else written.transactions.get(read.app_id)
        # If an earlier attempt made the commit, what this attempt has read is not in the table.
        version = read.version if stored is None else stored.version
        positions[read.table_id] = {"table": read.table, "version": version}
    return {facts.CHANGES_READ: dg.MetadataValue.json(positions)} if positions else {}


def _first_changes(table: Table, snapshot: Snapshot, first: ChangesFrom | None) -> tuple[TableChanges, int]:
    """The changes of a first materialization, and the position after them."""
    if first is None:
        return rows_as_inserts(snapshot), snapshot.version
    start = first.version
    if first.timestamp_ms is not None:
        try:
            start = table.version_at_or_after(first.timestamp_ms)
        except VersionNotFoundError:
            start = None
    if start is None or start > snapshot.version:
        return no_changes(snapshot), max(snapshot.version, (start or 0) - 1)
    return _changes_after(table, snapshot, start - 1), snapshot.version


def _changes_after(table: Table, snapshot: Snapshot, after: int) -> TableChanges:
    latest = table.snapshot().version if after > snapshot.version else snapshot.version
    if after > latest:
        raise VersionNotFoundError(
            f"The changes of {table.identifier} after version {after} cannot be read: its latest version is {latest}, so it was "
            "restored from a copy. Drop the table of the asset that reads the changes, or give it another name, to read from the "
            "beginning."
        )
    if after >= snapshot.version:
        return no_changes(snapshot)
    return find_changes(table, ChangeRange(starting_version=after + 1, ending_version=snapshot.version))


def _own_snapshot(client: DeltaClient, consumer: Consumer) -> Snapshot | None:
    if consumer.table is None:
        return None
    try:
        return client.table(consumer.table).snapshot()
    except TableNotFoundError:
        return None


def _reported(consumer: Consumer, table_id: str, own: Snapshot | None) -> int | None:
    """The position in the newest events that have one; None if it belongs to a table that was dropped.

    A materialization has it, or, if the asset returned None, an observation.
    """
    found: list[int] = []
    since: float | None = None
    for fetch in (consumer.instance.fetch_materializations, consumer.instance.fetch_observations):
        for record in _records(fetch, consumer.asset_key, since=since):
            event = record.asset_materialization or record.asset_observation
            version = None if event is None else _position(event, consumer, table_id, own)
            if version is not None:
                found.append(version)
                since = record.timestamp
                break
    return max(found, default=None)


def _position(
    event: dg.AssetMaterialization | dg.AssetObservation, consumer: Consumer, table_id: str, own: Snapshot | None
) -> int | None:
    """The position in an event; -1, before all versions, if the table of the consumer was dropped since."""
    positions = event.metadata.get(facts.CHANGES_READ)
    listed: Any = None if positions is None else positions.value
    found = listed.get(table_id) if isinstance(listed, Mapping) else None
    if found is None:
        return None
    stored_in = event.metadata.get(facts.TABLE_ID)
    current = None if own is None else own.table_id
    if consumer.table is not None and stored_in is not None and stored_in.value != current:
        return _DROPPED
    return int(found["version"])


def _records(fetch: Callable[..., Any], asset_key: dg.AssetKey, *, since: float | None) -> Iterator[Any]:
    """Events of the asset, newest first."""
    wanted = dg.AssetRecordsFilter(asset_key, after_timestamp=since)
    page = fetch(wanted, limit=_PAGE)
    while page.records:
        yield from page.records
        if not page.has_more:
            return
        page = fetch(wanted, limit=_PAGE, cursor=page.cursor)
