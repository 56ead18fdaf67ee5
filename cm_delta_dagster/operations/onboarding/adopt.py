"""ADOPT: bring an existing table of a path under the catalog, without copying or rewriting data files.

One commit adds the feature ``catalogManaged`` with what it requires. It is created put-if-absent, so that of this client and
the writers that the table had, one makes the next version; afterwards these writers are refused by the protocol. Then the catalog
registers the table. A client that fails before the commit leaves the table as it was. One that fails after it leaves a table that
no catalog has registered and that nobody can write to; the commit names the catalog, and adopting the table again registers it.
"""

import logging
import typing
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.recovery import AdoptedState, AdoptedTable, CommitHistory
from cm_delta_dagster.catalog.tables import TableDefinition, TableEntry, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.backoff import attempts, attempts_without_jitter
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.client.commits.proposal import ProposalRules, prepare_commit
from cm_delta_dagster.client.commits.put_if_absent import create_commit, found_proposal
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.snapshots.log_reader import load_state, read_checksum
from cm_delta_dagster.client.snapshots.path_table import PathTable, open_path_table
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.warehouse import absolute_location, read_warehouse_marker, write_table_marker
from cm_delta_dagster.errors import (
    CatalogManagedAccessError,
    CatalogUnavailableError,
    CommitRetriesExceededError,
    CommitStateUnknownError,
    CorruptLogError,
    ObjectNotFoundError,
    RecoveryError,
    StorageError,
    StoreNotSupportedError,
    TableAlreadyExistsError,
    TableNotFoundError,
    WarehouseMismatchError,
    WriteRefusedError,
)
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.features.table_features import (
    CATALOG_MANAGED,
    check_writable,
    reader_features,
    writer_features,
)
from cm_delta_dagster.protocol.features.table_properties import TableProperties, required_properties
from cm_delta_dagster.protocol.log import version_checksum
from cm_delta_dagster.protocol.log.markers import MarkedState

_log = logging.getLogger(__name__)

OPERATION = "ADOPT TABLE"
ADOPTED_BY_TAG = "cm_delta/adopted_by"
"""Tag of the commit that adopts a table: the id of the catalog."""


class AdoptState(StrEnum):
    """What an adoption finds at the location."""

    PATH_TABLE = "path_table"
    """A Delta table that no catalog manages."""
    UNFINISHED = "unfinished"
    """A table whose adoption by this catalog was interrupted after its commit; it is not registered."""
    ADOPTED = "adopted"
    """A table that this catalog manages under this name; there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptPlan:
    """What :func:`adopt` would do with the table at a location.

    Attributes:
        name: ``catalog.schema.table`` that the table gets.
        version: the latest version of the table.
        num_files, num_bytes: live data files. They stay as they are.
        added_features: what the commit adds to the protocol.
        properties: what the commit sets; the enablement properties of in-commit timestamps come with them.
    """

    name: str
    location: str
    state: AdoptState
    table_id: str
    version: int
    num_files: int
    num_bytes: int
    added_features: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def adopted_version(self) -> int:
        """The version from which on the catalog ratifies the commits."""
        return self.version + 1 if self.state is AdoptState.PATH_TABLE else self.version


def plan_adopt(client: DeltaClient, *, location: str, identifier: TableIdentifier | str) -> AdoptPlan:
    """Check whether a table can be adopted; changes nothing.

    Args:
        location: directory, or URI with its scheme; a relative path starts at the working directory.

    Raises:
        TableNotFoundError: there is no Delta table at the location.
        TableAlreadyExistsError: another table has the name, or the catalog has the table under another name.
        CatalogManagedAccessError: another catalog manages the table.
        RecoveryError: the location overlaps that of a table of the catalog.
        WarehouseMismatchError: the location is in the warehouse of another catalog.
        UnsupportedFeatureError: the table needs a feature that this client cannot read or write.
        CorruptLogError: the latest version cannot be read as a whole, or contradicts its checksum.
    """
    return _draft(client, location, TableIdentifier.of(identifier)).plan


def adopt(
    client: DeltaClient, *, location: str, identifier: TableIdentifier | str, context: CommitContext = NO_CONTEXT
) -> Table:
    """Bring the table at ``location`` under the catalog, under the name ``identifier``. A repeated call completes or does nothing.

    Raises:
        CmDeltaError: as :func:`plan_adopt`; nothing was changed.
        StoreNotSupportedError: the store cannot create a file exclusively; nothing was changed.
        CommitRetriesExceededError: other writers committed before each attempt; nothing was changed.
        CommitStateUnknownError: storage or catalog did not answer. Adopt the table again.
    """
    name, settings = TableIdentifier.of(identifier), client.settings
    for _ in attempts(settings, settings.max_commit_attempts):
        draft = _draft(client, location, name)
        plan = draft.plan
        if plan.state is AdoptState.ADOPTED:
            return client.table(name)
        if draft.snapshot is not None and not _commit(client, draft, draft.snapshot, context):
            continue
        entry = _register(client, plan, name)
        client.forget(entry.table_id)
        return client.open(entry)
    raise CommitRetriesExceededError(
        f"{plan.location} was not adopted: other writers committed before each of {settings.max_commit_attempts} attempts. Nothing "
        "was changed. Stop them, or adopt the table again."
    )


def explain(plan: AdoptPlan) -> Iterator[str]:
    """The lines of text that show a plan to a user."""
    if plan.state is AdoptState.ADOPTED:
        yield f"{plan.location} is the table {plan.name} of this catalog; there is nothing to do."
        return
    if plan.state is AdoptState.UNFINISHED:
        yield f"{plan.location}: the adoption was interrupted after version {plan.version}; it would be registered as {plan.name}."
        return
    yield (
        f"{plan.location} would become {plan.name}: version {plan.adopted_version} adds the features "
        f"{', '.join(plan.added_features)}. {plan.num_files} data files stay as they are."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A plan; for a table that no catalog manages, also its snapshot, and protocol and metadata of the commit."""

    plan: AdoptPlan
    snapshot: Snapshot | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None


