"""CREATE TABLE, empty or with its first rows (protocol "Creating catalog-managed tables").

Three phases: the catalog reserves an id and a location, the client writes version 0 there, the catalog registers the
name. The first rows are part of version 0: nobody ever sees the table without them. Rows themselves are written by the
verb that is handed in, to a table that looks empty to it.
"""

import json
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.client.creation import CreateTransaction
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.tables.purge import purge_abandoned
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.partition_values import is_partition_type
from cm_delta_dagster.protocol.features.table_features import (
    catalog_managed_protocol,
    check_writable,
    requested_features,
    required_features,
)
from cm_delta_dagster.protocol.features.table_properties import (
    TableProperties,
    check_user_properties,
    default_properties,
    stored_properties,
)
from cm_delta_dagster.protocol.schema.evolution import SchemaMode, reconcile_schemas
from cm_delta_dagster.protocol.schema.types import (
    StructType,
    check_column_names,
    check_writable_types,
    data_type_text,
    schema_text,
    schema_to_json,
)
from cm_delta_dagster.protocol.schema.void_columns import check_void_places

_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDesign:
    """What a table is to be.

    Attributes:
        partition_columns: top-level columns of ``schema``, in partition order; case is ignored.
        properties: table properties besides those that every table of this package has.
    """

    schema: StructType
    partition_columns: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None


def create_table(
    client: DeltaClient,
    *,
    identifier: TableIdentifier | str,
    schema: StructType,
    partition_columns: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    description: str | None = None,
    context: CommitContext = NO_CONTEXT,
) -> Table:
    """Make an empty table at version 0 and give it its name.

    Args:
        partition_columns: top-level columns of ``schema``, in partition order; case is ignored.
        properties: table properties besides those that every table of this package has.

    Raises:
        TableAlreadyExistsError: the name is taken; found before anything is written, or at the registration.
        InvalidArgumentError: an unusable name, partition column or property.
        SchemaMismatchError: column names that cannot be stored.
        UnsupportedFeatureError: schema or properties need a feature that this client does not have.
        CommitStateUnknownError: the catalog did not answer the registration; the table exists whole or not at all.
        CatalogUnavailableError, StorageError: a phase before the registration failed; no table exists.
        WarehouseMismatchError: the warehouse belongs to another catalog; nothing was written.
    """
    design = TableDesign(
        schema=schema, partition_columns=partition_columns, properties=dict(properties or {}), description=description
    )

    def nothing(table: CreateTransaction) -> None:
        table.commit_empty(context)

    table, _ = _create(client, _name(identifier), design, nothing)
    return table


def create_table_as(
    client: DeltaClient,
    *,
    identifier: TableIdentifier | str,
    design: TableDesign,
    write: Callable[[WriteTarget], _Result],
) -> tuple[Table, _Result]:
    """Make a table whose version 0 holds what ``write`` writes, and give it its name.

    Args:
        write: calls one verb, such as ``append`` or ``merge``, on the table that it is given.

    Raises:
        TableAlreadyExistsError: the name is taken; found before anything is written, or at the registration, and then
            every file written for this table was deleted.
        CmDeltaError: whatever :func:`create_table` and ``write`` raise; unless it is a CommitStateUnknownError, no table
            exists.
    """
    return _create(client, _name(identifier), design, write)


def write_or_create(
    client: DeltaClient,
    *,
    identifier: TableIdentifier | str,
    design: Callable[[], TableDesign],
    write: Callable[[WriteTarget], _Result],
) -> tuple[Table, _Result]:
    """Write to the table of that name; where there is none, as :func:`create_table_as`.

    Of several callers at once one creates the table and the others write to it.

    Args:
        design: asked for only if there is no such table.
        write: calls one verb on the table that it is given; called again if the table turned up meanwhile.
    """
    name = _name(identifier)
    try:
        table = client.table(name)
    except TableNotFoundError:
        try:
            return _create(client, name, design(), write)
        except TableAlreadyExistsError:
            _log.info("Another writer created %s at the same moment; the rows go there", name)
            table = client.table(name)
    return table, write(table)


def open_or_create(
    client: DeltaClient,
    *,
    identifier: TableIdentifier | str,
    schema: StructType,
    partition_columns: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    description: str | None = None,
    context: CommitContext = NO_CONTEXT,
) -> Table:
    """The table of that name, created if it does not exist; of several callers at once one creates and the others open.

    ``properties`` and ``description`` matter for a creation only. Arguments and errors are those of
    :func:`create_table`, and:

    Raises:
        SchemaMismatchError: the table exists and rows of ``schema`` could not be appended to it, or it is partitioned
            otherwise.
    """
    name = _name(identifier)
    try:
        table = client.table(name)
    except TableNotFoundError:
        try:
            return create_table(
                client,
                identifier=name,
                schema=schema,
                partition_columns=partition_columns,
                properties=properties,
                description=description,
                context=context,
            )
        except TableAlreadyExistsError:
            _log.info("Another writer created %s at the same moment; it is opened instead", name)
            table = client.table(name)
    reconcile_schemas(table.snapshot().schema, schema, mode=SchemaMode.STRICT)
    check_partitioning(table, partition_columns)
    return table


def first_schema(offered: StructType) -> StructType:
    """Columns of a table that rows of ``offered`` are to be the first of.

    As nullable as they may be: whether a plan can prove that a column holds no NULL changes from one run to the next.
    """
    return reconcile_schemas(StructType(()), offered, mode=SchemaMode.MERGE)


