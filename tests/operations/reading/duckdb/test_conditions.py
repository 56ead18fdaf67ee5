"""The conditions of a statement for DuckDB: what is understood, and that no row is left out that the statement needs."""

from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings

from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.operations.reading.duckdb.conditions import NO_CONDITIONS, statement_conditions
from cm_delta_dagster.operations.reading.read_arrow import read_arrow
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.protocol.predicates.predicates import to_sql
from cm_delta_dagster.protocol.schema.types import StructType, parse_schema
from tests.operations.reading.test_read_dataset import ids, with_samples
from tests.support import engine_cases
from tests.support.engine_cases import Condition, conditions, wide_table

_FIELDS = {
    "i": "long", "n": "integer", "f": "float", "d": "double", "c": "decimal(15,2)", "s": "string", "day": "date", "b": "boolean",
    "t": "timestamp", "u": "timestamp_ntz",
}  # fmt: skip


def schema() -> StructType:
    fields = ",".join(
        f'{{"name":"{name}","type":"{kind}","nullable":true,"metadata":{{}}}}' for name, kind in _FIELDS.items()
    )
    return parse_schema(f'{{"type":"struct","fields":[{fields}]}}')


def condition_of(text: str, places: int = 1) -> str | None:
    """The condition on the table ``t`` as SQL of this package."""
    condition = statement_conditions(text, {"t": (schema(), places)}).by_table.get("t")
    return None if condition is None else to_sql(condition).replace("`", "")


CONDITIONS: dict[str, str | None] = {
    "i = 3": "i = 3",
    "3 >= I": "i <= 3",
    "i = -3": "i = -3",
    "i = 2 + 3 * 4 - (1)": "i = 13",
    "i IN (1, 2)": "i IN (1, 2)",
    "i NOT IN (1, 2)": None,
    "i BETWEEN 1 AND 1 + 1": "(i >= 1) AND (i <= 2)",
    "NOT (i < 3 OR i IS NULL)": "(i >= 3) AND (i IS NOT NULL)",
    "i = 1 OR n = 2": "(i = 1) OR (n = 2)",
    "i = 1 OR abs(i) = 2": None,
    "i = 1 AND abs(i) = 2": "i = 1",
    "i = n": None,
    "i + 1 = 2": None,
    "i = 1.5": "i = 1.5BD",
    "i = 1e0": None,
    "i = 1234567890123456": None,
    "i = '5'": None,
    "i = NULL": "FALSE",
    "i IS NOT DISTINCT FROM 1": None,
    "i = ?": None,
    "i = ANY([1, 2])": None,
    "i::INTEGER = 3": None,
    "f = 0.1": None,
    "d > 0.5": "d > 0.5BD",
    "c BETWEEN 0.06 - 0.01 AND 0.06 + 0.01": "(c >= 0.05BD) AND (c <= 0.07BD)",
    "c < 24": "c < 24",
    "c < 24 / 7": None,
    "s = 'a''b'": "s = 'a\\'b'",
    "s = E'a\\n'": None,
    "s LIKE 'ab%c_'": "startswith(s, 'ab')",
    "s NOT LIKE 'ab%'": None,
    "s LIKE '%ab'": None,
    "s ILIKE 'ab%'": None,
    "s LIKE 'ab!%' ESCAPE '!'": None,
    "s = 'a' COLLATE NOCASE": None,
    "s = 5": None,
    "b": "b = TRUE",
    "NOT b": "b = FALSE",
    "b IS TRUE": None,
    "day = '1995-01-01'": "day = '1995-01-01'",
    "day = '1995-1-1'": None,
    "day < DATE '1995-01-01'": "day < DATE '1995-01-01'",
    "day < DATE '1994-01-01' + INTERVAL '1' YEAR": "day < DATE '1995-01-01'",
    "day < DATE '1994-01-31' + INTERVAL 1 MONTH": "day < DATE '1994-02-28'",
    "day <= '1998-12-01'::DATE - INTERVAL '90 days'": "day <= DATE '1998-09-02'",
    "day < DATE '1994-01-01' + INTERVAL '1' HOUR": None,
    "day < DATE '9999-12-31' + INTERVAL '1' DAY": None,
    "day < current_date": None,
    "t > TIMESTAMPTZ '2024-01-01 00:00:00+02:00'": "t > TIMESTAMP '2023-12-31 22:00:00+00:00'",
    "t > TIMESTAMP '2024-01-01 00:00:00'": None,
    "t > '2024-01-01'": None,
    "u > TIMESTAMP '2024-01-01 00:00:00'": "u > TIMESTAMP_NTZ '2024-01-01 00:00:00'",
    "u > TIMESTAMPTZ '2024-01-01 00:00:00Z'": None,
    "u > DATE '2024-01-01'": None,
    "t.i = 1": "i = 1",
    "o.i = 1": None,
    "nosuch = 1": None,
}


@pytest.mark.parametrize("where", CONDITIONS)
def test_what_is_understood_of_a_condition(where: str) -> None:
    condition = condition_of(f"SELECT * FROM t WHERE {where}")
    assert (condition if condition is None else condition.replace("(true)", "")) == CONDITIONS[where]


