"""CREATE TABLE ... CLONE: a new table with the state of a version of another table (protocol heading "Add File and Remove File").

A shallow clone names the data files of its source; no data file is read or written. The catalog records the reference before the
source is read, so that VACUUM and purge of the source keep what the clone needs. A deep clone has copies of the files. Until the
clone is registered, the maintenance lease of the source is held.
"""

import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum

import pyarrow as pa

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.tables import StagingTable, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.creation import CreateTransaction
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, InvalidArgumentError, ObjectNotFoundError
from cm_delta_dagster.operations.maintenance.clone_files import leases_with_sources
from cm_delta_dagster.operations.recovery.table_places import record_sources
from cm_delta_dagster.operations.tables.copy_files import copy_files, plan_copies
from cm_delta_dagster.operations.tables.missing_files import missing_files
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.file_columns import table_to_new_adds
from cm_delta_dagster.protocol.features.property_names import canonical_properties
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.features.table_properties import check_user_properties, required_properties
from cm_delta_dagster.protocol.log.cloning import cloned_metadata, cloned_protocol, shallow_files

_log = logging.getLogger(__name__)

_SPARK_PATH = re.compile(r"delta\.`(.+)`", re.IGNORECASE)
_SHOWN = 5
_UNPROTECTED = (
    "The clone reads the files of the table at {location}, which this catalog cannot protect: VACUUM of that table by another "
    "program deletes files that the clone needs. Make a deep clone to be independent of it."
)


