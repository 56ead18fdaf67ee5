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
from cm_delta_dagster.errors import InvalidArgumentError, SchemaMismatchError, TableNotFoundError, VersionNotFoundError
from cm_delta_dagster.operations.reading.change_query import (
    ChangeFiles,
    ChangeRange,
    find_changes_of_one_schema,
    no_changes,
    rows_as_inserts,
)
from cm_delta_dagster.operations.tables.change_positions import ConsumerInput
from cm_delta_dagster.orchestration.metadata import metadata as facts
from cm_delta_dagster.orchestration.metadata.write_contract import ChangesFrom
from cm_delta_dagster.protocol.changes.schema_breaks import ReplacedRowsError, SchemaBreak

_PAGE = 100
_OUTDATED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """The asset that reads changes.

    Attributes:
        table: name of the table in which this package stores the asset; None if another IO manager or the function stores it.
    """

    asset_key: dg.AssetKey
    table: TableIdentifier | None
    instance: dg.DagsterInstance

    def way_past(self, source: Table, version: int, *, own: Snapshot | None) -> str:
        """How to let the asset continue after a version of ``source``, for messages.

        Args:
            own: the table of the asset; None if it has stored no row in a table.
        """
        if own is not None:
            name = self.asset_key.to_user_string()
            return f"'cm-delta position set {own.identifier} {source.identifier} {version} --asset {name}'"
        return (
            f"report_changes_read(instance, dg.AssetKey({list(self.asset_key.path)!r}), table_id={source.table_id!r}, "
            f"table={str(source.identifier)!r}, version={version}) of cm_delta_dagster.orchestration"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesRead:
    """What one step has read of one table.

    Attributes:
        recorded: the version that the asset's table has recorded; None for none.
        after: the version up to which the asset had read; None for nothing.
        version: the version up to which it has read now.
        times_set: how often the position was set by hand.
        stopped_before: why later changes were not read, and their first version; None if there is no such reason.
        way_past: how to let the asset continue after the changes that were read, for messages.
    """

    read: ConsumerInput
    table: str
    recorded: int | None
    after: int | None
    version: int
    times_set: int = 0
    stopped_before: SchemaBreak | None = None
    way_past: str = ""

    def of_former_columns(self, error: InvalidArgumentError, stopped: SchemaBreak) -> InvalidArgumentError:
        """The error of columns or a filter that the changes before a new schema do not fit."""
        later = stopped.version
        return InvalidArgumentError(
            f"{error} The changes of {self.table} up to version {self.version} have the columns that the table had before version "
            f"{later} ({stopped.reason}), and this run reads them first. Name these columns in 'columns' and 'where' of "
            f"the input for one run, or leave them out. Or skip these changes: {self.way_past} lets the asset continue with "
            f"version {later}. It can read the rows of version {self.version} as a full input instead (metadata 'version': "
            f"{self.version} without 'changes')."
        )

    @property
    def progress(self) -> Progress:
        """What the commit of the asset records."""
        return Progress(app_id=self.read.app_id, after=self.recorded, version=self.version)

    def entry(self, version: int) -> dict[str, Any]:
        """What the metadata of a materialization says, if ``version`` is the version that counts as read."""
        entry: dict[str, Any] = {"table": self.table, "version": version}
        if self.times_set:
            entry["times_set"] = self.times_set
        if self.stopped_before is not None and version == self.version:
            entry |= {"stopped_before": self.stopped_before.version, "reason": self.stopped_before.reason}
        return entry


@dataclass(slots=True)
class _StepReads:
    reads: dict[str, ChangesRead] = field(default_factory=dict)


_steps: "weakref.WeakKeyDictionary[Any, _StepReads]" = weakref.WeakKeyDictionary()


def reads_of(step_context: Any) -> tuple[ChangesRead, ...]:
    """The changes that the step has read as inputs."""
    step = None if step_context is None else _steps.get(step_context)
    return () if step is None else tuple(step.reads.values())


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
) -> tuple[ChangeFiles, ChangesRead | None]:
    """The changes up to ``snapshot`` that the consumer has not read. The step remembers them for its output.

    Args:
        consumer: None in a unit test, which reads like a first materialization.
        first: where a first materialization begins; None for all rows as inserts.

    Raises:
        VersionNotFoundError: the commits after the position have been removed, or the table was restored from a copy.
        InvalidArgumentError: the change data feed was not enabled for all of these versions.
        SchemaMismatchError: the first of these versions replaced rows that its own schema cannot represent.
    """
    if consumer is None:
        return _first_changes(table, snapshot, first)[0], None
    source = ConsumerInput(consumer=consumer.asset_key.to_user_string(), table_id=table.table_id)
    own = _own_snapshot(client, consumer)
    recorded = source.position(own)
    reported = _reported(consumer, source, own)
    known = [version for version in (recorded, reported) if version is not None and version != _OUTDATED]
    after = max(known, default=None)
    try:
        if after is None:
            changes, end = _first_changes(table, snapshot, first)
        else:
            changes, end = _changes_after(table, snapshot, after), max(after, snapshot.version)
    except ReplacedRowsError as error:
        onward = None if after is None else consumer.way_past(table, error.version, own=own)
        raise _replaced(error, consumer, onward) from error
    if changes.stopped_before is not None:
        end = changes.stopped_before.version - 1
    read = ChangesRead(
        read=source,
        table=str(table.identifier),
        recorded=recorded,
        after=after,
        version=end,
        times_set=source.times_set(own),
        stopped_before=changes.stopped_before,
        way_past=consumer.way_past(table, end, own=own),
    )
    _steps.setdefault(step_context, _StepReads()).reads[source.app_id] = read
    return changes, read


