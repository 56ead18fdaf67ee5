"""Tables in S3 over a Spark Connect server of its own process; the client has no Java, no jars and another disk."""

import json
import os
import re
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.spark.test_s3 import HIDING, ROOT, can_hide, check_rows
from tests.support.s3_server import S3Server, s3_server
from tests.support.spark_jars import s3_jars
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(600)]

KEY, SECRET = "AKIDVISIBLE", "NEVERSHOWN"
SERVERS_KEY, CLIENTS_KEY = "AKIDOFSERVER", "AKIDOFCLIENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectServer:
    """A running server: URL for clients, and of its web pages."""

    remote: str
    pages: str


@contextmanager
def connect_server(home: Path, hiding: list[str], settings: dict[str, str]) -> Iterator[ConnectServer]:
    """Spark's own server program, on free ports, without this package."""
    spark_home = Path(pyspark.__file__).parent
    variables = {**os.environ, "SPARK_HOME": str(spark_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    variables["SPARK_SCALA_VERSION"] = "2.13"
    variables.pop("PYTHONPATH", None)
    given = {
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **settings,
    }
    program = [str(spark_home / "bin" / "spark-class"), "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
    program += ["--driver-memory", "1g", *(text for pair in given.items() for text in ("--conf", "=".join(pair)))]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    log = home / "connect-server.log"
    with log.open("w") as output:
        process = subprocess.Popen([*hiding, *program, *main], cwd=home, env=variables, stdout=output, stderr=output)
    try:
        pages = _logged(log, process, r"'SparkUI' on port (\d+)")
        port = _logged(log, process, r"Spark Connect server started at: .*:(\d+)")
        yield ConnectServer(remote=f"sc://127.0.0.1:{port}", pages=f"http://127.0.0.1:{pages}")
    finally:
        process.terminate()
        process.wait(300)


def _logged(log: Path, process: "subprocess.Popen[bytes]", pattern: str) -> str:
    until(lambda: bool(re.search(pattern, log.read_text())) or process.poll() is not None)
    found = re.search(pattern, log.read_text())
    assert found is not None, f"{pattern} is not in the log of the server: {log.read_text()[-3000:]}"
    return found[1]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("s3fs")
    pytest.importorskip("grpc", reason="the extra `connect` is not installed")
    with s3_server() as running:
        yield running


@pytest.fixture(scope="module")
def seen(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("connect")
    hidden = home / "hidden"
    hidden.mkdir()
    bucket, own = (f"{name}-{uuid.uuid4().hex[:12]}" for name in ("options", "own"))
    for name in (bucket, own):
        urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/{name}", method="PUT")).close()
    prefix = f"spark.hadoop.fs.s3a.bucket.{own}"
    settings = {
        "spark.jars": ",".join(map(str, s3_jars())),
        f"{prefix}.access.key": SERVERS_KEY,
        f"{prefix}.secret.key": "s",
        f"{prefix}.endpoint": server.endpoint,
        f"{prefix}.endpoint.region": "us-east-1",
        f"{prefix}.path.style.access": "true",
    }
    with connect_server(home, [*HIDING, str(hidden)] if can_hide(hidden) else [], settings) as connect:
        found = _client(connect, server, [bucket, own, str(hidden)])
        found["shown"] = _values_in_pages(connect.pages)
    return {**found, "hides": can_hide(hidden), "own": own}


def _client(connect: ConnectServer, server: S3Server, places: list[str]) -> dict[str, Any]:
    options = json.dumps({"key": KEY, "secret": SECRET, "endpoint_url": server.endpoint})
    # No Java: neither in PATH nor in JAVA_HOME.
    variables = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/")}
    variables |= {"AWS_ACCESS_KEY_ID": CLIENTS_KEY, "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": server.endpoint}
    worker = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.s3_connect_worker", connect.remote, *places, options],
        cwd=ROOT, env=variables, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert worker.returncode == 0, worker.stderr[-4000:]
    assert SECRET not in worker.stdout + worker.stderr
    found: dict[str, Any] = json.loads(worker.stdout.strip().splitlines()[-1])
    return found


def _values_in_pages(pages: str) -> list[str]:
    """Pages of the server that show a key or a secret."""
    with urllib.request.urlopen(f"{pages}/connect/") as answer:
        sessions = re.findall(r"connect/session/\?id=[0-9a-f-]+", answer.read().decode())
    with urllib.request.urlopen(f"{pages}/api/v1/applications") as answer:
        [application] = json.load(answer)
    rest = f"api/v1/applications/{application['id']}"
    names = ["connect/", "SQL/", "jobs/", "stages/", "environment/", *sorted(set(sessions))]
    names += [f"{rest}/jobs", f"{rest}/stages?details=true", f"{rest}/environment", f"{rest}/sql?length=100000"]
    names += [f"SQL/execution/?id={number}" for number in range(40)]
    showing = []
    for name in names:
        with urllib.request.urlopen(f"{pages}/{name}") as answer:
            text = answer.read().decode()
        if SECRET in text or KEY in text:
            showing.append(name)
    assert sessions
    return showing


@pytest.mark.requirements("DV-4", "DML-4", "DML-7", "CDF-3")
def test_a_client_without_jars_writes_and_reads(seen: dict[str, Any]) -> None:
    """Keys in storage_options reach the server with each read and write."""
    check_rows(seen)


def test_a_server_with_spark_hadoop_cloud_copies_no_data_file(seen: dict[str, Any], server: S3Server) -> None:
    assert seen["appended"] and server.copies() == []


def test_a_server_with_its_own_credentials_needs_no_options(seen: dict[str, Any], server: S3Server) -> None:
    assert seen["own credentials"] == [[1, 2, 3, 4, 5, 6], [4, 5, 6], [0, 1, 2, 3, 4]]
    assert {key for bucket, key in server.signers if bucket == seen["own"]} == {SERVERS_KEY, CLIENTS_KEY}


def test_the_pages_of_the_server_show_no_secrets(seen: dict[str, Any]) -> None:
    assert seen["shown"] == []


def test_a_missing_bucket_is_one_clear_error(seen: dict[str, Any]) -> None:
    assert "no-such-bucket-here does not exist" in seen["missing bucket"] and "\n" not in seen["missing bucket"]


def test_a_disk_that_the_server_sees_can_be_the_warehouse(seen: dict[str, Any]) -> None:
    assert seen["disk"][0] == "3 rows"


def test_a_disk_that_the_server_does_not_see_is_refused(seen: dict[str, Any]) -> None:
    if not seen["hides"]:
        pytest.skip("no directory can be hidden from the server: unshare is not there, or may not mount")
    assert "The Spark Connect server does not see the files of this machine" in seen["disk"][1]
