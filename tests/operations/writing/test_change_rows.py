"""Deletion vectors and copy-on-write: what a row change does to each file."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.errors import CommitConflictError, CorruptLogError
from cm_delta_dagster.operations.maintenance.reorg import reorg
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import overwrite
from cm_delta_dagster.protocol.actions.file_columns import removes_of, table_to_adds
from cm_delta_dagster.storage.deletion_vector_reader import read_deletion_vectors
from tests.support.builders import TableBuilder

Build = Callable[..., TableBuilder]


@pytest.fixture
def build(client: DeltaClient, spark: SparkSession) -> Build:
    def new(columns: str, *partitions: str, vectors: str = "true") -> TableBuilder:
        builder = TableBuilder(client, spark, columns, partition_by=partitions)
        return builder if vectors == "true" else builder.with_properties({"delta.enableDeletionVectors": vectors})

    return new


def _files(builder: TableBuilder) -> list[dict[str, Any]]:
    return builder.table.snapshot().files.to_pylist()


@pytest.mark.requirements("DV-1", "DV-2", "DV-21", "DV-23", "DV-24", "FILE-7")
def test_deleted_rows_are_marked_and_the_file_stays(build: Build) -> None:
    """A second delete replaces the vector by one with the old and new positions."""
    builder = build("id long")
    builder.append(*[(i,) for i in range(10)])
    (before,) = _files(builder)
    first = delete(builder.table, spark=builder.spark, where="id IN (2, 5)")
    (after,) = _files(builder)
    assert (first.num_added_files, first.num_removed_files) == (0, 0)
    assert {key: after[key] for key in ("path", "size", "modificationTime", "partitionValues")} == {
        key: before[key] for key in ("path", "size", "modificationTime", "partitionValues")
    }
    assert '"numRecords":10' in after["stats"] and '"tightBounds":false' in after["stats"]
    assert after["deletionVector"]["cardinality"] == 2
    metrics = [first.metrics[f"numDeletionVectors{name}"] for name in ("Added", "Removed", "Updated")]
    assert metrics == ["1", "0", "0"]

    second = delete(builder.table, spark=builder.spark, where="id IN (5, 7)")
    snapshot = builder.table.snapshot()
    (vector,) = read_deletion_vectors(builder.table.store, location=snapshot.location, files=snapshot.files)
    assert list(vector) == [2, 5, 7] and second.metrics["numDeletedRows"] == "1"
    assert second.metrics["numDeletionVectorsUpdated"] == "1"
    assert builder.rows() == [(0,), (1,), (3,), (4,), (6,), (8,), (9,)]
    assert sorted(read_arrow(open_scan(builder.table)).column("id").to_pylist()) == [0, 1, 3, 4, 6, 8, 9]
    assert snapshot.num_rows == 7


@pytest.mark.requirements("DV-18")
@pytest.mark.slow
def test_large_vectors_of_a_commit_share_one_file(build: Build, spark: SparkSession) -> None:
    """Positions of several row groups and files."""
    builder = build("id long")
    builder.append(*[(i,) for i in range(400)])
    builder.append(*[(i,) for i in range(400, 800)])
    builder.append((1000,), (1001,), (1002,))
    delete(builder.table, spark=spark, where="id % 3 = 1")
    vectors = [file["deletionVector"] for file in _files(builder)]
    stored = [vector for vector in vectors if vector["storageType"] == "u"]
    assert len(stored) == 2 and len({vector["pathOrInlineDv"] for vector in stored}) == 1
    (inline,) = [vector for vector in vectors if vector["storageType"] == "i"]
    assert inline["cardinality"] == 1
    assert [row[0] for row in builder.rows()] == [i for i in [*range(800), 1000, 1001, 1002] if i % 3 != 1]


@pytest.mark.requirements("DV-25", "DV-26")
def test_files_that_are_mostly_deleted_are_rewritten_and_empty_ones_removed(build: Build) -> None:
    """The share counts rows that were deleted before."""
    builder = build("id long")
    builder.append(*[(i,) for i in range(10)])
    builder.append((20,), (21,))
    assert ClientSettings().max_deleted_rows_ratio == 0.5
    delete(builder.table, spark=builder.spark, where="id < 4")
    result = delete(builder.table, spark=builder.spark, where="id BETWEEN 4 AND 5 OR id >= 20")
    assert (result.num_added_files, result.num_removed_files) == (1, 2)
    assert (result.metrics["numCopiedRows"], result.metrics["numDeletionVectorsRemoved"]) == ("4", "1")
    (file,) = _files(builder)
    assert file["deletionVector"] is None and builder.rows() == [(6,), (7,), (8,), (9,)]


@pytest.mark.requirements("DML-2")
@pytest.mark.parametrize("vectors", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_an_update_writes_only_what_it_must(build: Build, vectors: str) -> None:
    """With vectors the updated rows are in new files, else all rows of the files that change."""
    builder = build("id long, p string, st struct<a: int, b: int>", "p", vectors=vectors)
    rows = [(i, "x" if i < 6 else "y", (i, i) if i != 1 else None) for i in range(9)]
    builder.append(*rows)
    result = update(
        builder.table, spark=builder.spark, assignments={"st.b": "id * 10 + st.a", "p": "'z'"}, where="id IN (0, 1)"
    )
    expected = [(0, "z", (0, 0)), (1, "z", (None, None)), *rows[2:]]
    assert builder.rows() == expected
    assert (result.metrics["numUpdatedRows"], result.metrics["numCopiedRows"]) == (
        "2",
        "0" if vectors == "true" else "4",
    )
    assert (result.num_removed_files, result.num_added_files) == ((0, 1) if vectors == "true" else (1, 2))


def test_deletes_of_rows_of_one_file_conflict(build: Build) -> None:
    """A file can get one new vector at a time: the second writer does not merge its rows into the vector of the first."""
    builder = build("id long")
    builder.append(*[(i,) for i in range(400)])
    stale = builder.table.snapshot()
    table = builder.table

    class Stale:
        """The table as it was before the first delete."""

        def __getattr__(self, name: str) -> Any:
            return getattr(table, name)

        def snapshot(self) -> Any:
            return stale

    delete(table, spark=builder.spark, where="id = 1")
    with pytest.raises(CommitConflictError):
        delete(Stale(), spark=builder.spark, where="id % 3 = 2")  # type: ignore[arg-type]
    assert [row[0] for row in builder.rows()] == [0, *range(2, 400)]
    files = [status.name for status in table.store.list_recursive(table.location)]
    assert not [name for name in files if name.startswith("deletion_vector")]


@pytest.mark.requirements("DML-7")
@pytest.mark.slow
def test_an_overwrite_replaces_the_partitions_or_the_keys_of_the_new_rows(build: Build, spark: SparkSession) -> None:
    """Rows of other partitions and with other keys stay; a key may occur several times on both sides."""
    builder = build("id long, p string", "p")
    builder.append((1, "a"), (2, "b"), (3, None), (3, "b"))
    overwrite(builder.table, frame=builder.frame((7, "a"), (8, None)), partitions="dynamic")
    assert builder.rows() == [(2, "b"), (3, "b"), (7, "a"), (8, None)]
    overwrite(builder.table, frame=builder.frame((3, "c"), (3, "d"), (7, "c"), (9, "x")), keys=["ID"])
    assert builder.rows() == [(2, "b"), (3, "c"), (3, "d"), (7, "c"), (8, None), (9, "x")]
    plain = build("id long")
    plain.append((1,), (2,))
    overwrite(plain.table, frame=plain.frame((3,)), partitions="dynamic")
    assert plain.rows() == [(3,)]


@pytest.mark.requirements("DV-25")
@pytest.mark.parametrize("where", ["id = 1", "id % 2 = 1"])
@pytest.mark.parametrize("verb", ["delete", "update", "merge"])
def test_a_wrong_row_count_in_the_log_costs_no_row(build: Build, where: str, verb: str) -> None:
    """The log says that all rows of the file change, and the file has another one. Arrow or Spark finds the rows."""
    builder = build("id long")
    builder.append((1,), (2,))
    snapshot = builder.table.snapshot()
    (add,) = table_to_adds(snapshot.files)
    transaction = builder.table.start_transaction(snapshot, operation="TEST")
    transaction.remove_files(removes_of(snapshot.files, data_change=False))
    transaction.add_files([replace(add, path=f"./{add.path}", data_change=False, stats='{"numRecords":1}')])
    transaction.commit()
    with pytest.raises(CorruptLogError, match=r"has 2 rows, and the log says that it was written with 1"):
        match verb:
            case "delete":
                delete(builder.table, spark=builder.spark, where=where)
            case "update":
                update(builder.table, spark=builder.spark, assignments={"id": "7"}, where=where)
            case _:
                merge(builder.table, frame=builder.frame((1,)), keys=["id"])
    assert builder.table.snapshot().version == snapshot.version + 1
    assert builder.rows() == [(1,), (2,)]


@pytest.mark.requirements("DML-7")
@pytest.mark.parametrize("kind", ["float", "double"])
def test_dynamic_overwrites_take_zeros_of_both_signs_for_one_partition(build: Build, kind: str) -> None:
    """They are equal in SQL, as are values that are no number."""
    builder = build(f"id long, p {kind}", "p")
    builder.append((1, -0.0), (2, 0.0), (3, 1.5), (4, float("nan")), (5, None))
    overwrite(builder.table, frame=builder.frame((6, 0.0), (7, float("nan"))), partitions="dynamic")
    assert [row[0] for row in builder.rows()] == [3, 5, 6, 7]
    overwrite(builder.table, frame=builder.frame((8, -0.0)), partitions="dynamic")
    assert [row[0] for row in builder.rows()] == [3, 5, 7, 8]


@pytest.mark.requirements("DV-26")
@pytest.mark.slow
def test_purging_rewrites_the_files_with_deleted_rows(build: Build, client: DeltaClient, spark: SparkSession) -> None:
    """Other files stay, and no row changes."""
    builder = build("id long")
    client.catalog.maintenance_policies.set_maintenance_rule(
        MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
    )
    builder.append(*[(i,) for i in range(10)])
    builder.append((10,), (11,))
    assert reorg(builder.table, spark=spark).num_removed_files == 0
    delete(builder.table, spark=spark, where="id = 4")
    other = _files(builder)[1]["path"] if _files(builder)[0]["deletionVector"] else _files(builder)[0]["path"]
    result = reorg(builder.table, spark=spark)
    assert (result.num_removed_files, result.num_added_files, result.num_rows) == (1, 1, 9)
    assert all(file["deletionVector"] is None for file in _files(builder))
    assert other in [file["path"] for file in _files(builder)]
    assert [row[0] for row in builder.rows()] == [0, 1, 2, 3, *range(5, 12)]
