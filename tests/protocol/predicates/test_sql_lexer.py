"""The lexer of Spark SQL: one table of texts with their lexemes and with what a condition's tokens leave of them."""

import pytest

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.sql_lexer import (
    Kind,
    closing_positions,
    lexemes,
    parts_of,
    place,
    plain_string,
    source_of,
    tokens_of,
)

W, Q, S, N, P, H = Kind.WORD, Kind.QUOTED, Kind.STRING, Kind.NUMBER, Kind.SYMBOL, Kind.HINT
CASES: list[tuple[str, list[tuple[Kind, str]], str | None]] = [
    ("a  is not null", [(W, "a"), (W, "is"), (W, "not"), (W, "null")], "a  is not null"),
    (
        "group by a order by b",
        [(W, "group"), (W, "by"), (W, "a"), (W, "order"), (W, "by"), (W, "b")],
        "group by a order by b",
    ),
    ("1abc", [(W, "1abc")], "1abc"),
    (
        "`a``b`.c <> 'it''s'",
        [(Q, "`a``b`"), (P, "."), (W, "c"), (P, "<>"), (S, "'it'"), (S, "'s'")],
        "`a``b`.c <> 'it''s'",
    ),
    ("x -- y\n = 1L", [(W, "x"), (P, "="), (N, "1L")], "x = 1L"),
    ("a /* b */ = 2.5e3", [(W, "a"), (P, "="), (N, "2.5e3")], "a = 2.5e3"),
    ("/*+ broadcast(t) */ a", [(W, "a")], "a"),
    (
        "select /*+ broadcast(t) */ a",
        [(W, "select"), (H, "/*+ broadcast(t) */"), (W, "a")],
        "select /*+ broadcast(t) */ a",
    ),
    ("s = r'\\d'", [(W, "s"), (P, "="), (S, "r'\\d'")], "s = r'\\d'"),
    ("s = r'\\' or 'x'", [(W, "s"), (P, "="), (S, "r'\\'"), (W, "or"), (S, "'x'")], "s = r'\\' or 'x'"),
    ("s = x'01'", [(W, "s"), (P, "="), (S, "x'01'")], "s = x'01'"),
    ("s = '\\''", [(W, "s"), (P, "="), (S, "'\\''")], "s = '\\''"),
    ("a['k'] || \"b\"", [(W, "a"), (P, "["), (S, "'k'"), (P, "]"), (P, "||"), (S, '"b"')], "a['k'] || \"b\""),
    ("x -> x + 1", [(W, "x"), (P, "->"), (W, "x"), (P, "+"), (N, "1")], "x -> x + 1"),
    ("day >= :day", [(W, "day"), (P, ">="), (P, ":"), (W, "day")], "day >= :day"),
    (
        "s = 'ü' and ä = 1",
        [(W, "s"), (P, "="), (S, "'ü'"), (W, "and"), (W, "ä"), (P, "="), (N, "1")],
        "s = 'ü' and ä = 1",
    ),
    ("s = u&'x'", [(W, "s"), (P, "="), (W, "u"), (P, "&"), (S, "'x'")], "s = u&'x'"),
    ("s = b'1'", [(W, "s"), (P, "="), (W, "b"), (S, "'1'")], "s = b'1'"),
    ("s = $$x$$", [(W, "s"), (P, "="), (P, "$"), (P, "$"), (W, "x"), (P, "$"), (P, "$")], "s = $$x$$"),
    ("", [], None),
]


@pytest.mark.parametrize(("text", "expected", "condition"), CASES)
def test_statements_and_conditions_are_split_alike(
    text: str, expected: list[tuple[Kind, str]], condition: str | None
) -> None:
    """``condition`` is the text without comments; None if it is refused as a condition."""
    read = lexemes(text)
    assert [(item.kind, item.source) for item in read] == expected
    assert all(text[item.start : item.end] == item.source for item in read)
    if condition is None:
        with pytest.raises(InvalidArgumentError, match="is not valid SQL"):
            tokens_of(text)
    else:
        assert source_of(tokens_of(text), text) == condition


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a = 'b", "line 1, column 5"),
        ("a\n = `b", "line 2, column 4"),
        ("/* a", "line 1, column 1"),
        ("'a' 'b", "line 1, column 5"),
    ],
)
def test_text_that_is_not_closed_is_refused(text: str, where: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"that begins at {where} is not closed"):
        lexemes(text)
    with pytest.raises(InvalidArgumentError, match="is not valid SQL"):
        tokens_of(text)


@pytest.mark.parametrize(
    ("text", "positions"), [("(a[1])", {0: 5, 2: 4}), ("f({})", {1: 4, 2: 3}), ("(a]", None), (")", None), ("(a", None)]
)
def test_brackets_have_counterparts(text: str, positions: dict[int, int] | None) -> None:
    if positions is None:
        with pytest.raises(InvalidArgumentError, match="bracket"):
            closing_positions(tokens_of(text), text)
    else:
        assert closing_positions(tokens_of(text), text) == positions


def test_the_text_after_a_word_that_sqlglot_reads_as_a_command_is_split() -> None:
    words = ["show", "tables", "in", "x", ";", "call", "p", "(", "1", ")"]
    assert [item.source for item in lexemes("show tables in x; call p(1)")] == words
    assert [item.symbol for item in lexemes("a <=> b == {d}")] == ["", "<=>", "", "==", "{", "", "}"]


def test_names_and_plain_strings() -> None:
    assert parts_of("a.b") == ("a", "b") and parts_of("`a.b`.`c``d`") == ("a.b", "c`d")
    assert [plain_string(item) for item in lexemes("'x' \"y\"")] == ["x", "y"]
    with pytest.raises(InvalidArgumentError, match="plain text in quotes"):
        plain_string(lexemes(r"r'x'")[0])
    assert place("a\nbc", 3) == "line 2, column 2"
