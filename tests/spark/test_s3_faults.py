"""Faults of the store during writes and reads of Spark's own S3 client: a write succeeds or fails, never in part."""

import json
import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.spark.s3_fault_worker import ROWS
from tests.spark.test_s3 import ROOT, environment, jars
from tests.support.fault_proxy import Effect, Fault, FaultProxy, fault_proxy
from tests.support.object_stores import make_bucket, s3_options
from tests.support.s3_server import s3_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

__all__ = ["jars"]

Ask = Callable[[str], dict[str, Any]]
PASSING = (
    Fault(effect=Effect.ANSWER_BEFORE, method="PUT", path=".parquet", times=2),
    Fault(effect=Effect.RESET_BEFORE, method="PUT", path=".parquet"),
    Fault(effect=Effect.RESET_AFTER, method="PUT", path=".parquet"),
    Fault(effect=Effect.RESET_AFTER, method="HEAD", path=".parquet"),
)
CUT = Fault(effect=Effect.TRUNCATED, method="GET", path=".parquet")
"""Not each version of the client repeats a read whose answer is cut."""
LASTING = (
    Fault(effect=Effect.ANSWER_BEFORE, method="PUT", path=".parquet", times=10**6, skip=1),
    Fault(effect=Effect.RESET_BEFORE, method="PUT", path=".parquet", times=10**6, skip=1),
    Fault(
        effect=Effect.ANSWER_BEFORE, method="PUT", path=".parquet", times=10**6, skip=1, status=400, code="ExpiredToken"
    ),
)


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    pytest.importorskip("s3fs")
    with s3_server() as server, fault_proxy(server.endpoint) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def ask(proxy: FaultProxy, jars: list[Path]) -> Iterator[Ask]:
    """Sends a command to the worker and returns its answer."""
    bucket = f"spark-{uuid.uuid4().hex[:12]}"
    make_bucket(FsspecStore("s3", options=s3_options(proxy.url)), bucket)
    worker = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.s3_fault_worker",
         ",".join(map(str, jars)), proxy.url, bucket],
        cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert worker.stdin is not None and worker.stdout is not None

    def received() -> dict[str, Any]:
        line = worker.stdout.readline()
        assert line, f"the worker ended with {worker.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def asked(command: str) -> dict[str, Any]:
        worker.stdin.write(f"{command}\n")
        worker.stdin.flush()
        return received()

    try:
        assert received() == {"version": 0}
        yield asked
    finally:
        worker.stdin.close()
        try:
            worker.wait(300)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


@pytest.mark.requirements("CM-W5", "CM-C1")
@pytest.mark.exhaustive
def test_writes_of_spark_succeed_or_fail_as_a_whole(ask: Ask, proxy: FaultProxy) -> None:
    """A fault that passes, one that lasts, and faults at random."""
    written = {0}
    number = 0

    def check() -> None:
        proxy.inject()
        rows = [row for part in sorted(written) for row in range(part * ROWS, (part + 1) * ROWS)]
        assert ask("read") == {"ids": rows, "version": len(written) - 1}

    for fault in (*PASSING, CUT, *LASTING):
        number += 1
        proxy.inject(fault)
        done = ask(f"append {number}")
        if "error" not in done:
            assert fault not in LASTING and done == {"version": len(written)}
            written.add(number)
            continue
        assert fault not in PASSING, (fault, done)
        assert "main.test.t" in done["error"] and "Nothing was committed" in done["error"], (fault, done)
        check()
    chance = random.Random(7)
    proxy.chance = lambda method, path: (
        chance.choice((*PASSING, CUT)) if ".parquet" in path and chance.random() < 0.25 else None
    )
    for _ in range(6):
        number += 1
        done = ask(f"append {number}")
        if "error" not in done:
            written.add(number)
    proxy.chance = None
    check()
    assert proxy.injected["ANSWER_BEFORE"] > 4 and proxy.injected["RESET_AFTER"] > 1
    assert len(written) > len(PASSING)
