"""Tables without rows: a SQLite catalog, an in-memory store, a clock set by the test, and data files of arbitrary bytes."""

import datetime
import hashlib
import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.parts import Part
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.transaction import Committed
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.protocol.actions.actions import DeletionVectorDescriptor
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.actions.paths import decode_path
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.creation import create_table

SCHEMA = StructType((StructField("id", PrimitiveType("long")), StructField("day", PrimitiveType("date"))))
START_MS = int(datetime.datetime(2026, 3, 10, 12, tzinfo=datetime.UTC).timestamp() * 1000)
DAY_MS = 24 * 60 * 60 * 1000


class Clock:
    """A clock in epoch milliseconds that changes only when the test sets it."""

    def __init__(self) -> None:
        self.now = START_MS

    def __call__(self) -> int:
        return self.now

    def pass_days(self, days: float) -> None:
        self.now += int(days * DAY_MS)


class Unreliable:
    """Forwards calls to the real object and injects faults.

    ``fails`` (method, first argument) returns an error to raise instead of the call, ``fails_after`` an error to raise after
    it; both may have side effects. ``changes`` (method, answer) returns the answer to pass on.
    """

    def __init__(self, real: Any) -> None:
        self._real = real
        self.fails: Callable[[str, Any], Exception | None] = lambda method, argument: None
        self.fails_after: Callable[[str, Any], Exception | None] = lambda method, argument: None
        self.changes: Callable[[str, Any], Any] = lambda method, answer: answer
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, method: str) -> Any:
        target = getattr(self._real, method)
        if isinstance(target, Part):
            return _UnreliablePart(self, target)
        return self._unreliable(target, method)

    def _unreliable(self, target: Any, method: str) -> Any:
        if not callable(target) or method == "now_ms":  # The clock is not a request.
            return target

        def call(*arguments: Any, **named: Any) -> Any:
            first = arguments[0] if arguments else None
            self.calls.append((method, first))
            error = self.fails(method, first)
            if error is not None:
                raise error
            answer = target(*arguments, **named)
            error = self.fails_after(method, first)
            if error is not None:
                raise error
            return self.changes(method, answer)

        return call


class _UnreliablePart:
    """A part of a catalog, with the faults of the catalog."""

    def __init__(self, catalog: Unreliable, real: Part) -> None:
        self._catalog, self._real = catalog, real

    def __getattr__(self, method: str) -> Any:
        return self._catalog._unreliable(getattr(self._real, method), method)


def broken_storage(method: str, part: str) -> Callable[[str, Any], Exception | None]:
    """For ``Unreliable.fails``: the method fails for locations that contain ``part``."""

    def fails(called: str, location: Any) -> Exception | None:
        if called == method and part in str(location):
            return StorageError(f"{called} of {location} fails for the test.")
        return None

    return fails


