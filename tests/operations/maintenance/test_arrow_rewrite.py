"""Rewrites of files by Arrow, in a process without a Spark session."""

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from cm_delta_dagster import Connection, DeltaTable, connect
from cm_delta_dagster.arrow.write import curve_order
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.errors import CommitConflictError, CorruptLogError, InvalidArgumentError
from cm_delta_dagster.operations.maintenance.arrangement import COLUMNS_TAG, CURVE_TAG, RUN_TAG
from cm_delta_dagster.protocol.features.clustering import PROVIDER
from tests.arrow.curve_values import VALUES, rows_of

pytestmark = pytest.mark.fast
NAME = "main.s.t"
ALL = {
    "delta.enableRowTracking": "true",
    "delta.enableDeletionVectors": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableChangeDataFeed": "true",
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse", spark=lambda: None) as lake:  # type: ignore[arg-type,return-value]
        lake.maintenance.set_policy("main", MaintenanceKind.DATA_REORGANIZATION)
        yield lake


def _rows(table: DeltaTable, *columns: str) -> list[str]:
    """The rows as text, since NaN is not equal to NaN."""
    names = [*table.schema().names, *columns]
    return sorted(map(str, table.to_arrow(columns=names).to_pylist()))


def _files(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "warehouse").rglob("*.parquet")}


@pytest.mark.requirements("OPT-5", "OPT-2", "OPT-4", "ROWTRK-13", "CLUST-5", "CLUST-7")
@pytest.mark.parametrize("spills", [False, True])
@pytest.mark.parametrize("clusters", [False, True])
def test_rows_of_all_types_are_ordered_and_keep_what_they_have(
    lake: Connection, monkeypatch: pytest.MonkeyPatch, spills: bool, clusters: bool
) -> None:
    """Ids of rows, deleted rows, physical names and tags; the commit changes no row."""
    columns = list(VALUES)[-4:] if clusters else list(VALUES)
    source = rows_of(1_200)
    more: dict[str, Any] = {"cluster_by": columns} if clusters else {}
    table = lake.create_table(
        NAME, source.schema, properties={**ALL, "delta.feature.timestampNtz": "supported"}, **more
    )
    for start in (0, 600):
        table.append(source.slice(start, 600))
    table.delete("n < 10")
    before = _rows(table, "_row_id", "_row_commit_version")
    if spills:
        monkeypatch.setattr(curve_order, "_RUN_BYTES", 1 << 14)
        monkeypatch.setattr(curve_order, "_BUCKET_BYTES", 1 << 12)
    target = table.snapshot().size_bytes // 4 + 1
    result = table.optimize(target_size=target, z_order_by=() if clusters else columns)
    assert (result.num_removed_files, result.num_added_files, result.num_rows) == (2, 4, 1_190)
    assert _rows(table, "_row_id", "_row_commit_version") == before
    files = table.snapshot().files
    assert files["deletionVector"].null_count == 4 and set(files["dataChange"].to_pylist()) == {False}
    assert files["clusteringProvider"].to_pylist() == [PROVIDER if clusters else None] * 4
    tags = [dict(tag) for tag in files["tags"].to_pylist()]
    assert all((CURVE_TAG in tag) == (RUN_TAG in tag) == (COLUMNS_TAG in tag) == clusters for tag in tags)
    info = table.history()[0].commit_info
    assert info is not None and info.operation == "OPTIMIZE"
    assert (info.operation_metrics or {})["numOutputRows"] == "1190"
    assert not table.changes(starting_version=table.version()).to_arrow().num_rows


@pytest.mark.requirements("OPT-5", "OPT-1")
def test_a_z_order_stays_within_partitions(lake: Connection) -> None:
    table = lake.create_table(NAME, "a BIGINT, p STRING", partition_by=["p"])
    for _ in range(2):
        table.append(pa.table({"a": range(20), "p": ["x", None] * 10}))
    before = _rows(table)
    assert table.optimize(z_order_by="a", where="p = 'x'").num_added_files == 1
    assert table.optimize(z_order_by="a").num_added_files == 2
    assert _rows(table) == before
    for path in table.scan().files()["path"].to_pylist():
        values = pq.read_table(f"{table.location.removeprefix('file://')}/{path}")["a"].to_pylist()
        assert values == sorted(values)


