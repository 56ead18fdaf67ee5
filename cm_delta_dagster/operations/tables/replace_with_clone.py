"""CREATE OR REPLACE TABLE ... CLONE: an empty table gets the columns, properties and rows of a version of another table.

The table keeps its name, its id, its location and its history. A table that has rows is refused, as delta-spark refuses it.
"""

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.creation import CLONE
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, TableAlreadyExistsError, TableNotFoundError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.recovery.table_places import record_sources
from cm_delta_dagster.operations.tables.clone import (
    ClonedFiles,
    CloneDraft,
    CloneRequest,
    CloneResult,
    clone,
    leases_of,
)
from cm_delta_dagster.operations.tables.replace import CreationMode
from cm_delta_dagster.operations.tables.write_attempts import created_meanwhile
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.clustering import clustering_domain, stored_clustering_columns
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.features.table_properties import check_user_properties
from cm_delta_dagster.protocol.log.restoration import restored_metadata, restored_protocol


def clone_or_replace(
    client: DeltaClient,
    source: ReadableTable,
    *,
    identifier: TableIdentifier | str,
    request: CloneRequest,
    mode: CreationMode = CreationMode.CREATE,
    context: CommitProperties = NO_PROPERTIES,
) -> CloneResult:
    """Create the table of that name as a clone of ``source``, or make the empty table of that name its clone.

    Raises:
        TableNotFoundError: ``mode`` is REPLACE and there is no such table.
        CmDeltaError: as :func:`~cm_delta_dagster.operations.tables.clone.clone` and :func:`replace_with_clone`.
    """
    if mode is CreationMode.CREATE:
        return clone(client, source, identifier=identifier, request=request, context=context)
    try:
        table = client.table(identifier)
    except TableNotFoundError:
        if mode is CreationMode.REPLACE:
            raise
        try:
            return clone(client, source, identifier=identifier, request=request, context=context)
        except TableAlreadyExistsError as refusal:
            table = created_meanwhile(client, identifier, refusal)
    return replace_with_clone(table, client=client, source=source, request=request, context=context)


@names_table
def replace_with_clone(
    table: Table,
    *,
    client: DeltaClient,
    source: ReadableTable,
    request: CloneRequest,
    context: CommitProperties = NO_PROPERTIES,
) -> CloneResult:
    """Make an empty table a clone of a version of ``source``, in one commit.

    Args:
        source: a table of the catalog of ``client``, or of another writer.

    Raises:
        InvalidArgumentError: the table has rows or is the source, or a property is invalid or does not fit the files.
        VersionNotFoundError: the source has no such version.
        UnsupportedFeatureError: the table or the source uses features that this client cannot write.
        MaintenanceInProgressError: a maintenance run holds the lease of one of the tables.
        ObjectNotFoundError: storage does not hold all files of the version.
        CommitConflictError: a concurrent commit changed the table; nothing was committed.
    """
    if table.location == source.location:
        raise InvalidArgumentError(
            f"{table.identifier} cannot be cloned onto itself. Give another name; to go back to a version, restore it."
        )
    check_user_properties(request.properties)
    with leases_of(table, source) as check:
        current = table.snapshot()
        check_writable(current.protocol, current.identifier)
        if current.num_files:
            raise InvalidArgumentError(
                f"{table.identifier} has rows, and only an empty table can become a clone. Nothing was changed. Delete its rows "
                "first with TRUNCATE TABLE, or give the clone another name."
            )
        draft = CloneDraft.of(client, source, table.identifier, request)
        files = draft.files(client, target=table.location)
        _record_sources(client, table, source, draft, files)
        check()
        _commit(table, current, draft, files, context)
    return draft.result(source, files, table_id=table.table_id, location=table.location)


def _record_sources(
    client: DeltaClient, table: Table, source: ReadableTable, draft: CloneDraft, files: ClonedFiles
) -> None:
    """Let the catalog know that the table may read files of the source, before the commit that names them."""
    if draft.is_deep:
        return
    if not isinstance(source, Table):
        record_sources(client, table.table_id, table.location, (files.adds,))
        return
    further = (table_source.location for table_source in client.registry.sources_of(source.table_id))
    client.recovery.record_sources(table.table_id, {source.location, *further})


def _commit(table: Table, current: Snapshot, draft: CloneDraft, files: ClonedFiles, context: CommitProperties) -> None:
    transaction = table.start_transaction(current, operation=CLONE, parameters=draft.parameters, context=context)
    transaction.read_whole_table()
    protocol = restored_protocol(current.protocol, draft.protocol)
    if protocol != current.protocol:
        transaction.set_protocol(protocol)
    transaction.set_metadata(restored_metadata(current.metadata, draft.metadata))
    clustering = stored_clustering_columns(draft.snapshot.domains)
    if clustering != stored_clustering_columns(current.domains):
        transaction.set_clustering(clustering_domain(clustering))
    transaction.used_row_ids = row_tracking.known_high_water_mark(draft.snapshot.domains)
    transaction.keeps_row_ids = True
    draft.fill(transaction, files)
    transaction.commit()
