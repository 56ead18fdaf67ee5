"""The routes of Unity Catalog's older API, which clients of the Delta API use too for catalogs, schemas, and names of tables.

What both APIs do is one function; a route here translates the request, and gives the answer its older form.
"""

import uuid
from typing import Any

from fastapi import Response
from fastapi.responses import PlainTextResponse

from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.server.path_router import PathRouter
from cm_delta_dagster.server.unity import commits, creation, credentials, older_commits
from cm_delta_dagster.server.unity.answers import JsonAnswer
from cm_delta_dagster.server.unity.creation import require_catalog, require_schema
from cm_delta_dagster.server.unity.older_models import (
    CreateSchemaRequest,
    OlderCommitRequest,
    OlderCommitsRequest,
    OlderCredentialsRequest,
    OlderStagingRequest,
    OlderTableRequest,
)
from cm_delta_dagster.server.unity.requests import AskedPage, Tables, table_of
from cm_delta_dagster.server.unity.stated_tables import older_stated_table
from cm_delta_dagster.server.unity.table_lists import table_list
from cm_delta_dagster.server.unity.tables import catalog_info, schema_info, table_info
from cm_delta_dagster.server.wires import UNITY_PATH

router = PathRouter(UNITY_PATH, prefix=UNITY_PATH, tags=["Unity Catalog: older API"])

_COMMITS = "/delta/preview/commits"


@router.get("/catalogs")
def list_catalogs(tables: Tables, page: AskedPage) -> dict[str, Any]:
    """The catalogs, by pages."""
    listing = "catalogs"
    catalogs = tables.client.namespaces.list_catalogs(after=page.last_name(listing), limit=page.limit + 1)
    shown, next_token = page.split(catalogs, listing=listing)
    return {
        listing: [catalog_info(catalog, catalog_id=_id_of(catalog)) for catalog in shown],
        "next_page_token": next_token,
    }


@router.get("/catalogs/{name}")
def get_catalog(tables: Tables, name: str) -> dict[str, Any]:
    """One catalog."""
    catalog = require_catalog(tables.client, name)
    return catalog_info(catalog, catalog_id=_id_of(catalog))


@router.get("/schemas")
def list_schemas(tables: Tables, catalog_name: str, page: AskedPage) -> dict[str, Any]:
    """The schemas of a catalog, by pages."""
    listing = f"schemas {catalog_name}"
    after = page.last_name(listing)
    try:
        schemas = tables.client.namespaces.list_schemas(catalog_name, after=after, limit=page.limit + 1)
    except InvalidArgumentError:  # No catalog has such a name.
        require_catalog(tables.client, catalog_name)
        raise
    if not schemas:
        require_catalog(tables.client, catalog_name)
    shown, next_token = page.split(schemas, listing=listing)
    return {
        "schemas": [schema_info(schema, schema_id=_id_of(schema)) for schema in shown],
        "next_page_token": next_token,
    }


@router.post("/schemas")
def create_schema(tables: Tables, body: CreateSchemaRequest) -> dict[str, Any]:
    """Create a schema."""
    schema = tables.client.namespaces.create_namespace(
        f"{body.catalog_name}.{body.name}", comment=body.comment or "", properties=body.properties
    )
    return schema_info(schema, schema_id=_id_of(schema))


@router.get("/schemas/{full_name}")
def get_schema(tables: Tables, full_name: str) -> dict[str, Any]:
    """One schema."""
    schema = require_schema(tables.client, full_name)
    return schema_info(schema, schema_id=_id_of(schema))


@router.delete("/schemas/{full_name}", response_class=PlainTextResponse)
def delete_schema(tables: Tables, full_name: str, force: bool = False) -> str:
    """Drop an empty schema; with ``force``, its tables first."""
    require_schema(tables.client, full_name)
    if force:
        for identifier in tables.client.registry.list_tables(full_name):
            drop_table(tables.client, identifier=identifier)
    tables.client.namespaces.drop_namespace(full_name)
    return "200 OK"


@router.post("/staging-tables")
def create_staging_table(tables: Tables, body: OlderStagingRequest) -> dict[str, Any]:
    """Reserve id and location of a table whose version 0 the client then writes."""
    identifier = TableIdentifier(body.catalog_name, body.schema_name, body.name)
    staging = creation.create_staging_table(tables.access, tables.client, identifier)
    return {
        "name": body.name,
        "catalog_name": body.catalog_name,
        "schema_name": body.schema_name,
        "id": staging.table_id,
        "staging_location": staging.location,
    }


@router.post("/tables")
def create_table(tables: Tables, body: OlderTableRequest) -> JsonAnswer:
    """Give a staging table its name."""
    identifier = TableIdentifier(body.catalog_name, body.schema_name, body.name)
    entry = creation.create_table(tables.access, tables.client, identifier, older_stated_table(body))
    return JsonAnswer(table_info(tables.described(entry)))


@router.get("/tables", response_class=Response)
def list_tables(tables: Tables, catalog_name: str, schema_name: str, page: AskedPage) -> Response:
    """The tables of a schema that the caller may read, by pages. A page has fewer if the caller may not read all of them."""
    return table_list(tables, (catalog_name, schema_name), page)


@router.get("/tables/{full_name}")
def get_table(tables: Tables, full_name: str) -> JsonAnswer:
    """One table."""
    return JsonAnswer(table_info(tables.described(tables.client.registry.load_table(table_of(full_name)))))


@router.delete("/tables/{full_name}", response_class=PlainTextResponse)
def delete_table(tables: Tables, full_name: str) -> str:
    """Remove the name of a table."""
    drop_table(tables.client, identifier=table_of(full_name))
    return "200 OK"


@router.get(_COMMITS)
def get_commits(tables: Tables, body: OlderCommitsRequest) -> JsonAnswer:
    """The unpublished commits of a table. The request has a body, as that of Unity Catalog has."""
    entry = older_commits.table_of_id(tables.client, body.table_id, table_uri=body.table_uri)
    return JsonAnswer(older_commits.commits_answer(body, entry, tables.unpublished(entry)))


@router.post(_COMMITS, response_class=PlainTextResponse)
def commit(tables: Tables, body: OlderCommitRequest) -> str:
    """Commit, and record what is published."""
    entry = older_commits.table_of_id(tables.client, body.table_id, table_uri=body.table_uri)
    commits.update_table(tables.access, tables.client, entry, older_commits.as_update(body))
    return "200 OK"


@router.post("/temporary-table-credentials")
def table_credentials(tables: Tables, body: OlderCredentialsRequest) -> dict[str, Any]:
    """Credentials for the files of a table or a staging table: none for local ones."""
    location = credentials.location_of(tables.client, body.table_id)
    return credentials.older_credentials(tables.client, location, body.operation)


def _id_of(namespace: Namespace) -> str:
    """An id for what has only a name here, the same one in each answer."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"cm-delta:{namespace.name}"))
