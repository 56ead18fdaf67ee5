"""Commands that list tables and commits; they read the catalog alone."""

from collections import deque
from collections.abc import Iterator

import click

from cm_delta_dagster.catalog.commit_feed import FeedEntry
from cm_delta_dagster.catalog.opening import OpenedCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.printer import output, show, show_records
from cm_delta_dagster.operations.tables.scopes import check_scope

_PAGE = 1000


@click.command()
@click.argument("scope", default="")
@output("an array with an object for each table: name")
def tables(scope: str) -> None:
    """List the tables of the catalog, or of SCOPE (catalog or catalog.schema)."""
    with open_catalog() as catalog:
        names = list(map(str, catalog.registry.list_tables(scope)))
        if scope and not names:
            check_scope(catalog.registry, catalog.namespaces, scope)
    show([{"name": name} for name in names], *names)


@click.command()
@click.argument("name")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many to show.")
@output("an array with an object for each commit: version, ratified_ms, state, data_change, operation, txn_id")
def commits(name: str, limit: int) -> None:
    """List the newest commits of the table NAME (catalog.schema.table), newest first."""
    with open_catalog() as catalog:
        identifier = TableIdentifier.parse(name)
        table = catalog.registry.load_table(identifier)
        newest = deque(
            (entry for entry in _feed_of(catalog, identifier) if entry.table_id == table.table_id), maxlen=limit
        )
    records = [
        {
            "version": entry.version,
            "ratified_ms": entry.ratified_ms,
            "state": "published" if entry.version <= table.ratified.published_version else "ratified",
            "data_change": entry.summary.data_change,
            "operation": entry.summary.operation,
            "txn_id": entry.summary.txn_id,
        }
        for entry in reversed(newest)
    ]
    show_records(records, "version ratified_ms state data_change operation")


def _feed_of(catalog: OpenedCatalog, identifier: TableIdentifier) -> Iterator[FeedEntry]:
    after = 0
    while page := catalog.feed.feed(after=after, limit=_PAGE, identifiers=(identifier,)):
        yield from page
        after = page[-1].position
