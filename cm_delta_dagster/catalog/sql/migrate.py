"""Creates or migrates the schema of a catalog database; the check of an up-to-date database does not import Alembic."""

import importlib

import sqlalchemy as sa

VERSION_TABLE = "cm_delta_alembic_version"
HEAD = "0006"
"""Newest revision of this release; a constant, so that the check of an up-to-date database is one query."""

_REVISIONS = "cm_delta_dagster.catalog.sql.revisions"
_ADVISORY_LOCK = 4_862_170_233_771
READ_VERSION = sa.text(f"SELECT version_num FROM {VERSION_TABLE}")


def is_current(connection: sa.Connection) -> bool:
    """Whether the database has exactly this release's schema. False for a database without a schema."""
    try:
        return connection.execute(READ_VERSION).scalars().all() == [HEAD]
    except (sa.exc.OperationalError, sa.exc.ProgrammingError):
        return False


def has_catalog(connection: sa.Connection) -> bool:
    """Whether the database holds a catalog of any release."""
    return sa.inspect(connection).has_table(VERSION_TABLE)


def upgrade(connection: sa.Connection, *, url: str) -> None:
    """Create or migrate the schema inside the caller's write transaction. Concurrent callers wait and then do nothing.

    Args:
        url: the catalog's URL without password, for messages.

    Raises:
        CatalogVersionError: the database has a revision that this release does not know.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    revisions = importlib.import_module(_REVISIONS)
    revisions.upgrade_with_alembic(connection, url=url)
