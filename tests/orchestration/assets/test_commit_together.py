"""Outputs of one step that are committed together: all or none, with Spark and a Dagster instance."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import dagster as dg
import pytest
from dagster import AutomationCondition, DataVersion
from pyspark.sql import DataFrame

from cm_delta_dagster.errors import CommitConflictError, InvalidArgumentError
from cm_delta_dagster.operations.writing.write import overwrite
from tests.orchestration.conftest import World
from tests.support.dagster_assets import raised

pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

TOGETHER = {"commit_together": True, "mode": "append"}
TABLES = ("main.default.orders", "main.default.totals")


def both(
    world: World,
    *,
    before_last: Callable[[dg.AssetExecutionContext], object] | None = None,
    metadata: Mapping[str, Any] = TOGETHER,
) -> dg.AssetsDefinition:
    """A function with the outputs orders and totals; ``before_last`` runs between them."""

    @dg.multi_asset(
        outs={"orders": dg.AssetOut(metadata=metadata), "totals": dg.AssetOut(metadata=metadata)},
    )
    def load(context: dg.AssetExecutionContext) -> Iterator[dg.Output[Any]]:
        yield dg.Output(world.frame([(1, 10.0), (2, 5.0)], "id int, amount double"), "orders")
        if before_last is not None:
            before_last(context)
        yield dg.Output(world.frame([(15.0,)], "amount double"), "totals")

    return load


def versions(world: World) -> list[int]:
    return [world.version(name) for name in TABLES]


def data_files(world: World) -> int:
    locations = [world.client.table(name).location.removeprefix("file://") for name in TABLES]
    return sum(len(list(Path(location).glob("*.parquet"))) for location in locations)


def test_the_outputs_of_a_step_are_committed_in_one_transaction(world: World) -> None:
    world.materialize(both(world))
    assert world.rows(TABLES[0]) == [(1, 10.0), (2, 5.0)]
    assert world.rows(TABLES[1]) == [(15.0,)]
    entries = [entry for entry in world.client.feed.feed(after=0, limit=100) if entry.version == 1]
    assert [str(entry.identifier) for entry in entries] == sorted(
        TABLES, key=lambda name: world.client.table(name).table_id
    )
    assert entries[1].position == entries[0].position + 1
    assert len({entry.summary.tags["delta.multiTableTransaction.transactionId"] for entry in entries}) == 1


def test_no_reader_sees_the_first_output_before_the_last(world: World) -> None:
    seen = []
    world.materialize(both(world, before_last=lambda _: seen.append(world.rows(TABLES[0]))))
    world.materialize(both(world, before_last=lambda _: seen.append(world.rows(TABLES[0]))))
    assert seen == [[], [(1, 10.0), (2, 5.0)]]
    assert len(world.rows(TABLES[0])) == 4


def test_each_output_has_one_materialization_with_its_own_commit(world: World) -> None:
    events_between = []
    world.materialize(both(world, before_last=lambda _: events_between.extend(world.events("orders"))))
    assert events_between == []
    for key, table, rows in (("orders", TABLES[0], 2), ("totals", TABLES[1], 1)):
        (event,) = world.events(key)
        metadata = {name: value.value for name, value in event.metadata.items()}
        assert metadata["cm_delta/commit_version"] == 1 == world.version(table)
        assert metadata["cm_delta/outcome"] == "committed"
        assert metadata["dagster/row_count"] == rows == metadata["cm_delta/output_rows"]
        table_id = world.client.table(table).table_id
        assert event.tags["dagster/data_version"] == f"{table_id}@1"
        assert event.tags["dagster/code_version"]


def test_a_step_that_fails_between_the_outputs_commits_nothing(world: World) -> None:
    world.materialize(both(world))

    def fail(_: object) -> NoReturn:
        raise RuntimeError("no more input")

    files = data_files(world)
    result = world.materialize(both(world, before_last=fail), raises=False)
    assert not result.success
    assert versions(world) == [1, 1]
    assert len(world.events("orders")) == len(world.events("totals")) == 1
    assert data_files(world) == files


def test_a_write_that_fails_discards_the_outputs_before_it(world: World) -> None:
    world.materialize(both(world))
    files = data_files(world)

    @dg.multi_asset(outs={"orders": dg.AssetOut(metadata=TOGETHER), "totals": dg.AssetOut(metadata=TOGETHER)})
    def load() -> Iterator[dg.Output[Any]]:
        yield dg.Output(world.frame([(3, 1.0)], "id int, amount double"), "orders")
        yield dg.Output(world.frame([("x",)], "another string"), "totals")

    assert not world.materialize(load, raises=False).success
    assert versions(world) == [1, 1]
    assert data_files(world) == files


def test_a_conflict_of_one_output_commits_none(world: World) -> None:
    replacing = {"commit_together": True, "mode": "overwrite"}
    world.materialize(both(world, metadata=replacing))

    def interfere(_: object) -> None:
        overwrite(world.client.table(TABLES[0]), frame=world.frame([(9, 9.0)], "id int, amount double"))

    with pytest.raises(Exception) as caught:
        world.materialize(both(world, metadata=replacing, before_last=interfere))
    assert isinstance(raised(caught.value), CommitConflictError)
    assert versions(world) == [2, 1]
    assert len(world.events("orders")) == 1


def test_a_retried_step_commits_once(world: World) -> None:
    attempts = []

    def fail_once(context: dg.AssetExecutionContext) -> None:
        attempts.append(context.retry_number)
        if len(attempts) == 1:
            raise dg.RetryRequested()

    result = world.materialize(both(world, before_last=fail_once))
    assert result.success
    assert attempts == [0, 1]
    assert versions(world) == [1, 1]
    assert len(world.rows(TABLES[0])) == 2


def test_a_step_that_fails_after_the_commit_does_not_commit_again(world: World) -> None:
    attempts = []

    @dg.multi_asset(
        outs={"orders": dg.AssetOut(metadata=TOGETHER), "totals": dg.AssetOut(metadata=TOGETHER)},
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    def load() -> Iterator[dg.Output[Any]]:
        yield dg.Output(world.frame([(1, 10.0)], "id int, amount double"), "orders")
        yield dg.Output(world.frame([(15.0,)], "amount double"), "totals")
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("after the last output")

    assert world.materialize(load).success
    assert versions(world) == [1, 1]
    last = world.events("orders")[-1]
    assert last.metadata["cm_delta/outcome"].value == "already_committed"


def test_none_as_an_output_lets_the_others_be_committed(world: World) -> None:
    @dg.multi_asset(outs={"orders": dg.AssetOut(metadata=TOGETHER), "totals": dg.AssetOut(metadata=TOGETHER)})
    def load() -> tuple[object | None, object | None]:
        return world.frame([(1, 10.0)], "id int, amount double"), None

    world.materialize(load)
    assert world.rows(TABLES[0]) == [(1, 10.0)]
    assert len(world.events("orders")) == 1
    assert world.events("totals") == []


def test_partitions_of_several_outputs_are_committed_together(world: World) -> None:
    days = dg.StaticPartitionsDefinition(["2024-05-01", "2024-05-02"])
    metadata = {"commit_together": True, "partition_expr": "day"}

    @dg.multi_asset(
        outs={"orders": dg.AssetOut(metadata=metadata), "totals": dg.AssetOut(metadata=metadata)}, partitions_def=days
    )
    def load(context: dg.AssetExecutionContext) -> Iterator[dg.Output[Any]]:
        day = context.partition_key
        yield dg.Output(world.frame([(1, day)], "id int, day string"), "orders")
        yield dg.Output(world.frame([(2, day)], "id int, day string"), "totals")

    for day in ("2024-05-01", "2024-05-02"):
        world.materialize(load, partition_key=day)
    assert world.rows(TABLES[0]) == [(1, "2024-05-01"), (1, "2024-05-02")]
    assert [event.partition for event in world.events("orders")] == ["2024-05-01", "2024-05-02"]
    assert [event.metadata["dagster/partition_row_count"].value for event in world.events("orders")] == [1, 1]


def test_a_changed_input_makes_outputs_committed_together_stale(world: World) -> None:
    @dg.asset
    def source() -> Any:
        return world.frame([(1,)], "id int")

    @dg.multi_asset(
        outs={
            "orders": dg.AssetOut(metadata=TOGETHER, automation_condition=AutomationCondition.eager()),
            "totals": dg.AssetOut(metadata=TOGETHER, automation_condition=AutomationCondition.eager()),
        }
    )
    def load(source: DataFrame) -> Iterator[dg.Output[Any]]:
        yield dg.Output(source, "orders")
        yield dg.Output(source, "totals")

    world.materialize(source, load)
    for key in ("orders", "totals"):
        (event,) = world.events(key)
        assert DataVersion(event.tags["dagster/input_data_version/source"]).value.endswith("@0")
        assert event.tags["dagster/input_event_pointer/source"].isdigit()
    defs = dg.Definitions([source, load], resources=world.resources)
    first = dg.evaluate_automation_conditions(defs, world.instance)
    assert first.total_requested == 0
    world.materialize(source)
    then = dg.evaluate_automation_conditions(defs, world.instance, cursor=first.cursor)
    assert then.total_requested == 2


@pytest.mark.parametrize(
    ("outs", "message"),
    [
        ({"orders": {}, "totals": None}, "only one output with that key"),
        ({"orders": {"is_required": False}, "totals": {}}, "is optional or dynamic"),
        (
            {"orders": {}, "totals": {"dagster_type": dg.Nothing}},
            "the output totals of load is annotated to return no rows",
        ),
        ({"orders": {"io_manager_key": "another"}, "totals": {}}, "have the IO managers another, io_manager"),
    ],
)
def test_outputs_that_cannot_be_committed_together_are_refused(
    world: World, outs: dict[str, Any], message: str
) -> None:
    made = {
        name: dg.AssetOut(metadata={} if given is None else TOGETHER, **(given or {})) for name, given in outs.items()
    }

    @dg.multi_asset(outs=made)
    def load() -> Iterator[dg.Output[Any]]:
        yield dg.Output(world.frame([(1, 10.0)], "id int, amount double"), "orders")
        yield dg.Output(world.frame([(15.0,)], "amount double"), "totals")

    world.resources["another"] = world.resources["io_manager"]
    with pytest.raises(Exception) as caught:
        world.materialize(load)
    error = raised(caught.value)
    assert isinstance(error, InvalidArgumentError)
    assert message in str(error)


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_an_output_without_rows_does_not_lose_the_rows_of_the_others_silently(world: World, last: bool) -> None:
    """Dagster hands no result without rows to the IO manager: as the last output it is noticed when the run ends."""
    without_rows = dg.MaterializeResult(asset_key="totals")

    @dg.multi_asset(outs={name: dg.AssetOut(metadata=TOGETHER) for name in ("orders", "totals")})
    def load() -> Iterator[dg.MaterializeResult]:
        if not last:
            yield without_rows
        yield dg.MaterializeResult(asset_key="orders", value=world.frame([(1, 10.0)], "id int, amount double"))
        if last:
            yield without_rows

    result = world.materialize(load, raises=False)
    assert result.success is last
    message = "totals was returned as a result without rows"
    errors = [
        event.engine_event_data.error
        for event in result.all_events
        if event.is_engine_event and event.engine_event_data.error is not None
    ]
    failures = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    (error,) = errors if last else failures
    assert error is not None and message in error.to_string()
    assert world.events("orders") == [] and (not last or world.rows(TABLES[0]) == [])


def test_two_outputs_with_one_table_are_refused(world: World) -> None:
    metadata = {**TOGETHER, "table": "main.default.orders"}
    with pytest.raises(Exception) as caught:
        world.materialize(both(world, metadata=metadata))
    assert "already has a write to main.default.orders" in str(raised(caught.value))
