"""SQLite catalogs on read-only file systems, without permissions, and on full disks. Uses mounts if the user may mount."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database import migrate, sqlite_files
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CatalogUnavailableError, PermissionDeniedError
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.storage.stores import Stores
from tests.client.conftest import SCHEMA
from tests.support.creation import create_table

ROOT = Path(__file__).parents[4]
NAME = "main.test.t"
IDENTIFIER = TableIdentifier.parse(NAME)


@contextmanager
def mounted(directory: Path, *arguments: str) -> Iterator[None]:
    mount = ["mount", *arguments, str(directory)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], capture_output=True, check=True)


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Mount the directory read-only within the block."""
    with mounted(directory, "--bind", str(directory)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(directory)], capture_output=True, check=True)
        yield


@contextmanager
def client_of(directory: Path, warehouse: Path) -> Iterator[DeltaClient]:
    catalog = SqlCatalog(f"sqlite:///{directory}/catalog.db", warehouse=f"file://{warehouse}")
    client = DeltaClient(catalog, stores=Stores())
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "a catalog #1"
    path.mkdir()
    return path


def make_table(directory: Path, warehouse: Path) -> None:
    with client_of(directory, warehouse) as client:
        create_table(client, identifier=NAME, schema=SCHEMA)


def refuses_to_write(client: DeltaClient, *parts: str) -> None:
    rule = MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_CLEANUP, allowed=True)
    for write in (
        lambda: drop_table(client, identifier=NAME),
        lambda: create_table(client, identifier="main.test.other", schema=SCHEMA),
        lambda: client.catalog.maintenance_policies.set_maintenance_rule(rule),
        lambda: client.table(NAME).start_transaction(client.table(NAME).snapshot(), operation="WRITE").commit(),
    ):
        with pytest.raises(PermissionDeniedError) as refusal:
            write()
        for part in ("catalog.db", *parts):
            assert part in str(refusal.value)
    assert client.catalog.maintenance_policies.maintenance_rules() == ()
    assert client.registry.list_tables() == (IDENTIFIER,)


def test_a_catalog_on_a_read_only_file_system_is_read_and_not_written(directory: Path, tmp_path: Path) -> None:
    make_table(directory, tmp_path / "w")
    with read_only(directory), client_of(directory, tmp_path / "w") as client:
        assert client.table(NAME).snapshot().version == 0
        assert read_arrow(open_scan(client.table(NAME))).num_rows == 0
        refuses_to_write(client, str(directory), "cannot be written")
    assert [path.name for path in directory.iterdir()] == ["catalog.db"]


