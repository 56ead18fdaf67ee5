"""Predicates survive their JSON text."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicate_json import decode_predicate, encode_predicate
from cm_delta_dagster.protocol.predicates.predicates import (
    AlwaysTrue,
    And,
    Comparison,
    ComparisonOperator,
    In,
    IsNotNull,
    IsNull,
    Not,
    Opaque,
    Or,
    Predicate,
    StartsWith,
)

VALUES = (1, 2.5, math.inf, True, "text", None, b"\0\xff", Decimal("1.50"), date(2026, 1, 2))


@pytest.mark.parametrize(
    "predicate",
    [
        And((IsNull("a"), Or((IsNotNull("b"), Not(StartsWith("c", "x")))))),
        In("`a.b`", VALUES),
        Comparison("t", ComparisonOperator.NULL_SAFE_EQ, datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
        Comparison("t", ComparisonOperator.LT, datetime(2026, 1, 2, 3, 4, 5, 6)),
        AlwaysTrue(),
        Opaque("rand() < a", frozenset({"a"})),
        Opaque("anything", None),
    ],
)
def test_a_predicate_survives_its_json_text(predicate: Predicate) -> None:
    assert decode_predicate(json.loads(json.dumps(encode_predicate(predicate)))) == predicate


def test_text_that_is_no_predicate_is_refused() -> None:
    for wrong in ({"kind": "Nothing"}, {}, None, {"kind": "Comparison", "column": "a", "operator": "?", "value": 1}):
        with pytest.raises(InvalidArgumentError, match="cannot be read"):
            decode_predicate(wrong)
