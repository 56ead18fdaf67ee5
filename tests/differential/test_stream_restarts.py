"""Queries that are stopped, changed and started again, by both: from one source, each into a table of its own.

After each run both have ended alike, and the targets have equal rows, equally many commits and the same batches in ``txn``.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, SchemaMode, connect
from cm_delta_dagster.client.snapshots.path_table import load_path_snapshot
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.storage.stores import Stores
from tests.differential.peers import DeltaSpark, canonical

pytestmark = [pytest.mark.peers, pytest.mark.slow, pytest.mark.timeout(900)]

_ROWS = "INSERT INTO {t} SELECT id, IF(id % 2 = 0, 'a', 'b') FROM range({first}, {end}, 1, 1)"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Connection]:
    home = tmp_path_factory.mktemp("stream_restarts")
    with connect(f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/ware", spark=spark) as connection:
        yield connection


class Pair:
    """A source, and a query of delta-spark and one of this package that copy it, with a checkpoint and a target each."""

    def __init__(self, peer: DeltaSpark, lake: Connection, home: Path, properties: str = "'a' = 'b'") -> None:
        self.peer, self.lake, self.home, self.properties = peer, lake, home, properties
        self.name = f"main.s.{home.name}"
        self.source = home / "source"
        self.create_source()
        self.create_targets("id bigint, p string")

    def create_source(self) -> None:
        self.sql(f"CREATE TABLE {{t}} (id bigint, p string) USING DELTA TBLPROPERTIES ({self.properties})")

    def create_targets(self, columns: str) -> None:
        shutil.rmtree(self.home / "target", ignore_errors=True)
        self.peer.sql(f"CREATE TABLE delta.`{self.home / 'target'}` ({columns}) USING DELTA")
        self.lake.sql(f"DROP TABLE IF EXISTS {self.name}")
        self.lake.sql(f"CREATE TABLE {self.name} ({columns})")

    def sql(self, *statements: str) -> None:
        self.peer.sql(*[text.format(t=f"delta.`{self.source}`") for text in statements], "SELECT 1")

    def put(self, first: int, end: int) -> None:
        self.sql(_ROWS.format(t="{t}", first=first, end=end))

    def forget(self, *kinds: str) -> None:
        """Lose what Spark wrote last to both checkpoints, as if the process had been killed before."""
        for owner in ("ours", "theirs"):
            for kind in kinds:
                folder = self.home / f"checkpoint of {owner}" / kind
                last = max(int(file.name) for file in folder.iterdir() if file.name.isdigit())
                (folder / str(last)).unlink()
                (folder / f".{last}.crc").unlink(missing_ok=True)

    def run(
        self, options: dict[str, str] | None = None, mine: dict[str, Any] | None = None, *, merge_schema: bool = False
    ) -> tuple[str | None, str | None]:
        """Start both queries; how they ended, after the targets were compared."""
        theirs = self.run_theirs(options or {}, merge_schema=merge_schema)
        ours = self.run_ours(mine or {}, SchemaMode.MERGE if merge_schema else SchemaMode.STRICT)
        assert (ours is None) == (theirs is None), f"ours: {ours}\ntheirs: {theirs}"
        self.compare()
        return ours, theirs

    def run_theirs(self, options: dict[str, str], *, merge_schema: bool) -> str | None:
        return self.peer.stream_into(
            self.home / "target",
            self.source,
            self.home / "checkpoint of theirs",
            options=options,
            sink={"mergeSchema": "true"} if merge_schema else {},
        )

    def run_ours(self, options: dict[str, Any], schema_mode: SchemaMode) -> str | None:
        try:
            frame = self.lake.path_table(str(self.source)).stream(**options)
            query = self.lake.table(self.name).write_stream(
                frame,
                checkpoint=str(self.home / "checkpoint of ours"),
                trigger={"availableNow": True},
                schema_mode=schema_mode,
            )
            try:
                query.awaitTermination(300)
            finally:
                query.stop()
        except (StreamingQueryException, CmDeltaError) as error:
            return str(error)
        return None

    def compare(self) -> None:
        target = self.home / "target"
        ours, theirs = self.lake.table(self.name).snapshot(), load_path_snapshot(Stores(), f"file://{target}")
        rows = canonical(self.lake.table(self.name).to_arrow())
        assert rows == canonical(self.peer.sql(f"SELECT * FROM delta.`{target}`"))
        assert (ours.version, _batches(ours)) == (theirs.version, _batches(theirs))

    def ids(self) -> list[int]:
        return sorted(self.lake.table(self.name).to_arrow(["id"])["id"].to_pylist())


def _batches(snapshot: Snapshot) -> list[int]:
    """The number of the last batch of each query that wrote to the table."""
    return sorted(item.version for item in snapshot.state.transactions.values())


@pytest.fixture
def make(delta_spark: DeltaSpark, lake: Connection, tmp_path: Path) -> Callable[..., Pair]:
    return lambda properties="'a' = 'b'": Pair(delta_spark, lake, tmp_path, properties)


def test_a_source_that_was_changed_or_created_again_stops_the_query(make: Callable[..., Pair]) -> None:
    """STREAM-3: another table at the path, and another path."""
    pair = make()
    pair.put(0, 2)
    assert pair.run() == (None, None)
    shutil.rmtree(pair.source)
    pair.create_source()
    pair.put(10, 12)
    assert "another table" in str(pair.run()[0])
    pair.source = pair.home / "other"
    pair.create_source()
    pair.put(20, 22)
    assert "another table" in str(pair.run()[0])
    assert pair.ids() == [0, 1]


def test_a_new_column_stops_a_query_once_and_comes_after_a_restart(make: Callable[..., Pair]) -> None:
    """STREAM-4: the target refuses the column unless the query merges schemas."""
    pair = make()
    pair.put(0, 2)
    assert pair.run() == (None, None)
    pair.sql("ALTER TABLE {t} ADD COLUMN n int", "INSERT INTO {t} VALUES (2, 'a', 7)")
    assert pair.run()[0] is not None
    assert pair.run(merge_schema=True) == (None, None)
    assert pair.lake.table(pair.name).to_arrow(["id", "n"]).num_rows == 3


def test_a_target_that_was_created_again_gets_what_is_new(make: Callable[..., Pair]) -> None:
    """STREAM-6: the checkpoint counts; a batch whose progress was lost is written to the new table."""
    pair = make()
    pair.put(0, 2)
    assert pair.run() == (None, None)
    pair.create_targets("id bigint, p string")
    pair.put(2, 4)
    assert pair.run() == (None, None)
    assert pair.ids() == [2, 3]
    pair.create_targets("id bigint, p string")
    pair.forget("commits")
    assert pair.run() == (None, None)
    assert pair.ids() == [2, 3]