def test_a_catalog_without_write_permission_is_read_and_not_written(tmp_path: Path) -> None:
    """By permission bits, in a process of another user, because root ignores them."""
    place = Path(tempfile.mkdtemp(prefix="cm-delta-rights"))
    try:
        make_table(place, place / "w")
        for path in (place, *place.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        done = subprocess.run(
            [sys.executable, str(ROOT / "tests/catalog/sql/database/other_user.py"), str(place), NAME],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        version, error = done.stdout.splitlines()
        assert version == "0"
        assert error.startswith(f"PermissionDeniedError The catalog sqlite:///{place}/catalog.db")
        assert f"the directory {place} cannot be written" in error
    finally:
        for path in (place, *place.rglob("*")):
            path.chmod(0o777)
        shutil.rmtree(place)


def test_a_reader_without_write_access_reads_new_commits(directory: Path, tmp_path: Path) -> None:
    """It uses the writer's -wal and -shm files; after they are deleted the database file is complete."""
    view = tmp_path / "view"
    view.mkdir()
    make_table(directory, tmp_path / "w")
    with mounted(view, "--bind", str(directory)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(view)], capture_output=True, check=True)
        with client_of(view, tmp_path / "w") as reader:
            assert reader.catalog.registry.list_tables() == (IDENTIFIER,)
            with client_of(directory, tmp_path / "w") as writer:
                create_table(writer, identifier="main.test.second", schema=SCHEMA)
                assert len(reader.catalog.registry.list_tables()) == 2
                create_table(writer, identifier="main.test.third", schema=SCHEMA)
                assert len(reader.catalog.registry.list_tables()) == 3
            assert len(reader.catalog.registry.list_tables()) == 3


def test_a_read_that_would_miss_commits_raises_an_error(directory: Path, tmp_path: Path) -> None:
    """A copy with -wal and without -shm: the database file alone has an older state."""
    make_table(directory, tmp_path / "w")
    copy = tmp_path / "copy"
    copy.mkdir()
    with client_of(directory, tmp_path / "w") as client:
        create_table(client, identifier="main.test.second", schema=SCHEMA)
        for name in ("catalog.db", "catalog.db-wal"):
            shutil.copy(directory / name, copy / name)
    refusal = pytest.raises(CatalogUnavailableError, match=r"catalog\.db-wal.*Nothing was read.*with write access")
    with read_only(copy), client_of(copy, tmp_path / "w") as client, refusal:
        client.registry.list_tables()
    with client_of(copy, tmp_path / "w") as client:
        assert len(client.registry.list_tables()) == 2


def test_who_migrates_an_older_catalog_on_a_read_only_file_system_is_named(directory: Path, tmp_path: Path) -> None:
    make_table(directory, tmp_path / "w")
    with closing(sqlite3.connect(directory / "catalog.db")) as connection:
        connection.execute(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '0013'")
        connection.commit()
    owner = (directory / "catalog.db").owner()
    refusal = pytest.raises(
        PermissionDeniedError,
        match=f"schema revision {migrate.HEAD} first, but .*let its owner, {owner}, open the catalog",
    )
    with read_only(directory), client_of(directory, tmp_path / "w") as client, refusal:
        client.registry.list_tables()


def test_a_read_during_a_change_of_the_database_is_repeated(directory: Path, tmp_path: Path) -> None:
    """SQLite reads an immutable database without locks: the result may mix two states."""
    make_table(directory, tmp_path / "w")
    path, calls = str(directory / "catalog.db"), []

    def count(connection: sa.Connection) -> int:
        calls.append(1)
        if len(calls) == 1:
            with client_of(directory, tmp_path / "w") as writer:
                create_table(writer, identifier="main.test.second", schema=SCHEMA)
        return int(connection.execute(sa.text("SELECT count(*) FROM cm_delta_tables")).scalar_one())

    assert sqlite_files.read_unchanged(path, count, shown_url="c") == 2
    assert len(calls) == 2


def test_a_missing_catalog_on_a_read_only_file_system_raises_an_error(directory: Path, tmp_path: Path) -> None:
    refusal = pytest.raises(PermissionDeniedError, match="cannot be written: it is read-only")
    with read_only(directory), client_of(directory, tmp_path / "w") as client, refusal:
        client.registry.list_tables()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    path = tmp_path / "disk"
    path.mkdir()
    with mounted(path, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        yield path


@contextmanager
def full(disk: Path) -> Iterator[None]:
    filling = disk / "filling"
    with filling.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 4096)
    try:
        yield
    finally:
        filling.unlink()


def table_stays(disk: Path, warehouse: Path, act: Callable[[DeltaClient], object], *, is_open: bool) -> None:
    make_table(disk, warehouse)
    with client_of(disk, warehouse) as client:
        if is_open:
            client.registry.list_tables()
        with full(disk):
            for _ in range(2):
                with pytest.raises(
                    CatalogUnavailableError, match=r"catalog\.db refused the operation: the disk .* is full"
                ) as raised:
                    act(client)
                assert str(disk) in str(raised.value) and "Nothing was changed" in str(raised.value)
                assert client.registry.list_tables() == (IDENTIFIER,)
                assert client.table(NAME).snapshot().version == 0
        assert client.registry.list_tables() == (IDENTIFIER,)
        act(client)


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "opened again"])
def test_a_drop_on_a_full_disk_changes_nothing(disk: Path, tmp_path: Path, is_open: bool) -> None:
    table_stays(disk, tmp_path / "w", lambda client: drop_table(client, identifier=NAME), is_open=is_open)


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "opened again"])
def test_a_rule_set_on_a_full_disk_changes_nothing(disk: Path, tmp_path: Path, is_open: bool) -> None:
    rule = MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_CLEANUP, allowed=True)
    table_stays(
        disk,
        tmp_path / "w",
        lambda client: client.catalog.maintenance_policies.set_maintenance_rule(rule),
        is_open=is_open,
    )


def test_threads_read_a_read_only_catalog_concurrently(directory: Path, tmp_path: Path) -> None:
    make_table(directory, tmp_path / "w")
    found: list[int] = []
    with read_only(directory), client_of(directory, tmp_path / "w") as client:
        threads = [threading.Thread(target=lambda: found.append(len(client.registry.list_tables()))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [1] * 8
