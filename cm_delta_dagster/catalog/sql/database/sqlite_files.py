"""Reads of a SQLite catalog without write access to its files.

A database in WAL mode uses the files ``-wal`` and ``-shm`` beside it. If they exist, SQLite reads through them without write
access. If they do not exist and cannot be created, SQLite opens the database only as immutable, which is correct while no
process writes to it. Such a read therefore compares the state of the files before and after it: a writer first writes its
commits to ``-wal``.
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
_LEAST_BYTES = 512
"""Size of the smallest SQLite database. A creation that was interrupted leaves fewer bytes, and a journal."""
_ATTEMPTS = 5
_BACKOFF_SECONDS = 0.05
_LITTLE_SPACE = 64 * 1024
"""SQLite needs 32 KiB for ``-shm`` and a few pages for ``-wal``."""


def lacks_files(code: str) -> bool:
    """Whether SQLite failed because it could not create or use the files beside the database.

    Args:
        code: ``sqlite_errorname`` of the error.
    """
    return code.startswith(_NO_FILES)


def is_other_file(path: str) -> bool:
    """Whether the file at ``path`` has bytes and is too small for a SQLite database. SQLite would overwrite it.

    The file is not opened: closing it would release the locks of all connections of this process to the database, and another
    process could then delete the write-ahead log that they use.
    """
    try:
        size = os.stat(path).st_size
    except OSError:
        return False  # The file does not exist, or SQLite raises the error that names the cause.
    return 0 < size < _LEAST_BYTES and not os.path.exists(f"{path}-journal")


def owner(path: str) -> str:
    """Who owns the file at ``path``, for messages."""
    try:
        return f"its owner, {Path(path).owner()},"
    except (KeyError, NotImplementedError, OSError):  # The system has no name for the owner.
        return "a user with write access to it"


def obstacle(path: str, code: str) -> str | None:
    """Why the database at ``path`` cannot be written, by the operating system; None if no cause is found."""
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        return f"the directory {directory} does not exist"
    if code.startswith("SQLITE_FULL") or (code.startswith("SQLITE_IOERR") and _free_bytes(directory) < _LITTLE_SPACE):
        return f"the disk that holds {directory} is full"
    if not os.access(directory, os.W_OK):
        return f"the directory {directory} cannot be written: it is read-only, or this user lacks write permission"
    if os.path.exists(path) and not os.access(path, os.W_OK):
        return f"the file {path} cannot be written: it is read-only, or this user lacks write permission"
    return None


def read_unchanged(path: str, statements: Callable[[sa.Connection], T], *, shown_url: str) -> T:
    """Run ``statements`` on the immutable database; they may run several times. Returns their result.

    Raises:
        CatalogUnavailableError: ``-wal`` holds commits of other processes, which cannot be read this way.
        sqlalchemy.exc.DBAPIError: a statement failed.
    """
    engine = sa.create_engine("sqlite+pysqlite://", creator=lambda: _immutable(path), poolclass=sa.pool.NullPool)
    for attempt in range(_ATTEMPTS):
        time.sleep(_BACKOFF_SECONDS * attempt)
        before = _State.of(path)
        if before.has_log:
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
        f"The catalog {shown_url} cannot be read: {obstacle(path, '') or 'its -shm file cannot be created'}, and its newest "
        f"commits are in {path}-wal, which SQLite reads only with a -shm file beside it. Nothing was read. Open the catalog "
        "once with write access, or close the programs that write to it, and retry."
    )


@dataclass(frozen=True, slots=True)
class _State:
    """State of the files, which changes with every commit. ``has_log``: ``-wal`` or ``-journal`` is not empty."""

    has_log: bool
    database: tuple[int, int, int]

    @classmethod
    def of(cls, path: str) -> "_State":
        status = os.stat(path)
        log_bytes = _size(f"{path}-wal") + _size(f"{path}-journal")
        return cls(log_bytes > 0, (status.st_ino, status.st_size, status.st_mtime_ns))


def _immutable(path: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True, isolation_level=None)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0


def _free_bytes(directory: str) -> int:
    volume = os.statvfs(directory)
    return volume.f_bavail * volume.f_frsize
