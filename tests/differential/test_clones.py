"""Clones of ours read by delta-spark, and VACUUM of sources and clones by both."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.actions.paths import decode_path
from cm_delta_dagster.protocol.features.deletion_vectors import vector_files
from cm_delta_dagster.storage.stores import Stores
from tests.differential.peers import DeltaSpark, canonical, published_copy
from tests.support.path_snapshots import load_path_snapshot

pytestmark = [pytest.mark.peers, pytest.mark.slow]

_LIFE = (
    "CREATE TABLE {s} (id bigint, p string) USING DELTA PARTITIONED BY (p) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "INSERT INTO {s} SELECT id, 'a b' FROM range(0, 10, 1, 1)",
    "INSERT INTO {s} SELECT id, 'c' FROM range(10, 20, 1, 1)",
    "DELETE FROM {s} WHERE id IN (1, 11)",
    "CREATE TABLE {c} SHALLOW CLONE {s}",
    "DELETE FROM {s} WHERE id < 5",
    "UPDATE {s} SET id = id + 100 WHERE p = 'c'",
    "INSERT INTO {s} SELECT id, 'gone' FROM range(200, 203, 1, 1)",
    "DELETE FROM {s} WHERE p = 'gone'",
    "INSERT INTO {c} SELECT id, 'a b' FROM range(50, 55, 1, 1)",
    "DELETE FROM {c} WHERE id IN (7, 51)",
    "UPDATE {c} SET p = 'moved' WHERE id = 12",
)
"""A source, its shallow clone, and changes of both afterwards, by deletion vectors and by new files."""


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/ware house", spark=spark) as connection:
        connection.maintenance.set_policy("main", "data_cleanup")
        yield connection


def _stored(location: str) -> set[str]:
    """The files below a table, without its log and without Hadoop's checksums."""
    root = Path(location.removeprefix("file://"))
    files = (path for path in root.rglob("*") if path.is_file() and "_delta_log" not in path.parts)
    return {str(path) for path in files if not path.name.endswith(".crc")}


def _named(snapshot: Snapshot) -> set[str]:
    """The data files and the files of deletion vectors that the snapshot names."""
    paths = {decode_path(path) for path in snapshot.files["path"].to_pylist()} | vector_files(
        snapshot.location, snapshot.files
    )
    found = (path if path.startswith("file:") else f"{snapshot.location.rstrip('/')}/{path}" for path in paths)
    return {decode_path("/" + path.removeprefix("file:").lstrip("/")) for path in found}


def _vacuum_now(lake: Connection, name: str) -> int:
    return lake.table(name).vacuum(timedelta(0), force=True).num_files


@pytest.mark.exhaustive
def test_delta_spark_reads_the_rows_of_clones(delta_spark: DeltaSpark, lake: Connection, tmp_path: Path) -> None:
    """A shallow clone names files of our table and of a table with deletion vectors that delta-spark wrote."""
    theirs = tmp_path / "the irs"
    delta_spark.sql(
        f"create table delta.`{theirs}` (id bigint, p string) using delta partitioned by (p) "
        "tblproperties ('delta.enableDeletionVectors' = 'true')",
        f"insert into delta.`{theirs}` select /*+ repartition(1) */ id, 'a b' from range(10)",
        f"delete from delta.`{theirs}` where id < 3",
    )
    for mode in ("shallow", "deep"):
        lake.onboarding.clone(str(theirs), f"main.a.{mode}", mode=mode)
        copy = lake.table(f"main.a.{mode}")
        assert copy.scan().files().column("deletionVector").null_count == 0
        expected = canonical(copy.to_arrow())
        assert expected == canonical(copy.to_df().toArrow()) == canonical(delta_spark.rows(theirs, 2))
        lake.client.wait_for_background()
        readable = published_copy(copy.location, tmp_path / mode)
        assert canonical(delta_spark.rows(readable, 0)) == expected


