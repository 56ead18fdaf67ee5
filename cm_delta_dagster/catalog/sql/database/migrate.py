"""Creates or migrates the schema of a catalog database. The revisions are in ``migrations``.

A database without a catalog gets the newest schema directly: going through all revisions takes ten times as long.
"""

import uuid
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable

from cm_delta_dagster.catalog.sql.database.schema import FEED_COUNTER, IDENTITY, METADATA
from cm_delta_dagster.deferred_module import DeferredModule
from cm_delta_dagster.errors import CatalogVersionError

if TYPE_CHECKING:
    from alembic import command, config, script
else:  # Only an older database needs Alembic.
    command = DeferredModule("alembic.command")
    config = DeferredModule("alembic.config")
    script = DeferredModule("alembic.script")

VERSION_TABLE = "cm_delta_alembic_version"
HEAD = "0015"
"""Newest revision of this release; a constant, so that the check of an up-to-date database is one query."""

_ADVISORY_LOCK = 4_862_170_233_771
_READ_VERSION = sa.text(f"SELECT version_num FROM {VERSION_TABLE}")


def is_current(connection: sa.Connection) -> bool:
    """Whether the database has exactly this release's schema. False for a database without a schema."""
    try:
        return connection.execute(_READ_VERSION).scalars().all() == [HEAD]
    except (sa.exc.OperationalError, sa.exc.ProgrammingError):
        return False


def revisions(connection: sa.Connection) -> set[str]:
    """The revisions that the database has. Raises DBAPIError for a role that may not read it."""
    return set(connection.execute(_READ_VERSION).scalars())


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
    if not has_catalog(connection):
        create(connection)
    elif not is_current(connection):
        _migrate(connection, url=url)


def _migrate(connection: sa.Connection, *, url: str) -> None:
    settings = alembic_config()
    known = {revision.revision for revision in script.ScriptDirectory.from_config(settings).walk_revisions()}
    unknown = sorted(revisions(connection) - known)
    if unknown:
        raise CatalogVersionError(
            f"The catalog {url} has schema revision {', '.join(unknown)}, which this release does not know (its own is {HEAD}): a "
            "newer release of cm-delta-dagster migrated it. Nothing was changed. Upgrade the package here."
        )
    settings.attributes["connection"] = connection
    command.upgrade(settings, "head")


def create(connection: sa.Connection) -> None:
    """Create the schema of this release, in the caller's write transaction, in a database that has none."""
    for statement in _definitions(connection.dialect.name):
        connection.exec_driver_sql(statement)
    connection.execute(FEED_COUNTER.insert(), {"counter_id": 1, "position": 0})
    connection.execute(IDENTITY.insert(), {"row_id": 1, "catalog_id": str(uuid.uuid4())})
    connection.exec_driver_sql(f"INSERT INTO {VERSION_TABLE} VALUES ('{HEAD}')")


@cache
def _definitions(dialect_name: str) -> tuple[str, ...]:
    """The statements that create all tables and indexes, and the table of the revision as Alembic defines it."""
    dialect = sa.dialects.registry.load(dialect_name)()
    tables = METADATA.sorted_tables
    indexes = sorted((index for table in tables for index in table.indexes), key=lambda index: str(index.name))
    elements: list[CreateTable | CreateIndex] = [*map(CreateTable, tables), *map(CreateIndex, indexes)]
    version = (
        f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
        f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
    )
    return (*(str(element.compile(dialect=dialect)) for element in elements), version)


def alembic_config() -> "config.Config":
    """Alembic's configuration in memory."""
    settings = config.Config()
    # Alembic reads the option with ConfigParser's interpolation.
    settings.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    return settings
