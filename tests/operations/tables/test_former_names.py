"""Writes that merge schemas after a column was renamed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, DeltaTable, connect
from cm_delta_dagster.errors import SchemaMismatchError
from cm_delta_dagster.protocol.schema.former_names import former_names


def _append(lake: Connection, name: str, old: str) -> None:
    lake.table(name).append(lake.sql(f"SELECT 2 AS id, {old}"), schema_mode="merge")


def _insert(lake: Connection, name: str, old: str) -> None:
    lake.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {name} BY NAME SELECT 2 AS id, {old}")


def _merge(lake: Connection, name: str, old: str) -> None:
    lake.table(name).upsert(lake.sql(f"SELECT 2 AS id, {old}"), on="id", schema_mode="merge")


def _clauses(lake: Connection, name: str, old: str) -> None:
    lake.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {name} t USING (SELECT 2 AS id, {old}) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


WRITES: tuple[Callable[[Connection, str, str], None], ...] = (_append, _insert, _merge, _clauses)


def test_the_code_of_yesterday_does_not_add_a_renamed_column_again(spark: SparkSession, tmp_path: Path) -> None:
    """In every write with schema evolution, after restores, clones and other changes, until the column is added by name."""
    with connect(f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w", spark=spark) as lake:
        lake.sql(
            "CREATE TABLE main.s.t (id int, channel string, a struct<zip: int>) "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        )
        table = lake.table("main.s.t")
        table.append(lake.sql("SELECT 1 AS id, 'x' AS channel, named_struct('zip', 5) AS a"))
        table.alter.rename_column("channel", "source")
        table.alter.rename_column("a.zip", "code")
        renamed = table.snapshot().version
        table.alter.set_properties({"delta.appendOnly": "false"})
        table.alter.add_columns({"n": "int"})
        lake.sql("CREATE TABLE main.s.copy SHALLOW CLONE main.s.t")
        table.restore(version=renamed)
        for name in ("main.s.t", "main.s.copy"):
            _assert_refused(lake, name)
        table.alter.add_columns({"channel": "string"})
        for write in WRITES:
            write(lake, "main.s.t", "'y' AS channel")
        assert table.snapshot().schema.names == ("id", "source", "a", "channel")
        table.overwrite(lake.sql("SELECT 1 AS id, 'x' AS source, 5 AS other"), schema_mode="overwrite")
        assert [former_names(item) for item in table.snapshot().schema.fields] == [(), (), ()]


def _assert_refused(lake: Connection, name: str) -> None:
    table: DeltaTable = lake.table(name)
    before = table.snapshot()
    for write in WRITES:
        with pytest.raises(SchemaMismatchError, match="column 'channel' was renamed to 'source'"):
            write(lake, name, "'y' AS channel")
        with pytest.raises(SchemaMismatchError, match=r"column 'a\.zip' was renamed to 'a\.code'"):
            write(lake, name, "named_struct('zip', 6, 'code', 7) AS a")
    assert table.snapshot().version == before.version
