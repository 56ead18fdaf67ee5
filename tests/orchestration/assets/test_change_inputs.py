"""Inputs that hold the changes since the last materialization: none is missed, and none is read twice."""

import re
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.errors import CommitConflictError, InvalidArgumentError
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alterations import (
    AddColumns,
    Alteration,
    ChangeColumn,
    DropColumns,
    NewColumn,
    RenameColumn,
)
from cm_delta_dagster.operations.tables.change_positions import set_change_position
from cm_delta_dagster.orchestration import report_changes_read
from cm_delta_dagster.orchestration.metadata.metadata import stopped_at_schema
from cm_delta_dagster.orchestration.runs.versions_read import versions_read
from cm_delta_dagster.protocol.changes.change_data_feed import CHANGE_COLUMNS
from cm_delta_dagster.protocol.schema.type_text import parse_column_type
from tests.orchestration.conftest import World
from tests.orchestration.runs.test_runs import FAILURES, job_of, losing, no_failures, re_executed
from tests.support.dagster_assets import asset, refused

__all__ = ["no_failures"]


def upstream(
    world: World, *rows: tuple[Any, ...], columns: str = "id int, v string", **metadata: Any
) -> dg.ExecuteInProcessResult:
    """An append to the table ``up``, which has a change data feed."""
    made = asset(
        "up",
        lambda _: world.frame(list(rows), columns),
        metadata={"mode": "append", "table_properties": {"delta.enableChangeDataFeed": "true"}, **metadata},
    )
    return world.materialize(made)


def consumer(
    world: World, *, read: list[Any] | None = None, name: str = "down", mode: str = "append", **arguments: Any
) -> dg.AssetsDefinition:
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


def run(world: World, made: dg.AssetsDefinition, **arguments: Any) -> dg.ExecuteInProcessResult:
    return world.materialize(made, UP, **arguments)


def positions(world: World, name: str = "down") -> list[int]:
    found = []
    for event in world.events(name):
        (position,) = event.metadata["cm_delta/changes_read"].value.values()
        found.append(position["version"])
    return found


def test_each_run_gets_what_the_last_one_did_not(world: World) -> None:
    read: list = []
    upstream(world, (1, "a"), (2, "b"))
    upstream(world, (3, "c"))
    down = consumer(world, read=read)
    run(world, down)
    run(world, down)
    upstream(world, (1, "x"), mode="merge", on="id")
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
def test_a_first_run_can_start_later(world: World) -> None:
    upstream(world, (1, "a"))
    upstream(world, (2, "b"))
    latest: list = []
    run(world, consumer(world, read=latest, name="latest", reads={"changes_from": "latest"}))
    later: list = []
    run(world, consumer(world, read=later, name="later", reads={"changes_from": 1}))
    by_time: list = []
    timed = {"changes_from": "2000-01-01T00:00:00Z", "where": "_change_type = 'insert' AND id > 1"}
    run(world, consumer(world, read=by_time, name="timed", reads=timed))
    assert (latest, later, by_time) == ([[]], [[(2, "insert", 1)]], [[(2, "insert", 1)]])


def test_a_crash_between_commit_and_event_repeats_and_loses_nothing(world: World) -> None:
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
def test_a_run_that_continues_after_its_commit_leaves_later_changes_to_the_next(world: World, resume: bool) -> None:
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
def test_a_step_that_is_retried_writes_its_changes_once(world: World) -> None:
    upstream(world, (1, "a"))
    FAILURES.append(lambda: None)
    world.resources = losing(world)
    assert run(world, consumer(world, retry_policy=dg.RetryPolicy(max_retries=1))).success
    assert world.rows("main.default.down") == [(1, "insert", 0)]
    assert positions(world) == [0]


def test_the_second_of_two_runs_that_read_the_same_changes_fails(world: World) -> None:
    upstream(world, (1, "a"))
    inner = consumer(world)
    started = []

    @dg.asset(name="down", ins={"changed": dg.AssetIn("up", metadata={"changes": True})}, metadata={"mode": "append"})
    def outer(changed: DataFrame) -> DataFrame:
        started.append(run(world, inner).success)
        return changed.select("id", "_change_type", "_commit_version")

    assert isinstance(refused(world, outer, UP), CommitConflictError)
    assert started == [True] and world.rows("main.default.down") == [(1, "insert", 0)]


