"""Which event requests which asset: ``on_new_data_version`` and a freshness policy, evaluated as the daemon does."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.freshness_evaluator import TimeWindowFreshnessPolicyEvaluator
from dagster._core.loader import LoadingContextForTest
from dagster._core.test_utils import freeze_time

from cm_delta_dagster import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.orchestration import (
    CatalogManagedDeltaIOManager,
    SparkResource,
    data_version_sensor,
    on_new_data_version,
    on_new_data_version_of_any_partition,
)
from cm_delta_dagster.orchestration.automation import unread_changes
from cm_delta_dagster.orchestration.runs.resources import CatalogResource
from tests.orchestration.log_tables import commit, make_table

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
UP = dg.AssetKey("up")


class Daemon:
    """Evaluates the conditions tick after tick and materializes what they request."""

    def __init__(self, instance: dg.DagsterInstance, *assets: Any, **arguments: Any) -> None:
        self.instance, self.defs, self.cursor = instance, dg.Definitions(assets=list(assets), **arguments), None

    def tick(self) -> list[str]:
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        found = []
        for key in self.defs.resolve_all_asset_keys():
            for partition in sorted(result.get_requested_partitions(key), key=str):
                found.append(key.to_user_string() if partition is None else f"{key.to_user_string()}@{partition}")
                self.instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition))
        return found

    def run(self, *keys: str, raises: bool = True, partition_key: str | None = None) -> dg.ExecuteInProcessResult:
        """A run of these assets, with everything that Dagster records about their inputs."""
        job = self.defs.resolve_implicit_global_asset_job_def()
        selection = [dg.AssetKey(key) for key in keys]
        return job.execute_in_process(
            instance=self.instance, asset_selection=selection, raise_on_error=raises, partition_key=partition_key
        )

    def requested(self) -> list[str]:
        """The assets that a tick requests, without materializing them."""
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        return [key.to_user_string() for key in self.defs.resolve_all_asset_keys() if result.get_num_requested(key)]

    def commit(
        self,
        version: int,
        *,
        partition: str | None = None,
        kind: type[dg.AssetMaterialization | dg.AssetObservation] = dg.AssetMaterialization,
        key: dg.AssetKey = UP,
    ) -> None:
        tags = {"dagster/data_version": f"table@{version}"}
        self.instance.report_runless_asset_event(kind(key, partition=partition, tags=tags))


def down_of(condition: dg.AutomationCondition, **arguments: Any) -> dg.AssetsDefinition:
    @dg.asset(deps=[UP], automation_condition=condition, **arguments)
    def down() -> None: ...

    return down


def test_a_new_data_version_requests_and_maintenance_or_an_equal_version_does_not(instance: dg.DagsterInstance) -> None:
    daemon = Daemon(instance, dg.AssetSpec("up"), down_of(on_new_data_version()))
    assert daemon.tick() == []
    daemon.commit(1)
    assert daemon.tick() == ["down"]
    assert daemon.tick() == []
    daemon.commit(1)
    assert daemon.tick() == []
    daemon.commit(1, kind=dg.AssetObservation)
    assert daemon.tick() == []
    daemon.commit(2)
    assert daemon.tick() == ["down"]


@pytest.mark.slow
def test_only_the_selected_upstream_assets_count(instance: dg.DagsterInstance) -> None:
    @dg.asset(deps=["up", "other"], automation_condition=on_new_data_version(upstream=dg.AssetSelection.assets("up")))
    def down() -> None: ...

    daemon = Daemon(instance, dg.AssetSpec("up"), dg.AssetSpec("other"), down)
    daemon.commit(1)
    daemon.commit(1, key=dg.AssetKey("other"))
    daemon.tick()
    daemon.tick()
    daemon.commit(2, key=dg.AssetKey("other"))
    assert daemon.tick() == []
    daemon.commit(2)
    assert daemon.tick() == ["down"]


def test_each_changed_partition_is_requested_however_old(instance: dg.DagsterInstance) -> None:
    up = dg.AssetSpec("up", partitions_def=DAYS)
    daemon = Daemon(instance, up, down_of(on_new_data_version_of_any_partition(), partitions_def=DAYS))
    for day in DAYS.get_partition_keys():
        daemon.commit(1, partition=day)
    daemon.tick()
    assert daemon.tick() == []
    daemon.commit(2, partition="2026-01-01")
    daemon.commit(2, partition="2026-01-02")
    assert daemon.tick() == ["down@2026-01-01", "down@2026-01-02"]
    assert daemon.tick() == []


@pytest.mark.slow
def test_only_the_latest_partition_follows_by_default(instance: dg.DagsterInstance) -> None:
    up = dg.AssetSpec("up", partitions_def=DAYS)
    daemon = Daemon(instance, up, down_of(on_new_data_version(), partitions_def=DAYS))
    for day in DAYS.get_partition_keys():
        daemon.commit(1, partition=day)
    daemon.tick()
    daemon.commit(2, partition="2026-01-01")
    assert daemon.tick() == []
    daemon.commit(2, partition="2026-01-03")
    assert daemon.tick() == ["down@2026-01-03"]


def test_a_failed_blocking_check_of_upstream_stops_the_request(instance: dg.DagsterInstance) -> None:
    outcome = [False]

    @dg.asset_check(asset="up", blocking=True)
    def gate() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=outcome[0])

    @dg.asset
    def up() -> dg.MaterializeResult:
        return dg.MaterializeResult(data_version=dg.DataVersion(f"table@{outcome[0]}"))

    daemon = Daemon(instance, up, down_of(on_new_data_version(checks_passed=True)), asset_checks=[gate])
    job = daemon.defs.resolve_implicit_global_asset_job_def()
    job.execute_in_process(instance=instance, asset_selection=[UP], raise_on_error=False)
    assert daemon.tick() == []
    outcome[0] = True
    job.execute_in_process(instance=instance, asset_selection=[UP])
    assert daemon.tick() == ["down"]


def test_a_freshness_policy_counts_the_commits_that_the_sensor_reports(instance: dg.DagsterInstance) -> None:
    policy = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=2), warn_window=timedelta(hours=1))
    graph = dg.Definitions(assets=[dg.apply_freshness_policy(dg.AssetSpec("up"), policy)]).resolve_asset_graph()

    def state(hours: float) -> str:
        with freeze_time(datetime.now(UTC) + timedelta(hours=hours)):
            evaluator, context = TimeWindowFreshnessPolicyEvaluator(), LoadingContextForTest(instance)
            return asyncio.run(evaluator.evaluate_freshness(context, graph.get(UP))).value

    assert state(0) == "UNKNOWN"
    instance.report_runless_asset_event(dg.AssetMaterialization(UP, tags={"dagster/data_version": "table@1"}))
    assert [state(hours) for hours in (0, 1.5, 3)] == ["PASS", "WARN", "FAIL"]
    instance.report_runless_asset_event(dg.AssetObservation(UP, tags={"dagster/data_version": "table@1"}))
    assert state(3) == "FAIL"


def started(
    instance: dg.DagsterInstance,
    condition: dg.AutomationCondition,
    *,
    during: Callable[[], object] = lambda: None,
    **arguments: Any,
) -> Daemon:
    """An asset that has read version 1 of its upstream asset, and its daemon. ``during`` is called in each of its runs."""

    @dg.asset(deps=[UP], automation_condition=condition)
    def down() -> None:
        during()

    daemon = Daemon(instance, dg.AssetSpec("up"), down, **arguments)
    daemon.commit(1)
    daemon.run("down")
    assert daemon.requested() == []
    return daemon


def test_a_change_that_is_stored_while_the_run_works_is_requested_again(instance: dg.DagsterInstance) -> None:
    changes = []
    daemon = started(instance, on_new_data_version(), during=lambda: changes and daemon.commit(changes.pop()))
    daemon.commit(2)
    assert daemon.requested() == ["down"]
    changes.append(3)
    daemon.run("down")
    assert not changes
    assert daemon.requested() == ["down"]
    daemon.run("down")
    assert [daemon.requested(), daemon.requested()] == [[], []]


def test_a_materialization_that_left_changes_unread_is_due_again_and_a_complete_one_is_not(
    instance: dg.DagsterInstance,
) -> None:
    """The version that it has read is older than the newest event, which was requested before."""
    read = [(1, {}), (2, {"stopped_before": 3, "reason": "why"}), (4, {})]

    @dg.asset(deps=[UP], automation_condition=on_new_data_version())
    def down(context: dg.AssetExecutionContext) -> None:
        version, stopped = read.pop(0)
        positions = {"table": {"table": "main.s.up", "version": version, **stopped}}
        context.add_output_metadata(
            {
                "cm_delta/changes_read": dg.MetadataValue.json(positions),
                "cm_delta/versions_read": dg.MetadataValue.json({"up": {"table_id": "table", "version": version}}),
            }
        )

    daemon = Daemon(instance, dg.AssetSpec("up"), down)
    daemon.commit(1)
    daemon.run("down")
    daemon.commit(4)
    requested = []
    for _ in range(2):
        requested.append(daemon.requested())
        assert daemon.requested() == []
        daemon.run("down")
    assert [*requested, daemon.requested()] == [["down"], ["down"], []]


def test_the_condition_of_dagster_loses_a_change_while_the_run_works(instance: dg.DagsterInstance) -> None:
    changes = []
    daemon = started(instance, dg.AutomationCondition.eager(), during=lambda: changes and daemon.commit(changes.pop()))
    daemon.commit(2)
    assert daemon.requested() == ["down"]
    changes.append(3)
    daemon.run("down")
    assert [daemon.requested(), daemon.requested()] == [[], []]


def test_a_change_between_a_request_and_the_next_tick_is_not_lost(instance: dg.DagsterInstance) -> None:
    daemon = started(instance, on_new_data_version())
    daemon.commit(2)
    assert daemon.requested() == ["down"]
    daemon.run("down")
    daemon.commit(3)
    assert daemon.requested() == ["down"]
    daemon.run("down")
    assert daemon.requested() == []


class Stores(dg.AutomationCondition):
    """Always true. Its evaluation stores an event, if there is one to store."""

    def __init__(self, store: Callable[[], object]) -> None:
        self.store = store

    def evaluate(self, context: dg.AutomationContext) -> dg.AutomationResult:
        self.store()
        return dg.AutomationResult(context, context.candidate_subset)


@pytest.mark.parametrize("first", [True, False], ids=["before the comparison", "after it"])
def test_a_change_that_is_stored_during_the_evaluation_is_requested_once(
    instance: dg.DagsterInstance, first: bool
) -> None:
    changes = []
    stores = Stores(lambda: changes and daemon.commit(changes.pop()))
    condition = on_new_data_version()
    daemon = started(instance, stores & condition if first else condition | (stores & ~stores))
    changes.append(2)
    requested = daemon.requested()
    assert not changes
    found = [requested, daemon.requested(), daemon.requested()]
    assert sorted(found) == [[], [], ["down"]]
    daemon.run("down")
    assert [daemon.requested(), daemon.requested()] == [[], []]


def test_a_run_of_both_assets_requests_nothing(instance: dg.DagsterInstance) -> None:
    @dg.asset
    def up() -> dg.MaterializeResult:
        return dg.MaterializeResult(data_version=dg.DataVersion(f"table@{len(runs)}"))

    runs = [1]
    daemon = Daemon(instance, up, down_of(on_new_data_version()))
    daemon.run("up", "down")
    assert daemon.requested() == []
    runs.append(2)
    daemon.run("up", "down")
    assert [daemon.requested(), daemon.requested()] == [[], []]
    runs.append(3)
    daemon.run("up")
    assert daemon.requested() == ["down"]


def test_a_failed_run_is_not_requested_again_before_the_next_change(instance: dg.DagsterInstance) -> None:
    def fail() -> None:
        assert not fails

    fails = []
    daemon = started(instance, on_new_data_version(), during=fail)
    daemon.commit(2)
    assert daemon.requested() == ["down"]
    fails.append(1)
    assert not daemon.run("down", raises=False).success
    assert [daemon.requested(), daemon.requested()] == [[], []]
    daemon.commit(3)
    assert daemon.requested() == ["down"]


def test_a_commit_from_outside_to_the_asset_does_not_hide_a_change(instance: dg.DagsterInstance) -> None:
    daemon = started(instance, on_new_data_version())
    daemon.commit(2)
    daemon.commit(7, key=dg.AssetKey("down"))
    assert daemon.requested() == ["down"]


def test_the_sensor_evaluates_the_condition_in_the_code_location(instance: dg.DagsterInstance) -> None:
    sensor = data_version_sensor(dg.AssetSelection.assets("down"))
    daemon = started(instance, on_new_data_version(), sensors=[sensor])
    cursor = None

    def tick() -> list[Any]:
        nonlocal cursor
        context = dg.build_sensor_context(
            instance=instance, cursor=cursor, repository_def=daemon.defs.get_repository_def()
        )
        result = sensor.evaluate_tick(context)
        cursor = result.cursor
        return [request.asset_selection for request in result.run_requests]

    assert tick() == []
    daemon.commit(2)
    assert tick() == [[dg.AssetKey("down")]]
    assert tick() == []


@pytest.fixture
def upstream_table(catalog: CatalogResource) -> Table:
    return make_table(catalog.client, "main.default.up")


def readers(
    catalog: CatalogResource, instance: dg.DagsterInstance, *, during: Callable[[], object] = lambda: None
) -> Daemon:
    """Two assets that read ``up`` in one run, one after the other; ``during`` is called between them."""

    @dg.asset(automation_condition=on_new_data_version(upstream=dg.AssetSelection.assets("up")))
    def early(up: Snapshot) -> None:
        during()

    @dg.asset(deps=[early], automation_condition=on_new_data_version(upstream=dg.AssetSelection.assets("up")))
    def late(up: Snapshot) -> None: ...

    manager = CatalogManagedDeltaIOManager(catalog=catalog, spark=SparkResource())
    return Daemon(instance, dg.AssetSpec("up"), early, late, resources={"io_manager": manager})


def test_an_asset_that_reads_a_pinned_version_is_requested_for_newer_ones(
    catalog: CatalogResource, instance: dg.DagsterInstance, upstream_table: Table
) -> None:
    def change() -> None:
        if not changed:
            version = changed.append(commit(upstream_table)) or changed[0]
            tags = {"dagster/data_version": f"{upstream_table.table_id}@{version}"}
            instance.report_runless_asset_event(dg.AssetMaterialization(UP, tags=tags))

    changed = []
    daemon = readers(catalog, instance, during=change)
    daemon.run("early", "late")
    (record,) = instance.fetch_materializations(dg.AssetKey("late"), limit=1).records
    read = record.asset_materialization.metadata["cm_delta/versions_read"].value
    assert read == {"up": {"table_id": upstream_table.table_id, "version": 0}}
    assert changed == [1]
    assert sorted(daemon.requested()) == ["early", "late"]
    daemon.run("early", "late")
    assert daemon.requested() == []


def test_a_version_that_was_read_before_its_event_was_stored_requests_nothing(
    catalog: CatalogResource, instance: dg.DagsterInstance, upstream_table: Table
) -> None:
    daemon = readers(catalog, instance)
    version = commit(upstream_table)
    daemon.run("early", "late")
    tags = {"dagster/data_version": f"{upstream_table.table_id}@{version}"}
    instance.report_runless_asset_event(dg.AssetMaterialization(UP, tags=tags))
    assert [daemon.requested(), daemon.requested()] == [[], []]


def test_a_cursor_of_another_form_loses_no_change(instance: dg.DagsterInstance) -> None:
    daemon = started(instance, on_new_data_version())
    stored = dg.serialize_value(daemon.cursor)
    assert 'partitions\\":' in stored
    daemon.cursor = dg.deserialize_value(stored.replace('partitions\\":', 'size\\":'))
    daemon.commit(2)
    assert daemon.requested() == ["down"]
    assert daemon.requested() == []


def test_a_materialization_with_the_same_data_version_after_the_read_requests_nothing(
    instance: dg.DagsterInstance,
) -> None:
    daemon = started(instance, on_new_data_version())
    daemon.commit(1)
    assert daemon.requested() == []


def test_an_observable_source_requests_with_each_new_data_version(instance: dg.DagsterInstance) -> None:
    @dg.observable_source_asset
    def up() -> dg.DataVersion: ...

    daemon = Daemon(instance, up, down_of(on_new_data_version()))
    daemon.commit(1, kind=dg.AssetObservation)
    daemon.run("down")
    daemon.commit(1, kind=dg.AssetObservation)
    assert daemon.requested() == []
    daemon.commit(2, kind=dg.AssetObservation)
    assert daemon.requested() == ["down"]


def test_an_asset_without_partitions_follows_all_partitions_of_its_upstream(instance: dg.DagsterInstance) -> None:
    up = dg.AssetSpec("up", partitions_def=DAYS)
    daemon = Daemon(instance, up, down_of(on_new_data_version()))
    for day in DAYS.get_partition_keys():
        daemon.commit(1, partition=day)
    daemon.run("down")
    assert daemon.requested() == []
    daemon.commit(2, partition="2026-01-02")
    assert daemon.requested() == ["down"]
    daemon.run("down")
    assert daemon.requested() == []


def test_an_asset_without_partitions_follows_changes_of_unknown_partitions(instance: dg.DagsterInstance) -> None:
    """The commit sensor reports a commit of too many partitions, or with another schema, by an event without a partition."""
    daemon = Daemon(instance, dg.AssetSpec("up", partitions_def=DAYS), down_of(on_new_data_version()))
    for day in DAYS.get_partition_keys():
        daemon.commit(1, partition=day)
    daemon.run("down")
    assert daemon.requested() == []
    for partition in (None, "2026-01-02"):
        daemon.commit(2, partition=partition)
        assert daemon.requested() == ["down"]
        daemon.run("down")
        assert daemon.requested() == []
    daemon.commit(2)
    assert daemon.requested() == []


@pytest.mark.parametrize(
    "partitions",
    [
        dg.MultiPartitionsDefinition({"day": DAYS, "site": dg.StaticPartitionsDefinition(["a", "b"])}),
        dg.DynamicPartitionsDefinition(name="sites"),
        dg.StaticPartitionsDefinition(["a", "b"]),
    ],
    ids=["multi", "dynamic", "static"],
)
def test_changed_partitions_of_every_kind_are_requested(
    instance: dg.DagsterInstance, partitions: dg.PartitionsDefinition[Any]
) -> None:
    instance.add_dynamic_partitions("sites", ["a", "b"])
    first, second = sorted(partitions.get_partition_keys(dynamic_partitions_store=instance))[:2]
    up = dg.AssetSpec("up", partitions_def=partitions)
    daemon = Daemon(instance, up, down_of(on_new_data_version_of_any_partition(), partitions_def=partitions))
    assert daemon.tick() == []
    daemon.commit(1, partition=first)
    daemon.commit(1, partition=second)
    assert daemon.tick() == [f"down@{first}", f"down@{second}"]
    daemon.commit(2, partition=second)
    assert daemon.tick() == [f"down@{second}"]
    assert daemon.tick() == []


def test_a_partition_that_appears_after_its_data_is_requested(instance: dg.DagsterInstance) -> None:
    sites = dg.DynamicPartitionsDefinition(name="sites")
    up = dg.AssetSpec("up", partitions_def=sites)
    daemon = Daemon(instance, up, down_of(on_new_data_version_of_any_partition(), partitions_def=sites))
    assert daemon.tick() == []
    daemon.commit(1, partition="a")
    assert daemon.tick() == []
    instance.add_dynamic_partitions("sites", ["a"])
    assert daemon.tick() == ["down@a"]


def test_a_partition_that_replaces_another_one_is_requested(instance: dg.DagsterInstance) -> None:
    sites = dg.DynamicPartitionsDefinition(name="sites")
    instance.add_dynamic_partitions("sites", ["b"])
    up = dg.AssetSpec("up", partitions_def=sites)
    daemon = Daemon(instance, up, down_of(on_new_data_version_of_any_partition(), partitions_def=sites))
    assert daemon.tick() == []
    daemon.commit(1, partition="a")
    assert daemon.tick() == []
    instance.delete_dynamic_partition("sites", "b")
    instance.add_dynamic_partitions("sites", ["a"])
    assert daemon.tick() == ["down@a"]


def test_partitions_without_new_events_keep_their_answer(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_changes, "_LATE_EVENTS", 0)
    condition = on_new_data_version_of_any_partition()
    up, other = dg.AssetSpec("up", partitions_def=DAYS), dg.AssetSpec("other", partitions_def=DAYS)

    @dg.asset(deps=["up", "other"], automation_condition=condition, partitions_def=DAYS, key="down")
    def of_both() -> None: ...

    daemon = Daemon(instance, up, down_of(condition, partitions_def=DAYS))
    for day in DAYS.get_partition_keys():
        daemon.commit(1, partition=day)
        daemon.run("down", partition_key=day)
    assert daemon.requested() == []
    daemon.commit(2, partition="2026-01-01")
    assert daemon.requested() == ["down"]
    daemon.commit(1, partition="2026-01-03", key=dg.AssetKey("other"))
    daemon.commit(2, partition="2026-01-02")
    assert daemon.tick() == ["down@2026-01-02"]
    assert daemon.tick() == [], "the first day was requested before, the second one was materialized"
    daemon.commit(3, partition="2026-01-01")
    assert daemon.tick() == ["down@2026-01-01"]
    daemon.defs = dg.Definitions(assets=[up, other, of_both])
    daemon.commit(1, partition="2026-01-01", key=dg.AssetKey("other"))
    daemon.commit(1, partition="2026-01-02", key=dg.AssetKey("other"))
    assert daemon.tick() == ["down@2026-01-01", "down@2026-01-02", "down@2026-01-03"]


def test_an_upstream_asset_without_its_partitions_requests_nothing(instance: dg.DagsterInstance) -> None:
    daemon = Daemon(instance, down_of(on_new_data_version_of_any_partition(), partitions_def=DAYS))
    assert daemon.tick() == []
    daemon.commit(1, partition="2026-01-02")
    with pytest.raises(Exception, match="Error while evaluating conditions for down") as raised:
        daemon.tick()
    assert "defined in this code location without partitions" in str(raised.value.__cause__)


def test_a_graph_is_requested_for_a_change_after_its_first_op_has_read(
    catalog: CatalogResource, instance: dg.DagsterInstance, upstream_table: Table
) -> None:
    changes = []

    @dg.op
    def reads(up: Snapshot) -> int:
        if changes:
            tags = {"dagster/data_version": f"{upstream_table.table_id}@{commit(upstream_table)}"}
            instance.report_runless_asset_event(dg.AssetMaterialization(UP, tags=tags))
            changes.pop()
        return up.version

    @dg.op
    def returns(version: int) -> int:
        return version

    @dg.graph_asset(automation_condition=on_new_data_version(), ins={"up": dg.AssetIn("up")})
    def down(up: Any) -> Any:
        return returns(reads(up))

    manager = CatalogManagedDeltaIOManager(catalog=catalog, spark=SparkResource())
    resources = {"up_manager": manager, "io_manager": dg.mem_io_manager}
    up = dg.AssetSpec("up", metadata={"dagster/io_manager_key": "up_manager"})
    daemon = Daemon(instance, up, down, resources=resources)
    daemon.run("down")
    assert daemon.requested() == []
    changes.append(1)
    daemon.run("down")
    assert not changes
    assert daemon.requested() == ["down"]
    daemon.run("down")
    assert daemon.requested() == []
