"""What an adoption finds at a location, and the checks before it. Changes nothing."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.commit_reader import CommitReader
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.snapshots.log_reader import load_state, read_checksum
from cm_delta_dagster.client.snapshots.path_table import PathTable, open_path_table
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.errors import (
    CatalogManagedAccessError,
    CorruptLogError,
    ObjectNotFoundError,
    RecoveryError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.onboarding.parquet_folder import (
    NO_OPTIONS,
    FolderOptions,
    ParquetFolder,
    has_parquet_files,
    read_folder,
)
from cm_delta_dagster.operations.plans import Plan
from cm_delta_dagster.operations.recovery.table_places import source_locations
from cm_delta_dagster.operations.tables.external_location import (
    overlapping_tables,
    refuse_other_warehouse,
    refuse_part_of_table,
)
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.features.protocol_evolution import check_metadata_supported, with_features
from cm_delta_dagster.protocol.features.table_features import (
    CATALOG_MANAGED,
    check_writable,
    reader_features,
    writer_features,
)
from cm_delta_dagster.protocol.features.table_properties import TABLE_ID_KEY, TableProperties, required_properties
from cm_delta_dagster.protocol.log import log_files, version_checksum
from cm_delta_dagster.protocol.log.action_reconciliation import TableState
from cm_delta_dagster.remedies import RecoverWarehouse, RelocateTables

ADOPTED_BY_TAG = "cm_delta/adopted_by"
"""Tag of the commit that adopts a table: the id of the catalog."""

_IDS_IN_A_CATALOG = (TABLE_ID_KEY, "ucTableId")
"""Properties with the id that a table has in the catalog that manages it; the second is an older name."""
_COORDINATOR_PREFIX = "delta.coordinatedCommits."
"""Begins the properties that name a commit coordinator."""


class AdoptState(StrEnum):
    """What an adoption finds at the location."""

    PATH_TABLE = "path_table"
    """A Delta table that no catalog manages."""
    UNFINISHED = "unfinished"
    """A table whose adoption by this catalog was interrupted after its commit; it is not registered."""
    PARQUET_FOLDER = "parquet_folder"
    """Parquet files without a Delta log."""
    ADOPTED = "adopted"
    """A table that this catalog manages under this name; there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptPlan(Plan[Any]):
    """What :func:`adopt` would do with the table at a location.

    Attributes:
        name: ``catalog.schema.table`` that the table gets.
        version: the latest version of the table; -1 for a folder of Parquet files.
        num_files, num_bytes: live data files. They stay as they are.
        added_features: what the commit adds to the protocol.
        properties: what the commit sets; the enablement properties of in-commit timestamps come with them.

    Its ``apply`` returns the table, as the class of the entry point.
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
        return self.version + (self.state in (AdoptState.PATH_TABLE, AdoptState.PARQUET_FOLDER))


def plan_adopt(
    client: DeltaClient,
    *,
    location: str,
    identifier: TableIdentifier | str,
    folder: FolderOptions = NO_OPTIONS,
) -> AdoptPlan:
    """Check whether a table can be adopted; changes nothing.

    Args:
        location: directory, or URI with its scheme; a relative path starts at the working directory.
        folder: of a folder of Parquet files without a Delta log, whose footers are all read.

    Raises:
        TableNotFoundError: there is neither a Delta table nor a Parquet file at the location.
        InvalidArgumentError: the location is below another Delta table.
        InvalidArgumentError, SchemaMismatchError, InvalidDataError: the Parquet files cannot be one table; names file and column.
        PermissionDeniedError: the caller may not adopt a table under the name.
        TableAlreadyExistsError: another table has the name, or the catalog has the table under another name.
        CatalogManagedAccessError: another catalog manages the table.
        RecoveryError: the location overlaps that of a table of the catalog.
        WarehouseMismatchError: the location is in the warehouse of another catalog.
        UnsupportedFeatureError: the table needs a feature that this client cannot read or write.
        IllegalCommitError: the table uses a feature that its protocol does not list.
        CorruptLogError: the latest version cannot be read as a whole, or contradicts its checksum.
    """
    return draft_adoption(client, location, TableIdentifier.of(identifier), folder).plan


def explain(plan: AdoptPlan) -> Iterator[str]:
    """The lines of text that show a plan to a user."""
    if plan.state is AdoptState.ADOPTED:
        yield f"{plan.location} is the table {plan.name} of this catalog; there is nothing to do."
        return
    if plan.state is AdoptState.UNFINISHED:
        yield f"{plan.location}: the adoption was interrupted after version {plan.version}; it would be registered as {plan.name}."
        return
    if plan.state is AdoptState.PARQUET_FOLDER:
        yield (
            f"{plan.location} would become {plan.name}: version 0 names {plan.num_files} Parquet files ({plan.num_bytes} bytes), "
            "which stay as they are."
        )
        return
    yield (
        f"{plan.location} would become {plan.name}: version {plan.adopted_version} adds the features "
        f"{', '.join(plan.added_features)}. {plan.num_files} data files stay as they are."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptDraft:
    """A plan; for a table that no catalog manages, also its snapshot, and protocol and metadata of the commit.

    ``files`` is what a folder of Parquet files has, ``sources`` where a Delta table has files that lie elsewhere.
    """

    plan: AdoptPlan
    snapshot: Snapshot | None = None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: ParquetFolder | None = None
    sources: frozenset[str] = frozenset()


def draft_adoption(
    client: DeltaClient,
    location: str,
    name: TableIdentifier,
    folder: FolderOptions,
    *,
    planned: AdoptPlan | None = None,
) -> AdoptDraft:
    """Check what is at the location, and prepare the commit.

    Args:
        planned: a plan that was made before. A table that it brings under the catalog gets the id of the plan.

    Raises:
        RecoveryError: the location does not have what it had when the plan was made; nothing was changed.
        CmDeltaError: as :func:`plan_adopt`.
    """
    table_id = str(uuid.uuid4()) if planned is None else planned.table_id
    draft = _drafted(client, location, name, folder, table_id)
    if planned is None or draft.plan == planned:
        return draft
    is_begun = draft.plan.state in (AdoptState.UNFINISHED, AdoptState.ADOPTED) and draft.plan.table_id == table_id
    if not is_begun:
        raise RecoveryError(
            f"{planned.location} was not adopted: it has changed since the plan was made. Nothing was changed. Stop its writers, "
            "and make a new plan."
        )
    return draft


def _drafted(
    client: DeltaClient, location: str, name: TableIdentifier, folder: FolderOptions, table_id: str
) -> AdoptDraft:
    at = absolute_location(location).rstrip("/")
    client.recovery.check_adoption(name, location=at)
    refuse_other_warehouse(client, at, not_done="Nothing was adopted")
    table = open_path_table(client.stores, at)
    try:
        snapshot = table.snapshot()
    except CatalogManagedAccessError as error:
        return _managed_draft(client, table, name, error)
    except TableNotFoundError as error:
        return _folder_draft(client, at, name, folder, error, table_id=table_id)
    _refuse_taken(client, name, at)
    refuse_part_of_table(table.store, at, not_done="Nothing was adopted")
    folder.refuse_for_delta_table(at)
    _refuse_managed_elsewhere(snapshot)
    check_writable(snapshot.protocol, at)
    _check_newest(table, snapshot)
    protocol = with_features(snapshot.protocol, (CATALOG_MANAGED,))
    properties = required_properties(table_id)
    metadata = replace(snapshot.metadata, configuration={**snapshot.metadata.configuration, **properties})
    check_writable(protocol, at)
    check_metadata_supported(protocol, metadata)
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
    return AdoptDraft(
        plan=plan,
        snapshot=replace(snapshot, identifier=str(name)),
        protocol=protocol,
        metadata=metadata,
        sources=_sources(client, snapshot.state),
    )


def _folder_draft(
    client: DeltaClient,
    location: str,
    name: TableIdentifier,
    options: FolderOptions,
    absent: TableNotFoundError,
    *,
    table_id: str,
) -> AdoptDraft:
    """The draft for Parquet files without a log. Raises TableNotFoundError if there are none."""
    store = client.stores.store_for(location)
    if store.list_from(log_files.log_directory(location)):
        raise absent
    if not has_parquet_files(store, location):
        raise TableNotFoundError(
            f"{location} was not adopted: it is neither a Delta table, whose _delta_log has a commit, nor a directory with Parquet "
            "files (*.parquet). Nothing was changed. Check the path."
        ) from absent
    _refuse_taken(client, name, location)
    refuse_part_of_table(store, location, not_done="Nothing was adopted")
    files = read_folder(store, location, name, options, now_ms=client.now_ms())
    plan = AdoptPlan(
        name=str(name),
        location=location,
        state=AdoptState.PARQUET_FOLDER,
        table_id=table_id,
        version=-1,
        num_files=files.num_files,
        num_bytes=files.num_bytes,
        added_features=tuple(sorted(writer_features(files.definition.protocol))),
    )
    return AdoptDraft(plan=plan, files=files)


def _refuse_taken(client: DeltaClient, name: TableIdentifier, location: str) -> None:
    try:
        taken = client.registry.load_table(name)
    except TableNotFoundError:
        taken = None
    if taken is not None:
        raise TableAlreadyExistsError(
            f"{location} was not adopted: {name} exists already, at {taken.location}. Nothing was changed. Choose another name."
        )
    registered = client.registry.registered_path(name)
    if registered not in (None, location):
        raise TableAlreadyExistsError(
            f"{location} was not adopted: {name} is registered for the path {registered}. Nothing was changed. Choose another "
            "name, or unregister it first."
        )
    others = overlapping_tables(client, location)
    if others:
        state = "" if others[0].state is None else f", {others[0].state}"
        raise RecoveryError(
            f"{location} was not adopted: it overlaps the location {others[0].location} of {others[0].identifier}{state} (table id "
            f"{others[0].table_id}). Nothing was changed. Two tables cannot share files."
        )


def _refuse_managed_elsewhere(snapshot: Snapshot) -> None:
    """Refuse a table whose properties name the catalog or the commit coordinator that manages it."""
    for key, value in snapshot.metadata.configuration.items():
        if key in _IDS_IN_A_CATALOG or key.startswith(_COORDINATOR_PREFIX):
            raise CatalogManagedAccessError(
                f"{snapshot.location} was not adopted: its property {key} is {value!r}, so that another catalog manages the table "
                "or ratifies its commits. Nothing was changed. Release it there; if that is no longer so, remove the property with "
                "the engine that writes to the table now."
            )


def _check_newest(table: PathTable, snapshot: Snapshot) -> None:
    """Refuse a table whose newest commit is missing or damaged, or whose newest version contradicts its checksum."""
    source = published_source(snapshot.location, snapshot.version)
    try:
        data = table.store.read(source.location)
        commit = commit_json.decode_commit(data, version=snapshot.version)
    except ObjectNotFoundError as error:
        raise CorruptLogError(
            f"{snapshot.location} was not adopted: its log does not have the commit of its latest version {snapshot.version}. "
            "Nothing was changed. Restore the file, or write to the table once with the engine that it has now.",
            version=snapshot.version,
        ) from error
    if not data.strip():
        raise CorruptLogError(
            f"{snapshot.location} was not adopted: {source.location}, the commit of its latest version, is empty; its writer or "
            "its storage may have lost the content. Nothing was changed. Restore the file; if the table misses nothing, write "
            "to it once with the engine that it has now.",
            version=snapshot.version,
        )
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


def _sources(client: DeltaClient, state: TableState) -> frozenset[str]:
    return source_locations(client, state.files.location, (state.files.adds, state.files.removes))


def _managed_draft(
    client: DeltaClient, table: PathTable, name: TableIdentifier, refusal: CatalogManagedAccessError
) -> AdoptDraft:
    """The draft for a table whose protocol lists ``catalogManaged``: it must be one of this catalog."""
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
            f"(table id {table_id or 'unknown'}). Another catalog manages it. Nothing was changed. Release it there, unless "
            "that catalog is lost."
        ).with_remedy(RecoverWarehouse()) from refusal
    if entry is None:
        _refuse_taken(client, name, table.location)
    plan = AdoptPlan(
        name=str(name),
        location=table.location,
        state=AdoptState.UNFINISHED if entry is None else AdoptState.ADOPTED,
        table_id=table_id or "",
        version=version,
        num_files=state.files.num_files,
        num_bytes=state.files.size_bytes,
    )
    return AdoptDraft(plan=plan, sources=_sources(client, state))


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
            "changed. If this is a copy, clone the table instead."
        ).with_remedy(RelocateTables(moved_from=entry.location, moved_to=location))
    return entry


def _is_interrupted(client: DeltaClient, table: PathTable, version: int) -> bool:
    """Whether the newest commit is the one by which this catalog adopted the table."""
    info = commit_json.decode_commit_info(table.store.read(published_source(table.location, version).location))
    tags = {} if info is None else info.tags or {}
    return tags.get(ADOPTED_BY_TAG) == client.registry.identity().catalog_id
