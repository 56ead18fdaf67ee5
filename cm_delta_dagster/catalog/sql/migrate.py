"""Creates or migrates the schema of a catalog database. The revisions are in ``migrations``."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from cm_delta_dagster.errors import CatalogVersionError

VERSION_TABLE = "cm_delta_alembic_version"
HEAD = "0013"
"""Newest revision of this release; a constant, so that the check of an up-to-date database is one query."""

_ADVISORY_LOCK = 4_862_170_233_771
_READ_VERSION = sa.text(f"SELECT version_num FROM {VERSION_TABLE}")


def is_current(connection: sa.Connection) -> bool:
    """Whether the database has exactly this release's schema. False for a database without a schema."""
    try:
        return connection.execute(_READ_VERSION).scalars().all() == [HEAD]
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
    config = alembic_config()
    if has_catalog(connection):
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        unknown = sorted(set(connection.execute(_READ_VERSION).scalars()) - known)
        if unknown:
            raise CatalogVersionError(
                f"The catalog {url} has schema revision {', '.join(unknown)}, which this release does not know (its "
                f"own is {HEAD}): a newer release of cm-delta-dagster migrated it. Nothing was changed. Upgrade the package "
                "here."
            )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def alembic_config() -> Config:
    """Alembic's configuration in memory."""
    config = Config()
    # Alembic reads the option with ConfigParser's interpolation.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
