"""CREATE TABLE, empty or with its first rows (protocol heading "Creating and Dropping Catalog-managed Tables").

Creation has three phases: the catalog reserves a table id and a location, the client writes version 0 there, the catalog
registers the name. The first rows are part of version 0, so that no reader sees the table without them. A write operation writes
them to the reserved table.
"""

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cm_delta_dagster.catalog.tables import StagingTable, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.creation import CreateTransaction
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
)
from cm_delta_dagster.operations.arguments import partitioning_text
from cm_delta_dagster.operations.tables.external_location import check_location
from cm_delta_dagster.operations.tables.purge import purge_abandoned
from cm_delta_dagster.operations.writing.column_names import unique_name
from cm_delta_dagster.protocol.actions.actions import DomainMetadata, Metadata
from cm_delta_dagster.protocol.features.clustering import (
    DOMAIN,
    clustering_domain,
    is_clustered,
    physical_path,
)
from cm_delta_dagster.protocol.features.clustering import FEATURE as CLUSTERING
from cm_delta_dagster.protocol.features.column_specs import check_column_specs, check_partition_columns
from cm_delta_dagster.protocol.features.enablement import TableDefinition, new_definition
from cm_delta_dagster.protocol.features.iceberg_compat import NEEDED_AT_CREATION, active_versions
from cm_delta_dagster.protocol.features.property_names import canonical_properties
from cm_delta_dagster.protocol.features.protocol_evolution import catalog_managed_protocol, requested_features
from cm_delta_dagster.protocol.features.table_features import check_writable
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.features.table_properties import (
    TABLE_ID_KEY,
    TableProperties,
    check_user_properties,
    default_properties,
    stored_properties,
)
from cm_delta_dagster.protocol.schema.alterations import check_nested_not_null
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.evolution import SchemaMode, reconcile_schemas
from cm_delta_dagster.protocol.schema.types import (
    StructType,
    check_column_names,
    check_writable_types,
    schema_text,
    schema_to_json,
)
from cm_delta_dagster.protocol.schema.void_columns import check_void_places
from cm_delta_dagster.protocol.statistics.layout_columns import check_clustering_columns

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDesign:
    """The definition of a table to create.

    Attributes:
        partition_columns: top-level columns of ``schema``, in partition order; case is ignored.
        properties: table properties in addition to those that this package sets on every table.
        clustering_columns: up to four columns or fields of ``schema``, such as ``a`` or ``a.b``; case is ignored.
        location: an empty directory or URI outside of the warehouse; None for a location that the catalog chooses.
    """

    schema: StructType
    partition_columns: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    clustering_columns: Sequence[str] = ()
    location: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", canonical_properties(self.properties))


def create_empty(
    client: DeltaClient,
    *,
    identifier: TableIdentifier | str,
    design: TableDesign,
    context: CommitProperties = NO_PROPERTIES,
) -> Table:
    """Create an empty table of that design at version 0 and register its name.

    Raises:
        TableAlreadyExistsError: the name is taken; found before anything is written, or at the registration.
        InvalidArgumentError: the name, a partition or clustering column or a property is invalid.
        SchemaMismatchError: the schema has column names that cannot be stored.
        UnsupportedFeatureError: schema or properties need a table feature that this client does not support.
        CommitStateUnknownError: the catalog did not answer the registration; it is unknown whether the table exists.
        CatalogUnavailableError, StorageError: a phase before the registration failed; the table does not exist.
        WarehouseMismatchError: the warehouse belongs to another catalog; nothing was written.
    """
    with creation_of(client, identifier=identifier, design=design) as creation:
        creation.commit_empty(context)
    return creation.table()


def first_schema(offered: StructType) -> StructType:
    """Return the schema of a table created for rows of ``offered``.

    All columns become nullable: whether Spark can prove that a column holds no NULL changes from run to run.
    """
    return reconcile_schemas(StructType(()), offered, mode=SchemaMode.MERGE)


def check_partitioning(table: WriteTarget, partition_columns: Sequence[str]) -> None:
    """Raises SchemaMismatchError if the table has other partition columns."""
    snapshot = table.snapshot()
    requested = tuple(name.casefold() for name in partition_columns)
    existing = tuple(name.casefold() for name in snapshot.partition_columns)
    if requested != existing:
        raise SchemaMismatchError(
            f"{table.identifier} exists and is {partitioning_text(snapshot.partition_columns)}; the call says "
            f"{partitioning_text(partition_columns)}. Use its partitioning, or another table name. Its "
            f"columns:\n{schema_text(snapshot.schema)}"
        )


@contextmanager
def creation_of(
    client: DeltaClient, *, identifier: TableIdentifier | str, design: TableDesign
) -> Iterator[CreateTransaction]:
    """Reserve the name of a table, whose version 0 the block commits, empty or by a write such as ``append`` to the creation.

    Raises:
        InvalidArgumentError: the block committed nothing, so that no table was created.
        TableAlreadyExistsError: the name is taken; found before the block, or at the registration after it. All files written
            for this table were deleted.
        CmDeltaError: any error of :func:`create_empty` and of the block. The table does not exist, except perhaps after a
            CommitStateUnknownError.
    """
    creation = reserve(client, identifier=identifier, design=design)
    with completed(client, creation):
        yield creation


@contextmanager
def completed(client: DeltaClient, creation: CreateTransaction) -> Iterator[None]:
    """End a creation whose version 0 the block commits. Raises InvalidArgumentError if it committed nothing."""
    try:
        yield
    except BaseException:
        creation.abort()
        raise
    if creation.entry is None:
        raise InvalidArgumentError(
            f"{creation.identifier} was not created, because nothing was committed to it. Write to it."
        )
    _schedule_purge(client)


