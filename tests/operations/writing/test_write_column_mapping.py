"""Writes to tables with column mapping: physical names and field ids at every level, statistics, partition values."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.maintenance.optimize import optimize
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import merge
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.protocol.actions.paths import decode_path
from cm_delta_dagster.protocol.features.column_mapping import COLUMN_ID, PHYSICAL_NAME
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.schema.types import (
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    schema_to_json,
)
from cm_delta_dagster.spark.expressions.schema import from_spark
from tests.support.builders import rows_of
from tests.support.creation import create_table

_numbers = itertools.count()
DDL = "`a b` long, p string, st struct<x:int,`y;z`:string>, l array<struct<e:date>>, m map<string,struct<v:int>>, n int not null"


def mapped(schema: StructType, ids: Any) -> StructType:
    """The schema with ids and physical names at every level."""
    fields = []
    for item in schema.fields:
        number = next(ids)
        metadata: Mapping[str, Any] = {COLUMN_ID: number, PHYSICAL_NAME: f"col-{number}"}
        fields.append(StructField(item.name, _mapped(item.type, ids), item.nullable, metadata))
    return StructType(tuple(fields))


def _mapped(data_type: DataType, ids: Any) -> DataType:
    match data_type:
        case StructType():
            return mapped(data_type, ids)
        case ArrayType():
            return replace(data_type, element_type=_mapped(data_type.element_type, ids))
        case MapType():
            return replace(data_type, value_type=_mapped(data_type.value_type, ids))
        case _:
            return data_type


@pytest.fixture(params=["name", "id"])
def table(request: pytest.FixtureRequest, client: DeltaClient, spark: SparkSession) -> Table:
    mode: str = request.param
    schema = mapped(from_spark(spark.createDataFrame([], DDL).schema), itertools.count(1))
    # Names with blanks are allowed only once columns are mapped.
    plain = StructType((StructField("first", STRING), StructField("p", STRING)))
    made = create_table(client, identifier=f"main.mapped.t{next(_numbers)}", schema=plain, partition_columns=["p"])
    snapshot = made.snapshot()
    transaction = made.start_transaction(snapshot, operation="TEST")
    configuration = {
        **snapshot.metadata.configuration,
        "delta.columnMapping.mode": mode,
        "delta.columnMapping.maxColumnId": "10",
    }
    transaction.set_metadata(
        replace(snapshot.metadata, schema_string=schema_to_json(schema), configuration=configuration)
    )
    transaction.set_protocol(with_features(snapshot.protocol, ["columnMapping"]))
    transaction.commit()
    return made


ROWS = [
    (1, "x", (1, "a"), [(None,)], {"k": (1,)}, 1),
    (2, None, None, None, None, 2),
    (3, "50%", (None, None), [], {}, 3),
]


@pytest.mark.requirements("COLMAP-8", "COLMAP-9", "COLMAP-id-2")
def test_files_have_physical_names_and_field_ids(table: Table, spark: SparkSession) -> None:
    append(table, frame=spark.createDataFrame(ROWS, DDL).coalesce(1))
    assert rows_of(read(open_scan(table), spark=spark)) == ROWS
    adds = [json.loads(line)["add"] for line in _commit(table).splitlines() if line.startswith('{"add"')]
    assert sorted(add["partitionValues"]["col-2"] or "" for add in adds) == ["", "50%", "x"]
    one = next(add for add in adds if add["partitionValues"] == {"col-2": "x"})
    stats = json.loads(one["stats"])
    assert stats["minValues"] == {"col-1": 1, "col-3": {"col-4": 1, "col-5": "a"}, "col-10": 1}
    assert set(stats["nullCount"]) == {"col-1", "col-3", "col-10"}
    file = pq.ParquetFile(f"{table.location.removeprefix('file://')}/{decode_path(one['path'])}")
    assert _ids(file.schema_arrow) == {
        "col-1": 1, "col-3": 3, "col-3.col-4": 4, "col-3.col-5": 5, "col-6.col-7": 7, "col-6": 6, "col-8": 8,
        "col-8.col-9": 9, "col-10": 10,
    }  # fmt: skip


@pytest.mark.requirements("COLMAP-8", "COLMAP-9")
def test_every_verb_writes_to_a_mapped_table(table: Table, spark: SparkSession, client: DeltaClient) -> None:
    """Conditions on partition and data columns, and OPTIMIZE of each partition."""
    frame = spark.createDataFrame(ROWS, DDL)
    append(table, frame=frame)
    append(table, frame=frame.selectExpr("`a b` + 10 as `a b`", "p", "st", "l", "m", "n"))
    result = append(table, frame=frame.where("p = 'x'").selectExpr("`a b` + 20 as `a b`", "p", "st", "l", "m", "n"))
    assert result.rows_by_partition == {("x",): 1}
    delete(table, spark=spark, where="p = '50%'")
    delete(table, spark=spark, where="st.`y;z` = 'a' AND `a b` = 21")
    merge(table, frame=frame.where("`a b` = 2").selectExpr("`a b`", "p", "99 as n"), keys=("a b",))
    overwrite(table, frame=frame.where("`a b` = 1"), where="p = 'x'")
    client.maintenance_policies.set_maintenance_rule(
        MaintenanceRule(scope="main", kind=MaintenanceKind.DATA_REORGANIZATION, allowed=True)
    )
    optimize(table, spark=spark)
    expected = [ROWS[0], (2, None, None, None, None, 99), (12, None, None, None, None, 2)]
    assert rows_of(read(open_scan(table), spark=spark)) == expected
    assert table.snapshot().num_files == 2


def _commit(table: Table) -> str:
    version = table.snapshot().version
    return table.store.read(f"{table.location}/_delta_log/{version:020d}.json").decode()


def _ids(schema: Any, prefix: str = "") -> dict[str, int]:
    found: dict[str, int] = {}
    for item in schema:
        name = f"{prefix}{item.name}"
        if item.metadata and b"PARQUET:field_id" in item.metadata and item.name.startswith("col-"):
            found[name] = int(item.metadata[b"PARQUET:field_id"])
        kind = item.type
        if hasattr(kind, "item_type"):
            kind = kind.item_type
        elif hasattr(kind, "value_type"):
            kind = kind.value_type
        if hasattr(kind, "num_fields") and kind.num_fields:
            found |= _ids([kind.field(position) for position in range(kind.num_fields)], f"{name}.")
    return found