@pytest.mark.exhaustive
@pytest.mark.requirements("VAC-1", "DV-1")
def test_vacuum_keeps_what_a_clone_needs_and_delta_spark_does_not(
    delta_spark: DeltaSpark, lake: Connection, tmp_path: Path
) -> None:
    """Both delete from each directory what nothing needs; the clone of delta-spark loses files of its source.

    VACUUM of delta-spark fails at inline deletion vectors, which are short and stand in the log.
    """
    source, clone = tmp_path / "so urce", tmp_path / "clo ne"
    for text in _LIFE:
        lake.sql(text.format(s="main.a.s", c="main.a.c"))
        delta_spark.sql(text.format(s=f"delta.`{source}`", c=f"delta.`{clone}`"))
    ours = {name: canonical(lake.table(f"main.a.{name}").to_arrow()) for name in "sc"}
    theirs = {"s": source, "c": clone}
    assert ours == {name: canonical(delta_spark.sql(f"SELECT * FROM delta.`{at}`")) for name, at in theirs.items()}

    deleted = [_vacuum_now(lake, "main.a.s"), _vacuum_now(lake, "main.a.c"), _vacuum_now(lake, "main.a.s")]
    unchecked = "SET spark.databricks.delta.retentionDurationCheck.enabled = false"
    for at in theirs.values():
        delta_spark.sql(unchecked, f"VACUUM delta.`{at}` RETAIN 0 HOURS", "SELECT 1")
    snapshots = {name: lake.table(f"main.a.{name}").snapshot() for name in "sc"}
    needed = _named(snapshots["s"]) | _named(snapshots["c"])
    for snapshot in snapshots.values():
        assert _stored(snapshot.location) == {path for path in needed if path in _stored(snapshot.location)}
    assert needed == _stored(snapshots["s"].location) | _stored(snapshots["c"].location)
    assert deleted[0] > 0 and deleted[2] == 0
    for at in theirs.values():
        snapshot = load_path_snapshot(Stores(), f"file://{at}")
        assert _stored(str(at)) == {path for path in _named(snapshot) if path.startswith(f"{at}/")}

    assert {name: canonical(lake.table(f"main.a.{name}").to_arrow()) for name in "sc"} == ours
    assert canonical(lake.table("main.a.c").to_df().toArrow()) == ours["c"]
    assert canonical(delta_spark.sql(f"SELECT * FROM delta.`{source}`")) == ours["s"]
    with pytest.raises(RuntimeError, match=r"(?i)not.?exist|no such file|FileNotFound"):
        delta_spark.sql(f"SELECT * FROM delta.`{clone}`")
    lake.client.wait_for_background()
    readable = published_copy(lake.table("main.a.c").location, tmp_path / "copy")
    assert canonical(delta_spark.sql(f"SELECT * FROM delta.`{readable}`")) == ours["c"]
    with pytest.raises(RuntimeError, match=r"MatchError: Some\(DeletionVectorDescriptor\(i,"):
        delta_spark.sql(unchecked, f"VACUUM delta.`{readable}` RETAIN 0 HOURS", "SELECT 1")


@pytest.mark.requirements("VAC-1")
@pytest.mark.exhaustive
def test_a_clone_whose_source_delta_spark_vacuumed_names_the_missing_file(
    delta_spark: DeltaSpark, lake: Connection, tmp_path: Path
) -> None:
    """No catalog knows the clones of a table by path, which is said when it is cloned; a deep clone has copies."""
    source = f"delta.`{tmp_path / 'so urce'}`"
    delta_spark.sql(
        f"CREATE TABLE {source} (id bigint) USING DELTA", f"INSERT INTO {source} SELECT id FROM range(0, 5, 1, 1)"
    )
    assert "VACUUM" in str(lake.onboarding.clone(str(tmp_path / "so urce"), "main.a.shallow").warning)
    lake.onboarding.clone(str(tmp_path / "so urce"), "main.a.deep", mode="deep")
    rows = canonical(lake.table("main.a.shallow").to_arrow())
    delta_spark.sql(
        f"INSERT OVERWRITE {source} VALUES (9)",
        "SET spark.databricks.delta.retentionDurationCheck.enabled = false",
        f"VACUUM {source} RETAIN 0 HOURS",
        "SELECT 1",
    )
    for read in (
        lambda: lake.table("main.a.shallow").to_arrow(),
        lambda: lake.table("main.a.shallow").to_df().collect(),
    ):
        with pytest.raises(CmDeltaError, match=r"so( |%20)urce/.*\.parquet"):
            read()
    deep = lake.table("main.a.deep")
    assert canonical(deep.to_arrow()) == canonical(deep.to_df().toArrow()) == rows
