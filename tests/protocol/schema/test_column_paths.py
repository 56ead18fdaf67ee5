"""Paths of columns as text and as names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.schema.column_paths import column_path, path_text


@pytest.mark.requirements("COLMAP-13")
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("l.element.x y", ("l", "element", "x y")),
        ("`a.b`.c", ("a.b", "c")),
        ("`a``b`", ("a`b",)),
        (["a.b", "c"], ("a.b", "c")),
    ],
)
def test_text_and_names_give_the_same_path(text: str | list[str], path: tuple[str, ...]) -> None:
    assert column_path(text) == path


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "`a", "`a`b", [], [""], ["a", 1]])
def test_what_is_not_a_path_is_refused(text: str | list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a column"):
        column_path(text)


@given(st.lists(st.text(min_size=1), min_size=1))
def test_the_text_of_a_path_is_read_as_that_path(path: list[str]) -> None:
    assert column_path(path_text(path)) == tuple(path)
