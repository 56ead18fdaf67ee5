"""Which tests run which lines, how long each test takes, and how much of each module the tests run."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutation.project import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCoverage:
    """Statements of a module, and how many of them the tests run."""

    statements: int
    covered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCoverage:
    """What a run of the tests showed.

    Attributes:
        seconds: processor time of each test that passed, by node id.
        tests_of_lines: the passed tests that run a line, by file and line, as positions in ``seconds``.
        modules: by file.
        failed: node ids of the tests that failed; no mutant is run with them.
    """

    __test__ = False  # pytest takes it for a test otherwise.

    seconds: Mapping[str, float]
    tests_of_lines: Mapping[str, Mapping[int, tuple[int, ...]]]
    modules: Mapping[str, ModuleCoverage]
    failed: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        lines = {file: {str(line): tests for line, tests in of.items()} for file, of in self.tests_of_lines.items()}
        modules = {file: asdict(module) for file, module in self.modules.items()}
        content = {"seconds": dict(self.seconds), "lines": lines, "modules": modules, "failed": self.failed}
        path.write_text(json.dumps(content))

    @classmethod
    def read(cls, path: Path) -> "TestCoverage":
        """Read what :meth:`write` wrote."""
        content = json.loads(path.read_text())
        return cls(
            seconds=content["seconds"],
            tests_of_lines={
                file: {int(line): tuple(tests) for line, tests in of.items()} for file, of in content["lines"].items()
            },
            modules={file: ModuleCoverage(**module) for file, module in content["modules"].items()},
            failed=tuple(content["failed"]),
        )


class _Recorder:
    """Names the running test to coverage, and keeps its time and result."""

    def __init__(self, measurement: coverage.Coverage) -> None:
        self._measurement = measurement
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self._measurement.switch_context(item.nodeid)
        began = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - began
            self._measurement.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:  # A skipped test shows nothing of a mutant either.
            self.failed.add(report.nodeid)


def measure(project: Project, *, arguments: tuple[str, ...] = ()) -> TestCoverage:
    """Run the tests of the project in this process, which has not imported its package.

    Raises:
        RuntimeError: the tests could not be collected.
    """
    measurement = coverage.Coverage(data_file=None, config_file=False, source=[str(project.root / project.package)])
    recorder = _Recorder(measurement)
    measurement.start()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *project.pytest_arguments, *arguments], plugins=[recorder])
    measurement.stop()
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code!r}; the tests of {project.root} cannot be run.")
    seconds = {name: taken for name, taken in recorder.seconds.items() if name not in recorder.failed}
    numbers = {name: at for at, name in enumerate(seconds)}
    data = measurement.get_data()
    lines: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
    modules = {}
    for file in project.package_files():
        path = str(project.root / file)
        for line, contexts in data.contexts_by_lineno(path).items():
            lines[file][line] = tuple(numbers[name] for name in contexts if name in numbers)
        _, statements, _, missing, _ = measurement.analysis2(path)
        modules[file] = ModuleCoverage(statements=len(statements), covered=len(statements) - len(missing))
    return TestCoverage(
        seconds=seconds,
        tests_of_lines=lines,
        modules=modules,
        failed=tuple(sorted(recorder.failed & set(recorder.seconds))),
    )
