"""Conditions of up to ten thousand comparisons, flat and nested, in every function that walks a predicate."""

import json
from collections.abc import Callable

import pyarrow as pa
import pytest

from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA
from cm_delta_dagster.protocol.predicates.normal_forms import (
    check_predicate,
    flattened,
    size_and_depth,
    with_fewer_comparisons,
)
from cm_delta_dagster.protocol.predicates.predicates import (
    And,
    Comparison,
    ComparisonOperator,
    Not,
    Or,
    Predicate,
    columns_of,
    conjuncts,
    leaves,
    partition_only,
    to_sql,
)
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.protocol.statistics.data_skipping import keep_mask, partition_matches_exactly

pytestmark = pytest.mark.slow

MANY = 10_000
SCHEMA = StructType((StructField("id", PrimitiveType("long")), StructField("p", PrimitiveType("long"))))
Op = ComparisonOperator


def flat_or() -> Predicate:
    return Or(tuple(Comparison("id", Op.EQ, 2 * number) for number in range(MANY)))


def nested_or() -> Predicate:
    predicate: Predicate = Comparison("id", Op.EQ, 0)
    for number in range(1, MANY):
        predicate = Or((predicate, Comparison("id", Op.EQ, 2 * number)))
    return predicate


def alternating() -> Predicate:
    """Even numbers, each by an OR inside of an AND that holds everywhere."""
    predicate: Predicate = Comparison("id", Op.EQ, 0)
    for number in range(1, MANY // 2):
        predicate = And((Or((predicate, Comparison("id", Op.EQ, 2 * number))), Comparison("id", Op.GE, -number)))
    return predicate


def negated() -> Predicate:
    """A condition on even numbers inside of as many NOTs."""
    predicate: Predicate = Or((Comparison("id", Op.EQ, 0), Comparison("id", Op.EQ, 2)))
    for _ in range(MANY):
        predicate = Not(predicate)
    return predicate


def nested_not() -> Predicate:
    """Nested NOT (... AND ...): true for 0."""
    predicate: Predicate = Comparison("id", Op.EQ, 0)
    for number in range(1, MANY // 2):
        predicate = Not(And((Not(And((predicate, Comparison("id", Op.GE, -number)))), Comparison("id", Op.LE, MANY))))
    return predicate


def flat_and() -> Predicate:
    return And(tuple(Comparison("id", Op.NE, 2 * number + 1) for number in range(MANY)))


SHAPES: list[Callable[[], Predicate]] = [flat_or, nested_or, alternating, negated, nested_not, flat_and]


def adds(*bounds: int) -> pa.Table:
    """A file of the partition p = n for each number n, with id = n in its one row."""
    stats = [
        json.dumps({"numRecords": 1, "minValues": {"id": n}, "maxValues": {"id": n}, "nullCount": {"id": 0}})
        for n in bounds
    ]
    values = [[("p", str(n))] for n in bounds]
    known = {"stats": pa.array(stats), "partitionValues": pa.array(values, ADD_SCHEMA.field("partitionValues").type)}
    columns = [known.get(field.name, pa.nulls(len(bounds), field.type)) for field in ADD_SCHEMA]
    return pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in ADD_SCHEMA]))


@pytest.mark.requirements("SKIP-1")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_walk_survives_ten_thousand_comparisons(shape: Callable[[], Predicate]) -> None:
    predicate = shape()
    check_predicate(predicate)
    assert columns_of(predicate) == {"id"}
    assert conjuncts(predicate)
    assert partition_only(predicate, ["ID"])
    assert not partition_only(predicate, ["p"])
    numbers = (0, 1, 2, 3)
    expected = [predicate_holds(predicate, number) for number in numbers]
    assert keep_mask(adds(*numbers), predicate, schema=SCHEMA, partition_columns=["p"]).to_pylist() == expected
    filtered = row_filter(predicate, SCHEMA)
    rows = pa.array([*numbers, None], pa.int64())
    assert filtered.answer(lambda name: rows, len(rows)).to_pylist() == [*expected, None]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_written_text_of_any_size_is_read_back(shape: Callable[[], Predicate]) -> None:
    predicate = shape()
    assert to_sql(parse_predicate(to_sql(predicate), SCHEMA)) == to_sql(flattened(predicate))


