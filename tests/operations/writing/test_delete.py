"""DELETE: deleted rows, remaining rows, and files that are not rewritten."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import Idempotency
from cm_delta_dagster.errors import IllegalCommitError, InvalidArgumentError
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.write import WriteOutcome
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from cm_delta_dagster.protocol.actions.paths import decode_path
from tests.support.builders import TableBuilder


@pytest.fixture
def build(client: DeltaClient, spark: SparkSession) -> Callable[..., TableBuilder]:
    return lambda columns, *partitions, **properties: TableBuilder(
        client,
        spark,
        columns,
        partition_by=partitions,
        properties={k.replace("__", "."): v for k, v in properties.items()},
    )


@pytest.mark.requirements("DML-3")
def test_a_partition_is_removed_without_being_read(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, p string", "p")
    builder.append((1, "a"), (2, "b"))
    result = delete(builder.table, spark=builder.spark, where="p = 'a'")
    assert builder.rows() == [(2, "b")]
    assert (result.num_added_files, result.num_removed_files, result.metrics["numDeletedRows"]) == (0, 1, "1")


@pytest.mark.requirements("DML-1", "DML-2")
def test_files_with_rows_of_both_kinds_are_rewritten(build: Callable[..., TableBuilder]) -> None:
    """Rows for which the condition is NULL stay; files whose rows all match are removed."""
    builder = build("id long, v long").with_properties({"delta.enableDeletionVectors": "false"})
    builder.append((1, 1), (2, 2), (3, None))
    builder.append((4, 1), (5, 1))
    builder.append((6, 6))
    result = delete(builder.table, spark=builder.spark, where="v = 1")
    assert builder.rows() == [(2, 2), (3, None), (6, 6)]
    assert (result.num_removed_files, result.num_added_files) == (2, 1)
    assert (result.metrics["numCopiedRows"], result.metrics["numDeletedRows"]) == ("2", "3")
    info = history(builder.table, limit=1)[0].commit_info
    assert info is not None and info.operation == "DELETE"


@pytest.mark.requirements("DML-3")
def test_a_delete_that_matches_no_row_creates_no_version(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long")
    builder.append((1,), (3,))
    result = delete(builder.table, spark=builder.spark, where="id = 2")
    assert (result.outcome, builder.table.snapshot().version) == (WriteOutcome.NOTHING_TO_DO, 1)


@pytest.mark.requirements("TXN-4")
def test_a_delete_that_was_committed_is_not_repeated(build: Callable[..., TableBuilder]) -> None:
    """Rows that came after it stay."""
    builder = build("id long")
    builder.append((1,), (2,))
    once = CommitOptions(idempotency=Idempotency(app_id="job", version=7))
    delete(builder.table, spark=builder.spark, where="id = 1", options=once)
    builder.append((1,))
    again = delete(builder.table, spark=builder.spark, where="id = 1", options=once)
    assert (again.outcome, again.version, builder.rows()) == (WriteOutcome.ALREADY_COMMITTED, 2, [(1,), (2,)])


def test_a_condition_that_only_spark_can_evaluate_works(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, p string", "p")
    builder.append((1, "a"), (2, "a"), (3, "b"))
    delete(builder.table, spark=builder.spark, where="p = 'a' AND id % 2 = 0")
    assert builder.rows() == [(1, "a"), (3, "b")]


@pytest.mark.requirements("SKIP-1")
def test_partitions_that_only_spark_can_exclude_are_not_opened(build: Callable[..., TableBuilder]) -> None:
    """The file index evaluates conditions on partition columns, of any form."""
    builder = build("id long, p int", "p")
    builder.append((1, 1), (2, 2), (3, 3))
    table = builder.table
    for file in table.snapshot().files.select(["path", "partitionValues"]).to_pylist():
        if dict(file["partitionValues"])["p"] != "2":
            (Path(table.snapshot().location.removeprefix("file://")) / decode_path(file["path"])).write_bytes(
                b"damaged"
            )
    result = delete(table, spark=builder.spark, where="p % 2 = 0")
    assert (result.num_removed_files, result.metrics["numDeletedRows"]) == (1, "1")
    assert table.snapshot().num_files == 2


def test_a_delete_of_every_row_needs_an_explicit_condition(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long")
    builder.append((1,))
    with pytest.raises(InvalidArgumentError):
        delete(builder.table, spark=builder.spark, where="nope = 1")
    with pytest.raises(InvalidArgumentError, match="neither true nor false"):
        delete(builder.table, spark=builder.spark, where="id")
    assert builder.rows() == [(1,)]
    delete(builder.table, spark=builder.spark, where="TRUE")
    assert builder.rows() == []


@pytest.mark.requirements("APPEND-2")
def test_append_only_tables_refuse_a_delete(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long", delta__appendOnly="true")
    builder.append((1,))
    with pytest.raises(IllegalCommitError, match="append-only"):
        delete(builder.table, spark=builder.spark, where="id = 1")
    assert builder.rows() == [(1,)]
