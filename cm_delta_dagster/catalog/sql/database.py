"""One catalog database: connections, transactions, retries, and the border at which SQLAlchemy's errors end.

It knows nothing of tables or commits; see :mod:`~cm_delta_dagster.catalog.sql.catalog` for those.

SQLite gets one connection for each :class:`Database`, used by one thread at a time, opened late and closed before a
fork: SQLite counts its file locks for each process, and a child that inherits the counts, but not the locks, can lose
commits. PostgreSQL gets a pool, which a forked child forgets without closing the parent's sockets.
"""

import os
import re
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from cm_delta_dagster.catalog.sql import backup, migrate, postgres_session, sqlite_files
from cm_delta_dagster.catalog.sql.commit_locks import AdvisoryTurns, file_turn
from cm_delta_dagster.errors import (
    CatalogError,
    CatalogNotFoundError,
    CatalogUnavailableError,
    InvalidArgumentError,
    PermissionDeniedError,
)

T = TypeVar("T")

_BEGIN = "BEGIN IMMEDIATE"
_BUSY_TIMEOUT_S = 30
_GIVE_UP_AFTER_S = 120
_CONNECT_TIMEOUT_S = 10
_SECRET_PARAMETERS = ("password", "sslpassword")
_TRANSIENT_SQLSTATES = frozenset({"40001", "40P01", "55P03"})  # serialization failure, deadlock, lock not available
_PERMISSION_SQLSTATES = frozenset({"42501", "25006"})  # insufficient privilege, read-only transaction
_FULL = re.compile(r"too many (?:clients|connections)|remaining connection slots")  # A refused connection has no code.
_FILE_ERRORS = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")
_UNAVAILABLE_SQLSTATE_CLASSES = ("08", "53", "57")  # connection, resources, operator intervention


class IfMissing(StrEnum):
    """What to do about a database that holds no catalog yet."""

    CREATE = "create"
    REFUSE = "refuse"