QUERIES: dict[str, str | None] = {
    "FROM t WHERE i = 1": "i = 1",
    "SELECT * FROM t": None,
    "SELECT * FROM t AS o WHERE o.i = 1": "i = 1",
    "SELECT * FROM t AS o WHERE t.i = 1": None,
    "SELECT * FROM t AS o(x, i) WHERE i = 1": None,
    "SELECT * FROM x, t WHERE t.i = x.i AND t.i > 1": "i > 1",
    "SELECT * FROM x JOIN t ON t.i = x.i AND t.i > 1 WHERE n = 2": "(n = 2) AND (i > 1)",
    "SELECT * FROM x LEFT JOIN t ON t.i = x.i AND t.n = 2 WHERE t.i = 1": "n = 2",
    "SELECT * FROM x LEFT JOIN t ON t.i = x.i WHERE t.i IS NULL": None,
    "SELECT * FROM t LEFT JOIN x ON t.i = x.i AND t.n = 2 WHERE t.i = 1": "i = 1",
    "SELECT * FROM x RIGHT JOIN t ON t.n = 2 WHERE t.i = 1": None,
    "SELECT * FROM t FULL JOIN x ON t.n = 2 WHERE t.i = 1": None,
    "SELECT * FROM x ANTI JOIN t ON t.i = x.i AND t.n = 2 WHERE x.i = 1": "n = 2",
    "SELECT * FROM t SEMI JOIN x ON t.i = x.i AND t.n = 2 WHERE t.i = 1": "i = 1",
    "SELECT * FROM t JOIN x USING (i) WHERE i = 1 AND t.n = 2": "n = 2",
    "SELECT * FROM t NATURAL JOIN x WHERE t.i = 1": None,
    "SELECT * FROM t POSITIONAL JOIN x WHERE t.i = 1": None,
    "SELECT * FROM t ASOF JOIN x ON t.i >= x.i WHERE t.i = 1": None,
    "SELECT * FROM t TABLESAMPLE 10% WHERE i = 1": None,
    "SELECT * FROM t WHERE i = 1 USING SAMPLE 10": None,
    "SELECT * FROM (t JOIN x ON true) WHERE t.i = 1": None,
    "WITH a AS (SELECT * FROM t WHERE i = 1) SELECT * FROM a WHERE n = 2": "i = 1",
    "SELECT * FROM x WHERE EXISTS (SELECT 1 FROM t WHERE t.i = x.i AND n = 1)": "n = 1",
    "SELECT count(*) FROM t WHERE i = 1 HAVING count(*) > 1": "i = 1",
    "CREATE TABLE x AS SELECT * FROM t WHERE i = 1": None,
    "DELETE FROM x USING t WHERE t.i = 1": None,
    "EXPLAIN SELECT * FROM t WHERE i = 1": None,
    "SELECT * FROM t WHERE i = 1 AND (": None,
}


@pytest.mark.parametrize("text", QUERIES)
def test_conditions_count_where_they_cannot_change_the_other_rows(text: str) -> None:
    condition = condition_of(text)
    assert (condition if condition is None else condition.replace("(true)", "")) == QUERIES[text]


def test_each_place_of_a_table_needs_a_condition() -> None:
    both = "SELECT * FROM t a JOIN t b ON a.i = b.n WHERE a.i = 1 AND b.i = 2"
    assert condition_of(both, places=2) == "(i = 1) OR (i = 2)"
    assert condition_of(both.removesuffix(" AND b.i = 2"), places=2) is None
    assert condition_of(both, places=3) is None
    assert (
        condition_of("SELECT * FROM t WHERE i = 1 UNION ALL SELECT * FROM t WHERE i = 2", places=2)
        == "(i = 1) OR (i = 2)"
    )


def test_parameters_are_reported() -> None:
    tables = {"t": (schema(), 1)}
    assert not statement_conditions("SELECT * FROM t WHERE i = 1", tables).has_parameters
    for text in (
        "SELECT * FROM t WHERE i = 1 AND n = ?",
        "SELECT * FROM t WHERE n = $1",
        "SELECT * FROM t WHERE n = $name",
    ):
        assert statement_conditions(text, tables).has_parameters
    assert statement_conditions("SELECT " + "(" * 3000 + "1" + ")" * 3000 + " FROM t", tables) == NO_CONDITIONS


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> PathTable:
    return wide_table(tmp_path_factory.mktemp("wide") / "t")


@pytest.mark.requirements("SKIP-1")
@with_samples
@settings(max_examples=50, deadline=None)
@given(condition=conditions)
def test_the_files_that_are_selected_have_all_rows_of_the_condition(wide: PathTable, condition: Condition) -> None:
    where = engine_cases.to_duckdb(condition)
    schema = wide.snapshot().schema
    understood = statement_conditions(f"SELECT * FROM t WHERE {where}", {"t": (schema, 1)}).by_table.get("t")
    with duckdb.connect() as connection:
        rows = connection.from_arrow(read_arrow(open_scan(wide))).filter(where).select("i").to_arrow_table()
    assert set(ids(rows)) <= set(ids(read_arrow(open_scan(wide, where=understood))))


def test_a_literal_selects_the_files_of_it(tmp_path: Path) -> None:
    table = wide_table(tmp_path / "t")
    tables = {"t": (table.snapshot().schema, 1)}
    for where, files in (
        ("i = 3", 1),
        ("i > 39", 1),
        ("p = 1 OR p IS NULL", 3),
        ("i BETWEEN 7 AND 8", 2),
        ("i = 100", 0),
    ):
        condition = statement_conditions(f"SELECT * FROM t WHERE {where}", tables).by_table["t"]
        assert table.snapshot().matching_files(condition).num_rows == files, where
