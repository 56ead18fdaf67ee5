"""Sizes of functions and modules: small enough to be read at once."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.syntax_trees import parse

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "cm_delta_dagster"

MAX_PARAMETERS = 8
MAX_FUNCTION_LINES = 50
MAX_MODULE_LINES = 450

_KEYWORDS = "public: its keyword arguments are the options of the operation, as in deltalake"
MANY_PARAMETERS: Mapping[str, str] = {
    "api.connection.connect.connect": _KEYWORDS,
    "api.connection.connection.Connection.create_table": _KEYWORDS,
    "api.connection.connection.Connection.create_table_as": _KEYWORDS,
    "api.connection.maintenance.ConnectionMaintenance.set_policy": _KEYWORDS,
    "api.table.row_writes.RowWrites.overwrite": _KEYWORDS,
    "api.table.row_writes.RowWrites.upsert": _KEYWORDS,
    "api.table.table_reads.TableReads.stream": _KEYWORDS,
    "orchestration.sensor.sensors.ratified_commit_sensor": "public: a factory with the keyword arguments of dagster.sensor",
}
"""Functions with more parameters, and why."""

LONG_FUNCTIONS: Mapping[str, str] = {}
"""Functions with more lines, and why."""

LONG_MODULES: Mapping[str, str] = {}
"""Modules with more lines, and why."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, _Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | _Function):
            name = f"{prefix}.{child.name}"
            if isinstance(child, _Function):
                yield name, child
            yield from _functions(child, name)


def _every_function() -> Iterator[tuple[str, _Function]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        yield from _functions(parse(file.read_text()), module)


def _parameters(function: _Function) -> int:
    """Number of parameters, ``self`` and ``cls`` not counted."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def _code_lines(function: _Function) -> int:
    """Lines from ``def`` to the end, the docstring not counted."""
    first = function.body[0]
    is_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if is_docstring else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def test_functions_have_at_most_eight_parameters() -> None:
    found = {name: count for name, function in _every_function() if (count := _parameters(function)) > MAX_PARAMETERS}
    assert {name: count for name, count in found.items() if name not in MANY_PARAMETERS} == {}
    assert set(MANY_PARAMETERS) <= set(found), "remove exceptions that are not needed any more"


def test_functions_have_at_most_fifty_lines() -> None:
    found = {
        name: count for name, function in _every_function() if (count := _code_lines(function)) > MAX_FUNCTION_LINES
    }
    assert {name: count for name, count in found.items() if name not in LONG_FUNCTIONS} == {}
    assert set(LONG_FUNCTIONS) <= set(found), "remove exceptions that are not needed any more"


def test_modules_have_at_most_450_lines() -> None:
    """Python, Java and SQL."""
    long_modules = {
        str(file.relative_to(PACKAGE)): count
        for file in sorted(PACKAGE.rglob("*"))
        if file.suffix in (".py", ".java", ".sql")
        if (count := len(file.read_text().splitlines())) > MAX_MODULE_LINES
    }
    assert {name: count for name, count in long_modules.items() if name not in LONG_MODULES} == {}
    assert set(LONG_MODULES) <= set(long_modules), "remove exceptions that are not needed any more"
