"""Rewrites of the same files by Arrow and by Spark: the same rows, ids and marks, and files that are as narrow."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, DeltaTable, connect
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.operations.arguments import as_predicate
from cm_delta_dagster.operations.maintenance.optimize import optimize
from cm_delta_dagster.operations.maintenance.reorg import reorg
from cm_delta_dagster.operations.tables.alter_with_rewrite import alter_with_rewrite
from cm_delta_dagster.operations.tables.alterations import DropFeature
from cm_delta_dagster.operations.writing.engine_choice import EngineChoice
from cm_delta_dagster.protocol.features.column_mapping import physical_name
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteEngine
from tests.arrow.curve_values import rows_of

NAMES = ("c0", "c1", "c2", "c3")
PROPERTIES = {
    "delta.enableRowTracking": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableTypeWidening": "true",
    "delta.feature.timestampNtz": "supported",
}
COUNT = 4_000
FILES = 16


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=spark) as lake:
        lake.maintenance.set_policy("main", MaintenanceKind.DATA_REORGANIZATION)
        yield lake


def _rows() -> pa.Table:
    """Four independent columns, and columns of all types."""
    chance = np.random.default_rng(5)
    rows = rows_of(COUNT)
    for name in NAMES:
        rows = rows.append_column(name, pa.array(chance.random(COUNT)))
    return rows.append_column("widened", pa.array([1] * COUNT, pa.int32()))


def _table(lake: Connection, engine: WriteEngine, **more: Any) -> DeltaTable:
    rows = _rows()
    table = lake.create_table(f"main.s.{engine.value}", rows.schema, properties=PROPERTIES, **more)
    for start in (0, COUNT // 2):
        table.append(rows.slice(start, COUNT // 2))
    table.delete("n < 200")
    return table


def _state(table: DeltaTable) -> list[str]:
    """Rows with their ids as text, since NaN is not equal to NaN."""
    names = [*table.schema().names, "_row_id", "_row_commit_version"]
    return sorted(map(str, table.to_arrow(columns=names).to_pylist()))


def _marks(table: DeltaTable) -> dict[str, Any]:
    """What the last commit says, without sizes, times and random ids."""
    snapshot, info = table.snapshot(), table.history()[0].commit_info
    files = snapshot.files
    assert info is not None
    names = {physical_name(item, snapshot.column_mapping): item.name for item in snapshot.schema.fields}
    sized = {"numAddedBytes", "numRemovedBytes", "targetSize"}
    tags = [dict(tag or {}) for tag in files["tags"].to_pylist()]
    return {
        "operation": info.operation,
        "parameters": {key: value for key, value in (info.operation_parameters or {}).items() if key not in sized},
        "metrics": {key: key in sized or value for key, value in (info.operation_metrics or {}).items()},
        "files": files.num_rows,
        "providers": set(files["clusteringProvider"].to_pylist()),
        "tags": {(key, str(_tag(key, value, names))) for tag in tags for key, value in tag.items()},
        "changes": set(files["dataChange"].to_pylist()),
        "vectors": len(files) - files["deletionVector"].null_count,
        "statistics": {_counted(text, names) for text in files["stats"].to_pylist()},
    }


def _counted(stats: str, names: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of which a file has statistics."""
    return tuple(sorted(names[stored] for stored in json.loads(stats)["nullCount"]))


def _tag(key: str, value: str, names: Mapping[str, str]) -> object:
    if key == "ZCUBE_ZORDER_BY":
        return [names[stored] for stored in json.loads(value)]
    return None if key in ("ZCUBE_ID", "OPTIMIZE_TARGET_SIZE") else value


def _skipped(table: DeltaTable, column: str) -> float:
    """The share of files that a lookup of one value of the column skips, on average."""
    snapshot = table.snapshot()
    shares = []
    for value in np.linspace(0.01, 0.99, 40):
        kept = snapshot.matching_files(as_predicate(f"{column} = {value}", snapshot.schema)).num_rows
        shares.append(1 - kept / snapshot.num_files)
    return float(np.mean(shares))


@pytest.mark.requirements("OPT-5", "OPT-2", "CLUST-5", "ROWTRK-13")
@pytest.mark.parametrize("clusters", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_both_engines_order_rows_equally_well(lake: Connection, spark: SparkSession, clusters: bool) -> None:
    """A lookup by each of four columns skips as many files, up to 5 % of them."""
    skipped, states, marks = [], [], []
    for engine in (WriteEngine.ARROW, WriteEngine.SPARK):
        table = _table(lake, engine, **({"cluster_by": list(NAMES)} if clusters else {}))
        before = _state(table)
        target = table.snapshot().size_bytes // FILES + 1
        order = () if clusters else NAMES
        optimize(table.table, spark=EngineChoice.of(spark, engine), target_size=target, z_order_by=order)
        states.append(_state(table))
        assert states[-1] == before
        marks.append(_marks(table))
        skipped.append([_skipped(table, name) for name in NAMES])
    assert states[0] == states[1]
    assert marks[0] == marks[1]
    ours, others = skipped
    assert all(share >= other - 0.05 for share, other in zip(ours, others, strict=True)), skipped
    assert np.mean(ours) >= np.mean(others) - 0.02 and np.mean(ours) > 0.3, skipped


@pytest.mark.requirements("UP-TW-7", "ROWTRK-13", "OPT-4")
@pytest.mark.slow
def test_both_engines_drop_features_and_purge_alike(lake: Connection, spark: SparkSession) -> None:
    states, marks = [], []
    for engine in WriteEngine:
        choice = EngineChoice.of(spark, engine)
        table = _table(lake, engine, partition_by=["byte"])
        table.alter.change_type("widened", "bigint")
        table.alter.rename_column("string", "text")
        table.alter.drop_column("long")
        before = _state(table)
        reorg(table.table, spark=choice)
        marks.append([_marks(table)])
        for feature in ("deletionVectors", "typeWidening", "columnMapping"):
            alter_with_rewrite(table.table, DropFeature(feature), spark=choice)
            assert _state(table) == before
            marks[-1].append(_marks(table))
        states.append(before)
    assert states[0] == states[1]
    assert marks[0] == marks[1]


@pytest.mark.requirements("GEN-1")
def test_rows_that_only_move_need_no_rule_that_spark_evaluates(lake: Connection) -> None:
    """Generated columns and constraints are not evaluated again by OPTIMIZE, REORG and DELETE."""
    lake.sql(
        "CREATE TABLE main.s.ruled (id INT, s STRING, g STRING GENERATED ALWAYS AS (upper(s))) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')"
    )
    lake.sql("ALTER TABLE main.s.ruled ADD CONSTRAINT low CHECK (lower(s) = s)")
    table = lake.table("main.s.ruled")
    for number in range(3):
        table.append([{"id": number, "s": "a"}, {"id": number + 10, "s": "b"}])
    table.optimize()
    table.delete("id = 1", engine="arrow")
    assert sorted((row["id"], row["g"]) for row in table.to_arrow().to_pylist()) == [
        (0, "A"),
        (2, "A"),
        (10, "B"),
        (11, "B"),
        (12, "B"),
    ]
    assert [entry.operation for entry in _infos(table)][:2] == ["DELETE", "OPTIMIZE"]
    assert _infos(table)[0].engine_info.endswith("(arrow)")


def _infos(table: DeltaTable) -> list[Any]:
    return [entry.commit_info for entry in table.history()]
