"""The routes of Unity Catalog's older API that clients of the Delta API use too: catalogs, schemas, and names of tables."""

import uuid
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse

from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.errors import OperationRefusedError
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.server.request_errors import NoSuchCatalogError
from cm_delta_dagster.server.unity.creation import require_schema
from cm_delta_dagster.server.unity.models import CreateSchemaRequest
from cm_delta_dagster.server.unity.requests import Tables, table_of
from cm_delta_dagster.server.unity.tables import catalog_info, schema_info, table_info
from cm_delta_dagster.server.wires import UNITY_PATH

router = APIRouter(prefix=UNITY_PATH, tags=["Unity Catalog: older API"])


@router.get("/catalogs")
def list_catalogs(tables: Tables) -> dict[str, Any]:
    """All catalogs, on one page."""
    catalogs = tables.client.namespaces.list_catalogs()
    return {
        "catalogs": [catalog_info(catalog, catalog_id=_id_of(catalog)) for catalog in catalogs],
        "next_page_token": None,
    }


@router.get("/catalogs/{name}")
def get_catalog(tables: Tables, name: str) -> dict[str, Any]:
    """One catalog."""
    for catalog in tables.client.namespaces.list_catalogs():
        if catalog.name == name:
            return catalog_info(catalog, catalog_id=_id_of(catalog))
    raise NoSuchCatalogError(f"Catalog not found: {name}")


@router.get("/schemas")
def list_schemas(tables: Tables, catalog_name: str) -> dict[str, Any]:
    """The schemas of a catalog, on one page."""
    get_catalog(tables, catalog_name)
    schemas = tables.client.namespaces.list_schemas(catalog_name)
    return {"schemas": [schema_info(schema, schema_id=_id_of(schema)) for schema in schemas], "next_page_token": None}


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
    require_schema(tables.client, full_name)
    schemas = tables.client.namespaces.list_schemas(full_name.partition(".")[0])
    schema = next(schema for schema in schemas if schema.name == full_name)
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


@router.get("/tables")
def list_tables(tables: Tables, catalog_name: str, schema_name: str) -> JSONResponse:
    """The tables of a schema that the caller may read, on one page."""
    name = f"{catalog_name}.{schema_name}"
    require_schema(tables.client, name)
    entries = _readable(tables, tables.client.registry.list_tables(name))
    shown = [table_info(tables.described(entry)) for entry in sorted(entries, key=lambda entry: entry.identifier)]
    return JSONResponse({"tables": shown, "next_page_token": None})


def _readable(tables: Tables, identifiers: Sequence[TableIdentifier]) -> Sequence[TableEntry]:
    """The tables that the caller may read, and that were not dropped meanwhile."""
    registry = tables.client.registry
    try:
        return registry.load_tables(identifiers)
    except OperationRefusedError:
        if len(identifiers) == 1:
            return ()
    return [entry for identifier in identifiers for entry in _readable(tables, (identifier,))]


@router.get("/tables/{full_name}")
def get_table(tables: Tables, full_name: str) -> JSONResponse:
    """One table."""
    return JSONResponse(table_info(tables.described(tables.client.registry.load_table(table_of(full_name)))))


@router.delete("/tables/{full_name}", response_class=PlainTextResponse)
def delete_table(tables: Tables, full_name: str) -> str:
    """Remove the name of a table."""
    drop_table(tables.client, identifier=table_of(full_name))
    return "200 OK"


def _id_of(namespace: Namespace) -> str:
    """An id for what has only a name here, the same one in each answer."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"cm-delta:{namespace.name}"))
