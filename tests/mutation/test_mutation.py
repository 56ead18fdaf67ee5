"""The mutants of a planted module, of which it is known which ones its tests notice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="mutants need the extra `mutation`")

from cosmic_ray.mutating import mutate_code

from tests.mutation.mutants import difference, mutants_of, mutated_code, sample_of
from tests.mutation.operators import OPERATORS
from tests.mutation.report import records_of
from tests.mutation.runner import Outcome
from tests.mutation.statements import statement_at, statements_of
from tests.support.syntax_trees import parse

ROOT = Path(__file__).parents[2]

MODULE = '''\
"""A planted module."""

from dataclasses import dataclass
from typing import TypeAlias

Number: TypeAlias = int | float
LIMIT = 10
UNTESTED = 3


@dataclass(frozen=True)
class Bounds:
    low: int = 0


def require_positive(value: int | None) -> None:
    if value is None or value <= 0:
        raise ValueError(f"{value} is below {0 + 1}")


def within(value: int) -> bool:
    require_positive(value)
    return value < LIMIT


def count_down(value: int) -> int:
    while value > Bounds().low:
        value -= 1
    return value


def never_run(value: int) -> int:
    return value + 1
'''

TESTS = """\
import pytest

from planted.module import count_down, require_positive, within


def test_require_positive() -> None:
    with pytest.raises(ValueError):
        require_positive(0)
    with pytest.raises(ValueError):
        require_positive(None)
    require_positive(1)


@pytest.mark.parametrize("value", [1, 5])
def test_within(value: int) -> None:
    assert within(value)


def test_count_down() -> None:
    assert count_down(3) == 0
"""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    for directory in ("planted", "checks"):
        (tmp_path / directory).mkdir()
    (tmp_path / "planted" / "__init__.py").write_text("")
    (tmp_path / "planted" / "module.py").write_text(MODULE)
    (tmp_path / "checks" / "test_module.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = --import-mode=importlib\n")
    return tmp_path


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_makes_the_changes_of_its_examples(name: str) -> None:
    for example in OPERATORS[name].examples():
        if example.pre_mutation_code != example.post_mutation_code:
            mutated = mutate_code(example.pre_mutation_code, OPERATORS[name], example.occurrence)
            assert mutated.split() == example.post_mutation_code.split()


def test_only_valid_python_is_in_a_sample(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("def f(*, a):\n    return {**a, 'b': 2 ** len(a)}\n")
    mutants = mutants_of(tmp_path, "module.py")
    powers = [
        one for one in sample_of(tmp_path, mutants, 1000, 1) if one.operator.endswith(("Pow_Mul", "Mul_FloorDiv"))
    ]
    assert [(one.line, one.column) for one in powers] == [(2, 24)]
    (tmp_path / "assigned.py").write_text("def f(a):\n    if b := a:\n        return b\n    return 0\n")
    sample = sample_of(tmp_path, mutants_of(tmp_path, "assigned.py"), 1000, 1)
    assert sample and all(mutated_code(tmp_path, one) for one in sample)


def test_types_and_texts_of_errors_are_not_changed(planted: Path) -> None:
    changes = [difference(planted, mutant) for mutant in mutants_of(planted, "planted/module.py")]
    assert not [change for change in changes if "TypeAlias" in change or "frozen" in change or "is below" in change]


def test_a_sample_depends_only_on_its_seed(planted: Path) -> None:
    mutants = mutants_of(planted, "planted/module.py")
    assert sample_of(planted, mutants, 5, 1) == sample_of(planted, mutants[::-1], 5, 1)
    assert sample_of(planted, mutants, 5, 1) != sample_of(planted, mutants, 5, 2)
    assert sorted(sample_of(planted, mutants, 1000, 1)) == mutants


def test_a_position_belongs_to_the_innermost_statement() -> None:
    statements = statements_of(parse(MODULE))
    header, limit = statement_at(statements, 17), statement_at(statements, 7)
    assert (header.first, header.last, header.runs_at_import) == (17, 17, False)
    assert (limit.first, limit.names, limit.runs_at_import) == (7, {"LIMIT"}, True)
    assert statement_at(statements, 13).names == {"low", "Bounds"}
    assert statement_at(statements, 16).body == (17, 18)


def test_the_survivors_of_a_planted_module_are_found(planted: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    command = [
        sys.executable,
        "-m",
        "tests.mutation",
        "--root",
        str(planted),
        "--package",
        "planted",
        "--tests",
        "checks",
    ]
    ended = subprocess.run(
        [*command, "--results", str(results), "--goal", "0.9", "--more-seconds", "1"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
    )
    records = records_of(results)
    survivors = {record.change: record.outcome for record in records if not record.outcome.killed}
    assert survivors == {
        "LIMIT = 10  ->  LIMIT = 11": Outcome.PASSED,
        "LIMIT = 10  ->  LIMIT = 9": Outcome.PASSED,
        "UNTESTED = 3  ->  UNTESTED = 4": Outcome.NOT_COVERED,
        "UNTESTED = 3  ->  UNTESTED = 2": Outcome.NOT_COVERED,
        "return value < LIMIT  ->  return value <= LIMIT": Outcome.PASSED,
        "require_positive(value)  ->  pass": Outcome.PASSED,
        "return value + 1  ->  return value - 1": Outcome.NOT_COVERED,
        "return value + 1  ->  return value + 2": Outcome.NOT_COVERED,
        "return value + 1  ->  return value + 0": Outcome.NOT_COVERED,
    }, ended.stdout + ended.stderr
    assert {record.outcome for record in records if "value -= 1  ->  value -= 0" in record.change} == {
        Outcome.TIMED_OUT
    }
    assert [record.by for record in records if "while value >= " in record.change] == [
        "checks/test_module.py::test_count_down"
    ]
    assert ended.returncode == 1 and "Score: " in ended.stdout and "planted " in ended.stdout


@pytest.mark.exhaustive
@pytest.mark.timeout(4 * 60 * 60)
def test_the_fast_tests_notice_most_mutants(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.mutation", "--sample", "1000", "--seed", "1", "--goal", "0.85"]
    with (tmp_path / "report").open("w") as output:
        code = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT).returncode
    print((tmp_path / "report").read_text())
    assert code == 0