class Database:
    """Transactions on one database. Thread-safe; survives a fork in parent and child.

    Args:
        url: SQLAlchemy URL of a SQLite file or a PostgreSQL database.
        if_missing: whether a catalog is made in a database that holds none, and the file of a SQLite database with it.
    """

    def __init__(self, url: str, *, if_missing: IfMissing = IfMissing.CREATE) -> None:
        self._url = _parsed_url(url)
        self._if_missing = if_missing
        self.shown_url = _without_secrets(self._url)
        self._is_sqlite = self._url.get_backend_name() == "sqlite"
        self._lock = threading.RLock()
        self._engine: sa.Engine | None = None
        self._writer: sa.Engine | None = None
        self._turns: AdvisoryTurns | None = None
        self._server_clock = postgres_session.ServerClock()
        self._closed = False
        with _REGISTRY_LOCK:
            _OPEN.add(self)

    @property
    def url_text(self) -> str:
        """The URL with its secrets, by which another process opens the same database, wherever it runs."""
        return self._url.render_as_string(hide_password=False)

    @property
    def commits_at_once(self) -> bool:
        """Whether one statement of this database can read and write several tables."""
        return not self._is_sqlite

    def now_ms(self) -> int:
        """Epoch milliseconds: of the machine for a SQLite file, which no other machine uses, else of the server.

        The server is asked when a connection is made, and not for each call. Raises CatalogUnavailableError.
        """
        if self._is_sqlite:
            return time.time_ns() // 1_000_000
        now_ms = self._server_clock.now_ms()
        if now_ms is None:
            self.read(lambda connection: None)
            now_ms = self._server_clock.now_ms()
        assert now_ms is not None
        return now_ms

    def read(self, statements: Callable[[sa.Connection], T]) -> T:
        """Run statements that stand for themselves, without the cost of a transaction; again if a connection was lost.

        So one that writes has to be without effect when it is run a second time.
        """
        return self._retried(statements, self._read_once)

    def write(self, statements: Callable[[sa.Connection], T]) -> T:
        """Run in one write transaction; ``statements`` may run again when nothing of its first run was committed."""
        return self._retried(statements, self._write_once)

    def commit_lock(self, table_id: str, *, seconds: float) -> AbstractContextManager[bool]:
        """A place in the row of those who want to write to a table; see :mod:`~cm_delta_dagster.catalog.sql.commit_locks`."""
        if self._is_sqlite:
            return file_turn(str(self._url.database), table_id, seconds=seconds)
        with self._lock:
            if self._closed:
                return nullcontext(False)  # What wants to commit is told soon enough.
            if self._turns is None:
                self._turns = AdvisoryTurns(
                    _postgresql_engine(
                        self._url,
                        self._server_clock,
                        isolation_level="READ COMMITTED",
                        size=1,
                        overflow=1,
                        wait_seconds=seconds,
                    )
                )
            return self._turns.commit_lock(table_id, seconds=seconds)

    def back_up(self, target: Path) -> int:
        """Copy the database to a new file while it is in use; see :mod:`~cm_delta_dagster.catalog.sql.backup`.

        Raises:
            CatalogError: it is a PostgreSQL database, which has its own tools; the message gives the command.
        """
        self.read(lambda connection: None)  # There is a catalog, and it can be read.
        if not self._is_sqlite:
            raise CatalogError(
                f"The catalog {self.shown_url} is a PostgreSQL database, whose own tools copy it while it is in use. Run: "
                f"{backup.dump_command(self._url, target)}"
            )
        return backup.back_up_sqlite(str(self._url.database), target, shown_url=self.shown_url)

    def close(self) -> None:
        """Close every connection; later calls fail."""
        with _REGISTRY_LOCK:
            _OPEN.discard(self)
        with self._lock:
            self._closed = True
            for engine in self._engines():
                engine.dispose()
            self._engine = self._writer = self._turns = None

    def _engines(self) -> list[sa.Engine]:
        """Those with pools of their own."""
        turns = None if self._turns is None else self._turns.engine
        return [engine for engine in (self._engine, turns) if engine is not None]

    def _retried(
        self, statements: Callable[[sa.Connection], T], once: Callable[[Callable[[sa.Connection], T]], T]
    ) -> T:
        try:
            try:
                return once(statements)
            except sa.exc.DBAPIError as error:
                if not _nothing_happened(error):
                    raise
            retrying = Retrying(
                retry=retry_if_exception(_nothing_happened),
                wait=wait_random_exponential(multiplier=0.01, max=0.5),
                stop=stop_after_delay(_GIVE_UP_AFTER_S),
                reraise=True,
            )
            return retrying(once, statements)
        except sa.exc.SQLAlchemyError as error:
            raise self._mapped(error) from error

    def _read_once(self, statements: Callable[[sa.Connection], T]) -> T:
        if not self._is_sqlite:
            with self._ready()[0].connect() as connection:
                return statements(connection)
        with self._lock:
            try:
                with self._ready()[0].connect() as connection:
                    return statements(connection)
            except sa.exc.DBAPIError as error:
                path = str(self._url.database)
                if not sqlite_files.lacks_files(_code(error)) or not Path(path).is_file():
                    raise
                return sqlite_files.read_unchanged(
                    path, lambda connection: self._read_unchanged(connection, statements), shown_url=self.shown_url
                )

    def _read_unchanged(self, connection: sa.Connection, statements: Callable[[sa.Connection], T]) -> T:
        if not migrate.has_catalog(connection):
            raise self._missing()
        if not migrate.is_current(connection):
            raise PermissionDeniedError(
                f"The catalog {self.shown_url} was made by another version of this package and has to be migrated first, but "
                f"{sqlite_files.obstacle(str(self._url.database), '')}. Open it once with write access."
            )
        return statements(connection)

    def _write_once(self, statements: Callable[[sa.Connection], T]) -> T:
        if not self._is_sqlite:
            return self._transaction(self._ready()[1], statements)
        with self._lock:
            return self._transaction(self._ready()[1], statements)

    def _transaction(self, engine: sa.Engine, statements: Callable[[sa.Connection], T]) -> T:
        with engine.connect() as connection:
            self._begin(connection)
            result = statements(connection)
            try:
                connection.commit()
            except sa.exc.DBAPIError as error:
                if not _is_busy(error) and not _code(error).startswith("SQLITE_FULL"):
                    # The database may have committed all the same: never run the statements again for that.
                    raise CatalogUnavailableError(
                        f"The answer to a commit on the catalog {self.shown_url} was lost ({error.orig}); whether it "
                        "took effect is unknown. Ask the catalog before doing it again."
                    ) from error
                raise
            return result

    def _begin(self, connection: sa.Connection) -> None:
        """Of SQLite, which would else begin to write in the middle, when another may have been faster."""
        if not self._is_sqlite:
            return
        connection.begin()
        driver: Any = connection.connection.dbapi_connection
        try:
            driver.execute(_BEGIN)
        except connection.dialect.loaded_dbapi.Error as error:
            raise sa.exc.OperationalError(_BEGIN, None, error) from error

    def _ready(self) -> tuple[sa.Engine, sa.Engine]:
        reader, writer = self._engine, self._writer
        if reader is not None and writer is not None:
            return reader, writer
        with self._lock:
            if self._closed:
                raise CatalogError(f"The catalog {self.shown_url} was closed; open it anew.")
            if self._engine is None or self._writer is None:
                reader = self._create_engine()
                writer = reader if self._is_sqlite else reader.execution_options(isolation_level="READ COMMITTED")
                try:
                    self._migrate(reader, writer)
                except BaseException:
                    reader.dispose()
                    raise
                self._engine, self._writer = reader, writer
            return self._engine, self._writer

    def _migrate(self, reader: sa.Engine, writer: sa.Engine) -> None:
        with reader.connect() as connection:
            if migrate.is_current(connection):
                return
            if self._if_missing is IfMissing.REFUSE and not migrate.has_catalog(connection):
                raise self._missing()
        with writer.connect() as connection:
            self._begin(connection)
            migrate.upgrade(connection, url=self.shown_url)
            connection.commit()

    def _missing(self) -> CatalogNotFoundError:
        return CatalogNotFoundError(
            f"There is no catalog at {self.shown_url}; nothing was made. Check the URL. A catalog is made by the first "
            "program that connects to it, e.g. cm_delta_dagster.connect(url).tables()."
        )

    def _create_engine(self) -> sa.Engine:
        if self._is_sqlite:
            if self._if_missing is IfMissing.REFUSE and not Path(str(self._url.database)).is_file():
                raise self._missing()
            return _sqlite_engine(self._url)
        try:
            return _postgresql_engine(self._url, self._server_clock)
        except ImportError as error:
            raise CatalogError(
                f"The catalog {self.shown_url} needs the driver of PostgreSQL, and it is not installed ({error}). Install it with "
                "pip install '<path of the clone>[postgres]'."
            ) from error

    def _mapped(self, error: sa.exc.SQLAlchemyError) -> CatalogError:
        detail, code = _detail(error), _code(error)
        cause = sqlite_files.obstacle(str(self._url.database), code) if code.startswith(_FILE_ERRORS) else None
        if cause is not None:
            kind = PermissionDeniedError if "cannot be written" in cause else CatalogUnavailableError
            return kind(
                f"The catalog {self.shown_url} could not do that: {cause} ({detail}). Nothing was changed. Fix the cause and "
                "retry."
            )
        if _is_denied(error):
            return PermissionDeniedError(
                f"The catalog {self.shown_url} does not let this user do that: {detail}. "
                "Ask for the right to write to it."
            )
        if _is_unavailable(error):
            return CatalogUnavailableError(
                f"The catalog {self.shown_url} could not be used: {detail}. Check the URL and that the database is up."
            )
        return CatalogError(
            f"The catalog {self.shown_url} failed: {detail}. Check that it is a catalog of this package."
        )

    def _before_fork(self) -> None:
        self._lock.acquire()
        if self._is_sqlite and self._engine is not None:
            self._engine.dispose()

    def _after_fork_in_parent(self) -> None:
        self._lock.release()

    def _after_fork_in_child(self) -> None:
        if not self._is_sqlite:
            for engine in self._engines():
                engine.dispose(close=False)
        self._lock.release()


