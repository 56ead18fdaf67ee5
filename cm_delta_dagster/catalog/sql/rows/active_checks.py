"""Which checks of proposals run for the tables of a scope; ``ratification.checks`` lists them."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.schema import ACTIVE_CHECKS, scope_keys

IS_ACTIVE_FOR_TABLE = ACTIVE_CHECKS.c.scope.in_(scope_keys())
"""Whether a row of ``ACTIVE_CHECKS`` applies to the table of a row of ``TABLES``."""


def activate(connection: sa.Connection, name: str, scope: str) -> None:
    """Have the check run for the tables of ``scope``: ``*``, a catalog, a schema, a table's name, or ``id:`` and a table's id."""
    if not is_active(connection, name, scope):
        try:
            with connection.begin_nested():
                connection.execute(sa.insert(ACTIVE_CHECKS).values(check_name=name, scope=scope))
        except sa.exc.IntegrityError:  # Another client activated it concurrently.
            return


def deactivate(connection: sa.Connection, name: str, scope: str) -> None:
    """Undo :func:`activate`."""
    connection.execute(sa.delete(ACTIVE_CHECKS).where(*_same(name, scope)))


def is_active(connection: sa.Connection, name: str, scope: str) -> bool:
    """Whether the check was activated for exactly this scope."""
    return connection.execute(sa.select(ACTIVE_CHECKS.c.scope).where(*_same(name, scope))).first() is not None


def _same(name: str, scope: str) -> tuple[sa.ColumnElement[bool], ...]:
    return ACTIVE_CHECKS.c.check_name == name, ACTIVE_CHECKS.c.scope == scope
