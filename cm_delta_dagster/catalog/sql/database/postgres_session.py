"""Settings and checks of a new PostgreSQL connection.

A connection pooler runs each transaction in any free session of the server, so that settings and prepared statements do not
last. It is detected by the backend process id that it reports, which differs from that of the session.
"""

from typing import Any

from cm_delta_dagster.catalog.server_clock import ServerClock, seconds_since_boot
from cm_delta_dagster.catalog.sql.database.callers import SESSION_USER
from cm_delta_dagster.errors import CatalogError

_IS_POOLED = "cm_delta_is_pooled"
_NOT_DURABLE = frozenset({"off", "local"})
_SESSION_QUERY = (
    "SELECT pg_backend_pid(), current_setting('synchronous_commit'), current_database(), "
    "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint), session_user"
)


class DatabaseClock(ServerClock):
    """The clock of the database server, read with each new connection. Thread-safe."""

    def prepare(self, connection: Any, record: Any) -> None:
        """A listener for SQLAlchemy's ``connect``: runs :func:`prepare` and stores the server's time."""
        before = seconds_since_boot()
        server_ms = prepare(connection, record)
        after = seconds_since_boot()
        self.set(server_ms, at_seconds=(before + after) / 2)


def prepare(connection: Any, record: Any) -> int:
    """Ensure that a commit which the server acknowledges on this new connection is durable.

    Returns:
        The server's time, epoch milliseconds.

    Raises:
        CatalogError: the server acknowledges before a commit is durable, and behind a pooler a session cannot change it.
    """
    before, connection.autocommit = connection.autocommit, True
    try:
        session, synchronous_commit, database, server_ms, user = connection.execute(_SESSION_QUERY).fetchone()
        record.info[SESSION_USER] = str(user)
        record.info[_IS_POOLED] = session != connection.info.backend_pid
        if is_pooled(record):
            # The next session does not have the statements that this one has prepared, or has others of the same name.
            connection.prepare_threshold = None
        if synchronous_commit in _NOT_DURABLE:
            if is_pooled(record):
                raise CatalogError(
                    f"PostgreSQL has synchronous_commit = {synchronous_commit} for {database}: in a crash it may lose commits "
                    "that it has acknowledged, and a session cannot change it through a connection pooler. Nothing was "
                    f"read or written. Run ALTER DATABASE {database} SET synchronous_commit = on, have the pooler reconnect, "
                    "or connect to the server itself."
                )
            connection.execute("SET synchronous_commit = on")
        connection.autocommit = before
        return int(server_ms)
    except BaseException:
        connection.close()
        raise


def is_pooled(record: Any) -> bool:
    """Whether the connection of this record goes through a connection pooler."""
    return bool(record.info.get(_IS_POOLED))