def _draft(client: DeltaClient, location: str, name: TableIdentifier) -> _Draft:
    at = absolute_location(location).rstrip("/")
    _refuse_other_warehouse(client, at)
    table = open_path_table(client.stores, at)
    try:
        snapshot = table.snapshot()
    except CatalogManagedAccessError as error:
        return _Draft(plan=_managed_plan(client, table, name, error))
    _refuse_taken(client, name, at)
    check_writable(snapshot.protocol, at, metadata=snapshot.metadata)
    _check_newest(table, snapshot)
    table_id = str(uuid.uuid4())
    protocol = with_features(snapshot.protocol, (CATALOG_MANAGED,))
    properties = required_properties(table_id)
    metadata = replace(snapshot.metadata, configuration={**snapshot.metadata.configuration, **properties})
    check_writable(protocol, at, metadata=metadata)
    before = writer_features(snapshot.protocol) | reader_features(snapshot.protocol)
    plan = AdoptPlan(
        name=str(name),
        location=at,
        state=AdoptState.PATH_TABLE,
        table_id=table_id,
        version=snapshot.version,
        num_files=snapshot.num_files,
        num_bytes=snapshot.size_bytes,
        added_features=tuple(sorted(writer_features(protocol) - before)),
        properties=tuple(sorted(properties.items())),
    )
    return _Draft(plan=plan, snapshot=replace(snapshot, identifier=str(name)), protocol=protocol, metadata=metadata)


def _refuse_other_warehouse(client: DeltaClient, location: str) -> None:
    """Refuse a location at or below a warehouse whose marker names another catalog."""
    own = client.registry.identity().catalog_id
    store = client.stores.store_for(location)
    scheme, separator, rest = location.partition("://")
    parts = rest.split("/")
    for length in range(len(parts), 0, -1):
        root = f"{scheme}{separator}{'/'.join(parts[:length])}"
        marker = read_warehouse_marker(store, root) if parts[length - 1] else None
        if marker is not None and marker.catalog_id != own:
            raise WarehouseMismatchError(
                f"{location} was not adopted: it is in the warehouse {root} of the catalog {marker.catalog_id}, and this is the "
                f"catalog {own}. Nothing was changed. Release the table there first; if that catalog is lost, run `cm-delta "
                f"recover --warehouse {root}`."
            )


