"""RELOCATE: changes the locations of tables in the catalog after a warehouse moved. It changes no file.

The plan is the dry run. For each table whose location is below the old warehouse it looks for the log below the new warehouse, and
in it for the newest commit that is published according to the catalog.
"""

from dataclasses import dataclass
from enum import StrEnum

from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.catalog.tables import InactiveState, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import is_ratified, published_source
from cm_delta_dagster.client.snapshots.log_reader import load_state
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    ObjectNotFoundError,
    ProtocolError,
    RecoveryError,
    StorageError,
)
from cm_delta_dagster.operations.arguments import check_plan
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.operations.recovery.table_places import record_clones
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.storage.store import Store


class MoveState(StrEnum):
    """What the new location of a table holds.

    FOUND: the log of this table. MISSING: no log. OTHER: the log of another table, or an older copy of this one. EMPTY: no log, and
    the table is an unfinished creation.
    """

    FOUND = "found"
    MISSING = "missing"
    OTHER = "other"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMove:
    """One table of a plan.

    Attributes:
        detail: why the table cannot be relocated; empty if it can.
        is_still_there: whether the old location also holds a log, since it was copied and not moved.
    """

    identifier: TableIdentifier
    table_id: str
    moved_from: str
    moved_to: str
    state: MoveState
    detail: str = ""
    is_still_there: bool = False

    @property
    def can_be_made(self) -> bool:
        return self.state in (MoveState.FOUND, MoveState.EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationPlan(Plan[tuple[TableMove, ...]]):
    """Tables whose location lies below ``moved_from``, by name."""

    moved_from: str
    moved_to: str
    moves: tuple[TableMove, ...]

    @property
    def refused(self) -> tuple[TableMove, ...]:
        return tuple(move for move in self.moves if not move.can_be_made)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A table of the catalog. ``newest`` is its newest published commit, None if the catalog has none."""

    identifier: TableIdentifier
    table_id: str
    location: str
    is_creation: bool
    newest: RatifiedCommit | None


def plan_relocation(client: DeltaClient, *, moved_from: str, moved_to: str, scope: str = "") -> RelocationPlan:
    """Find the tables below ``moved_from`` and look for them below ``moved_to``; changes nothing.

    Args:
        moved_from, moved_to: directories or URIs.
        scope: ``catalog``, ``catalog.schema``, or every table; dropped ones are included.

    Raises:
        InvalidArgumentError: the locations are equal or one lies inside the other, or a malformed scope.
        WarehouseMismatchError: the marker at ``moved_to`` names another catalog.
    """
    old, new = absolute_location(moved_from).rstrip("/"), absolute_location(moved_to).rstrip("/")
    if f"{old}/".startswith(f"{new}/") or f"{new}/".startswith(f"{old}/"):
        raise InvalidArgumentError(
            f"Tables cannot be relocated from {old} to {new}: give two locations of which neither lies inside the other."
        )
    client.warehouse.check(new)
    store, old_store = client.stores.store_for(new), client.stores.store_for(old)
    moves = []
    for known in _known_tables(client, scope):
        if known.location.startswith(f"{old}/"):
            target = new + known.location.removeprefix(old)
            state, detail = _look(store, target, known)
            clones = ", ".join(str(clone.identifier) for clone in client.registry.clones_of(known.table_id))
            if clones:
                state, detail = MoveState.OTHER, f"its shallow clones ({clones}) name its files at {known.location}."
            moves.append(
                TableMove(
                    identifier=known.identifier,
                    table_id=known.table_id,
                    moved_from=known.location,
                    moved_to=target,
                    state=state,
                    detail=detail,
                    is_still_there=_has_log(old_store, known.location),
                )
            )
    ordered = sorted(moves, key=lambda move: (move.identifier, move.table_id))
    return RelocationPlan(moved_from=old, moved_to=new, moves=tuple(ordered))


def known_locations(client: DeltaClient, scope: str = "") -> tuple[str, ...]:
    """The locations of the tables that a relocation of ``scope`` may change, sorted."""
    return tuple(sorted({known.location for known in _known_tables(client, scope)}))


def relocate(client: DeltaClient, plan: RelocationPlan) -> tuple[TableMove, ...]:
    """Change the locations in the catalog. Repeating a relocation is safe.

    Processes that have opened a table continue to use its old location: stop them first, and connect with the new warehouse
    afterwards.

    Raises:
        RecoveryError: a table was not found at its new location; nothing was changed. Or another table has that location;
            tables before it in the plan are relocated.
    """
    check_plan(plan, RelocationPlan, method="plan_relocate")
    again = plan_relocation(client, moved_from=plan.moved_from, moved_to=plan.moved_to)
    now = {move.table_id: move for move in again.moves}
    # Tables that an interrupted run has relocated are no longer at the old location.
    refused = plan.refused or tuple(
        now[move.table_id] for move in plan.moves if move.table_id in now and not now[move.table_id].can_be_made
    )
    if refused:
        raise RecoveryError(
            "Nothing was relocated: "
            + " ".join(
                f"{move.identifier} from {move.moved_from} to {move.moved_to}: {move.detail}" for move in refused
            )
            + " Copy the files there, or relocate a scope without these tables."
        )
    for move in plan.moves:
        client.recovery.relocate_table(move.table_id, location=move.moved_to, moved_from=move.moved_from)
        client.forget(move.table_id)
    record_clones(client, {move.table_id: move.moved_to for move in plan.moves if move.state is MoveState.FOUND})
    return plan.moves


def _known_tables(client: DeltaClient, scope: str) -> list[_Known]:
    registry = client.registry
    tables = []
    for name in registry.list_tables(scope):
        entry = registry.load_table(name)
        published = entry.ratified.published_version
        records = client.coordinator.commit_records(entry.table_id, start=published, end=published)
        tables.append(
            _Known(
                identifier=entry.identifier,
                table_id=entry.table_id,
                location=entry.location,
                is_creation=False,
                newest=records[0] if records else None,
            )
        )
    tables += [
        _Known(
            identifier=table.identifier,
            table_id=table.table_id,
            location=table.location,
            is_creation=table.state is not InactiveState.DROPPED,
            newest=None,
        )
        for table in registry.inactive_tables(scope)
    ]
    return tables


def _look(store: Store, location: str, known: _Known) -> tuple[MoveState, str]:
    if not _has_log(store, location):
        if known.is_creation:
            return MoveState.EMPTY, ""
        return MoveState.MISSING, f"there is no log at {location}."
    if known.newest is None:
        return (MoveState.FOUND, "") if known.is_creation else _compare_ids(store, location, known.table_id)
    version = known.newest.version
    try:
        data = store.read(published_source(location, version).location)
    except ObjectNotFoundError:
        return (
            MoveState.OTHER,
            f"the log at {location} has no version {version}, which is published according to the catalog.",
        )
    if not is_ratified(known.newest, data):
        return MoveState.OTHER, f"version {version} at {location} is not the commit that the catalog ratified."
    return MoveState.FOUND, ""


def _compare_ids(store: Store, location: str, table_id: str) -> tuple[MoveState, str]:
    """Identify a dropped table by the id in its metadata, since the catalog lists no commits of it."""
    names = [status.name for status in store.list_from(log_files.log_directory(location))]
    versions = [
        file.version for name in names if isinstance(file := log_files.parse_log_file(name), log_files.CommitFile)
    ]
    try:
        state = load_state(CommitReader(store, location), version=max(versions, default=0)).state
    except (ProtocolError, StorageError) as error:
        return MoveState.OTHER, f"the log at {location} cannot be read: {error}"
    logged_id = TableProperties(state.metadata.configuration).table_id
    if logged_id != table_id:
        return MoveState.OTHER, f"the log at {location} belongs to table {logged_id}."
    return MoveState.FOUND, ""


def _has_log(store: Store, location: str) -> bool:
    names = (status.name for status in store.list_from(log_files.log_directory(location)))
    return any(log_files.parse_log_file(name) is not None for name in names)
