"""Clones of ours read by delta-spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from tests.differential.peers import DeltaSpark, canonical, published_copy

pytestmark = [pytest.mark.peers, pytest.mark.slow]


@pytest.mark.exhaustive
def test_delta_spark_reads_the_rows_of_clones(delta_spark: DeltaSpark, spark: SparkSession, tmp_path: Path) -> None:
    """A shallow clone names files of our table and of a table with deletion vectors that delta-spark wrote."""
    theirs = tmp_path / "the irs"
    delta_spark.sql(
        f"create table delta.`{theirs}` (id bigint, p string) using delta partitioned by (p) "
        "tblproperties ('delta.enableDeletionVectors' = 'true')",
        f"insert into delta.`{theirs}` select /*+ repartition(1) */ id, 'a b' from range(10)",
        f"delete from delta.`{theirs}` where id < 3",
    )
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/ware house", spark=spark) as lake:
        for mode in ("shallow", "deep"):
            lake.clone(str(theirs), f"main.a.{mode}", mode=mode)
            copy = lake.table(f"main.a.{mode}")
            assert copy.files().column("deletionVector").null_count == 0
            expected = canonical(copy.to_arrow())
            assert expected == canonical(copy.to_df().toArrow()) == canonical(delta_spark.rows(theirs, 2))
            lake.client.wait_for_background()
            readable = published_copy(copy.location, tmp_path / mode)
            assert canonical(delta_spark.rows(readable, 0)) == expected
