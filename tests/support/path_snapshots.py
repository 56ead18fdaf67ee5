"""Snapshots of tables that are opened by path."""

from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.storage.store import StoreRegistry


def load_path_snapshot(stores: StoreRegistry, location: str, *, version: int | None = None) -> Snapshot:
    """A snapshot of the table at ``location``."""
    return open_path_table(stores, location).snapshot(version=version)
