"""Which tests are run against a mutant: those that run the changed statement, the most closely related and fastest first."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path, PurePosixPath

from tests.mutation.covered import TestCoverage
from tests.mutation.mutants import Mutant
from tests.mutation.project import Project
from tests.mutation.statements import Statement, statement_at, statements_of
from tests.support.syntax_trees import parse


@dataclass(slots=True)
class _Uses:
    """Where a name stands in the package: in statements of functions, and in statements that run at import."""

    lines: set[tuple[str, int]] = field(default_factory=set)
    definitions: set[str] = field(default_factory=set)


class Selection:
    """Selects tests of ``project``.

    Args:
        seconds: processor time, without a mutant, of the tests that are run against one mutant.
    """

    def __init__(self, project: Project, coverage: TestCoverage, *, seconds: float) -> None:
        self._coverage = coverage
        self._names = list(coverage.seconds)
        self._seconds = seconds
        self._statements = {file: _read(project.root / file) for file in project.package_files()}
        self._uses = _uses_of(project, self._statements)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Node ids in the order in which they are run; none if no test runs the statement."""
        statement = statement_at(self._statements[mutant.file], mutant.line)
        tests = self._running(mutant.file, range(statement.first, statement.last + 1))
        if statement.body is not None:
            tests |= self._running(mutant.file, range(statement.body[0], statement.body[1] + 1))
        if statement.runs_at_import:
            for file, line in self._lines_using(statement.names):
                tests |= self._running(file, [line])
        return self._within_time(_in_order(mutant.file, {name: self._coverage.seconds[name] for name in tests}))

    def _running(self, file: str, lines: Iterable[int]) -> set[str]:
        of_file = self._coverage.tests_of_lines.get(file, {})
        return {self._names[number] for line in lines for number in of_file.get(line, ())}

    def _lines_using(self, names: Iterable[str]) -> set[tuple[str, int]]:
        """Lines of functions that use the names, or what import-time statements define with them."""
        waiting, visited, lines = list(names), set(names), set()
        while waiting:
            uses = self._uses.get(waiting.pop(), _Uses())
            lines |= uses.lines
            waiting += uses.definitions - visited
            visited |= uses.definitions
        return lines

    def _within_time(self, names: Iterable[str]) -> list[str]:
        chosen, taken = [], 0.0
        for name in names:
            if chosen and taken + self._coverage.seconds[name] > self._seconds:
                continue
            chosen.append(name)
            taken += self._coverage.seconds[name]
        return chosen


def _read(path: Path) -> list[Statement]:
    return statements_of(parse(path.read_text()))


def _uses_of(project: Project, statements: Mapping[str, list[Statement]]) -> Mapping[str, _Uses]:
    uses: dict[str, _Uses] = defaultdict(_Uses)
    for file, of_file in statements.items():
        for node in ast.walk(parse((project.root / file).read_text())):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
            if name is None:
                continue
            statement = statement_at(of_file, node.lineno)
            if statement.runs_at_import:
                uses[name].definitions |= statement.names
            else:
                uses[name].lines.add((file, node.lineno))
    return uses


def _in_order(file: str, seconds: Mapping[str, float]) -> list[str]:
    """One case of each test function, then the next one of each: cases of one function mostly show the same.

    First the tests of the mutated module, then those of its package, then the others; of equals the fastest.
    """
    functions: dict[str, list[str]] = defaultdict(list)
    for name in sorted(seconds, key=lambda name: (seconds[name], name)):
        functions[name.partition("[")[0]].append(name)
    ordered = sorted(functions.values(), key=lambda cases: (_distance(file, cases[0]), seconds[cases[0]], cases[0]))
    return [name for round_ in zip_longest(*ordered) for name in round_ if name is not None]


def _distance(file: str, test: str) -> int:
    module, test_module = PurePosixPath(file), PurePosixPath(test.partition("::")[0])
    if test_module.name == f"test_{module.name}":
        return 0
    return 1 if test_module.parts[1:-1] == module.parts[1:-1] else 2
