"""Names: reserving, registering, resolving and dropping tables (CM-D1 to CM-D8).

Room: catalog.sql. Functions over an open connection; the transaction around them is the caller's. Files are never
touched.
"""

import uuid
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.catalog import CommitSummary, StagingTable, TableEntry, TableIdentifier
from cm_delta_dagster.catalog.sql import commits
from cm_delta_dagster.catalog.sql.schema import (
    ACTIVE,
    COMMITS,
    DROPPED,
    MAINTENANCE_CLAIMS,
    STAGING,
    TABLES,
)
from cm_delta_dagster.errors import TableAlreadyExistsError, TableNotFoundError

_NAME = (TABLES.c.catalog_name, TABLES.c.schema_name, TABLES.c.table_name)
_OF_NAME = sa.and_(
    TABLES.c.catalog_name == sa.bindparam("of_catalog"),
    TABLES.c.schema_name == sa.bindparam("of_schema"),
    TABLES.c.table_name == sa.bindparam("of_name"),
    TABLES.c.state == ACTIVE,
)
_HOLDER = sa.select(TABLES.c.table_id).where(_OF_NAME)
_LOAD = (
    sa.select(TABLES, *commits.COMMIT_COLUMNS)
    .select_from(
        TABLES.outerjoin(
            COMMITS,
            sa.and_(COMMITS.c.table_id == TABLES.c.table_id, COMMITS.c.version > TABLES.c.published_version),
        )
    )
    .where(_OF_NAME)
    .order_by(COMMITS.c.version)
)
_LOCKED = sa.select(TABLES).where(TABLES.c.table_id == sa.bindparam("of_table")).with_for_update()
_ACTIVATE = (
    sa.update(TABLES)
    .where(TABLES.c.table_id == sa.bindparam("of_table"))
    .values(
        state=ACTIVE,
        published_version=0,
        catalog_name=sa.bindparam("of_catalog"),
        schema_name=sa.bindparam("of_schema"),
        table_name=sa.bindparam("of_name"),
        created_ms=sa.bindparam("now_ms"),
    )
)
_DROP = (
    sa.update(TABLES)
    .where(_OF_NAME)
    .values(state=DROPPED, dropped_ms=sa.bindparam("now_ms"))
    .returning(TABLES.c.table_id)
)


def create_staging_table(
    connection: sa.Connection, identifier: TableIdentifier, *, warehouse: str, now_ms: int
) -> StagingTable:
    """A new row that no name resolves to."""
    if connection.execute(_HOLDER, _name_parameters(identifier)).first() is not None:
        raise _name_taken(identifier)
    table_id = str(uuid.uuid4())
    location = f"{warehouse}/{identifier.catalog}/{identifier.schema}/{identifier.table}-{uuid.uuid4().hex[:12]}"
    connection.execute(
        sa.insert(TABLES).values(
            table_id=table_id,
            catalog_name=identifier.catalog,
            schema_name=identifier.schema,
            table_name=identifier.table,
            location=location,
            state=STAGING,
            latest_version=-1,
            published_version=-1,
            latest_data_version=-1,
            latest_in_commit_timestamp=-1,
            reserved_ms=now_ms,
        )
    )
    return StagingTable(table_id=table_id, location=location)


def register_table(
    connection: sa.Connection, table_id: str, identifier: TableIdentifier, *, summary: CommitSummary, now_ms: int
) -> TableEntry:
    """The name and version 0 in one transaction; the unique index over active names decides between rivals."""
    row = connection.execute(_LOCKED, {"of_table": table_id}).one_or_none()
    if row is None or row.state == DROPPED:
        raise TableNotFoundError(
            f"{identifier} was not registered: the table id {table_id} was never reserved here, or its table was "
            "dropped. Create the table anew."
        )
    if row.state == ACTIVE:
        if _identifier(row) != identifier:
            raise TableAlreadyExistsError(
                f"The table id {table_id} is registered as {_identifier(row)} already and cannot "
                f"become {identifier} too."
            )
        return load_table(connection, identifier)
    try:
        connection.execute(_ACTIVATE, {"of_table": table_id, "now_ms": now_ms, **_name_parameters(identifier)})
    except sa.exc.IntegrityError as error:
        raise _name_taken(identifier) from error
    commits.insert_commit(connection, table_id, commits.initial_commit(summary), data_version=0, now_ms=now_ms)
    return load_table(connection, identifier)


def load_table(connection: sa.Connection, identifier: TableIdentifier) -> TableEntry:
    """Name, head and served commits from one statement."""
    rows = connection.execute(_LOAD, _name_parameters(identifier)).all()
    if not rows:
        raise _no_such_name(identifier)
    head = rows[0]
    return TableEntry(
        identifier=identifier,
        table_id=head.table_id,
        location=head.location,
        ratified=commits.ratified_commits(head, rows),
        created_ms=head.created_ms,
    )


def drop_table(connection: sa.Connection, identifier: TableIdentifier, *, now_ms: int) -> None:
    """Frees the name; the row, the commits and every file stay (CM-D6)."""
    dropped = connection.execute(_DROP, {"now_ms": now_ms, **_name_parameters(identifier)}).scalar_one_or_none()
    if dropped is None:
        raise _no_such_name(identifier)
    connection.execute(sa.delete(MAINTENANCE_CLAIMS).where(MAINTENANCE_CLAIMS.c.table_id == dropped))


def list_tables(connection: sa.Connection, parts: tuple[str, ...]) -> tuple[TableIdentifier, ...]:
    """Registered names that begin with ``parts``, sorted by code point whatever the database's collation."""
    conditions = [column == part for column, part in zip(_NAME, parts, strict=False)]
    rows = connection.execute(sa.select(*_NAME).where(TABLES.c.state == ACTIVE, *conditions)).all()
    return tuple(sorted(_identifier(row) for row in rows))


def _identifier(row: Any) -> TableIdentifier:
    return TableIdentifier(row.catalog_name, row.schema_name, row.table_name)


def _name_parameters(identifier: TableIdentifier) -> dict[str, str]:
    return {"of_catalog": identifier.catalog, "of_schema": identifier.schema, "of_name": identifier.table}


def _name_taken(identifier: TableIdentifier) -> TableAlreadyExistsError:
    return TableAlreadyExistsError(f"{identifier} exists already: choose another name, or drop that table first.")


def _no_such_name(identifier: TableIdentifier) -> TableNotFoundError:
    return TableNotFoundError(
        f"The catalog has no table {identifier}: check the name, or create the table. Names are case-sensitive."
    )