class Lake:
    """Catalog, store, clock and client, with shortcuts to commit to a table."""

    def __init__(
        self,
        directory: Path,
        warehouse: str = "memory://lake/warehouse",
        *,
        publish_delay: datetime.timedelta | None = None,
    ) -> None:
        self.directory = directory
        self.clock = Clock()
        self.memory = MemoryStore(now_ms=self.clock)
        self.store = Unreliable(self.memory)
        self.sql_catalog = SqlCatalog(f"sqlite:///{directory}/catalog.db", warehouse=warehouse, now_ms=self.clock)
        self.catalog = Unreliable(self.sql_catalog)
        self.client = DeltaClient(
            self.catalog,
            stores=Stores(stores={"memory": self.store}),
            # No commit content in the catalog, because the tests are about files. No delay of publication: a fault of the
            # test stays until the test removes it.
            settings=ClientSettings(
                retry_initial_delay=datetime.timedelta(seconds=0.001),
                retry_max_delay=datetime.timedelta(seconds=0.002),
                copied_content_bytes=0,
                publish_delay=publish_delay or datetime.timedelta(0),
            ),
            now_ms=self.clock,
        )
        self._reopened: list[DeltaClient] = []
        self._numbers = itertools.count()

    def reopened(self, **settings: Any) -> DeltaClient:
        """Return another client of the same catalog and files with empty caches; :meth:`close` closes it."""
        stores = Stores(stores={"memory": self.store})
        client = DeltaClient(self.catalog, stores=stores, settings=ClientSettings(**settings), now_ms=self.clock)
        self._reopened.append(client)
        return client

    def close(self) -> None:
        """Close all clients; what they have not published is tried once more and not after that."""
        for client in self._reopened:
            client.background.close()
        self.client.close()

    def new_table(self, name: str = "t", **arguments: Any) -> Table:
        """``main.test.<name>``, partitioned by day; arguments as of ``create_table``."""
        return create_table(
            self.client,
            identifier=f"main.test.{name}",
            **{"schema": SCHEMA, "partition_columns": ("day",), **arguments},
        )

    def allow(self, kind: MaintenanceKind, scope: str = "main") -> None:
        self.catalog.maintenance_policies.set_maintenance_rule(MaintenanceRule(scope=scope, kind=kind, allowed=True))

    def deny(self, kind: MaintenanceKind, scope: str = "main", reason: str = "") -> None:
        self.catalog.maintenance_policies.set_maintenance_rule(
            MaintenanceRule(scope=scope, kind=kind, allowed=False, reason=reason)
        )

    def append(self, table: Table, path: str | None = None, **more: Any) -> Committed:
        """Commit one new file of 100 bytes and 10 rows, and write 100 bytes at its path."""
        self.clock.now += 1000
        name = path or f"part-{next(self._numbers):05d}.parquet"
        fields = {"partition_values": {"day": "2026-01-01"}, "size": 100, "modification_time": self.clock()}
        add = add_file(name, **({**fields, "stats": '{"numRecords":10}'} | more))
        if ":" not in name:
            self.put(table, decode_path(name))
        transaction = table.start_transaction(table.snapshot(), operation="WRITE")
        transaction.add_files([add])
        return transaction.commit()

    def remove(self, table: Table, path: str) -> Committed:
        """Commit the removal of a live file; the file stays in storage."""
        self.clock.now += 1000
        snapshot = table.snapshot()
        files = snapshot.files.filter([value == path for value in snapshot.files["path"].to_pylist()])
        assert files.num_rows == 1
        transaction = table.start_transaction(snapshot, operation="DELETE")
        transaction.remove_files(removes_of(files, data_change=True))
        return transaction.commit()

    def replace_commit(self, table: Table, version: int, data: bytes) -> None:
        """Replace a published commit as if the catalog had ratified ``data``; delete the checksums from that version on."""
        log = f"{table.location}/_delta_log"
        self.memory.write(f"{log}/{version:020d}.json", data)
        for status in self.memory.list_from(log):
            if status.name.endswith(".crc") and int(status.name[:20]) >= version:
                self.memory.delete(status.location)
        with closing(sqlite3.connect(self.directory / "catalog.db")) as database, database:
            database.execute(
                "UPDATE cm_delta_commits SET sha256 = ?, file_size = ?, content = NULL WHERE table_id = ? AND version = ?",
                (hashlib.sha256(data).hexdigest(), len(data), table.table_id, version),
            )

    def put(self, table: Table, path: str, data: bytes = b"x" * 100) -> None:
        """Write bytes at a decoded path below the table root."""
        self.memory.write(f"{table.location}/{path}", data)

    def files(self, table: Table, below: str = "") -> set[str]:
        """Return the decoded paths of all objects below the table root, or below one of its directories."""
        root = f"{table.location}/{below}".rstrip("/") + "/"
        return {status.location.removeprefix(root) for status in self.memory.list_recursive(root)}

    def data_files(self, table: Table) -> set[str]:
        return {path for path in self.files(table) if not path.startswith("_delta_log/")}


def vector(text: str = "u", name: str = "ab^-aqEH.-t@S}K{vb[*k^", cardinality: int = 2) -> DeletionVectorDescriptor:
    """A deletion vector in a file of its own; ``ab`` is the directory of the default one."""
    return DeletionVectorDescriptor(
        storage_type=text, path_or_inline_dv=name, size_in_bytes=40, cardinality=cardinality, offset=1
    )
