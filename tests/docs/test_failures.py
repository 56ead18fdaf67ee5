"""Every line of *What happens when something fails*, and every feature of the Dagster integration, names tests that exist."""

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.support.syntax_trees import parse

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "failures.md"
_LINK = re.compile(r"\[`(\w+)`\]\(([^)]+)\)")


def lines_of(page: str) -> list[list[str]]:
    """The cells of every line of every table, without heads."""
    rows = [row.strip().strip("|").split(" | ") for row in page.splitlines() if row.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows if row[0].strip() not in ("what breaks", "#")]


LINES = lines_of(PAGE.read_text())
FEATURES = lines_of((DOCS / "features.md").read_text())


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[0][:40])
def test_every_failure_names_tests_that_exist(line: list[str]) -> None:
    assert len(line) == 4
    check_tests_of(line)


@pytest.mark.parametrize("line", FEATURES, ids=lambda line: line[1][:40])
def test_every_feature_names_tests_that_exist(line: list[str]) -> None:
    assert len(line) == 3
    check_tests_of(line)


def test_the_features_are_numbered() -> None:
    assert [line[0] for line in FEATURES] == [str(number) for number in range(1, 24)]


def check_tests_of(line: list[str]) -> None:
    """The last cell of the line links to tests that exist."""
    assert all(line)
    links = _LINK.findall(line[-1])
    assert links, f"no test shows {line[0]!r}"
    assert ", ".join(f"[`{name}`]({path})" for name, path in links) == line[-1]
    for name, path in links:
        file = (PAGE.parent / path).resolve()
        assert file.is_file() and "tests" in file.parts, path
        assert name in functions_of(file), f"{path} has no {name}"


@functools.cache
def functions_of(file: Path) -> frozenset[str]:
    """The names of the functions of a module; many lines name tests of the same module."""
    return frozenset(node.name for node in parse(file.read_text()).body if isinstance(node, ast.FunctionDef))


def test_the_page_has_a_line_for_every_kind_of_failure() -> None:
    assert len(LINES) > 40
    assert len({line[0] for line in LINES}) == len(LINES)
