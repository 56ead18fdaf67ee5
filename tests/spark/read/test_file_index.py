"""Conditions on a DataFrame that was made before: files are left out, and never a row; with a file index and without."""

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.clientserver import ClientServerConnection
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.row_tables import small_files_table
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.file_columns import adds_to_table
from cm_delta_dagster.protocol.features.deletion_vectors import encode_inline
from cm_delta_dagster.protocol.features.table_layout import ScanRequest
from cm_delta_dagster.protocol.predicates.predicates import Predicate, to_sql
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.read import file_index
from cm_delta_dagster.spark.read.scan import scan
from cm_delta_dagster.storage.local_store import LocalStore
from cm_delta_dagster.storage.stores import Stores
from tests.operations.reading.test_skipping import tables, write_table
from tests.spark.read.test_scan import Files
from tests.support.builders import rows_of
from tests.support.log_records import messages_of
from tests.support.random_rows import predicates, sql_truth


@pytest.fixture(params=["index", "files"])
def path(request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to read: through a file index, and without one, as where the compiler has failed before."""
    if request.param == "files":
        monkeypatch.setattr(file_index, "_indexes", WeakKeyDictionary({spark.sparkContext._gateway: None}))
    return str(request.param)


@pytest.fixture
def plainly(spark: SparkSession) -> Iterator[None]:
    """Without Spark's own use of the bounds in Parquet files, which is wrong for NaN and -0.0; and without compiling each of
    many small queries."""
    changed = {"spark.sql.parquet.filterPushdown": "false", "spark.sql.codegen.wholeStage": "false",
               "spark.sql.codegen.factoryMode": "NO_CODEGEN"}  # fmt: skip
    for key, value in changed.items():
        spark.conf.set(key, value)
    yield
    for key in changed:
        spark.conf.unset(key)


class Refusing:
    """The factory of the JVM, of which one method fails."""

    def __init__(self, indexes: file_index.FileIndexes | None, refused: str) -> None:
        assert indexes is not None
        self.factory, self.refused = indexes._factory, refused

    def __getattr__(self, name: str) -> Any:
        return getattr(self.factory, "no_such_method" if name == self.refused else name)


def keys_by_condition(frame: DataFrame, conditions: Sequence[str], key: str) -> list[list[int]]:
    """The keys of the rows that each condition chooses, in one query."""
    parts = [
        frame.where(condition).select(F.lit(number), F.col(key).cast("long"))
        for number, condition in enumerate(conditions)
    ]
    found: list[list[int]] = [[] for _ in conditions]
    for number, value in reduce(DataFrame.union, parts).collect():
        found[number].append(value)
    return [sorted(keys) for keys in found]


def check(spark: SparkSession, root: Path, files: Any, conditions: list[Predicate], is_mapped: bool) -> None:
    place = root / uuid.uuid4().hex
    living = write_table(place, files, is_mapped)
    frame = read(open_scan(open_path_table(Stores(), str(place))), spark=spark)
    found = keys_by_condition(frame, [to_sql(condition) for condition in conditions], "k")
    for number, condition in enumerate(conditions):
        wanted = sorted(row["k"] for row in living if sql_truth(condition, row) is True)
        assert found[number] == wanted, to_sql(condition)


RANDOM = (tables, st.lists(predicates, min_size=3, max_size=6), st.booleans())
RELAXED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.requirements("SKIP-1", "SKIP-2", "STATS-3", "COLMAP-9", "DV-22")
@settings(max_examples=2, deadline=None, suppress_health_check=RELAXED)
@given(*RANDOM)
@pytest.mark.usefixtures("plainly")
def test_a_late_condition_gives_what_reading_everything_and_choosing_gives(
    spark: SparkSession, tmp_path: Path, files: Any, conditions: list[Predicate], is_mapped: bool
) -> None:
    """Nulls, NaN, long strings, times cut to milliseconds, wide bounds."""
    check(spark, tmp_path, files, conditions, is_mapped)


@pytest.mark.exhaustive
@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=RELAXED)
@given(*RANDOM)
@pytest.mark.usefixtures("plainly")
def test_late_conditions_at_length(
    spark: SparkSession, tmp_path: Path, path: str, files: Any, conditions: list[Predicate], is_mapped: bool
) -> None:
    check(spark, tmp_path, files, conditions, is_mapped)


def numbered(spark: SparkSession, root: Path, *partitions: str, count: int = 4) -> Files:
    """``count`` files of ten rows each: ids from 0, 10, 20 ..., and texts and dates that ascend with them."""
    files = Files(
        spark, root, "id int, s string, d date, t timestamp, c decimal(10,2), b struct<x:long>, p int", *partitions
    )
    for number in range(count):
        first = 10 * number
        files.write_frame(
            spark.range(first, first + 10).selectExpr(
                "CAST(id AS INT) id", f"concat('{chr(97 + number)}', id) s", "date_add(DATE'2020-01-01', CAST(id AS INT)) d",
                "timestamp_seconds(id * 3600) t", "CAST(id AS DECIMAL(10,2)) c", "named_struct('x', id) b", f"{number} p",
            ).coalesce(1)
        )  # fmt: skip
    return files


def damage(files: Files, *kept: int) -> None:
    """All other files become unreadable, so that a query succeeds only if it does not open them."""
    for number, add in enumerate(files.adds):
        if number not in kept:
            (files.root / add.path).write_bytes(b"x" * add.size)


LATE = [
    "id = 15",
    "15 = id",
    "id > 11 AND id <= 14",
    "id BETWEEN 12 AND 13",
    "id IN (11, 13)",
    "id IN (11, 12, 13, 14, 15, 16, 17, 18, 19, 10, 11, 12)",
    "id <=> 12",
    "CAST(id AS BIGINT) = 15L",
    "NOT (id < 10 OR id >= 20)",
    "s LIKE 'b%' AND s < 'c'",
    "d = DATE'2020-01-13'",
    "t = timestamp_seconds(15 * 3600)",
    "c = 15.00",
    "b.x = 15",
    "id = 15 OR s = 'b11'",
    "p = 1",
    "p = 1 AND id = 15",
    "p + 1 = 2",
]


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize("partitions", [pytest.param((), marks=pytest.mark.slow), ("p",)])
@pytest.mark.usefixtures("plainly")
def test_files_that_a_late_condition_excludes_are_not_opened(
    spark: SparkSession, tmp_path: Path, partitions: tuple[str, ...]
) -> None:
    """Conditions on values, on partition columns and on fields of structs."""
    files = numbered(spark, tmp_path, *partitions)
    damage(files, 1)
    frame = files.scan().select("*")
    wanted = {10 + number for number in range(10)}
    conditions = [text for text in LATE if partitions or text != "p + 1 = 2"]
    for condition, found in zip(conditions, keys_by_condition(frame, conditions, "id"), strict=True):
        assert found and set(found) <= wanted, condition
    frame.createOrReplaceTempView("late")
    assert [row[0] for row in spark.sql("SELECT x FROM (SELECT id AS x FROM late) WHERE x = 12").collect()] == [12]
    other = spark.createDataFrame([(12, "kept")], "id int, note string")
    joined = frame.where("s > 'b' AND s < 'c'").join(other, "id")
    assert [(row["id"], row["note"]) for row in joined.collect()] == [(12, "kept")]


@pytest.mark.requirements("PART-8")
def test_a_join_leaves_partitions_out(spark: SparkSession, tmp_path: Path) -> None:
    """Dynamic partition pruning, for which each combination of values is one directory."""
    files = numbered(spark, tmp_path, "p")
    damage(files, 1, 2)
    names = spark.createDataFrame([(1, "one"), (2, "two"), (3, "three")], "q int, name string")
    joined = files.scan().join(F.broadcast(names.where("name LIKE '%o%'")), F.col("p") == F.col("q"))
    assert sorted(row["id"] for row in joined.collect()) == list(range(10, 30))
    assert "dynamicpruning" in joined._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]


@pytest.mark.requirements("DV-4")
def test_deleted_rows_and_late_conditions(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """Bounds of files with deleted rows are wide, and positions are those in the whole file."""
    files = numbered(spark, tmp_path, "p")
    adds = [replace(files.adds[0], deletion_vector=encode_inline([0, 5])), *files.adds[1:3]]
    adds.append(replace(files.adds[3], deletion_vector=encode_inline([9])))
    frame = files.scan(adds)
    assert frame.count() == 37
    assert sorted(row["id"] for row in frame.where("id IN (5, 6, 15, 38, 39)").collect()) == [6, 15, 38]
    assert sorted(row["id"] for row in frame.where("p IN (0, 3) AND id % 5 = 0").collect()) == [30, 35]
    if path == "index":
        damage(files, 3)
        assert sorted(row["id"] for row in frame.where("id > 35").collect()) == [36, 37, 38]


def test_frames_made_separately_share_what_is_cached(spark: SparkSession, tmp_path: Path) -> None:
    files = numbered(spark, tmp_path, count=2)
    first, second, other = files.scan(), files.scan(), files.scan(files.adds[:1])
    assert first.sameSemantics(second) and not first.sameSemantics(other)
    deleted = [[replace(files.adds[0], deletion_vector=encode_inline([number]))] for number in (1, 1, 2)]
    first_deleted, second_deleted, other_deleted = map(files.scan, deleted)
    assert first_deleted.sameSemantics(second_deleted) and not first_deleted.sameSemantics(other_deleted)
    first.cache()
    try:
        assert first.count() == 20
        assert "InMemoryTableScan" in second._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
        assert other.count() == 10
    finally:
        first.unpersist()


def test_an_exchange_over_two_equal_scans_is_reused(spark: SparkSession, tmp_path: Path) -> None:
    """Two frames of the same files are shuffled once, and those of other files are shuffled on their own."""
    files = numbered(spark, tmp_path, count=2)

    def joined(right: DataFrame) -> tuple[int, str]:
        sides = [
            frame.groupBy("id").agg(F.count("s").alias(name)) for frame, name in ((files.scan(), "x"), (right, "x"))
        ]
        frame = sides[0].join(sides[1].withColumnRenamed("x", "y").hint("merge"), "id")
        return len(frame.collect()), frame._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]

    num_rows, plan = joined(files.scan())
    assert num_rows == 20 and "ReusedExchange" in plan
    num_rows, plan = joined(files.scan(files.adds[:1]))
    assert num_rows == 10 and "ReusedExchange" not in plan


def test_a_late_condition_makes_no_more_calls_to_the_jvm_than_an_early_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the table to the rows of one of its files."""
    small_files_table(tmp_path / "small", 20)
    table = open_path_table(Stores(), str(tmp_path / "small"))
    send, commands = ClientServerConnection.send_command, []

    def counted(connection: Any, command: str) -> Any:
        commands.append(command)
        return send(connection, command)

    def calls(work: Callable[[], DataFrame]) -> int:
        commands.clear()
        assert len(work().collect()) == 5
        return sum(not command.startswith("m") for command in commands)  # Others free objects, at any time.

    condition = "id >= 1000 AND id < 1005"
    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    for _ in range(2):  # The first calls look up classes, too.
        late = calls(lambda: read(open_scan(table), spark=spark).where(condition))
        early = calls(lambda: read(open_scan(table, where=condition), spark=spark))
    assert 0 < late <= early


def test_the_size_of_a_frame_is_that_of_its_files(spark: SparkSession, tmp_path: Path) -> None:
    files = numbered(spark, tmp_path, count=2)
    size = files.scan()._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()  # type: ignore[operator]
    assert int(str(size)) == sum(add.size for add in files.adds)


@pytest.mark.requirements("TT-6")
@pytest.mark.parametrize("size", [1, 100])
def test_a_size_of_the_log_that_is_too_small_loses_no_row(
    spark: SparkSession, tmp_path: Path, path: str, size: int
) -> None:
    """Spark would read only the row groups that begin within it."""
    files = Files(spark, tmp_path, "id long")
    files.write_frame(spark.range(1000).coalesce(1))
    assert files.scan([replace(files.adds[0], size=size)]).count() == 1000


@pytest.mark.requirements("TT-6")
def test_files_that_are_cut_short_or_missing_are_errors(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """Never fewer rows."""
    files = numbered(spark, tmp_path, count=3)
    place = files.root / files.adds[1].path
    content = place.read_bytes()
    for damaged in (b"", content[:-1], content[: len(content) // 2], None):
        place.write_bytes(damaged) if damaged is not None else place.unlink()
        with pytest.raises(Exception, match=place.name):
            files.scan().select("id", "s").collect()


@pytest.mark.requirements("TT-6")
def test_files_that_change_after_they_were_read_are_errors(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """Never fewer rows; a file that was replaced by a larger one is read as a whole."""
    files = numbered(spark, tmp_path, count=3)
    place = files.root / files.adds[1].path
    content = place.read_bytes()
    assert files.scan().select("id").count() == 30
    for damaged in (b"", content[:-1], content[: len(content) // 2], None):
        place.write_bytes(damaged) if damaged is not None else place.unlink()
        with pytest.raises(Exception, match=place.name):
            files.scan().select("id").collect()
    (place.parent / f".{place.name}.crc").unlink()
    pq.write_table(pa.table({"id": pa.array(range(5000), pa.int32())}), place, compression="none")
    assert files.scan().select("id").count() == 5020


def listed_files(spark: SparkSession, frame: DataFrame) -> list[int]:
    """The identities of the objects that the index of a frame gives Spark for its files."""
    jvm: Any = spark._jvm
    leaves = frame._jdf.queryExecution().optimizedPlan().collectLeaves()  # type: ignore[operator]
    directories = leaves.apply(0).relation().location().listFiles(leaves.take(0), leaves.take(0))
    parts = [directories.apply(number).files() for number in range(directories.size())]
    return [
        jvm.System.identityHashCode(part.apply(number).fileStatus()) for part in parts for number in range(part.size())
    ]


def test_plans_of_the_same_files_share_what_they_give_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A plan of many files that were planned before makes no object for each of them."""
    files = numbered(spark, tmp_path, "p", count=3)
    first = listed_files(spark, files.scan())
    assert len(set(first)) == 3
    assert listed_files(spark, files.scan()) == listed_files(spark, files.scan(files.adds)) == first
    (files.root / files.adds[2].path).unlink()
    with pytest.raises(Exception, match="is missing"):
        listed_files(spark, files.scan())


def test_a_condition_on_the_name_of_a_file_is_not_one_on_a_column_of_that_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Files(spark, tmp_path, "file_path string")
    files.write(("a",), ("b",))
    files.write(("zzz",))
    frame = files.scan()
    assert [
        row[0]
        for row in frame.where(
            "_metadata.file_path LIKE 'file:/%' AND _metadata.file_path NOT LIKE 'file://%' AND file_path > 'x'"
        ).collect()
    ] == ["zzz"]
    assert frame.where(F.col("_metadata.file_path").endswith(files.adds[0].path.rpartition("/")[2])).count() == 2


VARIED: dict[str, list[Any]] = {
    "string": ["a", "é", None],
    "binary": [b"ab", b"\xff", None],
    "float": [0.5, float("nan"), None],
    "boolean": [True, False, None],
}


@pytest.mark.requirements("PART-1", "PART-2", "PART-3", "PART-4", "PART-5", "PART-6")
@pytest.mark.parametrize("kind", VARIED)
def test_partition_values_are_typed(spark: SparkSession, tmp_path: Path, kind: str, path: str) -> None:
    """Late conditions on partition columns are exact."""
    files = Files(spark, tmp_path, f"id long, p {kind}", "p")
    values = [str(value).lower() if isinstance(value, bool) else value for value in VARIED[kind]]
    texts = [value.decode("latin-1") if isinstance(value, bytes) else value and str(value) for value in values]
    for number, text in enumerate(texts):
        files.place(f"f{number}.parquet", pa.table({"id": [number]}), p=text)
    frame = files.scan()
    every = {row["id"]: row["p"] for row in frame.collect()}
    assert len(every) == len(texts)
    for number, value in every.items():
        condition = F.col("p").isNull() if value is None else F.col("p") == F.lit(value)
        assert [row["id"] for row in frame.where(condition).collect()] == [number]


def test_without_the_jvm_the_rows_are_the_same_and_the_log_says_it_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = numbered(spark, tmp_path, "p", count=2)
    wanted = rows_of(files.scan())
    monkeypatch.setattr(file_index, "_indexes", WeakKeyDictionary())
    monkeypatch.setattr(file_index, "_is_reported", False)
    monkeypatch.setattr(
        file_index, "_FACTORY", "hidden.LiveFileIndex"
    )  # As where classes of the JVM are not accessible.
    with caplog.at_level(logging.WARNING, logger="cm_delta_dagster"):
        assert rows_of(files.scan()) == wanted
        assert rows_of(files.scan().where("id = 3")) == [row for row in wanted if row[0] == 3]
    (message,) = messages_of(caplog, file_index)
    assert message.startswith("Tables are read without a file index,")


def test_a_hand_over_that_fails_falls_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the JVM has another interface than the source was written for."""
    files = numbered(spark, tmp_path, "p", count=2)
    adds = [files.adds[0], replace(files.adds[1], deletion_vector=encode_inline([2]))]
    wanted = rows_of(files.scan(adds))
    monkeypatch.setattr(file_index, "_is_reported", False)
    for name in ("block", "relation", "deletedRows"):
        indexes = file_index.FileIndexes(Refusing(file_index.file_indexes(spark), name))
        monkeypatch.setattr(file_index, "_indexes", WeakKeyDictionary({spark.sparkContext._gateway: indexes}))
        with caplog.at_level(logging.WARNING, logger="cm_delta_dagster"):
            assert rows_of(files.scan(adds)) == wanted
    (message,) = messages_of(caplog, file_index)
    assert message.startswith("Tables are read without a file index,")


@pytest.mark.requirements("PART-5")
def test_times_without_a_zone_follow_the_zone_of_each_read(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """What was handed over in another zone of the session is not used again."""
    files = Files(spark, tmp_path, "id long, p timestamp", "p")
    files.place("a.parquet", pa.table({"id": [1]}), p="2024-07-01 12:00:00")
    files.place("b.parquet", pa.table({"id": [2]}), p="2024-07-01T12:00:00Z")
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    try:
        for name, hour in (("UTC", 12), ("America/New_York", 16), ("UTC", 12)):
            spark.conf.set(zone, name)
            late = files.scan().where(f"p = TIMESTAMP '2024-07-01 {hour}:00:00Z'")
            assert {row["id"] for row in late.collect()} >= {1}, name
            assert len(late.collect()) == (2 if hour == 12 else 1)
    finally:
        spark.conf.set(zone, before)


ORDERS: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "char": (
        {"c": {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}, "s": {"__CHAR_VARCHAR_TYPE_STRING": "struct<c:char(3)>"}},
        ["a", "b"],
        ["c = 'a  '", "s.c = 'a  '", "c > 'a' AND c < 'b'", "c >= 'a  '", "s.c IN ('a  ', 'x')", "s.c < 'b'"],
    ),
    "collation": (
        {"c": {"__COLLATIONS": {"c": "spark.UTF8_LCASE"}}},
        ["A", "b"],
        ["c = 'a'", "c <=> 'a'", "c >= 'B'", "c IN ('a', 'x')", "c < 'B'", "c LIKE 'a%'", "startswith(c, 'a')"],
    ),
}


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize("order", ORDERS)
def test_bounds_of_strings_of_another_order_exclude_nothing(
    spark: SparkSession, tmp_path: Path, path: str, order: str
) -> None:
    """char(n), whose values and bounds may lack blanks, and collations, under which bytes are not in order."""
    metadata, texts, conditions = ORDERS[order]
    files = Files(spark, tmp_path, "id long, c string, s struct<c:string>")
    schema = StructType(tuple(replace(item, metadata=metadata.get(item.name, {})) for item in files.schema.fields))
    for number, text in enumerate(texts):
        add = files.place(f"{number}.parquet", pa.table({"id": [number], "c": [text], "s": [{"c": text}]}))
        bounds = {"id": number, "c": text, "s": {"c": text}}
        files.adds[-1] = replace(add, stats=json.dumps({"numRecords": 1, "minValues": bounds, "maxValues": bounds}))
    found = keys_by_condition(files.scan(schema=schema), conditions, "id")
    files.adds = [replace(add, stats=None) for add in files.adds]
    assert found == keys_by_condition(files.scan(schema=schema), conditions, "id")
    assert found[0] == found[1] == [0]


def test_a_new_version_hands_over_only_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path, "id long")
    (add,) = files.write((1,))
    many = adds_to_table([add, *(replace(add, path=f"{number}/{add.path}") for number in range(1999))])
    indexes = file_index.file_indexes(spark)
    assert indexes is not None

    def handed_over(table: pa.Table) -> list[int]:
        before = set(indexes._blocks)
        scan(spark, store=LocalStore(), layout=files.layout(), request=ScanRequest(files=table))
        return [block.files.num_rows for key, block in indexes._blocks.items() if key not in before]

    assert handed_over(many) == [2000]
    assert handed_over(many) == []
    # A table that is opened by its location is parsed again for each read.
    again = adds_to_table([add, *(replace(add, path=f"{number}/{add.path}") for number in range(1999))])
    assert handed_over(again) == handed_over(many) == []
    assert len(indexes._in_memory) == len(indexes._blocks)
    assert handed_over(pa.concat_tables([many, adds_to_table([replace(add, path="new.parquet")])])) == [1]


@pytest.mark.requirements("STATS-3")
def test_a_file_with_statistics_of_another_type_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Statistics are hints; what is not a value of the column's type is ignored."""
    files = Files(spark, tmp_path, "id long, s string")
    for number, stats in enumerate(({"minValues": {"id": "x", "s": 5}, "maxValues": {"id": [], "s": 6}}, {}, None)):
        add: AddFile = files.place(f"{number}.parquet", pa.table({"id": [number], "s": ["a"]}))
        files.adds[-1] = replace(add, stats=None if stats is None else json.dumps(stats))
    assert sorted(row[0] for row in files.scan().where("id >= 0 AND s = 'a'").collect()) == [0, 1, 2]
