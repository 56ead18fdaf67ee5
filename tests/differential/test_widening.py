"""Schema evolution that makes columns wider: our types, recorded changes and rows are those of delta-spark."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import connect
from cm_delta_dagster.storage.stores import Stores
from tests.differential.peers import DeltaSpark, canonical
from tests.golden.check_dml import clean_schema
from tests.support.path_snapshots import load_path_snapshot
from tests.support.widenings import COLUMNS, OFFERED, STORED

pytestmark = pytest.mark.peers

_STATEMENTS = (
    f"CREATE TABLE {{t}} (k int, {COLUMNS}) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true', "
    "'delta.feature.timestampNtz' = 'supported')",
    f"INSERT INTO {{t}} SELECT 1, {STORED} UNION ALL SELECT 2, {STORED}",
)
_WRITES = (
    f"MERGE WITH SCHEMA EVOLUTION INTO {{t}} t USING (SELECT 1 AS k, {OFFERED} UNION ALL SELECT 3, {OFFERED}) s "
    "ON t.k = s.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    f"INSERT WITH SCHEMA EVOLUTION INTO {{t}} SELECT 3, {OFFERED}",
    f"INSERT WITH SCHEMA EVOLUTION INTO {{t}} BY NAME SELECT {OFFERED}, 3 AS k",
)


def _schema(text: str) -> Any:
    return clean_schema(text)


@pytest.mark.requirements("UP-TW-2", "UP-TW-3", "UP-TW-5")
@pytest.mark.parametrize("write", _WRITES)
def test_evolution_widens_the_types_that_delta_spark_widens(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path, write: str
) -> None:
    theirs = f"delta.`{tmp_path}/theirs`"
    with connect(f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/ware", spark=spark) as lake:
        for statement in (*_STATEMENTS, write):
            lake.sql(statement.format(t="main.wide.ours"))
            delta_spark.sql(statement.format(t=theirs))
        table = lake.table("main.wide.ours")
        found = load_path_snapshot(Stores(), f"file://{tmp_path}/theirs")
        ours = table.snapshot().metadata.schema_string
        assert _schema(ours) == _schema(found.metadata.schema_string)
        assert canonical(table.to_arrow()) == canonical(delta_spark.sql(f"SELECT * FROM {theirs}"))
