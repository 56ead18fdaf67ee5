"""How commands of ``cm-delta`` open the catalog that was named on the command line."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from cm_delta_dagster.catalog.sql import IfMissing, SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.storage.stores import Stores


@contextmanager
def open_client(
    context: click.Context, warehouse: str | None = None, *, if_missing: IfMissing = IfMissing.REFUSE
) -> Iterator[DeltaClient]:
    """A client of the catalog of ``--catalog``; errors of this package end the command with their message."""
    url = context.obj
    if not url:
        raise click.UsageError("No catalog given: pass --catalog URL or set CM_DELTA_CATALOG_URL.")
    try:
        client = DeltaClient(SqlCatalog(url, warehouse=warehouse, if_missing=if_missing), stores=Stores())
        try:
            yield client
        finally:
            client.close()
    except CmDeltaError as error:
        raise click.ClickException(str(error)) from error
