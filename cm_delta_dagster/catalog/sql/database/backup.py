"""Online backup of a SQLite catalog; for PostgreSQL, the command that makes one."""

import errno
import os
import shlex
import sqlite3
import uuid
from contextlib import closing, suppress
from pathlib import Path

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.database.engines import hidden_parameters
from cm_delta_dagster.errors import CatalogError, InvalidArgumentError

_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM})


def back_up_sqlite(database: str, target: Path, *, shown_url: str) -> int:
    """Copy the database at ``database`` to ``target`` by SQLite's online backup, check the copy, and make it durable.

    Returns:
        Size of the copy in bytes.

    Raises:
        InvalidArgumentError: ``target`` exists, or its directory does not.
        CatalogError: there is no database, the copy failed, or the integrity check of the copy failed. ``target`` is not
            created then.
    """
    if os.path.lexists(target):
        raise InvalidArgumentError(f"{target} exists already and was not changed; give a new name for the backup.")
    if not target.parent.is_dir():
        raise InvalidArgumentError(f"The directory {target.parent} of the backup does not exist; create it first.")
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        _copy(database, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.link(temporary, target)  # Fails if another process created the file concurrently.
        try:
            _sync_directory(target.parent)
        except OSError:
            target.unlink()
            raise
    except FileExistsError as error:
        raise InvalidArgumentError(f"{target} exists already and was not changed; give another name.") from error
    except (sqlite3.Error, OSError) as error:
        raise CatalogError(
            f"The catalog {shown_url} was not copied to {target}: {error}. No backup was made. Check the path, its permissions "
            "and the free space."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return target.stat().st_size


def _copy(database: str, target: Path) -> None:
    source_uri = f"{Path(database).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(source_uri, uri=True, timeout=30)) as live, closing(sqlite3.connect(target)) as copy:
        live.backup(copy)
        # The copy must be complete without a -wal file beside it.
        copy.execute("PRAGMA journal_mode=DELETE")
        (verdict,) = copy.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(f"the copy failed its integrity check ({verdict})")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network mounts do not support fsync of directories; the server determines the durability of entries.
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def dump_command(url: sa.URL, target: Path) -> str:
    """The command line that copies a PostgreSQL catalog, without what may be a secret, and how to pass the password."""
    has_password = url.password is not None or "password" in url.query
    hidden = hidden_parameters(url)
    # set(password=None) would keep the password: a new URL is built.
    shown = sa.URL.create(
        "postgresql",
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
        query={name: value for name, value in url.query.items() if name not in hidden},
    ).render_as_string(hide_password=True)
    hint = " The password is left out: set PGPASSWORD, or write it to ~/.pgpass." if has_password else ""
    others = [name for name in hidden if name != "password"]
    if others:
        hint += f" The parameters {', '.join(others)} are left out, because they may be secrets: add them."
    return f"pg_dump --format=custom --file={shlex.quote(str(target))} '{shown}'{hint}"