@pytest.mark.requirements("PART-2")
@pytest.mark.parametrize("z_order_by", ["", "a"])
def test_times_of_partitions_without_a_zone_stay_the_same(tmp_path: Path, z_order_by: str) -> None:
    """They are in the zone of the connection; the new files state the zone."""
    times = pa.array([dt.datetime(2024, 7, 1, 12)] * 2 + [dt.datetime(2024, 1, 1, 12)], pa.timestamp("us", "UTC"))
    rows = pa.table({"a": [1, 2, 3], "t": times})
    for _ in range(2):
        deltalake.write_deltalake(str(tmp_path / "t"), rows, partition_by=["t"], mode="append")
    url, zone = f"sqlite:///{tmp_path}/catalog.db", "Europe/Berlin"
    with connect(url, warehouse=f"{tmp_path}/warehouse", spark=lambda: None, time_zone=zone) as lake:  # type: ignore[arg-type,return-value]
        lake.maintenance.set_policy("main", MaintenanceKind.DATA_REORGANIZATION)
        lake.onboarding.adopt(str(tmp_path / "t"), NAME)
        table = lake.table(NAME)
        before = _rows(table)
        assert "10, 0" in before[0] or "11, 0" in before[0], "the text states no zone"
        assert table.optimize(z_order_by=z_order_by or ()).num_added_files == 2
        assert _rows(table) == before


@pytest.mark.requirements("OPT-7")
def test_a_clustered_table_is_compacted_after_a_write(lake: Connection) -> None:
    properties = {"delta.autoOptimize.autoCompact": "true"}
    table = lake.create_table(NAME, "a BIGINT", cluster_by="a", properties=properties)
    for number in range(50):
        table.append(pa.table({"a": [49 - number]}))
    lake.client.wait_for_background()
    assert table.snapshot().files["clusteringProvider"].to_pylist() == [PROVIDER]
    assert table.to_arrow()["a"].to_pylist() == list(range(50))


@pytest.mark.requirements("CLUST-6")
def test_a_second_run_leaves_clustered_files(lake: Connection) -> None:
    chance = np.random.default_rng(3)
    table = lake.create_table(NAME, "a DOUBLE, b DOUBLE", cluster_by=["a", "b"])
    table.append(pa.table({"a": chance.random(4_000), "b": chance.random(4_000)}))
    target = table.snapshot().size_bytes // 4 + 1
    assert table.optimize(target_size=target).num_added_files == 4
    assert table.optimize(target_size=target).num_removed_files == 0
    assert table.optimize(target_size=target, full=True).num_removed_files == 4


@pytest.mark.requirements("UP-TW-7", "ROWTRK-13")
@pytest.mark.parametrize("mapping", ["name", "id"])
def test_features_are_dropped_with_the_files_that_need_them(lake: Connection, mapping: str) -> None:
    """Deletion vectors, changed types and physical names go; rows, their ids and partitions stay."""
    properties = {**ALL, "delta.columnMapping.mode": mapping, "delta.enableTypeWidening": "true"}
    source = pa.table(
        {"id": range(200), "n": pa.array([1] * 200, pa.int32()), "p": ["x", None] * 100, "gone": [1] * 200}
    )
    table = lake.create_table_as(NAME, source, "p", properties=properties)
    table.alter.change_type("n", "bigint")
    table.alter.rename_column("p", "q")
    table.alter.drop_column("gone")
    table.append(pa.table({"id": [900], "n": [2**40], "q": ["y"]}))
    table.delete("id = 5")
    before = _rows(table, "_row_id", "_row_commit_version")
    for feature in ("deletionVectors", "typeWidening", "columnMapping"):
        table.alter.drop_feature(feature)
        assert feature not in (table.snapshot().protocol.writer_features or ())
        assert _rows(table, "_row_id", "_row_commit_version") == before
    snapshot = table.snapshot()
    assert snapshot.files["deletionVector"].null_count == snapshot.num_files == 3
    text = snapshot.metadata.schema_string
    assert "typeChanges" not in text and "physicalName" not in text
    root = table.location.removeprefix("file://")
    schemas = [pq.read_schema(f"{root}/{path}") for path in table.scan().files()["path"].to_pylist()]
    assert {str(schema.field("n").type) for schema in schemas} == {"int64"}
    assert all({"id", "n"} <= set(schema.names) and not {"p", "q", "gone"} & set(schema.names) for schema in schemas)
    assert table.scan(where="q = 'x'").count() == 100
    operations = [entry.commit_info.operation for entry in table.history(limit=5) if entry.commit_info is not None]
    assert operations[1] == "REMOVE COLUMN MAPPING" and operations[3] == "REORG"


