"""RECOVER WAREHOUSE: adopts the tables of a lost catalog into a new catalog, from their logs and markers.

The log gives id, definition and commits of a table; its marker gives the name and whether it was dropped. Policies, the commit
feed, and commits that only the lost catalog had are lost. The plan is the dry run; carrying it out assigns the warehouse to the
new catalog.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from cm_delta_dagster.catalog.recovery import AdoptedState, AdoptedTable, CommitHistory
from cm_delta_dagster.catalog.tables import LEVELS_BELOW_WAREHOUSE, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.post_commit.publisher import publish_commits
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.log_reader import load_state
from cm_delta_dagster.client.warehouse import (
    absolute_location,
    read_table_marker,
    read_warehouse_marker,
    write_table_marker,
    write_warehouse_marker,
)
from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, ProtocolError, RecoveryError, StorageError
from cm_delta_dagster.operations.arguments import check_plan
from cm_delta_dagster.operations.recovery.commit_chain import Chain, CommitFileContent, Link, RefusedError, parsed
from cm_delta_dagster.operations.recovery.log_listing import (
    DirectoryListings,
    above,
    list_log,
    missing_files,
    staged_candidates,
)
from cm_delta_dagster.operations.recovery.plan import RejectedCommit
from cm_delta_dagster.operations.recovery.table_places import record_clones, record_sources
from cm_delta_dagster.operations.recovery.transaction_parts import RecoveredHistory, TransactionsOfPlan
from cm_delta_dagster.operations.recovery.warehouse_plan import AdoptionPlan, AdoptionResult, SkippedLog, WarehousePlan
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Protocol
from cm_delta_dagster.protocol.features.table_features import is_catalog_managed
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.action_reconciliation import TableState, replay
from cm_delta_dagster.protocol.log.markers import MarkedState, TableMarker
from cm_delta_dagster.storage.store import Store

_LOG_PART = "/_delta_log/"
_OWN_DIRECTORY = re.compile(r".+-[0-9a-f]{12}")
"""Last part of the locations that a catalog gives to new tables."""


@dataclass(frozen=True, kw_only=True)
class _FoundTable:
    plan: AdoptionPlan
    chain: Chain
    links: tuple[Link, ...]


class _NotAdoptableError(Exception):
    """The log is not that of a table that can be adopted; the text says why."""


def plan_warehouse_recovery(
    client: DeltaClient, *, warehouse: str, names: Mapping[str, str] | None = None, take_staged: Collection[str] = ()
) -> WarehousePlan:
    """Plan the adoption of the tables of the warehouse that the catalog of ``client`` does not have; changes nothing.

    Args:
        warehouse: directory or URI.
        names: ``catalog.schema.table`` by location, absolute or relative to the warehouse; overrides the names that markers
            and directories give.
        take_staged: names of staged files to record in the catalog.

    Raises:
        InvalidArgumentError: a location of ``names`` holds no table, or a name or staged file is invalid.
        WarehouseMismatchError: the marker of the warehouse cannot be parsed.
    """
    plan, _ = _plan(client, warehouse, dict(names or {}), tuple(take_staged))
    return plan


def recover_warehouse(client: DeltaClient, plan: WarehousePlan) -> AdoptionResult:
    """Adopt the tables of ``plan`` and assign the warehouse to this catalog. After an interruption, make a new plan.

    Make sure that no client uses the former catalog: two catalogs would ratify different commits of one table.

    Raises:
        RecoveryError: a conflict is unresolved, or the warehouse has changed since the plan was made. Nothing was changed.
        TableAlreadyExistsError: a name was taken meanwhile; tables before it in the plan are adopted.
    """
    check_plan(plan, WarehousePlan, method="plan_recover_warehouse")
    if plan.conflicts:
        raise RecoveryError(
            "Nothing was adopted: " + " ".join(f"{table.location}: {table.conflict}" for table in plan.conflicts)
        )
    again, tables = _plan(client, plan.warehouse, dict(plan.names), plan.take_staged)
    if again != plan:
        raise RecoveryError(
            f"The warehouse {plan.warehouse} has changed since the plan was made: a client writes to it. Nothing was changed. Stop "
            "the writers and make a new plan."
        )
    identity = client.registry.identity()
    write_warehouse_marker(client.stores.store_for(plan.warehouse), plan.warehouse, identity)
    for table in tables:
        _adopt(client, table, warehouse=plan.warehouse, catalog_id=identity.catalog_id)
    for table in tables:
        _record_sources(client, table)
    record_clones(client, {table.plan.table_id: table.plan.location for table in tables})
    return AdoptionResult(tables=plan.tables)


def _plan(
    client: DeltaClient, warehouse: str, names: Mapping[str, str], take_staged: tuple[str, ...]
) -> tuple[WarehousePlan, tuple[_FoundTable, ...]]:
    root = absolute_location(warehouse)
    store = client.stores.store_for(root)
    marker = read_warehouse_marker(store, root)
    names_by_location = {_below(root, location): TableIdentifier.parse(name) for location, name in names.items()}
    with_proven = take_staged
    while True:
        tables, skipped = _found_tables(client, root, names_by_location, with_proven)
        transactions = TransactionsOfPlan(
            histories={table.plan.table_id: _history(table) for table in tables}, known_commit=lambda *_: None
        )
        proven = transactions.proven().difference(with_proven)
        if not proven:
            break
        with_proven += tuple(sorted(proven))
    unmatched = sorted(set(names_by_location).difference(table.plan.location for table in tables))
    if unmatched:
        raise InvalidArgumentError(
            f"A name was given for {unmatched[0]}, where no table was found that could be adopted."
        )
    _check_staged(tables, take_staged)
    tables = _with_conflicts(client, [_with_transactions(table, transactions) for table in tables])
    taken = {staged.name for table in tables for staged in table.plan.staged if staged.is_taken}
    plan = WarehousePlan(
        warehouse=root,
        former_catalog_id=None if marker is None else marker.catalog_id,
        catalog_id=client.registry.identity().catalog_id,
        tables=tuple(table.plan for table in tables),
        skipped=tuple(skipped),
        names=tuple(sorted(names.items())),
        take_staged=tuple(name for name in with_proven if name in taken),
    )
    return plan, tuple(tables)


def _found_tables(
    client: DeltaClient, root: str, names: Mapping[str, TableIdentifier], take_staged: tuple[str, ...]
) -> tuple[list[_FoundTable], list[SkippedLog]]:
    """The tables that can be adopted, and the logs that cannot."""
    store = client.stores.store_for(root)
    tables: list[_FoundTable] = []
    skipped: list[SkippedLog] = []
    known = _known_tables(client)
    for location in _locations(store, root):
        try:
            table = _plan_adoption(client, store, root, location, names.get(location), take_staged)
        except _NotAdoptableError as error:
            skipped.append(SkippedLog(location=location, reason=str(error)))
            continue
        if table.plan.table_id in known or location in known:
            skipped.append(SkippedLog(location=location, reason="this catalog already has the table."))
            continue
        tables.append(table)
    return tables, skipped


def _history(table: _FoundTable) -> RecoveredHistory:
    plan = table.plan
    return RecoveredHistory(
        table_id=plan.table_id,
        name=plan.location if plan.identifier is None else str(plan.identifier),
        known_version=plan.first_version - 1,
        recorded={link.description.version: link.description for link in table.links},
        staged=plan.staged,
    )


def _with_transactions(table: _FoundTable, transactions: TransactionsOfPlan) -> _FoundTable:
    parts = transactions.parts(table.plan.table_id)
    shown = tuple(part for part in parts if part.staged_file or part.missing)
    return replace(table, plan=replace(table.plan, transactions=shown))


def _below(root: str, location: str) -> str:
    inside = location.startswith(("/", f"{root}/")) or "://" in location
    return absolute_location(location) if inside else f"{root}/{location.strip('/')}"


def _known_tables(client: DeltaClient) -> frozenset[str]:
    """Ids and locations of all tables of the catalog, including inactive ones."""
    entries = [client.registry.load_table(name) for name in client.registry.list_tables()]
    known = {text for entry in entries for text in (entry.table_id, entry.location)}
    known |= {text for table in client.registry.inactive_tables() for text in (table.table_id, table.location)}
    return frozenset(known)


def _locations(store: Store, root: str) -> tuple[str, ...]:
    """Directories below the warehouse that have a log, ascending."""
    locations = {
        status.location.partition(_LOG_PART)[0] for status in store.list_recursive(root) if _LOG_PART in status.location
    }
    return tuple(sorted(locations))


def _plan_adoption(
    client: DeltaClient,
    store: Store,
    root: str,
    location: str,
    given_name: TableIdentifier | None,
    take_staged: tuple[str, ...],
) -> _FoundTable:
    reader = CommitReader(store, location, threads=client.settings.read_threads)
    listing = list_log(store, location)
    chain, rejected = _chain(reader, listing)
    links = tuple(chain.links)
    table_id = chain.table_id
    staged, lost = staged_candidates(reader, chain, listing, chosen=take_staged, known=(), holds={})
    marker = read_table_marker(store, location)
    if marker is not None and marker.table_id != table_id:
        marker = None
    identifier, name_from = _name(root, location, marker, given_name)
    dropped = marker is not None and marker.state is MarkedState.DROPPED
    plan = AdoptionPlan(
        location=location,
        table_id=table_id,
        identifier=identifier,
        name_from=name_from,
        state=AdoptedState.DROPPED if dropped else AdoptedState.ACTIVE,
        first_version=links[0].proposal.version,
        latest_version=chain.version,
        rejected=rejected,
        staged=staged,
        lost=lost,
        missing_files=missing_files(reader, chain),
    )
    return _FoundTable(plan=plan, chain=chain, links=tuple(chain.links))


def _chain(reader: CommitReader, listing: DirectoryListings) -> tuple[Chain, tuple[RejectedCommit, ...]]:
    """The chain that ends with the newest commits, and the commits that do not continue it."""
    base, first = _start(reader, listing)
    if not _begins_managed(reader, listing, base, first):
        first = _adopted_at(reader, listing, first)
        base = load_state(reader, version=first).state
    if base is None:
        table_id = _table_id(_file(reader, listing, first))
        chain = Chain(reader.store, reader.location, table_id=table_id, state=None, timestamp_ms=-1)
    else:
        table_id = _managed_id(base)
        known = None if first in listing.published else base
        chain = Chain(reader.store, reader.location, table_id=table_id, state=known, timestamp_ms=-1)
    rejected = []
    for version in above(listing.published, first - 1):
        file = _file(reader, listing, version)
        try:
            if version == first and base is not None:
                chain.begin(file, base)
            else:
                chain.add(file)
        except RefusedError as error:
            protocol = _protocol(file)
            if chain.links and protocol is not None and not is_catalog_managed(protocol):
                raise _NotAdoptableError(f"version {version} has released the table; no catalog manages it.") from error
            rejected.append(RejectedCommit(version=version, name=file.name, reason=str(error)))
    if not chain.links:
        raise _NotAdoptableError(f"its commits cannot be used: {rejected[0].reason if rejected else 'there are none.'}")
    return chain, tuple(rejected)


def _begins_managed(reader: CommitReader, listing: DirectoryListings, base: TableState | None, first: int) -> bool:
    """Whether the table is catalog-managed from the first commit of the log on; a damaged commit counts as managed."""
    if base is not None:
        return is_catalog_managed(base.protocol)
    protocol = _protocol(_file(reader, listing, first))
    return protocol is None or is_catalog_managed(protocol)


def _adopted_at(reader: CommitReader, listing: DirectoryListings, first: int) -> int:
    """The version that brought the table of another writer under a catalog."""
    for version in above(listing.published, first):
        protocol = _protocol(_file(reader, listing, version))
        if protocol is not None and is_catalog_managed(protocol):
            return version
    raise _NotAdoptableError("no catalog manages the table.")


def _protocol(file: CommitFileContent) -> Protocol | None:
    """The protocol action of a commit; None if it has none, or cannot be read."""
    try:
        return commit_json.decode_commit(file.data, version=file.version).protocol
    except CorruptLogError:
        return None


def _start(reader: CommitReader, listing: DirectoryListings) -> tuple[TableState | None, int]:
    """A state and its version from which the newest commits follow without a gap; None and 0 for a log that begins at 0."""
    versions = sorted(listing.published)
    starts = [version for version in versions if version - 1 not in listing.published]
    for start in reversed(starts):
        if start == 0:
            return None, 0
        end = next(version for version in above(versions, start - 1) if version + 1 not in listing.published)
        for version in sorted(version for version in _checkpoints(listing) if start - 1 <= version <= end):
            try:
                return load_state(reader, version=version).state, version
            except (ProtocolError, StorageError):
                continue
    raise _NotAdoptableError(
        "its _delta_log holds no commits that begin with version 0 or follow a readable checkpoint."
    )


def _checkpoints(listing: DirectoryListings) -> frozenset[int]:
    return frozenset(version for name, version in listing.derived.items() if ".checkpoint." in name)


def _file(reader: CommitReader, listing: DirectoryListings, version: int) -> CommitFileContent:
    return CommitFileContent.read(reader.store, listing.published[version], version)


def _table_id(first: CommitFileContent) -> str:
    try:
        return _managed_id(replay(None, (parsed(first)[0],), location=""))
    except (RefusedError, ProtocolError) as error:
        raise _NotAdoptableError(f"{first.name} cannot be used: {error}") from error


def _managed_id(state: TableState) -> str:
    if not is_catalog_managed(state.protocol):
        raise _NotAdoptableError("no catalog manages the table.")
    table_id = TableProperties(state.metadata.configuration).table_id
    if table_id is None:
        raise _NotAdoptableError("its metadata names no table id.")
    return table_id


def _name(
    root: str, location: str, marker: TableMarker | None, given_name: TableIdentifier | None
) -> tuple[TableIdentifier | None, str]:
    if given_name is not None:
        return given_name, "--name"
    if marker is not None:
        try:
            return TableIdentifier.parse(marker.name), "marker"
        except InvalidArgumentError:
            pass
    parts = location.removeprefix(f"{root}/").split("/")
    table, dash, _ = parts[-1].rpartition("-")
    if len(parts) != LEVELS_BELOW_WAREHOUSE or not dash:
        return None, "nothing"
    try:
        return TableIdentifier.parse(".".join([*parts[:-1], table])), "directory"
    except InvalidArgumentError:
        return None, "nothing"


def _check_staged(tables: Collection[_FoundTable], take_staged: Collection[str]) -> None:
    offered = {staged.name: staged for table in tables for staged in table.plan.staged}
    for name in take_staged:
        if name not in offered or not offered[name].is_taken:
            why = "no table offers it" if name not in offered else offered[name].problem
            raise InvalidArgumentError(f"The staged file {name!r} cannot be recorded: {why}.")


def _with_conflicts(client: DeltaClient, tables: Collection[_FoundTable]) -> list[_FoundTable]:
    """Mark tables without a name, or with a name that another active table also has, as conflicts."""
    taken = dict.fromkeys(client.registry.list_tables(), "a table of this catalog")
    active = [table.plan for table in tables if table.plan.state is AdoptedState.ACTIVE]
    ids = [table.plan.table_id for table in tables]
    decided = []
    for table in tables:
        plan = table.plan
        others = [other.location for other in active if other is not plan and other.identifier == plan.identifier]
        conflict = None
        if ids.count(plan.table_id) > 1:
            conflict = (
                f"several directories hold table {plan.table_id}: one is a copy. Move the copy out of the warehouse."
            )
        elif plan.identifier is None:
            conflict = f"its name is not known. Give a name to the table at {plan.location}."
        elif plan.state is AdoptedState.ACTIVE and (others or plan.identifier in taken):
            owner = others[0] if others else taken[plan.identifier]
            conflict = f"{owner} also has the name {plan.identifier}. Choose a name for the table at {plan.location}."
        decided.append(replace(table, plan=replace(plan, conflict=conflict)))
    return decided


def _record_sources(client: DeltaClient, table: _FoundTable) -> None:
    """Record of which tables an adopted one is a shallow clone: those below whose location its log names files."""
    state = table.chain.state
    assert state is not None
    record_sources(client, table.plan.table_id, table.plan.location, (state.files.adds, state.files.removes))


def _is_external(warehouse: str, location: str) -> bool:
    """Whether no catalog has chosen the location, so that a purge must keep the files: the table was adopted there."""
    parts = location.removeprefix(f"{warehouse}/").split("/")
    return len(parts) != LEVELS_BELOW_WAREHOUSE or _OWN_DIRECTORY.fullmatch(parts[-1]) is None


def _adopt(client: DeltaClient, table: _FoundTable, *, warehouse: str, catalog_id: str) -> None:
    plan, links = table.plan, table.links
    assert plan.identifier is not None
    proposals = tuple(link.proposal for link in links)
    published = [p.version for p in proposals if p.file_name == log_files.commit_file_name(p.version)]
    history = CommitHistory(
        proposals=proposals,
        published_version=published[-1],
        definition=table.chain.definition(),
        row_id_mark=table.chain.row_id_mark(),
    )
    client.recovery.adopt_table(
        AdoptedTable(
            table_id=plan.table_id,
            identifier=plan.identifier,
            location=plan.location,
            state=plan.state,
            history=history,
            is_external=_is_external(warehouse, plan.location),
        )
    )
    store = client.stores.store_for(plan.location)
    if plan.state is AdoptedState.ACTIVE:
        publish_commits(
            CommitReader(store, plan.location),
            commits=client.coordinator.get_ratified_commits(plan.table_id).unpublished,
            reached=lambda version: client.coordinator.set_published_version(plan.table_id, version),
        )
    write_table_marker(
        store,
        plan.location,
        table_id=plan.table_id,
        identifier=plan.identifier,
        catalog_id=catalog_id,
        state=MarkedState(plan.state.value),
    )
