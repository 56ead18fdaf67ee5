"""The tables, and the commits of one table."""

from collections import Counter

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from cm_delta_dagster.catalog.holds import Hold
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.server.page.callers import SignedIn

router = APIRouter(include_in_schema=False)

TABLES_SHOWN = 250
"""Tables of a page."""

COMMITS_SHOWN = 50
"""Commits of a page; each has its metrics."""


@router.get("/")
def tables(caller: SignedIn, scope: str = "", after: str = "") -> HTMLResponse:
    """The tables below a scope that the caller may read."""
    scope = caller.scope(scope)
    entries = caller.catalog.overview.table_overviews(
        scope, after=TableIdentifier.parse(after) if after else None, limit=TABLES_SHOWN + 1
    )
    holds = _holds_by_table(caller.catalog.holds.holds(scope))
    shown = entries[:TABLES_SHOWN]
    is_last = len(entries) == len(shown)
    return caller.show(
        "tables.html",
        scope=scope,
        after=after,
        tables=shown,
        holds=holds,
        next=None if is_last else shown[-1].identifier,
    )


def _holds_by_table(holds: tuple[Hold, ...]) -> Counter[str]:
    return Counter(table.table_id for hold in holds for table in hold.tables)


@router.get("/page/tables/{name}")
def table(caller: SignedIn, name: str, before: int | None = None) -> HTMLResponse:
    """One table, and its commits, the newest first."""
    entry = caller.catalog.registry.load_table(TableIdentifier.parse(name))
    commits = caller.catalog.overview.table_commits(entry.table_id, before=before, limit=COMMITS_SHOWN + 1)
    shown = commits[:COMMITS_SHOWN]
    return caller.show(
        "table.html",
        entry=entry,
        before=before,
        commits=shown,
        holds=caller.catalog.holds.holds(table_id=entry.table_id),
        next=None if len(commits) == len(shown) else shown[-1].version,
    )
