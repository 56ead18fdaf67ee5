"""Restore the catalog of a lake from an older copy of its database, or replace it by an empty one; storage stays."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.storage.stores import Stores
from tests.support.lake import Lake, Unreliable

_FILES = ("catalog.db", "catalog.db-wal", "catalog.db-shm")


def back_up(directory: Path, name: str = "backup.db") -> None:
    """Copy the database as a backup does."""
    with closing(sqlite3.connect(directory / "catalog.db")) as live, closing(sqlite3.connect(directory / name)) as copy:
        live.backup(copy)


def restore(lake: Lake, directory: Path, name: str = "backup.db") -> None:
    """Replace the database by the copy; open a new client."""
    lake.client.close()
    for file in _FILES:
        (directory / file).unlink(missing_ok=True)
    (directory / "catalog.db").write_bytes((directory / name).read_bytes())
    reconnect(lake, directory)


def lose(lake: Lake, directory: Path) -> None:
    """Delete the database; the next use creates an empty one."""
    lake.client.close()
    for file in _FILES:
        (directory / file).unlink(missing_ok=True)
    reconnect(lake, directory)


def reconnect(lake: Lake, directory: Path, warehouse: str = "memory://lake/warehouse") -> None:
    """Open a new catalog and client, as another process with empty caches."""
    lake.sql_catalog = SqlCatalog(f"sqlite:///{directory}/catalog.db", warehouse=warehouse, now_ms=lake.clock)
    lake.catalog = Unreliable(lake.sql_catalog)
    lake.client = DeltaClient(
        lake.catalog,
        stores=Stores(stores={"memory": lake.store}),
        settings=ClientSettings(
            retry_initial_delay=timedelta(seconds=0.001),
            retry_max_delay=timedelta(seconds=0.002),
            copied_content_bytes=0,
            publish_delay=timedelta(0),
        ),
        now_ms=lake.clock,
    )
