"""Clustering columns: at creation, by ALTER TABLE, and in writes."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alterations import DropColumns, RenameColumn
from cm_delta_dagster.operations.tables.clustering import cluster_by
from cm_delta_dagster.operations.tables.restore import restore
from cm_delta_dagster.operations.writing.write import overwrite
from cm_delta_dagster.protocol.actions.file_columns import removes_of, table_to_adds
from cm_delta_dagster.protocol.features.clustering import DOMAIN
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.remedies import SetClusteringColumns
from tests.support.builders import TableBuilder

COLUMNS = "id long, s struct<x: string, y: int>, z boolean"


@pytest.fixture
def build(client: DeltaClient, spark: SparkSession) -> Callable[..., TableBuilder]:
    return lambda columns=COLUMNS, **arguments: TableBuilder(client, spark, columns, **arguments)


def _stored(lake: TableBuilder) -> Any:
    return json.loads(lake.table.snapshot().domains[DOMAIN].configuration)


@pytest.mark.requirements("CLUST-1", "CLUST-2", "CLUST-7")
def test_a_table_is_created_with_clustering_columns(build: Callable[..., TableBuilder]) -> None:
    lake = build(cluster_by=["ID", "s.X"])
    snapshot = lake.table.snapshot()
    assert {"clustering", "domainMetadata"} <= set(snapshot.protocol.writer_features or ())
    assert "clustering" not in (snapshot.protocol.reader_features or ())
    assert _stored(lake) == {"clusteringColumns": [["id"], ["s", "x"]]}
    assert snapshot.clustering_columns == (("id",), ("s", "x"))
    (entry,) = history(lake.table)
    assert entry.commit_info is not None
    assert dict(entry.commit_info.operation_parameters or {})["clusterBy"] == '["ID", "s.X"]'
    lake.append((1, ("a", 1), True))
    assert lake.table.snapshot().files["clusteringProvider"].to_pylist() == [None]
    assert lake.rows() == [(1, ("a", 1), True)]


@pytest.mark.requirements("CLUST-1")
def test_creation_refuses_what_cannot_be_clustered(build: Callable[..., TableBuilder]) -> None:
    """Nothing is created."""
    for arguments, message in (
        ({"cluster_by": ["id"], "partition_by": ["z"]}, "partitioned by z"),
        ({"cluster_by": ["z"]}, "no bounds of type boolean"),
        ({"cluster_by": ["no"]}, "no column 'no'"),
        ({"cluster_by": ["id"], "properties": {"delta.dataSkippingNumIndexedCols": "0"}}, "no statistics"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            build(name="main.test.refused", **arguments)
    assert build(name="main.test.refused").table.snapshot().version == 0


@pytest.mark.requirements("CLUST-1", "CLUST-2", "CLUST-7")
def test_columns_can_be_set_changed_and_removed(build: Callable[..., TableBuilder]) -> None:
    """Only the domain changes."""
    lake = build()
    lake.append((1, ("a", 1), True))
    result = cluster_by(lake.table, columns=["id"])
    assert result.snapshot.clustering_columns == (("id",),)
    assert "clustering" in (result.snapshot.protocol.writer_features or ())
    assert cluster_by(lake.table, columns=["Id"]).versions == ()
    assert cluster_by(lake.table, columns=["s.y", "id"]).snapshot.clustering_columns == (("s", "y"), ("id",))
    (entry,) = history(lake.table, limit=1)
    assert entry.commit_info is not None and entry.commit_info.operation == "CLUSTER BY"
    assert entry.commit_info.operation_parameters == {
        "oldClusteringColumns": "id", "newClusteringColumns": "s.y,id",
    }  # fmt: skip
    assert cluster_by(lake.table, columns=()).snapshot.clustering_columns == ()
    assert _stored(lake) == {"clusteringColumns": []}
    assert cluster_by(lake.table, columns=()).versions == ()
    assert lake.table.snapshot().num_files == 1
    lake.append((2, ("b", 2), False))


@pytest.mark.requirements("CLUST-1", "CLUST-4")
def test_altering_refuses_partitioned_tables_and_files_without_statistics(build: Callable[..., TableBuilder]) -> None:
    with pytest.raises(InvalidArgumentError, match="partitioned by z"):
        cluster_by(build(partition_by=["z"]).table, columns=["id"])
    lake = build()
    lake.append((1, ("a", 1), True))
    snapshot = lake.table.snapshot()
    transaction = lake.table.start_transaction(snapshot, operation="TEST")
    (add,) = table_to_adds(snapshot.files)
    transaction.remove_files(removes_of(snapshot.files, data_change=False))
    without = replace(add, path=f"./{add.path}", data_change=False, stats='{"numRecords":1,"nullCount":{"id":0}}')
    transaction.add_files([without])
    transaction.commit()
    assert cluster_by(lake.table, columns=["id"]).versions
    with pytest.raises(InvalidArgumentError, match=r"'s.x': 1 of 1 files have no statistics.*z_order_by"):
        cluster_by(lake.table, columns=["s.x"])


@pytest.mark.requirements("CLUST-3")
def test_clustering_columns_have_statistics_beyond_the_limit(build: Callable[..., TableBuilder]) -> None:
    """Also after the limit was lowered."""
    lake = build(cluster_by=["s.y"]).with_properties({"delta.dataSkippingNumIndexedCols": "1"})
    lake.append((1, ("a", 7), True))
    (stats,) = lake.table.snapshot().files["stats"].to_pylist()
    assert json.loads(stats)["minValues"] == {"id": 1, "s": {"y": 7}}


def test_an_overwrite_keeps_the_clustering_columns_or_is_refused(build: Callable[..., TableBuilder]) -> None:
    lake = build(cluster_by=["id"])
    lake.append((1, ("a", 1), True))
    other = lake.frame((1, "x"), columns="id int, name string")
    assert overwrite(lake.table, frame=other, schema_mode=SchemaMode.OVERWRITE).snapshot.clustering_columns == (
        ("id",),
    )
    version = lake.table.snapshot().version
    for columns in ("name string", "ID long"):
        rows = lake.frame(("x",) if columns.startswith("name") else (1,), columns=columns)
        with pytest.raises(SchemaMismatchError, match="lacks the clustering column 'id'") as refused:
            overwrite(lake.table, frame=rows, schema_mode=SchemaMode.OVERWRITE)
        assert refused.value.remedy == SetClusteringColumns(table=str(lake.table.identifier))
    assert lake.table.snapshot().version == version


@pytest.mark.requirements("CLUST-2", "COLMAP-8")
def test_a_renamed_column_stays_a_clustering_column_and_it_cannot_be_dropped(
    build: Callable[..., TableBuilder],
) -> None:
    """The domain has physical names."""
    lake = build(cluster_by=["id", "s.x"], properties={"delta.columnMapping.mode": "name"})
    stored = _stored(lake)
    assert stored["clusteringColumns"][0] != ["id"]
    renamed = alter_table(lake.table, RenameColumn("s.x", "w")).snapshot
    assert renamed.clustering_columns == (("id",), ("s", "w"))
    assert _stored(lake) == stored
    for column in ("id", "s.w", "s"):
        with pytest.raises(InvalidArgumentError, match=r"clustered by it.*cluster_by"):
            alter_table(lake.table, DropColumns([column]))
    alter_table(lake.table, DropColumns(["s.y"]))
    cluster_by(lake.table, columns=["id"])
    assert alter_table(lake.table, DropColumns(["s"])).snapshot.clustering_columns == (("id",),)


@pytest.mark.requirements("RESTORE-1", "CLUST-7")
def test_a_restore_brings_back_the_clustering_columns(build: Callable[..., TableBuilder]) -> None:
    lake = build()
    lake.append((1, ("a", 1), True))
    cluster_by(lake.table, columns=["id"])
    cluster_by(lake.table, columns=["s.y"])
    restore(lake.table, version=2)
    assert lake.table.snapshot().clustering_columns == (("id",),)
    restore(lake.table, version=1)
    assert lake.table.snapshot().clustering_columns == ()
    assert cluster_by(lake.table, columns=["id"]).versions
