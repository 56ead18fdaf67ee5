"""The commit sensor: what is reported, once, whatever happens in between."""

import uuid

import dagster as dg
import pytest
from dagster import AssetKey

from cm_delta_dagster.catalog.catalog import CommitProposal, CommitSummary, Ratified
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.drop import drop_table
from cm_delta_dagster.orchestration import CatalogResource, FirstTick, LaunchFor, ratified_commit_sensor
from cm_delta_dagster.orchestration.sensors import FeedCursor, WatchedCommit

from .log_tables import commit, make_table, report, resource_at

KEY = AssetKey(["s", "t"])
NAME = "main.s.t"

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")


@pytest.fixture
def catalog(tmp_path):
    resource = resource_at(tmp_path)
    yield resource
    resource.close()


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def sensor_of(**arguments):
    arguments = {"assets": {KEY: NAME}, "first_tick": FirstTick.FROM_BEGINNING, **arguments}
    return ratified_commit_sensor(name="commits", **arguments)


class Ticker:
    """The daemon: evaluates, reports the events, keeps the cursor."""

    def __init__(self, sensor, catalog, instance):
        self.sensor, self.catalog, self.instance, self.cursor = sensor, catalog, instance, None

    def evaluate(self):
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources={"catalog": self.catalog}
        ) as context:
            return self.sensor.evaluate_tick(context)

    def tick(self):
        result = self.evaluate()
        report(self.instance, result)
        self.cursor = result.cursor
        return result


@pytest.fixture
def ticker(catalog, instance):
    return Ticker(sensor_of(), catalog, instance)


def versions(instance, kind="materialization", key=KEY):
    fetch = instance.fetch_materializations if kind == "materialization" else instance.fetch_observations
    records = fetch(key, limit=1000, ascending=True).records
    events = [record.asset_materialization or record.asset_observation for record in records]
    return [event.metadata["cm_delta/commit_version"].value for event in events]


def record_by_run(instance, run_id, table, version):
    """What the IO manager's output leaves in the event log of a run."""
    metadata = {"cm_delta/table_id": table.table_id, "cm_delta/commit_version": version}
    event = dg.AssetMaterialization(KEY, metadata=metadata)
    instance.report_dagster_event(
        dg.DagsterEvent(
            event_type_value=dg.DagsterEventType.ASSET_MATERIALIZATION.value,
            job_name="job",
            event_specific_data=dg._core.events.StepMaterializationData(event),
        ),
        run_id=run_id,
    )


def a_run(instance, status=dg.DagsterRunStatus.STARTED):
    @dg.job
    def job(): ...

    return instance.create_run_for_job(job, status=status)


def finish(instance, run):
    instance.report_run_failed(run)


def own(run):
    return {"dagster/run_id": run.run_id, "dagster/asset_key": "s/t"}


def test_foreign_changes_are_materializations_and_maintenance_is_an_observation(ticker, catalog, instance):
    table = make_table(catalog.client, NAME)
    changed = commit(table)
    maintained = commit(table, data_change=False)
    result = ticker.tick()
    assert versions(instance) == [0, changed]
    assert versions(instance, "observation") == [maintained]
    tags = [event.tags["dagster/data_version"] for event in result.asset_events]
    assert tags == [f"{table.table_id}@0", f"{table.table_id}@1", f"{table.table_id}@1"]
    assert result.asset_events[-1].metadata["cm_delta/operation"].value == "OPTIMIZE"


def test_a_second_tick_reports_nothing_new(ticker, catalog, instance):
    commit(make_table(catalog.client, NAME))
    ticker.tick()
    again = ticker.tick()
    assert again.skip_message and not again.asset_events
    assert versions(instance) == [0, 1]


def test_a_crash_between_events_and_cursor_repeats_nothing(ticker, catalog, instance):
    commit(make_table(catalog.client, NAME))
    report(instance, ticker.evaluate())  # The daemon dies before it stores the cursor.
    again = ticker.tick()
    assert not again.asset_events
    assert versions(instance) == [0, 1]
    commit(catalog.client.table(NAME))
    ticker.tick()
    assert versions(instance) == [0, 1, 2]


def test_own_commits_that_were_recorded_are_not_reported_again(ticker, catalog, instance):
    run = a_run(instance)
    table = make_table(catalog.client, NAME, tags=own(run))
    version = commit(table, tags=own(run))
    record_by_run(instance, run.run_id, table, version)
    assert not ticker.tick().asset_events
    assert versions(instance) == [version]


def test_a_commit_of_a_run_under_way_waits_and_blocks_nobody(ticker, catalog, instance):
    run = a_run(instance)
    table = make_table(catalog.client, NAME)
    ticker.tick()
    mine = commit(table, tags=own(run))
    foreign = commit(table)
    ticker.tick()
    assert versions(instance) == [0, foreign]
    record_by_run(instance, run.run_id, table, mine)
    assert not ticker.tick().asset_events
    assert FeedCursor.from_text(ticker.cursor).pending == ()


