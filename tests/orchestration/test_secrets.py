"""No secret of the environment is in what Dagster, Spark, the catalog and the warehouse keep of a code location and of a run."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.s3_server import S3Server, s3_server

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SECRET = "s3cr3t"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("s3fs")
    with s3_server() as running:
        urllib.request.urlopen(urllib.request.Request(f"{running.endpoint}/bucket", method="PUT")).close()
        yield running


def test_no_secret_is_in_anything_that_comes_out_of_a_run(tmp_path: Path, server: S3Server) -> None:
    home, events = tmp_path / "dagster", tmp_path / "spark-events"
    for directory in (home, events):
        directory.mkdir()
    credentials = {name: f"{SECRET}-{name}" for name in ("key", "secret", "token")}
    config = {
        "spark.hadoop.fs.s3a.secret.key": f"{SECRET}-of-s3a",
        "spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net": f"{SECRET}-of-azure",
        "spark.hadoop.fs.azure.sas.fixed.token": f"{SECRET}-of-sas",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
    }
    variables = {
        "TEST_URL": f"sqlite:///{tmp_path}/catalog.db?cipher={SECRET}-of-url",
        "TEST_HOME": str(tmp_path),
        "TEST_OPTIONS": json.dumps({"s3://": {**credentials, "endpoint_url": server.endpoint}}),
        "TEST_SPARK": json.dumps(config),
        "DAGSTER_HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.orchestration.secrets_worker", str(tmp_path / "snapshot")],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=400, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert "failed ['fails']" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]
    (tmp_path / "output").write_text(done.stdout + done.stderr)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    kinds = {path.relative_to(tmp_path).parts[0] for path in files}
    assert {"snapshot", "output", "dagster", "warehouse", "catalog.db", "spark-events"} <= kinds
    assert (
        "TEST_OPTIONS" in (tmp_path / "snapshot").read_text()
        and "no-such-bucket" in (tmp_path / "snapshot").read_text()
    )
    assert any(path.suffix in (".err", ".out") for path in files if "dagster" in path.parts)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
