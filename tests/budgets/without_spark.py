"""Operations on tables in S3 that need no Spark."""

import datetime
import io
import uuid
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from cm_delta_dagster import ClientSettings, Connection, connect
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.orchestration import CatalogResource, FirstTick, ratified_commit_sensor
from cm_delta_dagster.protocol.actions.actions import AddFile
from tests.budgets.measurement import Measurement
from tests.support.actions import add_file
from tests.support.object_stores import s3_options

SCHEMA = pa.schema([("id", pa.int64())])
MODES = ("staged", "inline", "put_if_absent")
CHECKPOINT_INTERVAL = 10


class Operations:
    """One catalog, and the operations on its tables.

    Args:
        url: of the S3 server that records the requests.
        bucket: for the warehouse of the catalog.
        home: directory of the catalog's database.
    """

    def __init__(self, measurement: Measurement, *, url: str, bucket: str, home: Path) -> None:
        self.measurement = measurement
        self._options = s3_options(url)
        self._warehouse = f"s3://{bucket}/w"
        self._catalog_url = f"sqlite:///{home}/catalog.db"

    def open(self, **settings: Any) -> Connection:
        return connect(
            self._catalog_url,
            warehouse=self._warehouse,
            storage_options=self._options,
            settings=ClientSettings(**settings),
        )

    def run_all(self) -> None:
        """All operations, except for those that take long."""
        self.create()
        for mode in MODES:
            self.commit(mode)
        self.publish()
        self.read()
        self.plan_vacuum(2_000)
        self.tick()

    def create(self) -> None:
        with self.open() as lake:
            run = self.measurement.run
            run("create the first table of a warehouse", lake, lambda: lake.create_table("main.t.first", SCHEMA))
            run("create a table", lake, lambda: lake.create_table("main.t.second", SCHEMA))

    def commit(self, mode: str) -> None:
        """What an append does beside Spark, twice by one process, and a reader beside it."""
        with self.open() as lake, self.open() as reader:
            run = self.measurement.run
            table = make_table(lake, f"main.t.{mode}", mode)
            adds = [write_data_files(table, 1) for _ in range(2)]
            run(f"commit 1 file, {mode}, first of a process", lake, lambda: commit(table, adds[0]))
            run(f"commit 1 file, {mode}", lake, lambda: commit(table, adds[1]))
            adds = [write_data_files(table, 100)]
            run(f"commit 100 files, {mode}", lake, lambda: commit(table, adds[0]))
            other = reader.table(table.identifier).table
            other.snapshot()
            run(f"refresh, nothing new, {mode}", reader, other.snapshot)
            commit(table, write_data_files(table, 1))
            lake.client.wait_for_background()
            run(f"refresh, 1 new commit, {mode}", reader, other.snapshot)

    def commit_twice(self, mode: str) -> None:
        """The operations ``first commit`` and ``second commit``."""
        with self.open() as lake:
            table = make_table(lake, "main.t.twice", mode)
            for operation in ("first commit", "second commit"):
                adds = write_data_files(table, 1)
                self.measurement.run(operation, lake, lambda adds=adds: commit(table, adds))

    def publish(self) -> None:
        with self.open(publish_delay=datetime.timedelta(seconds=1000)) as lake:
            table = make_table(lake, "main.t.published", "inline")
            commit(table, write_data_files(table, 1))
            self.measurement.run_alone("publish 1 inline commit", table.post_commit.publication.flush)

    def read(self) -> None:
        """Reads by a new process of a table with two data files, whose commits the catalog does or does not have."""
        with self.open() as lake:
            table = make_table(lake, "main.t.small", "staged")
            commit(table, write_data_files(table, 2))
        self._read_cold("cold read of 2 files, commits in the catalog", "main.t.small")
        with self.open(copied_content_bytes=0) as lake:
            table = make_table(lake, "main.t.large", "staged")
            commit(table, write_data_files(table, 2))
            for _ in range(4):
                commit(table, [])
        self._read_cold("cold read of 2 files and 6 commits", "main.t.large")
        with self.open(copied_content_bytes=0) as lake:
            table = lake.table("main.t.large").table
            while table.latest_version() < CHECKPOINT_INTERVAL - 1:
                commit(table, [])
            self.measurement.run("commit with a checkpoint", lake, lambda: commit(table, []))
            commit(table, [])
        self._read_cold("cold read of 2 files, a checkpoint and 1 commit", "main.t.large")
        with self.open(copied_content_bytes=0) as lake, self.open() as reader:
            other = reader.table("main.t.large").table
            other.snapshot()
            commit(lake.table("main.t.large").table, [])
            lake.client.wait_for_background()
            self.measurement.run("refresh, 1 new commit that only the log has", reader, other.snapshot)

    def _read_cold(self, operation: str, name: str) -> None:
        with self.open() as lake:
            rows = self.measurement.run(operation, lake, lambda: lake.table(name).to_arrow())
            assert rows.num_rows == 2

    def plan_vacuum(self, count: int) -> None:
        """Plan for a table with ``count`` objects that no version names."""
        name = f"main.t.orphans{count}"
        with self.open() as lake:
            put_old_objects(make_table(lake, name, "staged").location, count)
        with self.open() as lake:
            plan = self.measurement.run(f"vacuum plan of {count:,} files", lake, lake.table(name).plan_vacuum)
        assert plan.num_files == count

    def tick(self) -> None:
        """Ticks of the commit sensor: the first one reports the commits of a table, the second one nothing."""
        resource = CatalogResource(url=self._catalog_url, warehouse=self._warehouse, storage_options=self._options)
        sensor = ratified_commit_sensor(
            name="commits", assets={dg.AssetKey("t"): "main.t.staged"}, first_tick=FirstTick.FROM_BEGINNING
        )
        cursor = None
        with self.open() as lake, dg.DagsterInstance.ephemeral() as instance:
            for operation in ("sensor tick, 5 new commits", "sensor tick, nothing new"):
                with dg.build_sensor_context(
                    instance=instance, cursor=cursor, resources={"catalog": resource}
                ) as context:
                    result = self.measurement.run(
                        operation, lake, lambda context=context: sensor.evaluate_tick(context)
                    )
                cursor = result.cursor
                assert len(result.asset_events or ()) == (5 if "new commits" in operation else 0)


def put_old_objects(location: str, count: int) -> None:
    """Add objects of the last year to a table of the S3 server in this process, without a request."""
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    for number in range(count):
        key = backend.put_object(
            bucket, f"{prefix}/delta.txn=0/part-{number:05d}.parquet", b"PAR1", disable_notification=True
        )
        key.last_modified -= datetime.timedelta(days=365)


def make_table(lake: Connection, name: str, mode: str) -> Table:
    lake.create_table(name, SCHEMA)
    lake.settings.set_commit_mode(name, mode)
    return lake.table(name).table


def write_data_files(table: Table, count: int) -> list[AddFile]:
    """Write files with one row each, the data of an append."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}, schema=SCHEMA), sink)
    data = sink.getvalue()
    directory = f"delta.txn={uuid.uuid4()}"
    adds = [add_file(f"{directory}/part-{number:05d}.parquet", size=len(data)) for number in range(count)]
    for add in adds[:2]:  # The others are in the log only.
        table.store.write(f"{table.location}/{add.path}", data)
    return adds


def commit(table: Table, adds: list[AddFile]) -> None:
    """What an append does after its data files are written; without files, an empty commit."""
    transaction = table.start_transaction(table.snapshot(), operation="WRITE", parameters={"mode": "Append"})
    transaction.add_files(adds)
    transaction.commit()