def test_a_commit_whose_run_died_before_recording_it_is_reported(ticker, catalog, instance):
    run = a_run(instance)
    table = make_table(catalog.client, NAME)
    mine = commit(table, tags=own(run))
    ticker.tick()
    assert versions(instance) == [0]
    finish(instance, run)
    (event,) = ticker.tick().asset_events
    assert event.metadata["cm_delta/commit_version"].value == mine
    assert event.metadata["cm_delta/lost_by_run"].value == run.run_id
    ticker.tick()
    assert versions(instance) == [0, mine]


def test_commits_of_an_unknown_instance_are_foreign(ticker, catalog, instance):
    make_table(catalog.client, NAME, tags={"dagster/run_id": "of somebody else", "dagster/asset_key": "s/t"})
    ticker.tick()
    assert versions(instance) == [0]


def test_maintenance_by_our_own_runs_is_left_to_them(ticker, catalog, instance):
    run = a_run(instance)
    table = make_table(catalog.client, NAME)
    commit(table, data_change=False, tags={"dagster/run_id": run.run_id})
    ticker.tick()
    assert versions(instance, "observation") == []


def test_a_dropped_and_re_created_table_fires_again(catalog, instance):
    @dg.job
    def downstream(): ...

    ticker = Ticker(sensor_of(job=downstream), catalog, instance)
    first = make_table(catalog.client, NAME)
    keys = [request.run_key for request in ticker.tick().run_requests]
    drop_table(catalog.client, identifier=NAME)
    second = make_table(catalog.client, NAME)
    keys += [request.run_key for request in ticker.tick().run_requests]
    assert keys == [f"{first.table_id}:0", f"{second.table_id}:0"]
    assert versions(instance) == [0, 0]


def test_one_run_for_each_table_and_batch_with_the_newest_version(catalog, instance):
    @dg.job
    def downstream(): ...

    ticker = Ticker(sensor_of(job=downstream), catalog, instance)
    table = make_table(catalog.client, NAME)
    commit(table)
    commit(table)
    commit(table, data_change=False)
    assert [request.run_key for request in ticker.tick().run_requests] == [f"{table.table_id}:2"]


def test_batches_bound_a_tick(catalog, instance):
    ticker = Ticker(sensor_of(batch_size=2), catalog, instance)
    table = make_table(catalog.client, NAME)
    for _ in range(4):
        commit(table)
    assert [len(ticker.tick().asset_events) for _ in range(4)] == [2, 2, 1, 0]
    assert versions(instance) == [0, 1, 2, 3, 4]


def test_a_tick_that_runs_out_of_time_keeps_its_place(catalog, instance):
    ticker = Ticker(sensor_of(tick_seconds=0.0), catalog, instance)
    make_table(catalog.client, NAME)
    ticker.tick()
    assert FeedCursor.from_text(ticker.cursor).position == 0
    assert versions(instance) == []


def test_a_sensor_may_begin_with_the_next_commit(catalog, instance):
    ticker = Ticker(sensor_of(first_tick=FirstTick.FROM_NOW), catalog, instance)
    table = make_table(catalog.client, NAME)
    assert not ticker.tick().asset_events
    commit(table)
    ticker.tick()
    assert versions(instance) == [1]


@pytest.mark.parametrize(
    "text", ["", "nonsense", "{}", '{"format": 1}', '{"format": 2, "position": 1, "pending": []}', "[]"]
)
def test_an_unreadable_cursor_repeats_nothing(ticker, catalog, instance, text):
    table = make_table(catalog.client, NAME)
    commit(table)
    ticker.tick()
    commit(table)
    ticker.cursor = text
    ticker.tick()
    assert versions(instance) == [0, 1, 2]


def test_a_catalog_that_is_down_is_a_reason_to_skip(instance, tmp_path):
    (tmp_path / "catalog.db").write_text("this is no database, and it is long enough to be taken for one" * 10)
    broken = CatalogResource(url=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/w")
    ticker = Ticker(sensor_of(), broken, instance)
    ticker.cursor = place = FeedCursor(position=7).to_text()
    assert "catalog" in ticker.tick().skip_message
    assert ticker.cursor == place
    broken.close()


def test_tables_are_found_from_asset_metadata(catalog, instance):
    @dg.asset(key=["s", "t"], metadata={"table": "main.other.name"})
    def made(): ...

    sensor = sensor_of(assets=[made, dg.AssetSpec(["a", "b", "c"])])
    ticker = Ticker(sensor, catalog, instance)
    make_table(catalog.client, "main.other.name")
    make_table(catalog.client, "main.b.c")
    make_table(catalog.client, "main.b.unwatched")
    ticker.tick()
    assert versions(instance) == [0]
    assert versions(instance, key=AssetKey(["a", "b", "c"])) == [0]


def test_a_cursor_survives_its_text():
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
        metrics={"numFiles": "1"},
    )
    cursor = FeedCursor(position=9, pending=(waiting,), recovering_until=4)
    assert FeedCursor.from_text(cursor.to_text()) == cursor


