"""What the handlers of Unity Catalog's API get of a request besides its body: the caller's client, and the name of the table.

Functions that wait for nothing are ``async``: FastAPI calls all others in threads, which takes longer than they do.
"""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import Depends, Query, Request

from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.catalog.tables import TableEntry, TableIdentifier
from cm_delta_dagster.catalog.texts import is_storable
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import TableNotFoundError
from cm_delta_dagster.server.auth import CallerCatalog
from cm_delta_dagster.server.table_access import TableAccess
from cm_delta_dagster.server.unity.loading import described_table, shown_table, staged_commits
from cm_delta_dagster.server.unity.pages import PageRequest
from cm_delta_dagster.server.unity.tables import ShownTable


@dataclass(frozen=True, slots=True)
class CallerTables:
    """The tables of the catalog for the caller of a request."""

    access: TableAccess
    client: DeltaClient

    def load(self, identifier: TableIdentifier) -> ShownTable:
        """The table of that name. Raises TableNotFoundError, and as :func:`shown_table`."""
        return self.shown(self.client.registry.load_table(identifier))

    def shown(self, entry: TableEntry) -> ShownTable:
        """The table of an entry; what its writers did not publish is published in the background. Raises as :func:`shown_table`."""
        table = shown_table(self.access, self.client, entry)
        if table.commits:
            self.access.publication.schedule(self.access.server_client, entry)
        return table

    def unpublished(self, entry: TableEntry) -> tuple[RatifiedCommit, ...]:
        """The commits of :meth:`shown` alone, ascending. Raises as :func:`shown_table`."""
        commits = staged_commits(self.access, entry)
        if commits:
            self.access.publication.schedule(self.access.server_client, entry)
        return commits

    def described(self, entry: TableEntry) -> ShownTable:
        """The table of an entry for an answer without its commits."""
        return described_table(self.access, self.client, entry)


async def _caller_tables(request: Request, catalog: CallerCatalog) -> CallerTables:
    if not all(map(is_storable, (request.scope["path"], *request.query_params.values()))):
        raise TableNotFoundError(
            "A name in the request has a character that no name of the catalog has. Nothing was changed."
        )
    access: TableAccess = request.app.state.tables
    return CallerTables(access, access.client_of(catalog))


Tables: TypeAlias = Annotated[CallerTables, Depends(_caller_tables)]
"""The type of a handler's parameter that is the caller's view of the tables."""


async def _named_table(catalog: str, schema: str, table: str) -> TableIdentifier:
    return TableIdentifier(catalog, schema, table)


TableName: TypeAlias = Annotated[TableIdentifier, Depends(_named_table)]
"""The type of a handler's parameter that is the table of the path, in three parts of it."""


async def _asked_page(max_results: Annotated[int, Query(ge=0, lt=2**63)] = 0, page_token: str = "") -> PageRequest:
    return PageRequest(max_results=max_results, token=page_token)


AskedPage: TypeAlias = Annotated[PageRequest, Depends(_asked_page)]
"""The type of a handler's parameter that is the page of a list."""


def table_of(full_name: str) -> TableIdentifier:
    """The table of a name in one text. Raises TableNotFoundError for a text that is not a name of three parts."""
    parts = full_name.split(".")
    if len(parts) != 3 or not all(parts):
        raise TableNotFoundError(f"Table not found: {full_name}")
    return TableIdentifier(*parts)
