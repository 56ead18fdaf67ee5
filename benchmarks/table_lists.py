"""Lists of many tables through ``cm-delta serve``, by pages and in one, and the time to load one of the tables.

    python -m benchmarks.table_lists --catalog postgres --tables 10000

The tables have no files: the server answers lists from the catalog alone.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import sqlalchemy as sa

from benchmarks.catalog_server import database_of, server_of
from cm_delta_dagster.catalog.ratification import CommitSummary, InitialCommit
from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.schema import DEFINITIONS, TABLES
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.server.wires import UNITY_DELTA_PATH, UNITY_PATH

_LOADS = 300
_WARM_UP = 20
_BATCH = 1000


def fill(database: str, warehouse: str, count: int, *, columns: int) -> None:
    """Register one table, and copy its rows under other names: a registration of each table would take minutes."""
    fields = [{"name": f"c{number}", "type": "long", "nullable": True, "metadata": {}} for number in range(columns)]
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=(),
        configuration={"delta.enableInCommitTimestamps": "true", "delta.enableDeletionVectors": "true"},
    )
    features = ("catalogManaged", "deletionVectors", "inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck")
    protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=features[1:2], writer_features=features
    )
    initial = InitialCommit(file_size=1, file_modification_time=1, metadata=metadata, protocol=protocol)
    now_ms = time.time_ns() // 1_000_000
    summary = CommitSummary(txn_id=str(uuid.uuid4()), in_commit_timestamp=now_ms, operation="WRITE", data_change=True)
    name = TableIdentifier("main", "bench", "t00000")
    with SqlCatalog(database, warehouse=warehouse) as catalog:
        staging = catalog.registry.create_staging_table(name)
        catalog.registry.register_table(staging.table_id, name, summary=summary, initial=initial)
    engine = sa.create_engine(database)
    with engine.begin() as connection:
        table = dict(connection.execute(sa.select(TABLES)).mappings().one())
        definition = dict(connection.execute(sa.select(DEFINITIONS)).mappings().one())
        for start in range(1, count, _BATCH):
            ids = {number: str(uuid.uuid4()) for number in range(start, min(start + _BATCH, count))}
            connection.execute(
                sa.insert(TABLES),
                [
                    {**table, "table_id": of, "table_name": f"t{number:05}", "location": f"{warehouse}/{of}"}
                    for number, of in ids.items()
                ],
            )
            connection.execute(sa.insert(DEFINITIONS), [{**definition, "table_id": of} for of in ids.values()])
        connection.exec_driver_sql("ANALYZE")
    engine.dispose()


def _pages(http: httpx.Client, size: int) -> Iterator[int]:
    """The number of tables on each page of the older API."""
    token: str | None = ""
    while token is not None:
        parameters: dict[str, str | int] = {
            "catalog_name": "main",
            "schema_name": "bench",
            "max_results": size,
            "page_token": token,
        }
        answer = http.get(f"{UNITY_PATH}/tables", params=parameters)
        answer.raise_for_status()
        body = answer.json()
        yield len(body["tables"])
        token = body["next_page_token"]


def _native_pages(catalog: HttpCatalog, size: int) -> Iterator[int]:
    """The number of names on each page of the API of this package."""
    last = None
    while page := catalog.registry.list_tables("main.bench", after=last, limit=size):
        yield len(page)
        last = page[-1]


class _Timer:
    """Measures calls of a server, in wall time and in processor time of the server."""

    def __init__(self, pid: int) -> None:
        self._process = Path(f"/proc/{pid}/stat")

    def seconds(self, call: Callable[[], object], expected: object) -> str:
        """The times of a call, which must return ``expected``."""
        cpu, begun = self._cpu_seconds(), time.perf_counter()
        assert call() == expected
        return f"{time.perf_counter() - begun:.2f} s, processor {self._cpu_seconds() - cpu:.2f} s"

    def median(self, call: Callable[[int], object], count: int) -> str:
        """The median of many calls, after some that are not measured."""
        for number in range(_WARM_UP):
            call(number)
        cpu, times = self._cpu_seconds(), []
        for number in range(count):
            begun = time.perf_counter()
            call(number)
            times.append((time.perf_counter() - begun) * 1000)
        mean = (self._cpu_seconds() - cpu) * 1000 / count
        return f"{statistics.median(times):.2f} ms p50, processor {mean:.2f} ms mean"

    def _cpu_seconds(self) -> float:
        user, system = self._process.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(kind: str, count: int, size: int, *, columns: int) -> dict[str, str]:
    """The times of whole lists, and of loads of single tables."""
    figures: dict[str, str] = {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench")))
        database = stack.enter_context(database_of(kind, directory))
        warehouse = f"file://{directory}/warehouse"
        fill(database, warehouse, count, columns=columns)
        url, token, pid = stack.enter_context(server_of(database, warehouse))
        headers = {"Authorization": f"Bearer {token}"}
        http = stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=120))
        catalog = stack.enter_context(HttpCatalog(url, token))
        timer = _Timer(pid)
        for path, name in (
            (f"{UNITY_PATH}/tables/main.bench.t{{:05}}", "older API"),
            (f"{UNITY_DELTA_PATH}/catalogs/main/schemas/bench/tables/t{{:05}}", "Delta API"),
        ):

            def load(number: int, path: str = path) -> None:
                http.get(path.format(number * 31 % count)).raise_for_status()

            figures[f"load, {name}"] = timer.median(load, _LOADS)
        figures[f"older API by {size}"] = timer.seconds(lambda: sum(_pages(http, size)), count)
        figures["older API in one page"] = timer.seconds(lambda: sum(_pages(http, 0)), count)
        figures[f"our API by {size}"] = timer.seconds(lambda: sum(_native_pages(catalog, size)), count)
        figures["our API in one page"] = timer.seconds(lambda: len(catalog.registry.list_tables("main.bench")), count)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table_lists", description=__doc__.partition("\n")[0])
    parser.add_argument("--catalog", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--page", type=int, default=100)
    parser.add_argument("--columns", type=int, default=5)
    arguments = parser.parse_args()
    figures = measure(arguments.catalog, arguments.tables, arguments.page, columns=arguments.columns)
    for name, value in figures.items():
        print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
