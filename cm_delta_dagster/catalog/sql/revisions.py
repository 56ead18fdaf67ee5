"""The revisions of the catalog's schema, which Alembic runs; ``migrate`` imports this module when it needs one."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from cm_delta_dagster.catalog.sql import migrate
from cm_delta_dagster.errors import CatalogVersionError


def upgrade_with_alembic(connection: sa.Connection, *, url: str) -> None:
    """Run the revisions that the database lacks. Arguments and errors are those of ``migrate.upgrade``."""
    config = alembic_config()
    if migrate.has_catalog(connection):
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        unknown = sorted(set(connection.execute(migrate.READ_VERSION).scalars()) - known)
        if unknown:
            raise CatalogVersionError(
                f"The catalog {url} has schema revision {', '.join(unknown)}, which this release does not know (its "
                f"own is {migrate.HEAD}): a newer release of cm-delta-dagster migrated it. Nothing was changed. Upgrade the "
                "package here."
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
