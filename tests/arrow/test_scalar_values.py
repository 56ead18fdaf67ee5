"""Expressions that Arrow computes have the values that Spark computes, and are errors where they are errors of Spark."""

import datetime as dt
import random
from collections.abc import Iterator, Sequence
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.arrow.scalar_values import is_certain_zone, scalar_values
from cm_delta_dagster.protocol.predicates.scalar_expressions import scalar_expression
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from tests.arrow.scalar_texts import SCHEMA, Expressions, rows

TABLE_SCHEMA = from_arrow_schema(SCHEMA)
ZONES = {
    "UTC": dt.UTC,
    "Europe/Berlin": ZoneInfo("Europe/Berlin"),
    "America/New_York": ZoneInfo("America/New_York"),
    "+05:30": dt.timezone(dt.timedelta(hours=5, minutes=30)),
}
_TEXTS_OF_A_SEED = 40
_MOST_UNCERTAIN = 6
"""Of the texts of a seed; the rest must be computed by Arrow, so that the comparison is one."""


@pytest.fixture
def _zone_is_kept(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    yield
    spark.conf.set("spark.sql.session.timeZone", str(before))


def _by_spark(frame: DataFrame, texts: Sequence[str]) -> list[pa.Array]:
    answer = frame.selectExpr(*(f"({text}) AS c{number}" for number, text in enumerate(texts))).toArrow()
    return [column.combine_chunks() for column in answer.columns]


def _compare(spark: SparkSession, seed: int) -> None:
    numbers = random.Random(seed)
    name = numbers.choice(list(ZONES))
    spark.conf.set("spark.sql.session.timeZone", name)
    table = rows(numbers)
    frame = spark.createDataFrame(table).coalesce(1)
    made = Expressions(numbers, with_arithmetic=seed % 3 == 0)
    values: dict[str, pa.Array] = {}
    failed: list[str] = []
    texts = [made.any() for _ in range(_TEXTS_OF_A_SEED)]
    for text in texts:
        scalar = scalar_expression(text, TABLE_SCHEMA, zone=ZONES[name])
        if scalar is None:
            continue
        try:
            values[text] = scalar_values(scalar, lambda column: table.column(column).combine_chunks(), table.num_rows)
        except pa.ArrowInvalid:
            failed.append(text)
    assert len(values) + len(failed) >= len(set(texts)) - _MOST_UNCERTAIN
    for text, expected in zip(values, _by_spark(frame, list(values)), strict=True):
        assert values[text].type == expected.type, text
        computed, by_spark = (list(map(repr, array.to_pylist())) for array in (values[text], expected))
        assert computed == by_spark, f"{text} in {name}, seed {seed}"  # As text NaN equals itself, and 0.0 is not -0.0.
    for text in failed:
        with pytest.raises(PySparkException):
            _by_spark(frame, [text])


@pytest.mark.usefixtures("_zone_is_kept")
@pytest.mark.parametrize("seed", range(6))
def test_random_expressions_have_the_values_of_spark(spark: SparkSession, seed: int) -> None:
    _compare(spark, seed)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("_zone_is_kept")
def test_many_random_expressions_have_the_values_of_spark(spark: SparkSession) -> None:
    for seed in range(100, 500):
        _compare(spark, seed)


@pytest.mark.parametrize(
    "text",
    [
        "upper(s)",
        "rand() > 1",
        "amount / 2",
        "amount * 1.5",
        "1.5 / 2",
        "1.5 + 1.5",
        "f + 1",
        "CAST(s AS INT)",
        "CAST(l AS INT)",
        "CAST(d AS TIMESTAMP)",
        "CAST(amount AS STRING)",
        "date_format(d, 'yyyy')",
        "s + 1",
        "i % 0",
        "i % l",
        "substring(s, 0, 2)",
        "substring(s, -1)",
        "substring(s, i, 2)",
        "concat(s, i)",
        "i = s",
        "amount + 1",
        "coalesce(i, 's')",
        "CASE WHEN flag THEN 1 END",
        "CASE i WHEN 1 THEN 'a' ELSE 'b' END",
        "i IN (SELECT 1)",
        "i + 1 > 0 AND flag",
        "x / 2 > 0 AND flag",
        "s LIKE s",
        "s LIKE 'a\\\\'",
        "i LIKE '1'",
        "s LIKE 'a_' ESCAPE '_'",
        "year(s)",
        "d = '2024-01-01'",
        "99999999999999999999",
        "missing + 1",
        "(- l) IS NULL",
        "l + 1 <=> l + 1",
        "if(l + 1 > 0, i, i)",
        "st.missing",
        "i +",
        "trim(s)",
        "length(s, 'x')",
        "NULL",
        "flag = flag < flag",
        "flag != flag > flag",
        "flag = flag IN (TRUE, FALSE)",
        "flag = flag BETWEEN flag AND TRUE",
        "flag BETWEEN flag AND flag = flag",
        "flag = i > 0",
        "i IS NULL = flag",
        "flag IS NULL IS NULL",
        "flag = NOT flag",
        "flag <=> flag < flag",
        "flag = flag <=> flag",
        "flag = CASE WHEN flag THEN flag ELSE flag END = flag",
    ],
)
@pytest.mark.fast
def test_what_may_have_another_value_by_spark_or_none_is_left_to_it(text: str) -> None:
    assert scalar_expression(text, TABLE_SCHEMA, zone=dt.UTC) is None


@pytest.mark.fast
@pytest.mark.parametrize(
    "text",
    [
        "i BETWEEN 1 AND 2 AND l > 3 OR i = 4",
        "(i > 1) = flag",
        "flag = (i IN (1, 2))",
        "CASE WHEN i = 1 THEN l > 2 ELSE i < 3 END = flag",
        "if(i = 1, l, 2) > length(concat(s, s))",
        "i IS NOT NULL AND NOT i = 5 AND i NOT IN (1, 2) AND i NOT BETWEEN 3 AND 4",
        "coalesce(i = 1, l = 2)",
        "-x > 1 AND x * 2 IN (1, x)",
        "s NOT LIKE 'a#_%' ESCAPE '#' OR s LIKE '%_'",
    ],
)
def test_comparisons_of_which_none_is_an_operand_of_another_are_certain(text: str) -> None:
    assert scalar_expression(text, TABLE_SCHEMA) is not None


@pytest.mark.fast
@pytest.mark.parametrize("text", ["CAST(t AS DATE)", "year(t)", "hour(t)"])
def test_parts_of_an_instant_need_a_time_zone(text: str) -> None:
    assert scalar_expression(text, TABLE_SCHEMA) is None
    assert scalar_expression("hour(n)", TABLE_SCHEMA) is not None, "a time without a zone is a time of the clock"


@pytest.mark.fast
def test_zones_whose_old_rules_differ_are_left_to_spark() -> None:
    assert all(map(is_certain_zone, ZONES.values()))
    assert not is_certain_zone(ZoneInfo("Europe/Dublin"))
