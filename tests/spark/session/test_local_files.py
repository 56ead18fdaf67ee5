"""The local file system of a session sets permissions in the Java process, as Hadoop's own does by ``chmod``."""

from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.spark.session.local_files import set_permissions_without_processes
from tests.support.builders import TableBuilder


def _java(spark: SparkSession, name: str) -> Any:
    gateway: Any = spark.sparkContext._gateway
    return JavaClass(name, gateway._gateway_client)


def _settings(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext  # The Java objects of a context have no types.
    return context._jsc.hadoopConfiguration()


def _local(spark: SparkSession) -> Any:
    return _java(spark, "org.apache.hadoop.fs.FileSystem").getLocal(_settings(spark))


def test_a_write_to_local_files_replaces_the_file_system(client: DeltaClient, spark: SparkSession) -> None:
    """Rows are written and read through it."""
    builder = TableBuilder(client, spark, "id long")
    builder.append((1,), (2,))
    assert _local(spark).getClass().getName() == "cm_delta_dagster.LocalFiles"
    assert sorted(row.id for row in spark.read.parquet(builder.table.location).collect()) == [1, 2]


@pytest.mark.parametrize("mode", ["644", "600", "664", "755", "1777"])
def test_permissions_are_those_of_chmod(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    set_permissions_without_processes(spark)
    folder = tmp_path / "folder"
    folder.mkdir()
    permission = _java(spark, "org.apache.hadoop.fs.permission.FsPermission")(mode)
    _local(spark).setPermission(_java(spark, "org.apache.hadoop.fs.Path")(f"file://{folder}"), permission)
    assert oct(folder.stat().st_mode)[-4:] == mode.rjust(4, "0")


def test_new_files_have_the_permissions_that_hadoop_gives(spark: SparkSession, tmp_path: Path) -> None:
    path = _java(spark, "org.apache.hadoop.fs.Path")
    files = {name: path(f"file://{tmp_path}/{name}") for name in ("theirs", "ours")}
    theirs = _java(spark, "org.apache.hadoop.fs.LocalFileSystem")()
    theirs.initialize(_java(spark, "java.net.URI")("file:///"), _settings(spark))
    theirs.create(files["theirs"]).close()
    set_permissions_without_processes(spark)
    _local(spark).create(files["ours"]).close()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode
