"""OPTIMIZE that orders rows: clustering of clustered tables, and Z-order."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import as_predicate
from cm_delta_dagster.operations.maintenance.arrangement import COLUMNS_TAG, RUN_TAG, Arrangement, files_to_arrange
from cm_delta_dagster.operations.maintenance.optimize import optimize, plan_optimize
from cm_delta_dagster.operations.maintenance.optimize_plan import OptimizeOutcome, OptimizeResult
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.operations.tables.clustering import cluster_by
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.write import append
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table, removes_of, table_to_adds
from cm_delta_dagster.protocol.features.clustering import PROVIDER
from cm_delta_dagster.protocol.features.column_specs import Column, schema_of_columns
from cm_delta_dagster.protocol.features.identity_columns import Identity
from cm_delta_dagster.protocol.features.row_tracking import (
    ENABLED,
    MATERIALIZED_ROW_COMMIT_VERSION,
    MATERIALIZED_ROW_ID,
)
from cm_delta_dagster.protocol.schema.types import LONG
from cm_delta_dagster.protocol.statistics.curve_ranges import LayoutColumn
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.builders import TableBuilder
from tests.support.creation import create_table
from tests.support.lake import vector

ROWS = 2000


@pytest.fixture
def build(tmp_path: Path, spark: SparkSession) -> Iterator[Callable[..., TableBuilder]]:
    """Creates tables whose optimization is allowed."""
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}/own")
    client = DeltaClient(catalog, stores=Stores())
    rule = MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
    catalog.maintenance_policies.set_maintenance_rule(rule)

    def make(columns: str = "a double, b double, name string", **arguments: Any) -> TableBuilder:
        return TableBuilder(client, spark, columns, **arguments)

    yield make
    client.close()


def fill(lake: TableBuilder, *, seed: int = 1, rows: int = ROWS) -> None:
    """Append random values of columns ``a`` and ``b``."""
    frame = lake.spark.range(0, rows, 1, 2).select(
        F.rand(seed).alias("a"), F.rand(seed + 1).alias("b"), F.col("id").cast("string").alias("name")
    )
    append(lake.table, frame=frame)


def run(lake: TableBuilder, *, files: int = 1, **arguments: Any) -> OptimizeResult:
    """OPTIMIZE into about ``files`` files."""
    target = lake.table.snapshot().size_bytes // files + 1
    return optimize(lake.table, spark=lake.spark, target_size=target, **arguments)


def skipped(lake: TableBuilder, column: str, *, lookups: int = 50) -> float:
    """The share of files that a lookup of one value of the column skips, on average."""
    snapshot = lake.table.snapshot()
    shares = []
    for value in np.linspace(0.005, 0.995, lookups):
        predicate = as_predicate(f"{column} = {value}", snapshot.schema)
        shares.append(1 - snapshot.matching_files(predicate).num_rows / snapshot.num_files)
    return float(np.mean(shares))


def providers(lake: TableBuilder) -> list[str | None]:
    found: list[str | None] = lake.table.snapshot().files["clusteringProvider"].to_pylist()
    return sorted(found, key=str)


@pytest.mark.requirements("CLUST-3", "CLUST-5", "CLUST-7", "OPT-6", "OPT-2")
def test_clustering_orders_rows_by_all_columns_and_marks_the_files(build: Callable[..., TableBuilder]) -> None:
    lake = build(cluster_by=["a", "b"], properties={"delta.dataSkippingStatsColumns": "a,b"})
    fill(lake)
    assert providers(lake) == [None, None], "appended rows are not clustered"
    before = lake.rows()
    result = run(lake, files=8)
    assert (result.outcome, result.num_removed_files, result.num_rows) == (OptimizeOutcome.COMMITTED, 2, ROWS)
    assert result.num_added_files == 8
    assert lake.rows() == before
    assert providers(lake) == [PROVIDER] * 8
    assert min(skipped(lake, "a"), skipped(lake, "b")) > 0.4
    snapshot = lake.table.snapshot()
    assert snapshot.files["dataChange"].to_pylist() == [False] * 8
    (entry,) = history(lake.table, limit=1)
    assert entry.commit_info is not None
    assert entry.commit_info.operation == "OPTIMIZE"
    parameters = dict(entry.commit_info.operation_parameters or {})
    assert (parameters["clusterBy"], parameters["zOrderBy"]) == ('["a", "b"]', "[]")


def clustered(path: str, size: int, run: str = "r1", *, columns: str = '["a"]', **more: Any) -> AddFile:
    tags = {RUN_TAG: run, COLUMNS_TAG: columns}
    return add_file(path, size=size, clustering_provider=PROVIDER, tags=tags, stats='{"numRecords":100}', **more)


def chosen(*files: AddFile, full: bool = False) -> list[str]:
    """Files of a table clustered by ``a`` that a run with a target of 100 bytes clusters."""
    columns = (LayoutColumn(path=("a",), type=LONG),)
    arrangement = Arrangement(columns=columns, stored=(("a",),), clusters=True)
    found = files_to_arrange(adds_to_table(files), arrangement, target_size=100, full=full)
    return sorted(found["path"].to_pylist())


@pytest.mark.requirements("CLUST-6", "CLUST-7")
def test_files_that_are_clustered_by_the_same_columns_are_left() -> None:
    new = add_file("new", size=500, stats='{"numRecords":100}')
    other = add_file("other", size=500, clustering_provider="liquid", stats='{"numRecords":100}')
    large = [clustered("l1", 60), clustered("l2", 60)]
    assert chosen() == chosen(*large, other) == []
    assert chosen(*large, other, new) == ["new"]
    assert chosen(*large, other, new, full=True) == ["l1", "l2", "new", "other"]
    assert chosen(*large, clustered("b", 500, columns='["b"]')) == ["b"]
    many_deleted = clustered("sparse", 500, deletion_vector=vector(cardinality=5))
    assert chosen(*large, many_deleted) == ["sparse"]


@pytest.mark.requirements("CLUST-6")
def test_runs_of_less_than_one_file_are_clustered_again_with_others() -> None:
    small, second, large = clustered("s", 40, "r2"), clustered("t", 30, "r3"), clustered("l", 100)
    assert chosen(small, large) == []
    assert chosen(small, large, add_file("new", size=5, stats='{"numRecords":1}')) == ["new", "s"]
    assert chosen(small, second, large) == ["s", "t"]


@pytest.mark.requirements("CLUST-6")
@pytest.mark.slow
def test_a_second_run_leaves_clustered_files_and_clusters_new_ones(build: Callable[..., TableBuilder]) -> None:
    lake = build(cluster_by=["a", "b"])
    fill(lake)
    target = lake.table.snapshot().size_bytes // 4 + 1
    optimize(lake.table, spark=lake.spark, target_size=target)
    clustered = set(lake.table.snapshot().files["path"].to_pylist())
    assert optimize(lake.table, spark=lake.spark, target_size=target).outcome is OptimizeOutcome.NOTHING_TO_DO
    fill(lake, seed=9, rows=100)
    result = optimize(lake.table, spark=lake.spark, target_size=target)
    assert (result.num_removed_files, result.num_rows) == (2, 100)
    assert clustered <= set(lake.table.snapshot().files["path"].to_pylist())
    # The last run made less than one file: its rows are clustered again with the next ones.
    fill(lake, seed=10, rows=50)
    result = optimize(lake.table, spark=lake.spark, target_size=target)
    assert (result.num_removed_files, result.num_added_files, result.num_rows) == (3, 1, 150)
    full = optimize(lake.table, spark=lake.spark, target_size=target, full=True)
    assert full.num_rows == ROWS + 150
    assert not clustered & set(lake.table.snapshot().files["path"].to_pylist())


@pytest.mark.requirements("CLUST-6", "CLUST-7")
@pytest.mark.slow
def test_files_of_other_columns_are_clustered_again_and_those_of_others_are_left(
    build: Callable[..., TableBuilder],
) -> None:
    """Changing the columns alone rewrites nothing."""
    lake = build(cluster_by=["a"])
    fill(lake, rows=100)
    run(lake)
    cluster_by(lake.table, columns=["b"])
    assert providers(lake) == [PROVIDER]
    assert plan_optimize(lake.table).num_files == 1
    snapshot = lake.table.snapshot()
    transaction = lake.table.start_transaction(snapshot, operation="OPTIMIZE")
    (add,) = table_to_adds(snapshot.files)
    transaction.remove_files(removes_of(snapshot.files, data_change=False))
    transaction.add_files([replace(add, path=f"./{add.path}", data_change=False, clustering_provider="liquid")])
    transaction.commit()
    assert plan_optimize(lake.table).num_files == 0
    assert plan_optimize(lake.table, full=True).num_files == 1


@pytest.mark.requirements("OPT-5")
def test_z_order_puts_near_values_of_all_columns_together(build: Callable[..., TableBuilder]) -> None:
    lake = build()
    fill(lake)
    before = lake.rows()
    assert skipped(lake, "a") < 0.1
    result = run(lake, files=8, z_order_by=["A", "b"])
    assert (result.num_removed_files, result.num_added_files) == (2, 8)
    assert lake.rows() == before
    assert providers(lake) == [None] * 8
    assert min(skipped(lake, "a"), skipped(lake, "b")) > 0.4
    (entry,) = history(lake.table, limit=1)
    assert entry.commit_info is not None
    assert dict(entry.commit_info.operation_parameters or {})["zOrderBy"] == '["a", "b"]'


@pytest.mark.requirements("OPT-5", "OPT-1")
@pytest.mark.slow
def test_z_order_stays_within_partitions(build: Callable[..., TableBuilder]) -> None:
    lake = build("a int, p int", partition_by=["p"])
    for _ in range(2):
        lake.append(*[(number, number % 2) for number in range(20)])
    before = lake.rows()
    result = optimize(lake.table, spark=lake.spark, z_order_by="a", where="p = 1")
    assert (result.num_bins, result.num_removed_files, result.num_added_files) == (1, 2, 1)
    result = optimize(lake.table, spark=lake.spark, z_order_by="a")
    assert (result.num_bins, result.num_removed_files, result.num_added_files) == (2, 3, 2)
    assert lake.rows() == before


@pytest.mark.requirements("OPT-5", "OPT-6")
def test_what_cannot_be_ordered_is_refused(build: Callable[..., TableBuilder]) -> None:
    plain, clustered = build(), build(cluster_by=["a"])
    refused: list[tuple[TableBuilder, dict[str, Any], str]] = [
        (plain, {"z_order_by": "nope"}, "no column 'nope'"),
        (plain, {"full": True}, "no clustering columns"),
        (plain, {"z_order_by": ["a", "a"]}, "twice"),
        (clustered, {"z_order_by": "b"}, "clustered table and cannot be Z-ordered"),
        (clustered, {"where": "a > 1"}, "partition"),
    ]
    for lake, arguments, message in refused:
        with pytest.raises(InvalidArgumentError, match=message):
            plan_optimize(lake.table, **arguments)


@pytest.mark.requirements("ROWTRK-13", "CLUST-5", "IDENT-1", "GEN-1", "OPT-4")
@pytest.mark.slow
def test_ordered_rows_keep_their_ids_and_their_computed_values(build: Callable[..., TableBuilder]) -> None:
    """Deleted rows go, and no value is computed again."""
    lake = build("a double", cluster_by=["a"])
    listed = [
        Column("k", "bigint", identity=Identity()),
        Column("a", "double"),
        Column("g", "double", generated="a * 2"),
    ]
    lake.table = create_table(
        lake.client, identifier="main.test.computed", schema=schema_of_columns(listed), clustering_columns=["a"]
    )
    lake.with_properties(
        {ENABLED: "true", MATERIALIZED_ROW_ID: "_row-id-1", MATERIALIZED_ROW_COMMIT_VERSION: "_row-version-1"},
        "rowTracking",
    )
    append(lake.table, frame=lake.spark.range(0, 40, 1, 2).select(F.rand(3).alias("a")))
    delete(lake.table, spark=lake.spark, where="k = 1")
    columns = ["k", "a", "g", "_row_id", "_row_commit_version"]
    before = lake.rows(columns=columns)
    result = run(lake, files=2)
    assert (result.num_added_files, result.num_rows) == (2, 39)
    assert lake.table.snapshot().files["deletionVector"].null_count == 2
    assert lake.rows(columns=columns) == before


@pytest.mark.requirements("CLUST-5", "OPT-6")
@pytest.mark.exhaustive
def test_four_clustering_columns_let_a_lookup_skip_more_than_half_of_the_files(
    build: Callable[..., TableBuilder], spark: SparkSession
) -> None:
    """With 64 files at least 43 % on each column and 54 % on average, where a sort by the first has 25 %."""
    names = ["c0", "c1", "c2", "c3"]
    columns = ", ".join(f"{name} double" for name in names)
    lake, first = build(columns, cluster_by=names), build(columns, cluster_by=["c0"])
    frame = spark.range(0, 200_000, 1, 4).select(*[F.rand(seed).alias(name) for seed, name in enumerate(names)])
    shares = []
    for each in (lake, first):
        append(each.table, frame=frame)
        result = run(each, files=64)
        assert result.num_added_files == 64
        shares.append([skipped(each, name, lookups=100) for name in names])
    print("skipped:", shares)
    assert min(shares[0]) >= 0.43
    assert np.mean(shares[0]) >= 0.54
    assert np.mean(shares[1]) == pytest.approx(0.25, abs=0.02)
