"""DELETE and UPDATE of few small files, which find and read their rows without a Spark job."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, ObjectNotFoundError
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.engines import small_changes
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import append
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteEngine
from cm_delta_dagster.storage.local_store import local_path
from tests.support.builders import TableBuilder

NumJobs = Callable[[Callable[[], object]], int]


@pytest.fixture
def num_jobs(spark: SparkSession) -> NumJobs:
    """The number of Spark jobs that a call runs."""

    def count(call: Callable[[], object]) -> int:
        context = spark.sparkContext
        group = f"small-{uuid.uuid4().hex}"
        context.setJobGroup(group, "")
        try:
            call()
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
        return len(context.statusTracker().getJobIdsForGroup(group))

    return count


@pytest.mark.requirements("DV-21")
def test_a_small_delete_runs_no_job_and_a_small_update_one(
    client: DeltaClient, spark: SparkSession, num_jobs: NumJobs
) -> None:
    """Of small files only the new rows are written by Spark."""
    builder = TableBuilder(client, spark, "id long, v string")
    builder.append(*[(number, "a") for number in range(100)])
    table = builder.table
    assert num_jobs(lambda: delete(table, spark=spark, where="id = 7")) == 0
    assert num_jobs(lambda: update(table, spark=spark, assignments={"v": "upper(v)"}, where="id IN (8, 9)")) == 1
    assert num_jobs(lambda: delete(table, spark=spark, where="id = 8 AND v = 'A'")) == 0
    expected = [(number, "A" if number == 9 else "a") for number in range(100) if number not in (7, 8)]
    assert builder.rows() == expected
    # Only Spark can evaluate the condition.
    assert num_jobs(lambda: delete(table, spark=spark, where="sqrt(id) = 9")) == 1


def test_rows_that_are_written_together_are_in_one_file(client: DeltaClient, spark: SparkSession) -> None:
    builder = TableBuilder(client, spark, "id long, p string", partition_by=("p",))
    builder.append(*[(number, "ab"[number % 2]) for number in range(100)])
    result = update(builder.table, spark=spark, assignments={"id": "-id"}, where="id < 20")
    assert (result.num_added_files, result.metrics["numUpdatedRows"]) == (2, "20")
    assert builder.rows() == sorted((-n if n < 20 else n, "ab"[n % 2]) for n in range(100))


def test_many_rows_are_read_by_spark(client: DeltaClient, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that this process reads are a part of the plan."""
    builder = TableBuilder(client, spark, "id long, v long")
    builder.append(*[(number, 0) for number in range(50)])
    monkeypatch.setattr(small_changes, "MOST_ROWS_READ", 3)
    reads: list[object] = []
    real = small_changes.scan_batches
    monkeypatch.setattr(small_changes, "scan_batches", lambda **given: (reads.append(given), real(**given))[1])
    update(builder.table, spark=spark, assignments={"v": "1"}, where="id < 10", engine=WriteEngine.SPARK)
    assert not reads
    update(builder.table, spark=spark, assignments={"v": "2"}, where="id < 3", engine=WriteEngine.SPARK)
    assert len(reads) == 1
    assert builder.rows() == [(n, 2 if n < 3 else 1 if n < 10 else 0) for n in range(50)]


def test_columns_that_spark_does_not_take_from_arrow_are_read_by_spark(
    client: DeltaClient, spark: SparkSession
) -> None:
    builder = TableBuilder(client, spark, "id long, v variant", properties={"delta.feature.variantType": "supported"})
    source = spark.sql("SELECT id, parse_json('{\"a\": ' || id || '}') AS v FROM range(5)")
    append(builder.table, frame=source)
    update(builder.table, spark=spark, assignments={"id": "id + 10"}, where="id = 3")
    delete(builder.table, spark=spark, where="id = 4")
    rows = builder.table_frame().selectExpr("id", "to_json(v)").collect()
    assert sorted(map(tuple, rows)) == [(0, '{"a":0}'), (1, '{"a":1}'), (2, '{"a":2}'), (13, '{"a":3}')]


def test_a_column_with_the_name_of_row_ids_is_named(client: DeltaClient, spark: SparkSession) -> None:
    builder = TableBuilder(client, spark, "id long, _row_id long", properties={"delta.enableRowTracking": "true"})
    builder.append((1, 10), (2, 20))
    with pytest.raises(InvalidArgumentError, match="has a column named '_row_id' of its own"):
        update(builder.table, spark=spark, assignments={"id": "3"}, where="id = 1")
    assert builder.rows() == [(1, 10), (2, 20)]


def test_a_missing_or_damaged_file_is_named_and_nothing_is_committed(client: DeltaClient, spark: SparkSession) -> None:
    builder = TableBuilder(client, spark, "id long")
    builder.append((1,), (2,))
    snapshot = builder.table.snapshot()
    name = snapshot.files["path"][0].as_py()
    path = Path(local_path(f"{snapshot.location}/{name}"))
    stored = path.read_bytes()
    path.write_bytes(stored[:-9] + b"x" * 9)
    with pytest.raises(CorruptLogError, match=path.name):
        delete(builder.table, spark=spark, where="id = 1")
    path.unlink()
    with pytest.raises(ObjectNotFoundError, match=path.name):
        update(builder.table, spark=spark, assignments={"id": "3"}, where="id = 1")
    assert builder.table.snapshot().version == snapshot.version


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Connection:
    home = tmp_path_factory.mktemp("small_changes")
    return connect(f"sqlite:///{home}/catalog.db", warehouse=home.as_uri(), spark=spark)


def test_chars_are_compared_as_the_session_compares_them(spark: SparkSession, lake: Connection) -> None:
    """The legacy setting makes them plain strings, which differ by the blanks at the end."""
    lake.sql("CREATE TABLE main.small.chars (id BIGINT, h CHAR(4))")
    table = lake.table("main.small.chars")
    table.append(spark.sql("SELECT id, 'a' AS h FROM range(4)").coalesce(1))
    spark.conf.set("spark.sql.legacy.charVarcharAsString", "true")
    try:
        table.update({"id": "10"}, "h = 'a' AND id = 0")
        table.update({"id": "11"}, "h = 'a   ' AND id = 1")
        table.delete("h = 'a' AND id = 2")
    finally:
        spark.conf.unset("spark.sql.legacy.charVarcharAsString")
    assert sorted(row["id"] for row in table.to_df().collect()) == [0, 2, 3, 11]
    table.delete("h = 'a' AND id = 2")
    assert sorted(row["id"] for row in table.to_df().collect()) == [0, 3, 11]
