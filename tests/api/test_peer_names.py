"""Methods under the names of delta-spark and deltalake are errors that name the method of this package."""

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import DeltaTable, InvalidArgumentError, connect
from cm_delta_dagster.api.merge_builder import MergeBuilder
from cm_delta_dagster.api.peer_names import MERGE_NAMES, TABLE_NAMES
from cm_delta_dagster.api.table_alterer import TableAlterer


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
        assert not second or hasattr(TableAlterer, second)


def test_the_methods_of_a_merge_of_delta_spark_are_named(tmp_path: Path, spark: SparkSession) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w"), spark=spark) as lake:
        table = lake.create_table("main.sales.orders", schema=pa.schema([("id", pa.int64())]))
        merge = table.merge(spark.range(1), "t.id = s.id", source_alias="s", target_alias="t")
        for of_peer, here in MERGE_NAMES.items():
            with pytest.raises(AttributeError, match=re.escape(f"no attribute {of_peer!r}: write {here}")):
                getattr(merge, of_peer)
            assert hasattr(MergeBuilder, here.partition("(")[0])
        with pytest.raises(
            InvalidArgumentError, match=r"whose columns are id\. For a merge on a condition, give source_alias"
        ):
            table.merge(spark.range(1), "target.id = source.id")


def test_plans_are_shown_in_one_line(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "w")) as lake:
        table = lake.create_table("main.sales.orders", schema=pa.schema([("id", pa.int64())]))
        assert (
            repr(table.plan_read())
            == "<ReadPlan main.sales.orders version 0: 0 of 0 files, 0 of 0 bytes, 0 files skipped>"
        )
        assert repr(table.plan_optimize()) == (
            "OptimizePlan(table='main.sales.orders', version=0, num_files=0, num_bytes=0, num_bins=0)"
        )
        assert repr(table.plan_restore(0)) == (
            "RestorePlan(current=0, target=0, num_removed_files=0, num_restored_files=0, num_missing_files=0)"
        )
