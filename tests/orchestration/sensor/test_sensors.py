"""The commit sensor: what is reported, once, whatever happens in between."""

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import AssetKey
from dagster._core.definitions.sensor_definition import SensorExecutionData

from cm_delta_dagster.catalog.ratification import CommitProposal, CommitSummary, Ratified
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.creation import CREATE_TABLE_AS
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.orchestration import CatalogResource, FirstTick, LaunchFor
from cm_delta_dagster.orchestration.sensor.feed_cursor import FeedCursor, SeenCommit, WatchedCommit
from tests.orchestration.log_tables import commit, make_table, report
from tests.orchestration.sensor_bench import KEY, NAME, Ticker, a_run, finish, own, record_by_run, sensor_of, versions

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")


@pytest.fixture
def ticker(catalog: CatalogResource, instance: dg.DagsterInstance) -> Ticker:
    return Ticker(sensor_of(), catalog, instance)


def test_foreign_changes_are_materializations_and_maintenance_is_an_observation(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    table = make_table(catalog.client, NAME)
    changed = commit(table)
    maintained = commit(table, data_change=False)
    result = ticker.tick()
    assert versions(instance) == [changed]
    assert versions(instance, "observation") == [0, maintained]
    tags = [event.tags["dagster/data_version"] for event in result.asset_events]
    assert tags == [f"{table.table_id}@0", f"{table.table_id}@1", f"{table.table_id}@1"]
    assert result.asset_events[-1].metadata["cm_delta/operation"].value == "OPTIMIZE"


def test_a_second_tick_reports_nothing_new(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    commit(make_table(catalog.client, NAME))
    ticker.tick()
    again = ticker.tick()
    assert again.skip_message and not again.asset_events
    assert versions(instance) == [1]


def test_a_crash_between_events_and_cursor_repeats_nothing(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    commit(make_table(catalog.client, NAME))
    report(instance, ticker.evaluate())  # The daemon dies before it stores the cursor.
    again = ticker.tick()
    assert not again.asset_events
    assert versions(instance) == [1]
    commit(catalog.client.table(NAME))
    ticker.tick()
    assert versions(instance) == [1, 2]
    assert versions(instance, "observation") == [0]


def test_own_commits_that_were_recorded_are_not_reported_again(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    run = a_run(instance)
    table = make_table(catalog.client, NAME, tags=own(run))
    version = commit(table, tags=own(run))
    record_by_run(instance, run.run_id, table, version)
    assert not ticker.tick().asset_events
    assert versions(instance) == [version]


def test_a_commit_of_a_run_under_way_is_pending_and_blocks_no_other(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    run = a_run(instance)
    table = make_table(catalog.client, NAME)
    ticker.tick()
    mine = commit(table, tags=own(run))
    foreign = commit(table)
    ticker.tick()
    assert versions(instance) == [foreign]
    record_by_run(instance, run.run_id, table, mine)
    assert not ticker.tick().asset_events
    assert FeedCursor.from_text(ticker.cursor).pending == ()


def test_commits_that_wait_for_a_run_do_not_overfill_the_cursor(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    """Dagster refuses cursors of 2 MB. The sensor stays before the commits that have no place, and loses none of them."""
    spec = dg.AssetSpec(KEY, metadata={"table": NAME})
    ticker = Ticker(sensor_of(assets=[spec]), catalog, instance)
    run = a_run(instance)
    table = make_table(catalog.client, NAME, by={"p": "string"})
    long = [commit(table, tags=own(run), partitions=[{"p": "x" * 100_000}]) for _ in range(7)]
    for _ in range(2):
        result = ticker.tick()
        assert "the most that the cursor can store" in result.skip_message
        waiting = [each.version for each in FeedCursor.from_text(ticker.cursor).pending]
        assert waiting == long[: len(waiting)] and len(waiting) == 5
        assert len(ticker.cursor) < 1_000_000
    assert versions(instance) == []
    finish(instance, run)
    ticker.tick()
    assert versions(instance) == long
    assert FeedCursor.from_text(ticker.cursor).pending == ()


def test_a_commit_whose_run_died_before_recording_it_is_reported(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    run = a_run(instance)
    table = make_table(catalog.client, NAME)
    mine = commit(table, tags=own(run))
    ticker.tick()
    assert versions(instance) == []
    finish(instance, run)
    (event,) = ticker.tick().asset_events
    assert event.metadata["cm_delta/commit_version"].value == mine
    assert event.metadata["cm_delta/lost_by_run"].value == run.run_id
    ticker.tick()
    assert versions(instance) == [mine]


def test_commits_of_an_unknown_instance_are_foreign(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    tags = {"dagster/run_id": "of another instance", "dagster/asset_key": "s/t"}
    commit(make_table(catalog.client, NAME, tags=tags), tags=tags)
    ticker.tick()
    assert versions(instance) == [1]


def test_maintenance_by_own_runs_is_not_reported_again(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    run = a_run(instance)
    table = make_table(catalog.client, NAME, tags=own(run))
    version = commit(table, data_change=False, tags={"dagster/run_id": run.run_id})
    assert "1 of runs under way wait" in ticker.tick().skip_message
    record_by_run(instance, run.run_id, table, version, kind="observation")
    finish(instance, run)
    assert not ticker.tick().asset_events
    assert versions(instance, "observation") == [version]


def test_maintenance_whose_run_died_before_its_observation_is_observed_once(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    run = a_run(instance)
    version = commit(make_table(catalog.client, NAME), data_change=False, tags={"dagster/run_id": run.run_id})
    ticker.tick()
    assert versions(instance, "observation") == [0]
    finish(instance, run)
    died = ticker.evaluate()
    report(instance, died)
    assert not ticker.tick().asset_events
    assert versions(instance, "observation") == [0, version]
    (event,) = died.asset_events
    assert event.metadata["cm_delta/lost_by_run"].value == run.run_id


def test_maintenance_with_nothing_to_do_is_not_an_event_of_the_commit_it_read(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    died, compaction = a_run(instance), a_run(instance)
    table = make_table(catalog.client, NAME)
    lost = commit(table, tags=own(died))
    finish(instance, died)
    record_by_run(instance, compaction.run_id, table, lost, kind="observation", outcome="nothing_to_do")
    ticker.tick()
    assert versions(instance) == [lost]


def test_every_commit_of_a_run_that_died_is_reported(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    """One that the run recorded, and two that it did not, of which the newest alone would have been kept."""
    run = a_run(instance)
    table = make_table(catalog.client, NAME)
    lost, recorded, also_lost = (commit(table, tags=own(run)) for _ in range(3))
    ticker.tick()
    assert [each.version for each in FeedCursor.from_text(ticker.cursor).pending] == [lost, recorded, also_lost]
    record_by_run(instance, run.run_id, table, recorded)
    ticker.tick()
    assert [each.version for each in FeedCursor.from_text(ticker.cursor).pending] == [lost, also_lost]
    finish(instance, run)
    ticker.tick()
    ticker.tick()
    assert versions(instance) == [recorded, lost, also_lost]


def test_the_creation_of_an_empty_table_is_an_observation_and_launches_nothing(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    ticker = Ticker(sensor_of(job=downstream), catalog, instance)
    make_table(catalog.client, NAME)
    result = ticker.tick()
    assert (versions(instance), versions(instance, "observation")) == ([], [0])
    assert not result.run_requests


def test_an_output_without_rows_that_made_the_table_is_observed_if_its_run_died(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    run = a_run(instance)
    make_table(catalog.client, "main.s.other")
    draft = catalog.client.registry.create_staging_table(TableIdentifier.parse(NAME))
    summary = CommitSummary(
        txn_id="t", in_commit_timestamp=1, operation=CREATE_TABLE_AS, data_change=False, tags=own(run)
    )
    catalog.client.registry.register_table(draft.table_id, TableIdentifier.parse(NAME), summary=summary)
    assert not ticker.tick().asset_events
    finish(instance, run)
    ticker.tick()
    assert versions(instance, "observation") == [0]


@pytest.mark.slow
def test_many_observations_of_reads_do_not_hide_what_was_reported(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    table = make_table(catalog.client, NAME)
    commit(table)
    maintained = commit(table, data_change=False)
    report(instance, ticker.evaluate())  # The daemon dies before it stores the cursor.
    for _ in range(1100):
        metadata = {"cm_delta/table_id": table.table_id, "cm_delta/version_read": 1}
        instance.report_runless_asset_event(dg.AssetObservation(KEY, metadata=metadata))
    assert not ticker.tick().asset_events
    observed = instance.fetch_observations(KEY, limit=2000).records
    reports = [r for r in observed if "cm_delta/commit_version" in r.asset_observation.metadata]
    assert len(reports) == 2 and maintained == 2


def test_a_dropped_and_re_created_table_is_reported_again(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    @dg.job
    def downstream() -> None: ...

    ticker = Ticker(sensor_of(job=downstream), catalog, instance)
    first = make_table(catalog.client, NAME)
    commit(first)
    keys = [request.run_key for request in ticker.tick().run_requests]
    drop_table(catalog.client, identifier=NAME)
    second = make_table(catalog.client, NAME)
    commit(second)
    keys += [request.run_key for request in ticker.tick().run_requests]
    assert keys == [f"{first.table_id}:1", f"{second.table_id}:1"]
    assert versions(instance) == [1, 1]


def test_one_run_for_each_table_and_batch_with_the_newest_version(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    @dg.job
    def downstream() -> None: ...

    ticker = Ticker(sensor_of(job=downstream), catalog, instance)
    table = make_table(catalog.client, NAME)
    commit(table)
    commit(table)
    commit(table, data_change=False)
    assert [request.run_key for request in ticker.tick().run_requests] == [f"{table.table_id}:2"]


def test_batches_bound_a_tick(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    ticker = Ticker(sensor_of(batch_size=2), catalog, instance)
    table = make_table(catalog.client, NAME)
    for _ in range(4):
        commit(table)
    assert [len(ticker.tick().asset_events) for _ in range(4)] == [2, 2, 1, 0]
    assert versions(instance) == [1, 2, 3, 4]


def test_a_tick_that_runs_out_of_time_keeps_its_position(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    ticker = Ticker(sensor_of(tick_limit=timedelta(0)), catalog, instance)
    make_table(catalog.client, NAME)
    ticker.tick()
    assert FeedCursor.from_text(ticker.cursor).position == 0
    assert versions(instance) == []


def test_a_sensor_may_begin_with_the_next_commit(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    ticker = Ticker(sensor_of(first_tick=FirstTick.FROM_NOW), catalog, instance)
    table = make_table(catalog.client, NAME)
    assert not ticker.tick().asset_events
    commit(table)
    ticker.tick()
    assert versions(instance) == [1]


@pytest.mark.parametrize(
    "text", ["", "nonsense", "{}", '{"format": 2}', '{"format": 3, "position": 1, "pending": []}', "[]"]
)
def test_an_unreadable_cursor_repeats_nothing(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance, text: str
) -> None:
    table = make_table(catalog.client, NAME)
    commit(table)
    ticker.tick()
    commit(table)
    ticker.cursor = text
    ticker.tick()
    assert versions(instance) == [1, 2]


def test_a_catalog_that_is_down_is_a_reason_to_skip(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("this is no database, and it is long enough to be taken for one" * 10)
    broken = CatalogResource(url=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/w")
    ticker = Ticker(sensor_of(), broken, instance)
    ticker.cursor = place = FeedCursor(position=7).to_text()
    assert "catalog" in ticker.tick().skip_message
    assert ticker.cursor == place
    broken.close()


def test_tables_are_found_from_asset_metadata(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    @dg.asset(key=["s", "t"], metadata={"table": "main.other.name"})
    def made() -> Any: ...

    sensor = sensor_of(assets=[made, dg.AssetSpec(["a", "b", "c"])])
    ticker = Ticker(sensor, catalog, instance)
    for table in ("main.other.name", "main.b.c", "main.b.unwatched"):
        commit(make_table(catalog.client, table))
    ticker.tick()
    assert versions(instance) == [1]
    assert versions(instance, key=AssetKey(["a", "b", "c"])) == [1]


def test_asset_keys_that_mean_one_table_by_accident_are_refused() -> None:
    specs = [dg.AssetSpec(["eu", "sales", "orders"]), dg.AssetSpec(["us", "sales", "orders"])]
    with pytest.raises(InvalidArgumentError, match="eu/sales/orders") as caught:
        sensor_of(assets=specs)
    assert "us/sales/orders" in str(caught.value) and "main.sales.orders" in str(caught.value)
    shared = [dg.AssetSpec(spec.key, metadata={"table": "sales.orders"}) for spec in specs]
    assert sensor_of(assets=shared).name == "commits"


def test_a_cursor_survives_its_text() -> None:
    waiting = WatchedCommit(
        position=3,
        table=NAME,
        table_id="x",
        version=1,
        data_version=1,
        committed_ms=5,
        operation="WRITE",
        data_change=True,
        run_id="r",
        changed=({"p": "1"}, {"p": None}),
        metrics={"numFiles": "1"},
    )
    seen = SeenCommit(position=9, table=NAME, txn_id="t")
    cursor = FeedCursor(position=9, catalog_id="c", seen=seen, pending=(waiting,), recovering_until=4)
    assert FeedCursor.from_text(cursor.to_text()) == cursor


def test_a_cursor_of_the_release_before_is_read_on(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    table = make_table(catalog.client, NAME)
    commit(table)
    ticker.cursor = '{"format":1,"position":2,"pending":[],"recovering_until":0}'
    commit(table)
    ticker.tick()
    assert versions(instance) == [2]


def test_data_changes_trigger_downstream_and_maintenance_does_not(
    ticker: Ticker, catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(deps=[KEY], automation_condition=dg.AutomationCondition.any_deps_updated())
    def downstream() -> None: ...

    defs = dg.Definitions(assets=[dg.AssetSpec(KEY), downstream])
    table = make_table(catalog.client, NAME)
    ticker.tick()
    first = dg.evaluate_automation_conditions(defs, instance)
    commit(table)
    ticker.tick()
    changed = dg.evaluate_automation_conditions(defs, instance, cursor=first.cursor)
    commit(table, data_change=False)
    ticker.tick()
    maintained = dg.evaluate_automation_conditions(defs, instance, cursor=changed.cursor)
    assert (changed.total_requested, maintained.total_requested) == (1, 0)


@dg.job
def downstream() -> None: ...


def keys_of(result: SensorExecutionData) -> list[str | None]:
    return [request.run_key for request in result.run_requests or ()]


def test_commits_of_own_runs_launch_downstream_once_their_events_are_recorded(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    ticker = Ticker(sensor_of(job=downstream, first_tick=FirstTick.FROM_NOW), catalog, instance)
    table = make_table(catalog.client, NAME)
    ticker.tick()
    run = a_run(instance)
    version = commit(table, tags=own(run))
    assert keys_of(ticker.tick()) == []
    record_by_run(instance, run.run_id, table, version)
    assert keys_of(ticker.tick()) == [f"{table.table_id}:{version}"]
    assert keys_of(ticker.tick()) == []


def test_own_commits_launch_nothing_if_only_foreign_ones_shall(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    sensor = sensor_of(job=downstream, first_tick=FirstTick.FROM_NOW, launch_for=LaunchFor.FOREIGN_COMMITS)
    ticker = Ticker(sensor, catalog, instance)
    table = make_table(catalog.client, NAME)
    ticker.tick()
    run = a_run(instance)
    record_by_run(instance, run.run_id, table, commit(table, tags=own(run)))
    assert keys_of(ticker.tick()) == []
    foreign = commit(table)
    assert keys_of(ticker.tick()) == [f"{table.table_id}:{foreign}"]


def test_a_run_that_the_sensor_launched_does_not_launch_another(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    ticker = Ticker(sensor_of(job=downstream, first_tick=FirstTick.FROM_NOW), catalog, instance)
    table = make_table(catalog.client, NAME)
    ticker.tick()
    run = instance.create_run_for_job(
        downstream, status=dg.DagsterRunStatus.STARTED, tags={"dagster/sensor_name": "commits"}
    )
    record_by_run(instance, run.run_id, table, commit(table, tags=own(run)))
    assert keys_of(ticker.tick()) == []


def test_a_run_that_the_sensor_launched_launches_none_for_another_asset_of_the_table_nor_when_it_dies(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    watched = {KEY: NAME, AssetKey(["s", "same_table"]): NAME}
    ticker = Ticker(sensor_of(assets=watched, job=downstream, first_tick=FirstTick.FROM_NOW), catalog, instance)
    table = make_table(catalog.client, NAME)
    ticker.tick()
    for dies in (False, True):
        run = a_run(instance, tags={"dagster/sensor_name": "commits"})
        version = commit(table, tags=own(run))
        if dies:
            finish(instance, run)
        else:
            record_by_run(instance, run.run_id, table, version)
        assert keys_of(ticker.tick()) == []


def test_only_the_named_assets_launch_downstream(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    other = AssetKey(["s", "other"])
    watched = {KEY: NAME, other: "main.s.other"}
    ticker = Ticker(sensor_of(assets=watched, job=downstream, launch_on=[other]), catalog, instance)
    commit(make_table(catalog.client, NAME))
    assert keys_of(ticker.tick()) == []
    second = make_table(catalog.client, "main.s.other")
    commit(second)
    assert keys_of(ticker.tick()) == [f"{second.table_id}:1"]
    with pytest.raises(InvalidArgumentError, match="unwatched"):
        sensor_of(assets=watched, job=downstream, launch_on=[AssetKey("unwatched")])


def test_a_crash_after_the_events_and_before_the_runs_still_requests_the_runs(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    ticker = Ticker(sensor_of(job=downstream), catalog, instance)
    table = make_table(catalog.client, NAME)
    version = commit(table)
    died = ticker.evaluate()
    report(instance, died)
    again = ticker.tick()
    assert keys_of(again) == keys_of(died) == [f"{table.table_id}:{version}"]
    assert versions(instance) == [version]


@pytest.mark.slow
@pytest.mark.parametrize("number", [1_000, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_thousands_of_new_commits_are_reported_in_batches_each_once(
    catalog: CatalogResource, instance: dg.DagsterInstance, number: int
) -> None:
    table = make_table(catalog.client, NAME)
    first = table.snapshot().timestamp_ms
    for version in range(1, number + 1):
        summary = CommitSummary(
            txn_id=str(version), in_commit_timestamp=first + version, operation="WRITE", data_change=version % 100 > 0
        )
        file_name = f"{version:020d}.{uuid.UUID(int=version)}.json"
        proposal = CommitProposal(
            version=version, file_name=file_name, file_size=1, file_modification_time=1, summary=summary
        )
        assert isinstance(catalog.client.coordinator.commit(table.table_id, proposal), Ratified)
    ticker = Ticker(sensor_of(batch_size=number // 10), catalog, instance)
    reported = []
    for _ in range(11):
        result = ticker.evaluate()
        ticker.cursor = result.cursor
        reported += [event.metadata["cm_delta/commit_version"].value for event in result.asset_events]
        assert len(result.asset_events) <= number // 10
    assert reported == list(range(number + 1))


def test_a_sensor_launches_the_checks_of_assets_with_new_data(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    """Besides its job, or alone; a commit of a run, and maintenance, launch none."""

    @dg.asset_check(asset=KEY)
    def sound() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    @dg.asset(key="down")
    def down() -> None: ...

    table = make_table(catalog.client, NAME)
    commit(table)
    for given, launched in (
        ({}, set()),
        ({"target": "down"}, {"commits_job"}),
        ({"target": down}, {"commits_job"}),
        ({"job": dg.define_asset_job("mine", selection="down")}, {"mine"}),
        ({"target": dg.define_asset_job("mine", selection="down")}, {"mine"}),
    ):
        sensor = sensor_of(launch_checks=True, **given)
        defs = dg.Definitions(
            assets=[dg.AssetSpec(KEY), down], asset_checks=[sound], sensors=[sensor], resources={"catalog": catalog}
        )
        with dg.DagsterInstance.ephemeral() as fresh:
            requests = {each.job_name: each for each in Ticker(sensor, catalog, fresh, defs).tick().run_requests}
        assert requests.keys() == {*launched, "commits_checks"}
        assert requests["commits_checks"].asset_check_keys == [dg.AssetCheckKey(KEY, "sound")]
        assert all(each.asset_check_keys is None for name, each in requests.items() if name in launched)
    run = a_run(instance)
    version = commit(table, tags=own(run))
    record_by_run(instance, run.run_id, table, version)
    ticker = Ticker(sensor_of(launch_checks=True, first_tick=FirstTick.FROM_BEGINNING), catalog, instance, defs)
    ticker.tick()
    commit(table, data_change=False)
    assert not ticker.tick().run_requests