def changes_metadata(reads: tuple[ChangesRead, ...], written: Snapshot | None) -> dict[str, Any]:
    """Metadata of a materialization: the position in each input.

    Args:
        written: the asset's table after its write, whose positions count; None if this package does not store the asset, or
            nothing was written.
    """
    positions = {}
    for read in reads:
        stored = read.read.position(written)
        # If an earlier attempt made the commit, what this attempt has read is not in the table.
        positions[read.read.table_id] = read.entry(read.version if stored is None else stored)
    return {facts.CHANGES_READ: dg.MetadataValue.json(positions)} if positions else {}


def report_changes_read(
    instance: dg.DagsterInstance, asset_key: dg.AssetKey, *, table_id: str, table: str, version: int
) -> None:
    """Set the position of an asset that this package does not store, by an observation of it.

    The position of an asset in a table of the catalog is set by ``cm-delta position``, which commits it to that table.

    Args:
        table_id, table: id and name of the table whose changes the asset reads.
        version: the asset then counts as having read up to it; a lower one than before makes it read changes again.
    """
    positions = {table_id: {"table": table, "version": version}}
    metadata = {facts.CHANGES_READ: dg.MetadataValue.json(positions)}
    text = f"The position in the changes of {table} was set to version {version}."
    instance.report_runless_asset_event(dg.AssetObservation(asset_key, description=text, metadata=metadata))


def _first_changes(table: Table, snapshot: Snapshot, first: ChangesFrom | None) -> tuple[ChangeFiles, int]:
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


def _replaced(error: ReplacedRowsError, consumer: Consumer, way_past: str | None) -> SchemaMismatchError:
    """The error of an input whose next changes cannot be read, with the ways past them.

    Args:
        way_past: None for a first materialization, which has no position.
    """
    version = error.version
    onward = f"the metadata 'changes_from': {version + 1} of the input lets the asset begin after version {version}"
    if way_past is not None:
        onward = f"{way_past} lets the asset continue after version {version}"
        if way_past.startswith("'cm-delta position set"):
            onward += ", and 'cm-delta position skip' after the latest version"
    return SchemaMismatchError(
        f"{error} Every run of {consumer.asset_key.to_user_string()} stops here until you decide: {onward}. If the asset needs "
        f"the rows of version {version}, read them as a full input in one run before: metadata 'version': {version} without "
        "'changes'."
    )


def _changes_after(table: Table, snapshot: Snapshot, after: int) -> ChangeFiles:
    latest = table.snapshot().version if after > snapshot.version else snapshot.version
    if after > latest:
        raise VersionNotFoundError(
            f"The changes of {table.identifier} after version {after} cannot be read: its latest version is {latest}, so it was "
            "restored from a copy. Drop the table of the asset that reads the changes, or give it another name, to read from the "
            "beginning."
        )
    if after >= snapshot.version:
        return no_changes(snapshot)
    return find_changes_of_one_schema(table, ChangeRange(starting_version=after + 1, ending_version=snapshot.version))


def _own_snapshot(client: DeltaClient, consumer: Consumer) -> Snapshot | None:
    if consumer.table is None:
        return None
    try:
        return client.table(consumer.table).snapshot()
    except TableNotFoundError:
        return None


def _reported(consumer: Consumer, source: ConsumerInput, own: Snapshot | None) -> int | None:
    """The position in the newest event that has one; None for none, and ``_OUTDATED`` if it does not count any more.

    A materialization has it, or, if the asset returned None or the position was set, an observation.
    """
    position: int | None = None
    since: float | None = None
    for fetch in (consumer.instance.fetch_materializations, consumer.instance.fetch_observations):
        for record in _records(fetch, consumer.asset_key, since=since):
            event = record.asset_materialization or record.asset_observation
            version = None if event is None else _position(event, consumer, source, own)
            if version is not None:
                position, since = version, record.timestamp
                break
    return position


def _position(
    event: dg.AssetMaterialization | dg.AssetObservation,
    consumer: Consumer,
    source: ConsumerInput,
    own: Snapshot | None,
) -> int | None:
    """The position in an event; ``_OUTDATED`` if the table of the consumer was dropped, or its position was set, since."""
    positions = event.metadata.get(facts.CHANGES_READ)
    listed: Any = None if positions is None else positions.value
    entry = listed.get(source.table_id) if isinstance(listed, Mapping) else None
    if entry is None:
        return None
    stored_in = event.metadata.get(facts.TABLE_ID)
    current = None if own is None else own.table_id
    if consumer.table is not None and stored_in is not None and stored_in.value != current:
        return _OUTDATED
    if entry.get("times_set", 0) != source.times_set(own):
        return _OUTDATED
    return int(entry["version"])


def _records(fetch: Callable[..., Any], asset_key: dg.AssetKey, *, since: float | None) -> Iterator[Any]:
    """Events of the asset, newest first."""
    records_filter = dg.AssetRecordsFilter(asset_key, after_timestamp=since)
    page = fetch(records_filter, limit=_PAGE)
    while page.records:
        yield from page.records
        if not page.has_more:
            return
        page = fetch(records_filter, limit=_PAGE, cursor=page.cursor)