def _schedule_purge(client: DeltaClient) -> None:
    """Purge abandoned creations in the background: each creation removes the files of earlier ones that failed."""
    try:
        client.background.submit("The purge of abandoned creations", lambda: _purge(client))
    except RuntimeError:  # The client is being closed. The table has been created.
        _log.debug("No purge of abandoned creations", exc_info=True)


def _purge(client: DeltaClient) -> None:
    purged = purge_abandoned(client)
    if purged:
        locations = ", ".join(table.location for table in purged)
        _log.info("Purged %d abandoned creations: %s", len(purged), locations)


def new_table_definition(name: TableIdentifier, design: TableDesign, *, now_ms: int) -> TableDefinition:
    """Metadata, without the id of the table, and protocol of a new catalog-managed table of that design.

    Raises:
        InvalidArgumentError, SchemaMismatchError, UnsupportedFeatureError: as for :func:`create_empty`.
    """
    base = Metadata(id=str(uuid.uuid4()), schema_string="", partition_columns=(), configuration={}, created_time=now_ms)
    return definition_of(design, base=TableDefinition(protocol=catalog_managed_protocol(), metadata=base), name=name)


def reserve(client: DeltaClient, *, identifier: TableIdentifier | str, design: TableDesign) -> CreateTransaction:
    """Phase 1: check the design, then reserve the name. Raises as :func:`create_empty`."""

    def reserved(name: TableIdentifier) -> StagingTable:
        client.warehouse.ensure_marker()
        location = None if design.location is None else check_location(client, design.location)
        return client.registry.create_staging_table(name, location=location)

    return creation_at(client, identifier=TableIdentifier.of(identifier), design=design, reserved=reserved)


def creation_at(
    client: DeltaClient,
    *,
    identifier: TableIdentifier,
    design: TableDesign,
    reserved: Callable[[TableIdentifier], StagingTable],
) -> CreateTransaction:
    """The creation of a table at the id and location that ``reserved`` returns once the design is checked."""
    definition = new_table_definition(identifier, design, now_ms=client.now_ms())
    domains = _clustering(design, definition)
    if definition.properties.deleted_file_retention_ms == 0:
        _log.warning(
            "%s is created with delta.deletedFileRetentionDuration = %r: VACUUM will delete files that running readers and "
            "time travel still need, and files that running writers have not committed yet. Set it to longer than the "
            "longest query and write, e.g. 'interval 7 days'.",
            identifier,
            definition.metadata.configuration["delta.deletedFileRetentionDuration"],
        )
    staging = reserved(identifier)
    return CreateTransaction(
        services=client,
        identifier=identifier,
        staging=staging,
        store=client.stores.store_for(staging.location),
        metadata=definition.with_properties(**{TABLE_ID_KEY: staging.table_id}).metadata,
        protocol=definition.protocol,
        parameters=creation_parameters(definition.metadata, design),
        domains=domains,
    )


def definition_of(design: TableDesign, *, base: TableDefinition, name: TableIdentifier) -> TableDefinition:
    """Check ``design`` and return the protocol and the metadata of its table.

    Args:
        base: the protocol, the id and the properties to begin with; its schema and partition columns are replaced.
    """
    check_user_properties(design.properties)
    stated = {**_implied_properties(design.properties), **stored_properties(design.properties)}
    is_mapped = TableProperties(stated).column_mapping_mode != "none"
    check_column_names(design.schema, any_characters=is_mapped)
    check_writable_types(design.schema)
    check_void_places(design.schema)
    for item in design.schema.fields:
        check_nested_not_null(item, (item.name,))
    partition_columns = check_partition_columns(design.schema, design.partition_columns)
    check_column_specs(design.schema, partition_columns)
    draft = replace(
        base.metadata,
        schema_string=schema_to_json(design.schema),
        partition_columns=partition_columns,
        configuration={**base.metadata.configuration, **default_properties(), **stated},
        description=design.description,
    )
    definition = new_definition(
        replace(base, metadata=draft),
        new_name=unique_name,
        features=requested_features(design.properties) | ({CLUSTERING} if design.clustering_columns else frozenset()),
    )
    check_writable(definition.protocol, str(name))
    return definition


def _implied_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties that a new table gets because of others, unless the user sets them."""
    return dict(NEEDED_AT_CREATION) if active_versions(properties) else {}


def creation_parameters(metadata: Metadata, design: TableDesign) -> dict[str, str]:
    """``commitInfo.operationParameters`` of a creation."""
    parameters = {
        "isManaged": "true" if design.location is None else "false",
        "partitionBy": json.dumps(list(metadata.partition_columns)),
        "properties": json.dumps(dict(design.properties)),
    }
    if design.clustering_columns:
        parameters["clusterBy"] = json.dumps(list(design.clustering_columns))
    if design.description is not None:
        parameters["description"] = design.description
    return parameters


def _clustering(design: TableDesign, definition: TableDefinition) -> dict[str, DomainMetadata]:
    """Return the domain of the clustering columns."""
    if not is_clustered(definition.protocol):
        return {}
    columns = clustering_of(design, definition)
    return {DOMAIN: clustering_domain([physical_path(c, definition.schema, definition.mapping) for c in columns])}


def clustering_of(design: TableDesign, definition: TableDefinition) -> tuple[ColumnPath, ...]:
    """The clustering columns of ``design``. Raises InvalidArgumentError if the table cannot be clustered by them."""
    layout = TableLayout(
        location="",
        schema=definition.schema,
        partition_columns=definition.metadata.partition_columns,
        mapping=definition.mapping,
        properties=definition.properties,
    )
    return check_clustering_columns(layout, design.clustering_columns)
