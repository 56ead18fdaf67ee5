"""``python -m tests.repeat BASE`` runs each new test twenty times while all processors are busy.

New are the test functions that the last common commit with BASE does not have, and new functions of ``tests/contracts``, which
the modules that use the contract run. Each repetition is a pytest of its own with another seed for Hypothesis. The first failure
ends the command; its seed is printed.

Options: ``--changed`` also runs tests whose code differs; ``--times N`` repeats N times; ``--list`` prints the tests only.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.affected import ROOT, changed_files, git
from tests.repository.module_graph import ModuleGraph
from tests.repository.module_source import module_name
from tests.support.load import loaded_machine
from tests.support.syntax_trees import parse

CONTRACTS = "tests/contracts/"
_NO_TESTS = 5
"""pytest's exit code when all tests are deselected, here because they are exhaustive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Arguments of pytest.

    Attributes:
        tests: ids of tests, or paths of test files.
        keyword: expression for ``-k``; empty for all tests.
    """

    tests: tuple[str, ...]
    keyword: str = ""

    @property
    def arguments(self) -> list[str]:
        return [*(["-k", self.keyword] if self.keyword else []), *self.tests]


def functions(source: str, *, name: str = r"test_\w+") -> Mapping[str, str]:
    """The code of each function with such a name, by its name with that of its class."""
    return dict(_functions(parse(source), "", re.compile(name)))


def _functions(node: ast.AST, prefix: str, name: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}::", name)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and name.fullmatch(child.name):
            yield prefix + child.name, ast.dump(child)


def new_functions(before: str, after: str, *, name: str = r"test_\w+", with_changed: bool = False) -> list[str]:
    """The functions of the source ``after`` that ``before`` does not have, or has with other code if that is asked for."""
    old = functions(before, name=name)
    return [
        key
        for key, code in functions(after, name=name).items()
        if key not in old or (with_changed and old[key] != code)
    ]


def new_tests(base: str, *, root: Path = ROOT, with_changed: bool = False) -> list[Selection]:
    """What pytest has to run so that each test that is new since ``base`` runs."""
    start = git(root, "merge-base", base, "HEAD").strip()
    known = set(git(root, "ls-tree", "-r", "--name-only", start, "tests").splitlines())
    tests: list[str] = []
    contracts: dict[str, list[str]] = {}
    for path in changed_files(base, root=root):
        if not path.startswith("tests/") or not path.endswith(".py") or not (root / path).exists():
            continue
        before = git(root, "show", f"{start}:{path}") if path in known else ""
        after = (root / path).read_text()
        if Path(path).name.startswith("test_"):
            tests += [f"{path}::{name}" for name in new_functions(before, after, with_changed=with_changed)]
        elif path.startswith(CONTRACTS):
            names = new_functions(before, after, name=r"[a-z]\w+", with_changed=with_changed)
            contracts |= {path: names} if names else {}
    found = [Selection(tests=tuple(tests))] if tests else []
    if contracts:
        graph = ModuleGraph(root=root)
        for path, names in contracts.items():
            users = [test.path for test in graph.tests if module_name(path) in graph.uses(test.name)]
            found.append(Selection(tests=tuple(users), keyword=" or ".join(names)))
    return [selection for selection in found if selection.tests]


def repeat(selections: Sequence[Selection], *, times: int) -> int:
    """Run the tests ``times`` times while all processors are busy. Returns the exit code of the first failure, or 0."""
    with loaded_machine():
        for seed in range(1, times + 1):
            for selection in selections:
                options = ["-q", "-x", "-m", "not exhaustive and not model_full", f"--hypothesis-seed={seed}"]
                command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, *selection.arguments]
                code = subprocess.run(command, cwd=ROOT, check=False).returncode
                if code not in (0, _NO_TESTS):
                    print(f"failed in repetition {seed} of {times}, with --hypothesis-seed={seed}", file=sys.stderr)
                    return code
    return 0


def main(arguments: Sequence[str]) -> int:
    """Carries out the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.repeat", description="Run new tests many times under load.")
    parser.add_argument("base", help="the revision since which a test is new")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--changed", action="store_true", help="also run tests whose code differs")
    parser.add_argument("--list", action="store_true", help="print the tests only")
    options = parser.parse_args(arguments)
    selections = new_tests(options.base, with_changed=options.changed)
    for selection in selections:
        print(*selection.arguments, sep="\n")
    return 0 if options.list else repeat(selections, times=options.times)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
