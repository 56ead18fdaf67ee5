"""Columns that an expression refers to, and what follows from the condition of a join."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.references import KeyPair, Side, join_condition, own_text, qualified
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType


def _side(alias: str, *names: str) -> Side:
    return Side(alias=alias, schema=StructType(tuple(StructField(name, LONG) for name in names)))


TARGET = _side("t", "id", "p", "Day", "v", "only t")
SOURCE = _side("s", "ID", "x", "v")


@pytest.mark.parametrize(
    ("text", "keys", "on_target"),
    [
        ("t.id = s.id", [("id", "ID")], []),
        ("(s.x) = T.p AND s.id = t.id", [("id", "ID")], []),
        ("p = x AND t.id = S.ID", [("p", "x"), ("id", "ID")], []),
        ("t.id = s.id AND t.p > 3 AND x = 1", [("id", "ID")], ["p > 3"]),
        ("t.id = s.id AND (t.p = 1 OR NOT day = 3)", [("id", "ID")], ["(p = 1) OR (NOT (day = 3))"]),
        ("t.`only t` IN (1, 2)", [], ["`only t` IN (1, 2)"]),
        ("t.id <=> s.id AND t.p = s.x", [("p", "x")], []),
        ("t.id = s.id OR t.p = s.x", [], []),
        ("NOT t.id = s.id", [], []),
        ("t.id = s.id + 1", [], []),
        ("t.id = t.p", [], ["id = p"]),
        ("v = 3", [], []),
        ("t.id BETWEEN 1 AND 2 AND t.id = s.x", [("id", "x")], ["id BETWEEN 1 AND 2"]),
    ],
)
def test_equal_columns_and_conditions_on_the_table_are_found(
    text: str, keys: list[tuple[str, str]], on_target: list[str]
) -> None:
    """Equal columns limit the files of the table only if every matching row has them equal."""
    found = join_condition(text, target=TARGET, source=SOURCE)
    assert [(pair.target, pair.source) for pair in found.keys] == keys
    assert list(found.on_target) == on_target
    assert all(isinstance(pair, KeyPair) for pair in found.keys)


def test_keys_by_which_null_equals_null() -> None:
    """They are apart, because the range of other keys says nothing about rows with NULL."""
    both = join_condition("t.id <=> s.id AND (t.p = s.x)", target=TARGET, source=SOURCE)
    assert both.null_safe_keys == (KeyPair(target="id", source="ID", has_nulls=True),) and both.others == ()
    condition = join_condition("t.id <=> s.id AND t.p > 1 AND (t.p = 2 OR s.x > 1)", target=TARGET, source=SOURCE)
    assert condition.null_safe_keys[0].text == "t.id <=> s.id"
    assert condition.others == ("t.p > 1", "(t.p = 2) OR (s.x > 1)")


def test_a_condition_with_an_open_bracket_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        join_condition("(t.id = s.id", target=TARGET, source=SOURCE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id + 1", "t.id + 1"),
        ("t.id + s.x", "t.id + s.x"),
        ("transform(array(1), id -> id + p)", "transform(array(1), id -> id + t.p)"),
        ("CAST(day AS date) + INTERVAL 1 day", "CAST(t.day AS date) + INTERVAL 1 day"),
        ("'id' || `only t`", "'id' || t.`only t`"),
        ("x", "x"),
    ],
)
def test_columns_without_alias_get_that_of_their_side(text: str, expected: str) -> None:
    """Literals, types, units and variables of lambda functions are no columns."""
    assert qualified(text, TARGET).replace("`t`", "t") == expected


def test_an_alias_with_a_blank_is_quoted() -> None:
    assert qualified("id", _side("my table", "id")) == "`my table`.id"


def test_a_condition_on_both_sides_is_not_one_on_the_table() -> None:
    assert own_text("t.p + day > 1", TARGET, SOURCE) == "p + day > 1"
    assert own_text("t.p > s.x", TARGET, SOURCE) is None
    assert own_text("v > 1", TARGET, SOURCE) is None
    assert own_text("t.p >", TARGET, SOURCE) is None
