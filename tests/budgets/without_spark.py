"""Operations on a table in S3 that need no Spark, and the requests that each of them sends."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cm_delta_dagster import ClientSettings, Connection, connect
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.protocol.actions.actions import AddFile
from tests.support.actions import add_file
from tests.support.object_stores import s3_options
from tests.support.recording_proxy import RecordedRequest, RecordingProxy

SCHEMA = pa.schema([("id", pa.int64())])
MODES = ("staged", "inline", "put_if_absent")
Requests = tuple[RecordedRequest, ...]


class Measurement:
    """Runs operations one after the other and keeps the requests of each.

    Attributes:
        found: the requests of each operation, its background work included.
        foreground: those that arrived before the operation returned.
    """

    def __init__(self, proxy: RecordingProxy) -> None:
        self._proxy = proxy
        self.found: dict[str, Requests] = {}
        self.foreground: dict[str, Requests] = {}

    def run(self, operation: str, lake: Connection, work: Callable[[], Any]) -> Any:
        lake.client.wait_for_background()
        self._proxy.clear()
        result = work()
        self.foreground[operation] = self._proxy.requests()
        lake.client.wait_for_background()
        self.found[operation] = self._proxy.requests()
        return result


def open_lake(url: str, home: Path, bucket: str, **settings: Any) -> Connection:
    return connect(
        f"sqlite:///{home}/catalog.db",
        warehouse=f"s3://{bucket}/w",
        storage_options=s3_options(url),
        settings=ClientSettings(**settings),
    )


def append(table: Table, count: int = 1) -> None:
    """Commit ``count`` files with one row each, which are written before the transaction begins."""
    commit_files(table, write_data_files(table, count))


def write_data_files(table: Table, count: int) -> list[AddFile]:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}, schema=SCHEMA), sink)
    data = sink.getvalue()
    first = table.snapshot().num_files
    adds = []
    for number in range(first, first + count):
        adds.append(add_file(f"delta.txn=1/part-{number:05d}.parquet", size=len(data), stats='{"numRecords":1}'))
        table.store.write(f"{table.location}/{adds[-1].path}", data)
    return adds


def commit_files(table: Table, adds: list[AddFile]) -> None:
    transaction = table.start_transaction(table.snapshot(), operation="WRITE", parameters={"mode": "Append"})
    transaction.add_files(adds)
    transaction.commit()
