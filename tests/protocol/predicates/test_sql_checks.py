"""What the text of a condition may contain, and literals of the current time."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator, Opaque, raw_sql, to_sql
from cm_delta_dagster.protocol.predicates.sql_checks import Clock, varying_functions
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.remedies import PassUncheckedCondition

COLUMNS = {
    "id": "long",
    "s": "string",
    "day": "date",
    "ts": "timestamp",
    "ntz": "timestamp_ntz",
    "map": "string",
    "values": "long",
    "comment": "string",
}
SCHEMA = StructType(tuple(StructField(name, PrimitiveType(kind)) for name, kind in COLUMNS.items()))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("java_method('java.lang.System', 'exit', 1) = 1", "java_method"),
        ("id = 1 OR reflect('java.lang.Thread', 'sleep', 1L) IS NULL", "reflect"),
        ("try_reflect ('java.lang.Thread', 'sleep', 1L) IS NULL", "try_reflect"),
        ("`reflect`('a', 'b') = 1", "reflect"),
        ("`REFLECT` /* x */ ('a', 'b') = 1", "REFLECT"),
        ("coalesce(upper(reflect('a', 'b')), 'x') = 'A'", "reflect"),
        ("IDENTIFIER('reflect')('a', 'b') = 1", "IDENTIFIER"),
        ("\"reflect\"('a', 'b') = 1", "reflect"),
        ("my_function(id)", "my_function"),
        ("main.default.upper(s) = 'A'", "upper"),
        ("case when reflect('a') is null then true end", "reflect"),
        ("exists(array(id), x -> reflect('a', x) = 1)", "reflect"),
        ("from_avro(s, s, map('avroSchemaUrl', 'file:/etc/passwd')) is null", "from_avro"),
        ("xpath_string(s, 'a') = 'x'", "xpath_string"),
        ("upperr(s) = 'A'", "upperr"),
    ],
)
def test_functions_that_could_run_code_are_refused_by_name(text: str, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"calls \S*{name}\(\)") as refused:
        parse_predicate(text, SCHEMA)
    assert refused.value.remedy == PassUncheckedCondition()


@pytest.mark.parametrize(
    "text",
    [
        "id IN (SELECT 1)",
        "EXISTS (SELECT 1)",
        "id = (select max(id) from x)",
        "(select true)",
        "id = (WITH a AS (SELECT 1) SELECT * FROM a)",
        "id IN (VALUES (1), (2))",
        "id IN (TABLE x)",
        "id IN (FROM x SELECT y)",
        "id IN (MAP id USING 'rm -rf' FROM x)",
    ],
)
def test_queries_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"contains a query|not valid SQL"):
        parse_predicate(text, SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "s = r'\\' OR reflect('a', 'b') = '1'",
        "s = '${env:SECRET}'",
        "${x}",
    ],
)
def test_text_that_spark_could_read_in_another_way_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_predicate(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "opaque"),
    [
        ("upper(s) /* ' */ = 'it''s \\' x'", "upper(s) = 'it''s \\' x'"),
        ("id + 1L = 2", "id + 1L = 2"),
        ("upper(s) = r'\\d'", "upper(s) = r'\\d'"),
        ("s LIKE ANY ('a_', 'b')", "s LIKE ANY ('a_', 'b')"),
        ("CAST(id AS DECIMAL(10, 2)) = 1.5", "CAST(id AS DECIMAL(10, 2)) = 1.5"),
        ("extract(day FROM ts) = 1 ", "extract(day FROM ts) = 1"),
        ("trim(BOTH FROM s) = 'a'", "trim(BOTH FROM s) = 'a'"),
        ("(map || s) = 'a'", "(map || s) = 'a'"),
    ],
)
def test_spark_gets_the_checked_text_without_comments(text: str, opaque: str) -> None:
    predicate = parse_predicate(text, SCHEMA)
    assert to_sql(predicate).startswith(opaque) or isinstance(predicate, Opaque)
    assert opaque in to_sql(predicate)


def test_columns_named_like_keywords_are_columns() -> None:
    assert to_sql(parse_predicate("(`values`) = 1 AND comment = 'x'", SCHEMA)) == "(`values` = 1) AND (`comment` = 'x')"


CLOCK = Clock(now=datetime(2026, 1, 31, 23, 30, tzinfo=UTC), zone=ZoneInfo("Asia/Tokyo"))


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("ts < current_timestamp()", "`ts` < TIMESTAMP '2026-01-31 23:30:00+00:00'"),
        ("ts < Now( )", "`ts` < TIMESTAMP '2026-01-31 23:30:00+00:00'"),
        ("ts < CURRENT_TIMESTAMP", "`ts` < TIMESTAMP '2026-01-31 23:30:00+00:00'"),
        ("day = current_date", "`day` = DATE '2026-02-01'"),
        ("day = curdate() OR day = current_date()", "(`day` = DATE '2026-02-01') OR (`day` = DATE '2026-02-01')"),
        ("ntz < localtimestamp()", "`ntz` < TIMESTAMP_NTZ '2026-02-01 08:30:00'"),
        ("id > unix_timestamp()", "`id` > 1769902200"),
        ("day < current_date() - INTERVAL 1 DAY", "day < DATE '2026-02-01' - INTERVAL 1 DAY"),
        ("s = 'current_date()'", "`s` = 'current_date()'"),
    ],
)
def test_the_current_time_becomes_one_literal(text: str, sql: str) -> None:
    assert to_sql(parse_predicate(text, SCHEMA, clock=lambda: CLOCK)) == sql


def test_a_column_named_like_a_clock_function_is_a_column() -> None:
    schema = StructType((StructField("current_date", PrimitiveType("date")),))
    assert isinstance(parse_predicate("current_date() = current_date", schema), Opaque)
    assert varying_functions("current_date = 1", frozenset({"current_date"})) == []
    assert varying_functions("current_date() = 1", frozenset({"current_date"})) == ["current_date"]
    assert varying_functions("s = 'rand()' and Rand ( ) < 1 and x.uuid() = '' and now", frozenset()) == ["Rand"]


def test_the_clock_is_read_only_if_the_text_uses_it() -> None:
    def never() -> Clock:
        raise AssertionError

    assert parse_predicate("id = 1", SCHEMA, clock=never) == Comparison("id", ComparisonOperator.EQ, 1)


def test_raw_text_is_not_changed() -> None:
    assert raw_sql("reflect('a')") == Opaque("reflect('a')")
    assert raw_sql("id = 1 -- why").sql == "id = 1 -- why\n"
    with pytest.raises(InvalidArgumentError, match="give its SQL text"):
        raw_sql(1)  # type: ignore[arg-type]
