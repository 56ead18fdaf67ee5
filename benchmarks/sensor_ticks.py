"""Ticks of a commit sensor that watches all 10,000 tables of a catalog: with nothing new, and with ten commits.

A tick ends with its result; that Dagster stores the events is not timed.
"""

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import sqlalchemy as sa

from cm_delta_dagster import connect
from cm_delta_dagster.catalog.ratification import CommitProposal, CommitSummary, Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database import engines, schema
from cm_delta_dagster.orchestration import CatalogResource, ratified_commit_sensor

TABLES = 10_000
COMMITS = 10
TASKS = ("sensor_tick", "sensor_tick_commits")
_SCHEMA = pa.schema([("id", pa.int64()), ("label", pa.string())])
_SCHEMAS = 100


def table_name(number: int) -> str:
    """Full name of a table of :func:`fill_catalog`."""
    return f"main.s{number % _SCHEMAS}.t{number}"


def table_id(number: int) -> str:
    """Id of a table of :func:`fill_catalog`."""
    return str(uuid.UUID(int=number + 1))


def fill_catalog(url: str, warehouse: str, count: int) -> None:
    """Give an empty catalog ``count`` tables of one version, whose logs are not in storage, and one table more.

    The package creates that table, and its rows are copied, because 10,000 transactions would take minutes.
    """
    with connect(url, warehouse=warehouse) as lake:
        lake.create_table("main.bench.first", schema=_SCHEMA)
        lake.client.feed.latest_feed_position()  # Gives the entry its position on PostgreSQL.
    copied: Sequence[tuple[sa.Table, Callable[[int], Mapping[str, Any]]]] = (
        (schema.TABLES, lambda number: _name_columns(number, warehouse)),
        (schema.DEFINITIONS, lambda _: {}),
        (schema.COMMITS, lambda _: {"txn_id": str(uuid.uuid4())}),
        (schema.FEED, lambda number: {"entry_id": number + 2, "position": number + 2}),
    )
    engine = sa.create_engine(engines.parsed_url(url), poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        for table, own in copied:
            (first,) = connection.execute(sa.select(table)).mappings()
            rows = [{**first, "table_id": table_id(number), **own(number)} for number in range(count)]
            connection.execute(sa.insert(table), rows)
        connection.execute(sa.update(schema.FEED_COUNTER).values(position=count + 1))
        if connection.dialect.name != "sqlite":
            sequence = sa.func.pg_get_serial_sequence(schema.FEED.name, "entry_id")
            connection.execute(sa.select(sa.func.setval(sequence, count + 1)))


def _name_columns(number: int, warehouse: str) -> dict[str, Any]:
    _, schema_name, name = table_name(number).split(".")
    return {"schema_name": schema_name, "table_name": name, "location": f"{warehouse}/{schema_name}/{name}"}


def _proposal(version: int) -> CommitProposal:
    """A proposal without a file."""
    now_ms, txn_id = int(time.time() * 1000), str(uuid.uuid4())
    return CommitProposal(
        version=version,
        file_name=f"{version:020d}.{txn_id}.json",
        file_size=1000,
        file_modification_time=now_ms,
        summary=CommitSummary(txn_id=txn_id, in_commit_timestamp=now_ms + version, operation="WRITE", data_change=True),
    )


class Ticker:
    """A sensor of a catalog of :func:`fill_catalog` on an instance of its own, and commits to the tables.

    Args:
        home: folder of the instance.
        count: number of watched tables.
        first: the first table that is committed to; another ticker of the same catalog needs tables of its own.
    """

    def __init__(self, url: str, warehouse: str, home: Path, count: int, *, first: int = 0) -> None:
        self._stack = ExitStack()
        self.catalog = self._stack.enter_context(SqlCatalog(url, warehouse=warehouse))
        self.resource = CatalogResource(url=url, warehouse=warehouse)
        self._stack.callback(self.resource.close)
        home.mkdir(parents=True, exist_ok=True)
        self._instance = self._stack.enter_context(dg.DagsterInstance.local_temp(str(home)))
        watched = {dg.AssetKey(table_name(number).split(".")[1:]): table_name(number) for number in range(count)}
        self._sensor = ratified_commit_sensor(name="commits", assets=watched)
        self._count = count
        self._versions: dict[int, int] = {}
        self._committed = first
        self.cursor: str | None = None

    def close(self) -> None:
        self._stack.close()

    def commit(self) -> None:
        """Commit once to the next table."""
        number = self._committed % self._count
        version = self._versions.get(number, 0) + 1
        if not isinstance(self.catalog.coordinator.commit(table_id(number), _proposal(version)), Ratified):
            raise RuntimeError("A commit without a competitor was not ratified.")
        self._versions[number] = version
        self._committed += 1

    def tick(self) -> dict[str, Any]:
        """One tick; the answer is the number of its events, which are stored after the time ends."""
        with dg.build_sensor_context(
            instance=self._instance, cursor=self.cursor, resources={"catalog": self.resource}
        ) as context:
            start, cpu = time.perf_counter(), time.process_time()
            result = self._sensor.evaluate_tick(context)
            figures = {"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu}
        for event in result.asset_events:
            self._instance.report_runless_asset_event(event)
        self.cursor = result.cursor
        return {**figures, "answer": len(result.asset_events)}


class SensorBench:
    """The tasks of this module over one catalog, which is made by the first of them.

    Args:
        url: returns the URL of an empty catalog.
    """

    def __init__(self, home: Path, url: Callable[[], str]) -> None:
        self._home = home
        self._url = url
        self._ticker: Ticker | None = None

    def tasks(self) -> dict[str, Callable[[], dict[str, Any]]]:
        return {"sensor_tick": lambda: self._tick(0), "sensor_tick_commits": lambda: self._tick(COMMITS)}

    def close(self) -> None:
        if self._ticker is not None:
            self._ticker.close()

    def _tick(self, commits: int) -> dict[str, Any]:
        if self._ticker is None:
            url, warehouse = self._url(), f"file://{self._home}/watched"
            logging.getLogger("dagster").setLevel(logging.WARNING)
            fill_catalog(url, warehouse, TABLES)
            self._ticker = Ticker(url, warehouse, self._home / "instance", TABLES)
            self._ticker.tick()
        for _ in range(commits):
            self._ticker.commit()
        found = self._ticker.tick()
        if found["answer"] != commits:
            raise RuntimeError(f"The tick reported {found['answer']} of {commits} commits.")
        return found
