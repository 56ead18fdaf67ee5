"""Which event requests which asset: ``on_new_data_version`` and a freshness policy, evaluated as the daemon does."""

import asyncio
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster._core.definitions.freshness_evaluator import TimeWindowFreshnessPolicyEvaluator
from dagster._core.loader import LoadingContextForTest
from dagster._core.test_utils import freeze_time

from cm_delta_dagster.orchestration import on_new_data_version, on_new_data_version_of_any_partition

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
UP = dg.AssetKey("up")


class Daemon:
    """Evaluates the conditions tick after tick and materializes what they request."""

    def __init__(self, instance, *assets, **arguments):
        self.instance, self.defs, self.cursor = instance, dg.Definitions(assets=list(assets), **arguments), None

    def tick(self):
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        found = []
        for key in self.defs.resolve_all_asset_keys():
            for partition in sorted(result.get_requested_partitions(key), key=str):
                found.append(key.to_user_string() if partition is None else f"{key.to_user_string()}@{partition}")
                self.instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition))
        return found

    def commit(self, version, *, partition=None, kind=dg.AssetMaterialization, key=UP):
        tags = {"dagster/data_version": f"table@{version}"}
        self.instance.report_runless_asset_event(kind(key, partition=partition, tags=tags))


def down_of(condition, **arguments):
    @dg.asset(deps=[UP], automation_condition=condition, **arguments)
    def down() -> None: ...

    return down


def test_a_new_data_version_requests_and_maintenance_or_an_equal_version_does_not(instance):
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
def test_only_the_selected_upstream_assets_count(instance):
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


def test_each_changed_partition_is_requested_however_old(instance):
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
def test_only_the_latest_partition_follows_by_default(instance):
    up = dg.AssetSpec("up", partitions_def=DAYS)
    daemon = Daemon(instance, up, down_of(on_new_data_version(), partitions_def=DAYS))
    for day in DAYS.get_partition_keys():
        daemon.commit(1, partition=day)
    daemon.tick()
    daemon.commit(2, partition="2026-01-01")
    assert daemon.tick() == []
    daemon.commit(2, partition="2026-01-03")
    assert daemon.tick() == ["down@2026-01-03"]


def test_a_failed_blocking_check_of_upstream_stops_the_request(instance):
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


def test_a_freshness_policy_counts_the_commits_that_the_sensor_reports(instance):
    policy = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=2), warn_window=timedelta(hours=1))
    graph = dg.Definitions(assets=[dg.apply_freshness_policy(dg.AssetSpec("up"), policy)]).resolve_asset_graph()

    def state(hours):
        with freeze_time(datetime.now(UTC) + timedelta(hours=hours)):
            evaluator, context = TimeWindowFreshnessPolicyEvaluator(), LoadingContextForTest(instance)
            return asyncio.run(evaluator.evaluate_freshness(context, graph.get(UP))).value

    assert state(0) == "UNKNOWN"
    instance.report_runless_asset_event(dg.AssetMaterialization(UP, tags={"dagster/data_version": "table@1"}))
    assert [state(hours) for hours in (0, 1.5, 3)] == ["PASS", "WARN", "FAIL"]
    instance.report_runless_asset_event(dg.AssetObservation(UP, tags={"dagster/data_version": "table@1"}))
    assert state(3) == "FAIL"
