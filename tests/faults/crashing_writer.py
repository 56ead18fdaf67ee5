"""A writer in a process of its own that appends one-file commits and kills itself at the n-th call to storage or catalog.

Arguments: catalog URL, warehouse, table, number of commits, tag, call to die at (0: never), ``before`` or ``after`` that
call. Prints the file of each commit that was acknowledged. The first commit makes the table if it does not exist.
"""

import os
import signal
import sys
from typing import Any

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.transaction import Committed
from cm_delta_dagster.operations.create import TableDesign, write_or_create
from cm_delta_dagster.protocol.actions import AddFile
from cm_delta_dagster.protocol.schema import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.stores import Stores

CHANGING = (
    "write",
    "write_if_absent",
    "delete",
    "commit",
    "set_published_version",
    "create_staging_table",
    "register_table",
)
DESIGN = TableDesign(schema=StructType(fields=(StructField(name="id", type=PrimitiveType(name="long")),)))


class Mortal:
    """The real thing; the n-th changing call, counted over all of them, is the last that this process makes."""

    calls = 0

    def __init__(self, inner: Any, die_at: int, when: str) -> None:
        self._inner, self._die_at, self._when = inner, die_at, when

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name == "store_for":
            return lambda location: Mortal(attribute(location), self._die_at, self._when)
        if name not in CHANGING:
            return attribute

        def call(*arguments: Any, **keywords: Any) -> Any:
            Mortal.calls += 1
            mine = Mortal.calls == self._die_at
            if mine and self._when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = attribute(*arguments, **keywords)
            if mine:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call


def main() -> None:
    url, warehouse, name, commits, tag, die_at, when = sys.argv[1:]
    catalog = Mortal(SqlCatalog(url, warehouse=warehouse), int(die_at), when)
    stores = Mortal(Stores(), int(die_at), when)
    client = DeltaClient(catalog, stores=stores, settings=ClientSettings(max_commit_attempts=200))
    for number in range(int(commits)):
        path = f"{tag}-{number}.parquet"

        def append(table: Table, path: str = path) -> Committed:
            transaction = table.start_transaction(table.snapshot(), operation="WRITE")
            transaction.add_files(
                [AddFile(path=path, partition_values={}, size=1, modification_time=1, stats='{"numRecords":1}')]
            )
            return transaction.commit()

        write_or_create(client, identifier=name, design=lambda: DESIGN, write=append)
        print(path, flush=True)
        client.wait_for_background()
    print("calls", Mortal.calls, flush=True)
    client.close()


if __name__ == "__main__":
    main()
