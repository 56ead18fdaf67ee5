"""Names and settings that once cost rows: each is refused before anything is written, or read back as it was."""

import datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.operations.maintenance.optimize import optimize
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from tests.support.creation import create_table

STRING, LONG = PrimitiveType("string"), PrimitiveType("long")


def schema(**columns: PrimitiveType) -> StructType:
    return StructType(tuple(StructField(name, kind) for name, kind in columns.items()))


def test_a_partition_column_that_gives_hidden_directories_is_refused(client: DeltaClient) -> None:
    with pytest.raises(InvalidArgumentError, match="hidden"):
        create_table(
            client,
            identifier="main.t.hidden",
            schema=schema(**{"id": LONG, ".p": STRING}),
            partition_columns=[".p"],
        )
    assert client.registry.list_tables() == ()


@pytest.mark.parametrize("name", ["delta.txn", "DELTA.TXN", "__cm_delta_file"])
def test_names_that_reading_uses_for_itself_are_refused(client: DeltaClient, name: str) -> None:
    with pytest.raises(SchemaMismatchError, match="reserved"):
        create_table(client, identifier="main.t.reserved", schema=schema(**{"id": LONG, name: STRING}))


@pytest.mark.requirements("DML-3")
def test_not_like_deletes_what_it_says(client: DeltaClient, spark: SparkSession) -> None:
    table = create_table(client, identifier="main.t.like", schema=schema(i=LONG, s=STRING))
    append(table, frame=spark.createDataFrame([(1, "apple"), (2, "banana"), (3, None)], "i long, s string"))
    assert [row.i for row in read(open_scan(table, where="s NOT LIKE 'a%'"), spark=spark).collect()] == [2]
    delete(table, spark=spark, where="s NOT LIKE 'a%'")
    assert sorted(row.i for row in read(open_scan(table), spark=spark).collect()) == [1, 3]


@pytest.mark.requirements("PART-1", "PART-8")
def test_rows_of_partitions_with_long_names_are_changed_and_read_as_any_others(
    client: DeltaClient, spark: SparkSession
) -> None:
    """Their directories have other names; through Spark and through Arrow the values are the log's."""
    long, other = "a long name/of 100% é" * 40, "x" * 256
    table = create_table(client, identifier="main.t.long", schema=schema(id=LONG, p=STRING), partition_columns=["p"])
    rows = [(1, long), (2, other), (3, "short"), (4, None), (5, long)]
    for part in (rows[:2], rows[2:]):
        append(table, frame=spark.createDataFrame(part, "id long, p string"))

    def stored() -> list[tuple[int, str | None]]:
        by_spark = sorted((row.id, row.p) for row in read(open_scan(table), spark=spark).collect())
        by_arrow = sorted((row["id"], row["p"]) for row in read_arrow(open_scan(table)).to_pylist())
        assert by_spark == by_arrow
        return by_spark

    assert stored() == rows
    assert sorted(row.id for row in read(open_scan(table, where=f"p = '{long}'"), spark=spark).collect()) == [1, 5]
    merge(table, frame=spark.createDataFrame([(6, long), (2, other)], "id long, p string"), keys=["id"])
    overwrite(table, frame=spark.createDataFrame([(7, other)], "id long, p string"), where=f"p = '{other}'")
    delete(table, spark=spark, where="id = 5")
    assert stored() == [(1, long), (3, "short"), (4, None), (6, long), (7, other)]
    rule = MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
    client.catalog.maintenance_policies.set_maintenance_rule(rule)
    assert optimize(table, spark=spark).version is not None
    assert stored() == [(1, long), (3, "short"), (4, None), (6, long), (7, other)]
    assert table.snapshot().num_files == 4


@pytest.mark.requirements("PART-5", "PART-6")
def test_timestamps_as_partitions_do_not_depend_on_what_the_session_calls_a_timestamp(
    client: DeltaClient, spark: SparkSession
) -> None:
    columns = T.StructType([T.StructField("id", T.LongType()), T.StructField("at", T.TimestampType())])
    frame = spark.createDataFrame([(1, datetime.datetime(2026, 1, 1, 22, 0, 0, 500000))], columns)
    table = create_table(
        client,
        identifier="main.t.moments",
        schema=schema(id=LONG, at=PrimitiveType("timestamp")),
        partition_columns=["at"],
    )
    append(table, frame=frame)
    before = (spark.conf.get("spark.sql.timestampType"), spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        rows = read(open_scan(table), spark=spark)
        assert rows.schema["at"].dataType == T.TimestampType()
        merge(table, frame=frame, keys=["id", "at"])
        assert read(open_scan(table), spark=spark).count() == 1
    finally:
        spark.conf.set("spark.sql.timestampType", before[0])