def test_data_changes_trigger_downstream_and_maintenance_does_not(ticker, catalog, instance):
    @dg.asset(deps=[KEY], automation_condition=dg.AutomationCondition.any_deps_updated())
    def downstream(): ...

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
def downstream(): ...


def keys_of(result):
    return [request.run_key for request in result.run_requests or ()]


def test_commits_of_own_runs_launch_downstream_once_their_events_are_recorded(catalog, instance):
    ticker = Ticker(sensor_of(job=downstream, first_tick=FirstTick.FROM_NOW), catalog, instance)
    table = make_table(catalog.client, NAME)
    ticker.tick()
    run = a_run(instance)
    version = commit(table, tags=own(run))
    assert keys_of(ticker.tick()) == []
    record_by_run(instance, run.run_id, table, version)
    assert keys_of(ticker.tick()) == [f"{table.table_id}:{version}"]
    assert keys_of(ticker.tick()) == []


def test_own_commits_launch_nothing_if_only_foreign_ones_shall(catalog, instance):
    sensor = sensor_of(job=downstream, first_tick=FirstTick.FROM_NOW, launch_for=LaunchFor.FOREIGN_COMMITS)
    ticker = Ticker(sensor, catalog, instance)
    table = make_table(catalog.client, NAME)
    ticker.tick()
    run = a_run(instance)
    record_by_run(instance, run.run_id, table, commit(table, tags=own(run)))
    assert keys_of(ticker.tick()) == []
    foreign = commit(table)
    assert keys_of(ticker.tick()) == [f"{table.table_id}:{foreign}"]


def test_a_run_that_the_sensor_launched_does_not_launch_another(catalog, instance):
    ticker = Ticker(sensor_of(job=downstream, first_tick=FirstTick.FROM_NOW), catalog, instance)
    table = make_table(catalog.client, NAME)
    ticker.tick()
    run = instance.create_run_for_job(
        downstream, status=dg.DagsterRunStatus.STARTED, tags={"dagster/sensor_name": "commits"}
    )
    record_by_run(instance, run.run_id, table, commit(table, tags=own(run)))
    assert keys_of(ticker.tick()) == []


def test_only_the_named_assets_launch_downstream(catalog, instance):
    other = AssetKey(["s", "other"])
    watched = {KEY: NAME, other: "main.s.other"}
    ticker = Ticker(sensor_of(assets=watched, job=downstream, launch_on=[other]), catalog, instance)
    make_table(catalog.client, NAME)
    assert keys_of(ticker.tick()) == []
    second = make_table(catalog.client, "main.s.other")
    assert keys_of(ticker.tick()) == [f"{second.table_id}:0"]
    with pytest.raises(InvalidArgumentError, match="nobody"):
        sensor_of(assets=watched, job=downstream, launch_on=[AssetKey("nobody")])


def test_a_crash_after_the_events_and_before_the_runs_still_requests_the_runs(catalog, instance):
    ticker = Ticker(sensor_of(job=downstream), catalog, instance)
    table = make_table(catalog.client, NAME)
    version = commit(table)
    died = ticker.evaluate()
    report(instance, died)
    again = ticker.tick()
    assert keys_of(again) == keys_of(died) == [f"{table.table_id}:{version}"]
    assert versions(instance) == [0, version]


def test_ten_thousand_new_commits_are_reported_in_batches_each_once(catalog, instance):
    table = make_table(catalog.client, NAME)
    for version in range(1, 10_001):
        summary = CommitSummary(
            txn_id=str(version), in_commit_timestamp=10**15 + version, operation="WRITE", data_change=version % 100 > 0
        )
        file_name = f"{version:020d}.{uuid.UUID(int=version)}.json"
        proposal = CommitProposal(
            version=version, file_name=file_name, file_size=1, file_modification_time=1, summary=summary
        )
        assert isinstance(catalog.client.catalog.commit(table.table_id, proposal), Ratified)
    ticker = Ticker(sensor_of(batch_size=1000), catalog, instance)
    reported = []
    for _ in range(11):
        result = ticker.evaluate()
        ticker.cursor = result.cursor
        reported += [event.metadata["cm_delta/commit_version"].value for event in result.asset_events]
        assert len(result.asset_events) <= 1000
    assert reported == list(range(10_001))
