"""A writer process that appends one-file commits and kills itself at the n-th call to storage or catalog.

Processes are forked from a process that has imported everything and has no threads: a start takes milliseconds.
"""

import multiprocessing
import os
import signal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.parts import Part
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.transaction import Committed
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.tables.create import TableDesign
from cm_delta_dagster.operations.tables.write_attempts import write_attempts
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.stores import Stores

CHANGING = (
    "write",
    "write_if_absent",
    "delete",
    "commit",
    "record_published",
    "set_published_version",
    "create_staging_table",
    "register_table",
)
DESIGN = TableDesign(schema=StructType(fields=(StructField(name="id", type=PrimitiveType(name="long")),)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """URL of the catalog, warehouse, and the options of its store."""

    url: str
    warehouse: str
    options: Mapping[str, object] = field(default_factory=dict)

    def stores(self) -> Stores:
        return Stores(storage_options=StorageOptions.of(dict(self.options), warehouse=self.warehouse))


class Killing:
    """Forwards calls to the real object; kills the process at the n-th changing call, counted over all objects."""

    calls = 0

    def __init__(self, inner: Any, die_at: int, when: str) -> None:
        self._inner, self._die_at, self._when = inner, die_at, when

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if isinstance(attribute, Part):
            return Killing(attribute, self._die_at, self._when)
        if name == "store_for":
            return lambda location: Killing(attribute(location), self._die_at, self._when)
        if name not in CHANGING:
            return attribute

        def call(*arguments: Any, **keywords: Any) -> Any:
            Killing.calls += 1
            is_last = Killing.calls == self._die_at
            if is_last and self._when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = attribute(*arguments, **keywords)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call


def _write(place: Place, table: str, output: Path, commits: int, tag: str, die_at: int, when: str) -> None:
    catalog = Killing(SqlCatalog(place.url, warehouse=place.warehouse), die_at, when)
    stores = Killing(place.stores(), die_at, when)
    client = DeltaClient(catalog, stores=stores, settings=ClientSettings(max_commit_attempts=200))
    acknowledgements = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(commits):
        path = f"{tag}-{number}.parquet"

        def append(table: Table, path: str = path) -> Committed:
            transaction = table.start_transaction(table.snapshot(), operation="WRITE")
            transaction.add_files(
                [AddFile(path=path, partition_values={}, size=1, modification_time=1, stats='{"numRecords":1}')]
            )
            return transaction.commit()

        for attempt in write_attempts(client, identifier=table):
            with attempt.target(DESIGN) as target:
                append(target)
        os.write(acknowledgements, f"{path}\n".encode())
        client.wait_for_background()
    client.close()


class Writer:
    """A running writer.

    Args:
        place: the catalog and its warehouse.
        table: created by the first commit if it does not exist.
        directory: for the file of acknowledged commits.
        die_at: number of the call at which the process is killed, 0 for none.
        when: whether it is killed ``before`` or ``after`` that call.
    """

    def __init__(
        self,
        place: Place,
        *,
        table: str,
        directory: Path,
        commits: int,
        tag: str,
        die_at: int = 0,
        when: str = "-",
    ) -> None:
        self._output = directory / f"{uuid.uuid4().hex}.acknowledged"
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "s3fs", "adlfs", "gcsfs"])
        self._process = context.Process(
            target=_write, args=(place, table, self._output, commits, tag, die_at, when), daemon=True
        )
        self._process.start()

    def wait(self) -> int:
        """Return the exit code, negative for a signal. Fails if the writer does not end."""
        self._process.join(240)
        assert self._process.exitcode is not None, "the writer does not end"
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def acknowledged(self) -> list[str]:
        """Return the file of each acknowledged commit."""
        return self._output.read_text().split() if self._output.exists() else []
