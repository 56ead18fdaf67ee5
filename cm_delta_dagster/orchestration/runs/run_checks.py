"""Checks when a run starts, so that no asset is computed whose rows cannot be written.

The catalog and the warehouse are checked when the IO manager is set up, once in each process of a run. The jars of the
warehouse's file system can only be seen in a Spark session, and no session is started to look: each session of a
``SparkResource`` is checked on its first use.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.spark.library import SparkSession
from cm_delta_dagster.spark.stores.object_stores import spark_storage
from cm_delta_dagster.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WarehouseCheck:
    """What a Spark session must be able to reach: the warehouse and its store."""

    location: str
    store: Store

    def __call__(self, session: SparkSession) -> None:
        """Raises StoreNotSupportedError if the session lacks the jars of the warehouse's file system."""
        spark_storage(session, self.store, self.location)


_checks: list[Callable[[SparkSession], None]] = []
_lock = threading.Lock()


def check_session(session: SparkSession) -> None:
    """Apply the checks of the runs in this process. Raises what they raise."""
    with _lock:
        checks = list(_checks)
    for check in checks:
        check(session)


@contextmanager
def checked_warehouse(client: DeltaClient, *, session: SparkSession | None = None) -> Iterator[None]:
    """Check catalog and warehouse now, and within the block each Spark session on its first use.

    Makes one query and one request to the store of the warehouse.

    Args:
        session: the running session that the run will use, which is checked now; None if there is none.

    Raises:
        CatalogUnavailableError: the catalog cannot be reached.
        StorageError: the warehouse cannot be reached, e.g. because its bucket does not exist.
        WarehouseMismatchError: the warehouse belongs to another catalog.
        StoreNotSupportedError: a package or, in a running session, a jar of the warehouse's file system is missing.
    """
    location = client.warehouse.check_own().warehouse
    if location is None:
        yield
        return
    check = WarehouseCheck(location=location, store=client.stores.store_for(location))
    if session is not None:
        check(session)
    with _lock:
        _checks.append(check)
    try:
        yield
    finally:
        with _lock:
            _checks.remove(check)
