"""Commit locks: concurrent writers of one table wait for each other instead of conflicting.

The lock is advisory. Ratification does not depend on it, so that a lock that is not acquired, or is lost with its connection,
costs time and never data. On PostgreSQL it is a transaction-level advisory lock, granted in order of request. For SQLite it is
a lock on a file beside the database. Both are released when their process ends. Through a connection pooler no lock is
acquired: the waiting writers would use the few connections of which the holder needs one.
"""

import hashlib
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.file_lock import file_lock
from cm_delta_dagster.catalog.sql.database.postgres_session import is_pooled

_log = logging.getLogger(__name__)

_HOLDER_TIMEOUT_SECONDS = 10.0
"""The server ends the session of a holder that sends nothing for this long, e.g. because its machine lost the network."""

_RETRY_AFTER_SECONDS = 30.0
"""After a connection for locks could not be opened, the process acquires no lock for this long."""
_FIRST_WITH_IDLE_TIMEOUT = 140000
"""The first version of PostgreSQL with ``idle_session_timeout``."""
_IDLE_SECONDS = 10.0
"""The server ends a connection for locks that is idle for this long."""
_CONNECTIONS_ARE_FEW = """
SELECT greatest(
    2 * count(*)::float8 / current_setting('max_connections')::int,
    2 * count(*) FILTER (WHERE usename = current_user)::float8
        / (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),
    2 * count(*) FILTER (WHERE datname = current_database())::float8
        / (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database())
) > 1
FROM pg_stat_activity WHERE backend_type = 'client backend'
"""

_LOCK_FILES = 64
"""Number of lock files. Writers of two tables that share a file wait for each other, which is rare and harmless."""


def file_commit_lock(database: str, table_id: str, *, seconds: float) -> AbstractContextManager[bool]:
    """Hold the commit lock of the table within the block, if acquired within ``seconds``. The value is whether it is held.

    Args:
        database: path of the SQLite file; the lock files are in a directory beside it.
    """
    return file_lock(Path(f"{database}-locks") / f"{_number(table_id) % _LOCK_FILES:02d}.lock", seconds=seconds)


class AdvisoryCommitLocks:
    """Commit locks of one PostgreSQL database.

    Args:
        engine: READ COMMITTED connections that are used for locks only, so that a waiting writer never blocks the commit of the
            holder. They are opened only while fewer than half of the connections that the server allows are in use.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self._retry_after = 0.0
        self._errors = (sa.exc.SQLAlchemyError, engine.dialect.loaded_dbapi.Error)
        sa.event.listen(engine, "connect", _check_connection)

    @contextmanager
    def commit_lock(
        self, table_id: str, *, seconds: float, holder_timeout_seconds: float = _HOLDER_TIMEOUT_SECONDS
    ) -> Iterator[bool]:
        """Same as :func:`file_commit_lock`.

        Args:
            holder_timeout_seconds: the server releases the lock when the holder sends nothing for this long.
        """
        limits = {"lock_timeout": seconds, "idle_in_transaction_session_timeout": holder_timeout_seconds}
        set_limits = "".join(f"SET LOCAL {name} = {max(1, int(value * 1000))}; " for name, value in limits.items())
        connection = self._acquired(f"{set_limits}SELECT pg_advisory_xact_lock({_number(table_id)})")
        try:
            yield connection is not None
        finally:
            if connection is not None:
                self._end(connection)

    def _acquired(self, wait: str) -> sa.PoolProxiedConnection | None:
        """A connection whose transaction holds the lock; None if it was not acquired."""
        if time.monotonic() < self._retry_after:
            return None
        try:
            connection = self.engine.raw_connection()
        except sa.exc.TimeoutError:
            return None  # Other threads of this process use every connection for locks.
        except self._errors as error:
            _log.debug("No connection for a commit lock: %s", error)
            self._retry_after = time.monotonic() + _RETRY_AFTER_SECONDS
            return None
        try:
            connection.dbapi_connection.execute(wait)  # type: ignore[union-attr]  # psycopg connections have execute().
        except self._errors as error:
            _log.debug("No commit lock was acquired: %s", error)
            self._end(connection)  # Other threads of this process may wait for the connection.
            return None
        return connection

    def _end(self, connection: sa.PoolProxiedConnection) -> None:
        driver: Any = connection.dbapi_connection
        with suppress(*self._errors):  # A closed connection has released the lock.
            driver.rollback()
        if driver.closed:
            connection.invalidate()
        connection.close()


class _FewConnectionsError(sa.exc.SQLAlchemyError):
    """Few connections are left, and commits need them."""


def _check_connection(connection: Any, record: Any) -> None:
    """Close a new connection for locks if few connections are left; otherwise have the server end it when it is idle."""
    before, connection.autocommit = connection.autocommit, True
    try:
        if is_pooled(record):
            raise _FewConnectionsError("the connection goes through a connection pooler")
        if connection.execute(_CONNECTIONS_ARE_FEW).fetchone()[0]:
            raise _FewConnectionsError("more than half of the server's connections are in use")
        if connection.info.server_version >= _FIRST_WITH_IDLE_TIMEOUT:
            connection.execute(f"SET idle_session_timeout = {int(_IDLE_SECONDS * 1000)}")
        connection.autocommit = before
    except BaseException:
        connection.close()
        raise


def _number(table_id: str) -> int:
    """A signed 64-bit number of the table, the same in every process."""
    return int.from_bytes(hashlib.sha256(b"cm-delta-commit-lock:" + table_id.encode()).digest()[:8], "big", signed=True)
