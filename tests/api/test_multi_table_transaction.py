"""Transactions over several tables in the Python API, with rows written by Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Column, Identity
from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.client.commits.context import Idempotency
from cm_delta_dagster.errors import (
    CommitConflictError,
    CommitRejectedError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.writing.write_result import WriteOutcome

ORDERS, TOTALS, LOG = "main.sales.orders", "main.sales.totals", "main.sales.log"


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark) as connection:
        frame = spark.createDataFrame([(1, "a"), (2, "b")], "id int, text string").coalesce(1)
        for name in (ORDERS, TOTALS, LOG):
            connection.create_table_as(name, frame)
        yield connection


def ids(lake: Connection, name: str) -> list[int]:
    return sorted(lake.table(name).to_arrow()["id"].to_pylist())


def data_files(lake: Connection, name: str) -> int:
    root = Path(lake.table(name).location.removeprefix("file://"))
    return sum(1 for path in root.rglob("*.parquet") if "_delta_log" not in path.parts)


@pytest.mark.slow
def test_every_verb_takes_part_in_a_transaction(lake: Connection, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(2, "B"), (3, "c")], "id int, text string").coalesce(1)
    with lake.transaction() as tx:
        staged = tx.table(ORDERS).upsert(frame, on="id")
        assert (staged.outcome, staged.version) == (WriteOutcome.STAGED, 0)
        tx.table(TOTALS).delete("id = 1")
        tx.table(LOG).append(frame, idempotency=Idempotency(app_id="job", version=1))
        assert (ids(lake, ORDERS), ids(lake, TOTALS), ids(lake, LOG)) == ([1, 2], [1, 2], [1, 2])
        with pytest.raises(InvalidArgumentError, match="not been committed"):
            _ = tx.results
    assert (ids(lake, ORDERS), ids(lake, TOTALS), ids(lake, LOG)) == ([1, 2, 3], [2], [1, 2, 2, 3])
    assert set(tx.results) == {ORDERS, TOTALS, LOG}
    assert {result.outcome for result in tx.results.values()} == {WriteOutcome.COMMITTED}
    assert tx.results[LOG].version == 1 and tx.results[LOG].num_output_rows == 2
    assert tx.results[ORDERS].snapshot.version == tx.results[ORDERS].data_version == 1
    entries = lake.client.feed.feed(after=3, limit=9)
    assert {entry.summary.tags["delta.multiTableTransaction.transactionId"] for entry in entries} == {tx.transaction_id}
    with lake.transaction() as again:
        again.table(ORDERS).overwrite(frame)
        again.table(TOTALS).update({"text": "'z'"})
        builder = again.table(LOG).merge(frame, "s.id = t.id AND t.text = 'a'", source_alias="s", target_alias="t")
        assert builder.when_not_matched_insert_all().execute().outcome is WriteOutcome.STAGED
    assert [result.version for result in again.results.values()] == [2, 2, 2]
    found = lake.snapshots([LOG, ORDERS])
    assert list(found) == [LOG, ORDERS] and found[LOG].version == 2
    with lake.transaction() as done:
        repeated = done.table(LOG).append(frame, idempotency=Idempotency(app_id="job", version=1))
        assert (repeated.outcome, repeated.version) == (WriteOutcome.ALREADY_COMMITTED, 1)
    assert done.results == {}


def test_an_exception_in_the_block_leaves_nothing(lake: Connection, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(3, "c")], "id int, text string").coalesce(1)
    with pytest.raises(SchemaMismatchError), lake.transaction() as tx:
        tx.table(ORDERS).append(frame)
        tx.table(TOTALS).append(frame.withColumnRenamed("id", "other"))
    assert [lake.table(name).version() for name in (ORDERS, TOTALS)] == [0, 0]
    assert [data_files(lake, name) for name in (ORDERS, TOTALS)] == [1, 1]
    with pytest.raises(InvalidArgumentError, match="has ended"):
        tx.table(ORDERS)


def test_what_a_transaction_cannot_do_is_refused(lake: Connection, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(3, "c")], "id int, text string").coalesce(1)
    with lake.transaction() as tx:
        orders = tx.table(ORDERS)
        orders.append(frame)
        with pytest.raises(InvalidArgumentError, match="one for each table"):
            orders.append(frame)
        with pytest.raises(InvalidArgumentError, match="one for each table"):
            tx.table(ORDERS).delete("id = 1")
        with pytest.raises(TableNotFoundError):
            tx.table("main.sales.absent")
        lake.settings.set_commit_mode(LOG, "put_if_absent")
        with pytest.raises(CommitRejectedError, match="put-if-absent"):
            tx.table(LOG)
    assert ids(lake, ORDERS) == [1, 2, 3]
    with pytest.raises(InvalidArgumentError, match="has ended"):
        orders.append(frame)


@pytest.mark.requirements("OCC-9")
def test_a_conflict_leaves_no_commit_and_no_file(lake: Connection, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(3, "c")], "id int, text string").coalesce(1)
    with pytest.raises(CommitConflictError, match="Nothing was committed"), lake.transaction() as tx:
        tx.table(ORDERS).overwrite(frame)
        tx.table(TOTALS).append(frame)
        lake.table(ORDERS).delete("id = 1")
    assert (ids(lake, ORDERS), ids(lake, TOTALS)) == ([2], [1, 2])
    assert data_files(lake, TOTALS) == 1


def test_appends_that_number_rows_of_one_identity_column_conflict(lake: Connection, spark: SparkSession) -> None:
    """Both commits set the high-water mark, and a transaction does not number its rows again."""
    tickets = lake.create_table("main.sales.tickets", [Column("id", "bigint", identity=Identity()), Column("n", "int")])
    frame = spark.createDataFrame([(7,)], "n int").coalesce(1)
    with pytest.raises(CommitConflictError, match="Retry on the latest version"), lake.transaction() as tx:
        tx.table("main.sales.tickets").append(frame)
        tickets.append(frame)
    with lake.transaction() as tx:
        tx.table("main.sales.tickets").delete("n = 8")
        tx.table(ORDERS).delete("id = 1")
        tickets.append(frame)
    assert tickets.to_arrow().sort_by("id").to_pylist() == [{"id": 1, "n": 7}, {"id": 2, "n": 7}]
    assert ids(lake, ORDERS) == [2]


def test_a_merge_that_is_begun_and_not_executed_fails_the_transaction(lake: Connection, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(3, "c")], "id int, text string").coalesce(1)
    files = data_files(lake, LOG)
    refusal = r"merge into main\.sales\.orders was begun.*Nothing was committed"
    with pytest.raises(InvalidArgumentError, match=refusal), lake.transaction() as tx:
        tx.table(LOG).append(frame)
        builder = tx.table(ORDERS).merge(frame, "s.id = t.id", source_alias="s", target_alias="t")
        builder.when_not_matched_insert_all()
    assert (ids(lake, ORDERS), ids(lake, LOG)) == ([1, 2], [1, 2])
    assert data_files(lake, LOG) == files
    with lake.transaction() as tx:
        with pytest.raises(AttributeError, match=r"TransactionTable has no attribute 'to_df'.*lake\.table"):
            getattr(tx.table(ORDERS), "to_df")()  # noqa: B009
        begun = tx.table(ORDERS).merge(frame, "s.id = t.id", source_alias="s", target_alias="t")
        begun.when_not_matched_insert_all().execute()
    assert ids(lake, ORDERS) == [1, 2, 3]
