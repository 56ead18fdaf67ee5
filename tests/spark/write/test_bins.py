"""Rows of bins come together: each bin whole in one task."""

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.spark.read.file_values import FILE_COLUMN, spark_file_path
from cm_delta_dagster.spark.write.bins import task_keys, together_by_bin


@pytest.mark.parametrize("count", [1, 2, 7, 64, 365, 1000])
def test_every_task_has_a_key_of_its_own(count: int) -> None:
    keys = task_keys(count)
    assert len(set(keys.tolist())) == count and keys.dtype == np.int32


def test_spark_sends_the_key_of_a_task_to_it(spark: SparkSession) -> None:
    for count in (1, 5, 37):
        keys = spark.createDataFrame(pa.table({"key": pa.array(task_keys(count), pa.int32())}))
        placed = keys.repartition(count, "key").select("key", F.spark_partition_id().alias("task")).collect()
        assert {row.key: row.task for row in placed} == {int(key): task for task, key in enumerate(task_keys(count))}


BINS = [["file:///w/a b", "file:///w/c"], ["file:///w/d"], ["file:///w/e%20f"], ["file:///w/g"]]


def test_rows_of_a_bin_meet_in_its_task(spark: SparkSession) -> None:
    names = [spark_file_path(name) for members in BINS for name in members]
    frame = spark.createDataFrame(list(enumerate(names)), f"`a.b` int, {FILE_COLUMN} string").repartition(2)
    found = together_by_bin(frame, [pa.array(members) for members in BINS], tasks=3)
    assert found.columns == ["a.b"]
    placed = {row[0]: row[1] for row in found.select("*", F.spark_partition_id()).collect()}
    assert placed == {0: 0, 1: 0, 2: 1, 3: 2, 4: 0}


def test_rows_of_a_file_that_no_bin_has_are_an_error(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "file:/elsewhere")], f"id int, {FILE_COLUMN} string")
    with pytest.raises(PySparkException, match="unexpected way"):
        together_by_bin(frame, [pa.array(members) for members in BINS], tasks=3).collect()
