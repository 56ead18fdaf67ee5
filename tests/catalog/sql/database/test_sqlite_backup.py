"""Backups of a SQLite catalog where the operating system cannot sync the directory of the copy."""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.backup import back_up_sqlite
from cm_delta_dagster.errors import CatalogError


def fsync_of_a_mount(code: int) -> Callable[[int], None]:
    """The operating system's call, as on a mount whose directories it refuses."""
    original = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        original(descriptor)

    return fsync


@pytest.fixture
def database(tmp_path: Path) -> str:
    with closing(SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/w")) as catalog:
        catalog.registry.identity()
    return f"{tmp_path}/catalog.db"


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_mount_whose_directories_cannot_be_synced_takes_a_backup(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "fsync", fsync_of_a_mount(code))
    target = tmp_path / "copy.db"
    assert back_up_sqlite(database, target, shown_url="sqlite:///catalog.db") == target.stat().st_size > 0
    with closing(sqlite3.connect(target)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert list(tmp_path.glob(".copy.db*")) == []


def test_a_disk_that_fails_to_sync_leaves_no_backup(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", fsync_of_a_mount(errno.EIO))
    with pytest.raises(CatalogError, match="No backup was made"):
        back_up_sqlite(database, tmp_path / "copy.db", shown_url="sqlite:///catalog.db")
    assert list(tmp_path.glob("*copy.db*")) == []
