"""The same changes by Arrow and by Spark leave the same rows, ids, change feeds and counts."""

import random
from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, DeltaTable, connect
from cm_delta_dagster.errors import CmDeltaError
from tests.operations.writing.engines.large_changes import every_change_is_large, every_source_is_large

_COLUMNS = (
    "id BIGINT, i INT, f FLOAT, d DOUBLE, c DECIMAL(12, 2), s STRING, h CHAR(4), b BINARY, t TIMESTAMP, n TIMESTAMP_NTZ, y DATE, "
    "o BOOLEAN, st STRUCT<a: INT, b: STRUCT<c: STRING>>, l ARRAY<STRUCT<a: INT>>, m MAP<STRING, DATE>, p TIMESTAMP, q STRING"
)
_FIRST_ROWS = 60
_STORED = _COLUMNS.replace("CHAR(4)", "STRING")
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
    {"d": "d * 2.5 - i", "c": "12.50", "s": "coalesce(s, 'none')"},
    {"d": "i / 4", "t": "TIMESTAMP '2024-07-01 12:00:00Z'", "b": "NULL", "o": "i > 2"},
    {"p": "TIMESTAMP '2024-07-03 00:00:00Z'", "h": "'a'", "y": "CAST(n AS DATE)"},
    {"i": "CASE WHEN o THEN length(s) ELSE year(y) END", "id": "id + 1000", "q": "''"},
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
    home = tmp_path_factory.mktemp("both_engines")
    return connect(f"sqlite:///{home}/catalog.db", warehouse=home.as_uri(), spark=spark)


def _state(table: DeltaTable, *, has_ids: bool, has_feed: bool) -> tuple[Any, ...]:
    frame = table.to_df()
    columns = [*frame.columns, *(["_row_id", "_row_commit_version"] if has_ids else [])]
    text = [f"to_json(named_struct('{name}', {name}))" for name in columns]
    if has_ids:  # Which of the rows that a commit inserts gets which id depends on their order in files.
        text[-2] = f"if(_row_id < {_FIRST_ROWS}, _row_id, -1) AS _row_id"
    rows = sorted(map(repr, table.to_df(columns=columns).selectExpr(*text).collect()))
    assert not has_ids or table.to_df(columns=["_row_id"]).distinct().count() == len(rows)
    feed = []
    if has_feed:
        changes = table.changes(starting_version=1).to_df()
        text = [f"to_json(named_struct('{name}', {name}))" for name in changes.columns if name != "_commit_timestamp"]
        feed = sorted(map(tuple, changes.selectExpr(*text).collect()))
    return rows, feed


