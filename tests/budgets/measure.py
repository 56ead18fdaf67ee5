"""Measures all operations; ``python -m tests.budgets.measure --write`` writes the budgets and ``docs/requests.md``.

Without the option, what differs from the budgets is printed. ``--without-spark`` leaves out the operations that need Spark.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.budgets.measurement import Counts, Measurement, budgets, deviations, write_budgets
from tests.budgets.page import PAGE, page
from tests.budgets.without_spark import Operations
from tests.support.object_stores import make_bucket, s3_options
from tests.support.recording_proxy import RecordingProxy
from tests.support.s3_server import S3Server, s3_server
from tests.support.spark_jars import s3_jars

ROOT = Path(__file__).parents[2]
ORPHANS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkMeasurement:
    """What the Spark worker saw: requests, and for each operation the round trips after its data files were written."""

    counts: Counts
    round_trips: dict[str, int]


def new_bucket(server: S3Server) -> str:
    name = f"budgets-{uuid.uuid4().hex}"
    make_bucket(FsspecStore("s3", options=s3_options(server.endpoint)), name)
    return name


def measure_without_spark(server: S3Server, *, long: bool) -> Measurement:
    """The operations that take long, or all others."""
    bucket = new_bucket(server)
    with RecordingProxy(server.endpoint) as proxy, tempfile.TemporaryDirectory() as home:
        measurement = Measurement(proxy)
        operations = Operations(measurement, url=proxy.url, bucket=bucket, home=Path(home))
        if long:
            operations.plan_vacuum(ORPHANS)
        else:
            operations.run_all()
    return measurement


def measure_with_spark(server: S3Server, jars: Sequence[Path]) -> SparkMeasurement:
    bucket = new_bucket(server)
    paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    worker = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.budgets.spark_worker",
            ",".join(map(str, jars)),
            server.endpoint,
            bucket,
        ],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if worker.returncode != 0:
        raise AssertionError(worker.stderr[-4000:])
    found = json.loads(worker.stdout.strip().splitlines()[-1])
    counts = {
        operation: Counter({(client, kind): number for client, kind, number in seen["counts"]})
        for operation, seen in found.items()
    }
    return SparkMeasurement(
        counts=counts, round_trips={operation: seen["round trips"] for operation, seen in found.items()}
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.budgets.measure", description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--without-spark", action="store_true")
    arguments = parser.parse_args()
    counts: dict[str, Counter[tuple[str, str]]] = {}
    for long in (False, True):
        with s3_server() as server:
            counts.update(measure_without_spark(server, long=long).counts())
    if not arguments.without_spark:
        with s3_server() as server:
            measured = measure_with_spark(server, s3_jars())
        counts.update(measured.counts)
        print(f"round trips after the data files: {measured.round_trips}")
    if arguments.write:
        write_budgets(counts)
        PAGE.write_text(page())
    else:
        print("\n".join(deviations(counts, budgets())))


if __name__ == "__main__":
    main()
