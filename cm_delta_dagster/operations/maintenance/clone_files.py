"""What shallow clones need of the tables whose files they read: the files that VACUUM keeps, and leases on both.

The catalog knows the clones. A client that clones or restores a table holds the maintenance lease of each table whose files the
result may read. VACUUM holds that lease too, so that the log of each clone names the files that the clone needs.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pyarrow as pa

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.catalog.tables import InactiveState, RelatedTable
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import commit_sources
from cm_delta_dagster.client.snapshots.log_reader import load_state
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, CorruptLogError, ObjectNotFoundError, VacuumRefusedError
from cm_delta_dagster.operations.maintenance.authorization import MaintenanceLease, maintenance_lease
from cm_delta_dagster.operations.maintenance.held_commits import held_versions
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.paths import file_keys, normalise_location
from cm_delta_dagster.protocol.features.deletion_vectors import vector_files
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log import cleanup
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.protocol.log.log_segment import CommitSource


class SourceLeases:
    """The leases of a table and of the tables whose files it reads."""

    def __init__(self, leases: tuple[MaintenanceLease, ...]) -> None:
        self._leases = leases

    def fence(self, transaction: Transaction) -> None:
        """Let the catalog refuse the commit of ``transaction``, to the table itself, unless its lease is still held."""
        self._leases[0].fence(transaction)

    def check(self) -> None:
        """Call before the commit. Raises MaintenanceInProgressError if a lease expired or was lost."""
        for lease in self._leases:
            lease.check()


@contextmanager
def leases_with_sources(*tables: Table, kind: MaintenanceKind) -> Iterator[SourceLeases]:
    """Hold the maintenance leases of ``tables``, and of those whose files they read as shallow clones, while the block runs.

    A table that was dropped has no lease; it can be neither vacuumed nor, as long as it has clones, purged.

    Raises:
        MaintenanceInProgressError: another run holds one of the leases.
    """
    needed = {table.table_id: table for table in tables}
    for table in tables:
        for source in table.services.registry.sources_of(table.table_id):
            if source.state is None:
                needed.setdefault(source.table_id, _handle(table, source))
    with ExitStack() as stack:
        yield SourceLeases(tuple(stack.enter_context(maintenance_lease(source, kind)) for source in needed.values()))


def _handle(table: Table, related: RelatedTable) -> Table:
    return Table(
        services=table.services,
        identifier=related.identifier,
        table_id=related.table_id,
        location=related.location,
        store=table.services.stores.store_for(related.location),
    )


def files_of_clones(table: Table, *, now_ms: int) -> frozenset[str]:
    """Keys of all files that the shallow clones of ``table`` name: live ones, and those removed within the clone's retention.

    Clones that are being created are not considered: the caller holds the lease of ``table``, or only plans.

    Args:
        now_ms: epoch milliseconds.

    Raises:
        VacuumRefusedError: a clone cannot be loaded, so that its files are not known.
    """
    keys: set[str] = set()
    for clone in table.services.registry.clones_of(table.table_id):
        if clone.state is InactiveState.STAGING:
            continue
        try:
            keys |= _files_of(table, clone, now_ms=now_ms)
        except (CmDeltaError, OSError) as error:
            raise VacuumRefusedError(
                f"VACUUM of {table.identifier} was refused: the files that its shallow clone {clone.identifier} (table id "
                f"{clone.table_id}) needs are not known, because the clone cannot be loaded ({error}). Nothing was deleted. Repair "
                "the clone, or drop and purge it."
            ) from error
    return frozenset(keys)


def _files_of(table: Table, clone: RelatedTable, *, now_ms: int) -> set[str]:
    state, unpublished = _dropped(table, clone) if clone.state is not None else _active(table, clone)
    keys = _files_of_held(table, clone, state.version, unpublished)
    retention_ms = TableProperties(state.metadata.configuration).deleted_file_retention_ms
    tombstones = cleanup.unexpired_tombstones(state.files.removes, now_ms=now_ms, retention_ms=retention_ms)
    keys |= _keys(clone.location, state.files.adds) | _keys(clone.location, tombstones)
    # A checkpoint may have dropped tombstones, by a shorter retention of that time.
    reader = CommitReader(table.services.stores.store_for(clone.location), clone.location)
    sources = commit_sources(clone.location, start=0, end=state.version, ratified=unpublished)
    for commit in _recent_commits(reader, sources, since_ms=now_ms - retention_ms):
        keys |= _keys(clone.location, commit.removes)
    return keys


def _files_of_held(table: Table, clone: RelatedTable, latest: int, unpublished: Sequence[RatifiedCommit]) -> set[str]:
    """Keys of the files of the versions on which the held commits of a clone were made."""
    keys: set[str] = set()
    reader = CommitReader(table.services.stores.store_for(clone.location), clone.location)
    for version in held_versions(table.services, clone.table_id) - {latest}:
        keys |= _keys(clone.location, load_state(reader, version=version, ratified=unpublished).state.files.adds)
    return keys


def _active(table: Table, clone: RelatedTable) -> tuple[TableState, Sequence[RatifiedCommit]]:
    """The latest state of a clone, also if a commit was made put-if-absent and not reported; and its unpublished commits."""
    handle = _handle(table, clone)
    state = handle.snapshot().state
    return state, handle.ratified().commits


def _dropped(table: Table, clone: RelatedTable) -> tuple[TableState, Sequence[RatifiedCommit]]:
    """The same of a dropped clone, whose state must be the last one in its log."""
    assert clone.ratified is not None
    latest, unpublished = clone.ratified.latest_version, clone.ratified.commits
    reader = CommitReader(table.services.stores.store_for(clone.location), clone.location)
    loaded = load_state(reader, version=latest, ratified=unpublished)
    if loaded.newest_listed is not None and loaded.newest_listed > latest:
        raise CorruptLogError(
            f"its log has version {loaded.newest_listed}, and the catalog knows version {latest} as its latest"
        )
    return loaded.state, unpublished


def _recent_commits(reader: CommitReader, sources: Sequence[CommitSource], *, since_ms: int) -> Iterator[CommitActions]:
    """The commits made at or after ``since_ms``, newest first, as far as the log still has them."""
    for source in reversed(sources):
        try:
            (commit,) = reader.decode_all((source,))
        except ObjectNotFoundError:
            return  # Log cleanup removed the older commits.
        info = commit.commit_info
        if info is not None and info.in_commit_timestamp is not None and info.in_commit_timestamp < since_ms:
            return
        yield commit


def _keys(location: str, files: pa.Table) -> set[str]:
    keys: set[str] = set(file_keys(location, files["path"]).to_pylist())
    return keys | {normalise_location(at) for at in vector_files(location, files)}