def check_partition_columns(schema: StructType, partition_columns: Sequence[str]) -> tuple[str, ...]:
    """The partition columns as the schema spells them (META-4).

    Raises:
        InvalidArgumentError: a column is missing from the schema, named twice, or of a nested type; or no other column
            is left.
    """
    fields = []
    for wanted in partition_columns:
        field = schema.field(wanted)
        if field is None:
            raise InvalidArgumentError(
                f"Partition column {wanted!r} is not in the schema, whose columns are {', '.join(schema.names)}. "
                "Partition by top-level columns of the table."
            )
        if not is_partition_type(field.type):
            raise InvalidArgumentError(
                f"Partition column {field.name!r} is of type {data_type_text(field.type)}, which has no form as a "
                "partition value. Partition by a column of a simple type."
            )
        if field.name.startswith("."):
            raise InvalidArgumentError(
                f"Partition column {field.name!r} would give directories that readers take for hidden. Rename it."
            )
        fields.append(field.name)
    if len(set(fields)) != len(fields):
        raise InvalidArgumentError(f"A partition column is named twice in {list(partition_columns)}; name each once.")
    if fields and len(fields) == len(schema.names):
        raise InvalidArgumentError(
            "Every column is a partition column, and a data file would have no column at all. Keep at least one other "
            "column."
        )
    return tuple(fields)


def check_partitioning(table: WriteTarget, partition_columns: Sequence[str]) -> None:
    """Raises SchemaMismatchError if the table is partitioned otherwise."""
    snapshot = table.snapshot()
    wanted = tuple(name.casefold() for name in partition_columns)
    found = tuple(name.casefold() for name in snapshot.partition_columns)
    if wanted != found:
        raise SchemaMismatchError(
            f"{table.identifier} exists and is partitioned by {list(snapshot.partition_columns)}, not by "
            f"{list(partition_columns)}. Ask for the partitioning it has, or for another name. Its "
            f"columns:\n{schema_text(snapshot.schema)}"
        )


def _name(identifier: TableIdentifier | str) -> TableIdentifier:
    return TableIdentifier.of(identifier)


def _create(
    client: DeltaClient, name: TableIdentifier, design: TableDesign, write: Callable[[CreateTransaction], _Result]
) -> tuple[Table, _Result]:
    table = _reserve(client, name, design)
    try:
        result = write(table)
    except BaseException:
        table.abort()
        raise
    if table.entry is None:
        raise InvalidArgumentError(f"{name} was not created, because nothing was committed to it. Write to it.")
    _purge_later(client)
    return client.open(table.entry), result


def _purge_later(client: DeltaClient) -> None:
    """What creations leave that die half-way, the next ones take away: nobody else may ever look there (CM-D5)."""
    try:
        client.background.submit("The purge of abandoned creations", lambda: _purge(client))
    except RuntimeError:  # The client is being closed; the table exists all the same.
        _log.debug("No purge of abandoned creations", exc_info=True)


def _purge(client: DeltaClient) -> None:
    gone = purge_abandoned(client)
    if gone:
        _log.info("Purged %d creations that were given up: %s", len(gone), ", ".join(one.location for one in gone))


def _reserve(client: DeltaClient, name: TableIdentifier, design: TableDesign) -> CreateTransaction:
    """Phase 1; whatever cannot be is refused before."""
    check_column_names(design.schema)
    check_writable_types(design.schema)
    check_void_places(design.schema)
    check_user_properties(design.properties)
    draft = Metadata(
        id=str(uuid.uuid4()),
        schema_string=schema_to_json(design.schema),
        partition_columns=check_partition_columns(design.schema, design.partition_columns),
        configuration=stored_properties(design.properties),
        description=design.description,
        created_time=client.now_ms(),
    )
    protocol = _protocol(design.schema, draft, design.properties, table=str(name))
    client.warehouse.ensure_marker()
    if TableProperties(draft.configuration).deleted_file_retention_ms == 0:
        _log.warning(
            "%s is created with delta.deletedFileRetentionDuration = %r: VACUUM will delete files that running readers and "
            "time travel still need, and files that running writers have not committed yet. Set it to longer than the "
            "longest query and write, e.g. 'interval 7 days'.",
            name,
            draft.configuration["delta.deletedFileRetentionDuration"],
        )
    staging = client.catalog.create_staging_table(name)
    return CreateTransaction(
        services=client,
        identifier=name,
        staging=staging,
        store=client.stores.store_for(staging.location),
        metadata=replace(draft, configuration={**draft.configuration, **default_properties(staging.table_id)}),
        protocol=protocol,
        parameters=_parameters(draft, design),
    )


def _parameters(draft: Metadata, design: TableDesign) -> dict[str, str]:
    parameters = {
        "isManaged": "true",
        "partitionBy": json.dumps(list(draft.partition_columns)),
        "properties": json.dumps(dict(design.properties)),
    }
    if design.description is not None:
        parameters["description"] = design.description
    return parameters


def _protocol(schema: StructType, draft: Metadata, properties: Mapping[str, str], *, table: str) -> Protocol:
    """What the new table asks of its clients; refused here, not at the first write, if this client cannot do it."""
    features = required_features(schema, draft.configuration) | requested_features(properties)
    protocol = catalog_managed_protocol(extra_features=features)
    check_writable(protocol, table, metadata=draft)
    return protocol
