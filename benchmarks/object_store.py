"""Tasks on S3: an emulator in a process of its own. In the append of one row each request has a latency of 50 ms.

Plain Spark writes through S3A's magic committer. All engines read the same files, and get the same settings of S3A.
"""

import io
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.s3_server import set_latency
from benchmarks.shared import Shared

TASKS = {"s3_bulk_append": 0.0, "s3_one_row_append": 0.05, "s3_cold_read": 0.0}
"""Latency in seconds."""
BUCKET = "bench"
TABLE = "files"
_ROWS_PER_FILE = 100
_FILES_PER_COMMIT = 100

_CLOUD = "org.apache.spark.internal.io.cloud"
_MAGIC = {
    "spark.sql.sources.commitProtocolClass": f"{_CLOUD}.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": f"{_CLOUD}.BindingParquetOutputCommitter",
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
    "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.hadoop.fs.s3a.committer.magic.enabled": "true",
    # With it no file is there after the write.
    "spark.hadoop.fs.s3a.committer.magic.track.commits.in.memory.enabled": "false",
}


def options(shared: Shared) -> dict[str, str]:
    """Storage options in fsspec's words."""
    return {"key": "benchmark", "secret": "benchmark", "endpoint_url": shared.s3_endpoint}


def session_settings(shared: Shared, *, magic: bool) -> dict[str, str]:
    """Settings of a session that reaches S3 without storage options of this package."""
    if not set(TASKS).intersection(shared.tasks):
        return {}
    prefix = "spark.hadoop.fs.s3a."
    return {
        f"{prefix}access.key": "benchmark",
        f"{prefix}secret.key": "benchmark",
        f"{prefix}endpoint": shared.s3_endpoint,
        f"{prefix}endpoint.region": "us-east-1",
        f"{prefix}connection.ssl.enabled": "false",
        f"{prefix}path.style.access": "true",
        **(_MAGIC if magic else {}),
    }


def is_wanted(shared: Shared, *tasks: str) -> bool:
    """Whether the run has one of these tasks, or any task on S3 if none is named."""
    return bool(set(tasks or TASKS).intersection(shared.tasks))


def with_latency(shared: Shared, tasks: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """The same tasks, each of which first sets its latency, unless an earlier task has."""
    return {name: lambda name=name, run=run: _run(shared, name, run) for name, run in tasks.items()}


def _run(shared: Shared, name: str, run: Callable[[], Any]) -> Any:
    set_latency(shared.s3_endpoint, TASKS[name])
    return run()


def new_place() -> str:
    """A place for one write of plain Spark."""
    return f"s3a://{BUCKET}/plain-{uuid.uuid4().hex}"


def paths(shared: Shared) -> list[str]:
    """Data files of the table that all engines read, as Spark opens them."""
    return [f"s3a://{BUCKET}/{TABLE}/{name}" for name in _names(shared.s3_files)]


def make_table(shared: Shared) -> None:
    """Write the table of ``s3_files`` files in S3: commits of 100 files, each in a directory of its own."""
    filesystem = fsspec.filesystem("s3", **options(shared))
    names, objects = _names(shared.s3_files), {}
    for first in range(0, len(names), _FILES_PER_COMMIT):
        actions: list[dict[str, Any]] = [] if first else [{"protocol": _PROTOCOL}, {"metaData": _METADATA}]
        for number, name in enumerate(names[first : first + _FILES_PER_COMMIT], first):
            data = _file(number)
            objects[f"{BUCKET}/{TABLE}/{name}"] = data
            stats = json.dumps({"numRecords": _ROWS_PER_FILE})
            actions.append(
                {
                    "add": {
                        "path": name,
                        "partitionValues": {},
                        "size": len(data),
                        "modificationTime": 1700000000000,
                        "dataChange": True,
                        "stats": stats,
                    }
                }
            )
        text = "\n".join(json.dumps(action) for action in actions)
        objects[f"{BUCKET}/{TABLE}/_delta_log/{first // _FILES_PER_COMMIT:020d}.json"] = text.encode()
    filesystem.pipe(objects)


_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
_METADATA = {
    "id": "5b0c6a2e-9e0f-4f0e-9a3e-0c5f1f0f9a12",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": "id", "type": "long", "nullable": True, "metadata": {}},
                {"name": "amount", "type": "double", "nullable": True, "metadata": {}},
            ],
        }
    ),
    "partitionColumns": [],
    "configuration": {},
    "createdTime": 1700000000000,
}


def _names(files: int) -> list[str]:
    directories = [f"delta.txn={number:032x}" for number in range(files // _FILES_PER_COMMIT + 1)]
    return [f"{directories[number // _FILES_PER_COMMIT]}/part-{number:05d}.parquet" for number in range(files)]


def _file(number: int) -> bytes:
    ids = list(range(number * _ROWS_PER_FILE, (number + 1) * _ROWS_PER_FILE))
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": ids, "amount": [float(value) for value in ids]}), sink)
    return sink.getvalue()


def total(frame: Any) -> dict[str, Any]:
    """Read two columns of every row."""
    row = frame.selectExpr("count(id)", "sum(amount)").collect()[0]
    return {"answer": row[0]}


def jars(folder: Path | None) -> tuple[str, ...]:
    """The jars with which Spark reaches S3."""
    return () if folder is None else tuple(sorted(str(jar) for jar in folder.glob("*.jar")))
