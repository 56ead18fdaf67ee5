"""Holds while storage is out of reach, after a catalog is restored from its backup, and of tables that are renamed."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.catalog.holds import HoldState
from cm_delta_dagster.errors import CommitConflictError, InvalidArgumentError, TableStorageMissingError

ORDERS = "main.sales.orders"


def opened(folder: Path, spark: SparkSession) -> Connection:
    return connect(f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/warehouse", spark=spark)


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with opened(tmp_path, spark) as connection:
        connection.create_table_as(ORDERS, rows(spark, 1))
        connection.settings.set_commit_mode(ORDERS, "staged")
        yield connection


def rows(spark: SparkSession, *ids: int) -> DataFrame:
    return spark.createDataFrame([(number,) for number in ids], "id int").coalesce(1)


def ids(lake: Connection, name: str = ORDERS) -> list[int]:
    return sorted(lake.table(name).to_arrow()["id"].to_pylist())


@pytest.mark.requirements("WAP-1", "WAP-2")
@pytest.mark.parametrize("files", ["**/*.parquet", "_delta_log/_staged_commits/*"])
def test_a_hold_stays_while_its_files_are_out_of_reach(lake: Connection, spark: SparkSession, files: str) -> None:
    root = Path(lake.table(ORDERS).location.removeprefix("file://"))
    earlier = set(root.glob(files))
    held = lake.table(ORDERS).append(rows(spark, 2), hold=True)
    (file,) = set(root.glob(files)) - earlier
    away = file.rename(file.with_suffix(".away"))
    with pytest.raises(TableStorageMissingError, match=r"do(es)? not exist.* the hold stays"):
        held.ratify()
    assert lake.rules.hold(held.hold_id).state is HoldState.PENDING
    away.rename(file)
    assert held.ratify().version == 1 and ids(lake) == [1, 2]


@pytest.mark.requirements("WAP-2", "MTX-6")
def test_a_hold_that_was_ratified_after_the_backup_of_the_catalog_is_not_committed_again(
    lake: Connection, spark: SparkSession, tmp_path: Path
) -> None:
    held = lake.table(ORDERS).append(rows(spark, 2), hold=True)
    lake.recovery.backup(tmp_path / "backup.db")
    held.ratify()
    lake.table(ORDERS).delete("id = 2")
    lake.table(ORDERS).maintenance.publish()
    lake.close()
    for file in tmp_path.glob("catalog.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    shutil.copy(tmp_path / "backup.db", tmp_path / "catalog.db")
    with opened(tmp_path, spark) as restored:
        restored.recovery.recover(ORDERS)
        with pytest.raises(CommitConflictError, match="was committed as version 1"):
            restored.rules.hold(held.hold_id).ratify()
        assert restored.rules.held() == () and ids(restored) == [1]


@pytest.mark.requirements("WAP-1", "MTX-6")
def test_a_recovery_does_not_record_the_staged_file_of_a_hold(lake: Connection, spark: SparkSession) -> None:
    held = lake.table(ORDERS).append(rows(spark, 2), hold=True)
    (table,) = lake.recovery.plan_recover(ORDERS).tables
    (staged,) = table.staged
    assert staged.problem is not None and held.hold_id in staged.problem
    with pytest.raises(InvalidArgumentError, match=f"cannot be recorded: it is the held commit {held.hold_id}"):
        lake.recovery.recover(ORDERS, take_staged=[staged.name])
    assert ids(lake) == [1]
    assert held.ratify().version == 1 and ids(lake) == [1, 2]


@pytest.mark.requirements("WAP-2")
@pytest.mark.parametrize("audited", [{"orders": 1}, {ORDERS: "1"}, {ORDERS: None}, {ORDERS: True}, [1], "1"])
def test_what_is_not_a_version_of_a_table_of_the_hold_is_refused(
    lake: Connection, spark: SparkSession, audited: Any
) -> None:
    held = lake.table(ORDERS).append(rows(spark, 2), hold=True)
    with pytest.raises(InvalidArgumentError, match="audited"):
        held.ratify(audited=audited)
    assert lake.rules.held() and ids(lake) == [1]


@pytest.mark.requirements("WAP-1", "WAP-2")
def test_a_hold_follows_the_table_that_is_renamed(lake: Connection, spark: SparkSession) -> None:
    held = lake.table(ORDERS).append(rows(spark, 2), hold=True)
    lake.rename(ORDERS, "main.sales.other")
    version = held.scan().version
    assert held.scan(table=ORDERS).count() == 2
    assert held.ratify(audited={ORDERS: version}).version == 1 and ids(lake, "main.sales.other") == [1, 2]
