"""Queries that are stopped, changed and started again, by both: from one source, each into a table of its own.

After each run both have ended alike, and the targets have equal rows, equally many commits and the same batches in ``txn``.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster import Connection, DeltaTable, Idempotency, SchemaMode, connect
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.operations.writing.write_result import WriteOutcome, WriteResult
from cm_delta_dagster.storage.stores import Stores
from tests.differential.peers import DeltaSpark, canonical
from tests.support.path_snapshots import load_path_snapshot

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
        self.mode = "append"
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
            mode=self.mode,
        )

    def run_ours(self, options: dict[str, Any], schema_mode: SchemaMode) -> str | None:
        try:
            frame = self.lake.path_table(str(self.source)).stream(**options).to_df()
            if self.mode == "complete":
                frame = frame.groupBy("p").count()
            query = self.lake.table(self.name).write_stream(
                frame,
                checkpoint=str(self.home / "checkpoint of ours"),
                output_mode=self.mode,
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

    def compare_history(self) -> None:
        """Both recorded the same of each batch."""
        self.lake.client.wait_for_background()
        ours = self.lake.table(self.name).snapshot()
        assert _streamed(ours) == _streamed(load_path_snapshot(Stores(), f"file://{self.home / 'target'}"))

    def ids(self) -> list[int]:
        return sorted(self.lake.table(self.name).to_arrow(["id"])["id"].to_pylist())


def _streamed(snapshot: Snapshot) -> list[tuple[str | None, dict[str, str], dict[str, str]]]:
    """Operation, parameters and metrics of each commit of a query, without ids and sizes."""
    found = []
    for version in range(1, snapshot.version + 1):
        commit = f"{snapshot.location.removeprefix('file://')}/_delta_log/{version:020d}.json"
        infos = [json.loads(line).get("commitInfo") for line in Path(commit).read_text().splitlines()]
        info = next(each for each in infos if each is not None)
        parameters = {name: str(value) for name, value in info["operationParameters"].items() if name != "queryId"}
        metrics = {name: value for name, value in info["operationMetrics"].items() if name != "numOutputBytes"}
        found.append((info["operation"], parameters, metrics))
    return found


def _batches(snapshot: Snapshot) -> list[int]:
    """The number of the last batch of each query that wrote to the table."""
    return sorted(item.version for item in snapshot.state.transactions.values())


@pytest.fixture
def make(delta_spark: DeltaSpark, lake: Connection, tmp_path: Path) -> Callable[..., Pair]:
    return lambda properties="'a' = 'b'": Pair(delta_spark, lake, tmp_path, properties)


@pytest.mark.requirements("STREAM-3")
@pytest.mark.exhaustive
def test_a_source_that_was_changed_or_created_again_stops_the_query(make: Callable[..., Pair]) -> None:
    """Another table at the path, and another path."""
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


@pytest.mark.requirements("STREAM-4")
@pytest.mark.exhaustive
def test_a_new_column_stops_a_query_once_and_comes_after_a_restart(make: Callable[..., Pair]) -> None:
    """The target refuses the column unless the query merges schemas."""
    pair = make()
    pair.put(0, 2)
    assert pair.run() == (None, None)
    pair.sql("ALTER TABLE {t} ADD COLUMN n int", "INSERT INTO {t} VALUES (2, 'a', 7)")
    assert pair.run()[0] is not None
    assert pair.run(merge_schema=True) == (None, None)
    assert pair.lake.table(pair.name).to_arrow(["id", "n"]).num_rows == 3


@pytest.mark.requirements("STREAM-6")
@pytest.mark.exhaustive
def test_a_target_that_was_created_again_gets_what_is_new(make: Callable[..., Pair]) -> None:
    """The checkpoint counts; a batch whose progress was lost is written to the new table."""
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


@pytest.mark.requirements("STREAM-6", "TXN-4")
@pytest.mark.exhaustive
def test_a_query_killed_after_its_commit_writes_no_row_twice(make: Callable[..., Pair]) -> None:
    """The checkpoint has the plan of the last batch and not its end, as if the process had been killed."""
    pair = make()
    pair.put(0, 4)
    pair.put(4, 8)
    assert pair.run({"maxFilesPerTrigger": "1"}, {"max_files": 1}) == (None, None)
    pair.forget("commits")
    assert pair.run({"maxFilesPerTrigger": "1"}, {"max_files": 1}) == (None, None)
    pair.forget("commits")
    pair.put(8, 10)
    assert pair.run() == (None, None)
    assert pair.ids() == list(range(10))
    pair.compare_history()
    theirs = pair.peer.transactions(pair.home / "target")
    assert list(theirs.values()) == _batches(pair.lake.table(pair.name).snapshot()) == [2]


@pytest.mark.requirements("STREAM-3")
@pytest.mark.exhaustive
def test_options_of_the_start_do_not_count_after_a_restart(make: Callable[..., Pair]) -> None:
    """The checkpoint says where the query is."""
    pair = make()
    for first in (0, 2, 4):
        pair.put(first, first + 2)
    assert pair.run({"startingVersion": "2"}, {"starting_version": 2}) == (None, None)
    assert pair.ids() == [2, 3, 4, 5]
    for number, version in enumerate((2, 0, "latest", 99)):
        pair.put(6 + number, 7 + number)
        assert pair.run({"startingVersion": str(version)}, {"starting_version": version}) == (None, None)
        assert pair.ids() == list(range(2, 7 + number))


@pytest.mark.requirements("STREAM-6")
@pytest.mark.exhaustive
def test_a_first_batch_that_was_planned_keeps_its_start(make: Callable[..., Pair]) -> None:
    """Killed before the commit of the first batch. delta-spark plans it again by the option that it has then."""
    pair = make()
    for first in (0, 2, 4):
        pair.put(first, first + 2)
    assert pair.run({"startingVersion": "2"}, {"starting_version": 2}) == (None, None)
    pair.create_targets("id bigint, p string")
    pair.forget("commits")
    assert pair.run_theirs({"startingVersion": "1"}, merge_schema=False) is None
    assert pair.run_ours({"starting_version": 1}, SchemaMode.STRICT) is None
    assert pair.ids() == [2, 3, 4, 5]
    theirs = pair.peer.sql(f"SELECT id FROM delta.`{pair.home / 'target'}`")
    assert sorted(theirs["id"].to_pylist()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.requirements("STREAM-4")
@pytest.mark.parametrize(
    "change", ["RENAME COLUMN p TO q", pytest.param("DROP COLUMN p", marks=pytest.mark.exhaustive)]
)
def test_unread_rows_before_a_renamed_or_dropped_column_stop_delta_spark_only(
    make: Callable[..., Pair], change: str
) -> None:
    """A query that is started again maps them to its new columns."""
    pair = make("'delta.columnMapping.mode' = 'name'")
    pair.put(0, 2)
    assert pair.run() == (None, None)
    pair.put(2, 4)
    pair.sql(f"ALTER TABLE {{t}} {change}")
    is_rename = "RENAME" in change
    pair.sql("INSERT INTO {t} SELECT " + ("id, 'x'" if is_rename else "id") + " FROM range(4, 6, 1, 1)")
    assert "schemaTrackingLocation" in str(pair.run_theirs({}, merge_schema=True))
    assert pair.run_ours({}, SchemaMode.MERGE) is None
    assert pair.ids() == list(range(6))
    rows = pair.lake.table(pair.name).to_arrow().sort_by("id").to_pylist()
    assert [row.get("q") for row in rows] == [None, None, *(["a", "b", "x", "x"] if is_rename else [None] * 4)]
    assert [row["p"] for row in rows] == ["a", "b", None, None, None, None]


@pytest.mark.requirements("STREAM-4")
@pytest.mark.exhaustive
def test_a_column_renamed_after_all_rows_were_read_stops_delta_spark_only(make: Callable[..., Pair]) -> None:
    """A query that has read all rows before the change goes on with the columns of its new DataFrame."""
    pair = make("'delta.columnMapping.mode' = 'name'")
    pair.put(0, 2)
    assert pair.run() == (None, None)
    pair.sql("ALTER TABLE {t} RENAME COLUMN p TO q", "INSERT INTO {t} VALUES (2, 'x')")
    assert pair.run()[0] is not None  # The target has no such column.
    assert "schemaTrackingLocation" in str(pair.run_theirs({}, merge_schema=True))
    assert pair.run_ours({}, SchemaMode.MERGE) is None
    rows = pair.lake.table(pair.name).to_arrow(["id", "p", "q"]).sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in rows] == [(0, "a", None), (1, "b", None), (2, None, "x")]


@pytest.mark.requirements("STREAM-6")
@pytest.mark.exhaustive
def test_a_complete_result_replaces_the_rows_once_for_each_batch(make: Callable[..., Pair]) -> None:
    """An aggregation in several batches, restarted, and killed after a commit."""
    pair = make()
    pair.mode = "complete"
    pair.create_targets("p string, count bigint")
    expected = []
    for first, end in ((0, 3), (3, 8), (8, 9)):
        pair.put(first, end)
        assert pair.run() == (None, None)
        expected = [{"p": "a", "count": (end + 1) // 2}, {"p": "b", "count": end // 2}]
        assert pair.lake.table(pair.name).to_arrow().sort_by("p").to_pylist() == expected
        pair.forget("commits")
        assert pair.run() == (None, None)
    assert pair.lake.table(pair.name).to_arrow().sort_by("p").to_pylist() == expected
    assert _batches(pair.lake.table(pair.name).snapshot()) == [2]
    ours, theirs = pair.lake.table(pair.name).snapshot(), load_path_snapshot(Stores(), f"file://{pair.home / 'target'}")
    pair.lake.client.wait_for_background()
    kinds = [(name, parameters, set(metrics)) for name, parameters, metrics in _streamed(ours)]
    assert kinds == [(name, parameters, set(metrics)) for name, parameters, metrics in _streamed(theirs)]
    rows = [metrics["numOutputRows"] for _, _, metrics in _streamed(ours)]
    assert rows == [metrics["numOutputRows"] for _, _, metrics in _streamed(theirs)] == ["2", "2", "2"]


@pytest.mark.exhaustive
@pytest.mark.requirements("STREAM-3")
@pytest.mark.parametrize("handling", ["ignoreChanges", "skipChangeCommits"])
def test_changed_rows_stop_a_query_until_it_skips_or_ignores_them(make: Callable[..., Pair], handling: str) -> None:
    """From one checkpoint, by other options at each start."""
    pair = make()
    chosen = ({handling: "true"}, {"changes": handling})
    deletes = ({"ignoreDeletes": "true"}, {"changes": "ignoreDeletes"})
    pair.put(0, 4)
    assert pair.run() == (None, None)
    pair.sql("DELETE FROM {t} WHERE id = 1", "UPDATE {t} SET p = 'c' WHERE id = 2")
    pair.put(4, 6)
    ours, theirs = pair.run()
    assert "skipChangeCommits" in str(ours) and "skipChangeCommits" in str(theirs)
    assert pair.run(*deletes)[0] is not None
    assert pair.run(*chosen) == (None, None)
    assert sorted(set(pair.ids())) == list(range(6))
    pair.put(6, 8)
    # delta-spark checks the last batch again when it starts, by the options that it has now; here that batch stays read.
    assert "version 2" in str(pair.run_theirs(deletes[0], merge_schema=False))
    assert pair.run_ours(deletes[1], SchemaMode.STRICT) is None
    assert pair.run_theirs(chosen[0], merge_schema=False) is None
    pair.compare()
    pair.sql("DELETE FROM {t} WHERE id >= 6")
    pair.put(8, 10)
    assert pair.run()[0] is not None
    assert pair.run(*deletes) == (None, None)
    pair.sql("DELETE FROM {t} WHERE id = 8")
    pair.put(10, 12)
    assert pair.run(*deletes)[0] is not None
    assert pair.run(*chosen) == (None, None)


_MERGED = "SELECT 3L AS id, 'm' AS p UNION ALL SELECT 11L, 'm'"
_MERGE = f"MERGE INTO {{t}} t USING ({_MERGED}) s ON t.id = s.id WHEN MATCHED THEN"


def _frame(table: DeltaTable, text: str) -> DataFrame:
    return table.to_df().sparkSession.sql(text)


_VERBS: dict[str, tuple[Callable[[DeltaTable, Idempotency], WriteResult], str]] = {
    "append": (
        lambda table, once: table.append(_frame(table, "SELECT 10L AS id, 'n' AS p"), idempotency=once),
        "INSERT INTO {t} VALUES (10, 'n')",
    ),
    "overwrite": (
        lambda table, once: table.overwrite(_frame(table, "SELECT 10L AS id, 'n' AS p"), idempotency=once),
        "INSERT OVERWRITE {t} VALUES (10, 'n')",
    ),
    "replace where": (
        lambda table, once: table.overwrite(
            _frame(table, "SELECT 1L AS id, 'w' AS p"), where="id = 1", idempotency=once
        ),
        "INSERT INTO {t} REPLACE WHERE id = 1 VALUES (1, 'w')",
    ),
    "delete": (
        lambda table, once: table.delete("id < 3", idempotency=once),
        "DELETE FROM {t} WHERE id = 1",
    ),
    "update": (
        lambda table, once: table.update({"p": "concat(p, 'u')"}, "id = 2", idempotency=once),
        "UPDATE {t} SET p = concat(p, 'u') WHERE id = 2",
    ),
    "merge": (
        lambda table, once: table.upsert(_frame(table, _MERGED), on=["id"], idempotency=once),
        f"{_MERGE} UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    ),
    "merge with clauses": (
        lambda table, once: (
            table.merge(_frame(table, _MERGED), "target.id = s.id", source_alias="s", idempotency=once)
            .when_matched_update({"p": "concat(target.p, 'c')"})
            .execute()
        ),
        f"{_MERGE} UPDATE SET p = concat(t.p, 'c')",
    ),
}


@pytest.mark.requirements("TXN-4")
@pytest.mark.parametrize(
    "verb", [verb if verb == "merge" else pytest.param(verb, marks=pytest.mark.exhaustive) for verb in _VERBS]
)
def test_a_write_with_a_txn_of_the_other_is_not_repeated(
    delta_spark: DeltaSpark, lake: Connection, tmp_path: Path, verb: str
) -> None:
    """Both write to one table; an equal or a lower number of an application is skipped, whichever of them recorded it."""
    mine, text = _VERBS[verb]
    path, name = tmp_path / "t", f"main.s.{tmp_path.name}"
    marks = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")

    def theirs(app_id: str, version: int) -> int:
        set_marks = [f"SET {mark} = {value}" for mark, value in zip(marks, (app_id, version), strict=True)]
        try:
            delta_spark.sql(*set_marks, text.format(t=f"delta.`{path}`"), "SELECT 1")
        finally:
            delta_spark.sql(*[f"RESET {mark}" for mark in marks], "SELECT 1")
        return load_path_snapshot(Stores(), f"file://{path}").version

    delta_spark.sql(
        f"CREATE TABLE delta.`{path}` (id bigint, p string) USING DELTA",
        f"INSERT INTO delta.`{path}` SELECT id, 'a' FROM range(6)",
        "SELECT 1",
    )
    assert theirs("A", 5) == 2
    table = lake.onboarding.adopt(str(path), name)
    acts = [("A", 5), ("A", 4), ("A", 6), ("B", 1), ("B", 1)]
    outcomes = [mine(table, Idempotency(app_id=app_id, version=version)).outcome for app_id, version in acts]
    done, skipped = WriteOutcome.COMMITTED, WriteOutcome.ALREADY_COMMITTED
    assert outcomes == [skipped, skipped, done, done, skipped]
    lake.onboarding.release(name)
    assert delta_spark.transactions(path) == {"A": 6, "B": 1}
    version = load_path_snapshot(Stores(), f"file://{path}").version
    assert [theirs("A", 6), theirs("A", 5), theirs("B", 1)] == [version] * 3
