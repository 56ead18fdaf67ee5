"""Two attempts of one task at the same time, as speculation starts them on a cluster: each row is committed once."""

import json
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path

import pytest

from tests.spark.test_s3 import ROOT, cluster, environment
from tests.support.s3_server import s3_server
from tests.support.spark_jars import s3_jars


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_the_files_of_a_slow_attempt_that_loses_are_not_committed(tmp_path: Path) -> None:
    """The attempt that waits is killed when its copy has ended. Spark starts a copy on another host only, hence two addresses."""
    pytest.importorskip("s3fs")
    jars = ",".join(map(str, s3_jars()))
    bucket = f"spark-{uuid.uuid4().hex[:12]}"
    (tmp_path / "attempts").mkdir()
    with s3_server() as server, cluster(tmp_path, [], ("127.0.0.1", "127.0.0.2")) as master:
        urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/{bucket}", method="PUT")).close()
        arguments = [jars, server.endpoint, bucket, str(tmp_path / "attempts"), master]
        worker = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.spark.speculation_worker", *arguments],
            cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=500,
        )  # fmt: skip
    assert worker.returncode == 0, worker.stderr[-4000:]
    seen = json.loads(worker.stdout.strip().splitlines()[-1])
    assert {"19-0", "19-1"} <= set(seen["attempts"]), "the task has had two attempts"
    assert seen["rows"] == list(range(20))
    assert seen["files"] == 20 <= seen["stored"]
