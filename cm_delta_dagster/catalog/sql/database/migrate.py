"""Creates the schema of a catalog database, or migrates that of an earlier release. The steps are in ``migrations``."""

import uuid
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable

from cm_delta_dagster.catalog.sql.database import owning_role
from cm_delta_dagster.catalog.sql.database.schema import FEED_COUNTER, IDENTITY, METADATA, ONLY_ON
from cm_delta_dagster.deferred_module import DeferredModule
from cm_delta_dagster.errors import CatalogVersionError

if TYPE_CHECKING:
    from cm_delta_dagster.catalog.sql.database.migrations import (
        from_0004,
        from_0013,
        from_0014,
        from_0015,
        from_0016,
        from_0017,
        from_0018,
        from_0019,
        from_0020,
        from_0021,
    )
else:  # Only an older database needs them.
    from_0004 = DeferredModule("cm_delta_dagster.catalog.sql.database.migrations.from_0004")
    from_0013 = DeferredModule("cm_delta_dagster.catalog.sql.database.migrations.from_0013")
    from_0014 = DeferredModule("cm_delta_dagster.catalog.sql.database.migrations.from_0014")
    from_0015 = DeferredModule("cm_delta_dagster.catalog.sql.database.migrations.from_0015")
    from_0016 = DeferredModule("cm_delta_dagster.catalog.sql.database.migrations.from_0016")
    from_0017 = DeferredModule("cm_delta_dagster.catalog.sql.database.migrations.from_0017")
    from_0018 = DeferredModule("cm_delta_dagster.catalog.sql.database.migrations.from_0018")
    from_0019 = DeferredModule("cm_delta_dagster.catalog.sql.database.migrations.from_0019")
    from_0020 = DeferredModule("cm_delta_dagster.catalog.sql.database.migrations.from_0020")
    from_0021 = DeferredModule("cm_delta_dagster.catalog.sql.database.migrations.from_0021")

VERSION_TABLE = "cm_delta_alembic_version"
"""Earlier releases migrated with Alembic; its table stays, so that every release refuses what a newer one has migrated."""
HEAD = "0022"
"""Newest revision of this release; a constant, so that the check of an up-to-date database is one query."""

REFUSED = ("0001", "0002", "0003", *(f"{number:04}" for number in range(5, 13)))
"""Revisions that no release had and from which this one does not migrate."""
COMMIT_FOR_REFUSED = "23c63dea"
"""A commit of this package that migrates from them, to 0015."""

_ADVISORY_LOCK = 4_862_170_233_771
_HAS_OTHER_OWNER = sa.text(
    "SELECT pg_catalog.pg_get_userbyid(relowner) <> :owner FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass(:table)"
)
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
        CatalogVersionError: the database has a revision that this release does not know, or from which it does not migrate.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    if not has_catalog(connection):
        create(connection)
    elif not is_current(connection):
        _migrate(connection, url=url)


def _migrate(connection: sa.Connection, *, url: str) -> None:
    """Run the steps from the database's revision to ``HEAD``."""
    steps: Mapping[str, tuple[str, Callable[[sa.Connection], None]]] = {
        "0004": ("0021", from_0004.upgrade),
        "0013": ("0014", from_0013.upgrade),
        "0014": ("0015", from_0014.upgrade),
        "0015": ("0016", from_0015.upgrade),
        "0016": ("0017", from_0016.upgrade),
        "0017": ("0018", from_0017.upgrade),
        "0018": ("0019", from_0018.upgrade),
        "0019": ("0020", from_0019.upgrade),
        "0020": ("0021", from_0020.upgrade),
        "0021": (HEAD, from_0021.upgrade),
    }
    revision = ", ".join(sorted(revisions(connection)))
    if revision not in steps:
        raise CatalogVersionError(_refusal(revision, tuple(steps), url=url))
    while revision != HEAD:
        revision, upgrade_from = steps[revision]
        upgrade_from(connection)
    if connection.dialect.name == "postgresql":
        _hand_over(connection)
    connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '{HEAD}'")


def _hand_over(connection: sa.Connection) -> None:
    """Tables that a member of the owning role has added belong to the owning role, like the others."""
    owner = owning_role.of(connection)
    assert owner is not None
    name = connection.dialect.identifier_preparer.quote(owner.name)
    for table in METADATA.tables:
        if connection.execute(_HAS_OTHER_OWNER, {"table": table, "owner": owner.name}).scalar_one():
            connection.exec_driver_sql(f"ALTER TABLE {table} OWNER TO {name}")


def _refusal(revision: str, known: tuple[str, ...], *, url: str) -> str:
    if revision in REFUSED:
        return (
            f"The catalog {url} has schema revision {revision}, which this release does not migrate: no release had it. Nothing "
            f"was changed. Install commit {COMMIT_FOR_REFUSED} of this package, open the catalog once, "
            f"and use this release again. This release itself migrates the revisions {', '.join(known)}."
        )
    return (
        f"The catalog {url} has schema revision {revision or 'none'}, which this release does not know (its own is {HEAD}): a "
        "newer release of cm-delta-dagster migrated it. Nothing was changed. Upgrade the package here."
    )


def create(connection: sa.Connection) -> None:
    """Create the schema of this release, in the caller's write transaction, in a database that has none."""
    for statement in _definitions(connection.dialect.name):
        connection.exec_driver_sql(statement)
    connection.execute(FEED_COUNTER.insert(), {"counter_id": 1, "position": 0})
    connection.execute(IDENTITY.insert(), {"row_id": 1, "catalog_id": str(uuid.uuid4())})
    connection.exec_driver_sql(f"INSERT INTO {VERSION_TABLE} VALUES ('{HEAD}')")


@cache
def _definitions(dialect_name: str) -> tuple[str, ...]:
    """The statements that create all tables and indexes, and the table of the revision."""
    dialect = sa.dialects.registry.load(dialect_name)()
    tables = METADATA.sorted_tables
    present = (index for table in tables for index in table.indexes if index.info.get(ONLY_ON) in (None, dialect_name))
    indexes = sorted(present, key=lambda index: str(index.name))
    elements: list[CreateTable | CreateIndex] = [*map(CreateTable, tables), *map(CreateIndex, indexes)]
    version = (
        f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
        f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
    )
    return (*(str(element.compile(dialect=dialect)) for element in elements), version)