def _two_tables(
    spark: SparkSession, lake: Connection, chance: random.Random, name: str
) -> tuple[list[DeltaTable], dict[str, str]]:
    """Two tables of the same random kind with the same rows, and their properties."""
    properties = {
        "delta.enableDeletionVectors": chance.choice(["true", "false"]),
        "delta.enableChangeDataFeed": chance.choice(["true", "false"]),
        "delta.enableRowTracking": chance.choice(["true", "false"]),
        "delta.columnMapping.mode": chance.choice(["none", "name", "id"]),
    }
    partitions = chance.choice(["", "PARTITIONED BY (q)", "PARTITIONED BY (p, q)"])
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    tables = []
    for way in ("arrow", "spark"):
        lake.sql(f"CREATE TABLE main.small.{way}_{name} ({_COLUMNS}) {partitions} TBLPROPERTIES ({listed})")
        tables.append(lake.table(f"main.small.{way}_{name}"))
    for number in range(3):
        rows = _rows(chance, number * _FIRST_ROWS // 3, _FIRST_ROWS // 3)
        for table in tables:
            table.append(spark.createDataFrame(rows, _STORED).coalesce(1))
    return tables, properties


def _check_same(tables: list[DeltaTable], properties: dict[str, str], acts: object) -> None:
    has_ids, has_feed = (properties[f"delta.enable{name}"] == "true" for name in ("RowTracking", "ChangeDataFeed"))
    states = [_state(table, has_ids=has_ids, has_feed=has_feed) for table in tables]
    assert states[0] == states[1], acts


@pytest.mark.requirements("DML-2", "DV-21", "CDF-2", "ROWTRK-13", "COLMAP-8")
@pytest.mark.parametrize(
    ("seed", "num_acts"),
    [(2, 4), *(pytest.param(seed, 8, marks=pytest.mark.exhaustive) for seed in range(1, 41))],
)
def test_arrow_and_spark_change_the_same_rows(
    spark: SparkSession, lake: Connection, monkeypatch: pytest.MonkeyPatch, seed: int, num_acts: int
) -> None:
    """Rows, ids, change feed and counts are equal."""
    chance = random.Random(seed)
    tables, properties = _two_tables(spark, lake, chance, f"change{seed}_{num_acts}")
    spark.conf.set("spark.sql.session.timeZone", chance.choice(["UTC", "America/New_York"]))
    try:
        acts: list[str] = []
        for _ in range(num_acts):
            where = chance.choice(_CONDITIONS).format(i=chance.randrange(6))
            assignments = chance.choice([None, *_ASSIGNMENTS])
            results = []
            for table, by_spark in zip(tables, (False, True), strict=True):
                engine = "spark" if by_spark else None
                with every_change_is_large(monkeypatch) if by_spark else monkeypatch.context():
                    if assignments is None:
                        result = table.delete(where, engine=engine)
                    else:
                        result = table.update(assignments, where, engine=engine)
                # How many rows are copied depends on the files, which Spark may divide in another way.
                counts = [result.metrics.get(f"num{kind}Rows") for kind in ("Updated", "Deleted")]
                results.append((result.version, counts))
            acts.append(f"{assignments or 'DELETE'} WHERE {where}")
            assert results[0] == results[1], (seed, acts)
        _check_same(tables, properties, (seed, acts))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


_KEYS = (["id"], ["id", "q"], ["y", "id"], ["h", "id"], ["p", "id", "o"], ["d", "f", "id"])
_SOURCE_COLUMNS = (
    None,
    ["id", "i", "s", "q", "y", "h", "p", "o", "d", "f"],
    ["id", "d", "f", "st", "l", "m", "q", "y", "h", "p", "o"],
)
_SLICES = (None, "id < 40", "q = 'u'", "q = 'u' AND id < 70")


@pytest.mark.requirements("DML-2", "DV-21", "CDF-2", "ROWTRK-13", "COLMAP-8")
@pytest.mark.parametrize(
    ("seed", "num_acts"),
    [(4, 3), *(pytest.param(seed, 6, marks=pytest.mark.exhaustive) for seed in range(1, 41))],
)
def test_arrow_and_spark_merge_the_same_rows(
    spark: SparkSession, lake: Connection, monkeypatch: pytest.MonkeyPatch, seed: int, num_acts: int
) -> None:
    """By all modes, also with NULL in keys, and overwrites of keys and slices. Each second source is in files."""
    chance = random.Random(seed)
    tables, properties = _two_tables(spark, lake, chance, f"merge{seed}_{num_acts}")
    acts: list[object] = []
    for number in range(num_acts):
        mode = chance.choice(["upsert", "insert_only", "update_only", "delete_unmatched", "keys", "where"])
        keys, where = chance.choice(_KEYS), chance.choice(_SLICES)
        frame = spark.createDataFrame(_rows(chance, chance.choice([10, 50, 90]), 15), _STORED).coalesce(1)
        columns = chance.choice(_SOURCE_COLUMNS)
        frame = frame if columns is None else frame.select(columns)
        frame = frame if where is None or mode == "keys" else frame.where(where)
        frame = frame.where(" AND ".join(f"{key} IS NOT NULL" for key in keys)) if mode == "keys" else frame
        source = frame.toArrow()
        acts.append((mode, keys, where, columns, source.num_rows))
        results = []
        for table, rows in zip(tables, (source, frame), strict=True):
            with every_source_is_large(monkeypatch) if number % 2 else nullcontext():
                if mode == "keys":
                    result = table.overwrite(rows, keys=keys)
                elif mode == "where":
                    result = table.append(rows) if where is None else table.overwrite(rows, where=where)
                else:
                    result = table.upsert(rows, on=keys, mode=mode, where=where)
            counts = {name: value for name, value in result.metrics.items() if "Rows" in name and "Copied" not in name}
            counts.pop("numOutputRows", None)  # With the copied rows, which depend on the files.
            results.append((result.version, result.outcome, counts))
        assert results[0] == results[1], acts
    _check_same(tables, properties, acts)
    engines = {entry.commit_info.engine_info for entry in tables[0].history() if entry.commit_info is not None}
    assert any(engine is not None and engine.endswith("(arrow)") for engine in engines)


_ON = (
    "target.id = source.id",
    "target.id = source.id AND source.q = target.q",
    "target.id = source.id AND source.q <=> target.q AND target.o <=> source.o",
    "(source.y = target.y) AND target.id = source.id",
    "target.id = source.id AND target.i <= source.i",
    "target.id = source.id AND target.q = 'u' AND target.i < 4",
    "target.id = source.id AND NOT (target.s = source.s OR source.o)",
    "target.id = source.id AND target.p = TIMESTAMP '2024-07-01 00:00:00Z'",
    "target.i = source.i",
    "target.id = source.id AND upper(target.s) = 'AB'",
    "target.id = source.id AND target.d = source.d AND target.f <=> source.f",
    "target.id = source.id AND target.h = source.h",
    "target.id = source.id AND target.i = source.id AND target.i <=> source.i",
    "target.id = source.id AND (source.d >= target.i OR target.h = source.h)",
    "target.id = source.id AND target.s NOT LIKE '_b' AND source.s LIKE '%'",
    "target.d = source.d",
    "target.h <=> source.h AND target.i = source.i AND target.o = source.o",
)
_MATCHED_WHEN = (
    None,
    "target.i < source.i",
    "source.o",
    "target.s = source.s",
    "source.s LIKE 'a_'",
    "target.d > 1.5D OR target.y < source.y",
)
_MATCHED_SET: tuple[dict[str, str], ...] = (
    {"i": "target.i + source.i", "s": "source.s"},
    {"d": "source.d * 2.0D", "q": "source.q", "b": "source.b"},
    {"h": "source.h", "c": "source.c", "t": "source.t", "l": "source.l"},
    {"s": "CASE WHEN source.o THEN 'yes' ELSE target.s END", "i": "NULL"},
    {"i": "source.i - 1", "st": "source.st", "y": "CAST(source.n AS DATE)"},
)
_NEW_WHEN = (None, "source.i > 2", "o", "s <> 'ab'", "y > DATE '2000-01-01' OR i IS NULL")
_NEW_SET: tuple[dict[str, str], ...] = (
    {"id": "source.id", "i": "i + 1", "q": "q"},
    {"id": "id", "s": "concat(s, '!')", "p": "source.p", "st": "st"},
    {"id": "id + 1000", "d": "d / 2", "q": "'w'", "m": "m"},
)
_OTHERS_WHEN = (None, "target.i = 3", "i > 2", "q = 'u'", "id < 20 AND NOT o")
_OTHERS_SET: tuple[dict[str, str], ...] = ({"i": "target.i + 1"}, {"s": "concat(s, '?')", "q": "'u'"}, {"d": "NULL"})


def _merge_clauses(chance: random.Random, merge: Any) -> tuple[Any, list[object]]:
    """The merge with random clauses, of which the last one of each kind may have no condition, and their texts."""
    listed: list[object] = []
    for kind, conditions in (("matched", _MATCHED_WHEN), ("not_matched", _NEW_WHEN), ("by_source", _OTHERS_WHEN)):
        for place in range(chance.randrange(3 if kind != "by_source" else 2)):
            condition = chance.choice(conditions if place else conditions[1:])
            choice = chance.randrange(4)
            assigned = chance.choice({"matched": _MATCHED_SET, "not_matched": _NEW_SET, "by_source": _OTHERS_SET}[kind])
            listed.append((kind, condition, choice, assigned))
            if kind == "not_matched":
                merge = (
                    merge.when_not_matched_insert_all(condition)
                    if choice == 0
                    else merge.when_not_matched_insert(assigned, condition)
                )
            elif kind == "by_source":
                merge = (
                    merge.when_not_matched_by_source_delete(condition)
                    if choice == 0
                    else merge.when_not_matched_by_source_update(assigned, condition)
                )
            elif choice == 0:
                merge = merge.when_matched_delete(condition)
            elif choice == 1:
                merge = merge.when_matched_update_all(condition)
            else:
                merge = merge.when_matched_update(assigned, condition)
    if not listed:
        return merge.when_matched_delete(), ["delete"]
    return merge, listed


@pytest.mark.requirements("DML-2", "DML-4", "DV-21", "CDF-2", "ROWTRK-13", "COLMAP-8")
@pytest.mark.parametrize(
    ("seed", "num_acts"),
    [(3, 5), *(pytest.param(seed, 8, marks=pytest.mark.exhaustive) for seed in range(1, 41))],
)
def test_arrow_and_spark_merge_by_the_same_clauses(
    spark: SparkSession, lake: Connection, monkeypatch: pytest.MonkeyPatch, seed: int, num_acts: int
) -> None:
    """Conditions and values over both sides; rows with several partners are refused by both. Each second source is in files."""
    chance = random.Random(seed)
    tables, properties = _two_tables(spark, lake, chance, f"clauses{seed}_{num_acts}")
    acts: list[object] = []
    for number in range(num_acts):
        on = chance.choice(_ON)
        rows = _rows(chance, chance.choice([10, 50, 90]), 15)
        frame = spark.createDataFrame(rows + rows[: chance.choice([0, 0, 0, 1])], _STORED).coalesce(1)
        state = chance.getstate()
        results: list[object] = []
        for table, source in zip(tables, (frame.toArrow(), frame), strict=True):
            chance.setstate(state)
            merge, listed = _merge_clauses(chance, table.merge(source, on))
            try:
                with every_source_is_large(monkeypatch) if number % 2 else nullcontext():
                    result = merge.execute()
            except CmDeltaError as error:
                results.append(type(error))
                continue
            counts = {name: value for name, value in result.metrics.items() if "Rows" in name and "Copied" not in name}
            counts.pop("numOutputRows", None)  # With the copied rows, which depend on the files.
            results.append((result.version, result.outcome, counts))
        acts.append((on, len(rows), listed))
        assert results[0] == results[1], acts
    _check_same(tables, properties, acts)
    engines = {entry.commit_info.engine_info for entry in tables[0].history() if entry.commit_info is not None}
    assert any(engine is not None and engine.endswith("(arrow)") for engine in engines), acts
