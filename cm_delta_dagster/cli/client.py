"""Opens a client of the catalog of ``--catalog`` for commands of ``cm-delta``."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import click

from cm_delta_dagster.catalog.sql import IfMissing, SqlCatalog
from cm_delta_dagster.cli.catalog import catalog_of, errors_as_messages
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CatalogNotFoundError
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.stores import Stores


@contextmanager
def open_client(
    context: click.Context, warehouse: str | None = None, *, if_missing: IfMissing = IfMissing.REFUSE
) -> Iterator[DeltaClient]:
    """Open a client of the catalog; errors of this package end the command with their message."""
    with errors_as_messages():
        catalog = catalog_of(context, warehouse, if_missing=if_missing)
        with _closing_client(catalog, context, warehouse) as client:
            yield client


@contextmanager
def open_planning_client(context: click.Context, warehouse: str) -> Iterator[DeltaClient]:
    """Open a client for a plan that is only shown: of the catalog or, if there is none, of an empty temporary catalog."""
    if _has_catalog(context):
        with open_client(context, warehouse) as client:
            yield client
        return
    with errors_as_messages(), tempfile.TemporaryDirectory() as directory:
        catalog = SqlCatalog(f"sqlite:///{directory}/catalog.db", warehouse=warehouse)
        with _closing_client(catalog, context, warehouse) as client:
            yield client


def _has_catalog(context: click.Context) -> bool:
    with errors_as_messages(), catalog_of(context) as catalog:
        try:
            catalog.identity()
        except CatalogNotFoundError:
            return False
    return True


@contextmanager
def _closing_client(catalog: SqlCatalog, context: click.Context, warehouse: str | None) -> Iterator[DeltaClient]:
    options = StorageOptions.of(context.obj.storage_options, warehouse=warehouse)
    client = DeltaClient(catalog, stores=Stores(storage_options=options), context=context.obj.context)
    try:
        yield client
    finally:
        client.close()
