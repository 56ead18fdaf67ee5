"""MERGE with clauses drawn at random, compared with the same merge of lists of rows."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, DeltaTable, connect
from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.operations.writing import merge_rows
from cm_delta_dagster.operations.writing.engines import spark_changes
from cm_delta_dagster.protocol.schema.types import LONG

Row = tuple[int | None, str | None, float | None]
Truth = Callable[[Row, Row], bool | None]

_NO_ROW: Row = (None, None, None)


def _less(one: float | None, other: float | None) -> bool | None:
    return None if one is None or other is None else one < other


def _equal(one: Any, other: Any) -> bool | None:
    return None if one is None or other is None else one == other


def _and(*values: bool | None) -> bool | None:
    return False if False in values else None if None in values else True


_ON: tuple[tuple[str, Truth], ...] = (
    ("t.id = s.id", lambda t, s: _equal(t[0], s[0])),
    ("t.id = s.id AND t.p = s.p", lambda t, s: _and(_equal(t[0], s[0]), _equal(t[1], s[1]))),
    ("t.id <=> s.id AND t.p <=> s.p", lambda t, s: t[:2] == s[:2]),
    ("t.id = s.id AND t.v < 5", lambda t, s: _and(_equal(t[0], s[0]), _less(t[2], 5))),
    ("t.id = s.id AND t.p = 'b'", lambda t, s: _and(_equal(t[0], s[0]), _equal(t[1], "b"))),
    ("t.p = s.p AND t.v < s.v", lambda t, s: _and(_equal(t[1], s[1]), _less(t[2], s[2]))),
    ("false", lambda t, s: False),
)
_OF_PAIRS: tuple[tuple[str, Truth], ...] = (
    ("", lambda t, s: True),
    (" AND s.v < t.v", lambda t, s: _less(s[2], t[2])),
    (" AND t.p = 'a'", lambda t, s: _equal(t[1], "a")),
)
_OF_SOURCE: tuple[tuple[str, Truth], ...] = (
    ("", lambda t, s: True),
    (" AND s.v < 6", lambda t, s: _less(s[2], 6)),
    (" AND s.p <=> NULL", lambda t, s: s[1] is None),
)
_OF_TARGET: tuple[tuple[str, Truth], ...] = (
    ("", lambda t, s: True),
    (" AND t.v < 3", lambda t, s: _less(t[2], 3)),
    (" AND t.p = 'c'", lambda t, s: _equal(t[1], "c")),
    (" AND t.id < 4", lambda t, s: _less(t[0], 4)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clause:
    """A clause: its text, when it applies, and the row that it leaves, or None."""

    text: str
    applies: Truth
    result: Callable[[Row, Row], Row | None]


def _matched(chance: random.Random, text: str, applies: Truth) -> _Clause:
    kinds: tuple[tuple[str, Callable[[Row, Row], Row | None]], ...] = (
        ("UPDATE SET *", lambda t, s: s),
        ("UPDATE SET v = s.v, p = 'b'", lambda t, s: (t[0], "b", s[2])),
        ("DELETE", lambda t, s: None),
    )
    action, result = chance.choice(kinds)
    return _Clause(text=f"WHEN MATCHED{text} THEN {action}", applies=applies, result=result)


def _inserts(chance: random.Random, text: str, applies: Truth) -> _Clause:
    kinds: tuple[tuple[str, Callable[[Row, Row], Row | None]], ...] = (
        ("INSERT *", lambda t, s: s),
        ("INSERT (v, id) VALUES (s.v, s.id)", lambda t, s: (s[0], None, s[2])),
    )
    action, result = chance.choice(kinds)
    return _Clause(text=f"WHEN NOT MATCHED{text} THEN {action}", applies=applies, result=result)


def _by_source(chance: random.Random, text: str, applies: Truth) -> _Clause:
    kinds: tuple[tuple[str, Callable[[Row, Row], Row | None]], ...] = (
        ("UPDATE SET v = 0, p = 'c'", lambda t, s: (t[0], "c", 0)),
        ("DELETE", lambda t, s: None),
    )
    action, result = chance.choice(kinds)
    return _Clause(text=f"WHEN NOT MATCHED BY SOURCE{text} THEN {action}", applies=applies, result=result)


def _first(clauses: Sequence[_Clause], target: Row, source: Row) -> _Clause | None:
    return next((clause for clause in clauses if clause.applies(target, source) is True), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merge:
    on: tuple[str, Truth]
    matched: tuple[_Clause, ...]
    inserts: tuple[_Clause, ...]
    by_source: tuple[_Clause, ...]

    def text(self, target: str, source: str, *, evolves: bool) -> str:
        clauses = " ".join(clause.text for clause in (*self.matched, *self.inserts, *self.by_source))
        evolution = "WITH SCHEMA EVOLUTION " if evolves else ""
        return f"MERGE {evolution}INTO {target} t USING {source} s ON {self.on[0]} {clauses}"

    def merged(self, target: Sequence[Row], source: Sequence[Row]) -> tuple[Counter[Row], bool]:
        """The rows afterwards, and whether a row of the target has several partners."""
        holds = self.on[1]
        partners = [[row for row in source if holds(each, row) is True] for each in target]
        rows: list[Row | None] = []
        for each, found in zip(target, partners, strict=True):
            clause = _first(self.matched if found else self.by_source, each, found[0] if found else _NO_ROW)
            rows.append(each if clause is None else clause.result(each, found[0] if found else _NO_ROW))
        for row in source:
            clause = None if any(holds(each, row) is True for each in target) else _first(self.inserts, _NO_ROW, row)
            rows.append(None if clause is None else clause.result(_NO_ROW, row))
        return Counter(row for row in rows if row is not None), any(len(found) > 1 for found in partners)


def _draw(chance: random.Random) -> _Merge:
    matched = [_matched(chance, *chance.choice(_OF_PAIRS)) for _ in range(chance.randrange(3))]
    inserts = [_inserts(chance, *chance.choice(_OF_SOURCE)) for _ in range(chance.randrange(3))]
    by_source = [_by_source(chance, *chance.choice(_OF_TARGET)) for _ in range(chance.randrange(3))]

    def reachable(clauses: list[_Clause]) -> tuple[_Clause, ...]:
        """Only the last clause of a kind may have no condition."""
        ends = [number for number, clause in enumerate(clauses) if " AND " not in clause.text]
        return tuple(clauses[: ends[0] + 1] if ends else clauses)

    if not (matched or inserts or by_source):
        matched = [_matched(chance, *_OF_PAIRS[0])]
    return _Merge(
        on=chance.choice(_ON), matched=reachable(matched), inserts=reachable(inserts), by_source=reachable(by_source)
    )


def _rows(chance: random.Random, count: int, *, unique: bool, fraction: float) -> list[Row]:
    ids = chance.sample(range(2 * count + 1), count) if unique else [chance.randrange(count + 1) for _ in range(count)]
    return [
        (
            None if chance.random() < 0.1 else number,
            chance.choice(["a", "b", "c", None]),
            None if chance.random() < 0.1 else chance.randrange(10) + fraction,
        )
        for number in ids
    ]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Connection]:
    home: Path = tmp_path_factory.mktemp("random_merges")
    with connect(f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/ware", spark=spark) as connection:
        yield connection


def _stored(table: DeltaTable) -> list[Row]:
    return [(row["id"], row["p"], row["v"]) for row in table.to_arrow().to_pylist()]


def _followed(table: DeltaTable, rows: Sequence[Row]) -> Counter[Row]:
    """``rows`` after the changes that the change feed has for the latest version."""
    version = table.version()
    found = Counter(rows)
    for row in table.changes(starting_version=version, ending_version=version).to_arrow().to_pylist():
        sign = -1 if row["_change_type"] in ("delete", "update_preimage") else 1
        found[(row["id"], row["p"], row["v"])] += sign
    assert min(found.values(), default=0) >= 0, "the feed deletes a row that the table does not have"
    return +found


def _run(lake: Connection, spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    name = f"main.random.t{seed}"
    flags = {key: chance.choice(("true", "false")) for key in ("enableDeletionVectors", "enableChangeDataFeed")}
    partitioned = chance.choice(("", "PARTITIONED BY (p)", "PARTITIONED BY (id)", "PARTITIONED BY (p, id)"))
    properties = ", ".join(f"'delta.{key}' = '{value}'" for key, value in flags.items())
    lake.sql(
        f"CREATE TABLE {name} (id int, p string, v int) {partitioned} "
        f"TBLPROPERTIES ({properties}, 'delta.enableTypeWidening' = 'true')"
    )
    table = lake.table(name)
    for _ in range(chance.randrange(4)):
        rows = _rows(chance, chance.randrange(1, 8), unique=False, fraction=0)
        table.append(spark.createDataFrame(rows, "id int, p string, v int").coalesce(1))
    done = [f"{partitioned} {flags}"]
    for _ in range(3):
        evolves = chance.random() < 0.3
        v_type = chance.choice(("bigint", "double", "decimal(12,1)")) if evolves else "int"
        id_type = chance.choice(("int", "bigint", "decimal(11,0)")) if evolves else "int"
        # A bigint is not widened to double: fractions would be cut off, as by any other write.
        stored = table.snapshot().schema.field("v")
        has_fractions = v_type == "double" and stored is not None and stored.type != LONG
        source = _rows(
            chance, chance.choice((0, 1, 4, 9)), unique=chance.random() < 0.8, fraction=0.5 if has_fractions else 0
        )
        floats = [(number, text, None if value is None else float(value)) for number, text, value in source]
        frame = spark.createDataFrame(floats, "id int, p string, v double")
        frame.selectExpr(f"CAST(id AS {id_type}) id", "p", f"CAST(v AS {v_type}) v").createOrReplaceTempView("s_rows")
        merge = _draw(chance)
        before, version = _stored(table), table.version()
        expected, ambiguous = merge.merged(before, source)
        text = merge.text(name, "s_rows", evolves=evolves)
        done.append(f"{text}\n    target {before}\n    source {source} of {id_type}, {v_type}")
        seen = f"seed {seed}: " + "\n  ".join(done)
        try:
            lake.sql(text)
        except InvalidDataError as error:
            assert ambiguous and "Several rows of the source" in str(error), f"{seen}\n{error}"
            assert table.version() == version, seen
            continue
        except Exception as error:
            raise AssertionError(seen) from error
        if ambiguous and merge.matched:
            # Rows with several partners may only be deleted, whatever the partner.
            assert [clause.text for clause in merge.matched] == ["WHEN MATCHED THEN DELETE"], seen
        assert Counter(_stored(table)) == expected, seen
        assert Counter((row["id"], row["p"], row["v"]) for row in table.to_df().collect()) == expected, seen
        if flags["enableChangeDataFeed"] == "true" and table.version() > version:
            assert _followed(table, before) == expected, seen


@pytest.mark.requirements("DML-4", "CDF-1", "UP-TW-2")
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(2, 8))])
@pytest.mark.parametrize("limit", [100_000, 0])
def test_random_merges_do_what_merging_lists_of_rows_does(
    lake: Connection, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int, limit: int
) -> None:
    """All clauses, duplicates, NULL keys, no rows, partitions, wider types; small sources and large ones."""
    monkeypatch.setattr(merge_rows, "SMALL_SOURCE", limit)
    for name in ("_FEW_ROWS", "_ROWS_OF_ONE_FILE"):
        monkeypatch.setattr(spark_changes, name, limit)
    _run(lake, spark, 2 * seed + bool(limit))
