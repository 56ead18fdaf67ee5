"""What a run cannot do without is missed when it starts, before an asset is computed."""

import json
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from cm_delta_dagster.errors import CmDeltaError, WarehouseMismatchError
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager, CatalogResource, SparkResource
from tests.orchestration.log_tables import make_table
from tests.support.s3_server import S3Server, s3_server

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("s3fs")
    with s3_server() as running:
        yield running


def options(server: S3Server) -> dict[str, str]:
    return {"key": "test", "secret": "test", "endpoint_url": server.endpoint}


def new_bucket(server: S3Server) -> str:
    name = f"b-{uuid.uuid4().hex[:12]}"
    urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/{name}", method="PUT")).close()
    return name


class Attempt:
    """A run of two assets that note that they were computed."""

    def __init__(self, catalog: CatalogResource, spark: SparkResource | None = None) -> None:
        self.computed: list[str] = []

        @dg.asset
        def first() -> None:
            self.computed.append("first")

        @dg.asset(deps=[first])
        def second() -> None:
            self.computed.append("second")

        io_manager = CatalogManagedDeltaIOManager(catalog=catalog, spark=spark or SparkResource())
        self.assets, self.resources = [first, second], {"io_manager": io_manager}

    def error(self) -> CmDeltaError:
        with pytest.raises(dg.DagsterError) as failed:
            dg.materialize(self.assets, resources=self.resources)
        assert self.computed == []
        cause = failed.value.__cause__
        assert isinstance(cause, CmDeltaError)
        return cause


def test_a_missing_variable_fails_the_run_before_its_assets(tmp_path: Path) -> None:
    whole = CatalogResource(
        url=f"sqlite:///{tmp_path}/c.db", warehouse="s3://b/w", storage_options=dg.EnvVar("TEST_NOT_SET")
    )
    assert "environment variable TEST_NOT_SET, which is not set" in str(Attempt(whole).error())
    nested = CatalogResource(
        url=f"sqlite:///{tmp_path}/c.db", warehouse="s3://b/w", storage_options={"key": dg.EnvVar("TEST_NOT_SET")}
    )
    assert "environment variable TEST_NOT_SET, which is not set" in str(Attempt(nested).error())


def test_an_unreachable_catalog_fails_the_run_before_its_assets(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    catalog = CatalogResource(url=f"sqlite:///{tmp_path}/file/catalog.db", warehouse=f"file://{tmp_path}/w")
    assert "catalog" in str(Attempt(catalog).error())


def test_a_missing_bucket_fails_the_run_before_its_assets(tmp_path: Path, server: S3Server) -> None:
    catalog = CatalogResource(
        url=f"sqlite:///{tmp_path}/c.db", warehouse="s3://no-such-bucket/w", storage_options=options(server)
    )
    assert "no-such-bucket" in str(Attempt(catalog).error())


def test_the_warehouse_of_another_catalog_fails_the_run_before_its_assets(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/one.db", warehouse=f"file://{tmp_path}/w") as lake:
        make_table(lake.client, "main.s.t")
    catalog = CatalogResource(url=f"sqlite:///{tmp_path}/other.db", warehouse=f"file://{tmp_path}/w")
    assert isinstance(Attempt(catalog).error(), WarehouseMismatchError)


def test_a_running_session_without_jars_fails_the_run_before_its_assets(
    tmp_path: Path, server: S3Server, spark: SparkSession
) -> None:
    catalog = CatalogResource(
        url=f"sqlite:///{tmp_path}/c.db", warehouse=f"s3://{new_bucket(server)}/w", storage_options=options(server)
    )
    assert "cm-delta spark-jars" in str(Attempt(catalog).error())


def test_a_run_over_connect_needs_no_jars_in_a_classic_session(
    tmp_path: Path, server: S3Server, spark: SparkSession
) -> None:
    catalog = CatalogResource(
        url=f"sqlite:///{tmp_path}/c.db", warehouse=f"s3://{new_bucket(server)}/w", storage_options=options(server)
    )
    attempt = Attempt(catalog, SparkResource(remote="sc://127.0.0.1:1"))
    assert dg.materialize(attempt.assets, resources=attempt.resources).success
    assert attempt.computed == ["first", "second"]


@pytest.mark.exhaustive
def test_a_new_session_without_jars_fails_on_its_first_use(tmp_path: Path, server: S3Server) -> None:
    """In another process: a run without rows starts no session and reads the warehouse once."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["TEST_STORAGE_OPTIONS"] = json.dumps(options(server))
    bucket = new_bucket(server)
    server.requests.clear()
    places = [f"sqlite:///{tmp_path}/c.db", f"s3://{bucket}/w"]
    worker = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.orchestration.run_checks_worker", *places],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert worker.returncode == 0, worker.stderr[-4000:]
    seen = json.loads(worker.stdout.strip().splitlines()[-1])
    assert seen["success"] and not seen["session"]
    assert seen["failed"] and seen["computed"] == ["first", "second"]
    assert "cm-delta spark-jars" in seen["error"]
    assert not seen["left"], "the next resource of the process would get the session without jars"
    assert server.requests == [("GET", f"/{bucket}/w/_cm_delta_warehouse.json")] * 2, "one for each run"
