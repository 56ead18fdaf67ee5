"""The demo: its definitions load, and its headless run on the real data ends with tables that equal the raw files."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

ROOT = Path(__file__).parents[2]


def run_python(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DAGSTER_HOME": str(home / "dagster"), "CM_DELTA_HOME": str(home / "tables")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1500
    )


def test_the_definitions_load() -> None:
    script = (
        "import dagster as dg; from definitions.definitions import defs; d = defs(); dg.Definitions.validate_loadable(d); "
        "print(len(d.resolve_asset_graph().get_all_asset_keys()), [s.name for s in d.sensors])"
    )
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("7 ['ratified_commits'")


@pytest.mark.timeout(1800)
def test_the_year_of_flights_ends_in_tables_that_equal_the_raw_files(tmp_path: Path) -> None:
    result = run_python("-m", "definitions", home=tmp_path)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert "ok  main.nyc.flights: 336,777 rows; the raw file has 336,776 + 1 late flight" in result.stdout
    assert "BAD" not in result.stdout
    outcomes = re.findall(
        r"^\[ *[\d.]+ s\]     (\w+) of main\.nyc\.flights: (\w+)\. ", result.stdout, flags=re.MULTILINE
    )
    assert ("compact", "denied") in outcomes
    assert ("compact", "planned") in outcomes
    assert ("compact", "done") in outcomes
    assert len(outcomes) == len(set(outcomes)), "each result is printed once"
    printed = " ".join(result.stdout.split())
    assert "Files written or removed within the last 7 days are kept" in printed
    assert "its 364 files hold one day each, and the raw file has no line for 2013-12-31" in printed
    assert [line for line in result.stdout.splitlines() if len(line) > 120 and str(tmp_path) not in line] == []
    again = run_python("-m", "definitions", home=tmp_path)
    assert again.returncode == 2
    assert "--fresh" in again.stderr
    assert "ok  main.nyc.flights_enriched: 0 rows differ from the corrected flights" in result.stdout
    assert "automation: flights_enriched is materialized again, 2013-06-01 to 2013-06-30" in result.stdout
    daemon = run_python("-W", "ignore", "-m", "tests.definitions.daemon_worker", home=tmp_path)
    assert daemon.returncode == 0, daemon.stderr[-3000:]
    seen = json.loads(daemon.stdout.strip().splitlines()[-1])
    assert seen == {"running": True, "events": 0, "runs": 0, "joined": 0}, (
        "the daemon continues after the last commit of the demo"
    )
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey(["nyc", "carrier_months"]))
        assert event is not None
