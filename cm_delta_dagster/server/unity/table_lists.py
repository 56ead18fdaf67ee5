"""The list of the tables of a schema. A page is one query, and a large one several, which read a part of it each."""

from fastapi import Response

from cm_delta_dagster.catalog.tables import TableIdentifier, TablePage
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.server.unity.answers import ListAnswer
from cm_delta_dagster.server.unity.creation import require_schema
from cm_delta_dagster.server.unity.pages import PageRequest, token_of
from cm_delta_dagster.server.unity.requests import CallerTables
from cm_delta_dagster.server.unity.tables import table_info

_TOGETHER = 500
"""Tables that are read by one query, so that the values of a large page do not exist at the same time."""


def table_list(tables: CallerTables, schema: tuple[str, str], page: PageRequest) -> Response:
    """A page of the tables that the caller may read.

    Args:
        schema: the names of catalog and schema.

    Raises:
        NamespaceNotFoundError: there is no such schema.
        InvalidArgumentError: the token is not one of this list.
    """
    listing = f"tables {'.'.join(schema)}"
    last_name = page.last_name(listing)
    last = TableIdentifier(*schema, last_name) if last_name else None
    answer = ListAnswer("tables")
    for start in range(0, page.limit, _TOGETHER):
        part = _part(tables, schema, after=last, limit=min(page.limit - start, _TOGETHER))
        answer.add(table_info(tables.described(entry)) for entry in part.entries)
        last = part.last
        if last is None:
            break
    return answer.ended(None if last is None else token_of(listing, last.table))


def _part(tables: CallerTables, schema: tuple[str, str], *, after: TableIdentifier | None, limit: int) -> TablePage:
    name = ".".join(schema)
    try:
        part = tables.client.registry.readable_tables(name, after=after, limit=limit)
    except InvalidArgumentError:  # No schema has such a name.
        require_schema(tables.client, name)
        raise
    if not part.entries or name.count(".") > 1:  # What has three parts is the name of a table.
        require_schema(tables.client, name)
    return part
