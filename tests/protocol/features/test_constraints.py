"""CHECK constraints and invariants of columns."""

import json

import pytest

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError
from cm_delta_dagster.protocol.features.constraints import (
    INVARIANTS,
    check_constraints,
    constraint_key,
    invariants,
    with_constraint,
)
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType

CONFIGURATION = {"delta.constraints.b": "id > 0", "delta.constraints.a": "id < 9", "delta.appendOnly": "true"}


def test_constraints_are_those_properties_in_order_of_their_names() -> None:
    found = check_constraints(CONFIGURATION)
    assert [(one.name, one.expression) for one in found] == [("a", "id < 9"), ("b", "id > 0")]
    assert found[0].description == "the CHECK constraint 'a' (id < 9)"


def test_a_new_constraint_is_stored_in_lower_case() -> None:
    assert with_constraint({"k": "v"}, "Positive", "id > 0") == {"k": "v", "delta.constraints.positive": "id > 0"}


@pytest.mark.parametrize(
    ("name", "expression", "why"),
    [
        ("", "true", "is not the name of a constraint"),
        (" ", "true", "is not the name of a constraint"),
        (" a", "true", "is not the name of a constraint"),
        ("a ", "true", "is not the name of a constraint"),
        ("A", "true", "The table has a constraint 'A' already: id < 9"),
        ("new", "rand() > 0.5", "rand"),
        ("new", "d <= current_date", "without brackets"),
    ],
)
def test_a_constraint_that_is_not_valid_is_refused(name: str, expression: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        with_constraint(CONFIGURATION, name, expression)


def test_a_constraint_may_use_the_current_time() -> None:
    assert "delta.constraints.new" in with_constraint(CONFIGURATION, "new", "d <= current_date()")


def test_a_constraint_is_found_ignoring_case_and_other_properties_are_not() -> None:
    assert constraint_key({"delta.constraints.Abc": "x"}, "aBC") == "delta.constraints.Abc"
    assert constraint_key({"Delta.Constraints.abc": "x"}, "abc") is None
    assert constraint_key(CONFIGURATION, "c") is None


def schema(text: object) -> StructType:
    inner = StructType((StructField("x", LONG, metadata={INVARIANTS: text}), StructField("y", LONG)))
    return StructType((StructField("s", inner),))


def test_invariants_of_nested_fields_have_the_path_as_name() -> None:
    (found,) = invariants(schema(json.dumps({"expression": {"expression": "x > 3"}})))
    assert (found.name, found.expression, found.kind) == ("s.x", "x > 3", "invariant of column")


@pytest.mark.parametrize(
    "text",
    [
        5,
        "{",
        "[]",
        "5",
        '{"other":1}',
        '{"expression":5}',
        '{"expression":{"other":1}}',
        '{"expression":{"expression":5}}',
        "[" * 100_000,
    ],
    ids=lambda text: str(text)[:20],
)
def test_an_invariant_that_cannot_be_read_is_refused(text: object) -> None:
    with pytest.raises(CorruptLogError, match=r"The invariant of column 's\.x' cannot be read"):
        list(invariants(schema(text)))
