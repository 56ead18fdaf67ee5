"""Runs tests against a mutant, in a process of its own that imports the changed module in place of the original.

A process is a fork of this one, which has imported everything but the project, and so starts at once. A mutant that does not end
is found by the processor time of its tests, which the load of the machine does not change.
"""

import contextlib
import importlib
import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

import pytest

from tests.mutation.covered import TestCoverage, measure
from tests.mutation.mutants import Mutant, mutated_code
from tests.mutation.project import Project

_TIMES = 10
"""A test may take this many times the processor time that it takes without a mutant, and some seconds more."""

_SECONDS_TO_COLLECT = 60
_IDLE_SECONDS = 60
"""A process that waited for so long without using the processor waits for an event that the mutant prevents."""

_BROKEN = 99
"""Exit code of a process in which something other than the tests failed."""

_MAX_BYTES = 16 * 1024**3
_QUIET = ("-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-W", "ignore::pytest.PytestAssertRewriteWarning")


class Outcome(StrEnum):
    """What the tests did."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_COLLECTED = "not collected"
    TIMED_OUT = "timed out"
    NOT_COVERED = "not covered"

    @property
    def killed(self) -> bool:
        """True if the tests noticed the mutant."""
        return self not in (Outcome.PASSED, Outcome.NOT_COVERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """``by``: the test that failed, if one did."""

    outcome: Outcome
    by: str | None = None


class Runner:
    """Runs tests of ``project``. The current directory must be its root, and its package must not be imported.

    Args:
        more_seconds: how many seconds of the processor more than without a mutant a test may take.
    """

    def __init__(self, project: Project, *, more_seconds: float = 10) -> None:
        self._project = project
        self._more_seconds = more_seconds
        self._work = Path(tempfile.mkdtemp(prefix="mutation"))
        self._failed = self._work / "failed"
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(self._work / "hypothesis")  # Failures are not kept.

    def close(self) -> None:
        """Delete the temporary files."""
        shutil.rmtree(self._work, ignore_errors=True)

    def preload(self) -> None:
        """Import what the tests import from other projects."""

        def names() -> Any:
            pytest.main([*_QUIET, "--collect-only", *self._project.pytest_arguments])
            return [name for name, module in sys.modules.items() if self._is_foreign(name, module)]

        for name in self._answer_of_fork(names):
            with contextlib.suppress(Exception):
                importlib.import_module(name)

    def measure(self, path: Path) -> TestCoverage:
        """Run all tests once, and write to ``path`` what they run."""

        def written() -> Any:
            measure(self._project, arguments=(*_QUIET, f"--basetemp={self._work / 'measured'}")).write(path)

        self._answer_of_fork(written)
        return TestCoverage.read(path)

    def run(self, mutant: Mutant | None, tests: Sequence[str], seconds: Mapping[str, float]) -> Result:
        """Run the tests, in order and up to the first failure, against the mutant, or without one.

        Args:
            seconds: processor time of each test without a mutant.
        """
        self._failed.write_text("")
        child = os.fork()
        if child == 0:
            self._be_child(lambda: self._run_tests(mutant, tests, seconds))
        status = self._status_of(child)
        shutil.rmtree(self._work / "run", ignore_errors=True)
        failed = self._failed.read_text().splitlines()
        return Result(outcome=_outcome(status), by=failed[0] if failed else None)

    def output(self) -> str:
        """What the last run printed."""
        return (self._work / "output").read_text(errors="replace")

    def _run_tests(self, mutant: Mutant | None, tests: Sequence[str], seconds: Mapping[str, float]) -> int:
        if mutant is not None:
            code = mutated_code(self._project.root, mutant)
            sys.meta_path.insert(0, _MutantFinder(self._project.root, mutant.file, code))
        _limit_cpu(_SECONDS_TO_COLLECT)
        files = list(dict.fromkeys(name.partition("::")[0] for name in tests))
        arguments = [*_QUIET, "-x", f"--basetemp={self._work / 'run'}", *files]
        limits = {name: self._more_seconds + _TIMES * seconds[name] for name in tests}
        return int(pytest.main(arguments, plugins=[_Chosen(limits, self._failed)]))

    def _is_foreign(self, name: str, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        ours = (self._project.package, self._project.test_package)
        return file is not None and name.partition(".")[0] not in ours and self._project.root not in Path(file).parents

    def _answer_of_fork(self, action: Callable[[], Any]) -> Any:
        """The value that the action returns in a fork. Raises RuntimeError."""
        answer = self._work / "answer"
        child = os.fork()
        if child == 0:

            def write() -> int:
                answer.write_text(json.dumps(action()))
                return 0

            self._be_child(write)
        if self._status_of(child) != 0:
            raise self._broken()
        return json.loads(answer.read_text())

    def _status_of(self, child: int) -> int:
        """The exit code of a child, negative for a signal. Raises RuntimeError."""
        status = _wait(child)
        if status == _BROKEN:
            raise self._broken()
        return status

    def _broken(self) -> RuntimeError:
        return RuntimeError(f"The tests could not be run: {self.output()[-4000:]}")

    def _be_child(self, action: Callable[[], int]) -> NoReturn:
        """Run the action in a process group and with an output of its own, and end the process."""
        code = _BROKEN
        try:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
            output = os.open(self._work / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = action()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


class _Chosen:
    """Keeps the chosen tests, limits their processor time, and writes the ids of those that fail."""

    def __init__(self, limits: Mapping[str, float], failed: Path) -> None:
        self._order = {name: at for at, name in enumerate(limits)}
        self._limits = limits
        self._failed = failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._order]
        if len(chosen) != len(self._order):
            raise pytest.UsageError("The mutant removed a test case.")
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        _limit_cpu(self._limits[item.nodeid])
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self._failed.open("a") as file:
                file.write(f"{report.nodeid}\n")


class _MutantFinder(MetaPathFinder):
    def __init__(self, root: Path, file: str, code: CodeType) -> None:
        parts = Path(file).with_suffix("").parts
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self._path = str(root / file)
        self._code = code

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return spec_from_file_location(fullname, self._path, loader=_MutantLoader(fullname, self._path, self._code))


class _MutantLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, code: CodeType) -> None:
        super().__init__(fullname, path)
        self._mutated = code

    def get_code(self, fullname: str) -> CodeType:
        return self._mutated


def _limit_cpu(seconds: float) -> None:
    """Let this process end once it has used so many more seconds of the processor."""
    limit = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _wait(child: int) -> int:
    """The exit code of a child, negative for a signal. Its process group is ended."""
    used, idle_checks, polls = -1, 0, 0
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.01)
        polls += 1
        if polls % 100 == 0:  # About each second.
            previous, used = used, _cpu_of_group(child)
            idle_checks = idle_checks + 1 if used == previous else 0
            if idle_checks > _IDLE_SECONDS:
                os.kill(child, signal.SIGXCPU)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def _cpu_of_group(group: int) -> int:
    """Clock ticks that the living processes of a process group have used."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                ticks += int(fields[11]) + int(fields[12])
    return ticks


def _outcome(status: int) -> Outcome:
    match status:
        case pytest.ExitCode.OK:
            return Outcome.PASSED
        case pytest.ExitCode.TESTS_FAILED:
            return Outcome.FAILED
        case status if status < 0:
            return Outcome.TIMED_OUT
    return Outcome.NOT_COLLECTED
