"""Opens the catalog of ``--catalog`` for commands of ``cm-delta`` that need no client."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from cm_delta_dagster.catalog.sql import IfMissing, SqlCatalog
from cm_delta_dagster.errors import CmDeltaError


@contextmanager
def open_catalog(context: click.Context) -> Iterator[SqlCatalog]:
    """Open the catalog, which must exist; errors of this package end the command with their message."""
    with errors_as_messages(), catalog_of(context) as catalog:
        yield catalog


def catalog_of(
    context: click.Context, warehouse: str | None = None, *, if_missing: IfMissing = IfMissing.REFUSE
) -> SqlCatalog:
    """The catalog of ``--catalog``. Raises click.UsageError without one."""
    return SqlCatalog(_url_of(context), warehouse=warehouse, if_missing=if_missing, principal=context.obj.principal)


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """End the command with the message of an error of this package."""
    try:
        yield
    except CmDeltaError as error:
        raise click.ClickException(str(error)) from error


def _url_of(context: click.Context) -> str:
    url = context.obj.url
    if not url:
        raise click.UsageError("No catalog given: pass --catalog URL or set CM_DELTA_CATALOG_URL.")
    return str(url)
