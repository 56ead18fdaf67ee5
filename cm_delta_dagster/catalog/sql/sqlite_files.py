"""The files of a SQLite catalog where this process cannot write them.

A database in WAL mode has two more files beside it, ``-wal`` and ``-shm``. While they are there, SQLite reads through them
without write access. Where they are not, and cannot be made, SQLite opens the database only if it is declared immutable,
which is true while nobody else writes. So a read of that kind compares the state of the files before and after: a writer
leaves commits in ``-wal`` and changes the database file only from there.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import sqlalchemy as sa

from cm_delta_dagster.errors import CatalogUnavailableError

T = TypeVar("T")

_NO_FILES = (
    "SQLITE_CANTOPEN",
    "SQLITE_READONLY_DIRECTORY",
    "SQLITE_READONLY_CANTINIT",
    "SQLITE_READONLY_RECOVERY",
    "SQLITE_IOERR_SHM",
)
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.05
_LITTLE_SPACE = 64 * 1024
"""SQLite needs 32 KiB for ``-shm`` and a few pages for ``-wal``."""


def lacks_files(code: str) -> bool:
    """Whether SQLite failed because it could not make or use the files beside the database.

    Args:
        code: ``sqlite_errorname`` of the error.
    """
    return code.startswith(_NO_FILES)


def obstacle(path: str, code: str) -> str | None:
    """Why the database at ``path`` cannot be written, as far as the operating system tells; None if it does not."""
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        return f"the directory {directory} does not exist"
    if code.startswith("SQLITE_FULL") or (code.startswith("SQLITE_IOERR") and _free_bytes(directory) < _LITTLE_SPACE):
        return f"the disk that holds {directory} is full"
    if not os.access(directory, os.W_OK):
        return f"the directory {directory} cannot be written: it is read-only, or this user has no right to write to it"
    if os.path.exists(path) and not os.access(path, os.W_OK):
        return f"the file {path} cannot be written: it is read-only, or this user has no right to write to it"
    return None


def read_unchanged(path: str, statements: Callable[[sa.Connection], T], *, shown_url: str) -> T:
    """The answer of ``statements`` on the database as it is, without a file beside it; they may run several times.

    Raises:
        CatalogUnavailableError: other processes have commits in ``-wal``, which cannot be read this way.
        sqlalchemy.exc.DBAPIError: as from any connection.
    """
    engine = sa.create_engine("sqlite+pysqlite://", creator=lambda: _immutable(path), poolclass=sa.pool.NullPool)
    for attempt in range(_ATTEMPTS):
        time.sleep(_PAUSE_SECONDS * attempt)
        before = _State.of(path)
        if before.has_commits_beside:
            continue
        try:
            with engine.connect() as connection:
                answer = statements(connection)
        except sa.exc.DBAPIError:
            if _State.of(path) == before:
                raise
            continue
        if _State.of(path) == before:
            return answer
    raise CatalogUnavailableError(
        f"The catalog {shown_url} cannot be read: {obstacle(path, '') or 'its -shm file cannot be made'}, and its newest "
        f"commits are in {path}-wal, which SQLite reads only with a -shm file beside it. Nothing was read. Open the catalog "
        "once with write access, or close the programs that write to it, and read again."
    )


@dataclass(frozen=True, slots=True)
class _State:
    """What changes with every commit. ``has_commits_beside``: the database file alone is not the whole database."""

    has_commits_beside: bool
    database: tuple[int, int, int]

    @classmethod
    def of(cls, path: str) -> "_State":
        found = os.stat(path)
        beside = _size(f"{path}-wal") + _size(f"{path}-journal")
        return cls(beside > 0, (found.st_ino, found.st_size, found.st_mtime_ns))


def _immutable(path: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True, isolation_level=None)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0


def _free_bytes(directory: str) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
