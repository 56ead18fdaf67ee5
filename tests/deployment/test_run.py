"""The example deployment in use: real PostgreSQL, S3, code location, daemon, queue and webserver as processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from cm_delta_dagster import connect
from definitions.defs.months import month_key
from tests.support.s3_server import S3Server, s3_server
from tests.support.spark_jars import s3_jars
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
JANUARY = month_key(1)

LAUNCH = """
mutation ($parameters: ExecutionParams!) {
  launchRun(executionParams: $parameters) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  }
}
"""
RUNS = "{ runsOrError { ... on Runs { results { runId jobName status startTime endTime tags { key value } } } } }"


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A running deployment, as its users see it."""

    url: str
    catalog_url: str
    warehouse: str
    options: dict[str, str]
    process: subprocess.Popen[str]
    log: Path

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
        assert "errors" not in answer, answer
        return answer["data"]

    def launch(self, *keys: str, **tags: str) -> str:
        selector = {
            "repositoryLocationName": "cm_delta_demo",
            "repositoryName": "__repository__",
            "jobName": "__ASSET_JOB",
            "assetSelection": [{"path": ["nyc", key]} for key in keys],
            "assetCheckSelection": [],
        }
        metadata = {"tags": [{"key": f"dagster/{key}", "value": value} for key, value in tags.items()]}
        parameters = {"selector": selector, "runConfigData": {}, "mode": "default", "executionMetadata": metadata}
        launched = self.ask(LAUNCH, parameters=parameters)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def runs(self) -> dict[str, dict[str, Any]]:
        return {run["runId"]: run for run in self.ask(RUNS)["runsOrError"]["results"]}

    def wait(self, done: Callable[[], Any], *, seconds: float = 450) -> Any:
        answers: list[Any] = []

        def is_done() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-6000:]
            with suppress(OSError):
                answers.append(done())
            return bool(answers and answers[-1])

        until(is_done, seconds=seconds, failure=lambda: self.log.read_text()[-6000:], every=0.5)
        return answers[-1]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("s3fs")
    with s3_server() as running:
        yield running


@pytest.fixture
def databases(postgres_server: str) -> Iterator[tuple[str, str]]:
    """URLs of two new databases of one server: for Dagster, and for the catalog."""
    names = [f"{name}_{uuid.uuid4().hex}" for name in ("dagster", "catalog")]
    engine = sa.create_engine(postgres_server, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        for name in names:
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
    base = sa.make_url(postgres_server)
    drivers = ("postgresql+psycopg2", base.drivername)
    dagster, catalog = (base.set(drivername=driver, database=name) for driver, name in zip(drivers, names, strict=True))
    yield dagster.render_as_string(hide_password=False), catalog.render_as_string(hide_password=False)
    with engine.connect() as connection:
        for name in names:
            connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))


def free_ports(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture
def deployment(databases: tuple[str, str], server: S3Server, tmp_path: Path) -> Iterator[Deployment]:
    jars = s3_jars()
    bucket = f"lake-{uuid.uuid4().hex[:12]}"
    urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/{bucket}", method="PUT")).close()
    options = {"key": "test", "secret": "test", "endpoint_url": server.endpoint}
    code_port, web_port = free_ports(2)
    environment = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "DAGSTER_HOME": str(tmp_path / "dagster"),
        "DAGSTER_POSTGRES_URL": databases[0],
        "CM_DELTA_CATALOG_URL": databases[1],
        "CM_DELTA_WAREHOUSE": f"s3://{bucket}/tables",
        "CM_DELTA_STORAGE_OPTIONS": json.dumps(options),
        "CM_DELTA_SPARK": "local[1]",
        "CM_DELTA_SPARK_JARS": str(jars[0].parent),
        "CM_DELTA_SPARK_CONFIG": json.dumps({"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}),
        "CM_DELTA_RAW": str(tmp_path / "raw"),
        "CM_DELTA_CODE_PORT": code_port,
        "CM_DELTA_WEB_PORT": web_port,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "deployment/start.py"],
            cwd=ROOT, env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    try:
        yield Deployment(
            url=f"http://127.0.0.1:{web_port}", catalog_url=databases[1], warehouse=f"s3://{bucket}/tables",
            options=options, process=process, log=log,
        )  # fmt: skip
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(150)
        finally:
            process.kill()


@pytest.mark.exhaustive
def test_two_concurrent_runs_are_followed_by_the_run_of_the_sensor(deployment: Deployment) -> None:
    """Catalog and warehouse are read afterwards by another client."""
    deployment.wait(lambda: deployment.ask("{ version }"))
    reference = deployment.launch("airlines")
    flights = deployment.launch("flights", partition=JANUARY)

    def report() -> dict[str, Any] | None:
        runs = deployment.runs()
        for run in runs.values():
            assert run["status"] not in ("FAILURE", "CANCELED"), deployment.log.read_text()[-6000:]
        found = [run for run in runs.values() if run["jobName"] == "report_job" and run["status"] == "SUCCESS"]
        return found[0] if found else None

    launched = deployment.wait(report)
    runs = deployment.runs()
    first, second = runs[reference], runs[flights]
    assert first["status"] == second["status"] == "SUCCESS"
    assert max(first["startTime"], second["startTime"]) < min(first["endTime"], second["endTime"]), "two at once"
    assert {"key": "dagster/sensor_name", "value": "ratified_commits"} in launched["tags"]
    with connect(deployment.catalog_url, warehouse=deployment.warehouse, storage_options=deployment.options) as lake:
        counts = {name: lake.table(name).to_arrow().num_rows for name in lake.tables()}
        assert lake.table("main.nyc.carrier_months").to_arrow()["flights"].to_pylist()
    assert counts["main.nyc.flights"] == 27_004
    assert counts["main.nyc.airlines"] == 16
    assert counts["main.nyc.carrier_months"] == 16
    deployment.process.send_signal(signal.SIGTERM)
    assert deployment.process.wait(150) == 0, deployment.log.read_text()[-6000:]


def test_a_malformed_variable_ends_the_script_with_its_name(databases: tuple[str, str], tmp_path: Path) -> None:
    """The code location finds what the script does not look at, and the script stops."""
    code_port, web_port = free_ports(2)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DAGSTER_HOME": str(tmp_path),
        "DAGSTER_POSTGRES_URL": databases[0],
        "CM_DELTA_CATALOG_URL": databases[1],
        "CM_DELTA_WAREHOUSE": "s3://bucket/tables",
        "CM_DELTA_SPARK": "local[1]",
        "CM_DELTA_STORAGE_OPTIONS": "key=test",
        "CM_DELTA_CODE_PORT": code_port,
        "CM_DELTA_WEB_PORT": web_port,
    }
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "deployment/start.py"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "CM_DELTA_STORAGE_OPTIONS is not a JSON object" in ended.stderr
    assert "The code location ended while it loaded the definitions" in ended.stderr
