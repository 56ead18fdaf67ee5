"""A process that holds a maintenance lease, and deletes or commits on a line of input.

Arguments: URL of the catalog, warehouse, ``vacuum`` or ``commit``, milliseconds of the lease. Prints ``deleting`` after the first
deleted file, or ``ready`` before the commit, and then waits for a line of input. Prints the name of the error that ended it.
"""

import sys
import threading
import time
from datetime import timedelta

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.maintenance.authorization import maintenance_lease
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.storage.local_store import LocalStore
from cm_delta_dagster.storage.stores import Stores


class SlowStore(LocalStore):
    """Local files whose deletion takes as long as in an object store."""

    started = threading.Event()

    def delete(self, location: str) -> None:
        super().delete(location)
        if location.endswith(".parquet"):
            if not self.started.is_set():
                self.started.set()
                print("deleting", flush=True)
            time.sleep(0.02)


def commit(table: Table) -> None:
    snapshot = table.snapshot()
    with maintenance_lease(table, MaintenanceKind.DATA_REORGANIZATION) as lease:
        transaction = table.start_transaction(snapshot, operation="OPTIMIZE", parameters={})
        lease.fence(transaction)
        print("ready", flush=True)
        sys.stdin.readline()
        transaction.commit()


def main() -> None:
    url, warehouse, what, lease_ms = sys.argv[1:]
    settings = ClientSettings(maintenance_lease=timedelta(milliseconds=int(lease_ms)))
    client = DeltaClient(
        SqlCatalog(url, warehouse=warehouse), stores=Stores(stores={"file": SlowStore()}), settings=settings
    )
    table = client.table("main.test.t")
    try:
        if what == "vacuum":
            vacuum(table, retention_ms=0, force=True)
        else:
            commit(table)
        print("done", flush=True)
    except CmDeltaError as error:
        print(type(error).__name__, flush=True)
    client.close()


if __name__ == "__main__":
    main()
