"""What follows from an expression of another engine: always true where the expression is, and None for what is not known."""

import math
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cm_delta_dagster.arrow.expressions import (
    FieldPath,
    FunctionCall,
    UnknownExpressionError,
    fields_of,
    parse_expression,
)
from cm_delta_dagster.arrow.implied_predicates import implied_predicate
from cm_delta_dagster.protocol.predicates.predicates import to_sql
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA, COLLATIONS_METADATA
from cm_delta_dagster.protocol.schema.types import (
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    DecimalType,
    StructField,
    StructType,
)

SCHEMA = StructType(
    (
        StructField("i", LONG),
        StructField("x", DOUBLE),
        StructField("s", STRING),
        StructField("t", TIMESTAMP),
        StructField("m", DecimalType(10, 2)),
        StructField("a.b", LONG),
        StructField("st", StructType((StructField("u", LONG),))),
        StructField("h", STRING, metadata={CHAR_METADATA: "char(4)"}),
        StructField("k", STRING, metadata={COLLATIONS_METADATA: {"k": "UTF8_LCASE"}}),
    )
)
f = pc.field
_NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)


@pytest.mark.requirements("SKIP-1")
@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        (f("i") > 3, "`i` > 3"),
        (pc.scalar(3) >= f("i"), "`i` <= 3"),
        (f("a.b") == 1, "`a.b` = 1"),
        (f("st", "u") < 2, "`st`.`u` < 2"),
        (~((f("i") > 3) | f("s").is_null()), "(`i` <= 3) AND (`s` IS NOT NULL)"),
        (~((f("i") > 3) & (f("i") < 9)), "(`i` <= 3) OR (`i` >= 9)"),
        (~(f("x") > 3.0), "(`x` <= 3.0D) OR (`x` = CAST('NaN' AS DOUBLE))"),
        (~(f("x") < 3.0), "`x` >= 3.0D"),
        (f("s").isin(["a", None]), "(`s` IN ('a')) OR (`s` IS NULL)"),
        (pc.if_else(f("s").is_valid(), f("s").isin(["a"]), pc.scalar(pa.scalar(None, pa.bool_()))),
         "((`s` IS NOT NULL) AND (`s` IN ('a')))"),
        (pc.starts_with(f("s"), "a"), "startswith(`s`, 'a')"),
        (f("m") <= Decimal("1.25"), "`m` <= 1.25BD"),
        (f("t") == pa.scalar(_NOON, pa.timestamp("ns", "UTC")), "`t` = TIMESTAMP '2024-07-01 12:00:00+00:00'"),
        ((pc.utf8_length(f("s")) == 1) & (f("i") == 2), "`i` = 2"),
        (f("i") == pa.scalar(None, pa.int64()), "FALSE"),
    ],
)  # fmt: skip
def test_conditions_that_follow(expression: pc.Expression, sql: str) -> None:
    found = implied_predicate(parse_expression(expression), SCHEMA)
    assert found is not None and to_sql(found) == sql


@pytest.mark.parametrize(
    "expression",
    [
        f("x") == math.nan,
        f("x").isin([math.nan]),
        ~f("s").isin(["a"]),
        ~pc.starts_with(f("s"), "a"),
        pc.starts_with(f("s"), "a", ignore_case=True),
        f("x").is_null(nan_is_null=True),
        f("h") != "ab",
        f("k") == "A",
        f("m") > 1.5,
        f("i") > f("x"),
        f("i").cast(pa.string()) == "1",
        (pc.utf8_length(f("s")) == 1) | (f("i") == 2),
        f("nosuch") == 1,
    ],
)
def test_nothing_follows_from_what_engines_evaluate_in_another_way(expression: pc.Expression) -> None:
    assert implied_predicate(parse_expression(expression), SCHEMA) is None


def test_an_expression_has_its_columns_and_exact_values() -> None:
    parsed = parse_expression((f("a") + f("st", "u") > 3) & f("b'\nliteral: '0"))
    assert fields_of(parsed) == {"a", "st", "b'\nliteral: '0"}
    assert isinstance(parsed, FunctionCall) and parsed.arguments[1] == FieldPath(("b'\nliteral: '0",))


@pytest.mark.parametrize("expression", [pc.field(0) == 1, f("t") > pa.scalar(1, pa.timestamp("ns", "UTC"))])
def test_what_python_cannot_represent_is_unknown(expression: pc.Expression) -> None:
    with pytest.raises(UnknownExpressionError):
        parse_expression(expression)


def test_a_condition_with_thousands_of_levels_is_no_error() -> None:
    parsed = parse_expression(f("i") == 1)
    for number in range(20_000):
        parsed = FunctionCall(
            "or_kleene", (parsed, FunctionCall("equal", (FieldPath(("i",)), parse_expression(pc.scalar(number)))))
        )  # type: ignore[arg-type]
    assert implied_predicate(parsed, SCHEMA) is None
