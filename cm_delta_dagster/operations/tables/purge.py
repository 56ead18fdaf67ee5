"""PURGE: the files of dropped and abandoned tables are deleted for good (CM-D5, CM-D7).

The catalog decides, and decides twice: the plan asks its policy, and before the first file of a table goes the catalog
takes the table out of reach under its lock, so that no undrop and no registration can come in between. A run that dies
is continued by the next one.

What was a table needs TABLE_PURGE, which is denied unless a rule allows it. A creation that was given up needs
CREATION_PURGE, which is allowed unless a rule denies it: no version of it ever existed, nobody has read it, and once the
catalog has fenced its id nobody ever will. So every creation takes away a few old ones, see :func:`purge_abandoned`.
"""

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from cm_delta_dagster.catalog.maintenance import MaintenanceDecision
from cm_delta_dagster.catalog.tables import LEVELS_BELOW_WAREHOUSE, InactiveState, InactiveTable
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import (
    CatalogBehindStorageError,
    CmDeltaError,
    MaintenanceNotPermittedError,
    PurgeRefusedError,
    StorageError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.arguments import check_milliseconds
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.log_files import CommitFile
from cm_delta_dagster.storage.store import ObjectStatus, Store

_DAY_MS = 24 * 60 * 60 * 1000
DROPPED_RETENTION_MS = 7 * _DAY_MS
"""How long a dropped table can be brought back for certain."""
ABANDONED_AFTER_MS = 7 * _DAY_MS
"""Age from which a reservation without a table counts as abandoned; longer than any creation takes."""

_log = logging.getLogger(__name__)

_PASSES = 5
_MOST_FILES = 1000
"""Files that one creation deletes for others at most; the next creation goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeCandidate:
    """One table of a plan, with what lies at its location now."""

    table: InactiveTable
    decision: MaintenanceDecision
    num_files: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgePlan:
    """What :func:`purge` would delete, oldest first; making it deletes nothing.

    Attributes:
        retention_ms, abandoned_after_ms: ages that the catalog checks again when the plan is carried out.
        candidates: tables that are old enough and that the policy permits to purge.
        denied: tables that are old enough and that it does not.
    """

    retention_ms: int
    abandoned_after_ms: int
    candidates: tuple[PurgeCandidate, ...]
    denied: tuple[PurgeCandidate, ...]

    @property
    def num_files(self) -> int:
        return sum(candidate.num_files for candidate in self.candidates)

    @property
    def num_bytes(self) -> int:
        return sum(candidate.num_bytes for candidate in self.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult:
    """What was deleted. ``skipped`` are tables of the plan that were brought back or purged by another run meanwhile."""

    purged: tuple[InactiveTable, ...]
    skipped: tuple[InactiveTable, ...]
    num_files: int
    num_bytes: int


def plan_purge(
    client: DeltaClient,
    *,
    scope: str = "",
    retention_ms: int = DROPPED_RETENTION_MS,
    abandoned_after_ms: int = ABANDONED_AFTER_MS,
) -> PurgePlan:
    """Find the tables and creations without a name that may be deleted for good: the dry run, which needs no permission.

    Args:
        scope: ``catalog``, ``catalog.schema``, a table's former name, or everything.
        retention_ms: a table dropped less than so many milliseconds ago is kept.
        abandoned_after_ms: a creation begun less than so many milliseconds ago is taken for one under way.

    Raises:
        InvalidArgumentError: a negative time or a malformed scope.
    """
    check_milliseconds(retention_ms, name="retention_ms")
    check_milliseconds(abandoned_after_ms, name="abandoned_after_ms")
    now_ms = client.now_ms()
    candidates: list[PurgeCandidate] = []
    denied: list[PurgeCandidate] = []
    for table in client.catalog.inactive_tables(scope):
        if table.since_ms > now_ms - _min_age(table, retention_ms, abandoned_after_ms):
            continue
        files = list(client.stores.store_for(table.location).list_recursive(table.location))
        decision = client.catalog.maintenance_decision(table.identifier, table.purge_kind)
        found = PurgeCandidate(
            table=table, decision=decision, num_files=len(files), num_bytes=sum(file.size for file in files)
        )
        (candidates if decision.allowed else denied).append(found)
    return PurgePlan(
        retention_ms=retention_ms,
        abandoned_after_ms=abandoned_after_ms,
        candidates=tuple(candidates),
        denied=tuple(denied),
    )


def purge(client: DeltaClient, plan: PurgePlan) -> PurgeResult:
    """Delete every file of the plan's permitted tables; nothing else is touched.

    Raises:
        MaintenanceNotPermittedError: the policy changed its mind about a table; those before it are purged.
        PurgeRefusedError: a location is not inside the warehouse of this client, or shared with another table.
        WarehouseMismatchError: the warehouse of this client belongs to another catalog; nothing was deleted.
        CatalogBehindStorageError: the log of a table is newer than the catalog knows.
        StorageError: a file could not be deleted; plan and run it again, what is gone is no obstacle.
    """
    purged: list[InactiveTable] = []
    skipped: list[InactiveTable] = []
    num_files = num_bytes = 0
    if plan.candidates:
        client.warehouse.check_own()
    for candidate in plan.candidates:
        table = _claimed(client, candidate.table, plan)
        if table is None:
            skipped.append(candidate.table)
            continue
        for deleted in _delete_all(client.stores.store_for(table.location), table.location):
            num_files += 1
            num_bytes += deleted.size
        client.catalog.finish_purge(table.table_id)
        purged.append(table)
    return PurgeResult(purged=tuple(purged), skipped=tuple(skipped), num_files=num_files, num_bytes=num_bytes)


def purge_abandoned(client: DeltaClient, *, abandoned_after_ms: int = ABANDONED_AFTER_MS) -> tuple[InactiveTable, ...]:
    """Take away what creations that were given up have left, oldest first; every creation does it in the background.

    Only reservations that never became a table, older than the limit by the catalog's clock, inside of this client's
    warehouse, and not denied by the policy. What cannot be taken away now is left to a later call; nothing is raised for
    it. One call deletes a bounded number of files.

    Returns:
        The creations of which nothing is left.

    Raises:
        CatalogError: the catalog cannot be asked.
    """
    gone: list[InactiveTable] = []
    budget = _MOST_FILES
    now_ms = client.now_ms()
    for table in client.catalog.inactive_tables():
        young = table.since_ms > now_ms - _min_age(table, 0, abandoned_after_ms)
        if table.registered or young or not budget:
            continue
        try:
            if not client.catalog.maintenance_decision(table.identifier, table.purge_kind).allowed:
                continue
            store = client.stores.store_for(table.location)
            _refuse_links(store, table)
            _refuse_newer(store, table)
            claimed = client.catalog.begin_purge(table.table_id, min_age_ms=_min_age(table, 0, abandoned_after_ms))
            found = list(itertools.islice(store.list_recursive(claimed.location), budget))
            for status in found:
                store.delete(status.location)
            budget -= len(found)
            if next(iter(store.list_recursive(claimed.location)), None) is not None:
                continue
            store.remove_empty_directories(claimed.location)
            client.catalog.finish_purge(table.table_id)
        except CmDeltaError as error:
            # Of another warehouse, purged by somebody else, a disk that fails: not this time.
            _log.info("What the creation of %s left at %s stays: %s", table.identifier, table.location, error)
            continue
        gone.append(claimed)
    return tuple(gone)


def _min_age(table: InactiveTable, retention_ms: int, abandoned_after_ms: int) -> int:
    ages = {InactiveState.STAGING: abandoned_after_ms, InactiveState.DROPPED: retention_ms}
    # A purge that was begun was old enough then and can only be ended.
    return ages.get(table.state, 0)


def _claimed(client: DeltaClient, table: InactiveTable, plan: PurgePlan) -> InactiveTable | None:
    """The table, out of reach of everybody else; None if it has its name back or is gone."""
    kind = table.purge_kind
    decision = client.catalog.maintenance_decision(table.identifier, kind)
    if decision.kind is not kind or decision.allowed is not True:
        raise MaintenanceNotPermittedError(
            f"{kind.value} of {table.identifier} is not permitted: {decision.reason}. It was left as it is. Whoever owns the "
            f"policy can allow it with `cm-delta policy allow {table.identifier} {kind.value} --reason ...`."
        )
    min_age_ms = _min_age(table, plan.retention_ms, plan.abandoned_after_ms)
    store = client.stores.store_for(table.location)
    _refuse_links(store, table)
    _refuse_newer(store, table)
    try:
        claimed = client.catalog.begin_purge(table.table_id, min_age_ms=min_age_ms)
    except TableNotFoundError:
        return None
    except PurgeRefusedError:
        unnamed = {found.table_id: found.since_ms for found in client.catalog.inactive_tables(str(table.identifier))}
        if unnamed.get(table.table_id) != table.since_ms:
            return None  # It was brought back, and perhaps dropped again: its time starts anew.
        raise
    if claimed.location != table.location:
        raise PurgeRefusedError(
            f"{table.identifier} was not purged: the plan says {table.location}, and the catalog {claimed.location}. "
            "Make another plan."
        )
    return claimed


def _refuse_links(store: Store, table: InactiveTable) -> None:
    """The catalog has compared names only: on the way from the warehouse to the files there may be a link to elsewhere."""
    warehouse = table.location.rsplit("/", LEVELS_BELOW_WAREHOUSE)[0]
    expected = store.resolve(warehouse) + table.location.removeprefix(warehouse)
    found = store.resolve(table.location)
    if found != expected:
        raise PurgeRefusedError(
            f"{table.identifier} was not purged: {table.location} leads by a symbolic link to {found}, outside of where "
            "the catalog has put the table. Nothing was deleted. Remove the link, and what it leads to by hand if it is nobody's."
        )


def _refuse_newer(store: Store, table: InactiveTable) -> None:
    """Storage may know more of a table than a catalog that was restored from a backup: that it was used since.

    A creation that was given up left version 0 at most; anything else in its log was written after a registration that the
    catalog has lost.
    """
    if table.state is InactiveState.PURGING:
        return  # The purge was begun, after this check, and has deleted a part.
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


def _delete_all(store: Store, location: str) -> Iterator[ObjectStatus]:
    """Every object below ``location``, again until a listing is empty: a writer killed late may have left more."""
    for _ in range(_PASSES):
        found = list(store.list_recursive(location))
        if not found:
            store.remove_empty_directories(location)
            return
        for status in found:
            store.delete(status.location)
            yield status
    raise StorageError(
        f"{location} was listed and deleted {_PASSES} times and is not empty: somebody writes there. Stop that and purge again."
    )
