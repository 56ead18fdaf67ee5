"""Footers of files in an object store: how many requests they take."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.spark.read.footers import read_footers
from cm_delta_dagster.storage.fsspec_store import FsspecStore
from cm_delta_dagster.storage.store import ObjectStatus
from tests.support.s3_server import s3_server

BUCKET = "footers"


def parquet(num_columns: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({f"a_long_name_of_a_column_{number}": [number] for number in range(num_columns)}), sink)
    return sink.getvalue()


def test_a_footer_takes_one_request_and_a_long_one_two() -> None:
    """No request for the size: the add action states it already."""
    pytest.importorskip("s3fs")
    short, long = parquet(2), parquet(600)
    with s3_server() as server:
        store = FsspecStore("s3", options={"key": "x", "secret": "y", "endpoint_url": server.endpoint})
        store._filesystem.mkdir(BUCKET)
        files = []
        for number, data in enumerate([*[short] * 8, long]):
            location = f"s3://{BUCKET}/{number}.parquet"
            store.write(location, data)
            files.append(ObjectStatus(location=location, size=len(data), modification_time=0))
        server.requests.clear()
        footers = read_footers(store, files)
        seen = [method for method, _ in server.requests]
        store.write(files[0].location, short[:-1] + b"?")
        with pytest.raises(StorageError, match="has no Parquet footer"):
            read_footers(store, files)
    assert [footer.num_columns for footer in footers] == [*[2] * 8, 600]
    assert seen == ["GET"] * 10
