"""DELETE and UPDATE of few small files, which find and read their rows without a Spark job."""

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, DeltaTable, connect
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, ObjectNotFoundError
from cm_delta_dagster.operations.writing import small_changes
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import append
from cm_delta_dagster.storage.local_store import local_path
from tests.support.builders import TableBuilder

NumJobs = Callable[[Callable[[], object]], int]


@pytest.fixture
def num_jobs(spark: SparkSession) -> NumJobs:
    """The number of Spark jobs that a call runs."""

    def count(call: Callable[[], object]) -> int:
        context = spark.sparkContext
        group = f"small-{uuid.uuid4().hex}"
        context.setJobGroup(group, "")
        try:
            call()
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
        return len(context.statusTracker().getJobIdsForGroup(group))

    return count


@contextmanager
def _by_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No change counts as small."""
    with monkeypatch.context() as patch:
        patch.setattr(small_changes, "_MOST_FILES", 0)
        yield


@pytest.mark.requirements("DV-21")
def test_a_small_delete_runs_no_job_and_a_small_update_one(
    client: DeltaClient, spark: SparkSession, num_jobs: NumJobs
) -> None:
    """Of small files only the new rows are written by Spark."""
    builder = TableBuilder(client, spark, "id long, v string")
    builder.append(*[(number, "a") for number in range(100)])
    table = builder.table
    assert num_jobs(lambda: delete(table, spark=spark, where="id = 7")) == 0
    assert num_jobs(lambda: update(table, spark=spark, assignments={"v": "upper(v)"}, where="id IN (8, 9)")) == 1
    assert num_jobs(lambda: delete(table, spark=spark, where="id = 8 AND v = 'A'")) == 0
    expected = [(number, "A" if number == 9 else "a") for number in range(100) if number not in (7, 8)]
    assert builder.rows() == expected
    # Only Spark can evaluate the condition.
    assert num_jobs(lambda: delete(table, spark=spark, where="sqrt(id) = 9")) == 1


def test_rows_that_are_written_together_are_in_one_file(client: DeltaClient, spark: SparkSession) -> None:
    builder = TableBuilder(client, spark, "id long, p string", partition_by=("p",))
    builder.append(*[(number, "ab"[number % 2]) for number in range(100)])
    result = update(builder.table, spark=spark, assignments={"id": "-id"}, where="id < 20")
    assert (result.num_added_files, result.metrics["numUpdatedRows"]) == (2, "20")
    assert builder.rows() == sorted((-n if n < 20 else n, "ab"[n % 2]) for n in range(100))


def test_many_rows_are_read_by_spark(client: DeltaClient, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that this process reads are a part of the plan."""
    builder = TableBuilder(client, spark, "id long, v long")
    builder.append(*[(number, 0) for number in range(50)])
    monkeypatch.setattr(small_changes, "MOST_ROWS_READ", 3)
    reads: list[object] = []
    real = small_changes.scan_batches
    monkeypatch.setattr(small_changes, "scan_batches", lambda **given: (reads.append(given), real(**given))[1])
    update(builder.table, spark=spark, assignments={"v": "1"}, where="id < 10")
    assert not reads
    update(builder.table, spark=spark, assignments={"v": "2"}, where="id < 3")
    assert len(reads) == 1
    assert builder.rows() == [(n, 2 if n < 3 else 1 if n < 10 else 0) for n in range(50)]


def test_columns_that_spark_does_not_take_from_arrow_are_read_by_spark(
    client: DeltaClient, spark: SparkSession
) -> None:
    builder = TableBuilder(client, spark, "id long, v variant", properties={"delta.feature.variantType": "supported"})
    source = spark.sql("SELECT id, parse_json('{\"a\": ' || id || '}') AS v FROM range(5)")
    append(builder.table, frame=source)
    update(builder.table, spark=spark, assignments={"id": "id + 10"}, where="id = 3")
    delete(builder.table, spark=spark, where="id = 4")
    rows = builder.table_frame().selectExpr("id", "to_json(v)").collect()
    assert sorted(map(tuple, rows)) == [(0, '{"a":0}'), (1, '{"a":1}'), (2, '{"a":2}'), (13, '{"a":3}')]


def test_a_column_with_the_name_of_row_ids_is_named(client: DeltaClient, spark: SparkSession) -> None:
    builder = TableBuilder(client, spark, "id long, _row_id long", properties={"delta.enableRowTracking": "true"})
    builder.append((1, 10), (2, 20))
    with pytest.raises(InvalidArgumentError, match="has a column named '_row_id' of its own"):
        update(builder.table, spark=spark, assignments={"id": "3"}, where="id = 1")
    assert builder.rows() == [(1, 10), (2, 20)]