def _refuse_taken(client: DeltaClient, name: TableIdentifier, location: str) -> None:
    try:
        taken = client.registry.load_table(name)
    except TableNotFoundError:
        taken = None
    if taken is not None:
        raise TableAlreadyExistsError(
            f"{location} was not adopted: {name} exists already, at {taken.location}. Nothing was changed. Choose another name."
        )
    others = client.recovery.overlapping_tables(location)
    if others:
        state = "" if others[0].state is None else f", {others[0].state}"
        raise RecoveryError(
            f"{location} was not adopted: it overlaps the location {others[0].location} of {others[0].identifier}{state} (table id "
            f"{others[0].table_id}). Nothing was changed. Two tables cannot share files."
        )


def _check_newest(table: PathTable, snapshot: Snapshot) -> None:
    """Refuse a table whose newest commit is missing or damaged, or whose newest version contradicts its checksum."""
    source = published_source(snapshot.location, snapshot.version)
    try:
        commit = commit_json.decode_commit(table.store.read(source.location), version=snapshot.version)
    except ObjectNotFoundError as error:
        raise CorruptLogError(
            f"{snapshot.location} was not adopted: its log does not have the commit of its latest version {snapshot.version}. "
            "Nothing was changed. Restore the file, or write to the table once with the engine that it has now.",
            version=snapshot.version,
        ) from error
    checksum = read_checksum(table.store, snapshot.location, snapshot.version)
    own = None if commit.commit_info is None else commit.commit_info.txn_id
    if checksum is None or (checksum.txn_id is not None and checksum.txn_id != own):
        return
    wrong = version_checksum.differences(checksum, snapshot.state)
    if wrong:
        raise CorruptLogError(
            f"{snapshot.location} was not adopted: version {snapshot.version} contradicts its checksum in {', '.join(wrong)}, so "
            "that a part of the log was lost or changed. Nothing was changed. Restore the log; if the checksum is wrong, delete "
            "it.",
            version=snapshot.version,
        )


def _managed_plan(
    client: DeltaClient, table: PathTable, name: TableIdentifier, refusal: CatalogManagedAccessError
) -> AdoptPlan:
    """The plan for a table whose protocol lists ``catalogManaged``: it must be one of this catalog."""
    version = table.latest_version()
    state = load_state(CommitReader(table.store, table.location), version=version).state
    table_id = TableProperties(state.metadata.configuration).table_id
    entry = None if table_id is None else _entry(client, table_id, table.location)
    if entry is not None and entry.identifier != name:
        raise TableAlreadyExistsError(
            f"{table.location} was not adopted as {name}: it is the table {entry.identifier} of this catalog. Nothing was changed. "
            "Rename the table."
        )
    if entry is None and (table_id is None or not _is_interrupted(client, table, version)):
        raise CatalogManagedAccessError(
            f"{table.location} was not adopted: its protocol lists catalogManaged, and this catalog does not have the table "
            f"(table id {table_id or 'unknown'}). Another catalog manages it. Nothing was changed. Release it there; if that "
            "catalog is lost, run `cm-delta recover --warehouse DIR`."
        ) from refusal
    if entry is None:
        _refuse_taken(client, name, table.location)
    return AdoptPlan(
        name=str(name),
        location=table.location,
        state=AdoptState.UNFINISHED if entry is None else AdoptState.ADOPTED,
        table_id=table_id or "",
        version=version,
        num_files=state.files.num_files,
        num_bytes=state.files.size_bytes,
    )


def _entry(client: DeltaClient, table_id: str, location: str) -> TableEntry | None:
    """The catalog's entry of the table; None if it was never registered."""
    try:
        entry = client.registry.load_table_by_id(table_id)
    except TableNotFoundError:
        dropped = [table for table in client.registry.inactive_tables() if table.table_id == table_id]
        if dropped:
            raise TableAlreadyExistsError(
                f"{location} was not adopted: it is the table {dropped[0].identifier} of this catalog, which is "
                f"{dropped[0].state}. Nothing was changed. Restore it with undrop."
            ) from None
        return None
    if entry.location != location:
        raise RecoveryError(
            f"{location} was not adopted: table {table_id} is {entry.identifier} of this catalog, at {entry.location}. Nothing was "
            "changed. If the table was moved, run `cm-delta relocate`; if this is a copy, clone the table instead."
        )
    return entry


