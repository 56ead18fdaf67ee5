"""Exactly once: retried steps and re-executed runs find the commit that was already ratified; conflicts compute nothing again."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.errors import CommitConflictError, InvalidArgumentError
from cm_delta_dagster.operations.tables.ratify_hold import approve_hold
from cm_delta_dagster.orchestration import CatalogManagedDeltaIOManager
from cm_delta_dagster.orchestration.runs.runs import WriteOrigin, run_number
from cm_delta_dagster.protocol.actions.actions import SetTransaction
from tests.orchestration.conftest import World
from tests.orchestration.log_tables import commit
from tests.support.dagster_assets import raised
from tests.support.waiting import until


class LosesTheAnswer(CatalogManagedDeltaIOManager):
    """Writes, then fails before Dagster stores the event, as often as the class says."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        super().handle_output(context, obj)
        if FAILURES:
            FAILURES.pop()()
            raise RuntimeError("the answer was lost")


FAILURES: list = []


@pytest.fixture(autouse=True)
def no_failures() -> Iterator[None]:
    FAILURES.clear()
    yield
    FAILURES.clear()


def losing(world: World) -> dict[str, Any]:
    manager = world.resources["io_manager"]
    return {**world.resources, "io_manager": LosesTheAnswer(catalog=world.catalog, spark=manager.spark)}


def appending(world: World, **arguments: Any) -> dg.AssetsDefinition:
    @dg.asset(name="t", metadata={"mode": "append"}, **arguments)
    def made() -> DataFrame:
        return world.frame([(1,)], "id int")

    return made


def test_a_step_that_is_retried_after_its_commit_was_ratified_writes_once(world: World) -> None:
    FAILURES.append(lambda: None)
    world.resources = losing(world)
    made = appending(world, retry_policy=dg.RetryPolicy(max_retries=1))
    assert world.materialize(made).success
    assert world.rows("main.default.t") == [(1,)]
    (event,) = world.events("t")
    assert event.metadata["cm_delta/outcome"].value == "already_committed"
    assert event.metadata["cm_delta/commit_version"].value == 0


def test_a_retried_step_finds_its_commit_even_if_another_run_has_written_since(world: World) -> None:
    resources = world.resources
    made = appending(world, retry_policy=dg.RetryPolicy(max_retries=1))

    def other_run() -> None:
        world.resources = resources
        world.materialize(appending(world))

    world.materialize(appending(world))
    FAILURES.append(other_run)
    world.resources = losing(world)
    assert world.materialize(made).success
    assert world.rows("main.default.t") == [(1,), (1,), (1,)]


def test_two_runs_of_one_asset_write_twice(world: World) -> None:
    world.materialize(appending(world))
    world.materialize(appending(world))
    assert world.rows("main.default.t") == [(1,), (1,)]


def job_of(
    world: World, asset: dg.AssetsDefinition, resources: Mapping[str, Any], *others: dg.AssetsDefinition | dg.AssetSpec
) -> dg.JobDefinition:
    defs = dg.Definitions(
        assets=[asset, *others],
        resources=resources,
        jobs=[dg.define_asset_job("write", executor_def=dg.in_process_executor)],
    )
    return defs.resolve_job_def("write")


def re_executed(world: World, job: dg.JobDefinition, parent_run_id: str, *, resume: bool) -> dg.JobExecutionResult:
    tags = {"dagster/is_resume_retry": "true"} if resume else {}
    run = world.instance.create_run_for_job(job, parent_run_id=parent_run_id, root_run_id=parent_run_id, tags=tags)
    return execute_run(InMemoryJob(job), run, world.instance)


@pytest.mark.parametrize(("resume", "rows"), [(True, [(1,)]), (False, [(1,), (1,)])])
def test_a_run_re_executed_from_failure_accepts_the_commit_of_the_run_it_continues(
    world: World, resume: bool, rows: list[Any]
) -> None:
    FAILURES.append(lambda: None)
    job = job_of(world, appending(world), losing(world))
    failed = job.execute_in_process(instance=world.instance, raise_on_error=False)
    assert not failed.success and world.rows("main.default.t") == [(1,)]
    assert re_executed(world, job, failed.run_id, resume=resume).success
    assert world.rows("main.default.t") == rows
    assert len(world.events("t")) == 1


def test_a_step_that_died_after_one_of_its_outputs_was_recorded_writes_that_one_once(world: World) -> None:
    once = [RuntimeError("between the outputs")]

    @dg.multi_asset(outs={name: dg.AssetOut(metadata={"mode": "append"}) for name in ("t", "u")})
    def both() -> Iterator[dg.Output[DataFrame]]:
        yield dg.Output(world.frame([(1,)], "id int"), "t")
        while once:
            raise once.pop()
        yield dg.Output(world.frame([(1,)], "id int"), "u")

    job = job_of(world, both, world.resources)
    failed = job.execute_in_process(instance=world.instance, raise_on_error=False)
    assert not failed.success and len(world.events("t")) == 1
    assert re_executed(world, job, failed.run_id, resume=True).success
    assert (world.rows("main.default.t"), world.rows("main.default.u")) == ([(1,)], [(1,)])


def test_a_run_that_recorded_its_output_is_not_continued(world: World) -> None:
    job = job_of(world, appending(world), world.resources)
    first = job.execute_in_process(instance=world.instance)
    re_executed(world, job, first.run_id, resume=True)
    assert world.rows("main.default.t") == [(1,), (1,)]


