"""How often a write asks Spark for the schema of a frame. On Spark Connect each time is a request to the server."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic import dataframe as classic

from cm_delta_dagster.api.table.merge_builder import MergeBuilder
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.row_change import RowChange
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.spark.session.session import is_connect
from tests.support.builders import TableBuilder


@contextmanager
def counted_schemas(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The schemas, as JSON, that the JVM gives meanwhile."""
    texts: list[str] = []
    parse = classic._parse_datatype_json_string

    def counting(text: str) -> object:
        texts.append(text)
        return parse(text)

    with monkeypatch.context() as patch:
        patch.setattr(classic, "_parse_datatype_json_string", counting)
        yield texts


def merge_with_clauses(table: Table, frame: DataFrame) -> None:
    change = RowChange(source=frame, on=F.col("target.id") == F.col("source.id"))
    MergeBuilder(table, change=change).when_matched_update_all().when_not_matched_insert_all().execute()


@pytest.mark.parametrize(
    ("write", "num_schemas"),
    [
        pytest.param(lambda table, frame: append(table, frame=frame), 1, id="append"),
        pytest.param(lambda table, frame: overwrite(table, frame=frame), 1, id="overwrite"),
        pytest.param(
            lambda table, frame: overwrite(table, frame=frame.where("p = 'p1'"), where="p = 'p1'"),
            1,
            id="overwrite of a slice",
        ),
        # Besides the source: the rows that are written, and the rows that an action collects.
        pytest.param(lambda table, frame: overwrite(table, frame=frame, keys=["id"]), 3, id="overwrite of keys"),
        pytest.param(lambda table, frame: merge(table, frame=frame, keys=["id"]), 4, id="merge by key"),
        pytest.param(merge_with_clauses, 6, id="merge with clauses"),
    ],
)
def test_a_write_asks_for_the_schema_of_its_rows_once(
    write: Callable[[Table, DataFrame], object],
    num_schemas: int,
    client: DeltaClient,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if is_connect(spark):
        pytest.skip("counts what the JVM of a classic session is asked")
    table = TableBuilder(client, spark, "id long, p string", partition_by=["p"]).table
    frame = spark.sql("SELECT id, concat('p', id % 2) p FROM range(10)")
    append(table, frame=frame)
    rows = frame.where("id < 100")
    with counted_schemas(monkeypatch) as schemas:
        write(table, rows)
    assert len(schemas) == num_schemas
