"""The parts of the checks: their order, their environment, and their recorded times."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.durations import BUDGETS_S, COLUMNS, RECORDED, Duration, main, over_budget, record, recorded
from tests.repository.requirements import ROOT

CHECKS = ROOT / ".ci"
PARTS = tuple(BUDGETS_S)


def times(part: str, *seconds: int) -> list[Duration]:
    return [Duration(date="2026-01-01", part=part, seconds=one, commit="c") for one in seconds]


def test_no_part_is_over_its_budget_twice_in_a_row() -> None:
    """On the recorded times: this test measures nothing."""
    assert over_budget(recorded()) == []


def test_the_recorded_times_are_complete() -> None:
    assert RECORDED.read_text().splitlines()[0] == ",".join(COLUMNS)
    for duration in recorded():
        assert duration.part in BUDGETS_S and duration.seconds > 0 and duration.commit
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", duration.date)
    dates = [duration.date for duration in recorded()]
    assert dates == sorted(dates)


@pytest.mark.parametrize(
    ("durations", "parts"),
    [
        ([], []),
        (times("fast", 433), []),
        (times("fast", 433, 432), []),
        (times("fast", 433, 434), ["fast"]),
        (times("fast", 433, 433, 300), []),
        (times("fast", 433, 300, 433), []),
        ([*times("spark", 1081), *times("fast", 433), *times("spark", 1081)], ["spark"]),
        ([*times("engines", 1801, 1801), *times("fast", 500, 500)], ["fast", "engines"]),
    ],
)
def test_a_part_that_is_a_fifth_over_its_budget_twice_in_a_row_is_found(
    durations: list[Duration], parts: list[str]
) -> None:
    assert [sentence.split()[0].removeprefix(".ci/") for sentence in over_budget(durations)] == parts


def test_a_time_is_recorded_only_when_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "durations.csv"
    path.write_text(",".join(COLUMNS) + "\n")
    assert main(["fast", "300"], path) == 0 and recorded(path) == []
    assert ".ci/fast: 300 seconds; its budget is 360 seconds" in capsys.readouterr().out
    record(*times("spark", 900), path=path)
    assert [duration.seconds for duration in recorded(path)] == [900]
    assert main(["fast"], path) == main(["slow", "3"], path) == main(["fast", "1.5"], path) == 2


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The scripts with parts, ``python3`` and ``pip`` that only write their arguments to ``log``."""
    shutil.copytree(CHECKS, tmp_path / ".ci")
    shutil.copy(ROOT / "README.md", tmp_path)
    (tmp_path / "bin").mkdir()
    fake_python = f'#!/bin/sh\necho "python3 $1 $2" >> {tmp_path}/log\nmkdir -p "$3/bin"\ntouch "$3/bin/activate"\n'
    scripts = {
        "bin/python3": fake_python,
        "bin/pip": f'#!/bin/sh\necho "pip $*" >> {tmp_path}/log\n',
        **{f".ci/{part}": f'#!/bin/sh\necho "{part} $*" >> {tmp_path}/log\nexit ${{{part}:-0}}\n' for part in PARTS},
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(checkout: Path, script: str, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    """Exit code of a script, and the log."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CM_DELTA_CHECKS_VENV", *PARTS)}
    path = f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(checkout / ".ci" / script), *arguments], env={**kept, "PATH": path, **environment}, capture_output=True
    )
    return done.returncode, (checkout / "log").read_text().splitlines()


INSTALLS = ["python3 -m venv", "pip install -e .[dev] pyspark==4.2.0"]


def test_all_parts_run_in_one_environment(checkout: Path) -> None:
    assert run(checkout, "run", "--record", CM_DELTA_CHECKS_VENV="/of/another/run") == (
        0,
        [*INSTALLS, "fast ", "spark --record", "engines --record"],
    )


def test_the_checks_end_at_the_first_part_that_fails(checkout: Path) -> None:
    assert run(checkout, "run", spark="3") == (3, [*INSTALLS, "fast ", "spark "])


def test_a_part_alone_makes_an_environment_and_in_another_script_it_uses_that_one(checkout: Path) -> None:
    log = f'#!/bin/sh\necho "$(basename $0) $*" >> {checkout}/log\n'
    for name in ("pytest", "python"):
        (checkout / "bin" / name).write_text(log)
        (checkout / "bin" / name).chmod(0o755)
    shutil.copy(CHECKS / "spark", checkout / ".ci")
    tests = "pytest -n 2 --dist loadfile --no-loadscope-reorder"
    code, alone = run(checkout, "spark", "--record")
    assert (code, alone[:-1]) == (0, [*INSTALLS, tests])
    assert re.fullmatch(r"python -m tests\.durations spark \d+ --record", alone[-1])
    (checkout / "log").unlink()
    (checkout / "venv/bin").mkdir(parents=True)
    (checkout / "venv/bin/activate").touch()
    code, within = run(checkout, "spark", CM_DELTA_CHECKS_VENV=str(checkout / "venv"))
    assert (code, within[:-1]) == (0, [tests])


def test_each_part_is_a_script_that_can_be_started() -> None:
    for name in ("run", *PARTS):
        assert os.access(CHECKS / name, os.X_OK)
        subprocess.run(["bash", "-n", CHECKS / name], check=True)