class CloneMode(StrEnum):
    """What a clone does with the data files of its source."""

    SHALLOW = "shallow"
    """The clone names them."""
    DEEP = "deep"
    """The clone has copies of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneRequest:
    """What to clone.

    Attributes:
        version, timestamp_ms: the version of the source, or the time of it in epoch milliseconds; by default the latest version.
        properties: table properties in addition to those of the source, or in their place.
    """

    mode: CloneMode = CloneMode.SHALLOW
    version: int | None = None
    timestamp_ms: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", canonical_properties(self.properties))


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneResult:
    """A clone that was created.

    Attributes:
        name: ``catalog.schema.table`` of the clone.
        source: name or location of the source.
        source_version: the version of the source that the clone has.
        num_files, num_bytes: data files of the clone.
        num_copied_files, copied_bytes: copies, with those of files with deletion vectors; 0 for a shallow clone.
        warning: what the catalog cannot protect the clone from; None if there is nothing.
    """

    name: str
    table_id: str
    location: str
    mode: CloneMode
    source: str
    source_version: int
    num_files: int
    num_bytes: int
    num_copied_files: int = 0
    copied_bytes: int = 0
    warning: str | None = None


def open_source(client: DeltaClient, source: TableIdentifier | str) -> ReadableTable:
    """The table to clone: a name of the catalog, or the location of a table of another writer.

    Args:
        source: ``catalog.schema.table``; a URI or a path, which contain a slash; or a path as Spark writes it, "delta.`<path>`".

    Raises:
        TableNotFoundError: the source does not exist.
        CatalogManagedAccessError: the source belongs to another catalog.
    """
    quoted = _SPARK_PATH.fullmatch(source) if isinstance(source, str) else None
    location = quoted[1] if quoted is not None else source
    if not isinstance(location, str) or "/" not in location:
        return client.table(source)
    table = open_path_table(client.stores, location if ":/" in location else os.path.abspath(location))
    table.check_readable_by_path()
    return table


def clone(
    client: DeltaClient,
    source: ReadableTable,
    *,
    identifier: TableIdentifier | str,
    request: CloneRequest,
    context: CommitProperties = NO_PROPERTIES,
) -> CloneResult:
    """Create a table with the rows, columns and properties of a version of ``source``.

    Args:
        source: a table of the catalog of ``client``, or of another writer.

    Raises:
        TableAlreadyExistsError: another table has the name.
        InvalidArgumentError: the clone would have the name of its source, or a property is invalid or does not fit the files.
        VersionNotFoundError: the source has no such version.
        UnsupportedFeatureError: the source uses features that this client cannot write.
        MaintenanceInProgressError: a maintenance run holds the lease of the source.
        ObjectNotFoundError: storage does not hold all files of the version.
        CommitStateUnknownError: the catalog did not answer the registration; it is unknown whether the table exists.
    """
    name = TableIdentifier.of(identifier)
    if name == source.identifier:
        raise InvalidArgumentError(
            f"{name} cannot be cloned onto itself. Give another name; to go back to a version, restore it."
        )
    check_user_properties(request.properties)
    client.warehouse.ensure_marker()
    with leases_of(source) as check:
        CloneDraft.of(client, source, name, request)  # Refuses before the name is reserved.
        shallow_of = source.table_id if isinstance(source, Table) and request.mode is CloneMode.SHALLOW else None
        staging = client.registry.create_staging_table(name, clone_of=shallow_of)
        try:
            result = _create(client, source, CloneDraft.of(client, source, name, request), staging, context, check)
        except BaseException:
            _discard(client, staging)
            raise
    if result.warning is not None:
        _log.warning("%s: %s", name, result.warning)
    return result


@contextmanager
def leases_of(*tables: ReadableTable) -> Iterator[Callable[[], None]]:
    """Hold the leases of those that are tables of the catalog. Yields a function that raises an error if one was lost."""
    managed = [table for table in tables if isinstance(table, Table)]
    with leases_with_sources(*managed, kind=MaintenanceKind.DATA_REORGANIZATION) as leases:
        yield leases.check


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClonedFiles:
    """The files of a clone as add actions (columns of ``ADD_SCHEMA``), and how much was copied for them."""

    adds: pa.Table
    num_copied: int = 0
    copied_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneDraft:
    """The version to clone, and the metadata and protocol of the clone."""

    name: TableIdentifier
    request: CloneRequest
    snapshot: Snapshot
    metadata: Metadata
    protocol: Protocol

    @classmethod
    def of(
        cls, client: DeltaClient, source: ReadableTable, name: TableIdentifier, request: CloneRequest
    ) -> "CloneDraft":
        """Load the version, and check that this client can write a table like it."""
        snapshot = source.snapshot(version=request.version, timestamp_ms=request.timestamp_ms)
        check_writable(snapshot.protocol, snapshot.identifier)
        metadata = cloned_metadata(
            snapshot.metadata, request.properties, metadata_id=str(uuid.uuid4()), created_ms=client.now_ms()
        )
        protocol = cloned_protocol(snapshot.protocol, metadata, request.properties)
        check_writable(protocol, str(name))
        return cls(name=name, request=request, snapshot=snapshot, metadata=metadata, protocol=protocol)

    @property
    def is_deep(self) -> bool:
        return self.request.mode is CloneMode.DEEP

    @property
    def parameters(self) -> dict[str, str]:
        """The operation parameters of the commit."""
        return {"source": self.snapshot.identifier, "sourceVersion": str(self.snapshot.version)}

    def files(self, client: DeltaClient, *, target: str) -> ClonedFiles:
        """The files of the clone at the location ``target``; a deep clone copies them.

        Raises:
            ObjectNotFoundError: storage does not hold all files of the version.
            StorageError: a copy failed.
        """
        snapshot = self.snapshot
        if not self.is_deep:
            _refuse_missing(client, self)
            return ClonedFiles(adds=shallow_files(snapshot.files, location=snapshot.location))
        plan = plan_copies(snapshot.files, location=snapshot.location, target=target)
        copied = copy_files(client.stores, plan.copies, what=snapshot.identifier)
        return ClonedFiles(adds=plan.adds, num_copied=len(plan.copies), copied_bytes=copied)

    def fill(self, transaction: Transaction, files: ClonedFiles) -> None:
        """Let the transaction add the files, and set its metrics."""
        snapshot, deep = self.snapshot, self.is_deep
        transaction.add_files(table_to_new_adds(files.adds))
        if deep:
            # A stream that wrote to the source can go on with the copy.
            for written in snapshot.transactions.values():
                transaction.set_transaction(written)
        transaction.metrics.update(
            sourceTableSize=str(snapshot.size_bytes),
            sourceNumOfFiles=str(snapshot.num_files),
            numRemovedFiles="0",
            numCopiedFiles=str(snapshot.num_files if deep else 0),
            removedFilesSize="0",
            copiedFilesSize=str(snapshot.size_bytes if deep else 0),
        )

    def result(self, source: ReadableTable, files: ClonedFiles, *, table_id: str, location: str) -> CloneResult:
        """The result of the clone that is now the table at ``location``."""
        snapshot = self.snapshot
        is_protected = self.is_deep or isinstance(source, Table)
        return CloneResult(
            name=str(self.name),
            table_id=table_id,
            location=location,
            mode=self.request.mode,
            source=snapshot.identifier,
            source_version=snapshot.version,
            num_files=snapshot.num_files,
            num_bytes=snapshot.size_bytes,
            num_copied_files=files.num_copied,
            copied_bytes=files.copied_bytes,
            warning=None if is_protected else _UNPROTECTED.format(location=snapshot.location),
        )


def _create(
    client: DeltaClient,
    source: ReadableTable,
    draft: CloneDraft,
    staging: StagingTable,
    context: CommitProperties,
    check: Callable[[], None],
) -> CloneResult:
    files = draft.files(client, target=staging.location)
    if not draft.is_deep and not isinstance(source, Table):
        # A table of a path, such as an export, may name files of tables of the catalog.
        record_sources(client, staging.table_id, staging.location, (files.adds,))
    configuration = {**draft.metadata.configuration, **required_properties(staging.table_id)}
    creation = CreateTransaction(
        services=client,
        identifier=draft.name,
        staging=staging,
        store=client.stores.store_for(staging.location),
        metadata=replace(draft.metadata, configuration=configuration),
        protocol=draft.protocol,
        parameters=draft.parameters,
        domains=draft.snapshot.domains,
    )
    transaction = creation.start_clone(context)
    draft.fill(transaction, files)
    check()
    transaction.commit()
    return draft.result(source, files, table_id=staging.table_id, location=staging.location)


def _refuse_missing(client: DeltaClient, draft: CloneDraft) -> None:
    """Refuse an older version of which VACUUM has deleted files. Those of the latest version are never deleted."""
    snapshot = draft.snapshot
    if draft.request.version is None and draft.request.timestamp_ms is None:
        return
    lost = sorted(missing_files(client.stores, snapshot.files, location=snapshot.location))
    if lost:
        shown = ", ".join(lost[:_SHOWN]) + (", ..." if len(lost) > _SHOWN else "")
        raise ObjectNotFoundError(
            f"Version {snapshot.version} of {snapshot.identifier} cannot be cloned: storage no longer holds {len(lost)} of its "
            f"files ({shown}); VACUUM has deleted them, or they were lost. Nothing was created. Clone a later version."
        )


def _discard(client: DeltaClient, staging: StagingTable) -> None:
    """Delete the files of a clone that failed, and its reservation with the references to the source.

    The catalog refuses the purge of a table that was registered. If it does not answer, or this client fails before, the purge of
    abandoned creations does this later.
    """
    try:
        client.registry.begin_purge(staging.table_id, min_age_ms=0)
        store = client.stores.store_for(staging.location)
        for status in list(store.list_recursive(staging.location)):
            store.delete(status.location)
        store.remove_empty_directories(staging.location)
        client.registry.finish_purge(staging.table_id)
    except (CmDeltaError, OSError) as error:
        _log.info("The failed clone at %s was not removed: %s", staging.location, error)
