"""PURGE: delete the files of dropped tables and of abandoned creations permanently.

The plan asks the catalog's policy. Before the first file of a table is deleted, the catalog sets the state of the table to
PURGING under its lock, so that no concurrent UNDROP or registration succeeds. If a run fails, the next run continues it.

Purging a dropped table needs TABLE_PURGE, which is denied unless a rule allows it. Purging an abandoned creation needs
CREATION_PURGE, which is allowed unless a rule denies it: the table had no version and no reader, and in the state PURGING it
can no longer be registered. Therefore each creation purges a few old ones, see :func:`purge_abandoned`.
"""

import itertools
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cm_delta_dagster.catalog.durations import milliseconds_of, span_text
from cm_delta_dagster.catalog.maintenance import MaintenanceDecision
from cm_delta_dagster.catalog.tables import LEVELS_BELOW_WAREHOUSE, InactiveState, InactiveTable
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import (
    CatalogBehindStorageError,
    CmDeltaError,
    InvalidArgumentError,
    MaintenanceNotPermittedError,
    PurgeRefusedError,
    StorageError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.arguments import check_milliseconds, check_plan
from cm_delta_dagster.operations.maintenance.authorization import LeaseTarget, MaintenanceLease, held_lease
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.operations.tables.external_location import overlapping_tables
from cm_delta_dagster.operations.tables.scopes import check_scope
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_files import CommitFile
from cm_delta_dagster.remedies import AllowMaintenance
from cm_delta_dagster.storage.discard import in_order_of_deletion
from cm_delta_dagster.storage.store import ObjectStatus, Store

_DAY_MS = 24 * 60 * 60 * 1000
DROPPED_RETENTION_MS = 7 * _DAY_MS
"""Milliseconds for which a dropped table is not purged."""
ABANDONED_AFTER_MS = 7 * _DAY_MS
"""Age in milliseconds from which a creation without a registered table counts as abandoned; longer than any creation takes."""

_log = logging.getLogger(__name__)

_MAX_PASSES = 5
_TABLE_DOTS = 2
"""Dots in the name of a table, ``catalog.schema.table``."""
_MAX_FILES_PER_CREATION = 1000
"""Number of files of abandoned creations that one creation deletes at most; the next creation continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeCandidate:
    """A table of a plan, with the number and size of the files at its location."""

    table: InactiveTable
    decision: MaintenanceDecision
    num_files: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedTable:
    """A dropped table or a creation that is not old enough for a purge, and when it will be."""

    table: InactiveTable
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgePlan(Plan["PurgeResult"]):
    """What :func:`purge` would delete, oldest first.

    Attributes:
        retention, abandoned_after: minimum ages, which the catalog checks again when the plan is executed.
        candidates: tables that are old enough and that the policy allows to purge.
        denied: tables that are old enough and that the policy does not allow to purge.
        retained: tables that are not old enough.
    """

    retention: timedelta
    abandoned_after: timedelta
    candidates: tuple[PurgeCandidate, ...]
    denied: tuple[PurgeCandidate, ...]
    retained: tuple[RetainedTable, ...] = ()

    @property
    def num_files(self) -> int:
        return sum(candidate.num_files for candidate in self.candidates)

    @property
    def num_bytes(self) -> int:
        return sum(candidate.num_bytes for candidate in self.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult:
    """What was deleted.

    Attributes:
        skipped: tables of the plan that were restored, or purged by another run, after planning.
        denied, retained: those of the plan.
    """

    purged: tuple[InactiveTable, ...]
    skipped: tuple[InactiveTable, ...]
    num_files: int
    num_bytes: int
    denied: tuple[PurgeCandidate, ...] = ()
    retained: tuple[RetainedTable, ...] = ()


def plan_purge(
    client: DeltaClient,
    *,
    scope: str = "",
    retention_ms: int = DROPPED_RETENTION_MS,
    abandoned_after_ms: int = ABANDONED_AFTER_MS,
) -> PurgePlan:
    """Find the dropped tables and abandoned creations that can be purged: the dry run. It needs no permission.

    Args:
        scope: ``catalog``, ``catalog.schema``, or the former name of a table; empty for all.
        retention_ms: keep tables dropped less than this many milliseconds ago.
        abandoned_after_ms: keep creations started less than this many milliseconds ago.

    Raises:
        InvalidArgumentError: a time is negative; ``scope`` is malformed, names nothing, or is a table that was not dropped.
    """
    check_milliseconds(retention_ms, name="retention_ms")
    check_milliseconds(abandoned_after_ms, name="abandoned_after_ms")
    now_ms = client.now_ms()
    candidates: list[PurgeCandidate] = []
    denied: list[PurgeCandidate] = []
    retained: list[RetainedTable] = []
    for table in _inactive_tables(client, scope):
        if table.is_external:
            continue
        min_age_ms = _min_age(table, retention_ms, abandoned_after_ms)
        if table.since_ms > now_ms - min_age_ms:
            retained.append(RetainedTable(table=table, until=_moment(table.since_ms + min_age_ms)))
            continue
        files = list(client.stores.store_for(table.location).list_recursive(table.location))
        decision = client.maintenance_policies.maintenance_decision(table.identifier, table.purge_kind)
        candidate = PurgeCandidate(
            table=table, decision=decision, num_files=len(files), num_bytes=sum(file.size for file in files)
        )
        (candidates if decision.allowed else denied).append(candidate)
    return PurgePlan(
        retention=timedelta(milliseconds=retention_ms),
        abandoned_after=timedelta(milliseconds=abandoned_after_ms),
        candidates=tuple(candidates),
        denied=tuple(denied),
        retained=tuple(retained),
    )


def check_table_can_be_purged(plan: PurgePlan, scope: str) -> None:
    """Refuse a plan that would delete nothing of the only table that ``scope`` names.

    Raises MaintenanceNotPermittedError, PurgeRefusedError.
    """
    if scope.count(".") < _TABLE_DOTS or plan.candidates:
        return
    for candidate in plan.denied:
        kind = candidate.table.purge_kind.value
        raise MaintenanceNotPermittedError(
            f"{kind} of {scope} is not permitted: {candidate.decision.reason}. No file was deleted."
        ).with_remedy(AllowMaintenance(scope=scope, kind=kind))
    for kept in plan.retained:
        raise PurgeRefusedError(
            f"{scope} was not purged: it is kept for {span_text(milliseconds_of(plan.retention))} after it was dropped, until "
            f"{kept.until:%Y-%m-%d %H:%M:%S} UTC. No file was deleted. Purge it then, or give a shorter retention."
        )


def _inactive_tables(client: DeltaClient, scope: str) -> list[InactiveTable]:
    """Those of ``scope``. Raises InvalidArgumentError if it names nothing, or a table that was not dropped."""
    inactive = list(client.registry.inactive_tables(scope))
    if scope and not inactive:
        check_scope(client.registry, client.namespaces, scope)
        if scope in map(str, client.registry.list_tables()):
            raise InvalidArgumentError(
                f"{scope} was not dropped, and a purge deletes only the files of dropped tables. Nothing was deleted. Drop it "
                "first, if its rows are not needed any more."
            )
    return inactive


def _moment(epoch_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=epoch_ms)


def purge(client: DeltaClient, plan: PurgePlan) -> PurgeResult:
    """Delete all files of the candidates of ``plan``.

    Raises:
        MaintenanceNotPermittedError: the policy no longer allows to purge a table; the tables before it are purged.
        PurgeRefusedError: a location is outside the warehouse of this client, or is shared with another table.
        WarehouseMismatchError: the warehouse of this client belongs to another catalog; nothing was deleted.
        CatalogBehindStorageError: the log of a table has commits that the catalog does not know.
        MaintenanceInProgressError: another run purges a table; the tables before it are purged.
        StorageError: a file could not be deleted; plan and purge again to continue.
    """
    check_plan(plan, PurgePlan, method="plan_purge")
    purged: list[InactiveTable] = []
    skipped: list[InactiveTable] = []
    num_files = num_bytes = 0
    if plan.candidates:
        client.warehouse.check_own()
    for candidate in plan.candidates:
        table = _begin_purge(client, candidate.table, plan)
        if table is None:
            skipped.append(candidate.table)
            continue
        with _purge_lease(client, table) as lease:
            for deleted in _delete_all(client.stores.store_for(table.location), table.location, lease):
                num_files += 1
                num_bytes += deleted.size
            client.registry.finish_purge(table.table_id)
        purged.append(table)
    return PurgeResult(
        purged=tuple(purged),
        skipped=tuple(skipped),
        num_files=num_files,
        num_bytes=num_bytes,
        denied=plan.denied,
        retained=plan.retained,
    )


def purge_abandoned(client: DeltaClient, *, abandoned_after_ms: int = ABANDONED_AFTER_MS) -> tuple[InactiveTable, ...]:
    """Delete the files of abandoned creations, oldest first. Each creation of a table calls this in the background.

    A creation is abandoned if it registered no table and is older than ``abandoned_after_ms`` by the catalog's clock.
    Creations in another warehouse, and those that the policy does not allow to purge, are kept. Of a creation at a given location
    only the reservation is deleted. If a file
    cannot be deleted, the error is logged and a later call retries. One call deletes a limited number of files.

    Returns:
        The creations that were purged completely.

    Raises:
        CatalogError: the catalog did not answer.
    """
    purged: list[InactiveTable] = []
    budget = _MAX_FILES_PER_CREATION
    now_ms = client.now_ms()
    for table in client.registry.inactive_tables():
        min_age_ms = _min_age(table, 0, abandoned_after_ms)
        if table.registered or table.since_ms > now_ms - min_age_ms or not budget:
            continue
        try:
            if table.is_external:
                # The catalog did not choose the location, so that files of others can be there.
                client.registry.begin_purge(table.table_id, min_age_ms=min_age_ms)
                client.registry.finish_purge(table.table_id)
                continue
            store = client.stores.store_for(table.location)
            _refuse_links(client, table)
            _refuse_newer(store, table)
            purging = client.registry.begin_purge(table.table_id, min_age_ms=min_age_ms)
            listed = list(itertools.islice(store.list_recursive(purging.location, with_directories=True), budget))
            with _purge_lease(client, purging) as lease:
                for status in in_order_of_deletion(listed):
                    lease.check()
                    store.delete(status.location)
            budget -= len(listed)
            if next(iter(store.list_recursive(purging.location, with_directories=True)), None) is not None:
                continue
            store.remove_empty_directories(purging.location)
            client.registry.finish_purge(table.table_id)
        except CmDeltaError as error:
            # For example a location in another warehouse, a concurrent purge, or a failing disk.
            _log.info("Files of the abandoned creation of %s remain at %s: %s", table.identifier, table.location, error)
            continue
        purged.append(purging)
    return tuple(purged)


def _purge_lease(client: DeltaClient, table: InactiveTable) -> AbstractContextManager[MaintenanceLease]:
    target = LeaseTarget(
        identifier=table.identifier,
        table_id=table.table_id,
        leases=client.leases,
        duration_ms=milliseconds_of(client.settings.maintenance_lease),
    )
    return held_lease(target, table.purge_kind)


def _min_age(table: InactiveTable, retention_ms: int, abandoned_after_ms: int) -> int:
    ages = {InactiveState.STAGING: abandoned_after_ms, InactiveState.DROPPED: retention_ms}
    # In the state PURGING an earlier run has checked the age.
    return ages.get(table.state, 0)


def _begin_purge(client: DeltaClient, table: InactiveTable, plan: PurgePlan) -> InactiveTable | None:
    """Set the state of the table to PURGING. Returns None if it was restored, or purged by another run, after planning."""
    min_age_ms = _min_age(table, milliseconds_of(plan.retention), milliseconds_of(plan.abandoned_after))
    store = client.stores.store_for(table.location)
    _refuse_links(client, table)
    _refuse_newer(store, table)
    try:
        purging = client.registry.begin_purge(table.table_id, min_age_ms=min_age_ms)
    except TableNotFoundError:
        return None
    except PurgeRefusedError:
        inactive = {other.table_id: other.since_ms for other in client.registry.inactive_tables(str(table.identifier))}
        if inactive.get(table.table_id) != table.since_ms:
            return None  # It was restored. If it was dropped again, its retention starts again.
        raise
    if purging.location != table.location:
        raise PurgeRefusedError(
            f"{table.identifier} was not purged: the plan says {table.location}, and the catalog {purging.location}. "
            "Make another plan."
        )
    return purging


def _refuse_links(client: DeltaClient, table: InactiveTable) -> None:
    """Refuse a location below a symbolic link, and one that another table is at by another name: the catalog does not see links."""
    store = client.stores.store_for(table.location)
    warehouse = table.location.rsplit("/", LEVELS_BELOW_WAREHOUSE)[0]
    expected = store.resolve(warehouse) + table.location.removeprefix(warehouse)
    resolved = store.resolve(table.location)
    if resolved != expected:
        raise PurgeRefusedError(
            f"{table.identifier} was not purged: {table.location} leads by a symbolic link to {resolved}, outside of where "
            "the catalog has put the table. Nothing was deleted. Remove the link; if no table uses its target, delete that by hand."
        )
    others = [other for other in overlapping_tables(client, table.location) if other.table_id != table.table_id]
    if others:
        raise PurgeRefusedError(
            f"{table.identifier} was not purged: {others[0].identifier} (table id {others[0].table_id}) at {others[0].location} "
            f"shares files with {table.location}, by a symbolic link or another name of the directory. Nothing was deleted. Move "
            "the other table, or remove the link."
        )


def _refuse_newer(store: Store, table: InactiveTable) -> None:
    """Refuse a table whose log has commits that the catalog does not know, as after the catalog's database was restored.

    An abandoned creation leaves at most version 0. Any other file in its log was written after a registration that the
    restored catalog does not know.
    """
    if table.state is InactiveState.PURGING:
        return  # An earlier run made this check and deleted a part of the files.
    names = [status.name for status in store.list_from(log_files.log_directory(table.location))]
    versions = [file.version for name in names if isinstance(file := log_files.parse_log_file(name), CommitFile)]
    newest = max(versions, default=-1)
    only_creation = newest <= 0 and all(name == log_files.commit_file_name(0) for name in names)
    if newest <= table.latest_version if table.registered else only_creation:
        return
    raise CatalogBehindStorageError(
        f"{table.identifier} was not purged: the catalog says that it is {table.state} with version {table.latest_version} as "
        f"its latest, and its log at {table.location} was written to after that (up to version {newest}). The usual cause is a "
        "catalog database that was restored from a backup. Nothing was deleted.",
        identifier=str(table.identifier),
        latest_version=table.latest_version,
        storage_version=newest,
    )


def _delete_all(store: Store, location: str, lease: MaintenanceLease) -> Iterator[ObjectStatus]:
    """Delete every object below ``location``; repeat until the listing is empty, because a writer may still add files."""
    for _ in range(_MAX_PASSES):
        listed = list(store.list_recursive(location, with_directories=True))
        if not listed:
            store.remove_empty_directories(location)
            return
        for status in in_order_of_deletion(listed):
            lease.check()
            store.delete(status.location)
            yield status
    raise StorageError(
        f"{location} was listed and deleted {_MAX_PASSES} times and is not empty: a client writes there. Stop it and purge again."
    )
