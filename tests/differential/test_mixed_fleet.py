"""One table that DuckDB, Delta Kernel and this package change at the same time, through one server.

Sail is not among them: it reads no table in which a writer has lost a version (``test_sail_over_server.py``).
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from cm_delta_dagster import Connection, DeltaTable, connect
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.errors import CommitConflictError
from cm_delta_dagster.server.settings import ServerSettings
from tests.differential.other_readers import duckdb_answers
from tests.server.unity.conftest import direct_client
from tests.support.cached_folders import or_skip
from tests.support.kernel_java import KernelClient, KernelTable, kernel_gateway, kernel_jars
from tests.support.live_server import LiveServer, live_server
from tests.support.peer_environments import peer_environment
from tests.support.unity_wire import UnityWire
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.peers, pytest.mark.timeout(3600)]

TABLE = "main.s.t"
_MOST_ATTEMPTS = 60
_LOST_BY_KERNEL = ("ConcurrentWriteException", "should be greater than the previous commit attempt version")
"""The second one if the winner is not published yet."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as live:
        wire = UnityWire(live)
        wire.older("POST", "schemas", {"name": "s", "catalog_name": "main"})
        wire.http.close()
        yield live


@pytest.fixture
def kernel(server: LiveServer) -> Iterator[KernelClient]:
    or_skip(kernel_jars)
    with kernel_gateway() as gateway:
        yield _kernel(gateway, server)


def _kernel(gateway: JavaGateway, server: LiveServer) -> KernelClient:
    return KernelClient(gateway, server.url, server.token_for("kernel"))


@dataclass
class _Ledger:
    """What engines reported: rows by id that are in the table, and ids whose commit failed with an error."""

    rows: dict[int, str] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def insert(self, key: int, value: str) -> None:
        with self.lock:
            self.rows[key] = value

    def delete(self, key: int) -> None:
        with self.lock:
            del self.rows[key]
            self.deleted.add(key)

    def acknowledged(self) -> frozenset[int]:
        with self.lock:
            return frozenset(self.rows)


class _Fleet:
    """The writers. Each has ids of its own."""

    def __init__(self, server: LiveServer, kernel: KernelClient, table: KernelTable) -> None:
        self.server, self.kernel, self.table = server, kernel, table
        self.ledger = _Ledger()

    def lake(self, principal: str) -> Connection:
        return connect(self.server.url, token=self.server.token_for(principal))

    def duckdb(self, *statements: str) -> list[Any]:
        attach = (
            f"CREATE SECRET (TYPE unity_catalog, TOKEN '{self.server.token_for('duck')}', ENDPOINT '{self.server.url}', "
            "AWS_REGION 'x')",
            "ATTACH 'main' AS lake (TYPE unity_catalog, DEFAULT_SCHEMA 's')",
        )
        return duckdb_answers(*attach, *statements, extensions=("httpfs", "delta", "unity_catalog"))[len(attach) :]

    def by_duckdb(self, rounds: int) -> None:
        """DuckDB ends a statement with an error if another writer has committed the version; its caller runs it again."""
        for number in range(rounds):
            for attempt in range(_MOST_ATTEMPTS):
                (answer,) = self.duckdb(f"INSERT INTO lake.s.t VALUES ({1000 + number}, 'duck')")
                if not isinstance(answer, str):
                    break
                assert "CommitVersionConflictException" in answer and attempt + 1 < _MOST_ATTEMPTS, answer
            self.ledger.insert(1000 + number, "duck")

    def by_kernel(self, rounds: int) -> None:
        """Kernel raises an exception if another writer has committed the version; its caller begins again."""
        for number in range(rounds):
            for attempt in range(_MOST_ATTEMPTS):
                try:
                    self.kernel.append(self.kernel.snapshot(self.table), [{"id": 3000 + number, "v": "kernel"}])
                    break
                except Py4JJavaError as error:
                    lost = any(text in str(error.java_exception) for text in _LOST_BY_KERNEL)
                    assert lost and attempt + 1 < _MOST_ATTEMPTS, str(error.java_exception)
            self.ledger.insert(3000 + number, "kernel")

    def by_arrow(self, rounds: int) -> None:
        with self.lake("arrow") as lake:
            table = lake.table(TABLE)
            for number in range(rounds):
                table.append([{"id": 4000 + number, "v": "arrow"}])
                self.ledger.insert(4000 + number, "arrow")

    def by_merges(self, rounds: int) -> None:
        """Inserts a row, changes the one before, and deletes the one before that."""
        with self.lake("merger") as lake:
            table = lake.table(TABLE)
            for number in range(rounds):
                new, last, old = 5000 + number, 4999 + number, 4998 + number
                source = pa.table({"id": [new, last, old], "v": ["new", "changed", "gone"]})
                merge = (
                    table.merge(source, "id")
                    .when_matched_delete("source.v = 'gone'")
                    .when_matched_update({"v": "source.v"})
                    .when_not_matched_insert_all("source.v = 'new'")
                )
                _again(merge.execute)
                self.ledger.insert(new, "new")
                if number:
                    self.ledger.insert(last, "changed")
                if number > 1:
                    self.ledger.delete(old)

    def by_maintenance(self, rounds: int) -> None:
        with self.lake("keeper") as lake:
            table = lake.table(TABLE)
            for _ in range(rounds):
                _again(table.optimize)
                table.vacuum()

    def reads(self, rounds: int) -> None:
        """Every version has each row once, and all rows that were acknowledged before it was read."""
        with self.lake("reader") as lake:
            for _ in range(rounds):
                known = self.ledger.acknowledged()
                self._check(lake.table(TABLE), known)

    def _check(self, table: DeltaTable, known: frozenset[int]) -> None:
        ids = table.to_arrow(["id"])["id"].to_pylist()
        assert len(ids) == len(set(ids))
        missing = known - set(ids)
        assert all(key >= 5000 for key in missing), "only merges delete rows"


