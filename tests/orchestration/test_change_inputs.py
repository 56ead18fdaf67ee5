"""Inputs that hold the changes since the last materialization: none is missed, and none is read twice."""

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CommitConflictError, InvalidArgumentError
from tests.orchestration.assets import asset, refused
from tests.orchestration.test_runs import FAILURES, job_of, losing, no_failures, re_executed

__all__ = ["no_failures"]


def upstream(world, *rows, **metadata):
    """An append to the table ``up``, which has a change data feed."""
    made = asset(
        "up",
        lambda _: world.frame(list(rows), "id int, v string"),
        metadata={"mode": "append", "table_properties": {"delta.enableChangeDataFeed": "true"}, **metadata},
    )
    return world.materialize(made)


def consumer(world, *, read=None, name="down", mode="append", **arguments):
    seen = read if read is not None else []

    @dg.asset(
        name=name,
        ins={"changed": dg.AssetIn("up", metadata={"changes": True, **arguments.pop("reads", {})})},
        metadata={"mode": mode},
        **arguments,
    )
    def made(changed: DataFrame) -> DataFrame:
        frame = changed.select("id", "_change_type", "_commit_version")
        seen.append(sorted(tuple(row) for row in frame.collect()))
        return frame

    return made


UP = dg.AssetSpec("up")


def run(world, made, **arguments):
    return world.materialize(made, UP, **arguments)


def positions(world, name="down"):
    found = []
    for event in world.events(name):
        (position,) = event.metadata["cm_delta/changes_read"].value.values()
        found.append(position["version"])
    return found


def test_each_run_gets_what_the_last_one_did_not(world):
    read: list = []
    upstream(world, (1, "a"), (2, "b"))
    upstream(world, (3, "c"))
    down = consumer(world, read=read)
    run(world, down)
    run(world, down)
    upstream(world, (1, "x"), mode="merge", merge_keys="id")
    upstream(world, (4, "d"))
    run(world, down)
    assert read == [
        [(1, "insert", 1), (2, "insert", 1), (3, "insert", 1)],
        [],
        [(1, "update_postimage", 2), (1, "update_preimage", 2), (4, "insert", 3)],
    ]
    assert positions(world) == [1, 1, 3]
    assert len(world.rows("main.default.down")) == 6


@pytest.mark.slow
def test_a_first_run_can_start_later(world):
    upstream(world, (1, "a"))
    upstream(world, (2, "b"))
    latest: list = []
    run(world, consumer(world, read=latest, name="latest", reads={"changes_from": "latest"}))
    later: list = []
    run(world, consumer(world, read=later, name="later", reads={"changes_from": 1}))
    by_time: list = []
    timed = {"changes_from": "2000-01-01T00:00:00Z", "filter": "_change_type = 'insert' AND id > 1"}
    run(world, consumer(world, read=by_time, name="timed", reads=timed))
    assert (latest, later, by_time) == ([[]], [[(2, "insert", 1)]], [[(2, "insert", 1)]])


def test_a_crash_between_commit_and_event_repeats_and_loses_nothing(world):
    resources = world.resources
    upstream(world, (1, "a"))
    FAILURES.append(lambda: None)
    world.resources = losing(world)
    assert not run(world, consumer(world), raises=False).success
    assert world.events("down") == []
    world.resources = resources
    upstream(world, (2, "b"))
    run(world, consumer(world))
    assert sorted(world.rows("main.default.down")) == [(1, "insert", 0), (2, "insert", 1)]
    assert positions(world) == [1]


