"""Catalogs and schemas: creation, drop, and the guarantee that the schema of each named table exists.

Functions over an open connection; the caller opens the transaction. What gives a table a name shares the lock of the rows of its
catalog and schema, and a drop locks its row exclusively before it looks for tables: so either the drop finds the table, or the
table finds no row and inserts it again. On SQLite the lock of the database does the same.
"""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from cm_delta_dagster.catalog.namespaces import Namespace
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.access.audit import Change
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import IS_ACTIVE, NAMESPACES, REGISTERED_PATHS, TABLES
from cm_delta_dagster.catalog.sql.rows import names
from cm_delta_dagster.catalog.sql.rows.name_order import part_of
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.texts import checked_text
from cm_delta_dagster.errors import NamespaceAlreadyExistsError, NamespaceNotEmptyError, NamespaceNotFoundError

_SHARED = (
    sa.select(NAMESPACES.c.name)
    .where(NAMESPACES.c.name.in_((sa.bindparam("of_catalog"), sa.bindparam("of_schema"))))
    .with_for_update(read=True, key_share=True)
)
_EXCLUSIVE = sa.select(NAMESPACES).where(NAMESPACES.c.name == sa.bindparam("of_name")).with_for_update()
_MAX_NAMED = 3


def ensure_schema(connection: sa.Connection, identifier: TableIdentifier) -> None:
    """Create the catalog and the schema of a table that gets its name, and keep others from dropping them in the meantime."""
    catalog, schema = identifier.catalog, f"{identifier.catalog}.{identifier.schema}"
    while len(connection.execute(_SHARED, {"of_catalog": catalog, "of_schema": schema}).all()) < 2:
        # A row that another client has inserted is not locked yet, and may be dropped before it is: look again.
        _insert(connection, catalog)
        _insert(connection, schema)


class SqlNamespaces(Part):
    """Catalogs and schemas; implements :class:`~cm_delta_dagster.catalog.namespaces.NamespaceRegistry`."""

    @writes
    def create_namespace(
        self, connection: sa.Connection, name: str, *, comment: str = "", properties: Mapping[str, str] | None = None
    ) -> Namespace:
        """Create a catalog or schema. Raises NamespaceAlreadyExistsError, InvalidArgumentError."""
        names.check_namespace(name)
        checked_text(comment, what="the comment of a catalog or schema")
        texts = dict(properties or {})
        for text in (*texts, *texts.values()):
            checked_text(text, what="a property of a catalog or schema")
        catalog, _, schema = name.partition(".")
        operation = Operation.CREATE_SCHEMA if schema else Operation.CREATE_CATALOG
        guard.require(connection, operation, name)
        while schema and connection.execute(_SHARED, {"of_catalog": catalog, "of_schema": catalog}).first() is None:
            _insert(connection, catalog)
        if not _insert(connection, name, comment=comment, properties=texts):
            raise NamespaceAlreadyExistsError(
                f"The {_kind(name)} {name} exists already; nothing was changed. Choose another name, or create it only if it does "
                "not exist."
            )
        audit.record(connection, Change(action=operation, scope=name, after=comment or None))
        return _namespace(connection.execute(sa.select(NAMESPACES).where(NAMESPACES.c.name == name)).one())

    @writes
    def drop_namespace(self, connection: sa.Connection, name: str) -> None:
        """Delete an empty catalog or schema. Raises NamespaceNotFoundError, NamespaceNotEmptyError, InvalidArgumentError."""
        names.check_namespace(name)
        catalog, _, schema = name.partition(".")
        operation = Operation.DROP_SCHEMA if schema else Operation.DROP_CATALOG
        guard.require(connection, operation, name)
        row = connection.execute(_EXCLUSIVE, {"of_name": name}).one_or_none()
        if row is None:
            raise NamespaceNotFoundError(
                f"The catalog has no {_kind(name)} {name}; nothing was changed. Check the name. Names are case-sensitive."
            )
        contents = _tables_in(connection, catalog, schema) if schema else _schemas_in(connection, catalog)
        if contents:
            shown = ", ".join(contents[:_MAX_NAMED]) + (", ..." if len(contents) > _MAX_NAMED else "")
            remedy = (
                "Drop or rename its tables, and unregister its paths, first." if schema else "Drop its schemas first."
            )
            raise NamespaceNotEmptyError(f"The {_kind(name)} {name} was not dropped: it has {shown}. {remedy}")
        connection.execute(sa.delete(NAMESPACES).where(NAMESPACES.c.name == name))
        audit.record(connection, Change(action=operation, scope=name, before=row.comment or None))

    @reads
    def list_catalogs(
        self, connection: sa.Connection, *, after: str = "", limit: int | None = None
    ) -> tuple[Namespace, ...]:
        """The catalogs, sorted by name. Raises InvalidArgumentError for an impossible name or limit."""
        catalogs = sa.select(NAMESPACES).where(NAMESPACES.c.catalog_name.is_(None))
        return _namespaces(connection, catalogs, levels=1, parents=(), after=after, limit=limit)

    @reads
    def list_schemas(
        self, connection: sa.Connection, catalog: str = "", *, after: str = "", limit: int | None = None
    ) -> tuple[Namespace, ...]:
        """The schemas of a catalog, or of all, sorted by name. Raises InvalidArgumentError for an impossible name or limit."""
        if catalog:
            names.check_namespace(catalog, levels=1)
        schemas = sa.select(NAMESPACES).where(NAMESPACES.c.catalog_name.is_not(None))
        return _namespaces(
            connection, schemas, levels=2, parents=(catalog,) if catalog else (), after=after, limit=limit
        )


