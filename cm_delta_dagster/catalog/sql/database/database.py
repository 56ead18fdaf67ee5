"""One catalog database: connections, transactions, retries, and the mapping of SQLAlchemy's errors.

For SQLite each :class:`Database` has one connection, used by one thread at a time and closed before a fork: SQLite counts file
locks by process, and a child that inherits the counts without the locks can lose commits. For PostgreSQL it has a connection
pool, which a forked child discards without closing the sockets of its parent.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from cm_delta_dagster.catalog.sql.database import (
    backup,
    migrate,
    owning_role,
    postgres_session,
    sqlite_files,
    transaction_end,
)
from cm_delta_dagster.catalog.sql.database.commit_locks import AdvisoryCommitLocks, file_commit_lock
from cm_delta_dagster.catalog.sql.database.engines import parsed_url, postgresql_engine, sqlite_engine, without_secrets
from cm_delta_dagster.catalog.sql.database.errors import (
    code_of,
    detail_of,
    had_no_effect,
    is_denied,
    is_unavailable,
    is_unstorable,
)
from cm_delta_dagster.errors import (
    CatalogError,
    CatalogNotFoundError,
    CatalogUnavailableError,
    InvalidArgumentError,
    PermissionDeniedError,
)
from cm_delta_dagster.remedies import CreateCatalog, OpenCatalog

T = TypeVar("T")

_FILE_ERRORS = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")
_BEGIN = "BEGIN IMMEDIATE"
_GIVE_UP_AFTER_S = 120


class IfMissing(StrEnum):
    """What to do with a database that holds no catalog."""

    CREATE = "create"
    REFUSE = "refuse"


class Database:
    """Transactions on one database. Thread-safe. Usable after a fork in parent and child.

    Args:
        url: SQLAlchemy URL of a SQLite file or a PostgreSQL database.
        if_missing: whether a missing catalog is created, with the file of a SQLite database.
    """

    def __init__(self, url: str, *, if_missing: IfMissing = IfMissing.CREATE) -> None:
        self._url = parsed_url(url)
        self._if_missing = if_missing
        self.shown_url = without_secrets(self._url)
        self._is_sqlite = self._url.get_backend_name() == "sqlite"
        self._lock = threading.RLock()
        self._engine: sa.Engine | None = None
        self._writer: sa.Engine | None = None
        self._commit_locks: AdvisoryCommitLocks | None = None
        self._server_clock = postgres_session.DatabaseClock()
        self._closed = False
        with _REGISTRY_LOCK:
            _OPEN.add(self)

    @property
    def url_text(self) -> str:
        """The URL with its passwords and an absolute path, with which another process opens the same database."""
        return self._url.render_as_string(hide_password=False)

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a SQLite file; otherwise it is a PostgreSQL database."""
        return self._is_sqlite

    def now_ms(self) -> int:
        """Epoch milliseconds: of this machine for SQLite, of the server for PostgreSQL.

        The server's time is read with each new connection, not for each call. Raises CatalogUnavailableError.
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
        """Run statements without a transaction. They run again if the connection is lost.

        A statement that writes must therefore have no effect when it runs a second time.
        """
        return self._retried(statements, self._read_once)

    def write(self, statements: Callable[[sa.Connection], T]) -> T:
        """Run in one write transaction. ``statements`` runs again only if nothing of the first run was committed."""
        return self._retried(statements, self._write_once)

    def commit_lock(self, table_id: str, *, seconds: float) -> AbstractContextManager[bool]:
        """The advisory commit lock of a table; see :mod:`~cm_delta_dagster.catalog.sql.database.commit_locks`."""
        if self._is_sqlite:
            return file_commit_lock(str(self._url.database), table_id, seconds=seconds)
        with self._lock:
            if self._closed:
                return nullcontext(False)  # The commit that follows raises the error.
            if self._commit_locks is None:
                self._commit_locks = AdvisoryCommitLocks(
                    postgresql_engine(
                        self._url,
                        self._server_clock,
                        isolation_level="READ COMMITTED",
                        size=1,
                        overflow=1,
                        wait_seconds=seconds,
                    )
                )
            return self._commit_locks.commit_lock(table_id, seconds=seconds)

    @contextmanager
    def listening(self, channel: str) -> Iterator[Callable[[float], None]]:
        """Listen on a channel of PostgreSQL. Yields a function that waits for a notification, at most so many seconds."""
        with self._ready()[0].connect() as connection:
            driver: Any = connection.connection.dbapi_connection
            try:
                driver.execute(f"LISTEN {channel}")

                def notified(seconds: float) -> None:
                    for _ in driver.notifies(timeout=seconds, stop_after=1):
                        pass

                yield notified
            except connection.dialect.loaded_dbapi.Error as error:
                raise self._mapped(sa.exc.OperationalError(f"LISTEN {channel}", None, error)) from error
            finally:
                connection.invalidate()  # The next user of the connection must not get notifications.

    def back_up(self, target: Path) -> int:
        """Copy the database to a new file while it is in use; see :mod:`~cm_delta_dagster.catalog.sql.database.backup`.

        Raises:
            CatalogError: the copy failed, or it is a PostgreSQL database; the message then gives the command.
        """
        self.read(lambda connection: None)  # Fails if there is no catalog.
        if not self._is_sqlite:
            raise CatalogError(
                f"The catalog {self.shown_url} is a PostgreSQL database, which pg_dump copies while it is in use. Run: "
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
            self._engine = self._writer = self._commit_locks = None

    def _engines(self) -> list[sa.Engine]:
        """The engines that have a connection pool of their own."""
        for_locks = None if self._commit_locks is None else self._commit_locks.engine
        return [engine for engine in (self._engine, for_locks) if engine is not None]

    def _retried(
        self, statements: Callable[[sa.Connection], T], once: Callable[[Callable[[sa.Connection], T]], T]
    ) -> T:
        try:
            try:
                return once(statements)
            except sa.exc.DBAPIError as error:
                if not had_no_effect(error):
                    raise
            retrying = Retrying(
                retry=retry_if_exception(had_no_effect),
                wait=wait_random_exponential(multiplier=0.01, max=0.5),
                stop=stop_after_delay(_GIVE_UP_AFTER_S),
                reraise=True,
            )
            return retrying(once, statements)
        except sa.exc.SQLAlchemyError as error:
            raise self._mapped(error) from error
        except OverflowError as error:  # SQLite's driver does not raise an error of databases for it.
            raise InvalidArgumentError(
                "A number of the call has more than 64 bits, which the database of the catalog cannot store or compare. Nothing "
                "was changed."
            ) from error

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
                if not sqlite_files.lacks_files(code_of(error)) or not Path(path).is_file():
                    raise
                return sqlite_files.read_unchanged(
                    path, lambda connection: self._read_unchanged(connection, statements), shown_url=self.shown_url
                )

    def _read_unchanged(self, connection: sa.Connection, statements: Callable[[sa.Connection], T]) -> T:
        if not migrate.has_catalog(connection):
            raise self._missing()
        if not migrate.is_current(connection):
            path = str(self._url.database)
            raise self._not_migrated(sqlite_files.obstacle(path, ""), by=sqlite_files.owner(path))
        return statements(connection)

    def _write_once(self, statements: Callable[[sa.Connection], T]) -> T:
        if not self._is_sqlite:
            return self._transaction(self._ready()[1], statements)
        with self._lock:
            return self._transaction(self._ready()[1], statements)

    def _transaction(self, engine: sa.Engine, statements: Callable[[sa.Connection], T]) -> T:
        with engine.connect() as connection:
            self._begin(connection)
            transaction_end.forget(connection)
            result = statements(connection)
            try:
                transaction_end.commit(connection)
            except transaction_end.UnknownOutcomeError as error:
                raise CatalogUnavailableError(
                    f"The catalog {self.shown_url} did not answer a commit of its database ({error}); whether the change took "
                    "effect is unknown. Check the state of the catalog before you retry."
                ) from error
            return result

    def _begin(self, connection: sa.Connection) -> None:
        """Take SQLite's write lock at the start. Otherwise another process could write between the first read and write."""
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
                raise CatalogError(f"The catalog {self.shown_url} is closed; open it again.")
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
            self._refuse_migration_by_others(connection)
            try:
                migrate.upgrade(connection, url=self.shown_url)
            except sa.exc.DBAPIError as error:
                connection.rollback()
                self._name_who_migrates(connection, error)
                raise
            connection.commit()

    def _refuse_migration_by_others(self, connection: sa.Connection) -> None:
        """Raises PermissionDeniedError if the tables of an existing PostgreSQL catalog belong to another role."""
        owner = None if self._is_sqlite else owning_role.of(connection)
        if owner is not None and not owner.is_member and migrate.revisions(connection):
            cause = "this user does not own its tables, and write permission does not suffice"
            by = f"the role that owns the catalog's tables, {owner.name}, or a member of it"
            raise self._not_migrated(cause, by=by)

    def _name_who_migrates(self, connection: sa.Connection, error: sa.exc.DBAPIError) -> None:
        """Raises PermissionDeniedError if this user may not write the file of an existing catalog."""
        if not self._is_sqlite or not code_of(error).startswith(_FILE_ERRORS):
            return
        path = str(self._url.database)
        cause = sqlite_files.obstacle(path, code_of(error))
        if cause is not None and migrate.has_catalog(connection):
            raise self._not_migrated(cause, by=sqlite_files.owner(path)) from error

    def _not_migrated(self, cause: str | None, *, by: str) -> PermissionDeniedError:
        return PermissionDeniedError(
            f"The catalog {self.shown_url} was created by another release of this package. Its database must be migrated to schema "
            f"revision {migrate.HEAD} first, but {cause}. Nothing was changed. The owner of the tables has to migrate: let {by} "
            "open the catalog once with this release."
        ).with_remedy(OpenCatalog())

    def _missing(self) -> CatalogNotFoundError:
        return CatalogNotFoundError(
            f"There is no catalog at {self.shown_url}; nothing was created. Check the URL."
        ).with_remedy(CreateCatalog())

    def _create_engine(self) -> sa.Engine:
        if self._is_sqlite:
            if self._if_missing is IfMissing.REFUSE and not Path(str(self._url.database)).is_file():
                raise self._missing()
            if sqlite_files.is_other_file(str(self._url.database)):
                raise CatalogError(
                    f"{self.shown_url} is not the database of a catalog: the file is not empty, and it is not a SQLite database. "
                    "Nothing was changed. Check the URL."
                )
            return sqlite_engine(self._url)
        try:
            return postgresql_engine(self._url, self._server_clock)
        except ImportError as error:
            raise CatalogError(
                f"The catalog {self.shown_url} requires the PostgreSQL driver, which is not installed ({error}). Install it with "
                "pip install '<path of the clone>[postgres]'."
            ) from error

    def _mapped(self, error: sa.exc.SQLAlchemyError) -> CatalogError | InvalidArgumentError:
        detail, code = detail_of(error), code_of(error)
        cause = sqlite_files.obstacle(str(self._url.database), code) if code.startswith(_FILE_ERRORS) else None
        if cause is not None:
            kind = PermissionDeniedError if "cannot be written" in cause else CatalogUnavailableError
            return kind(
                f"The catalog {self.shown_url} refused the operation: {cause} ({detail}). Nothing was changed. Fix the cause and "
                "retry."
            )
        if is_denied(error):
            return PermissionDeniedError(
                f"The catalog {self.shown_url} denied this user the operation: {detail}. {self._whom_to_ask()}"
            )
        if is_unstorable(error):
            return InvalidArgumentError(
                f"A value of the call cannot be stored or compared by the database of the catalog: {detail}. Nothing was changed."
            )
        if is_unavailable(error):
            return CatalogUnavailableError(
                f"The catalog {self.shown_url} could not be used: {detail}. Check the URL and whether the database is running."
            )
        return CatalogError(
            f"The catalog {self.shown_url} failed: {detail}. Check that the URL is that of a catalog of this package."
        )

    def _whom_to_ask(self) -> str:
        """What a user can do who lacks a right in the database."""
        with suppress(sa.exc.SQLAlchemyError, CatalogError):
            owner = None if self._is_sqlite else self._read_once(owning_role.of)
            if owner is not None:
                return (
                    f"Ask {owner.name}, the role that owns the catalog's tables, to grant this user write permission."
                )
        return "Grant the user write permission."

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
