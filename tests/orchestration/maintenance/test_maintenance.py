"""Maintenance jobs and schedules: permission first, visible results, nothing started twice."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import dagster as dg
import pytest
from dagster import AssetKey

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.maintenance.authorization import maintenance_lease
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.clustering import cluster_by
from cm_delta_dagster.operations.writing.write import append
from cm_delta_dagster.orchestration import (
    CatalogResource,
    MaintenancePolicy,
    MaintenanceTask,
    OnDenied,
    build_maintenance_jobs,
    build_maintenance_schedules,
    build_maintenance_sweep,
)
from cm_delta_dagster.orchestration.maintenance.maintenance_policy import due_tasks
from cm_delta_dagster.orchestration.maintenance.maintenance_sweep import _from_last
from cm_delta_dagster.protocol.features.clustering import PROVIDER
from tests.orchestration.conftest import World
from tests.orchestration.log_tables import commit, make_table, resource_at

NAME = "main.s.t"
KEY = AssetKey(["s", "t"])


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[CatalogResource]:
    resource = resource_at(tmp_path)
    yield resource
    resource.close()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp() as instance:  # Schedules want an instance that other processes can open.
        yield instance


def policy_of(**arguments: Any) -> MaintenancePolicy:
    return MaintenancePolicy(tables=(NAME,), asset_keys={NAME: KEY}, **arguments)


def run_job(
    policy: MaintenancePolicy, catalog: CatalogResource, instance: dg.DagsterInstance, **actions: str
) -> dg.ExecuteInProcessResult:
    """Run the table's job: every task skipped that is not among ``actions``."""
    (job,) = build_maintenance_jobs(policy)
    config = {task.value: {"config": {"action": actions.get(task.value, "skip")}} for task in MaintenanceTask}
    defs = dg.Definitions(jobs=[job], resources={"catalog": catalog, "spark": NoSpark()})
    return defs.resolve_job_def(job.name).execute_in_process(run_config={"ops": config}, instance=instance)


class NoSpark(dg.ConfigurableResource):
    @property
    def spark_session(self) -> NoReturn:
        raise AssertionError("no Spark is needed here")


def observations(instance: dg.DagsterInstance) -> list[dict[str, Any]]:
    records = instance.fetch_observations(KEY, limit=100, ascending=True).records
    return [{key: value.value for key, value in r.asset_observation.metadata.items()} for r in records]


def allow(catalog: CatalogResource, kind: MaintenanceKind, allowed: bool = True, reason: str = "because") -> None:
    rule = MaintenanceRule(scope=NAME, kind=kind, allowed=allowed, reason=reason)
    catalog.client.catalog.maintenance_policies.set_maintenance_rule(rule)


def evaluate(policy: MaintenancePolicy, catalog: CatalogResource, instance: dg.DagsterInstance) -> Any:
    (schedule,) = build_maintenance_schedules(policy)
    with dg.build_schedule_context(instance=instance, resources={"catalog": catalog}) as context:
        data = schedule.evaluate_tick(context)
    return data.run_requests[0] if data.run_requests else data.skip_message


@pytest.mark.requirements("CM-M5", "CM-M6")
@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("compact", MaintenanceKind.DATA_REORGANIZATION),
        ("vacuum", MaintenanceKind.DATA_CLEANUP),
        ("clean_log", MaintenanceKind.METADATA_CLEANUP),
        ("clean_staged_commits", MaintenanceKind.METADATA_CLEANUP),
    ],
)
def test_a_denied_task_succeeds_does_nothing_and_names_the_rule(
    catalog: CatalogResource, instance: dg.DagsterInstance, task: str, kind: MaintenanceKind
) -> None:
    table = make_table(catalog.client, NAME)
    commit(table)
    allow(catalog, kind, allowed=False, reason="audit under way")
    catalog.client.wait_for_background()  # Checksums of the commits above.
    before = table.store.list_from(f"{table.location}/_delta_log")
    assert run_job(policy_of(), catalog, instance, **{task: "run"}).success
    (seen,) = observations(instance)
    assert (seen["cm_delta/outcome"], seen["cm_delta/decided_by"], seen["cm_delta/reason"]) == (
        "denied",
        NAME,
        "audit under way",
    )
    assert "audit under way" in seen["cm_delta/result"]
    assert table.store.list_from(f"{table.location}/_delta_log") == before