def test_an_asset_that_stores_nothing_keeps_its_position_in_its_events(world: World) -> None:
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
def test_a_table_that_was_dropped_is_filled_from_the_beginning(world: World) -> None:
    upstream(world, (1, "a"))
    run(world, consumer(world))
    world.client.registry.drop_table(TableIdentifier.parse("main.default.down"))
    run(world, consumer(world))
    assert world.rows("main.default.down") == [(1, "insert", 0)]


def test_inputs_without_a_single_last_materialization_are_refused(world: World) -> None:
    upstream(world, (1, "a"))
    partitioned = consumer(world, partitions_def=dg.StaticPartitionsDefinition(["a"]))
    assert isinstance(refused(world, partitioned, UP, partition_key="a"), InvalidArgumentError)

    @dg.multi_asset(
        ins={"changed": dg.AssetIn("up", metadata={"changes": True})}, outs={"a": dg.AssetOut(), "b": dg.AssetOut()}
    )
    def both(changed: DataFrame) -> tuple[Any, Any]:
        raise AssertionError

    assert isinstance(refused(world, both, UP), InvalidArgumentError)


@pytest.mark.slow
def test_a_table_without_a_change_feed_is_refused_after_its_first_rows(world: World) -> None:
    upstream(world, (1, "a"), table_properties={})
    run(world, consumer(world))
    upstream(world, (2, "b"), table_properties={})
    assert isinstance(refused(world, consumer(world), UP), InvalidArgumentError)


def test_changes_for_which_the_asset_returned_none_are_read(world: World) -> None:
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


# --- changes of the schema --------------------------------------------------------------------------------------------


def alter(world: World, *alterations: Alteration) -> None:
    for alteration in alterations:
        alter_table(world.client.table(TableIdentifier.parse("main.default.up")), alteration)


def taking_all(read: list[Any], name: str = "down") -> dg.AssetsDefinition:
    """An asset that keeps what it reads, without storing it."""

    @dg.asset(name=name, ins={"changed": dg.AssetIn("up", metadata={"changes": True})})
    def made(changed: pa.Table) -> None:
        kept = changed.drop_columns(["_change_type", "_commit_version", "_commit_timestamp"])
        read.append((kept.schema.names, [tuple(row.values()) for row in kept.sort_by("id").to_pylist()]))

    return made


MAPPED = {
    "delta.enableChangeDataFeed": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableTypeWidening": "true",
}


@pytest.mark.requirements("COLMAP-15", "CDF-6")
def test_unread_changes_before_a_rename_and_a_wider_type_are_read(world: World) -> None:
    read: list = []
    upstream(world, (1, "a"), table_properties=MAPPED)
    run(world, taking_all(read))
    upstream(world, (2, "b"), table_properties=MAPPED)
    alter(world, RenameColumn("v", "text"), ChangeColumn(column="id", type=parse_column_type("bigint").type))
    run(world, taking_all(read))
    run(world, taking_all(read))
    assert read == [(["id", "v"], [(1, "a")]), (["id", "text"], [(2, "b")]), (["id", "text"], [])]
    assert positions(world) == [0, 3, 3]


@pytest.mark.requirements("CDF-6")
def test_changes_that_the_new_schema_cannot_represent_are_read_first(world: World) -> None:
    """The asset says so, and is due again."""
    read: list = []
    down = taking_all(read)
    upstream(world, (1, "a"), table_properties=MAPPED)
    run(world, down)
    upstream(world, (2, "b"), table_properties=MAPPED)
    alter(world, DropColumns(["v"]), AddColumns([NewColumn("v", "int")]))
    run(world, down)
    entry = next(iter(world.events("down")[-1].metadata["cm_delta/changes_read"].value.values()))
    assert (entry["version"], entry["stopped_before"]) == (1, 2)
    assert "another column of that name was added" in entry["reason"]
    assert stopped_at_schema(world.events("down")[-1].metadata)
    assert versions_read(world.events("down")[-1].metadata)["up"].version == 1
    run(world, down)
    assert not stopped_at_schema(world.events("down")[-1].metadata)
    assert read == [(["id", "v"], [(1, "a")]), (["id", "v"], [(2, "b")]), (["id", "v"], [])]
    assert positions(world) == [0, 1, 3]


def swap_schema(world: World) -> None:
    """Replace all rows, and the types and names of the columns."""
    made = asset(
        "up",
        lambda _: world.frame([("k", 1.5)], "id string, text double"),
        metadata={"mode": "overwrite", "schema_mode": "overwrite"},
    )
    world.materialize(made)


