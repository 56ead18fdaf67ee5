"""Empty tables whose version 0 the server writes, for clients of the older API that write none before they create the table.

Sail is such a client. The request describes the table, which gets the protocol and the properties of a table of this package.
"""

import json

from cm_delta_dagster.catalog.tables import InactiveTable, StagingTable, TableEntry, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError
from cm_delta_dagster.operations.tables.create import TableDesign, creation_at
from cm_delta_dagster.protocol.log.log_files import log_directory
from cm_delta_dagster.protocol.schema.types import parse_schema
from cm_delta_dagster.server.table_access import TableAccess
from cm_delta_dagster.server.unity.stated_tables import StatedTable


def create_empty_at(
    access: TableAccess, client: DeltaClient, identifier: TableIdentifier, staging: InactiveTable, stated: StatedTable
) -> TableEntry:
    """Write version 0 of the table that a request describes, and give it its name.

    Raises:
        InvalidArgumentError: the request has no columns, or impossible ones.
        IllegalCommitError: there is a log already; its writer must state the id of the table.
        OperationRefusedError: the location is outside of the storage roots.
        CmDeltaError: as for a creation by this package.
    """
    if not stated.columns or not stated.columns["fields"]:
        raise InvalidArgumentError(
            f"{identifier} was not created: the request has no columns, and no id of a table whose version 0 is written."
        )
    try:
        schema = parse_schema(json.dumps(stated.columns))
    except CorruptLogError as error:
        raise InvalidArgumentError(
            f"{identifier} was not created: its columns are not valid. {error.message}"
        ) from error
    access.storage.store_for(log_directory(staging.location), below=staging.location)
    design = TableDesign(
        schema=schema,
        partition_columns=stated.partition_columns or (),
        properties=stated.properties,
        description=stated.comment,
    )
    place = StagingTable(table_id=staging.table_id, location=staging.location)
    creation = creation_at(client, identifier=identifier, design=design, reserved=lambda _: place)
    creation.commit_empty()
    assert creation.entry is not None
    return creation.entry