def test_the_number_of_a_run_is_stable_and_fits_a_long() -> None:
    assert run_number("a") == run_number("a") != run_number("b")
    assert 0 <= run_number("a") < 1 << 63


def test_the_transaction_is_named_by_asset_and_partitions() -> None:
    origin = WriteOrigin(name="sales/orders", partition_keys=("2026-01-01",))
    assert origin.app_id == "dagster:sales/orders:2026-01-01"
    assert WriteOrigin(name="a").app_id == "dagster:a"


def test_a_step_whose_commit_waits_fails_once_and_is_done_after_the_approval(world: World) -> None:
    """It is not retried, its re-execution finds the request, and after the approval the commit."""
    attempts = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=3))
    def t(context: dg.AssetExecutionContext) -> DataFrame:
        attempts.append(context.run.run_id)
        return world.frame([(9,)], "id int")

    world.materialize(t)
    rule = CommitRule(
        scope="main", name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.APPROVAL, contact="ada"
    )
    world.client.commit_rules.set_commit_rule(rule)
    job = job_of(world, t, world.resources)
    failed = job.execute_in_process(instance=world.instance, raise_on_error=False)
    assert not failed.success and len(attempts) == 2 and world.version("main.default.t") == 0
    (waiting,) = world.client.holds.holds()
    (failure,) = failed.get_step_failure_events()
    metadata = failure.step_failure_data.user_failure_data.metadata
    assert metadata["cm_delta/approve_command"].value == f"cm-delta rules approve {waiting.hold_id}"
    assert not re_executed(world, job, failed.run_id, resume=True).success
    assert [one.hold_id for one in world.client.holds.holds()] == [waiting.hold_id]
    approve_hold(world.client, waiting.hold_id)
    assert re_executed(world, job, failed.run_id, resume=True).success
    assert world.version("main.default.t") == 1 and world.rows("main.default.t") == [(9,)]


def materialize_late(
    world: World, tmp_path: Path, meanwhile: Callable[[], object], **metadata: Any
) -> tuple[int, BaseException | None]:
    """Materialize the asset t; ``meanwhile()`` is called after its write has read the table and before it commits.

    Returns the calls of the function of the asset, and the error of the run, None without.
    """
    started, committed = tmp_path / "started", tmp_path / "committed"
    calls = []

    def wait(value):  # noqa: ANN001, ANN202 - Spark warns of annotations that it cannot use.
        started.touch()
        while not committed.exists():
            time.sleep(0.01)
        return value

    @dg.asset(name="t", metadata=metadata)
    def slow() -> DataFrame:
        calls.append(1)
        return world.frame([(2,)], "id int").select(F.udf(wait, "int")("id").alias("id"))

    def write_meanwhile() -> None:
        try:
            until(started.exists)
            meanwhile()
        finally:
            committed.touch()

    other = threading.Thread(target=write_meanwhile)
    other.start()
    try:
        world.materialize(slow)
    except Exception as error:
        return len(calls), raised(error)
    finally:
        other.join()
    return len(calls), None


def test_a_compatible_commit_meanwhile_is_rebased_on_without_a_second_call(world: World, tmp_path: Path) -> None:
    """The rows wait until another writer has committed, after the write has read the table."""
    world.materialize(appending(world))
    calls = materialize_late(world, tmp_path, lambda: commit(world.client.table("main.default.t")), mode="append")
    event = world.events("t")[-1]
    assert (calls, event.metadata["cm_delta/conflict_retries"].value) == ((1, None), 1)
    assert event.metadata["cm_delta/commit_version"].value == 2


@pytest.mark.parametrize("on_conflict", ["fail", "last_wins"])
def test_of_two_overwrites_the_last_fails_or_wins_as_the_asset_says(
    world: World, tmp_path: Path, on_conflict: str
) -> None:
    def rows(number: int) -> dg.AssetsDefinition:
        @dg.asset(name="t")
        def made() -> DataFrame:
            return world.frame([(number,)], "id int")

        return made

    world.materialize(rows(0))
    calls, error = materialize_late(world, tmp_path, lambda: world.materialize(rows(1)), on_conflict=on_conflict)
    assert calls == 1, "the function is not called again"
    if on_conflict == "fail":
        assert isinstance(error, CommitConflictError)
        assert world.rows("main.default.t") == [(1,)] and world.version("main.default.t") == 1
    else:
        assert error is None
        assert world.rows("main.default.t") == [(2,)] and world.version("main.default.t") == 2
        event = world.events("t")[-1]
        assert event.metadata["cm_delta/conflict_retries"].value == 1
        assert event.metadata["dagster/row_count"].value == 1


def test_an_overwrite_that_wins_conflicts_does_not_replace_the_rows_of_another_output_of_its_run(
    world: World, tmp_path: Path
) -> None:
    world.materialize(appending(world))

    def commit_as_a_step_of_the_run() -> None:
        (run,) = world.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        mark = SetTransaction(app_id="dagster:other", version=run_number(run.run_id))
        commit(world.client.table("main.default.t"), txn=mark, replace=True)

    _, error = materialize_late(world, tmp_path, commit_as_a_step_of_the_run, on_conflict="last_wins")
    assert isinstance(error, InvalidArgumentError) and "the output other wrote in the same run" in str(error)
    assert world.version("main.default.t") == 1
