"""Methods under the names of delta-spark and deltalake are errors that name the method of this package."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster import DeltaTable, InvalidArgumentError, connect
from cm_delta_dagster.api.peer_names import ALTERER_NAMES, MERGE_NAMES, TABLE_NAMES
from cm_delta_dagster.api.table.merge_builder import MergeBuilder
from cm_delta_dagster.api.table.merge_keys import merge_condition
from cm_delta_dagster.api.table.table_alterer import TableAlterer
from cm_delta_dagster.api.table.table_maintenance import DeltaTableMaintenance


@pytest.mark.parametrize("of_peer", TABLE_NAMES)
def test_a_name_of_a_peer_names_a_method_that_exists(tmp_path: Path, of_peer: str) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w")) as lake:
        table = lake.create_table("main.sales.orders", schema=pa.schema([("id", pa.int64())]))
        with pytest.raises(AttributeError, match=f"^DeltaTable has no attribute '{of_peer}': write ") as error:
            getattr(table, of_peer)
        with pytest.raises(AttributeError, match=r"^DeltaTable has no attribute 'nope'$"):
            table.nope  # noqa: B018
    here = str(error.value).partition(": write ")[2]
    if not here.startswith("lake."):
        first, _, second = here.partition("(")[0].partition(".")
        assert hasattr(DeltaTable, first)
        assert not second or hasattr({"alter": TableAlterer, "maintenance": DeltaTableMaintenance}[first], second)


@pytest.mark.parametrize(("of_peer", "here"), ALTERER_NAMES.items())
def test_a_name_of_deltalake_for_an_alteration_names_a_method_that_exists(of_peer: str, here: str) -> None:
    alterer = TableAlterer.__new__(TableAlterer)
    with pytest.raises(AttributeError, match=re.escape(f"TableAlterer has no attribute {of_peer!r}: write {here}")):
        getattr(alterer, of_peer)
    if not here.startswith(("lake.", "commit_properties=")):
        assert hasattr(TableAlterer, here.partition("(")[0])


def test_the_methods_of_a_merge_of_delta_spark_are_named(tmp_path: Path, spark: SparkSession) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w"), spark=spark) as lake:
        table = lake.create_table("main.sales.orders", schema=pa.schema([("id", pa.int64())]))
        merge = table.merge(spark.range(1), "t.id = s.id", source_alias="s", target_alias="t")
        for of_peer, here in MERGE_NAMES.items():
            with pytest.raises(AttributeError, match=re.escape(f"no attribute {of_peer!r}: write {here}")):
                getattr(merge, of_peer)
            assert hasattr(MergeBuilder, here.partition("(")[0])
        with pytest.raises(
            InvalidArgumentError, match=r"whose columns are id\. For a condition .*\.merge\(source, condition\)"
        ):
            table.upsert(spark.range(1), "target.id = source.id")
        with pytest.raises(
            InvalidArgumentError, match=r"no condition\. For a condition .*\.merge\(source, condition\)"
        ):
            table.upsert(spark.range(1), F.col("id") == 1)  # type: ignore[arg-type]  # The error is the point.


@pytest.mark.parametrize("on", ["id", ["id"], ("id",), "target.id = source.id"])
def test_a_merge_takes_keys_or_a_condition_and_does_nothing_before_it_is_executed(
    tmp_path: Path, spark: SparkSession, on: str | list[str]
) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w"), spark=spark) as lake:
        table = lake.create_table("main.sales.orders", schema=pa.schema([("id", pa.int64()), ("v", pa.string())]))
        table.append(spark.sql("SELECT 1L AS id, 'old' AS v"))
        merge = table.merge(spark.sql("SELECT 1L AS id, 'new' AS v UNION SELECT 2L, 'more'"), on)
        merge = merge.when_matched_update({"v": "source.v"}).when_not_matched_insert_all()
        assert table.version() == 1
        merge.execute()
        assert sorted(table.to_arrow().to_pylist(), key=str) == [{"id": 1, "v": "new"}, {"id": 2, "v": "more"}]


@pytest.mark.parametrize("on", [[], 7, [1], None])
def test_a_merge_on_something_else_is_refused(tmp_path: Path, spark: SparkSession, on: Any) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w"), spark=spark) as lake:
        table = lake.create_table("main.sales.orders", schema=pa.schema([("id", pa.int64())]))
        with pytest.raises(InvalidArgumentError, match="or the names of key columns"):
            table.merge(spark.range(1), on)


def test_plans_are_shown_in_one_line(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w")) as lake:
        table = lake.create_table("main.sales.orders", schema=pa.schema([("id", pa.int64())]))
        assert (
            repr(table.scan().plan())
            == "<ReadPlan main.sales.orders version 0: 0 of 0 files, 0 of 0 bytes, 0 files skipped>"
        )
        assert repr(table.plan_optimize()) == (
            "OptimizePlan(table='main.sales.orders', version=0, num_files=0, num_bytes=0, num_bins=0)"
        )
        assert repr(table.plan_restore(0)) == (
            "RestorePlan(current=0, target=0, num_removed_files=0, num_restored_files=0, num_missing_files=0)"
        )


@pytest.mark.parametrize(("on", "condition"), [("true", "true"), ("FALSE", "FALSE"), ("id", None), (["true"], None)])
def test_a_word_that_is_a_condition_is_no_key(on: str | list[str], condition: str | None) -> None:
    taken = merge_condition(on, source_alias="source", target_alias="target")
    key = on if isinstance(on, str) else on[0]
    assert taken == (condition or f"`target`.`{key}` = `source`.`{key}`")