_REGISTRY_LOCK = threading.Lock()
_OPEN: "weakref.WeakSet[Database]" = weakref.WeakSet()
_HELD_FOR_FORK: list[Database] = []


def _before_fork() -> None:
    _REGISTRY_LOCK.acquire()
    for database in sorted(_OPEN, key=id):
        database._before_fork()
        _HELD_FOR_FORK.append(database)


def _after_fork_in_parent() -> None:
    while _HELD_FOR_FORK:
        _HELD_FOR_FORK.pop()._after_fork_in_parent()
    _REGISTRY_LOCK.release()


def _after_fork_in_child() -> None:
    while _HELD_FOR_FORK:
        _HELD_FOR_FORK.pop()._after_fork_in_child()
    _REGISTRY_LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def _parsed_url(text: str) -> sa.URL:
    try:
        url = sa.make_url(text)
    except sa.exc.ArgumentError:
        # The text may hold a password, so that neither it nor SQLAlchemy's message is repeated.
        raise InvalidArgumentError(
            "The catalog URL cannot be parsed: write sqlite:////absolute/path.db or postgresql://user:password@host/database."
        ) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite":
        url = url.set(drivername="sqlite+pysqlite")
    if url.drivername not in ("sqlite+pysqlite", "postgresql+psycopg"):
        raise InvalidArgumentError(
            f"The catalog URL asks for {url.drivername!r}; supported are sqlite (one machine) "
            "and postgresql+psycopg (shared)."
        )
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
            raise InvalidArgumentError(
                "A SQLite catalog needs a plain file, because several processes share it: sqlite:////absolute/path.db."
            )
        url = url.set(database=os.path.abspath(url.database))
    return url


