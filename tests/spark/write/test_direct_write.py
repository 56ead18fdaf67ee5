"""Writing data files to their final place: the same rows, names and errors as through a committer."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.errors import InvalidDataError, ObjectNotFoundError
from cm_delta_dagster.spark.session.errors import Violation, spark_errors, violation_text
from cm_delta_dagster.spark.write.direct_write import SETTING, NotAvailableError, may_write_directly, write_directly

CALL_SITE = "callSite.short"


def written(frame: DataFrame, root: Path, *partition_columns: str) -> list[str]:
    """Paths below ``root`` as the tasks report them; each file has the size that is reported."""
    options = {"compression": "zstd"}
    files = write_directly(frame, directory=f"file://{root}", options=options, partition_columns=partition_columns)
    paths = [Path(file.location.removeprefix("file://")) for file in files]
    assert [file.size for file in files] == [path.stat().st_size for path in paths]
    assert sorted(paths) == sorted(root.rglob("*.parquet"))
    return [str(path.relative_to(root)) for path in paths]


def rows_of(spark: SparkSession, root: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(root)).selectExpr("id", "cast(day AS STRING)").collect())


def test_a_direct_write_has_the_rows_and_directories_of_a_committer(spark: SparkSession, tmp_path: Path) -> None:
    days = "array('plain', 'a b', 'x=y/z', '50%', 'ä', NULL)[id % 6]"
    frame = spark.range(0, 24, 1, 3).selectExpr("id", f"{days} AS day")
    paths = written(frame, tmp_path / "direct ü", "day")
    frame.write.partitionBy("day").parquet(str(tmp_path / "committed"))
    expected = {path.parent.name for path in (tmp_path / "committed").rglob("*.parquet")}
    assert {path.rpartition("/")[0] for path in paths} == expected and len(paths) == 18
    assert rows_of(spark, tmp_path / "direct ü") == rows_of(spark, tmp_path / "committed")
    one = pq.ParquetFile(tmp_path / "direct ü" / paths[0])
    assert one.metadata.row_group(0).column(0).compression == "ZSTD"


def test_files_of_one_task_have_different_names(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "2")
    try:
        paths = written(spark.range(0, 10, 1, 1).toDF("id"), tmp_path / "t")
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")
    assert len(set(paths)) == 5


def test_a_failed_direct_write_deletes_its_files_and_has_the_same_error(spark: SparkSession, tmp_path: Path) -> None:
    text = violation_text(Violation.NOT_NULL, "a null")
    # The task that fails does so long after the other one has written its file.
    late = "substr(concat_ws('', java_method('java.lang.Thread', 'sleep', 3000L)), 1, 0)"
    frame = spark.range(0, 4, 1, 2).selectExpr(f"IF(id = 3, raise_error(concat({late}, '{text}')), id) AS id")
    with pytest.raises(InvalidDataError, match=r"^a null$"), spark_errors("writing"):
        write_directly(frame, directory=f"file://{tmp_path}/t", options={}, partition_columns=[])
    assert list(tmp_path.rglob("*.parquet")) == []
    assert spark.sparkContext.getLocalProperty(CALL_SITE) is None


def test_a_frame_is_computed_again_for_each_write(spark: SparkSession, tmp_path: Path) -> None:
    """Also after an action on it, whose results it keeps, and for rows that a command of SQL returned."""
    spark.range(3).write.parquet(str(tmp_path / "source"))
    frame = spark.sql(f"SELECT id FROM parquet.`{tmp_path}/source`").repartition(2)
    assert len(frame.collect()) == 3
    for path in (tmp_path / "source").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(ObjectNotFoundError), spark_errors("writing"):
        write_directly(frame, directory=f"file://{tmp_path}/gone", options={}, partition_columns=[])
    assert written(spark.sql("SHOW CATALOGS"), tmp_path / "catalogs")


def test_a_session_can_switch_direct_writes_off(spark: SparkSession) -> None:
    assert may_write_directly(spark)
    spark.conf.set(SETTING, "false")
    try:
        assert not may_write_directly(spark)
    finally:
        spark.conf.unset(SETTING)


@pytest.mark.parametrize(
    "manager", ["AbortableStreamBasedCheckpointFileManager", "FileContextBasedCheckpointFileManager", "NoSuchManager"]
)
def test_a_class_for_checkpoints_of_streams_does_not_matter(spark: SparkSession, tmp_path: Path, manager: str) -> None:
    """Such classes are set for object stores, and the report of the tasks is a file on this machine."""
    name = "spark.sql.streaming.checkpointFileManagerClass"
    spark.conf.set(name, f"org.apache.spark.internal.io.cloud.{manager}")
    try:
        assert written(spark.range(3).toDF("id"), tmp_path / "t")
        assert spark.conf.get(name) == f"org.apache.spark.internal.io.cloud.{manager}"
    finally:
        spark.conf.unset(name)


def test_a_missing_partition_column_is_found_before_a_row_is_written(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotAvailableError, match="no column of the name day"):
        write_directly(
            spark.range(3).toDF("id"), directory=f"file://{tmp_path}/t", options={}, partition_columns=["day"]
        )
    assert list(tmp_path.iterdir()) == []


def test_the_description_of_the_user_stays(spark: SparkSession, tmp_path: Path) -> None:
    spark.sparkContext.setLocalProperty(CALL_SITE, "my job")
    try:
        assert written(spark.range(3).toDF("id"), tmp_path / "t")
        assert spark.sparkContext.getLocalProperty(CALL_SITE) == "my job"
    finally:
        spark.sparkContext.setLocalProperty(CALL_SITE, None)  # type: ignore[arg-type]  # None removes it.
