"""The demo: its definitions load, and its run on the real data ends with tables that equal the raw files."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest

from definitions.defs.months import month_key
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "DAGSTER_HOME": str(home / "dagster"), "CM_DELTA_HOME": str(home / "tables")}


def run_python(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment(home), capture_output=True, text=True, timeout=1500
    )


def test_the_definitions_load(tmp_path: Path) -> None:
    script = (
        "import dagster as dg; from definitions.definitions import defs; d = defs(); dg.Definitions.validate_loadable(d); "
        "keys = d.resolve_asset_graph().get_all_asset_keys(); "
        "print(len(keys), sorted(s.name for s in d.sensors), "
        "all(d.resolve_assets_def(k).metadata_by_key[k].get('dagster/code_references') for k in keys), "
        "all(d.resolve_assets_def(k).owners_by_key[k] for k in keys), "
        "[package['name'] for package in d.metadata['plugin_component_types_json'].value][0])"
    )
    result = run_python("-W", "ignore", "-c", script, home=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split("\n")[0] == "7 ['follow_changes', 'ratified_commits'] True True cm_delta_dagster"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_year_of_flights_ends_in_tables_that_equal_the_raw_files(tmp_path: Path) -> None:
    result = run_python("-m", "definitions", home=tmp_path)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert "Importing Dagster" in result.stdout.splitlines()[0], "what comes first is printed at once"
    lines = [line for line in result.stdout.splitlines() if line.startswith(("ok ", "BAD"))]
    assert len(lines) == 11 and not any(line.startswith("BAD") for line in lines), result.stdout
    assert "ok  main.nyc.flights: 336,777 rows; the raw file has 336,776 + 1 late flight" in lines
    assert "ok  main.nyc.flights_enriched: 0 rows differ from the corrected flights" in lines
    assert any(
        line.startswith("ok  main.nyc.weather: its audit passed, that of a faulty month failed; highest")
        for line in lines
    )
    assert "ok  check unpublished_commits: failed and passed, before and after maintenance" in lines
    runs = re.findall(r"    run \w{8} of .*?: SUCCESS,\s+ran\s+from\s+([\d.]+)\s+to\s+([\d.]+) s", result.stdout)
    assert runs and all(float(start) < float(end) for start, end in runs), result.stdout
    outcomes = re.findall(
        r"^\[ *[\d.]+ s\]     (\w+) of main\.nyc\.flights: (\w+)\. ", result.stdout, flags=re.MULTILINE
    )
    assert [outcome for task, outcome in outcomes if task == "compact"] == ["denied", "planned", "done"]
    assert len(outcomes) == len(set(outcomes)), "each result is printed once"
    assert "Prefetching" not in result.stdout + result.stderr, "what each tick logs goes to the log of the daemon"
    assert [line for line in result.stdout.splitlines() if len(line) > 120 and str(tmp_path) not in line] == []
    again = run_python("-m", "definitions", home=tmp_path)
    assert again.returncode == 2
    assert "--fresh" in again.stderr
    _check_instance(tmp_path / "dagster")


def _check_instance(home: Path) -> None:
    """What Dagster has stored: runs that sensors launched, the denied run, conflict retries and the results of a check."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        runs = instance.get_runs()
        launched = [run for run in runs if run.tags.get("dagster/sensor_name") == "ratified_commits"]
        assert launched and all(run.is_success for run in launched)
        assert [run.job_name for run in runs if run.status is dg.DagsterRunStatus.FAILURE] == [
            "maintain_main_nyc_flights",
            "__ASSET_JOB",
        ], "the denied maintenance, and the faulty delivery"
        flights = dg.AssetKey(["nyc", "flights"])
        records = instance.fetch_materializations(flights, limit=100).records
        events = [record.asset_materialization.metadata for record in records if record.asset_materialization]
        assert max(event["cm_delta/conflict_retries"].value for event in events if "cm_delta/conflict_retries" in event)
        assert {event["cm_delta/operation"].value for event in events if "cm_delta/reported_by" in event} == {
            "MERGE",
            "WRITE",
        }
        joined = dg.AssetKey(["nyc", "flights_enriched"])
        records = instance.fetch_materializations(joined, limit=100).records
        counts = Counter(record.partition_key for record in records)
        changed = {month_key(number) for number in (2, 3, 6)}
        assert {month for month, count in counts.items() if count > 1} == changed, "other months are joined once"
        states = {state.instigator_name: state for state in instance.all_instigator_state()}
        cursor = states["ratified_commits"].instigator_data.cursor
        assert cursor, "dg dev continues after the last commit"


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_interrupt_stops_the_demo_with_its_daemon_and_java(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "definitions"],
            cwd=ROOT, env=environment(tmp_path), stdout=log, stderr=log, text=True, start_new_session=True,
        )  # fmt: skip
        until(
            lambda: "Flights, weather and both joined" in (tmp_path / "log").read_text() or process.poll() is not None,
            seconds=800,
        )
        assert process.poll() is None, (tmp_path / "log").read_text()
        os.killpg(process.pid, signal.SIGINT)  # As Ctrl-C in a terminal: all processes of the group get it.
        assert process.wait(300) == 130, (tmp_path / "log").read_text()
    printed = (tmp_path / "log").read_text()
    assert "Interrupted. The daemon has stopped." in printed
    with pytest.raises(ProcessLookupError):  # When no process of the group is left.
        until(lambda: os.killpg(process.pid, 0) is not None)
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        assert all(run.is_finished for run in instance.get_runs())