def _without_secrets(url: sa.URL) -> str:
    """The URL for messages: without secrets, and without the name of the driver, which users rarely write."""
    hidden = {name: "***" for name in _SECRET_PARAMETERS if name in url.query}
    shown = url.set(drivername=url.get_backend_name()).update_query_dict(hidden)
    return shown.render_as_string(hide_password=True)


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    try:
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CatalogUnavailableError(
            f"The directory of the catalog {_without_secrets(url)} could not be made: {error}. "
            "Check the URL and its rights."
        ) from error
    engine = sa.create_engine(
        url,
        poolclass=sa.pool.QueuePool,
        pool_size=1,
        max_overflow=0,
        connect_args={"timeout": _BUSY_TIMEOUT_S, "check_same_thread": False, "isolation_level": None},
    )

    @sa.event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    return engine


def _postgresql_engine(
    url: sa.URL,
    clock: postgres_session.ServerClock,
    *,
    isolation_level: sa.engine.interfaces.IsolationLevel = "AUTOCOMMIT",
    size: int = 5,
    overflow: int = 15,
    wait_seconds: float = 30,
) -> sa.Engine:
    arguments: dict[str, Any] = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_TIMEOUT_S}
    engine = sa.create_engine(
        url,
        isolation_level=isolation_level,
        pool_size=size,
        max_overflow=overflow,
        pool_timeout=wait_seconds,
        connect_args=arguments,
    )

    sa.event.listen(engine, "connect", clock.prepare)
    return engine


def _code(error: BaseException) -> str:
    original = getattr(error, "orig", None)
    return str(getattr(original, "sqlstate", None) or getattr(original, "sqlite_errorname", None) or "")


def _is_busy(error: BaseException) -> bool:
    return _code(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or _code(error) in _TRANSIENT_SQLSTATES


def _nothing_happened(error: BaseException) -> bool:
    """Worth another attempt: the database was busy or full, or a pooled connection had died before the commit was sent."""
    if _is_busy(error) or (isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated):
        return True
    return isinstance(error, sa.exc.OperationalError) and _FULL.search(str(error.orig)) is not None


def _is_denied(error: BaseException) -> bool:
    return _code(error) in _PERMISSION_SQLSTATES or _code(error).startswith(("SQLITE_READONLY", "SQLITE_PERM"))


def _is_unavailable(error: sa.exc.SQLAlchemyError) -> bool:
    if isinstance(error, sa.exc.TimeoutError | sa.exc.InterfaceError):
        return True
    if isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated:
        return True
    code = _code(error)
    if code.startswith("SQLITE_"):
        return code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL", "SQLITE_CANTOPEN"))
    return code.startswith(_UNAVAILABLE_SQLSTATE_CLASSES) or (isinstance(error, sa.exc.OperationalError) and not code)


def _detail(error: sa.exc.SQLAlchemyError) -> str:
    original = getattr(error, "orig", None)
    return " ".join(str(original or error).split())
