"""Creation of tables: a staging table reserves id and location, the client writes version 0, and the table gets its name."""

from collections.abc import Mapping

from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.catalog.ratification import CommitSummary, InitialCommit
from cm_delta_dagster.catalog.tables import InactiveState, InactiveTable, StagingTable, TableEntry, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.put_if_absent import proposal_of
from cm_delta_dagster.client.snapshots.commit_sources import published_source
from cm_delta_dagster.client.warehouse import write_table_marker
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitStateUnknownError,
    CorruptLogError,
    IllegalCommitError,
    InvalidArgumentError,
    NamespaceNotFoundError,
    ObjectNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.features.table_properties import TABLE_ID_KEY
from cm_delta_dagster.protocol.log.markers import MarkedState
from cm_delta_dagster.server.commit_files import MAX_COMMIT_BYTES
from cm_delta_dagster.server.request_errors import NoSuchCatalogError, NotServedError
from cm_delta_dagster.server.table_access import TableAccess
from cm_delta_dagster.server.unity.contract import check_contract
from cm_delta_dagster.server.unity.empty_tables import create_empty_at
from cm_delta_dagster.server.unity.stated_tables import StatedTable, is_same_location
from cm_delta_dagster.server.unity.tables import FEATURE_PREFIX, protocol_properties
from cm_delta_dagster.server.unity.updates import same_columns, same_protocol


def create_staging_table(access: TableAccess, client: DeltaClient, identifier: TableIdentifier) -> StagingTable:
    """Reserve id and location of a new table.

    Raises:
        NamespaceNotFoundError: there is no such schema.
        TableAlreadyExistsError: another table has the name.
        OperationRefusedError: the caller may not create tables there, or the warehouse is outside of the storage roots.
    """
    require_schema(client, f"{identifier.catalog}.{identifier.schema}")
    client.warehouse.ensure_marker()
    staging = client.registry.create_staging_table(identifier)
    access.storage.store_for(staging.location)
    return staging


def require_schema(client: DeltaClient, name: str) -> Namespace:
    """The schema of that name. Raises NamespaceNotFoundError without one, NoSuchCatalogError without its catalog."""
    catalog = require_catalog(client, name.partition(".")[0])
    schema = next((schema for schema in client.namespaces.list_schemas(catalog.name) if schema.name == name), None)
    if schema is None:
        raise NamespaceNotFoundError(f"Schema not found: {name}")
    return schema


def require_catalog(client: DeltaClient, name: str) -> Namespace:
    """The catalog of that name. Raises NoSuchCatalogError without one."""
    catalog = next((catalog for catalog in client.namespaces.list_catalogs() if catalog.name == name), None)
    if catalog is None:
        raise NoSuchCatalogError(f"Catalog not found: {name}")
    return catalog


def create_table(
    access: TableAccess, client: DeltaClient, identifier: TableIdentifier, stated: StatedTable
) -> TableEntry:
    """Give a staging table its name. Version 0 in its log is the truth; what the request repeats of it must agree.

    The server writes version 0 for a client that leaves it to the server.

    A property that only the request has is not stored: delta-kernel-rs states ``delta.checkpointPolicy`` there, and not in the log.

    Raises:
        TableNotFoundError: no staging table is at the location.
        TableAlreadyExistsError: another table has the name.
        OperationRefusedError: the caller may not create tables there.
        InvalidArgumentError: the contract is not kept, or version 0 is missing or another one than the request describes.
    """
    if stated.table_type != "MANAGED":
        raise NotServedError(
            f"{identifier} was not created: the catalog has managed tables only. An existing table is adopted by cm-delta."
        )
    if stated.has_uniform:
        raise NotServedError(
            f"{identifier} was not created: metadata of Iceberg (uniform) is not kept by this catalog."
        )
    staging = _staging_table(client, identifier, stated)
    if isinstance(staging, TableEntry):
        return staging
    # Requires what the creation does; no file is read for others.
    client.recovery.check_adoption(identifier, location=staging.location)
    if not stated.has_log:
        return create_empty_at(access, client, identifier, staging, stated)
    summary, initial = _initial_commit(identifier, _version_0(access, staging.location))
    _compare(stated, initial, timestamp_ms=summary.in_commit_timestamp)
    properties = {**stated.properties, **initial.metadata.configuration}
    check_contract(stated.contract, staging.table_id, protocol=initial.protocol, properties=properties)
    try:
        entry = client.registry.register_table(staging.table_id, identifier, summary=summary, initial=initial)
    except CatalogUnavailableError as error:
        raise CommitStateUnknownError(
            f"The database did not answer whether {identifier} was created. Load the table: it exists whole or not at all."
        ) from error
    write_table_marker(
        access.storage.store_for(entry.location),
        entry.location,
        table_id=entry.table_id,
        identifier=entry.identifier,
        catalog_id=client.registry.identity().catalog_id,
        state=MarkedState.ACTIVE,
    )
    return entry


