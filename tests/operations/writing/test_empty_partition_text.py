"""The empty text in a partition column is NULL in Delta: a repeated write must not duplicate its rows."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.api.table.merge_builder import MergeBuilder
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError, InvalidDataError, PartitionMismatchError
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.row_change import RowChange
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator, In, Predicate
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from tests.support.builders import TableBuilder
from tests.support.creation import create_table


@pytest.fixture
def build(client: DeltaClient, spark: SparkSession) -> Callable[[], TableBuilder]:
    def table() -> TableBuilder:
        builder = TableBuilder(client, spark, "id long, p string", partition_by=["p"])
        builder.append((1, ""), (2, None), (3, "a"))
        return builder

    return table


@pytest.mark.requirements("PART-1", "DML-7")
@pytest.mark.parametrize(
    "where",
    [
        "p = ''",
        "P <=> ''",
        "p IN ('', 'a')",
        "id > 0 AND (p = '' OR id = 7)",
        Comparison("p", ComparisonOperator.EQ, ""),
        In("`p`", ("a", "")),
    ],
    ids=str,
)
def test_writes_refuse_a_condition_on_the_empty_text(build: Callable[[], TableBuilder], where: Predicate | str) -> None:
    """Nothing is written."""
    builder = build()
    with pytest.raises(InvalidArgumentError, match=r"partition column 'p'.*p IS NULL"):
        overwrite(builder.table, frame=builder.frame((9, "")), where=where)
    with pytest.raises(InvalidArgumentError, match="p IS NULL"):
        merge(builder.table, frame=builder.frame((1, "")), keys=["id"], where=where)
    assert builder.table.snapshot().version == 1


@pytest.mark.requirements("PART-1")
def test_a_deletion_finds_no_row_with_the_empty_text(build: Callable[[], TableBuilder]) -> None:
    """No row has it."""
    builder = build()
    delete(builder.table, spark=builder.spark, where="p = ''")
    assert builder.table.snapshot().version == 1


@pytest.mark.requirements("DML-7")
def test_rows_with_the_empty_text_lie_in_the_slice_of_null(build: Callable[[], TableBuilder]) -> None:
    """The rerun replaces what the first run wrote."""
    builder = build()
    for where in ("p IS NULL", "p IS NULL", "p = '' OR p IS NULL"):
        overwrite(builder.table, frame=builder.frame((8, ""), (9, None)), where=where)
        assert builder.rows() == [(3, "a"), (8, None), (9, None)]


@pytest.mark.requirements("DML-7")
@pytest.mark.parametrize("where", ["length(p) = 0", "p >= ''", "p IN ('a') OR p LIKE '%'"])
def test_rows_are_compared_as_they_will_be_stored(build: Callable[[], TableBuilder], where: str) -> None:
    """The condition is evaluated for NULL, not for the empty text."""
    builder = build()
    with pytest.raises(PartitionMismatchError):
        overwrite(builder.table, frame=builder.frame((9, "")), where=where)
    assert builder.table.snapshot().version == 1


@pytest.mark.requirements("SCHEMA-9")
def test_the_empty_text_breaks_not_null(client: DeltaClient, spark: SparkSession) -> None:
    """The row would be read as NULL."""
    schema = StructType((StructField("id", PrimitiveType("long")), StructField("p", PrimitiveType("string"), False)))
    table = create_table(client, identifier="main.test.strict", schema=schema, partition_columns=["p"])
    with pytest.raises(InvalidDataError, match="NOT NULL"):
        append(table, frame=spark.range(1).select("id", F.lit("").alias("p")))
    assert table.snapshot().version == 0


@pytest.mark.requirements("DML-5", "PART-1")
@pytest.mark.parametrize("mode", list(MergeMode))
def test_a_merge_refuses_the_empty_text_as_a_key(build: Callable[[], TableBuilder], mode: MergeMode) -> None:
    """A NULL key matches no row, so each run would insert the row again."""
    builder = build()
    with pytest.raises(InvalidDataError, match=r"p = , id = 1|id = 1, p = "):
        merge(builder.table, frame=builder.frame((1, ""), (3, "a")), keys=["id", "p"], mode=mode)
    assert builder.table.snapshot().version == 1


@pytest.mark.requirements("DML-4")
def test_a_merge_by_another_key_keeps_its_rows_on_each_run(build: Callable[[], TableBuilder]) -> None:
    """The slice is compared with the rows as they are stored."""
    builder = build()
    for _ in range(2):
        merge(builder.table, frame=builder.frame((1, ""), (4, "")), keys=["id"], where="p IS NULL")
        assert builder.rows() == [(1, None), (2, None), (3, "a"), (4, None)]
    for _ in range(2):
        merge(builder.table, frame=builder.frame((5, "")), keys=["id"])
    assert builder.rows() == [(1, None), (2, None), (3, "a"), (4, None), (5, None)]


@pytest.mark.requirements("PART-1", "DML-4")
@pytest.mark.parametrize(("kind", "empty", "text"), [("string", "", "a"), ("binary", b"", b"a")])
def test_a_merge_with_clauses_compares_the_empty_text_as_null(
    client: DeltaClient, spark: SparkSession, kind: str, empty: object, text: object
) -> None:
    """Each run finds the rows of the run before; NULL and the empty text are one key."""
    builder = TableBuilder(client, spark, f"id long, p {kind}", partition_by=["p"])

    def upsert(*rows: tuple[object, ...]) -> None:
        change = RowChange(source=builder.frame(*rows), on="t.p <=> s.p", source_alias="s", target_alias="t")
        MergeBuilder(builder.table, change=change).when_matched_update_all().when_not_matched_insert_all().execute()

    for number in (1, 2):
        upsert((number, empty), (number, text))
        assert builder.rows() == [(number, None), (number, text)]
    with pytest.raises(InvalidDataError, match="Several rows of the source match the same row"):
        upsert((3, empty), (4, None))
    assert builder.rows() == [(2, None), (2, text)]


def test_the_empty_text_is_an_ordinary_key_of_other_columns(client: DeltaClient, spark: SparkSession) -> None:
    builder = TableBuilder(client, spark, "k string, v long")
    for value in (1, 2):
        merge(builder.table, frame=builder.frame(("", value)), keys=["k"])
        overwrite(builder.table, frame=builder.frame(("", value)), where="k = ''")
    assert builder.rows() == [("", 2)]


@pytest.mark.requirements("PART-1")
@pytest.mark.parametrize(
    ("where", "ids"),
    [("p = ''", []), ("p IS NULL", [1, 2]), ("p <> ''", [3]), ("p IN ('', 'a')", [3]), ("p = '' OR p IS NULL", [1, 2])],
)
def test_spark_and_arrow_read_the_empty_text_as_null(
    build: Callable[[], TableBuilder], where: str, ids: list[int]
) -> None:
    builder = build()
    assert [row[0] for row in builder.rows(where=where)] == ids
    assert sorted(read_arrow(open_scan(builder.table, where=where))["id"].to_pylist()) == ids
