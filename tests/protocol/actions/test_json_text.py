"""JSON within and beyond the limits of Python's parser."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm_delta_dagster.protocol.actions.json_text import MAX_DEPTH, parse_json

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@given(_JSON)
def test_values_beside_a_deep_one_are_those_of_the_text(value: object) -> None:
    deep = "[" * 3000 + '"]{"' + "]" * 3000
    found = parse_json(f'{{"before":{json.dumps(value)},"deep":{deep},"after":{json.dumps(value)}}}')
    assert (found["before"], found["after"]) == (value, value)


def test_a_number_of_many_digits_becomes_infinite() -> None:
    assert parse_json('{"a":' + "9" * 4301 + ',"b":-' + "9" * 4301 + ',"c":12}') == {
        "a": float("inf"),
        "b": float("-inf"),
        "c": 12,
    }


def test_what_nests_deeply_is_cut_off() -> None:
    found = parse_json("[" * 100_000 + "]" * 100_000)
    depth = 0
    while found:
        (found,) = found
        depth += 1
    assert (found, depth) == (None, MAX_DEPTH)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[" * 3000,
        "[" * 3000 + "]" * 2999,
        "[" * 3000 + "]" * 2999 + "}",
        "[" * 3000 + "]" * 3001,
        "[" * 3000 + "]" * 3000 + '"',
        '{"a":' + "9" * 5000,
    ],
)
def test_a_text_that_is_not_json_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)
