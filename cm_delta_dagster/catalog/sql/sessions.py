"""What a connection just made to PostgreSQL has to be told, and what stands between. Room: catalog.sql.

A connection pooler gives each transaction to whichever session of the server is free, so that what one of them was told or has
prepared means nothing for the next. It shows by the number that it gives to the connection, which is not that of the session.
"""

from typing import Any

from cm_delta_dagster.errors import CatalogError

_IS_POOLED = "cm_delta_is_pooled"
_NOT_DURABLE = frozenset({"off", "local"})


def prepare(connection: Any, record: Any) -> None:
    """A listener for SQLAlchemy's ``connect``: see to it that what the server has acknowledged is never lost.

    Raises:
        CatalogError: the server acknowledges too early, and behind a pooler it cannot be told not to.
    """
    before, connection.autocommit = connection.autocommit, True
    try:
        asked = "SELECT pg_backend_pid(), current_setting('synchronous_commit'), current_database()"
        session, synchronous_commit, database = connection.execute(asked).fetchone()
        record.info[_IS_POOLED] = session != connection.info.backend_pid
        if is_pooled(record):
            # The next session knows no statement that this one has prepared, or knows another by its name.
            connection.prepare_threshold = None
        if synchronous_commit in _NOT_DURABLE:
            if is_pooled(record):
                raise CatalogError(
                    f"PostgreSQL has synchronous_commit = {synchronous_commit} for {database}: in a crash it may lose commits "
                    "that it has acknowledged, and through the connection pooler before it that cannot be changed. Nothing was "
                    f"read or written. Run ALTER DATABASE {database} SET synchronous_commit = on, have the pooler reconnect, "
                    "or connect to the server itself."
                )
            connection.execute("SET synchronous_commit = on")
        connection.autocommit = before
    except BaseException:
        connection.close()
        raise


def is_pooled(record: Any) -> bool:
    """Whether a pooler stands before the server that the connection of this record was made to."""
    return bool(record.info.get(_IS_POOLED))
