"""Random rows of every type with statistics, the statistics that writers compute, and the SQL truth value of predicates."""

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from cm_delta_dagster.protocol.predicates.predicates import (
    And,
    Comparison,
    ComparisonOperator,
    In,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from cm_delta_dagster.protocol.schema.types import DataType, DecimalType, PrimitiveType
from cm_delta_dagster.protocol.statistics.statistics import truncate_lower_bound, truncate_upper_bound

Op = ComparisonOperator

TYPES: dict[str, DataType] = {
    "i": PrimitiveType("long"),
    "f": PrimitiveType("float"),
    "d": PrimitiveType("double"),
    "c": DecimalType(20, 2),
    "s": PrimitiveType("string"),
    "t": PrimitiveType("timestamp"),
    "n": PrimitiveType("timestamp_ntz"),
    "y": PrimitiveType("date"),
    "b": PrimitiveType("boolean"),
}

moments = st.sampled_from(
    [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)]
) | st.integers(-3000, 3000).map(lambda micros: datetime(2020, 1, 1) + timedelta(microseconds=micros))
strings = st.text(max_size=2) | st.sampled_from(
    ["x" * 31, "x" * 32, "x" * 33, "x" * 32 + "\U0010ffff", "\U0010ffff" * 70, "x" * 40, "é" * 33, ""]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
    "f": st.floats(width=32),
    "d": st.floats() | st.sampled_from([-0.0, 0.0, 1.0]),
    "c": st.decimals(Decimal("-9.99"), Decimal("9.99"), places=2),
    "s": strings,
    "t": moments.map(lambda moment: moment.replace(tzinfo=UTC)),
    "n": moments,
    "y": st.dates(date(2019, 12, 30), date(2020, 1, 3)),
    "b": st.booleans(),
    "p": st.integers(-2, 2),
    "q": st.sampled_from(["a", "ab", "b", "é"]),
    "r": st.sampled_from([1.0, -0.0, 0.0, math.nan, math.inf]),
}


def rank(value: Any) -> Any:
    """Spark's order of numbers, NaN last."""
    return (True, 0.0) if value != value else (False, value)


def json_number(value: Any) -> str:
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return json.dumps(text + ("Z" if value.tzinfo else ""))
    return json.dumps(value) if not isinstance(value, Decimal | date) else json.dumps(str(value)).strip('"')


def member(name: str, value: Any) -> str:
    text = f'"{value}"' if isinstance(value, date) and not isinstance(value, datetime) else json_number(value)
    return f'"{name}":{text}'


def stats_of(rows: Sequence[dict[str, Any]], *, spelled: Callable[[str], str] = str, tight: bool = True) -> str:
    """Return the statistics of a file with these physical rows; ``spelled`` maps column names; not tight if rows are deleted."""
    lows, highs, nulls = [], [], []
    for name in TYPES:
        values = [row[name] for row in rows if row[name] is not None]
        nulls.append(f'"{spelled(name)}":{len(rows) - len(values)}')
        # As writers that ignore NaN in the bounds.
        ordered = [value for value in values if value == value and value not in (math.inf, -math.inf)]
        if len(ordered) < len([value for value in values if value == value]) or not ordered or name == "b":
            continue
        low, high = min(ordered), max(ordered)
        if name == "s":
            low, high = truncate_lower_bound(low), truncate_upper_bound(high)
        lows.append(member(spelled(name), low))
        if high is not None:
            highs.append(member(spelled(name), high))
    return (
        f'{{"numRecords":{len(rows)},"minValues":{{{",".join(lows)}}},"maxValues":{{{",".join(highs)}}},'
        f'"nullCount":{{{",".join(nulls)}}},"tightBounds":{json.dumps(tight)}}}'
    )


COMPARE: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.GT: lambda a, b: a > b,
    Op.GE: lambda a, b: a >= b,
}


def sql_truth(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    match predicate:
        case And(parts):
            answers = [sql_truth(part, row) for part in parts]
            return False if False in answers else None if None in answers else True
        case Or(parts):
            answers = [sql_truth(part, row) for part in parts]
            return True if True in answers else None if None in answers else False
        case Not(part):
            answer = sql_truth(part, row)
            return None if answer is None else not answer
        case IsNull(column):
            return row[column] is None
        case IsNotNull(column):
            return row[column] is not None
        case In(column, values):
            return sql_truth(Or(tuple(Comparison(column, Op.EQ, value) for value in values)), row)
        case StartsWith(column, prefix):
            return None if row[column] is None else row[column].startswith(prefix)
        case Comparison(column, operator, value):
            held = row[column]
            if operator is Op.NULL_SAFE_EQ:
                return (held is None and value is None) or (
                    held is not None and value is not None and rank(held) == rank(value)
                )
            return None if held is None or value is None else COMPARE[operator](rank(held), rank(value))
    raise AssertionError(predicate)


def leaves(name: str) -> st.SearchStrategy[Predicate]:
    values = st.none() | VALUES[name]
    comparisons = st.builds(Comparison, st.just(name), st.sampled_from(list(Op)), values)
    lists = st.builds(In, st.just(name), st.lists(values, max_size=3).map(tuple))
    nulls = st.sampled_from([IsNull(name), IsNotNull(name)])
    prefixes = st.builds(StartsWith, st.just(name), strings.map(lambda text: text[:33]))
    return st.one_of(comparisons, lists, nulls, *([prefixes] if name in "sq" else []))


predicates: st.SearchStrategy[Predicate] = st.recursive(
    st.sampled_from(sorted(VALUES)).flatmap(leaves),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=4,
)
partition_names = ("p", "q", "r")
rows_of_a_file = st.lists(
    st.fixed_dictionaries({name: st.none() | VALUES[name] for name in TYPES}), min_size=0, max_size=4
)
files = st.tuples(
    st.fixed_dictionaries({name: st.none() | VALUES[name] for name in partition_names}), rows_of_a_file, st.booleans()
)


def partition_text(value: Any) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity"
    return None if value is None else str(value)
