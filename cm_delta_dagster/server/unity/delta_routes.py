"""The routes of Unity Catalog's Delta API.

Every route answers errors in the form that the recordings of Unity Catalog 0.6.0 have. A name that the catalog cannot have is
answered as one that it does not have.
"""

from typing import Annotated, Any

from fastapi import Query, Request, Response

from cm_delta_dagster.catalog.storage_credentials import FileAccess
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.server.path_router import PathRouter
from cm_delta_dagster.server.unity import commits, creation, credentials
from cm_delta_dagster.server.unity.answers import JsonAnswer
from cm_delta_dagster.server.unity.contract import stated_contract
from cm_delta_dagster.server.unity.credentials import delta_credentials
from cm_delta_dagster.server.unity.models import (
    CreateTableRequest,
    MetricsRequest,
    RenameRequest,
    StagingTableRequest,
    UpdateTableRequest,
)
from cm_delta_dagster.server.unity.requests import TableName, Tables
from cm_delta_dagster.server.unity.stated_tables import stated_table
from cm_delta_dagster.server.unity.tables import MANAGED, loaded_table
from cm_delta_dagster.server.wires import UNITY_DELTA_PATH

router = PathRouter(UNITY_DELTA_PATH, prefix=UNITY_DELTA_PATH, tags=["Unity Catalog: Delta API"])

_SCHEMA = "/catalogs/{catalog}/schemas/{schema}"
_TABLE = f"{_SCHEMA}/tables/{{table}}"


@router.get("/config")
def config(tables: Tables, catalog: str) -> dict[str, Any]:
    """The endpoints that the server has, and the version of the API."""
    creation.require_catalog(tables.client, catalog)
    below = "/v1" + _SCHEMA
    return {
        "endpoints": [
            f"POST {below}/staging-tables",
            f"POST {below}/tables",
            *(f"{verb} {below}/tables/{{table}}" for verb in ("GET", "HEAD", "POST", "DELETE")),
            f"POST {below}/tables/{{table}}/rename",
            f"POST {below}/tables/{{table}}/metrics",
            f"GET {below}/tables/{{table}}/credentials",
            "GET /v1/staging-tables/{table_id}/credentials",
        ],
        "protocol-version": "1.0",
    }


@router.post(f"{_SCHEMA}/staging-tables")
def create_staging_table(tables: Tables, catalog: str, schema: str, body: StagingTableRequest) -> dict[str, Any]:
    """Reserve id and location of a table whose version 0 the client then writes."""
    staging = creation.create_staging_table(tables.access, tables.client, TableIdentifier(catalog, schema, body.name))
    return {
        "table-id": staging.table_id,
        "table-type": MANAGED,
        "location": staging.location,
        "storage-credentials": delta_credentials(tables.client, staging.location, FileAccess.READ_WRITE),
        **stated_contract(staging.table_id),
    }


@router.get("/staging-tables/{table_id}/credentials")
def staging_credentials(tables: Tables, table_id: str) -> dict[str, Any]:
    """Credentials to write version 0."""
    location = credentials.staging_location(tables.client, table_id)
    return {"storage-credentials": delta_credentials(tables.client, location, FileAccess.READ_WRITE)}


@router.post(f"{_SCHEMA}/tables")
def create_table(tables: Tables, catalog: str, schema: str, body: CreateTableRequest) -> JsonAnswer:
    """Give a staging table its name."""
    identifier = TableIdentifier(catalog, schema, body.name)
    entry = creation.create_table(tables.access, tables.client, identifier, stated_table(body))
    return _loaded(tables, entry.identifier)


@router.get(_TABLE)
def load_table(tables: Tables, table: TableName) -> JsonAnswer:
    """The table with its definition and its unpublished commits."""
    return _loaded(tables, table)


@router.head(_TABLE, status_code=204, response_class=Response)
def table_exists(tables: Tables, table: TableName) -> None:
    """Whether a table has the name."""
    tables.client.registry.load_table(table)


@router.post(_TABLE)
def update_table(tables: Tables, table: TableName, body: UpdateTableRequest) -> JsonAnswer:
    """Commit, and record what is published."""
    entry = commits.update_table(tables.access, tables.client, tables.client.registry.load_table(table), body)
    return JsonAnswer(loaded_table(tables.shown(entry)))


@router.delete(_TABLE, status_code=204, response_class=Response)
def delete_table(tables: Tables, table: TableName) -> None:
    """Remove the name. Log and data stay until the table is purged, and it can be brought back."""
    drop_table(tables.client, identifier=table)


@router.post(f"{_TABLE}/rename", status_code=204, response_class=Response)
def rename(tables: Tables, table: TableName, body: RenameRequest) -> None:
    """Give the table another name in its schema."""
    rename_table(tables.client, identifier=table, to=TableIdentifier(table.catalog, table.schema, body.new_name))


@router.post(f"{_TABLE}/metrics", status_code=204, response_class=Response)
def report_metrics(request: Request, tables: Tables, table: TableName, body: MetricsRequest) -> None:
    """Keep the numbers of a report in the line of the access log. The feed has those of commitInfo."""
    entry = tables.client.registry.load_table(table)
    if body.table_id != entry.table_id:
        raise InvalidArgumentError(
            f"The metrics are of the table {body.table_id}, and {table} has the id {entry.table_id}."
        )
    request.scope["state"]["metrics"] = body.numbers()


@router.get(f"{_TABLE}/credentials")
def table_credentials(tables: Tables, table: TableName, operation: Annotated[FileAccess, Query()]) -> dict[str, Any]:
    """Credentials for the files of the table."""
    location = tables.client.registry.load_table(table).location
    return {"storage-credentials": delta_credentials(tables.client, location, operation)}


def _loaded(tables: Tables, identifier: TableIdentifier) -> JsonAnswer:
    return JsonAnswer(loaded_table(tables.load(identifier)))
