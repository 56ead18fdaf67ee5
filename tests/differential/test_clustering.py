"""A clustered table of ours, in delta-spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from cm_delta_dagster.protocol.features.clustering import PROVIDER
from tests.differential.peers import DeltaSpark, canonical, published_copy


@pytest.mark.requirements("CLUST-1", "CLUST-2", "CLUST-3", "CLUST-5", "CLUST-6", "COLMAP-8")
@pytest.mark.peers
@pytest.mark.slow
def test_delta_spark_reads_our_clustered_table_and_goes_on_clustering_it(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    """By physical names, also after a column was renamed."""
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/ware", spark=spark) as lake:
        lake.maintenance.set_policy("main", "data_reorganization")
        frame = spark.range(0, 60, 1, 2).selectExpr("id % 7 as a", "named_struct('x', cast(id as string)) as s")
        table = lake.create_table_as(
            "main.test.t", frame, properties={"delta.columnMapping.mode": "name"}, cluster_by=["a", "s.x"]
        )
        table.optimize(target_size=table.snapshot().size_bytes // 3 + 1)
        table.append(frame.limit(3))
        table.alter.rename_column("a", "b")
        lake.client.wait_for_background()
        assert table.snapshot().clustering_columns == (("b",), ("s", "x"))
        expected = canonical(table.to_df().toArrow())
        copy = published_copy(table.location, tmp_path / "copy")
        (detail,) = delta_spark.sql(f"describe detail delta.`{copy}`").to_pylist()
        assert detail["clusteringColumns"] == ["b", "s.x"]
        assert "clustering" in detail["tableFeatures"]
        assert canonical(delta_spark.rows(copy, table.version())) == expected
        delta_spark.sql(f"insert into delta.`{copy}` values (99, named_struct('x', 'new'))")
        delta_spark.sql(f"optimize delta.`{copy}`", "select 1")
        theirs = lake.path_table(str(copy))
        assert theirs.snapshot().clustering_columns == (("b",), ("s", "x"))
        assert PROVIDER in theirs.scan().files()["clusteringProvider"].to_pylist(), "delta-spark leaves our files"
        delta_spark.sql(f"alter table delta.`{copy}` cluster by (b)")
        theirs = lake.path_table(str(copy))
        assert theirs.snapshot().clustering_columns == (("b",),)
        assert canonical(theirs.to_df(where="b <> 99").toArrow()) == expected
        assert theirs.to_df(where="b = 99").count() == 1
