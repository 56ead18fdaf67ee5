"""Which tables have a name, or a name in a scope."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.schema import IS_ACTIVE, NAME_COLUMNS, TABLES
from cm_delta_dagster.catalog.sql.rows import name_order
from cm_delta_dagster.catalog.sql.rows.errors import no_such_name
from cm_delta_dagster.catalog.sql.rows.names import check_identifier, scope_parts
from cm_delta_dagster.catalog.tables import TableIdentifier

OF_NAME = sa.and_(
    TABLES.c.catalog_name == sa.bindparam("of_catalog"),
    TABLES.c.schema_name == sa.bindparam("of_schema"),
    TABLES.c.table_name == sa.bindparam("of_name"),
    IS_ACTIVE,
)
HOLDER = sa.select(TABLES.c.table_id).where(OF_NAME)


def name_parameters(identifier: TableIdentifier) -> dict[str, str]:
    """The parameters of a name in the statements of this package."""
    return {"of_catalog": identifier.catalog, "of_schema": identifier.schema, "of_name": identifier.table}


def in_scope(scope: str, columns: Sequence[sa.Column[str]] = NAME_COLUMNS) -> sa.ColumnElement[bool]:
    """Whether the name in ``columns`` is in ``scope``, empty for the whole catalog. Raises InvalidArgumentError."""
    parts = () if scope == "" else scope_parts(scope)
    return sa.and_(sa.true(), *(column == part for column, part in zip(columns, parts, strict=False)))


def in_order(
    connection: sa.Connection,
    columns: "sa.Select[Any]",
    *,
    scope: str,
    after: TableIdentifier | None,
    limit: int | None,
) -> "sa.Select[Any]":
    """The tables that have a name in ``scope``, in the order of their names, from the one that follows ``after``.

    Args:
        columns: what is read of ``TABLES``.

    Raises:
        InvalidArgumentError: scope, name or limit are impossible.
    """
    if after is not None:
        check_identifier(after)
    return name_order.part_of(
        connection,
        columns.where(IS_ACTIVE),
        NAME_COLUMNS,
        parents=() if scope == "" else scope_parts(scope),
        after=None if after is None else (after.catalog, after.schema, after.table),
        limit=limit,
    )


def id_of(connection: sa.Connection, identifier: TableIdentifier) -> str:
    """The id of the table that has the name. Raises TableNotFoundError."""
    table_id = connection.execute(HOLDER, name_parameters(identifier)).scalar_one_or_none()
    if table_id is None:
        raise no_such_name(identifier)
    return str(table_id)
