"""The commit sensor and partitions: an event, and a run, for each partition that a commit changed."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData

from cm_delta_dagster.catalog.commit_feed import FeedEntry
from cm_delta_dagster.catalog.ratification import CommitSummary
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.changed_partitions import CHANGED_PARTITIONS_TAG, PARTITION_FIGURES_TAG
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.tables.restore import restore
from cm_delta_dagster.orchestration import CatalogResource, LaunchFor
from cm_delta_dagster.orchestration.sensor.feed_cursor import WatchedCommit
from tests.orchestration.log_tables import commit, make_table, report
from tests.orchestration.sensor_bench import KEY, NAME, Ticker, a_run, finish, own, record_by_run, sensor_of

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c"])


def watched(
    definition: dg.PartitionsDefinition[Any] = LETTERS, expr: str | dict[str, str] = "p", **arguments: Any
) -> dg.AssetSpec:
    return dg.AssetSpec(KEY, partitions_def=definition, metadata={"table": NAME, "partition_expr": expr}, **arguments)


@pytest.fixture
def ticker(catalog: CatalogResource, instance: dg.DagsterInstance) -> Ticker:
    return Ticker(sensor_of(assets=[watched()]), catalog, instance)


@pytest.fixture
def table(catalog: CatalogResource) -> Table:
    return make_table(catalog.client, NAME, by={"p": "string"})


def p(*values: str | None) -> list[dict[str, str | None]]:
    return [{"p": value} for value in values]


def events_of(instance: dg.DagsterInstance) -> list[tuple[Any, str | None]]:
    records = instance.fetch_materializations(KEY, limit=1000, ascending=True).records
    events = [record.asset_materialization for record in records]
    return [(event.metadata["cm_delta/commit_version"].value, event.partition) for event in events]


def test_a_commit_becomes_one_event_for_each_partition_that_it_changed(
    ticker: Ticker, table: Table, instance: dg.DagsterInstance
) -> None:
    commit(table, partitions=p("c", "a"))
    result = ticker.tick()
    assert events_of(instance) == [(1, "a"), (1, "c")]
    assert instance.get_materialized_partitions(KEY) == {"a", "c"}
    changes = [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]
    assert {event.tags["dagster/data_version"] for event in changes} == {f"{table.table_id}@1"}


def test_a_value_without_a_key_is_in_an_event_without_a_partition(
    ticker: Ticker, table: Table, instance: dg.DagsterInstance
) -> None:
    commit(table, partitions=p("a", "z", None))
    event = ticker.tick().asset_events[-1]
    assert events_of(instance) == [(1, "a"), (1, None)]
    assert '{"p": "z"}' in event.description and '{"p": null}' in event.description


def test_a_commit_without_partition_values_becomes_one_event(
    ticker: Ticker, table: Table, instance: dg.DagsterInstance
) -> None:
    commit(table, partitions=p(*(str(number) for number in range(1001))))
    (_, event) = ticker.tick().asset_events
    assert event.partition is None and "too many partitions" in event.description


def test_an_invalid_tag_is_ignored(ticker: Ticker, table: Table, instance: dg.DagsterInstance) -> None:
    commit(table, tags={CHANGED_PARTITIONS_TAG: "no json"}, partitions=p("a"))
    ticker.tick()
    assert events_of(instance) == [(1, "a")]


def test_a_crash_between_the_events_of_one_commit_repeats_none(
    ticker: Ticker, table: Table, instance: dg.DagsterInstance
) -> None:
    commit(table, partitions=p("a", "b", "c"))
    died = ticker.evaluate()
    for event in died.asset_events[:3]:  # The creation and two of three partitions.
        instance.report_runless_asset_event(event)
    assert [event.partition for event in ticker.tick().asset_events] == ["c"]
    assert events_of(instance) == [(1, "a"), (1, "b"), (1, "c")]


def test_dynamic_and_time_partitions_in_two_dimensions(catalog: CatalogResource, instance: dg.DagsterInstance) -> None:
    tenants = dg.DynamicPartitionsDefinition(name="tenants")
    both = dg.MultiPartitionsDefinition({"day": dg.DailyPartitionsDefinition("2026-01-01"), "who": tenants})
    instance.add_dynamic_partitions("tenants", ["acme"])
    sensor = sensor_of(assets=[watched(both, {"day": "d", "who": "tenant"})])
    table = make_table(catalog.client, NAME, by={"d": "date", "tenant": "string"})
    days = ["2026-01-01", "2026-01-02"]
    commit(table, partitions=[{"d": day, "tenant": "acme"} for day in days] + [{"d": days[0], "tenant": "new"}])
    ticker = Ticker(sensor, catalog, instance)
    ticker.tick()
    assert events_of(instance) == [(1, f"{day}|acme") for day in days] + [(1, None)]
    instance.add_dynamic_partitions("tenants", ["new"])
    commit(table, partitions=[{"d": days[0], "tenant": "new"}])
    ticker.tick()
    assert events_of(instance)[3:] == [(2, f"{days[0]}|new")]


def test_partitions_that_a_run_lost_are_reported(ticker: Ticker, table: Table, instance: dg.DagsterInstance) -> None:
    run = a_run(instance)
    commit(table, tags={**own(run), "dagster/partition_key": "a,b"}, partitions=p("a", "b"))
    ticker.tick()
    assert events_of(instance) == []
    finish(instance, run)
    ticker.tick()
    assert events_of(instance) == [(1, "a"), (1, "b")]


def test_the_partition_of_a_lost_run_counts_though_it_ended_empty(
    catalog: CatalogResource, table: Table, instance: dg.DagsterInstance
) -> None:
    """The commit removed nothing and added nothing in that partition, but the partition was made."""
    run = a_run(instance, tags={"dagster/partition": "b"})
    tags = {**own(run), "dagster/partition_key": "b", CHANGED_PARTITIONS_TAG: "[]"}
    commit(table, tags=tags, partitions=p("b"))
    ticker = Ticker(sensor_of(assets=[watched()]), catalog, instance)
    finish(instance, run)
    ticker.tick()
    assert events_of(instance) == [(1, "b")]


@dg.asset(key=["s", "down"], partitions_def=LETTERS, deps=[KEY])
def down() -> None: ...


def launching(
    catalog: CatalogResource, instance: dg.DagsterInstance, asset: dg.AssetsDefinition = down, **arguments: Any
) -> Ticker:
    job = dg.define_asset_job("downstream", selection=[asset])
    sensor = sensor_of(assets=[watched()], job=job, **arguments)
    defs = dg.Definitions(assets=[asset, watched()], jobs=[job], sensors=[sensor], resources={"catalog": catalog})
    return Ticker(sensor, catalog, instance, defs)


def requests_of(result: SensorExecutionData) -> list[tuple[str | None, str | None]]:
    return [(request.run_key, request.partition_key) for request in result.run_requests or ()]


def test_a_job_with_the_same_partitions_is_launched_for_each(
    catalog: CatalogResource, table: Table, instance: dg.DagsterInstance
) -> None:
    ticker = launching(catalog, instance)
    commit(table, partitions=p("a", "b"))
    commit(table, partitions=p("b"))
    first = ticker.evaluate()
    report(instance, first)
    assert requests_of(first) == [(f"{table.table_id}:1:a", "a"), (f"{table.table_id}:2:b", "b")]
    assert requests_of(ticker.tick()) == requests_of(first), "the daemon died before it requested the runs"
    assert requests_of(ticker.tick()) == []


def test_a_target_with_the_same_partitions_is_launched_for_each(
    catalog: CatalogResource, table: Table, instance: dg.DagsterInstance
) -> None:
    sensor = sensor_of(assets=[watched()], target=[down])
    ticker = Ticker(sensor, catalog, instance, dg.Definitions(assets=[down], sensors=[sensor]))
    commit(table, partitions=p("c"))
    assert requests_of(ticker.tick()) == [(f"{table.table_id}:1:c", "c")]


def test_own_commits_launch_the_partitions_that_their_runs_recorded(
    catalog: CatalogResource, table: Table, instance: dg.DagsterInstance
) -> None:
    ticker = launching(catalog, instance)
    run = a_run(instance)
    version = commit(table, tags={**own(run), "dagster/partition_key": "a,b"}, partitions=p("a"))
    for partition in "ab":  # b was made, and is empty.
        record_by_run(instance, run.run_id, table, version, partition=partition)
    assert requests_of(ticker.tick()) == [(f"{table.table_id}:1:{each}", each) for each in "ab"]


def test_a_change_of_an_unknown_partition_launches_nothing_and_warns(
    catalog: CatalogResource, table: Table, instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    ticker = launching(catalog, instance)
    commit(table, partitions=p("z"))
    assert requests_of(ticker.tick()) == []
    warned = capsys.readouterr().err
    assert "launches no run" in warned and '{"p": "z"}' in warned


def test_a_job_without_partitions_is_launched_once(
    catalog: CatalogResource, table: Table, instance: dg.DagsterInstance
) -> None:
    @dg.asset(key=["s", "whole"], deps=[KEY])
    def whole() -> None: ...

    ticker = launching(catalog, instance, whole)
    commit(table, partitions=p("a", "b"))
    assert requests_of(ticker.tick()) == [(f"{table.table_id}:1", None)]


def test_a_run_that_is_still_recording_its_partitions_is_waited_for(
    catalog: CatalogResource, table: Table, instance: dg.DagsterInstance
) -> None:
    ticker = launching(catalog, instance)
    run = a_run(instance)
    version = commit(table, tags={**own(run), "dagster/partition_key": "a,b"}, partitions=p("a", "b"))
    record_by_run(instance, run.run_id, table, version, partition="a")
    assert requests_of(ticker.tick()) == []
    record_by_run(instance, run.run_id, table, version, partition="b")
    assert requests_of(ticker.tick()) == [(f"{table.table_id}:1:{each}", each) for each in "ab"]


def test_a_run_that_died_while_recording_its_partitions_is_completed(
    catalog: CatalogResource, table: Table, instance: dg.DagsterInstance
) -> None:
    ticker = launching(catalog, instance)
    run = a_run(instance)
    many = ",".join(["a", "b", "c"])
    version = commit(table, tags={**own(run), "dagster/partition_key": many}, partitions=p("a", "b"))
    for partition in "ac":  # c was made, and is empty.
        record_by_run(instance, run.run_id, table, version, partition=partition)
    finish(instance, run)
    first = ticker.evaluate()
    report(instance, first)
    assert sorted(events_of(instance)) == [(1, "a"), (1, "b"), (1, "c")]
    wanted = [(f"{table.table_id}:1:{each}", each) for each in "abc"]
    assert requests_of(first) == wanted
    assert requests_of(ticker.tick()) == wanted, "the daemon died before it requested the runs"
    assert len(events_of(instance)) == 3


def test_a_failed_run_that_recorded_all_it_changed_is_not_reported_again(
    catalog: CatalogResource, table: Table, instance: dg.DagsterInstance
) -> None:
    ticker = launching(catalog, instance, launch_for=LaunchFor.FOREIGN_COMMITS)
    run = a_run(instance)
    version = commit(table, tags={**own(run), "dagster/partition_key": "a,b"}, partitions=p("a"))
    record_by_run(instance, run.run_id, table, version, partition="a")
    finish(instance, run)
    assert requests_of(ticker.tick()) == []
    assert events_of(instance) == [(1, "a")]


def test_a_removed_partition_is_not_launched_and_does_not_stop_the_sensor(
    catalog: CatalogResource, table: Table, instance: dg.DagsterInstance, capsys: pytest.CaptureFixture[str]
) -> None:
    tenants = dg.DynamicPartitionsDefinition(name="tenants")
    instance.add_dynamic_partitions("tenants", ["acme", "zoo"])

    @dg.asset(key=["s", "by_tenant"], partitions_def=tenants, deps=[KEY])
    def by_tenant() -> None: ...

    job = dg.define_asset_job("downstream", selection=[by_tenant])
    sensor = sensor_of(assets=[watched(tenants)], job=job)
    defs = dg.Definitions(assets=[by_tenant], jobs=[job], sensors=[sensor], resources={"catalog": catalog})
    run = a_run(instance)
    version = commit(table, tags={**own(run), "dagster/partition_key": "acme,zoo"}, partitions=p("acme", "zoo"))
    for partition in ("acme", "zoo"):
        record_by_run(instance, run.run_id, table, version, partition=partition)
    instance.delete_dynamic_partition("tenants", "acme")
    with dg.partition_loading_context(dynamic_partitions_store=instance):  # As in a code server.
        result = Ticker(sensor, catalog, instance, defs).tick()
    assert requests_of(result) == [(f"{table.table_id}:1:zoo", "zoo")]
    assert "launches no run for acme" in capsys.readouterr().err


FIGURES = ("output_rows", "added_files", "added_bytes", "removed_files", "removed_bytes")


def figures_of(instance: dg.DagsterInstance, version: int) -> dict[str | None, list[Any]]:
    """What the event of each partition says of the commit: rows, files and bytes added, files and bytes removed."""
    found = {}
    for record in instance.fetch_materializations(KEY, limit=1000).records:
        entries = record.asset_materialization.metadata
        if entries["cm_delta/commit_version"].value == version:
            values = [entries.get(f"cm_delta/{name}") for name in FIGURES]
            found[record.partition_key] = [None if value is None else value.value for value in values]
    return found


def test_the_event_of_a_partition_has_the_rows_and_files_of_its_partition(
    ticker: Ticker, table: Table, instance: dg.DagsterInstance
) -> None:
    commit(table, partitions=p("a", "b", "b"))
    commit(table, partitions=p("b", "c"), replace=True, size=25)
    ticker.tick()
    assert figures_of(instance, 1) == {"a": [1, 1, 10, 0, 0], "b": [2, 2, 20, 0, 0]}
    assert figures_of(instance, 2) == {"a": [0, 0, 0, 1, 10], "b": [1, 1, 25, 2, 20], "c": [1, 1, 25, 0, 0]}


def test_the_values_of_a_time_window_are_counted_together(
    catalog: CatalogResource, instance: dg.DagsterInstance
) -> None:
    table = make_table(catalog.client, NAME, by={"day": "date"})
    months = dg.MonthlyPartitionsDefinition("2026-01-01", end_date="2026-04-01")
    ticker = Ticker(sensor_of(assets=[watched(months, "day")]), catalog, instance)
    commit(table, partitions=[{"day": day} for day in ("2026-01-02", "2026-01-30", "2026-02-01")])
    ticker.tick()
    assert figures_of(instance, 1) == {"2026-01-01": [2, 2, 20, 0, 0], "2026-02-01": [1, 1, 10, 0, 0]}


@pytest.mark.parametrize("text", ["no json", "[[1]]", '[["1", 1, 1, 0, 0]]', "7", '{"a": 1}', "[[1, 2, 3, 4, 5, 6]]"])
def test_invalid_figures_are_left_out(text: str) -> None:
    read = WatchedCommit.of(
        entry_with({CHANGED_PARTITIONS_TAG: '[{"p": "a"}, {"p": "b"}]', PARTITION_FIGURES_TAG: text})
    )
    assert read.figures_of([0]) is None


def entry_with(tags: Mapping[str, str]) -> FeedEntry:
    summary = CommitSummary(txn_id="t", in_commit_timestamp=1, operation="WRITE", data_change=True, tags=tags)
    identifier = TableIdentifier.parse("main.s.t")
    return FeedEntry(
        position=1, table_id="i", identifier=identifier, version=1, data_version=1, ratified_ms=1, summary=summary
    )


def test_the_figures_of_a_commit_that_waits_for_its_run_are_kept_in_the_cursor(
    ticker: Ticker, table: Table, instance: dg.DagsterInstance
) -> None:
    run = a_run(instance)
    commit(table, tags={**own(run)}, partitions=p("a", "b"))
    ticker.tick()
    assert figures_of(instance, 1) == {}
    finish(instance, run)
    ticker.tick()
    assert figures_of(instance, 1) == {"a": [1, 1, 10, 0, 0], "b": [1, 1, 10, 0, 0]}


def test_a_restore_is_reported_for_the_partitions_whose_files_it_removes_and_adds(
    ticker: Ticker, table: Table, instance: dg.DagsterInstance
) -> None:
    commit(table, partitions=p("a", "b"))
    commit(table, partitions=p("c"))
    commit(table, partitions=p("a"))
    ticker.tick()
    restore(table, version=1)
    ticker.tick()
    assert events_of(instance)[4:] == [(4, "a"), (4, "c")]