def predicate_holds(predicate: Predicate, number: int) -> bool:
    """The value for ``id = number``, computed independently of the package."""
    answers: list[bool] = []
    pending: list[tuple[Predicate, bool]] = [(predicate, False)]
    while pending:
        node, done = pending.pop()
        if isinstance(node, Comparison):
            value = node.value
            answers.append(
                {Op.EQ: number == value, Op.NE: number != value, Op.GE: number >= value, Op.LE: number <= value}[
                    node.operator
                ]
            )
            continue
        assert isinstance(node, And | Or | Not)
        parts = (node.part,) if isinstance(node, Not) else node.parts
        if not done:
            pending += [(node, True), *((part, False) for part in parts)]
            continue
        values = [answers.pop() for _ in parts]
        answers.append(
            not values[0] if isinstance(node, Not) else all(values) if isinstance(node, And) else any(values)
        )
    return answers[0]


@pytest.mark.requirements("DML-3")
def test_partition_values_decide_a_large_condition() -> None:
    parts = tuple(Comparison("p", Op.EQ, 2 * number) for number in range(MANY))
    files = adds(0, 1, 2)
    for predicate in (Or(parts), Not(And(tuple(Not(part) for part in parts)))):
        found = partition_matches_exactly(files, predicate, schema=SCHEMA, partition_columns=["p"])
        assert found.to_pylist() == [True, False, True]


@pytest.mark.parametrize(
    "text",
    [
        " OR ".join(f"id = {number}" for number in range(MANY)),
        " AND ".join(f"id <> {number}" for number in range(MANY)),
        "(" * (MANY - 1) + "id = 0" + "".join(f" OR id = {number})" for number in range(1, MANY)),
        "".join(f"(id = {number} AND " for number in range(1, MANY)) + "id = 0" + ")" * (MANY - 1),
        "NOT " * MANY + "id = 1",
        "NOT (" * MANY + "id = 1" + ")" * MANY,
        " OR ".join(f"abs(id) = {number}" for number in range(MANY)),
    ],
    ids=["or", "and", "left brackets", "right brackets", "not", "not brackets", "functions"],
)
def test_texts_of_ten_thousand_comparisons_are_read(text: str) -> None:
    predicate = parse_predicate(text, SCHEMA)
    assert len(list(leaves(predicate))) in (1, MANY)
    assert size_and_depth(predicate)[1] <= 1


def test_more_comparisons_are_refused_with_their_number() -> None:
    text = " OR ".join(f"id = {number}" for number in range(MANY + 1))
    with pytest.raises(InvalidArgumentError, match=r"10001 comparisons.*10000") as caught:
        parse_predicate(text, SCHEMA)
    assert len(str(caught.value)) < 2000
    with pytest.raises(InvalidArgumentError, match="10001 comparisons"):
        check_predicate(Or(tuple(Comparison("id", Op.EQ, number) for number in range(MANY + 1))))


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    for text in ("-(" * 5000 + "id" + ")" * 5000 + " = 1", "abs(" * 5000 + "id" + ")" * 5000 + " = 1"):
        with pytest.raises(InvalidArgumentError, match="nested") as caught:
            parse_predicate(text, SCHEMA)
        assert len(str(caught.value)) < 2000


def test_equalities_of_one_column_become_a_list() -> None:
    predicate = parse_predicate("id = 1 or p = 2 or id = 3 or id = NULL", SCHEMA)
    assert to_sql(with_fewer_comparisons(predicate)) == "(`id` IN (1, 3)) OR (`p` = 2) OR (`id` = NULL)"
    predicate = parse_predicate("id <> 1 and p = 2 and id <> 3", SCHEMA)
    assert to_sql(with_fewer_comparisons(predicate)) == "(NOT (`id` IN (1, 3))) AND (`p` = 2)"
