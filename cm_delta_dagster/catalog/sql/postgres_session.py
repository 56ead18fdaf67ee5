"""What a connection just made to PostgreSQL has to be told, and what stands between.

A connection pooler gives each transaction to whichever session of the server is free, so that what one of them was told or has
prepared means nothing for the next. It shows by the number that it gives to the connection, which is not that of the session.
"""

import time
from typing import Any

from cm_delta_dagster.errors import CatalogError

_IS_POOLED = "cm_delta_is_pooled"
_NOT_DURABLE = frozenset({"off", "local"})
_ASKED = (
    "SELECT pg_backend_pid(), current_setting('synchronous_commit'), current_database(), "
    "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
)


def _seconds_since_boot() -> float:
    """A clock that nobody sets and that goes on while the machine sleeps, where the system has one."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class ServerClock:
    """The server's clock, read with each new connection and counted on from there. Thread-safe."""

    def __init__(self) -> None:
        self._read: tuple[float, float] | None = None

    def now_ms(self) -> int | None:
        """Epoch milliseconds; None before the first connection."""
        if self._read is None:
            return None
        server_ms, at_seconds = self._read
        return int(server_ms + (_seconds_since_boot() - at_seconds) * 1000)

    def prepare(self, connection: Any, record: Any) -> None:
        """A listener for SQLAlchemy's ``connect``: :func:`prepare`, and the server's time from the same answer."""
        before = _seconds_since_boot()
        server_ms = prepare(connection, record)
        after = _seconds_since_boot()
        self._read = server_ms, (before + after) / 2


def prepare(connection: Any, record: Any) -> int:
    """See to it that what the server has acknowledged on this new connection is never lost.

    Returns:
        The server's time, epoch milliseconds.

    Raises:
        CatalogError: the server acknowledges too early, and behind a pooler it cannot be told not to.
    """
    before, connection.autocommit = connection.autocommit, True
    try:
        session, synchronous_commit, database, server_ms = connection.execute(_ASKED).fetchone()
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
        return int(server_ms)
    except BaseException:
        connection.close()
        raise


def is_pooled(record: Any) -> bool:
    """Whether a pooler stands before the server that the connection of this record was made to."""
    return bool(record.info.get(_IS_POOLED))
