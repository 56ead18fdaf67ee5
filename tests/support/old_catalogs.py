"""Catalog databases of earlier revisions, which the code of that time made, on SQLite and on PostgreSQL."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.support.database_roles import create_role, raw_client

_DATABASES = Path(__file__).parents[1] / "catalog" / "databases"
ROLES = {"0004": ("lake_owner",), "0013": ("lake_owner", "load_orders", "steward_rosa", "report_reader", "alter_ana")}
NOW_MS = 1_795_817_800_000
"""A moment after the databases were made, before the request for approval of 0013 expires."""


def make_old_sqlite_catalog(url: str, revision: str) -> None:
    """Create the database file with a catalog of ``revision``."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        database.executescript((_DATABASES / f"revision_{revision}_sqlite.sql").read_text())


def make_old_postgres_catalog(url: str, revision: str, *, rename_rows: bool = False) -> dict[str, str]:
    """Fill the empty database with a catalog of ``revision``, which belongs to a new role.

    Args:
        rename_rows: whether new roles stand for all roles of then, in the rows of the catalog, too. Otherwise there is one new
            role, the owner of the tables.

    Returns:
        The new roles by their names then.
    """
    text = (_DATABASES / f"revision_{revision}_postgres.sql").read_text()
    roles = {name: create_role(url, name) for name in (ROLES[revision] if rename_rows else ("lake_owner",))}
    for name, role in roles.items():
        text = re.sub(rf"\b{name}\b" if rename_rows else rf"(?<=OWNER TO ){name}", role, text)
    with raw_client(url, "postgres") as client:
        client.execute(text)
        client.execute(f"GRANT ALL ON SCHEMA public TO {roles['lake_owner']}")
    return roles


def make_old_catalog(url: str, revision: str) -> None:
    """Fill the empty database of either kind with a catalog of ``revision``; names in its rows are those of then."""
    if url.startswith("sqlite"):
        make_old_sqlite_catalog(url, revision)
    else:
        make_old_postgres_catalog(url, revision)
