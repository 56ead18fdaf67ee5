"""The demo with its tables in S3 ends with tables that equal the raw files."""

import csv
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from resources.raw_data import RawData
from tests.support.s3_server import S3Server, s3_server
from tests.support.spark_jars import s3_jars

ROOT = Path(__file__).parents[2]
KEPT_DAYS = ("1-1", "2-2", "3-31", "6-1", "6-2", "6-30", "9-30", "11-28")
"""Month and day of the lines that the short run reads: of each quarter, of the corrections, and of the concurrent runs."""


@pytest.fixture
def server() -> Iterator[S3Server]:
    pytest.importorskip("s3fs")
    with s3_server() as running:
        urllib.request.urlopen(urllib.request.Request(f"{running.endpoint}/lake", method="PUT")).close()
        yield running


def demo(server: S3Server, home: Path) -> str:
    """Run ``python -m definitions`` with a place in the bucket as its warehouse; return what it prints.

    Servers of one process have the same objects, so that each run has a place of its own.
    """
    arguments = ["--warehouse", f"s3://lake/{home.name}", "--spark-jars", str(s3_jars()[0].parent)]
    for option in (f"endpoint_url={server.endpoint}", "key=test", "secret=test"):
        arguments += ["--storage-option", option]
    places = {
        "DAGSTER_HOME": str(home / "dagster"),
        "CM_DELTA_HOME": str(home / "tables"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "definitions", *arguments],
        cwd=ROOT, env={**os.environ, **places}, capture_output=True, text=True, timeout=3000,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


def shorten(directory: Path) -> dict[str, int]:
    """Put raw files where the demo looks for them, flights and weather of a few days only; return their lines."""
    raw = RawData(directory=str(directory))
    counts = {}
    for name in ("flights", "weather"):
        path = Path(raw.path(name).removeprefix("file://"))
        with path.open(newline="") as file:
            lines = list(csv.reader(file))
        month, day = lines[0].index("month"), lines[0].index("day")
        kept = [line for line in lines[1:] if f"{line[month]}-{line[day]}" in KEPT_DAYS]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([lines[0], *kept])
        counts[name] = len(kept)
    return counts


def check(printed: str, server: S3Server, home: Path, flights: int) -> None:
    lines = [line for line in printed.splitlines() if line.startswith(("ok ", "BAD"))]
    assert len(lines) == 10 and not any(line.startswith("BAD") for line in lines), lines
    assert f"ok  main.nyc.flights: {flights + 1:,} rows; the raw file has {flights:,} + 1 late flight" in lines
    assert "ok  main.nyc.flights_enriched: 0 rows differ from the corrected flights" in lines
    assert f"the tables are in s3://lake/{home.name}" in printed
    assert "compact of main.nyc.flights: denied" in printed and "compact of main.nyc.flights: done" in printed
    keys = {key for method, key in server.requests if method == "PUT" and key.endswith(".parquet")}
    assert keys and all(key.startswith(f"/lake/{home.name}/main/nyc/") for key in keys)
    assert server.copies() == []


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_the_demo_with_a_few_days_of_flights_ends_right_in_s3(tmp_path: Path, server: S3Server) -> None:
    lines = shorten(tmp_path / "tables" / "raw")
    check(demo(server, tmp_path), server, tmp_path, lines["flights"])
    assert list((tmp_path / "tables").rglob("*.parquet")) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_the_demo_with_a_year_of_flights_ends_right_in_s3(tmp_path: Path, server: S3Server) -> None:
    check(demo(server, tmp_path), server, tmp_path, 336_776)
