"""Append and overwrite through the whole client: rows, log, conflicts, idempotency."""

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import Idempotency, IdempotencyRule
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CommitConflictError,
    IllegalCommitError,
    InvalidArgumentError,
    InvalidDataError,
    PartitionMismatchError,
    SchemaMismatchError,
)
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.operations.writing.write import WriteOutcome, append, overwrite
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
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


class Interleaved:
    """A table handle that calls a function between the snapshot of a write and its commit."""

    def __init__(self, table: Table, meanwhile: Callable[[], object]) -> None:
        self._table, self._meanwhile = table, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def snapshot(self, **arguments: Any) -> Any:
        found = self._table.snapshot(**arguments)
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()
        return found


def data_files(builder: TableBuilder) -> int:
    root = builder.table.location
    return sum(status.name.endswith(".parquet") for status in builder.table.store.list_recursive(root))


@pytest.mark.requirements("OCC-2", "CINFO-3")
def test_appended_rows_are_read_back_and_described(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, p string", "p")
    result = builder.append((1, "a"), (2, "a"), (3, None))
    assert builder.rows() == [(1, "a"), (2, "a"), (3, None)]
    assert (result.outcome, result.version, result.data_version) == (WriteOutcome.COMMITTED, 1, 1)
    assert (result.num_output_rows, result.num_added_files, result.num_removed_files) == (3, 2, 0)
    assert result.rows_by_partition == {("a",): 2, (None,): 1}
    assert result.snapshot.num_rows == 3
    info = history(builder.table, limit=1)[0].commit_info
    assert info is not None
    assert (info.operation, info.is_blind_append) == ("WRITE", True)
    assert info.operation_parameters == {"mode": "Append", "partitionBy": '["p"]'}
    assert info.operation_metrics == result.metrics
    assert result.metrics["numOutputRows"] == "3"


@pytest.mark.requirements("DML-3")
def test_an_empty_append_creates_no_version(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long")
    result = builder.append()
    assert (result.outcome, result.version) == (WriteOutcome.NOTHING_TO_DO, 0)


@pytest.mark.requirements("DML-7")
def test_an_overwrite_replaces_every_row_in_one_commit(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long")
    builder.append((1,), (2,))
    builder.append((3,))
    result = overwrite(builder.table, frame=builder.frame((9,)))
    assert builder.rows() == [(9,)]
    assert builder.rows(version=2) == [(1,), (2,), (3,)]
    assert (result.num_removed_files, result.num_added_files, result.version) == (2, 1, 3)


@pytest.mark.requirements("LOG-19")
def test_an_overwrite_with_rows_of_the_same_table_is_safe(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long")
    builder.append((1,), (2,))
    from cm_delta_dagster.operations.reading.read import read
    from cm_delta_dagster.operations.reading.snapshot_scan import open_scan

    overwrite(builder.table, frame=read(open_scan(builder.table), spark=builder.spark).where("id = 2"))
    assert builder.rows() == [(2,)]


@pytest.mark.requirements("DML-7")
def test_a_partition_slice_is_replaced_without_reading_rows(build: Callable[..., TableBuilder]) -> None:
    """The file of the replaced partition may be missing."""
    builder = build("id long, p string", "p")
    builder.append((1, "a"), (2, "b"), (3, None))
    for status in list(builder.table.store.list_recursive(builder.table.location)):
        if "/p=a/" in status.location:
            builder.table.store.delete(status.location)
    result = overwrite(builder.table, frame=builder.frame((9, "a")), where="p = 'a'")
    assert builder.rows() == [(2, "b"), (3, None), (9, "a")]
    assert result.num_removed_files == 1
    assert overwrite(builder.table, frame=builder.frame(), where="p IS NULL").num_removed_files == 1
    assert builder.rows() == [(2, "b"), (9, "a")]


@pytest.mark.requirements("DML-7", "DML-2", "FILE-3")
def test_a_slice_within_files_keeps_their_other_rows(build: Callable[..., TableBuilder]) -> None:
    """A row for which the condition is NULL stays; files without a match are not in the commit."""
    builder = build("id long, v long")
    builder.append((1, 10), (2, 20), (3, None))
    builder.append((4, 40), (5, 50))
    builder.append((6, 15))
    result = overwrite(builder.table, frame=builder.frame((9, 12)), where="v < 25")
    assert builder.rows() == [(3, None), (4, 40), (5, 50), (9, 12)]
    assert (result.num_removed_files, result.metrics["numCopiedRows"]) == (2, "1")
    log_file = f"{builder.table.location}/_delta_log/{result.version:020d}.json"
    actions = [json.loads(line) for line in builder.table.store.read(log_file).splitlines()]
    files = [action.get("add") or action["remove"] for action in actions if "add" in action or "remove" in action]
    assert len(files) >= 3 and all(file["dataChange"] for file in files)


@pytest.mark.requirements("DML-7")
def test_rows_outside_of_the_slice_are_refused(build: Callable[..., TableBuilder]) -> None:
    """Nothing is committed and no file is left."""
    builder = build("id long, p string", "p")
    builder.append((1, "a"))
    before = data_files(builder)
    with pytest.raises(PartitionMismatchError, match="p = b"):
        overwrite(builder.table, frame=builder.frame((9, "b")), where="p = 'a'")
    assert builder.table.snapshot().version == 1
    assert data_files(builder) == before


@pytest.mark.requirements("SCHEVO-1", "SCHEVO-3", "META-6")
def test_unknown_columns_need_a_merge_of_schemas(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long", delta__logRetentionDuration="interval 7 days")
    builder.append((1,))
    before = builder.table.snapshot().metadata
    frame = builder.frame((2, "x"), columns="ID int, extra string")
    with pytest.raises(SchemaMismatchError, match="extra"):
        append(builder.table, frame=frame)
    append(builder.table, frame=frame, schema_mode=SchemaMode.MERGE)
    assert builder.rows() == [(1, None), (2, "x")]
    after = builder.table.snapshot()
    assert after.schema.names == ("id", "extra")
    assert replace(after.metadata, schema_string=before.schema_string) == before
    with pytest.raises(InvalidArgumentError):
        append(builder.table, frame=frame, schema_mode=SchemaMode.OVERWRITE)


@pytest.mark.requirements("NTZ-1")
def test_a_new_column_may_need_a_feature_which_is_added_with_it(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long")
    frame = builder.frame((2, dt.datetime(2020, 1, 1)), columns="id long, t timestamp_ntz")
    append(builder.table, frame=frame, schema_mode=SchemaMode.MERGE)
    assert "timestampNtz" in (builder.table.snapshot().protocol.writer_features or ())
    assert builder.rows() == [(2, dt.datetime(2020, 1, 1))]


@pytest.mark.requirements("SCHEVO-4")
def test_a_full_overwrite_may_replace_the_schema(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, p string", "p")
    builder.append((1, "a"))
    frame = builder.frame(("x", "b"), columns="name string, P string")
    overwrite(builder.table, frame=frame, schema_mode=SchemaMode.OVERWRITE)
    assert builder.rows() == [("x", "b")]
    assert builder.table.snapshot().schema.names == ("name", "p")
    with pytest.raises(InvalidArgumentError):
        overwrite(builder.table, frame=frame, where="p = 'b'", schema_mode=SchemaMode.OVERWRITE)
    with pytest.raises(SchemaMismatchError, match="'p'"):
        overwrite(builder.table, frame=builder.frame((1,), columns="id long"), schema_mode=SchemaMode.OVERWRITE)


@pytest.mark.requirements("PART-8")
def test_an_append_cannot_change_the_partition_columns(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, p string", "p")
    for columns in (["id"], [], ["p", "id"]):
        with pytest.raises(InvalidArgumentError, match="This write does not change that"):
            append(builder.table, frame=builder.frame((1, "a")), partition_by=columns)
    assert append(builder.table, frame=builder.frame((1, "a")), partition_by=["P"]).version == 1


@pytest.mark.requirements("SCHEVO-4")
def test_an_overwrite_of_the_schema_may_replace_the_partition_columns(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, p string", "p")
    builder.append((1, "a"))
    with pytest.raises(
        InvalidArgumentError, match=r"is partitioned by \['p'\]; the call says not partitioned\. This write"
    ):
        append(builder.table, frame=builder.frame((1, "a")), partition_by=[])
    with pytest.raises(InvalidArgumentError, match="is partitioned by"):
        overwrite(builder.table, frame=builder.frame((1, "a")), partition_by=["id"])
    with pytest.raises(InvalidArgumentError, match="not in the schema"):
        overwrite(builder.table, frame=builder.frame((1, "a")), schema_mode=SchemaMode.OVERWRITE, partition_by=["q"])
    for columns, name in (("q string, n long", "q"), ("q string, n long", None)):
        frame = builder.frame(("x", 1), ("y", 2), columns=columns)
        overwrite(builder.table, frame=frame, schema_mode=SchemaMode.OVERWRITE, partition_by=[name] if name else [])
        assert builder.table.snapshot().partition_columns == ((name,) if name else ())
        assert builder.rows() == [("x", 1), ("y", 2)]
    assert builder.rows(version=1) == [(1, "a")]


@pytest.mark.requirements("APPEND-2", "APPEND-3")
def test_append_only_tables_take_appends_and_refuse_removals(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long", delta__appendOnly="true")
    builder.append((1,))
    before = data_files(builder)
    with pytest.raises(IllegalCommitError, match="append-only"):
        overwrite(builder.table, frame=builder.frame((2,)))
    assert (builder.rows(), data_files(builder)) == ([(1,)], before)


def batch(version: int, rule: IdempotencyRule = IdempotencyRule.MONOTONIC) -> CommitOptions:
    return CommitOptions(idempotency=Idempotency(app_id="job", version=version, rule=rule))


@pytest.mark.requirements("TXN-4")
def test_a_repeated_write_of_a_batch_commits_once(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long")
    first = append(builder.table, frame=builder.frame((1,)), options=batch(7))
    builder.append((2,))
    again = append(builder.table, frame=builder.frame((1,)), options=batch(7))
    assert (again.outcome, again.version) == (WriteOutcome.ALREADY_COMMITTED, first.version)
    older = append(builder.table, frame=builder.frame((1,)), options=batch(6))
    assert older.outcome is WriteOutcome.ALREADY_COMMITTED
    exact = batch(6, IdempotencyRule.EXACT)
    assert append(builder.table, frame=builder.frame((3,)), options=exact).outcome is WriteOutcome.COMMITTED
    assert builder.rows() == [(1,), (2,), (3,)]


@pytest.mark.requirements("TXN-4", "OCC-11")
def test_a_concurrent_commit_of_the_same_batch_is_detected(build: Callable[..., TableBuilder]) -> None:
    """The write that loses the conflict deletes its files and returns the version of the winner."""
    builder = build("id long")
    table = Interleaved(builder.table, lambda: append(builder.table, frame=builder.frame((1,)), options=batch(1)))
    result = append(table, frame=builder.frame((1,)), options=batch(1))
    assert (result.outcome, result.version) == (WriteOutcome.ALREADY_COMMITTED, 1)
    assert builder.rows() == [(1,)]
    assert data_files(builder) == 1


@pytest.mark.requirements("OCC-12")
def test_two_concurrent_appends_both_commit(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long")
    table = Interleaved(builder.table, lambda: builder.append((1,)))
    assert append(table, frame=builder.frame((2,))).version == 2
    assert builder.rows() == [(1,), (2,)]


@pytest.mark.requirements("OCC-8")
def test_overwrites_of_different_partitions_both_commit(build: Callable[..., TableBuilder]) -> None:
    """The losing commit is rebased and not refused."""
    builder = build("id long, p string", "p")
    builder.append((1, "a"), (2, "b"))
    table = Interleaved(builder.table, lambda: overwrite(builder.table, frame=builder.frame((8, "b")), where="p = 'b'"))
    result = overwrite(table, frame=builder.frame((9, "a")), where="p = 'a'")
    assert (builder.rows(), result.retries) == ([(8, "b"), (9, "a")], 1)


@pytest.mark.requirements("OCC-9", "OCC-10")
def test_overwrites_of_one_partition_conflict_and_leave_no_files(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, p string", "p")
    builder.append((1, "a"))
    table = Interleaved(builder.table, lambda: overwrite(builder.table, frame=builder.frame((8, "a")), where="p = 'a'"))
    with pytest.raises(CommitConflictError):
        overwrite(table, frame=builder.frame((9, "a")), where="p = 'a'")
    assert builder.rows() == [(8, "a")]
    assert data_files(builder) == 2


@pytest.mark.requirements("SCHEVO-2", "SCHEMA-9", "DML-6")
def test_not_null_columns_are_enforced(client: DeltaClient, spark: SparkSession) -> None:
    builder = TableBuilder(client, spark, "id long not null, v string")
    builder.append((1, "a"))
    with pytest.raises(InvalidDataError, match="'id'"):
        append(builder.table, frame=builder.frame((None, "b"), columns="id long, v string"))
    with pytest.raises(SchemaMismatchError, match="id"):
        append(builder.table, frame=builder.frame(("b",), columns="v string"))
    assert builder.rows() == [(1, "a")]


@pytest.mark.requirements("STATS-8", "SKIP-1")
def test_statistics_of_a_write_let_reads_skip_files(build: Callable[..., TableBuilder]) -> None:
    builder = build("id long, s string")
    builder.append((1, "a"))
    builder.append((2, "b"))
    snapshot = builder.table.snapshot()
    stats = [json.loads(text) for text in snapshot.files["stats"].to_pylist()]
    assert sorted(item["minValues"]["id"] for item in stats) == [1, 2]
    assert builder.rows(where="id = 2 AND s = 'b'") == [(2, "b")]
