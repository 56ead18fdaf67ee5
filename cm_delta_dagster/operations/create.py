"""CREATE TABLE (protocol "Creating catalog-managed tables"). Room: operations.

Three phases: the catalog reserves an id and a location, the client writes version 0 there, the catalog registers the
name. The name comes last, so that a failure before leaves nothing that can be seen; what a failed creation leaves on
storage lies at a location that no table will ever have (CM-D5). No rows are written here.
"""

import json
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cm_delta_dagster.catalog.catalog import CommitSummary, StagingTable, TableEntry, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitStateUnknownError,
    IllegalCommitError,
    InvalidArgumentError,
    ObjectAlreadyExistsError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol import action_json, log_files
from cm_delta_dagster.protocol.actions import Action, CommitInfo, Metadata, Protocol
from cm_delta_dagster.protocol.commit_timestamps import next_in_commit_timestamp
from cm_delta_dagster.protocol.partition_values import is_partition_type
from cm_delta_dagster.protocol.schema import (
    StructType,
    check_column_names,
    data_type_text,
    schema_text,
    schema_to_json,
)
from cm_delta_dagster.protocol.schema_evolution import SchemaMode, reconcile_schemas
from cm_delta_dagster.protocol.table_features import (
    catalog_managed_protocol,
    check_writable,
    requested_features,
    required_features,
)
from cm_delta_dagster.protocol.table_properties import check_user_properties, default_properties, stored_properties

_log = logging.getLogger(__name__)

OPERATION = "CREATE TABLE"


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
    """
    name = TableIdentifier.parse(identifier) if isinstance(identifier, str) else identifier
    user_properties = dict(properties or {})
    check_column_names(schema)
    check_user_properties(user_properties)
    draft = Metadata(
        id=str(uuid.uuid4()),
        schema_string=schema_to_json(schema),
        partition_columns=check_partition_columns(schema, partition_columns),
        configuration=stored_properties(user_properties),
        description=description,
        created_time=client.now_ms(),
    )
    protocol = _protocol(schema, draft, user_properties, table=str(name))
    staging = client.catalog.create_staging_table(name)
    metadata = replace(draft, configuration={**draft.configuration, **default_properties(staging.table_id)})
    info = _commit_info(client, metadata, user_properties, context)
    _write_version_0(client, staging, [info, protocol, metadata])
    entry = _register(client, staging, name, _summary(info))
    return client.open(entry)


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
    name = TableIdentifier.parse(identifier) if isinstance(identifier, str) else identifier
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
    _check_fits(table, schema, partition_columns)
    return table


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


def _protocol(schema: StructType, draft: Metadata, properties: Mapping[str, str], *, table: str) -> Protocol:
    """What the new table asks of its clients; refused here, not at the first write, if this client cannot do it."""
    features = required_features(schema, draft.configuration) | requested_features(properties)
    protocol = catalog_managed_protocol(extra_features=features)
    check_writable(protocol, table, metadata=draft)
    return protocol


def _commit_info(
    client: DeltaClient, metadata: Metadata, properties: Mapping[str, str], context: CommitContext
) -> CommitInfo:
    timestamp = next_in_commit_timestamp(client.now_ms(), None)
    parameters = {
        "isManaged": "true",
        "partitionBy": json.dumps(list(metadata.partition_columns)),
        "properties": json.dumps(dict(properties)),
    }
    if metadata.description is not None:
        parameters["description"] = metadata.description
    return CommitInfo(
        in_commit_timestamp=timestamp,
        timestamp=timestamp,
        txn_id=str(uuid.uuid4()),
        operation=OPERATION,
        operation_parameters=parameters,
        operation_metrics={},
        isolation_level="Serializable",
        is_blind_append=True,
        engine_info=context.engine_info,
        user_metadata=context.user_metadata,
        tags=dict(context.tags) or None,
    )


def _summary(info: CommitInfo) -> CommitSummary:
    assert info.txn_id is not None and info.in_commit_timestamp is not None
    return CommitSummary(
        txn_id=info.txn_id,
        in_commit_timestamp=info.in_commit_timestamp,
        operation=OPERATION,
        data_change=True,
        tags=dict(info.tags or {}),
    )


def _write_version_0(client: DeltaClient, staging: StagingTable, actions: Sequence[Action]) -> None:
    action_json.check_commit(actions)
    location = f"{log_files.log_directory(staging.location)}/{log_files.commit_file_name(0)}"
    try:
        client.stores.store_for(staging.location).write_if_absent(location, action_json.encode_commit(actions))
    except ObjectAlreadyExistsError as error:
        raise IllegalCommitError(
            f"The catalog reserved {staging.location} for a new table, but a Delta log is there already. Nothing was "
            "changed. Two catalogs may be using one warehouse directory; give each its own."
        ) from error


def _register(client: DeltaClient, staging: StagingTable, name: TableIdentifier, summary: CommitSummary) -> TableEntry:
    """Phase 3. Asking again is safe: the same id under the same name answers with the entry."""
    settings = client.settings
    attempt = 1
    while True:
        try:
            return client.catalog.register_table(staging.table_id, name, summary=summary)
        except CatalogUnavailableError as error:
            if attempt >= settings.max_resolve_attempts:
                raise CommitStateUnknownError(
                    f"The catalog did not answer whether {name} was registered ({error}). The table exists whole or "
                    "not at all. Once the catalog answers again, open it by its name, or create it again if it is not "
                    "found."
                ) from error
            _log.warning("No answer to the registration of %s: %s", name, error)
        time.sleep(min(settings.retry_max_seconds, settings.retry_initial_seconds * 2**attempt))
        attempt += 1


def _check_fits(table: Table, schema: StructType, partition_columns: Sequence[str]) -> None:
    snapshot = table.snapshot()
    reconcile_schemas(snapshot.schema, schema, mode=SchemaMode.STRICT)
    wanted = tuple(name.casefold() for name in partition_columns)
    found = tuple(name.casefold() for name in snapshot.partition_columns)
    if wanted != found:
        raise SchemaMismatchError(
            f"{table.identifier} exists and is partitioned by {list(snapshot.partition_columns)}, not by "
            f"{list(partition_columns)}. Ask for the partitioning it has, or for another name. Its "
            f"columns:\n{schema_text(snapshot.schema)}"
        )