def _is_interrupted(client: DeltaClient, table: PathTable, version: int) -> bool:
    """Whether the newest commit is the one by which this catalog adopted the table."""
    info = commit_json.decode_commit_info(table.store.read(published_source(table.location, version).location))
    tags = {} if info is None else info.tags or {}
    return tags.get(ADOPTED_BY_TAG) == client.registry.identity().catalog_id


class _Unused:
    """The committer of a transaction that is committed by creating its file."""

    def commit(self, transaction: Transaction) -> typing.NoReturn:
        raise AssertionError("not reached")


def _commit(client: DeltaClient, draft: _Draft, snapshot: Snapshot, context: CommitContext) -> bool:
    """Create the commit that makes the table catalog-managed. Returns False if another writer has made that version."""
    assert draft.protocol is not None and draft.metadata is not None
    tags = {**context.tags, ADOPTED_BY_TAG: client.registry.identity().catalog_id}
    transaction = Transaction(
        snapshot=snapshot,
        committer=_Unused(),
        operation=OPERATION,
        parameters={"name": draft.plan.name},
        context=replace(context, tags=tags),
    )
    transaction.set_protocol(draft.protocol)
    transaction.set_metadata(draft.metadata)
    store = client.stores.store_for(snapshot.location)
    rules = ProposalRules(
        mode=CommitMode.PUT_IF_ABSENT, now_ms=client.now_ms(), published_version=None, copied_content_bytes=0
    )
    prepared = prepare_commit(transaction, snapshot, store=store, rules=rules)
    last: StorageError | None = None
    for _ in attempts(client.settings, client.settings.max_resolve_attempts):
        try:
            created = create_commit(store, location=snapshot.location, proposal=prepared.proposal, data=prepared.data)
        except StoreNotSupportedError:
            raise
        except StorageError as error:
            if last is None and isinstance(error, WriteRefusedError):
                raise
            last = error
            continue
        return created is not None
    raise CommitStateUnknownError(
        f"Storage did not answer whether version {prepared.version} of {snapshot.location} was created ({last}). Either the table "
        "is as it was, or it is catalog-managed and not registered. Once storage answers again, adopt it again.",
        txn_id=transaction.txn_id,
        version=prepared.version,
    ) from last


def _register(client: DeltaClient, plan: AdoptPlan, name: TableIdentifier) -> TableEntry:
    """Register the table with the commit in its log that adopted it. Repeating it is safe."""
    store, version = client.stores.store_for(plan.location), plan.adopted_version
    proposal = found_proposal(version, store.read(published_source(plan.location, version).location))
    assert proposal.metadata is not None and proposal.protocol is not None
    definition = TableDefinition(
        metadata=proposal.metadata,
        protocol=proposal.protocol,
        version=version,
        in_commit_timestamp=proposal.summary.in_commit_timestamp,
    )
    table = AdoptedTable(
        table_id=plan.table_id,
        identifier=name,
        location=plan.location,
        state=AdoptedState.ACTIVE,
        history=CommitHistory(proposals=(proposal,), published_version=version, definition=definition),
        is_external=True,
    )
    last: CatalogUnavailableError | None = None
    for _ in attempts_without_jitter(client.settings, client.settings.max_resolve_attempts):
        try:
            entry = client.recovery.adopt_table(table)
        except CatalogUnavailableError as error:
            last = error
            continue
        except TableAlreadyExistsError as error:
            raise TableAlreadyExistsError(
                f"{error} {plan.location} is catalog-managed now and has no name. Adopt it again under another name."
            ) from error
        assert entry is not None, "an active table has an entry"
        write_table_marker(
            store,
            plan.location,
            table_id=plan.table_id,
            identifier=name,
            catalog_id=client.registry.identity().catalog_id,
            state=MarkedState.ACTIVE,
        )
        return entry
    raise CommitStateUnknownError(
        f"The catalog did not answer whether {name} was registered ({last}). The table at {plan.location} is catalog-managed. Once "
        "the catalog answers again, adopt it again.",
        version=version,
    ) from last
