"""Writes with schema evolution make columns wider where type widening permits it, as delta-spark does."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster import Connection, DeltaTable, Idempotency, connect
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.schema.types import data_type_text
from tests.support.covering import covering
from tests.support.widenings import COLUMNS, OFFERED, OFFERED_AS, STORED, STORED_AS, WIDENINGS

_MERGE = """
    MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT * FROM (SELECT explode(array(1, 3)) AS k), (SELECT {offered})) s
    ON t.k = s.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""
_WRITES = {
    "merge": _MERGE,
    "insert by position": "INSERT WITH SCHEMA EVOLUTION INTO {t} SELECT 3 AS k, {offered}",
    "insert by name": "INSERT WITH SCHEMA EVOLUTION INTO {t} BY NAME SELECT {offered}, 3 AS k",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Connection]:
    home: Path = tmp_path_factory.mktemp("widening")
    with connect(f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/ware", spark=spark) as connection:
        yield connection


def _table(lake: Connection, columns: str, **properties: str) -> DeltaTable:
    name = f"main.wide.t{uuid.uuid4().hex}"
    given = {"enableTypeWidening": "true", **properties}
    listed = ", ".join(f"'delta.{key.replace('__', '.')}' = '{value}'" for key, value in given.items())
    lake.sql(f"CREATE TABLE {name} ({columns}) TBLPROPERTIES ({listed})")
    return lake.table(name)


@pytest.mark.requirements("UP-TW-2", "UP-TW-3", "UP-TW-5")
@pytest.mark.parametrize(("write", "vectors"), covering(_WRITES, ["true", "false"]))
def test_schema_evolution_widens_each_type_that_may_be_widened(lake: Connection, write: str, vectors: str) -> None:
    """No value loses its fraction in a column that can become wider."""
    table = _table(lake, f"k int, {COLUMNS}", enableDeletionVectors=vectors, feature__timestampNtz="supported")
    name = table.name
    lake.sql(f"INSERT INTO {name} SELECT 1, {STORED} UNION ALL SELECT 2, {STORED}")
    lake.sql(_WRITES[write].format(t=name, offered=OFFERED))
    fields = table.snapshot().schema.fields[1:]
    assert [data_type_text(item.type) for item in fields] == [one.after for one in WIDENINGS]
    changed = [len(item.metadata.get("delta.typeChanges", ())) for item in fields]
    assert changed == [int(one.before != one.after) for one in WIDENINGS]
    first = OFFERED_AS if write == "merge" else STORED_AS
    expected = lake.sql(f"SELECT 1 AS k, {first} UNION ALL SELECT 2, {STORED_AS} UNION ALL SELECT 3, {OFFERED_AS}")
    assert sorted(map(tuple, table.to_df().collect())) == sorted(map(tuple, expected.collect()))
    by_arrow = sorted((row["k"], row["c6"], row["c12"], row["c14"]) for row in table.to_arrow().to_pylist())
    assert by_arrow == sorted(map(tuple, expected.select("k", "c6", "c12", "c14").collect()))


_OLD_WRITES: dict[str, Callable[[DeltaTable, DataFrame], object]] = {
    "append": lambda table, rows: table.append(rows),
    "append that merges schemas": lambda table, rows: table.append(rows, schema_mode="merge"),
    "overwrite of a condition": lambda table, rows: table.overwrite(rows, where="k = 3"),
    "overwrite of keys": lambda table, rows: table.overwrite(rows, keys=["k"]),
    "merge": lambda table, rows: table.upsert(rows, on="k"),
    "stream batch": lambda table, rows: table.append(rows, idempotency=Idempotency(app_id="q", version=0)),
}


@pytest.mark.requirements("UP-TW-5")
@pytest.mark.parametrize("write", _OLD_WRITES)
def test_values_of_the_type_before_a_widening_are_written_as_before(lake: Connection, write: str) -> None:
    """Of every type that can become wider, also inside structs, arrays and maps; the columns stay wide."""
    wider = [one for one in WIDENINGS if one.before != one.after]
    columns = ", ".join(f"c{place} {one.after}" for place, one in enumerate(wider))
    old = ", ".join(f"{one.value} AS c{place}" for place, one in enumerate(wider))
    nested = "s struct<x: double>, a array<decimal(20,2)>, m map<smallint, timestamp_ntz>"
    table = _table(lake, f"k int, {columns}, {nested}", feature__timestampNtz="supported")
    inside = "named_struct('x', 1) AS s, array(1, 2) AS a, map(1Y, DATE '2020-01-01') AS m"
    before = table.snapshot().schema
    _OLD_WRITES[write](table, lake.sql(f"SELECT 3 AS k, {old}, {inside}"))
    assert table.snapshot().schema == before
    as_wide = ", ".join(f"CAST({one.value} AS {one.after})" for one in wider)
    wide_inside = "named_struct('x', 1D), array(1.00BD, 2.00BD), map(1S, CAST(DATE '2020-01-01' AS timestamp_ntz))"
    expected = lake.sql(f"SELECT 3, {as_wide}, {wide_inside}")
    assert list(map(tuple, table.to_df().collect())) == list(map(tuple, expected.collect()))


@pytest.mark.requirements("UP-TW-3")
@pytest.mark.parametrize("write", _WRITES)
def test_nested_values_become_wider_too(lake: Connection, write: str) -> None:
    """The field of a struct and the element of an array."""
    table = _table(lake, "k int, c0 struct<x: int>, c1 array<smallint>")
    name = table.name
    lake.sql(f"INSERT INTO {name} SELECT 1, named_struct('x', 1), array(1S)")
    lake.sql(_WRITES[write].format(t=name, offered="named_struct('x', 1.5D) AS c0, array(70000) AS c1"))
    types = [data_type_text(item.type) for item in table.snapshot().schema.fields]
    assert types == ["int", "struct<x:double>", "array<int>"]
    found = {row["k"]: (row["c0"]["x"], row["c1"]) for row in table.to_arrow().to_pylist()}
    assert found == {1: (1.5, [70000]) if write == "merge" else (1.0, [1]), 3: (1.5, [70000])}


@pytest.mark.requirements("UP-TW-6")
@pytest.mark.parametrize("write", _WRITES)
def test_a_widening_that_iceberg_lacks_is_refused_in_writes(lake: Connection, write: str) -> None:
    """The values are not cast to the narrower type either."""
    properties = {"enableIcebergCompatV2": "true", "columnMapping__mode": "name", "enableDeletionVectors": "false"}
    table = _table(lake, "k int, c0 int, c1 int", **properties)
    name = table.name
    lake.sql(f"INSERT INTO {name} SELECT 1, 1, 1")
    with pytest.raises(InvalidArgumentError, match="'c0' cannot change from int to double: Iceberg does not"):
        lake.sql(_WRITES[write].format(t=name, offered="1.5D AS c0, 1L AS c1"))
    assert table.version() == 1
    lake.sql(_WRITES[write].format(t=name, offered="2 AS c0, 5000000000 AS c1"))
    assert data_type_text(table.snapshot().schema.fields[2].type) == "bigint"
