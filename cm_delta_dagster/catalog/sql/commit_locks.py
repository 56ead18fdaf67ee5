"""Turns: writers of one table who have met wait in a row instead of racing each other.

Advice and nothing more. Whether a version is ratified is decided by the commit alone, so that a turn that is not had, or is lost
with a connection, costs time and never data. On PostgreSQL it is an advisory lock of a transaction, first come, first served;
beside a SQLite file it is a lock on a file, since whoever shares the one can share the other. Both end with their process. Behind a
connection pooler there are none: those who wait would take the few connections of which the holder needs one.
"""

import hashlib
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.file_lock import file_lock
from cm_delta_dagster.catalog.sql.postgres_session import is_pooled

_log = logging.getLogger(__name__)

_SILENT_SECONDS = 10.0
"""A turn in a database is over once nothing was heard of its holder for so long: its machine may be off the net."""

_REST_SECONDS = 30.0
"""So long nobody asks for a turn after there was no connection to be had for it."""
_KNOWS_IDLE_SESSIONS = 140000
_IDLE_SECONDS = 10.0
"""So long a connection for turns is kept for the next one."""
_IS_CROWDED = """
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
"""Tables that share one wait for each other needlessly, which is rare, and harmless."""


def file_turn(database: str, table_id: str, *, seconds: float) -> AbstractContextManager[bool]:
    """Hold the table's turn within the block, if it can be had within ``seconds``; tells whether it is held.

    Args:
        database: path of the SQLite file; the locks are in a directory beside it.
    """
    return file_lock(Path(f"{database}-turns") / f"{_number(table_id) % _LOCK_FILES:02d}.lock", seconds=seconds)


class AdvisoryTurns:
    """The same on one PostgreSQL database.

    Args:
        engine: of connections, READ COMMITTED, that nobody needs to commit: else those who wait could keep the holder waiting.
            They are made only while fewer than half of those that the server allows are taken, and not kept for long.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self._rests_until = 0.0
        self._errors = (sa.exc.SQLAlchemyError, engine.dialect.loaded_dbapi.Error)
        sa.event.listen(engine, "connect", _spare_connection)

    @contextmanager
    def commit_lock(self, table_id: str, *, seconds: float, silent_seconds: float = _SILENT_SECONDS) -> Iterator[bool]:
        """As :func:`file_turn`.

        Args:
            silent_seconds: after so long without a word from the holder the server takes the turn back.
        """
        limits = {"lock_timeout": seconds, "idle_in_transaction_session_timeout": silent_seconds}
        set_limits = "".join(f"SET LOCAL {name} = {max(1, int(value * 1000))}; " for name, value in limits.items())
        connection = self._had(f"{set_limits}SELECT pg_advisory_xact_lock({_number(table_id)})")
        try:
            yield connection is not None
        finally:
            if connection is not None:
                self._end(connection)

    def _had(self, wait: str) -> sa.PoolProxiedConnection | None:
        """A connection in a transaction that has the turn."""
        if time.monotonic() < self._rests_until:
            return None
        try:
            connection = self.engine.raw_connection()
        except sa.exc.TimeoutError:
            return None  # Other threads of this process wait with all the connections that there are for it.
        except self._errors as error:
            _log.debug("No connection to wait for a turn with: %s", error)
            self._rests_until = time.monotonic() + _REST_SECONDS
            return None
        try:
            connection.dbapi_connection.execute(wait)  # type: ignore[union-attr]  # It has one; all drivers have this call.
        except self._errors as error:
            _log.debug("No turn was had: %s", error)
            self._end(connection)  # Others of this process may be waiting for it.
            return None
        return connection

    def _end(self, connection: sa.PoolProxiedConnection) -> None:
        driver: Any = connection.dbapi_connection
        with suppress(*self._errors):  # A connection that is gone has given the turn back.
            driver.rollback()
        if driver.closed:
            connection.invalidate()
        connection.close()


class _Crowded(sa.exc.SQLAlchemyError):
    """Connections are few, and those who commit need them."""


def _spare_connection(connection: Any, record: Any) -> None:
    """Of a connection for turns just made: give it up where connections are few, and have the server end it when it is idle."""
    before, connection.autocommit = connection.autocommit, True
    try:
        if is_pooled(record):
            raise _Crowded("a connection pooler has fewer connections than there may be who wait")
        if connection.execute(_IS_CROWDED).fetchone()[0]:
            raise _Crowded("more than half of the server's connections are taken")
        if connection.info.server_version >= _KNOWS_IDLE_SESSIONS:
            connection.execute(f"SET idle_session_timeout = {int(_IDLE_SECONDS * 1000)}")
        connection.autocommit = before
    except BaseException:
        connection.close()
        raise


def _number(table_id: str) -> int:
    """A signed 64-bit number, the same in every process."""
    return int.from_bytes(hashlib.sha256(b"cm-delta-turn:" + table_id.encode()).digest()[:8], "big", signed=True)
