"""Tables with constraints, computed columns, column mapping, wider types and variants: ours read and continued by delta-spark."""

import datetime as dt
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import (
    Column,
    Connection,
    DeltaTable,
    Identity,
    InvalidDataError,
    StructField,
    StructType,
    connect,
)
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.schema.types import LONG, ArrayType, DataType, MapType, schema_to_json
from cm_delta_dagster.spark.expressions.schema import from_spark
from cm_delta_dagster.storage.stores import Stores
from tests.differential.peers import DeltaSpark, canonical, our_rows, published_copy
from tests.support.path_snapshots import load_path_snapshot

COLUMNS = (
    Column("key", "bigint", identity=Identity(start=100, step=10)),
    Column("name", "varchar(5)", comment="as given"),
    Column("n", "int", default="1 + 1"),
    Column("up", "string", generated="upper(name)"),
    Column("c", "char(3)", default="'x'"),
    Column("st", "struct<a: int, b: varchar(2)>"),
)
SQL = """CREATE TABLE delta.`{}` (key BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 100 INCREMENT BY 10),
    name VARCHAR(5) COMMENT 'as given', n INT DEFAULT 1 + 1, up STRING GENERATED ALWAYS AS (upper(name)),
    c CHAR(3) DEFAULT 'x', st STRUCT<a: INT, b: VARCHAR(2)>) USING delta
    TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Connection]:
    home = tmp_path_factory.mktemp("features")
    with connect(f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/ware", spark=spark) as connection:
        connection.maintenance.set_policy("main", "data_reorganization")
        yield connection


def copy_of(table: DeltaTable, lake: Connection, target: Path) -> Path:
    lake.client.wait_for_background()
    return published_copy(table.location, target)


def commit_metadata(table: DeltaTable, schema: StructType, configuration: dict[str, str], *features: str) -> None:
    """Change the schema and the properties of a table, as an ALTER TABLE would."""
    snapshot = table.table.snapshot()
    transaction = table.table.start_transaction(snapshot, operation="TEST")
    configuration = {**snapshot.metadata.configuration, **configuration}
    transaction.set_metadata(
        replace(snapshot.metadata, schema_string=schema_to_json(schema), configuration=configuration)
    )
    transaction.set_protocol(with_features(snapshot.protocol, features))
    transaction.commit()


def schema_of_log(location: Path | str) -> Any:
    snapshot = load_path_snapshot(Stores(), f"file://{location}", version=0)
    return json.loads(snapshot.metadata.schema_string)


@pytest.mark.requirements("CHK-2", "GEN-1", "DEF-1", "IDENT-2", "IDENT-4")
@pytest.mark.exhaustive
@pytest.mark.peers
def test_delta_spark_continues_a_table_with_rules(
    lake: Connection, spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    """Equal metadata, rows and refusals; numbers continue after ours."""
    table = lake.create_table("main.rules.t", list(COLUMNS))
    theirs = tmp_path / "theirs"
    delta_spark.sql(SQL.format(theirs))
    assert json.loads(table.table.snapshot().metadata.schema_string) == schema_of_log(theirs)
    table.append(spark.createDataFrame([("a",), (None,)], "name string").coalesce(1))
    table.alter.add_constraint("Short", "length(name) < 4 OR name IS NULL")
    table.append(
        spark.createDataFrame([("b", None, "ab", (1, "y"))], "name string, n int, c string, st struct<a:int,b:string>")
    )
    table.upsert(spark.createDataFrame([("a", 7), ("new", 8)], "name string, n int"), on="name")
    table.overwrite(spark.createDataFrame([("new",)], "name string"), where="name = 'new'")
    table.delete("name = 'b'")
    table.optimize()
    with pytest.raises(InvalidDataError, match="'short'"):
        table.append(spark.createDataFrame([("long",)], "name string"))
    copy = copy_of(table, lake, tmp_path / "ours")
    for version in range(table.version() + 1):
        assert canonical(delta_spark.rows(copy, version)) == canonical(table.to_df(version=version).toArrow()), version
    used = {row["key"] for row in table.to_df().collect()}
    assert len(used) == 3 and all((key - 100) % 10 == 0 for key in used)
    delta_spark.sql(f"INSERT INTO delta.`{copy}` (name) VALUES ('q')")
    for values in ("('long')", "('toolong')"):
        with pytest.raises(RuntimeError, match=r"CONSTRAINT|LIMIT"):
            delta_spark.sql(f"INSERT INTO delta.`{copy}` (name) VALUES {values}")
    found = delta_spark.rows(copy, table.version() + 1)
    assert canonical(found) == canonical(our_rows(spark, copy, table.version() + 1))
    (added,) = [row for row in found.to_pylist() if row["name"] == "q"]
    assert (added["n"], added["up"], added["c"]) == (2, "Q", "x  ") and added["key"] > max(used)


@pytest.mark.requirements("COLMAP-8", "COLMAP-9")
@pytest.mark.peers
@pytest.mark.parametrize("mode", ["name", pytest.param("id", marks=pytest.mark.exhaustive)])
def test_delta_spark_continues_a_table_with_column_mapping(
    lake: Connection, spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path, mode: str
) -> None:
    """Files, partition values and statistics, at every level of nesting."""
    ddl = "`a b` long, p string, st struct<x:int,`y;z`:string>, l array<struct<e:date>>, m map<string,struct<v:int>>"
    table = lake.create_table(f"main.mapped.{mode}", [Column("first", "int"), Column("p", "string")], partition_by="p")
    schema = _mapped(from_spark(spark.createDataFrame([], ddl).schema), itertools.count(1))
    assert isinstance(schema, StructType)
    properties = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "9"}
    commit_metadata(table, schema, properties, "columnMapping")
    day = dt.date(2020, 1, 1)
    rows = [(i, ["x", None, "50%/ü"][i % 3], (i, f"s{i}"), [(day,), None], {"k": (i,)}) for i in range(9)]
    table.append(spark.createDataFrame(rows, ddl))
    table.delete("`a b` = 4")
    table.upsert(spark.createDataFrame([(5, "x"), (50, None)], "`a b` long, p string"), on="a b")
    table.optimize()
    copy = copy_of(table, lake, tmp_path / mode)
    last = table.version()
    expected = canonical(table.to_df().toArrow())
    assert canonical(delta_spark.rows(copy, last)) == expected
    assert canonical(our_rows(spark, copy, last)) == expected
    skipped = delta_spark.sql(f"SELECT * FROM delta.`{copy}` WHERE st.`y;z` = 's2' AND p = '50%/ü'")
    assert skipped.num_rows == 1
    delta_spark.sql(
        f"INSERT INTO delta.`{copy}` SELECT 100, 'new', named_struct('x', 1, 'y;z', 'q'), null, null",
        f"UPDATE delta.`{copy}` SET `a b` = `a b` + 1000 WHERE p = 'x'",
    )
    theirs = canonical(delta_spark.rows(copy, last + 2))
    assert canonical(our_rows(spark, copy, last + 2)) == theirs


@pytest.mark.requirements("UP-TW-1", "UP-TW-5")
@pytest.mark.peers
def test_delta_spark_reads_rows_of_widened_columns_and_variants(
    lake: Connection, spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    """Old files stay, new files have the present type. A variant column is written unshredded."""
    table = lake.create_table(
        "main.types.t", [Column("n", "int"), Column("v", "variant")], properties={"delta.enableTypeWidening": "true"}
    )
    table.append(spark.range(3).selectExpr("cast(id as int) n", "parse_json('{\"a\": 1}') v"))
    (n, v) = table.table.snapshot().schema.fields
    change = [{"fromType": "integer", "toType": "long"}]
    commit_metadata(table, StructType((StructField("n", LONG, True, {"delta.typeChanges": change}), v)), {})
    table.append(spark.range(2).selectExpr("id + 5000000000 n", "parse_json('[1, \"x\"]') v"))
    table.delete("n = 1")
    copy = copy_of(table, lake, tmp_path / "types")
    query = f"SELECT n, to_json(v) v FROM delta.`{copy}`"
    expected = canonical(table.to_df().selectExpr("n", "to_json(v) v").toArrow())
    assert canonical(delta_spark.sql(query)) == expected and len(expected) == 4
    assert n.name == "n"


def _mapped(data_type: DataType, ids: Any) -> DataType:
    """The type with ids and physical names at every level."""
    match data_type:
        case StructType():
            fields = []
            for item in data_type.fields:
                number = next(ids)
                metadata = {COLUMN_ID: number, PHYSICAL_NAME: f"col-{number}"}
                fields.append(replace(item, type=_mapped(item.type, ids), metadata=metadata))
            return StructType(tuple(fields))
        case ArrayType():
            return replace(data_type, element_type=_mapped(data_type.element_type, ids))
        case MapType():
            return replace(data_type, value_type=_mapped(data_type.value_type, ids))
        case _:
            return data_type
