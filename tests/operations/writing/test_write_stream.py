"""A table as the sink of a query: each batch is written once, also by a query that is stopped, restarted and replayed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster import Connection, DeltaTable, Idempotency, SchemaMode, connect
from cm_delta_dagster.errors import IllegalCommitError, InvalidArgumentError, SchemaMismatchError

NOW: dict[str, str | bool] = {"availableNow": True}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"), spark=spark) as lake:
        yield lake


@pytest.fixture
def source(tmp_path: Path) -> "Source":
    return Source(tmp_path / "source")


class Source:
    """A directory of CSV files with the column ``id``, one batch for each file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def put(self, name: str, *ids: int) -> None:
        (self.directory / f"{name}.csv").write_text("".join(f"{number}\n" for number in ids))

    def stream(self, spark: SparkSession, columns: str = "id long") -> DataFrame:
        return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).csv(str(self.directory))


def ids(table: DeltaTable) -> list[int]:
    return sorted(table.to_arrow(["id"])["id"].to_pylist())


def run(table: DeltaTable, frame: DataFrame, checkpoint: Path, **arguments: Any) -> None:
    query = table.write_stream(frame, checkpoint=str(checkpoint), trigger=NOW, **arguments)
    try:
        query.awaitTermination(300)
    finally:
        query.stop()


def new_table(lake: Connection, **arguments: Any) -> DeltaTable:
    return lake.create_table("main.test.t", pa.schema({"id": pa.int64()}), **arguments)


@pytest.mark.requirements("STREAM-6")
def test_each_batch_is_one_commit_and_a_restarted_query_continues(
    lake: Connection, source: Source, tmp_path: Path
) -> None:
    table = new_table(lake)
    source.put("a", 1, 2)
    source.put("b", 3)
    run(table, source.stream(lake.spark), tmp_path / "checkpoint")
    assert (ids(table), table.version()) == ([1, 2, 3], 2)
    source.put("c", 4)
    run(table, source.stream(lake.spark), tmp_path / "checkpoint")
    assert (ids(table), table.version()) == ([1, 2, 3, 4], 3)
    info = table.history(1)[0].commit_info
    (query,) = table.snapshot().transactions
    assert info is not None
    assert (info.operation, info.operation_parameters) == (
        "STREAMING UPDATE",
        {"outputMode": "Append", "queryId": query, "epochId": "2"},
    )
    assert {**info.operation_metrics, "numOutputBytes": ""} == {
        "numRemovedFiles": "0", "numAddedFiles": "1", "numOutputRows": "1", "numOutputBytes": "",
    }  # fmt: skip


@pytest.mark.requirements("TXN-4", "STREAM-6")
def test_a_batch_that_is_repeated_is_written_once(lake: Connection, source: Source, tmp_path: Path) -> None:
    """The progress of the last batch is lost, as if the query had been killed right after the commit."""
    table, checkpoint = new_table(lake), tmp_path / "checkpoint"
    source.put("a", 1, 2)
    source.put("b", 3)
    run(table, source.stream(lake.spark), checkpoint)
    for file in (checkpoint / "commits").iterdir():
        if file.name in ("1", ".1.crc"):
            file.unlink()
    run(table, source.stream(lake.spark), checkpoint)
    assert (ids(table), table.version()) == ([1, 2, 3], 2)


def test_a_batch_that_failed_is_written_after_a_restart(lake: Connection, source: Source, tmp_path: Path) -> None:
    table, calls = new_table(lake), []

    def fail_once(rows: DataFrame, once: Idempotency) -> None:
        calls.append(once.version)
        table.append(rows, idempotency=once)
        if len(calls) == 1:
            raise ConnectionResetError("after the commit")

    source.put("a", 1, 2)
    with pytest.raises(StreamingQueryException, match="after the commit"):
        run(table, source.stream(lake.spark), tmp_path / "checkpoint", write_batch=fail_once)
    run(table, source.stream(lake.spark), tmp_path / "checkpoint", write_batch=fail_once)
    assert (calls, ids(table), table.version()) == ([0, 0], [1, 2], 1)


def test_complete_replaces_and_update_merges_the_result_of_an_aggregation(
    lake: Connection, source: Source, tmp_path: Path
) -> None:
    columns = pa.schema({"id": pa.int64(), "n": pa.int64()})
    whole, changed = lake.create_table("main.test.whole", columns), lake.create_table("main.test.changed", columns)
    source.put("a", 1, 2)
    source.put("b", 2, 3)

    def counts() -> DataFrame:
        return source.stream(lake.spark).groupBy("id").agg(F.count(F.lit(1)).alias("n"))

    def merge(rows: DataFrame, once: Idempotency) -> object:
        return changed.upsert(rows, on=["id"], idempotency=once)

    run(whole, counts(), tmp_path / "1", output_mode="complete")
    run(changed, counts(), tmp_path / "2", output_mode="update", write_batch=merge)
    expected = [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 1}]
    assert whole.to_arrow().sort_by("id").to_pylist() == expected == changed.to_arrow().sort_by("id").to_pylist()


@pytest.mark.requirements("STREAM-6")
def test_a_repeated_batch_of_an_aggregation_does_not_stop_the_query(
    lake: Connection, source: Source, tmp_path: Path
) -> None:
    """Spark requires that the rows of a batch are computed, also of one that is not written again."""
    columns = pa.schema({"id": pa.int64(), "n": pa.int64()})
    whole, checkpoint = lake.create_table("main.test.whole", columns), tmp_path / "checkpoint"

    def count() -> None:
        counts = source.stream(lake.spark).groupBy("id").agg(F.count(F.lit(1)).alias("n"))
        run(whole, counts, checkpoint, output_mode="complete")

    source.put("a", 1, 2)
    count()
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    count()
    assert whole.version() == 1
    source.put("b", 2, 3)
    count()
    expected = [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 1}]
    assert whole.to_arrow().sort_by("id").to_pylist() == expected


def test_a_batch_adds_columns_only_if_asked(lake: Connection, source: Source, tmp_path: Path) -> None:
    table = new_table(lake)
    source.put("a", 1)
    wider = source.stream(lake.spark).withColumn("text", F.lit("x"))
    with pytest.raises(SchemaMismatchError, match="'text' does not exist"):
        run(table, wider, tmp_path / "checkpoint")
    run(table, wider, tmp_path / "checkpoint", schema_mode=SchemaMode.MERGE)
    assert table.to_arrow().to_pylist() == [{"id": 1, "text": "x"}]


def test_wrong_arguments_are_found_before_the_query_starts(lake: Connection, source: Source, tmp_path: Path) -> None:
    table, stream = new_table(lake, properties={"delta.appendOnly": "true"}), source.stream(lake.spark)

    def start(frame: DataFrame = stream, checkpoint: str = str(tmp_path / "c"), **arguments: Any) -> None:
        table.write_stream(frame, checkpoint=checkpoint, **arguments)

    with pytest.raises(InvalidArgumentError, match="no stream"):
        start(lake.spark.range(1))
    with pytest.raises(InvalidArgumentError, match="needs a checkpoint"):
        start(checkpoint="")
    with pytest.raises(InvalidArgumentError, match="The trigger is"):
        start(trigger={"now": True})
    with pytest.raises(InvalidArgumentError, match="output_mode is 'replace'"):
        start(output_mode="replace")
    with pytest.raises(InvalidArgumentError, match="needs a function"):
        start(output_mode="update")
    with pytest.raises(IllegalCommitError, match="append-only"):
        start(output_mode="complete")
    assert not lake.spark.streams.active
