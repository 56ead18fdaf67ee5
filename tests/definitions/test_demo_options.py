"""Options of the demo for tables in an object store. A mistake ends it before anything is loaded."""

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


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("s3fs")
    with s3_server() as running:
        urllib.request.urlopen(urllib.request.Request(f"{running.endpoint}/lake", method="PUT")).close()
        yield running


def demo(home: Path, *arguments: str) -> str:
    """The last line of the demo, which must fail and leave no catalog."""
    places = {
        "DAGSTER_HOME": str(home / "dagster"),
        "CM_DELTA_HOME": str(home / "tables"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "definitions", *arguments],
        cwd=ROOT, env={**os.environ, **places}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode != 0, ended.stdout[-3000:]
    assert "Traceback" not in ended.stderr
    assert not (home / "tables" / "catalog.db").exists()
    return ended.stderr.strip().splitlines()[-1]


def on_s3(server: S3Server, bucket: str) -> list[str]:
    options = (f"endpoint_url={server.endpoint}", "key=test", "secret=test")
    return ["--warehouse", f"s3://{bucket}/demo", *(word for each in options for word in ("--storage-option", each))]


@pytest.mark.exhaustive
def test_missing_jars_end_the_demo_before_it_loads(tmp_path: Path, server: S3Server) -> None:
    last = demo(tmp_path, *on_s3(server, "lake"))
    assert last.startswith("Error: Nothing was loaded.")
    assert "cm-delta spark-jars --store s3 --to DIR" in last and "--spark-jars DIR" in last


def test_a_missing_bucket_ends_the_demo_before_it_loads(tmp_path: Path, server: S3Server) -> None:
    last = demo(tmp_path, *on_s3(server, "no-such-bucket"))
    assert last.startswith("Error: Nothing was loaded.") and "no-such-bucket" in last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--storage-option", "endpoint_url"], "--storage-option takes KEY=VALUE"),
        (["--spark-jars", "."], "--spark-jars takes a directory with jars, and no jar is in ."),
        (["--spark-jars", "/nonexistent"], "--spark-jars takes a directory with jars"),
        (["--fresh"], "and not the tables in s3://lake/demo"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    assert message in demo(tmp_path, "--warehouse", "s3://lake/demo", *arguments)