@pytest.mark.parametrize("resume", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_run_that_continues_after_its_commit_leaves_later_changes_to_the_next(world, resume):
    """The commit of the failed run counts; what the continued run has read in addition is read again."""
    upstream(world, (1, "a"))
    FAILURES.append(lambda: upstream(world, (2, "b")))
    job = job_of(world, consumer(world), losing(world), UP)
    failed = job.execute_in_process(instance=world.instance, raise_on_error=False)
    assert not failed.success
    assert re_executed(world, job, failed.run_id, resume=resume).success
    run(world, consumer(world))
    assert sorted(world.rows("main.default.down")) == [(1, "insert", 0), (2, "insert", 1)]
    assert positions(world)[-1] == 1


@pytest.mark.slow
def test_a_step_that_is_retried_writes_its_changes_once(world):
    upstream(world, (1, "a"))
    FAILURES.append(lambda: None)
    world.resources = losing(world)
    assert run(world, consumer(world, retry_policy=dg.RetryPolicy(max_retries=1))).success
    assert world.rows("main.default.down") == [(1, "insert", 0)]
    assert positions(world) == [0]


def test_the_second_of_two_runs_that_read_the_same_changes_fails(world):
    upstream(world, (1, "a"))
    inner = consumer(world)
    started = []

    @dg.asset(name="down", ins={"changed": dg.AssetIn("up", metadata={"changes": True})}, metadata={"mode": "append"})
    def outer(changed: DataFrame) -> DataFrame:
        started.append(run(world, inner).success)
        return changed.select("id", "_change_type", "_commit_version")

    assert isinstance(refused(world, outer, UP), CommitConflictError)
    assert started == [True] and world.rows("main.default.down") == [(1, "insert", 0)]


def test_an_asset_that_stores_nothing_keeps_its_position_in_its_events(world):
    upstream(world, (1, "a"))
    seen = []

    @dg.asset(ins={"changed": dg.AssetIn("up", metadata={"changes": True})})
    def side(changed: DataFrame) -> None:
        seen.append(changed.count())

    run(world, side)
    upstream(world, (2, "b"), (3, "c"))
    run(world, side)
    assert (seen, positions(world, "side")) == ([1, 2], [0, 1])


@pytest.mark.slow
def test_a_table_that_was_dropped_is_filled_from_the_beginning(world):
    upstream(world, (1, "a"))
    run(world, consumer(world))
    world.client.registry.drop_table(TableIdentifier.parse("main.default.down"))
    run(world, consumer(world))
    assert world.rows("main.default.down") == [(1, "insert", 0)]


def test_inputs_without_a_single_last_materialization_are_refused(world):
    upstream(world, (1, "a"))
    partitioned = consumer(world, partitions_def=dg.StaticPartitionsDefinition(["a"]))
    assert isinstance(refused(world, partitioned, UP, partition_key="a"), InvalidArgumentError)

    @dg.multi_asset(
        ins={"changed": dg.AssetIn("up", metadata={"changes": True})}, outs={"a": dg.AssetOut(), "b": dg.AssetOut()}
    )
    def both(changed: DataFrame):
        raise AssertionError

    assert isinstance(refused(world, both, UP), InvalidArgumentError)


@pytest.mark.slow
def test_a_table_without_a_change_feed_is_refused_after_its_first_rows(world):
    upstream(world, (1, "a"), table_properties={})
    run(world, consumer(world))
    upstream(world, (2, "b"), table_properties={})
    assert isinstance(refused(world, consumer(world), UP), InvalidArgumentError)


def test_changes_for_which_the_asset_returned_none_are_read(world):
    """No materialization is stored then; the position is in an observation."""
    upstream(world, (1, "a"))
    seen = []

    @dg.asset(ins={"changed": dg.AssetIn("up", metadata={"changes": True})}, metadata={"mode": "append"})
    def down(changed: DataFrame) -> DataFrame | None:
        seen.append(sorted(row.id for row in changed.collect()))
        return changed.select("id") if seen[-1] and seen[-1][0] == 2 else None

    run(world, down)
    run(world, down)
    upstream(world, (2, "b"))
    run(world, down)
    run(world, down)
    assert seen == [[1], [], [2], []]
    assert world.rows("main.default.down") == [(2,)]