def _staging_table(client: DeltaClient, identifier: TableIdentifier, stated: StatedTable) -> InactiveTable | TableEntry:
    """The staging table that the request names by its location and its table id; the entry if the request is a repeated one."""
    table_id = stated.properties.get(TABLE_ID_KEY)
    if identifier in client.registry.list_tables(f"{identifier.catalog}.{identifier.schema}"):
        entry = client.registry.load_table(identifier)
        if (entry.table_id == table_id or not stated.has_log) and is_same_location(stated.location, entry.location):
            return entry
        raise TableAlreadyExistsError(f"Table already exists: {identifier}")
    for table in client.registry.inactive_tables(f"{identifier.catalog}.{identifier.schema}"):
        if table.state is InactiveState.STAGING and is_same_location(stated.location, table.location):
            if stated.has_log and table_id != table.table_id:
                raise InvalidArgumentError(
                    f"{identifier} was not created: the property {TABLE_ID_KEY} must be {table.table_id!r}, the id of the staging "
                    "table at its location."
                )
            return table
    raise TableNotFoundError(
        f"{identifier} was not created: no staging table of its schema is at {stated.location}. Request a staging table first."
    )


def _version_0(access: TableAccess, location: str) -> bytes:
    place = published_source(location, 0).location
    store = access.storage.store_for(place, below=location)
    try:
        size = store.stat(place).size
        if size <= MAX_COMMIT_BYTES:
            return store.read(place)
    except ObjectNotFoundError as error:
        raise InvalidArgumentError(
            f"The table was not created: there is no {place}. Write version 0 before the table is created."
        ) from error
    raise InvalidArgumentError(
        f"The table was not created: version 0 has {size} bytes, and the server reads at most {MAX_COMMIT_BYTES}."
    )


def _initial_commit(identifier: TableIdentifier, data: bytes) -> tuple[CommitSummary, InitialCommit]:
    """Version 0 as it is registered. Raises IllegalCommitError if it is not one."""
    try:
        commit = commit_json.decode_commit(data, version=0)
        proposal = proposal_of(commit, data)
    except CorruptLogError as error:
        raise IllegalCommitError(f"{identifier} was not created: version 0 is not valid. {error.message}") from error
    if commit.metadata is None or commit.protocol is None:
        raise IllegalCommitError(f"{identifier} was not created: version 0 has no metaData, or no protocol.")
    initial = InitialCommit(
        file_size=len(data),
        file_modification_time=proposal.summary.in_commit_timestamp,
        metadata=commit.metadata,
        protocol=commit.protocol,
        sha256=proposal.sha256,
        content_to_check=data,
    )
    return proposal.summary, initial


def _compare(stated: StatedTable, initial: InitialCommit, *, timestamp_ms: int) -> None:
    """Refuse a request that describes another version 0. Raises InvalidArgumentError."""
    metadata, protocol = initial.metadata, initial.protocol
    other = _other_property(stated.properties, initial, timestamp_ms=timestamp_ms)
    differences = {
        "columns": stated.columns is not None and not same_columns(stated.columns, metadata.schema_string),
        "partition columns": stated.partition_columns not in (None, metadata.partition_columns),
        "protocol": stated.protocol is not None and not same_protocol(stated.protocol, protocol),
        "comment": stated.comment is not None and stated.comment != (metadata.description or ""),
        "timestamp": stated.last_commit_timestamp_ms not in (None, timestamp_ms),
        f"property {other}": other is not None,
    }
    wrong = [name for name, differs in differences.items() if differs]
    if wrong:
        raise InvalidArgumentError(
            f"The table was not created: the {wrong[0]} of the request is not that of version 0 in its log. State what the log has."
        )


def _other_property(stated: Mapping[str, str], initial: InitialCommit, *, timestamp_ms: int) -> str | None:
    """A property that version 0 has with another value, or that describes another protocol; None if there is none."""
    described = {
        **protocol_properties(initial.protocol),
        "delta.lastUpdateVersion": "0",
        "delta.lastCommitTimestamp": str(timestamp_ms),
        **initial.metadata.configuration,
    }
    for name, value in stated.items():
        if described.get(name, None if name.startswith(FEATURE_PREFIX) else value) != value:
            return name
    return None