def stored_changes(read: list[Any], **reads: Any) -> dg.AssetsDefinition:
    """An asset in a table; ``read`` gets the columns and the ids that it reads."""

    @dg.asset(
        name="down", ins={"changed": dg.AssetIn("up", metadata={"changes": True, **reads})}, metadata={"mode": "append"}
    )
    def made(changed: pa.Table) -> pa.Table:
        read.append((changed.schema.names[:-3], changed["id"].to_pylist()))
        return changed.select(["_commit_version"])

    return made


def set_as_shown(world: World, text: str) -> None:
    """Run the command ``cm-delta position set`` that a message names."""
    command = re.search(r"'cm-delta position (set [^']*)'", text)
    assert command is not None, text
    result = CliRunner().invoke(main, ["--catalog", world.catalog.url, "position", *command[1].split()])
    assert result.exit_code == 0, result.output


@pytest.mark.requirements("CDF-6")
def test_the_message_at_rows_that_no_schema_represents_names_a_way_that_works(world: World) -> None:
    """For an asset in a table, for one that stores nothing, and for one that begins there."""
    read: list = []
    upstream(world, (1, "a"))
    for made in (stored_changes(read), taking_all(read, name="side")):
        run(world, made)
    swap_schema(world)
    for _ in range(2):
        text = str(refused(world, stored_changes(read), UP))
    assert "Every run of down stops here" in text and "metadata 'version': 1 without 'changes'" in text
    assert "'cm-delta position skip' after the latest version" in text
    set_as_shown(world, text)
    shown = str(refused(world, taking_all(read, name="side"), UP))
    call = re.search(r"report_changes_read\(instance, (.*)\) of", shown)
    assert call is not None, shown
    eval(f"report_changes_read(world.instance, {call[1]})")
    begins = stored_changes(read, changes_from=1)
    upstream(world, ("l", 2.5), columns="id string, text double")
    read.clear()
    run(world, stored_changes(read))
    run(world, taking_all(read, name="side"))
    assert read == [(["id", "text"], ["l"]), (["id", "text"], [("l", 2.5)])]
    world.client.registry.drop_table(TableIdentifier.parse("main.default.down"))
    assert "the metadata 'changes_from': 2 of the input" in str(refused(world, begins, UP))


@pytest.mark.requirements("CDF-6")
def test_new_columns_that_unread_changes_lack_are_explained(world: World) -> None:
    """The changes before the new schema can be read with their own columns, or skipped."""
    read: list = []
    upstream(world, (1, "a"))
    run(world, stored_changes(read))
    upstream(world, (2, "b"))
    swap_schema(world)
    upstream(world, ("l", 2.5), columns="id string, text double")
    text = str(refused(world, stored_changes(read, columns=["id", "text", *CHANGE_COLUMNS]), UP))
    assert (
        "has no column 'text'" in text
        and "up to version 1 have the columns that the table had before version 2" in text
    )
    assert "text > 1" in str(refused(world, stored_changes(read, where="text > 1"), UP))
    set_as_shown(world, text)
    shown = str(refused(world, stored_changes(read, columns=["id", "text", *CHANGE_COLUMNS]), UP))
    assert "Every run of down stops here" in shown
    set_as_shown(world, shown)
    run(world, stored_changes(read, columns=["id", "text", *CHANGE_COLUMNS]))
    assert read[1:] == [(["id", "text"], ["l"])]


# --- positions that are set -------------------------------------------------------------------------------------------


@pytest.mark.requirements("TXN-4")
def test_a_position_that_is_set_counts_and_not_what_earlier_events_say(world: World) -> None:
    read: list = []
    down = consumer(world, read=read)
    for number in range(3):
        upstream(world, (number, "a"))
    run(world, down)
    stored = world.client.table(TableIdentifier.parse("main.default.down"))
    set_change_position(world.client, stored, upstream="main.default.up", version=1)
    run(world, down)
    run(world, down)
    upstream(world, (3, "a"))
    set_change_position(world.client, stored, upstream="main.default.up")
    run(world, down)
    assert [[row[0] for row in rows] for rows in read] == [[0, 1, 2], [2], [], []]
    assert positions(world) == [2, 2, 2, 3]


def test_the_position_of_an_asset_that_stores_nothing_is_set_by_an_event(world: World) -> None:
    read: list = []
    for number in range(3):
        upstream(world, (number, "a"))
    run(world, taking_all(read))
    up = world.client.table(TableIdentifier.parse("main.default.up"))
    report_changes_read(world.instance, dg.AssetKey("down"), table_id=up.table_id, table="main.default.up", version=0)
    run(world, taking_all(read))
    run(world, taking_all(read))
    assert [[row[0] for row in rows] for _, rows in read] == [[0, 1, 2], [1, 2], []]
