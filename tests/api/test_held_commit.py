"""Held writes in the Python API, in SQL and on the command line, with rows written by Spark."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.catalog.holds import HoldState, WaitsFor
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.client.commits.context import Idempotency
from cm_delta_dagster.errors import CommitRejectedError, HoldClosedError, InvalidArgumentError
from cm_delta_dagster.protocol.schema.evolution import SchemaMode

ORDERS, TOTALS = "main.sales.orders", "main.sales.totals"


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark) as connection:
        frame = spark.createDataFrame([(1, "a"), (2, "b")], "id int, text string").coalesce(1)
        for name in (ORDERS, TOTALS):
            connection.create_table_as(name, frame)
        yield connection


def data_files(lake: Connection, name: str) -> int:
    root = Path(lake.table(name).location.removeprefix("file://"))
    return sum(1 for path in root.rglob("*.parquet") if "_delta_log" not in path.parts)


@pytest.mark.slow
@pytest.mark.requirements("WAP-1", "WAP-2", "WAP-6")
def test_held_writes_with_new_columns_are_read_in_every_form_and_ratified_as_one(
    lake: Connection, spark: SparkSession
) -> None:
    wider = spark.createDataFrame([(3, "c", 1.5)], "id int, text string, price double").coalesce(1)
    with lake.transaction(hold=timedelta(days=2)) as tx:
        tx.table(ORDERS).append(wider, schema_mode=SchemaMode.MERGE)
        tx.table(TOTALS).delete("id = 1")
    held = tx.held
    assert held.waits_for is WaitsFor.RATIFICATION and held.state is HoldState.PENDING
    assert sorted(held.tables) == [ORDERS, TOTALS] and held.base_version == {ORDERS: 0, TOTALS: 0}
    with pytest.raises(InvalidArgumentError, match="not been committed"):
        _ = tx.results
    assert (
        lake.table(ORDERS).snapshot().version == 0 and "price" not in lake.table(ORDERS).scan().to_arrow().column_names
    )
    assert [found.hold_id for found in lake.rules.held("main.sales")] == [held.hold_id]
    scan = lake.rules.hold(held.hold_id).scan(table=ORDERS, where="id >= 2")
    assert scan.to_arrow().sort_by("id").to_pylist() == [
        {"id": 2, "text": "b", "price": None},
        {"id": 3, "text": "c", "price": 1.5},
    ]
    assert scan.to_df().count() == scan.count() == scan.to_polars().height == 2
    rows = lake.sql(f"SELECT max(price) AS p, count(*) AS n FROM {ORDERS} VERSION AS OF '{held.hold_id}'").collect()
    assert [(row.p, row.n) for row in rows] == [(1.5, 3)]
    assert lake.sql(f"SELECT * FROM {ORDERS}").count() == 2
    with pytest.raises(InvalidArgumentError, match="only queries read"):
        lake.sql(f"RESTORE TABLE {ORDERS} TO VERSION AS OF '{held.hold_id}'")
    with pytest.raises(InvalidArgumentError, match="Name one of them"):
        held.scan()
    done = held.ratify(tags={"audited_by": "ana"})
    assert not done.repeated and held.ratify().repeated
    assert lake.table(ORDERS).scan().count() == 3 and lake.table(TOTALS).scan().count() == 1
    assert lake.rules.hold(held.hold_id).versions == {ORDERS: 1, TOTALS: 1}
    with pytest.raises(HoldClosedError, match="Do not run the write again"):
        held.discard("too late")


@pytest.mark.slow
@pytest.mark.requirements("WAP-1")
def test_the_changes_of_a_held_commit_are_read_before_it_is_ratified(lake: Connection, spark: SparkSession) -> None:
    lake.table(ORDERS).alter.set_properties({"delta.enableChangeDataFeed": "true"})
    with lake.transaction(hold=True) as tx:
        tx.table(ORDERS).update({"text": "'z'"}, "id = 1")
    lake.table(ORDERS).append(spark.createDataFrame([(3, "c")], "id int, text string"))
    changes = tx.held.changes(columns=["id", "text", "_change_type", "_commit_version"])
    expected = [
        {"id": 1, "text": "a", "_change_type": "update_preimage", "_commit_version": 3},
        {"id": 1, "text": "z", "_change_type": "update_postimage", "_commit_version": 3},
    ]
    order = [("text", "ascending")]
    assert changes.to_arrow().sort_by(order).to_pylist() == expected and changes.to_df().count() == 2
    tx.held.ratify()
    ratified = lake.table(ORDERS).changes(starting_version=3, columns=["id", "text", "_change_type", "_commit_version"])
    assert ratified.to_arrow().sort_by(order).to_pylist() == expected


@pytest.mark.slow
@pytest.mark.requirements("WAP-2")
def test_a_retried_write_finds_its_hold_and_leaves_no_second_files(lake: Connection, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(3, "c")], "id int, text string").coalesce(1)

    def hold() -> str:
        with lake.transaction(hold=True) as tx:
            tx.table(ORDERS).append(frame, idempotency=Idempotency(app_id="job", version=1))
        return tx.held.hold_id

    first, files = hold(), data_files(lake, ORDERS)
    assert hold() == first and data_files(lake, ORDERS) == files
    assert lake.rules.hold(first).discard("bad month").state is HoldState.DISCARDED
    with lake.transaction(hold=True) as empty:
        pass
    with pytest.raises(InvalidArgumentError, match="holds nothing"):
        _ = empty.held


@pytest.mark.slow
@pytest.mark.requirements("WAP-2")
def test_a_put_if_absent_table_is_refused_before_a_file_is_written(lake: Connection, spark: SparkSession) -> None:
    lake.settings.set_commit_mode(ORDERS, "put_if_absent")
    files = data_files(lake, ORDERS)
    with pytest.raises(CommitRejectedError, match="put-if-absent"), lake.transaction(hold=True) as tx:
        tx.table(ORDERS).append(spark.createDataFrame([(3, "c")], "id int, text string"))
    assert data_files(lake, ORDERS) == files and lake.rules.held() == ()
    with pytest.raises(InvalidArgumentError, match="366 days"), lake.transaction(hold=timedelta(days=400)) as long:
        long.table(TOTALS).delete("id = 1")
    assert lake.rules.held() == () and lake.table(TOTALS).scan().count() == 2


@pytest.mark.slow
@pytest.mark.requirements("WAP-2")
def test_holds_are_listed_ratified_and_discarded_on_the_command_line(
    lake: Connection, spark: SparkSession, tmp_path: Path
) -> None:
    ids = []
    for value in (3, 4):
        with lake.transaction(hold=True) as tx:
            tx.table(ORDERS).append(spark.createDataFrame([(value, "c")], "id int, text string"))
        ids.append(tx.held.hold_id)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["--catalog", f"sqlite:///{tmp_path}/catalog.db", "rules", *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    assert [found["hold_id"] for found in json.loads(run("held", "main.sales", "--json"))] == ids
    hint = "cm-delta rules ratify ID"
    assert hint in run("held") and hint not in run("held", "--json")
    assert f"version 1 of {ORDERS}" in run("ratify", ids[0])
    assert json.loads(run("ratify", ids[0], "--json"))["repeated"] is True
    assert "is discarded" in run("discard", ids[1], "--reason", "bad month")
    assert hint not in run("held", "--all")
    assert "No commit is held." in run("held") and "bad month" in run("held", "--all")
    assert lake.table(ORDERS).scan().count() == 3