def test_column_mapping_ends_by_its_property(lake: Connection) -> None:
    table = lake.create_table_as(NAME, pa.table({"a": [1, 2]}), properties={"delta.columnMapping.mode": "id"})
    table.alter.rename_column("a", "b")
    table.alter.set_properties({"delta.columnMapping.mode": "none"})
    assert table.to_arrow().to_pylist() == [{"b": 1}, {"b": 2}]


def _ordered(table: DeltaTable) -> None:
    table.optimize(z_order_by=["a"])


def _dropped(table: DeltaTable) -> None:
    table.alter.drop_feature("deletionVectors")


@pytest.mark.parametrize("act", [_ordered, _dropped])
def test_what_only_spark_writes_is_refused_before_anything_is_written(
    lake: Connection, tmp_path: Path, act: Callable[[DeltaTable], None]
) -> None:
    table = lake.create_table(NAME, "a BIGINT, `_row_id` BIGINT", properties={"delta.enableRowTracking": "true"})
    table.append(pa.table({"a": [1, 2, 3, 4], "_row_id": [5, 6, 7, 8]}))
    table.delete("a = 1")
    version, files = table.version(), _files(tmp_path)
    with pytest.raises(InvalidArgumentError, match="needs Spark, because the table has a column named '_row_id'"):
        act(table)
    assert (table.version(), _files(tmp_path)) == (version, files)


@pytest.mark.parametrize("act", [_ordered, _dropped])
def test_a_damaged_file_leaves_the_table_as_it_was(
    lake: Connection, tmp_path: Path, act: Callable[[DeltaTable], None]
) -> None:
    table = lake.create_table_as(NAME, pa.table({"a": range(50_000)}))
    table.append(pa.table({"a": range(50_000)}))
    table.delete("a = 7")
    path = Path(table.location.removeprefix("file://")) / table.scan().files()["path"][1].as_py()
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)
    version, files = table.version(), _files(tmp_path)
    with pytest.raises(CorruptLogError):
        act(table)
    assert (table.version(), _files(tmp_path)) == (version, files)


def test_a_rewrite_conflicts_with_a_change_of_its_files(lake: Connection, tmp_path: Path) -> None:
    table = lake.create_table_as(NAME, pa.table({"a": [1, 2, 3]}))
    plan = table.plan_optimize(z_order_by="a")
    table.delete("a = 1")
    files = _files(tmp_path)
    with pytest.raises(CommitConflictError):
        plan.apply()
    assert _files(tmp_path) == files and table.to_arrow().num_rows == 2


def test_the_shell_orders_rows_and_drops_features(lake: Connection, tmp_path: Path) -> None:
    table = lake.create_table_as(NAME, pa.table({"a": [3, 1, 2], "b": [1.0, 2.0, 3.0]}))
    table.delete("a = 1")
    for command in (("optimize", NAME, "--zorder", "b", "--apply"), ("alter", "drop-feature", NAME, "deletionVectors")):
        done = CliRunner().invoke(main, ["--catalog", f"sqlite:///{tmp_path}/catalog.db", *command])
        assert done.exit_code == 0, done.output
    assert _rows(table) == ["{'a': 2, 'b': 3.0}", "{'a': 3, 'b': 1.0}"]
    assert "deletionVectors" not in (table.snapshot().protocol.writer_features or ())
