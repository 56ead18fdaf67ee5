"""The first write of a table through Spark: version 0 holds its rows, for every write operation."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import Idempotency
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    InvalidDataError,
    PartitionMismatchError,
    SchemaMismatchError,
    TableAlreadyExistsError,
)
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.tables.create import TableDesign, first_schema
from cm_delta_dagster.operations.tables.write_attempts import write_attempts
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.operations.writing.write_result import WriteOutcome, WriteResult
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from cm_delta_dagster.protocol.log.markers import WAREHOUSE_MARKER_NAME
from cm_delta_dagster.spark.expressions.schema import schema_of
from tests.support.builders import rows_of
from tests.support.creation import create_table, create_table_as

NAME = "main.test.t"


def of(frame: DataFrame, *partition_columns: str) -> TableDesign:
    return TableDesign(schema=first_schema(schema_of(frame)), partition_columns=partition_columns)


def everything_below(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*")) if directory.exists() else []


@pytest.mark.requirements("CM-D2", "TXN-4", "CINFO-3")
def test_the_rows_of_an_append_are_in_version_0(client: DeltaClient, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, "a"), (3, None)], "id long, p string").coalesce(1)
    once = Idempotency(app_id="job", version=3)

    def write(table: Table) -> WriteResult:
        return append(table, frame=frame, options=CommitOptions(idempotency=once))

    table, result = create_table_as(client, identifier=NAME, design=of(frame, "p"), write=write)
    assert (result.version, result.data_version, result.outcome) == (0, 0, WriteOutcome.COMMITTED)
    assert (result.num_output_rows, result.rows_by_partition) == (3, {("a",): 2, (None,): 1})
    assert rows_of(read(open_scan(table), spark=spark)) == [(1, "a"), (2, "a"), (3, None)]
    (entry,) = history(table)
    assert entry.commit_info is not None
    assert entry.commit_info.operation == "CREATE TABLE AS SELECT"
    assert entry.commit_info.operation_metrics == result.metrics
    again = write(client.table(NAME))
    assert (again.outcome, again.version) == (WriteOutcome.ALREADY_COMMITTED, 0)
    assert rows_of(read(open_scan(table, where="p = 'a'"), spark=spark)) == [(1, "a"), (2, "a")]


VERBS: dict[str, Callable[[Table, DataFrame], WriteResult]] = {
    "overwrite": lambda table, frame: overwrite(table, frame=frame),
    "slice": lambda table, frame: overwrite(table, frame=frame, where="id > 0"),
    "upsert": lambda table, frame: merge(table, frame=frame, keys=["id"]),
    "insert": lambda table, frame: merge(table, frame=frame, keys=["id"], mode=MergeMode.INSERT_ONLY),
    "replace": lambda table, frame: merge(table, frame=frame, keys=["id"], mode=MergeMode.DELETE_UNMATCHED),
}


@pytest.mark.requirements("DML-4", "DML-7")
@pytest.mark.parametrize("verb", VERBS)
def test_every_write_operation_can_create_the_table(client: DeltaClient, spark: SparkSession, verb: str) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, v string")
    table, result = create_table_as(
        client, identifier=NAME, design=of(frame), write=lambda table: VERBS[verb](table, frame)
    )
    assert (result.version, result.num_output_rows, table.snapshot().version) == (0, 2, 0)
    assert rows_of(read(open_scan(table), spark=spark)) == [(1, "a"), (2, "b")]


@pytest.mark.requirements("DML-3")
@pytest.mark.parametrize("mode", [MergeMode.UPDATE_ONLY, None])
def test_a_first_write_without_rows_creates_an_empty_table(
    client: DeltaClient, spark: SparkSession, mode: MergeMode | None, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([(1,)] if mode else [], "id long")

    def write(table: Table) -> WriteResult:
        return append(table, frame=frame) if mode is None else merge(table, frame=frame, keys=["id"], mode=mode)

    table, result = create_table_as(client, identifier=NAME, design=of(frame), write=write)
    assert (result.version, result.outcome, table.snapshot().num_files) == (0, WriteOutcome.COMMITTED, 0)
    (entry,) = client.catalog.feed.feed(after=0, limit=10)
    assert not entry.summary.data_change
    assert not [path for path in everything_below(tmp_path / "warehouse") if path.name.startswith("delta.txn=")]


def failing(spark: SparkSession, kind: str) -> tuple[DataFrame, Callable[[Table], WriteResult], type[Exception]]:
    frame = spark.createDataFrame([(1, "a"), (1, "b")], "id long, p string")
    match kind:
        case "outside":
            return frame, lambda table: overwrite(table, frame=frame, where="p = 'a'"), PartitionMismatchError
        case "duplicate key":
            return frame, lambda table: merge(table, frame=frame, keys=["id"]), InvalidDataError
        case _:
            broken = frame.selectExpr("id", "IF(p = 'b', raise_error('the user\\'s'), p) AS p")
            return frame, lambda table: append(table, frame=broken), Exception


@pytest.mark.requirements("CM-D5")
@pytest.mark.parametrize("kind", ["outside", "duplicate key", "broken"])
def test_a_first_write_that_fails_leaves_no_table_and_no_file(
    client: DeltaClient, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    frame, write, error = failing(spark, kind)
    with pytest.raises(error):
        create_table_as(client, identifier=NAME, design=of(frame), write=write)
    assert client.registry.list_tables() == ()
    assert everything_below(tmp_path / "warehouse" / "main" / "test") == []


def overtaking(client: DeltaClient, write: Callable[[Table], Any], **winner: Any) -> Callable[[Table], Any]:
    """``write``; another writer registers the name after the rows are written and before this registration."""

    def overtaken(table: Table) -> Any:
        if client.registry.list_tables() == ():
            original = table.store.write_if_absent

            class Overtaking:
                def __getattr__(self, name: str) -> Any:
                    return getattr(store, name)

                def write_if_absent(self, location: str, data: bytes, **how: bool) -> None:
                    if client.registry.list_tables() == ():
                        create_table(client, identifier=NAME, **winner)
                    original(location, data, **how)

            store = table.store
            table.store = Overtaking()
        return write(table)

    return overtaken


@pytest.mark.requirements("CM-D3")
def test_the_second_of_two_concurrent_creations_writes_to_the_same_table(
    client: DeltaClient, spark: SparkSession, tmp_path: Path
) -> None:
    """With the partitioning of the existing table; the files of the failed creation are deleted."""
    frame = spark.createDataFrame([(1, "a")], "id long, p string")
    design = of(frame)
    write = overtaking(client, lambda table: append(table, frame=frame), schema=design.schema, partition_columns=["p"])
    for attempt in write_attempts(client, identifier=NAME):
        with attempt.target(design) as target:
            result = write(target)
    table = attempt.table
    assert (result.version, result.rows_by_partition) == (1, {("a",): 1})
    assert rows_of(read(open_scan(table), spark=spark)) == [(1, "a")]
    assert [f"file://{path}" for path in (tmp_path / "warehouse/main/test").iterdir()] == [table.location]


def test_rows_that_do_not_fit_a_concurrently_created_table_are_refused(
    client: DeltaClient, spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([(1, "a")], "id long, p string")
    other = first_schema(schema_of(spark.createDataFrame([], "id long")))
    write = overtaking(client, lambda table: append(table, frame=frame), schema=other)
    with pytest.raises(SchemaMismatchError):
        for attempt in write_attempts(client, identifier=NAME):
            with attempt.target(of(frame)) as target:
                write(target)
    assert client.table(NAME).snapshot().version == 0
    assert len(list((tmp_path / "warehouse/main/test").iterdir())) == 1


def test_a_taken_name_is_refused_before_any_row_is_written(client: DeltaClient, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1,)], "id long")
    create_table(client, identifier=NAME, schema=of(frame).schema)
    called: list[Table] = []
    with pytest.raises(TableAlreadyExistsError):
        create_table_as(client, identifier=NAME, design=of(frame), write=called.append)
    assert called == []


def test_a_write_leaves_only_data_files_and_their_checksums(
    client: DeltaClient, spark: SparkSession, tmp_path: Path
) -> None:
    """No marker file of Spark, no temporary directory, no empty directory."""
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, p string").repartition(4)
    table, _ = create_table_as(
        client, identifier=NAME, design=of(frame, "p"), write=lambda table: append(table, frame=frame)
    )
    plain, _ = create_table_as(
        client, identifier="main.test.plain", design=of(frame), write=lambda table: append(table, frame=frame)
    )
    append(table, frame=frame)
    overwrite(table, frame=frame.where("id = 9"), where="p = 'a'")
    merge(table, frame=frame, keys=["id"], mode=MergeMode.UPDATE_ONLY)
    merge(plain, frame=frame.where("false"), keys=["id"], mode=MergeMode.UPDATE_ONLY)
    client.wait_for_background()
    paths = everything_below(tmp_path / "warehouse")
    assert [path for path in paths if path.is_dir() and not any(path.iterdir())] == []
    files = [path.name for path in paths if path.is_file() and "_delta_log" not in path.parts]
    strange = [name for name in files if not name.startswith(("part-", ".part-"))]
    assert files and strange == [WAREHOUSE_MARKER_NAME]