@pytest.mark.requirements("CLUST-5")
def test_a_clustered_table_is_clustered_without_a_spark_session(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    table = make_table(catalog.client, NAME)
    cluster_by(table, columns=["id"])
    for start in (5, 0):
        append(table, frame=[{"id": number} for number in range(start, start + 5)])
    allow(catalog, MaintenanceKind.DATA_REORGANIZATION)
    assert run_job(policy_of(), catalog, instance, compact="run").success
    files = table.snapshot().files
    assert files["clusteringProvider"].to_pylist() == [PROVIDER]
    assert read_arrow(open_scan(table))["id"].to_pylist() == list(range(10))


def test_a_plan_shows_the_files_and_deletes_nothing(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    table = make_table(catalog.client, NAME)
    commit(table)
    stray = f"{table.location}/stray.parquet"
    table.store.write(stray, b"x" * 7)
    allow(catalog, MaintenanceKind.DATA_CLEANUP)
    run_job(policy_of(retention=timedelta(days=7)), catalog, instance, vacuum="plan")
    (seen,) = observations(instance)
    assert seen["cm_delta/outcome"] == "planned" and seen["cm_delta/verdict"] == "permitted"
    assert table.store.stat(stray).size == 7


def test_a_vacuum_that_finds_nothing_says_how_long_files_are_kept(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    table = make_table(catalog.client, NAME)
    commit(table)
    table.store.write(f"{table.location}/stray.parquet", b"x" * 7)
    allow(catalog, MaintenanceKind.DATA_CLEANUP)
    kept = "Files written or removed within the last 7 days are kept for time travel and running queries."
    for action, outcome, text in (
        ("plan", "planned", f"0 files would be deleted. {kept} It is permitted."),
        ("run", "nothing_to_do", f"Deleted 0 data files. {kept}"),
    ):
        run_job(policy_of(), catalog, instance, vacuum=action)
        seen = observations(instance)[-1]
        assert (seen["cm_delta/outcome"], seen["cm_delta/result"]) == (outcome, text)


def test_checkpoint_and_publish_run_without_spark(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    table = make_table(catalog.client, NAME)
    for _ in range(3):
        commit(table)
    catalog.client.wait_for_background()  # The commits are published.
    run_job(policy_of(), catalog, instance, publish="run", checkpoint="run")
    outcomes = [(seen["cm_delta/operation"], seen["cm_delta/outcome"]) for seen in observations(instance)]
    assert outcomes == [("publish", "nothing_to_do"), ("checkpoint", "done")]
    assert due_tasks(table, policy_of(commits_since_checkpoint=1, min_small_files=100)) == ()


def test_a_table_with_a_lease_of_another_run_is_not_maintained(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    table = make_table(catalog.client, NAME)
    allow(catalog, MaintenanceKind.DATA_CLEANUP)
    with maintenance_lease(table, MaintenanceKind.DATA_CLEANUP, owner="another run"):
        assert run_job(policy_of(), catalog, instance, vacuum="run").success
    (seen,) = observations(instance)
    assert seen["cm_delta/outcome"] == "busy" and "another run" in seen["cm_delta/result"]


def test_ops_of_a_table_share_its_pool() -> None:
    (job,) = build_maintenance_jobs(policy_of())
    assert {node.definition.pool for node in job.graph.nodes} == {f"cm_delta/{NAME}"}


def test_a_schedule_skips_below_its_thresholds(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    make_table(catalog.client, NAME)
    assert "Nothing to do" in evaluate(policy_of(), catalog, instance)


def test_a_threshold_starts_its_task_alone_and_once_for_each_state(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    policy = policy_of(commits_since_checkpoint=3, min_small_files=1000)
    table = make_table(catalog.client, NAME)
    for _ in range(3):
        commit(table)
    request = evaluate(policy, catalog, instance)
    actions = {name: op["config"]["action"] for name, op in request.run_config["ops"].items()}
    assert [name for name, action in actions.items() if action == "run"] == ["checkpoint"]
    (job,) = build_maintenance_jobs(policy)
    run = instance.create_run_for_job(job, run_config=request.run_config, tags=request.tags)
    commit(table)
    assert "already started" in evaluate(policy, catalog, instance)
    instance.report_run_failed(run)
    assert evaluate(policy, catalog, instance).run_key == request.run_key


def test_a_due_task_that_is_not_permitted_is_the_reason_to_skip(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    policy = policy_of(commits_since_checkpoint=1000, min_small_files=2, min_small_file_ratio=0.5)
    table = make_table(catalog.client, NAME)
    for _ in range(3):
        commit(table)
    text = evaluate(policy, catalog, instance)
    assert "compact is due (3 of 3 files are small) but not permitted" in text
    allow(catalog, MaintenanceKind.DATA_REORGANIZATION)
    assert evaluate(policy, catalog, instance).run_config["ops"]["compact"]["config"]["action"] == "run"


def test_files_that_vacuum_may_delete_make_it_due_once_it_is_permitted(catalog: CatalogResource) -> None:
    table = make_table(catalog.client, NAME)
    commit(table, size=500)
    commit(table, replace=True)
    table.store.write(f"{table.location}/part-1.parquet", b"x" * 500)
    big = policy_of(tombstone_bytes=500)
    rule = MaintenanceRule(scope=NAME, kind=MaintenanceKind.DATA_CLEANUP, allowed=True)
    catalog.client.catalog.maintenance_policies.set_maintenance_rule(rule)
    assert due_tasks(table, big) == ()
    table.services.now_ms = lambda: 10**14
    assert [item.task for item in due_tasks(table, big)] == [MaintenanceTask.VACUUM]
    table.store.delete(f"{table.location}/part-1.parquet")
    assert due_tasks(table, big) == ()


def test_a_schedule_skips_a_table_that_does_not_exist_yet(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    (schedule,) = build_maintenance_schedules(policy_of())
    with dg.build_schedule_context(instance=instance, resources={"catalog": catalog}) as context:
        result = schedule.evaluate_tick(context)
    assert not result.run_requests
    assert NAME in str(result.skip_message)


def test_an_invalid_policy_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="job name"):
        MaintenancePolicy(tables=("main.a.b_c", "main.a_b.c"))
    with pytest.raises(InvalidArgumentError, match="asset_keys"):
        MaintenancePolicy(tables=(NAME,), asset_keys={"main.s.other": KEY})
    with pytest.raises(InvalidArgumentError, match=r"tables is the text 'main\.s\.t'; give a list"):
        MaintenancePolicy(tables=NAME)
    for wrong in ({"cron": "15 * * *"}, {"timezone": "Europe/Berln"}, {"cron": 5}):
        with pytest.raises(InvalidArgumentError, match="make no schedule: give five fields"):
            MaintenancePolicy(tables=(NAME,), **wrong)
    with pytest.raises(InvalidArgumentError, match=r"selectors is the text 'main\.s\.t'; give a list"):
        build_maintenance_sweep(NAME, policy=policy_of())


def test_schedules_take_the_jobs_of_their_tables() -> None:
    jobs = build_maintenance_jobs(policy_of())
    assert [schedule.job.name for schedule in build_maintenance_schedules(policy_of(), jobs=jobs)] == [jobs[0].name]
    others = build_maintenance_jobs(MaintenancePolicy(tables=("main.s.other",)))
    for wrong in ([], others):
        with pytest.raises(InvalidArgumentError, match=r"need maintain_main_s_t, in this order"):
            build_maintenance_schedules(policy_of(), jobs=wrong)


def test_an_unknown_action_is_refused(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    make_table(catalog.client, NAME)
    with pytest.raises(Exception, match="action"):
        run_job(policy_of(), catalog, instance, vacuum="destroy")


def test_compaction_joins_small_files_and_triggers_nothing(world: World) -> None:
    @dg.asset(key=["s", "t"], metadata={"mode": "append"})
    def made() -> Any:
        return world.frame([(1,)], "id int")

    for _ in range(3):
        world.materialize(made)
    table = world.client.table(NAME)
    allow(world.catalog, MaintenanceKind.DATA_REORGANIZATION)
    before = table.snapshot()
    (job,) = build_maintenance_jobs(policy_of())
    config = {
        "ops": {
            task.value: {"config": {"action": "run" if task.value == "compact" else "skip"}} for task in MaintenanceTask
        }
    }
    defs = dg.Definitions(jobs=[job], resources={"catalog": world.catalog, "spark": world.resources["spark"]})
    run = defs.resolve_job_def(job.name).execute_in_process(run_config=config, instance=world.instance)
    after = table.snapshot()
    assert (before.num_files, after.num_files, after.data_version) == (3, 1, before.data_version)
    (seen,) = observations(world.instance)
    assert seen["cm_delta/outcome"] == "done" and seen["cm_delta/removed_files"] == 3
    assert world.client.catalog.feed.feed(after=0, limit=100)[-1].summary.tags["dagster/run_id"] == run.run_id
    assert len(world.rows(NAME)) == 3


def sweep_of(
    catalog: CatalogResource, *names: str, spark: Any = None, clustered: Sequence[str] = (), **arguments: Any
) -> tuple[dg.ScheduleDefinition, dg.JobDefinition, dict[str, AssetKey]]:
    """The job of a sweep over ``main.s.*`` in which each table of ``names`` has due tasks, and the observed asset of each."""
    for name in names:
        table = make_table(catalog.client, name)
        if name in clustered:
            cluster_by(table, columns=["id"])
        commit(table)
    asset_keys = {name: dg.AssetKey(name.split(".")) for name in names}
    schedule = build_maintenance_sweep(["main.s.*"], asset_keys=asset_keys, **arguments)
    defs = dg.Definitions(schedules=[schedule], resources={"catalog": catalog, "spark": spark or NoSpark()})
    return schedule, defs.resolve_job_def("maintain_tables"), asset_keys


def observed(instance: dg.DagsterInstance, asset_keys: Mapping[str, AssetKey]) -> dict[str, int]:
    """The number of observations of each table."""
    return {name: len(instance.fetch_observations(key, limit=10).records) for name, key in asset_keys.items()}


CHECKPOINTS = MaintenancePolicy(tables=(), tasks=(MaintenanceTask.CHECKPOINT,), commits_since_checkpoint=1)


def test_a_sweep_visits_every_table_that_matches_in_turn(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    schedule, job, asset_keys = sweep_of(catalog, "main.s.a", "main.s.b", "main.other.c", policy=CHECKPOINTS)
    with dg.build_schedule_context(instance=instance) as context:
        assert schedule.evaluate_tick(context).run_requests
    assert job.execute_in_process(instance=instance).success
    assert observed(instance, asset_keys) == {"main.s.a": 1, "main.s.b": 1, "main.other.c": 0}
    (done,) = instance.get_runs()
    assert done.tags["cm_delta_maintenance/last_table"] == "main.s.b"
    assert list(_from_last(["a", "b", "c"], "a")) == ["b", "c", "a"]
    assert list(_from_last(["a", "b", "c"], "c")) == list(_from_last(["a", "b", "c"], None)) == ["a", "b", "c"]
    with pytest.raises(InvalidArgumentError):
        build_maintenance_sweep(["main.s"], policy=CHECKPOINTS)


def test_a_sweep_with_little_time_continues_after_its_last_table(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    """Each run has time for one table, and does not begin with the same one again."""
    _, job, asset_keys = sweep_of(catalog, "main.s.a", "main.s.b", policy=CHECKPOINTS, budget=timedelta(microseconds=1))
    counts = []
    for _ in range(2):
        assert job.execute_in_process(instance=instance).success
        counts.append(tuple(observed(instance, asset_keys).values()))
    assert counts == [(1, 0), (1, 1)]


class FailingSpark(dg.ConfigurableResource):
    """Fails once, in the compaction that is the first to ask for a session."""

    directory: str
    interrupts: bool

    @property
    def spark_session(self) -> NoReturn:
        asked = Path(self.directory) / "asked"
        if self.interrupts and not asked.exists():
            asked.touch()
            raise KeyboardInterrupt
        raise RuntimeError("Java ended")


@pytest.mark.parametrize("interrupts", [False, True])
def test_a_table_whose_maintenance_dies_does_not_stop_the_others(
    catalog: CatalogResource, instance: dg.DagsterInstance, tmp_path: Path, interrupts: bool
) -> None:
    """The later tables are maintained by the same run after a failure, and by the next run after the end of the process."""
    names = ("main.s.a", "main.s.b")
    policy = MaintenancePolicy(
        tables=(),
        tasks=(MaintenanceTask.COMPACT,),
        min_small_files=2,
        min_small_file_ratio=0.1,
        on_denied=OnDenied.FAIL,
    )
    spark = FailingSpark(directory=str(tmp_path), interrupts=interrupts)
    _, job, asset_keys = sweep_of(catalog, *names, policy=policy, spark=spark, clustered=names)
    for name in names:
        commit(catalog.client.table(name), size=2**31)  # So much that the session is asked for.
    rule = MaintenanceRule(scope=names[0], kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
    catalog.client.catalog.maintenance_policies.set_maintenance_rule(rule)
    if interrupts:
        with pytest.raises(BaseException):  # noqa: B017 - Dagster's own, which is no Exception.
            job.execute_in_process(instance=instance)
        assert observed(instance, asset_keys) == {"main.s.a": 0, "main.s.b": 0}
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    (failure,) = result.get_step_failure_events()
    assert "main.s.a: " in failure.step_failure_data.error.message + str(failure.step_failure_data.user_failure_data)
    assert observed(instance, asset_keys) == {"main.s.a": 0, "main.s.b": 1}, "of the denied task"
    first = next(entry for entry in instance.all_logs(result.run_id) if "main.s." in (entry.user_message or ""))
    assert ("main.s.b" in first.user_message) is interrupts