def test_a_missing_or_damaged_file_is_named_and_nothing_is_committed(client: DeltaClient, spark: SparkSession) -> None:
    builder = TableBuilder(client, spark, "id long")
    builder.append((1,), (2,))
    snapshot = builder.table.snapshot()
    name = snapshot.files["path"][0].as_py()
    path = Path(local_path(f"{snapshot.location}/{name}"))
    stored = path.read_bytes()
    path.write_bytes(stored[:-9] + b"x" * 9)
    with pytest.raises(CorruptLogError, match=path.name):
        delete(builder.table, spark=spark, where="id = 1")
    path.unlink()
    with pytest.raises(ObjectNotFoundError, match=path.name):
        update(builder.table, spark=spark, assignments={"id": "3"}, where="id = 1")
    assert builder.table.snapshot().version == snapshot.version


# --- the same changes by Arrow and by Spark -------------------------------------------------------------------------

_COLUMNS = (
    "id BIGINT, i INT, f FLOAT, d DOUBLE, c DECIMAL(12, 2), s STRING, h CHAR(4), b BINARY, t TIMESTAMP, n TIMESTAMP_NTZ, y DATE, "
    "o BOOLEAN, st STRUCT<a: INT, b: STRUCT<c: STRING>>, l ARRAY<STRUCT<a: INT>>, m MAP<STRING, DATE>, p TIMESTAMP, q STRING"
)
_CONDITIONS = (
    "i = {i}",
    "i < {i} OR i IS NULL",
    "NOT (i <= {i})",
    "i IN (1, NULL, {i})",
    "i <=> NULL",
    "f >= 1.5D",
    "d = 'NaN'",
    "d > {i}",
    "d = 0",
    "c BETWEEN 0.5 AND {i}",
    "s LIKE 'a%' AND i > 1",
    "s <> 'ab'",
    "s IS NOT NULL AND NOT (s = 'b' OR i = {i})",
    "h = 'a'",
    "h IN ('a', 'bb  ')",
    "t < TIMESTAMP '2024-03-10 06:30:00Z'",
    "n >= TIMESTAMP_NTZ '2024-03-10 02:30:00'",
    "y = DATE '1500-03-01' OR y > DATE '2024-01-01'",
    "o",
    "o = false",
    "st.a = {i}",
    "st.b.c = 'x' AND i < 4",
    "l IS NULL",
    "q = 'u'",
    "q = 'u' AND i = {i}",
    "p = TIMESTAMP '2024-07-01 00:00:00' AND i <> {i}",
    "p IS NULL OR i = {i}",
    "i % 3 = 1",
    "upper(s) = 'AB' AND i = {i}",
    "true",
)
_ASSIGNMENTS: tuple[dict[str, str], ...] = (
    {"i": "i + 1"},
    {"s": "concat(s, '!')", "st.a": "i * 10"},
    {"h": "'zz'", "t": "t + INTERVAL 1 DAY", "m": "map('k', y)"},
    {"q": "'w'", "i": "NULL"},
    {"l": "array(named_struct('a', i))", "y": "date_add(y, 1)", "c": "c + 1"},
)


def _rows(chance: random.Random, first: int, count: int) -> list[tuple[Any, ...]]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.15 else value

    def row(number: int) -> tuple[Any, ...]:
        moment = datetime(2024, 3, 10, chance.randrange(4), chance.choice([0, 30]))
        return (
            number,
            maybe(chance.randrange(6)),
            maybe(chance.choice([1.5, -0.0, float("nan")])),
            maybe(chance.choice([0.0, -0.0, 2.5, float("nan"), float("-inf")])),
            maybe(Decimal(chance.randrange(400)) / 100),
            maybe(chance.choice(["a", "ab", "b", ""])),
            maybe(chance.choice(["a", "bb", "cccc"])),
            maybe(chance.choice([b"", b"\x00\xff"])),
            maybe(moment.replace(hour=moment.hour + 4, tzinfo=UTC)),
            maybe(moment),
            maybe(chance.choice([date(1500, 3, 1), date(2024, 2, 29), date(1, 1, 1)])),
            maybe(chance.random() < 0.5),
            maybe((maybe(chance.randrange(6)), maybe((chance.choice(["x", "y"]),)))),
            maybe([(number,), (None,)]),
            maybe({"k": date(2024, 1, 1)}),
            maybe(datetime(2024, 7, chance.choice([1, 2]), tzinfo=UTC)),
            maybe(chance.choice(["u", "v"])),
        )

    return [row(first + place) for place in range(count)]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Connection:
    home = tmp_path_factory.mktemp("small_changes")
    return connect(f"sqlite:///{home}/catalog.db", warehouse=home.as_uri(), spark=spark)


