"""Steps and runs as processes of their own: one version for a run, one commit for a step, no lost rows under contention."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from cm_delta_dagster.orchestration import CatalogResource, FirstTick, ratified_commit_sensor
from tests.orchestration import process_jobs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def stored_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """An instance that other processes find by its folder."""
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv(process_jobs.ROOT, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    with dg.DagsterInstance.get() as instance:
        yield instance


def table_rows(root: Path, name: str) -> list[tuple[object, ...]]:
    with connect(f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/warehouse") as lake:
        return sorted(tuple(row) for row in lake.table(name).to_df().collect())


@pytest.mark.exhaustive
def test_steps_in_processes_of_their_own_read_one_version(
    stored_instance: dg.DagsterInstance, tmp_path: Path, spark: SparkSession
) -> None:
    """Another writer commits between the two reads; both reads of the run return the pinned version."""
    job = dg.reconstructable(process_jobs.three_steps)
    with dg.execute_job(job, instance=stored_instance) as result:
        assert result.success
        run_id = result.run_id
    ((one, first),) = table_rows(tmp_path, "main.default.first")
    ((two, second),) = table_rows(tmp_path, "main.default.second")
    assert (first, second) == (2, 2)
    assert one != two, "each step was a process"
    assert len(table_rows(tmp_path, "main.default.base")) == 7
    records = stored_instance.fetch_observations(dg.AssetKey("base"), limit=10).records
    versions = {record.asset_observation.metadata["cm_delta/version_read"].value for record in records}
    assert versions == {0} and {record.run_id for record in records} == {run_id}


@pytest.mark.exhaustive
def test_mapped_steps_in_processes_of_their_own_read_the_rows_of_their_mapping_key(
    stored_instance: dg.DagsterInstance, tmp_path: Path, spark: SparkSession
) -> None:
    job = dg.reconstructable(process_jobs.mapped_steps)
    with dg.execute_job(job, instance=stored_instance) as result:
        assert result.success
    doubled = table_rows(tmp_path, "main.s.doubled")
    assert sorted(row[1:] for row in doubled) == [("a read a", 0), ("b read b", 2), ("c read c", 4)]
    assert len({row[0] for row in doubled}) == 3, "each step was a process"
    assert table_rows(tmp_path, "main.s.collected") == doubled


def test_a_step_killed_between_commit_and_event_writes_once_when_resumed(
    stored_instance: dg.DagsterInstance, tmp_path: Path, spark: SparkSession
) -> None:
    job = dg.reconstructable(process_jobs.killed_step)
    with dg.execute_job(job, instance=stored_instance) as died:
        assert not died.success
        failed = died.run_id
    assert (tmp_path / "killed").exists()
    assert table_rows(tmp_path, "main.default.t") == [(0,)]
    assert stored_instance.fetch_materializations(dg.AssetKey("t"), limit=1).records == []
    again = dg.ReexecutionOptions.from_failure(failed, stored_instance)
    with dg.execute_job(job, instance=stored_instance, reexecution_options=again) as result:
        assert result.success
    assert table_rows(tmp_path, "main.default.t") == [(0,)]
    (record,) = stored_instance.fetch_materializations(dg.AssetKey("t"), limit=10).records
    assert record.asset_materialization.metadata["cm_delta/outcome"].value == "already_committed"


@pytest.mark.requirements("WAP-7")
def test_a_step_killed_between_hold_and_ratification_continues_its_hold_when_resumed(
    stored_instance: dg.DagsterInstance, tmp_path: Path, spark: SparkSession
) -> None:
    job = dg.reconstructable(process_jobs.killed_check)
    with dg.execute_job(job, instance=stored_instance) as died:
        assert not died.success
        failed = died.run_id
    assert table_rows(tmp_path, "main.default.t") == []
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse") as lake:
        (left,) = lake.rules.held()
    again = dg.ReexecutionOptions.from_failure(failed, stored_instance)
    with dg.execute_job(job, instance=stored_instance, reexecution_options=again) as result:
        assert result.success
        (evaluation,) = result.get_asset_check_evaluations()
    assert table_rows(tmp_path, "main.default.t") == [(failed,)]
    assert evaluation.metadata["runs"].value == [failed]
    assert evaluation.metadata["cm_delta/hold_id"].value == left.hold_id
    (record,) = stored_instance.fetch_materializations(dg.AssetKey("t"), limit=10).records
    assert record.asset_materialization.metadata["cm_delta/output_rows"].value == 1
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse") as lake:
        assert lake.rules.hold(left.hold_id).state == "committed" and lake.rules.held() == ()
    catalog = CatalogResource(url=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    sensor = ratified_commit_sensor(name="commits", assets=[dg.AssetSpec("t")], first_tick=FirstTick.FROM_BEGINNING)
    with dg.build_sensor_context(instance=stored_instance, resources={"catalog": catalog}) as context:
        events = sensor.evaluate_tick(context).asset_events
    assert [event for event in events if event.metadata["cm_delta/commit_version"].value == 1] == []
    catalog.close()


def worker(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", f"tests.orchestration.{module}", *arguments]


def test_two_processes_that_append_concurrently_both_succeed(tmp_path: Path, spark: SparkSession) -> None:
    """Both also create the table."""
    processes = [
        subprocess.Popen(
            worker("concurrent_appender", str(tmp_path), str(number)),
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2)
    ]
    ended = [process.communicate(timeout=500) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], [error[-3000:] for _, error in ended]
    assert sorted(int(output.split()[-1]) for output, _ in ended) == [0, 1]
    assert table_rows(tmp_path, "main.default.t") == [(1,), (2,)]


@pytest.mark.requirements("DV-4", "DML-4")
@pytest.mark.exhaustive
def test_the_io_manager_works_over_connect(tmp_path: Path) -> None:
    """Partitions, merge and reads without the JVM gateway."""
    pytest.importorskip("grpc", reason="the extra `connect` is not installed")
    command = worker("connect_worker", str(tmp_path))
    any_port = {**os.environ, "SPARK_TESTING": "1"}  # Spark's own switch for a free port.
    run = subprocess.run(command, cwd=REPOSITORY, env=any_port, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr[-4000:]
    seen = json.loads(run.stdout.strip().splitlines()[-1])
    assert seen == {"connect": True, "totals": [["a", 3], ["b", 3]], "letters": 6, "rows": 2}
