"""Opens a client of the catalog of ``--catalog`` for commands of ``cm-delta``."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from cm_delta_dagster.catalog.opening import OpenedCatalog
from cm_delta_dagster.catalog.sql import IfMissing, SqlCatalog
from cm_delta_dagster.cli.catalog import open_catalog, options_of_command
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.storage_options import stores_of
from cm_delta_dagster.errors import CatalogNotFoundError
from cm_delta_dagster.storage.storage_options import StorageOptions


@contextmanager
def open_client(warehouse: str | None = None, *, if_missing: IfMissing = IfMissing.REFUSE) -> Iterator[DeltaClient]:
    """Open a client of the catalog."""
    with _closing_client(open_catalog(warehouse, if_missing=if_missing), warehouse) as client:
        yield client


@contextmanager
def open_planning_client(warehouse: str) -> Iterator[DeltaClient]:
    """Open a client for a plan that is only shown: of the catalog or, if there is none, of an empty temporary catalog."""
    if _has_catalog():
        with open_client(warehouse) as client:
            yield client
        return
    with tempfile.TemporaryDirectory() as directory:
        catalog = SqlCatalog(f"sqlite:///{directory}/catalog.db", warehouse=warehouse)
        with _closing_client(catalog, warehouse) as client:
            yield client


def _has_catalog() -> bool:
    with open_catalog() as catalog:
        try:
            catalog.registry.identity()
        except CatalogNotFoundError:
            return False
    return True


@contextmanager
def _closing_client(catalog: OpenedCatalog, warehouse: str | None) -> Iterator[DeltaClient]:
    options = options_of_command()
    own = StorageOptions.of(options.storage_options, warehouse=warehouse)
    stores = stores_of(catalog, own, is_served=not isinstance(catalog, SqlCatalog))
    client = DeltaClient(catalog, stores=stores, context=options.context)
    try:
        yield client
    finally:
        client.close()
