"""How many files merges and updates write."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cm_delta_dagster.api.table.merge_builder import MergeBuilder
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.row_change import RowChange
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.spark.session.session import temporary_settings
from tests.support.builders import TableBuilder

COLUMNS = "id long, p int, v long"
TASKS = 6
"""Tasks of each shuffle; the session of the tests has two."""


@pytest.fixture(autouse=True)
def _more_tasks(spark: SparkSession) -> Iterator[None]:
    with temporary_settings(spark, {"spark.sql.shuffle.partitions": str(TASKS)}):
        yield


def shuffled(spark: SparkSession, first: int, end: int) -> DataFrame:
    """Rows that come from ``TASKS`` tasks after a window function, unless adaptive execution joins them."""
    rows = spark.range(first, end, 1, 2).selectExpr("id", "cast(id % 2 as int) AS p", "id % 7 AS g")
    return rows.select("id", "p", F.row_number().over(Window.partitionBy("g").orderBy("id")).cast("long").alias("v"))


def persisted(spark: SparkSession, first: int, end: int) -> DataFrame:
    """As :func:`shuffled`, cached by the user as Spark does it: with all its tasks."""
    rows = shuffled(spark, first, end).persist()
    assert rows.rdd.getNumPartitions() == TASKS
    return rows


def upsert(table: TableBuilder, rows: DataFrame) -> None:
    merge(table.table, frame=rows, keys=["id"])


def insert(table: TableBuilder, rows: DataFrame) -> None:
    merge(table.table, frame=rows, keys=["id"], mode=MergeMode.INSERT_ONLY)


def clauses(table: TableBuilder, rows: DataFrame) -> None:
    change = RowChange(source=rows, on="t.id = s.id", source_alias="s", target_alias="t")
    merged = MergeBuilder(table.table, change=change).when_matched_update({"v": "t.v + s.v"})
    merged.when_not_matched_insert_all().execute()


def replace_keys(table: TableBuilder, rows: DataFrame) -> None:
    overwrite(table.table, frame=rows, keys=["id"])


def update_all(table: TableBuilder, rows: DataFrame) -> None:
    update(table.table, spark=rows.sparkSession, assignments={"v": "v + 1"}, where="v % 3 = 1")


Act = Callable[[TableBuilder, DataFrame], None]
PROPERTIES = {
    "vectors": {"delta.enableDeletionVectors": "true"},
    "copies": {"delta.enableDeletionVectors": "false"},
    "feed": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
}


def _new_files(table: TableBuilder, before: set[str]) -> Counter[str]:
    """The number of files with new rows in each partition."""
    files = table.table.snapshot().files
    values = zip(files["path"].to_pylist(), files["partitionValues"].to_pylist(), strict=True)
    return Counter(str(partition) for path, partition in values if path not in before)


@pytest.mark.parametrize(
    ("act", "properties", "source", "partitions"),
    [
        (upsert, "vectors", shuffled, ("p",)),
        (upsert, "copies", persisted, ("p",)),
        (upsert, "vectors", persisted, ()),
        (insert, "copies", persisted, ("p",)),
        (clauses, "feed", persisted, ("p",)),
        (clauses, "copies", shuffled, ()),
        (replace_keys, "vectors", persisted, ("p",)),
        (update_all, "copies", shuffled, ()),
    ],
)
def test_a_change_of_few_rows_writes_one_file_for_each_partition(
    client: DeltaClient,
    spark: SparkSession,
    act: Act,
    properties: str,
    source: Callable[[SparkSession, int, int], DataFrame],
    partitions: tuple[str, ...],
) -> None:
    """However many tasks the source has, and whether Spark or the user has cached it."""
    table = TableBuilder(client, spark, COLUMNS, partition_by=partitions, properties=PROPERTIES[properties])
    append(table.table, frame=shuffled(spark, 0, 1500))
    rows = source(spark, 1480, 1540)
    paths = set(table.table.snapshot().files["path"].to_pylist())
    try:
        act(table, rows)
    finally:
        rows.unpersist()
    parts = max(1, 2 * len(partitions))
    found = _new_files(table, paths)
    # With a change feed, the inserted rows are written apart from the updated ones.
    assert (len(found), max(found.values())) == (parts, 2 if properties == "feed" else 1), found
    version = table.table.snapshot().version
    (commit,) = table.table.commit_actions(version, version)
    recorded = Counter(str(change.partition_values) for change in commit.cdc)
    assert set(recorded.values()) <= {1}, recorded
    assert table.table_frame().where("id < 1480").count() == 1480
