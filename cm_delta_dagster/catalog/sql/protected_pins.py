"""Pins of roles that do not own the tables of a catalog whose grants PostgreSQL enforces: calls of its function."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import pins
from cm_delta_dagster.catalog.sql.commit_rows import unknown_table

_PIN = sa.text("SELECT cm_delta_pin_version(:of_table, :of_version, :of_owner, :is_raised)")


def pin(connection: sa.Connection, table_id: str, version: int, *, owner: str) -> int:
    """As :func:`pins.pin`, with the server's clock."""
    return _call(connection, table_id, version, owner=owner, is_raised=False)


def raise_pin(connection: sa.Connection, table_id: str, version: int, *, owner: str) -> int:
    """As :func:`pins.raise_pin`, with the server's clock."""
    return _call(connection, table_id, version, owner=owner, is_raised=True)


def _call(connection: sa.Connection, table_id: str, version: int, *, owner: str, is_raised: bool) -> int:
    pins.check(version, owner)
    values = {"of_table": table_id, "of_version": version, "of_owner": owner, "is_raised": is_raised}
    answer = connection.execute(_PIN, values).scalar_one()
    if answer is None:
        raise unknown_table(table_id)
    return int(answer)
