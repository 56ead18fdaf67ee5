"""Golden tables are adopted, appended to and released; delta-spark then reads the rows that this package reads."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import DeltaTable, connect
from cm_delta_dagster.errors import CmDeltaError
from tests.differential.peers import DeltaSpark, canonical, our_rows
from tests.support.golden_tables import unpack_golden_tables

PARTS = 60


def appended(table: DeltaTable) -> bool:
    """Append a row that the table has; False if no row of it can be written, as if the table has identity columns."""
    if not table.scan().count():
        return False
    try:
        table.append(table.to_df().limit(1))
    except CmDeltaError:
        return False
    return True


@pytest.mark.requirements("CM-2", "CM-8")
@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.exhaustive) for part in range(1, PARTS))])
def test_delta_spark_reads_adopted_appended_and_released_tables(
    part: int, spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    found = Counter[str]()
    logs = sorted(unpack_golden_tables(tmp_path / "golden").rglob("_delta_log"))[part::PARTS]
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark) as lake:
        for number, log in enumerate(logs):
            copy, name = tmp_path / "tables" / f"t{number}", f"main.golden.t{number}"
            shutil.copytree(log.parent, copy, symlinks=True)
            try:
                before = delta_spark.sql(f"select count(*) from delta.`{copy}`")[0][0].as_py()
            except RuntimeError:
                found["unreadable by delta-spark"] += 1
                continue
            try:
                table = lake.onboarding.adopt(str(copy), name)
            except CmDeltaError as error:
                found[type(error).__name__] += 1
                continue
            added = appended(table)
            version = table.version()
            lake.onboarding.release(name)
            theirs = delta_spark.sql(f"select * from delta.`{copy}`")
            assert theirs.num_rows == before + added, log.parent
            assert canonical(theirs) == canonical(our_rows(spark, copy, version)), log.parent
            found["appended" if added else "as it was"] += 1
    print(dict(found))
    assert found["appended"] > 0
