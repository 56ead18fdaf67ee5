"""Values of string literals and patterns of LIKE."""

import pytest

from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.protocol.predicates.sql_strings import (
    LikePattern,
    like_pattern,
    literal_text,
    literal_value,
    string_value,
)
from cm_delta_dagster.protocol.schema.types import STRING, StructField, StructType
from tests.support.string_literals import LITERALS

SCHEMA = StructType((StructField("s", STRING),))


@pytest.mark.parametrize("literal", LITERALS)
def test_a_literal_has_the_value_that_spark_gives_it(literal: str) -> None:
    """``tests/operations/reading/test_string_literals.py`` asks Spark for each."""
    expected = Comparison("s", ComparisonOperator.EQ, LITERALS[literal])
    assert parse_predicate(f"s = {literal}", SCHEMA) == expected


@pytest.mark.parametrize("literal", [r"'\ud83d'", r"'\ude00x'", r"'\U00110000'", r"'\Ud83d0000'"])
def test_an_escape_without_a_character_has_no_certain_value(literal: str) -> None:
    assert string_value(literal) is None


@pytest.mark.parametrize(
    ("pattern", "escape", "found"),
    [
        ("ab", "\\", LikePattern(prefix="ab", rest="")),
        ("ab%", "\\", LikePattern(prefix="ab", rest="%")),
        ("a_%", "\\", LikePattern(prefix="a", rest="_%")),
        (r"a\%b\_c\\%", "\\", LikePattern(prefix=r"a%b_c\\"[:-1], rest="%")),
        ("a#%##", "#", LikePattern(prefix="a%#", rest="")),
        ("a\\%", "#", LikePattern(prefix="a\\", rest="%")),
        ("%%", "%", LikePattern(prefix="%", rest="")),
        ("a\\b", "\\", None),
        ("a\\", "\\", None),
        ("%\\b", "\\", None),
        ("", "\\", LikePattern(prefix="", rest="")),
    ],
)
def test_a_pattern_is_split_at_its_first_wildcard(pattern: str, escape: str, found: LikePattern | None) -> None:
    assert like_pattern(pattern, escape) == found


@pytest.mark.parametrize("value", ["", "it's", 'a "b"', "back\\slash\\n", "line\nbreak", "%_ ü"])
def test_texts_survive_as_literals(value: str) -> None:
    assert literal_value(literal_text(value)) == value


def test_escapes_are_those_of_spark() -> None:
    assert literal_value(r"'\n\t\u0041\101\'\"\\ \% \q'") == "\n\tAA'\"\\ \\% q"
    assert literal_value(r"r'\n'") == r"\n" and literal_value("'a''b'") == "a'b"
