"""Opens the catalog of ``--catalog`` for commands of ``cm-delta``."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import click

from cm_delta_dagster.catalog.sql import IfMissing, SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CatalogNotFoundError, CmDeltaError
from cm_delta_dagster.storage.stores import Stores


@contextmanager
def open_catalog(context: click.Context) -> Iterator[SqlCatalog]:
    """Open the catalog, which must exist; errors of this package end the command with their message."""
    with _errors_as_messages(), SqlCatalog(_url_of(context), if_missing=IfMissing.REFUSE) as catalog:
        yield catalog


@contextmanager
def open_client(
    context: click.Context, warehouse: str | None = None, *, if_missing: IfMissing = IfMissing.REFUSE
) -> Iterator[DeltaClient]:
    """Open a client of the catalog; errors of this package end the command with their message."""
    with _errors_as_messages():
        catalog = SqlCatalog(_url_of(context), warehouse=warehouse, if_missing=if_missing)
        with _closing_client(catalog) as client:
            yield client


@contextmanager
def open_planning_client(context: click.Context, warehouse: str) -> Iterator[DeltaClient]:
    """Open a client for a plan that is only shown: of the catalog or, if there is none, of an empty temporary catalog."""
    if _has_catalog(context):
        with open_client(context, warehouse) as client:
            yield client
        return
    with _errors_as_messages(), tempfile.TemporaryDirectory() as directory:
        catalog = SqlCatalog(f"sqlite:///{directory}/catalog.db", warehouse=warehouse)
        with _closing_client(catalog) as client:
            yield client


def _has_catalog(context: click.Context) -> bool:
    with _errors_as_messages(), SqlCatalog(_url_of(context), if_missing=IfMissing.REFUSE) as catalog:
        try:
            catalog.identity()
        except CatalogNotFoundError:
            return False
    return True


def _url_of(context: click.Context) -> str:
    url = context.obj
    if not url:
        raise click.UsageError("No catalog given: pass --catalog URL or set CM_DELTA_CATALOG_URL.")
    return str(url)


@contextmanager
def _errors_as_messages() -> Iterator[None]:
    try:
        yield
    except CmDeltaError as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def _closing_client(catalog: SqlCatalog) -> Iterator[DeltaClient]:
    client = DeltaClient(catalog, stores=Stores())
    try:
        yield client
    finally:
        client.close()