def _insert(
    connection: sa.Connection, name: str, *, comment: str = "", properties: Mapping[str, str] | None = None
) -> bool:
    """Insert the row unless it exists, also if another client inserts it concurrently. Returns whether it was inserted."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    catalog, _, schema = name.partition(".")
    values = {
        "name": name,
        "catalog_name": catalog if schema else None,
        "comment": comment,
        "properties": json.dumps(dict(properties or {})),
        "created_by": caller_of(connection),
        "created_ms": now_of(connection),
    }
    insert = dialect.insert(NAMESPACES).values(values).on_conflict_do_nothing().returning(NAMESPACES.c.name)
    return connection.execute(insert).first() is not None


def _schemas_in(connection: sa.Connection, catalog: str) -> list[str]:
    """The names of some schemas of the catalog, at most one more than a message shows."""
    schemas = sa.select(NAMESPACES.c.name).where(NAMESPACES.c.catalog_name == catalog)
    return list(connection.execute(schemas.order_by(NAMESPACES.c.name).limit(_MAX_NAMED + 1)).scalars())


def _tables_in(connection: sa.Connection, catalog: str, schema: str) -> list[str]:
    """The names of some tables and registered paths of the schema, at most one more than a message shows."""
    tables, paths = TABLES.c, REGISTERED_PATHS.c
    of_schema = sa.union_all(
        sa.select(tables.table_name.label("name")).where(
            IS_ACTIVE, tables.catalog_name == catalog, tables.schema_name == schema
        ),
        sa.select(paths.table_name).where(paths.catalog_name == catalog, paths.schema_name == schema),
    ).subquery()
    names = sa.select(of_schema.c.name).order_by(of_schema.c.name).limit(_MAX_NAMED + 1)
    return [f"{catalog}.{schema}.{name}" for name in connection.execute(names).scalars()]


def _namespaces(
    connection: sa.Connection,
    rows: "sa.Select[Any]",
    *,
    levels: int,
    parents: tuple[str, ...],
    after: str,
    limit: int | None,
) -> tuple[Namespace, ...]:
    """The namespaces of a part of the rows. Schemas of one catalog have the order of their names."""
    if after:
        names.check_namespace(after, levels=levels)
    columns = (NAMESPACES.c.name,) if levels == 1 else (NAMESPACES.c.catalog_name, NAMESPACES.c.name)
    last = (after,) if levels == 1 else (after.partition(".")[0], after)
    part = part_of(connection, rows, columns, parents=parents, after=last if after else None, limit=limit)
    return tuple(_namespace(row) for row in connection.execute(part))


def _namespace(row: Any) -> Namespace:
    return Namespace(
        name=row.name,
        comment=row.comment,
        properties=json.loads(row.properties),
        created_by=row.created_by,
        created_ms=row.created_ms,
    )


def _kind(name: str) -> str:
    return "schema" if "." in name else "catalog"