def _state(table: DeltaTable, *, has_ids: bool, has_feed: bool) -> tuple[Any, ...]:
    frame = table.to_df()
    columns = [*frame.columns, *(["_row_id", "_row_commit_version"] if has_ids else [])]
    text = [f"to_json(named_struct('{name}', {name}))" for name in columns]
    rows = sorted(map(tuple, table.to_df(columns=columns).selectExpr(*text).collect()))
    feed = []
    if has_feed:
        changes = table.changes(starting_version=1).to_df()
        text = [f"to_json(named_struct('{name}', {name}))" for name in changes.columns if name != "_commit_timestamp"]
        feed = sorted(map(tuple, changes.selectExpr(*text).collect()))
    return rows, feed


def test_chars_are_compared_as_the_session_compares_them(spark: SparkSession, lake: Connection) -> None:
    """The legacy setting makes them plain strings, which differ by the blanks at the end."""
    lake.sql("CREATE TABLE main.small.chars (id BIGINT, h CHAR(4))")
    table = lake.table("main.small.chars")
    table.append(spark.sql("SELECT id, 'a' AS h FROM range(4)").coalesce(1))
    spark.conf.set("spark.sql.legacy.charVarcharAsString", "true")
    try:
        table.update({"id": "10"}, "h = 'a' AND id = 0")
        table.update({"id": "11"}, "h = 'a   ' AND id = 1")
        table.delete("h = 'a' AND id = 2")
    finally:
        spark.conf.unset("spark.sql.legacy.charVarcharAsString")
    assert sorted(row["id"] for row in table.to_df().collect()) == [0, 2, 3, 11]
    table.delete("h = 'a' AND id = 2")
    assert sorted(row["id"] for row in table.to_df().collect()) == [0, 3, 11]


@pytest.mark.requirements("DML-2", "DV-21", "CDF-2", "ROWTRK-13", "COLMAP-8")
@pytest.mark.parametrize(
    ("seed", "num_acts"), [(1, 3), *(pytest.param(seed, 6, marks=pytest.mark.exhaustive) for seed in range(1, 9))]
)
def test_arrow_and_spark_change_the_same_rows(
    spark: SparkSession, lake: Connection, monkeypatch: pytest.MonkeyPatch, seed: int, num_acts: int
) -> None:
    """Rows, ids, change feed and counts are equal."""
    chance = random.Random(seed)
    properties = {
        "delta.enableDeletionVectors": chance.choice(["true", "false"]),
        "delta.enableChangeDataFeed": chance.choice(["true", "false"]),
        "delta.enableRowTracking": chance.choice(["true", "false"]),
        "delta.columnMapping.mode": chance.choice(["none", "name", "id"]),
    }
    partitions = chance.choice(["", "PARTITIONED BY (q)", "PARTITIONED BY (p, q)"])
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    names = [f"main.small.{way}{seed}_{num_acts}" for way in ("arrow", "spark")]
    tables = []
    for name in names:
        lake.sql(f"CREATE TABLE {name} ({_COLUMNS}) {partitions} TBLPROPERTIES ({listed})")
        tables.append(lake.table(name))
    spark.conf.set("spark.sql.session.timeZone", chance.choice(["UTC", "America/New_York"]))
    try:
        for number in range(3):
            rows = _rows(chance, number * 20, 20)
            for table in tables:
                table.append(spark.createDataFrame(rows, _COLUMNS.replace("CHAR(4)", "STRING")).coalesce(1))
        acts: list[str] = []
        for _ in range(num_acts):
            where = chance.choice(_CONDITIONS).format(i=chance.randrange(6))
            assignments = chance.choice([None, *_ASSIGNMENTS])
            results = []
            for table, by_spark in zip(tables, (False, True), strict=True):
                with _by_spark(monkeypatch) if by_spark else monkeypatch.context():
                    result = table.delete(where) if assignments is None else table.update(assignments, where)
                # How many rows are copied depends on the files, which Spark may divide in another way.
                counts = [result.metrics.get(f"num{kind}Rows") for kind in ("Updated", "Deleted")]
                results.append((result.version, counts))
            acts.append(f"{assignments or 'DELETE'} WHERE {where}")
            assert results[0] == results[1], (seed, acts)
        has_ids, has_feed = (properties[f"delta.enable{name}"] == "true" for name in ("RowTracking", "ChangeDataFeed"))
        states = [_state(table, has_ids=has_ids, has_feed=has_feed) for table in tables]
        assert states[0] == states[1], (seed, acts)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