def _again(act: Callable[[], object]) -> None:
    """Repeat an act that loses against concurrent changes of the same files."""
    for attempt in range(_MOST_ATTEMPTS):
        try:
            act()
        except CommitConflictError:
            assert attempt + 1 < _MOST_ATTEMPTS
            continue
        return


@pytest.mark.requirements("CM-W4", "CM-W5", "OCC-1")
@pytest.mark.parametrize("factor", [1, pytest.param(12, marks=pytest.mark.exhaustive)])
def test_engines_change_one_table_at_the_same_time(server: LiveServer, kernel: KernelClient, factor: int) -> None:
    """No row is lost or there twice, all engines read the same rows in the end, and every commit is published."""
    or_skip(peer_environment, "duckdb")
    with connect(server.settings.catalog, warehouse=server.settings.warehouse) as lake:
        for kind in MaintenanceKind:
            lake.maintenance.set_policy("main.s", kind, reason="tests")
        made = kernel.create("main", "s", "t")
        fleet = _Fleet(server, kernel, made)
        works = (
            (fleet.by_duckdb, 3),
            (fleet.by_kernel, 8),
            (fleet.by_arrow, 15),
            (fleet.by_merges, 8),
            (fleet.by_maintenance, 2),
            (fleet.reads, 10),
        )
        with ThreadPoolExecutor(len(works)) as pool:
            futures: list[Future[None]] = [pool.submit(work, rounds * factor) for work, rounds in works]
            for future in futures:
                future.result()
        table = lake.table(TABLE)
        expected = sorted(fleet.ledger.rows.items())
        assert sorted((row["id"], row["v"]) for row in table.to_arrow().to_pylist()) == expected
        version = table.version()
        with direct_client(server) as owner:
            until(lambda: owner.registry.load_table_by_id(made.table_id).ratified.published_version == version)
            principals = {entry.principal for entry in owner.feed.feed(after=0, limit=10_000)}
        assert {"duck", "kernel", "arrow", "merger", "keeper"} <= principals
        (by_duckdb,) = fleet.duckdb("SELECT * FROM lake.s.t ORDER BY id")
        assert [(row["id"], row["v"]) for row in by_duckdb] == expected
        assert sorted(kernel.rows(kernel.snapshot(made))) == expected
