"""Names of variables, parameters, attributes and functions say what they stand for."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.syntax_trees import parse

PACKAGE = Path(__file__).parents[2] / "cm_delta_dagster"

EMPTY_NAMES = frozenset({"each", "found", "given", "held", "one", "wanted"})
_TERM = "held"
"""A function of this name returns held commits."""

_JAVA_TEXT_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|//[^\n]*', re.DOTALL)


def _bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of everything that the source names itself. A name that it only uses belongs to another package."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if node.name != _TERM:
                yield node.lineno, node.name.lower()
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() if node.name is not None:
                yield node.lineno, node.name


def empty_names(source: str, *, is_java: bool = False) -> list[str]:
    """The names without a meaning in ``source``, each with its line."""
    if is_java:
        code = _JAVA_TEXT_OR_COMMENT.sub(lambda match: "\n" * match[0].count("\n"), source)
        lines = enumerate(code.split("\n"), start=1)
        names: Iterator[tuple[int, str]] = (
            (number, word) for number, line in lines for word in re.findall(r"\w+", line)
        )
    else:
        names = _bound_names(parse(source))
    return [f"{number}: {name}" for number, name in names if name.strip("_") in EMPTY_NAMES]


def _files(package: Path) -> list[Path]:
    return sorted(file for file in package.rglob("*") if file.suffix in (".py", ".java"))


def test_names_say_what_they_stand_for() -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)}:{name}"
        for file in _files(PACKAGE)
        for name in empty_names(file.read_text(), is_java=file.suffix == ".java")
    ]
    assert not wrong, f"Name these after what they stand for, such as entry, bounds or winners: {wrong}"


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "def f(wanted): ...",
        "def _given(): ...",
        "lambda *, one: 0",
        "[1 for each in ()]",
        "self._held = 0",
        "class A:\n    found: int",
        "if (found := 1): ...",
        "with a as held: ...",
        "match a:\n    case [given]: ...",
        "class _Held: ...",
    ],
)
def test_a_name_without_meaning_is_noticed(source: str) -> None:
    assert len(empty_names(source)) == 1


def test_a_name_without_meaning_is_noticed_in_java() -> None:
    assert empty_names('/** found\n */ // one\nf("//", found, "each");', is_java=True) == ["3: found"]


def test_names_of_other_packages_are_permitted() -> None:
    assert not empty_names("row = result.one()\ncall(found=row)\nis_found = webhook_not_found = 1")
