"""Optimized writes: the rows of a partition go to few files."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.operations.writing.write import append
from tests.support.builders import TableBuilder

FEW = {"delta.autoOptimize.optimizeWrite": "true"}


@pytest.fixture
def build(client: DeltaClient, spark: SparkSession) -> Callable[..., TableBuilder]:
    return lambda **arguments: TableBuilder(client, spark, "id long, p int", **arguments)


@pytest.mark.requirements("OPT-7")
@pytest.mark.parametrize("partitions", [(), ("p",)])
def test_rows_of_many_tasks_become_one_file_for_each_partition(
    build: Callable[..., TableBuilder], spark: SparkSession, partitions: tuple[str, ...]
) -> None:
    frame = spark.range(0, 90, 1, 6).selectExpr("id", "cast(id % 3 as int) as P")
    setting = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
    before = spark.conf.get(setting, None)
    plain, few = build(partition_by=partitions), build(partition_by=partitions, properties=FEW)
    for lake in (plain, few):
        append(lake.table, frame=frame)
    assert plain.table.snapshot().num_files == (18 if partitions else 6)
    assert few.table.snapshot().num_files == (3 if partitions else 1)
    assert few.rows() == plain.rows()
    assert spark.conf.get(setting, None) == before
