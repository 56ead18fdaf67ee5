"""Checks and conversions of arguments."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import one_of
from cm_delta_dagster.protocol.schema.evolution import SchemaMode


@pytest.mark.parametrize("value", ["merge", "MERGE", "Merge"])
def test_an_argument_is_a_member_or_its_name(value: str) -> None:
    assert one_of(SchemaMode, value, name="schema_mode") is SchemaMode.MERGE
    assert one_of(SchemaMode, SchemaMode.MERGE, name="schema_mode") is SchemaMode.MERGE


@pytest.mark.parametrize("value", ["merges", "", "nothing"])
def test_another_value_is_refused_with_the_known_ones(value: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"schema_mode is '{value}'; give one of strict, merge, overwrite"):
        one_of(SchemaMode, value, name="schema_mode")
