"""Which event requests which asset: ``on_new_data_version`` and a freshness policy, evaluated as the daemon does."""

from datetime import timedelta

import dagster as dg
import pytest

from cm_delta_dagster.orchestration import on_new_data_version, on_new_data_version_of_any_partition

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


@pytest.mark.parametrize("state", ["stale", "fresh"])
def test_a_freshness_policy_counts_the_commits_that_the_sensor_reports(instance, state):
    policy = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=1))
    spec = dg.apply_freshness_policy(dg.AssetSpec("up"), policy)
    if state == "fresh":
        instance.report_runless_asset_event(dg.AssetMaterialization(UP))
    record = instance.get_latest_materialization_event(UP)
    assert spec.freshness_policy == policy and (record is not None) == (state == "fresh")
