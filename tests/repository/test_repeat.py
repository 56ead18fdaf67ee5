"""New tests are found by their names; tests pass while other work keeps all processors busy."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests import repeat as repeat_module
from tests.repeat import Selection, new_functions, new_tests, repeat
from tests.repository.requirements import ROOT
from tests.support.load import loaded_machine
from tests.support.server_process import is_running
from tests.support.waiting import until

BEFORE = "def test_a(): assert 1\ndef test_b(): ...\nclass TestC:\n    def test_d(self): ...\ndef helper(): ...\n"


@pytest.mark.parametrize(
    ("after", "new", "changed"),
    [
        (BEFORE, [], []),
        ("", [], []),
        (BEFORE.replace("assert 1", "assert 2  # and a comment"), [], ["test_a"]),
        (BEFORE.replace("test_b", "test_renamed"), ["test_renamed"], ["test_renamed"]),
        (BEFORE + "async def test_e(): ...\ndef other(): ...\n", ["test_e"], ["test_e"]),
        (
            BEFORE.replace("test_d(self): ...", "test_d(self): ...\n    def test_a(self): ..."),
            ["TestC::test_a"],
            ["TestC::test_a"],
        ),
        (BEFORE.replace("TestC", "TestD"), ["TestD::test_d"], ["TestD::test_d"]),
        (BEFORE.replace("def test_b", "# comment\n\ndef test_b"), [], []),
        (BEFORE.replace("def test_b(): ...", "@mark\ndef test_b(): ..."), [], ["test_b"]),
    ],
)
def test_a_function_is_new_by_its_name_and_changed_by_its_code(after: str, new: list[str], changed: list[str]) -> None:
    assert new_functions(BEFORE, after) == new
    assert new_functions(BEFORE, after, with_changed=True) == changed


def commit(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-qb", "main"), ("add", "."), ("commit", "-qm", "c")):
        subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def test_new_tests_are_found_in_test_files_and_contracts(tmp_path: Path) -> None:
    contract, runner = "tests/contracts/x_contract.py", "tests/test_x.py"
    commit(
        tmp_path,
        {contract: "def it_works(b): ...\n", runner: "from tests.contracts import x_contract\ndef test_a(): ...\n"},
    )
    (tmp_path / contract).write_text("def it_works(b): ...\ndef it_lasts(b): ...\n_PRIVATE = 1\ndef _helper(): ...\n")
    (tmp_path / runner).write_text(
        "from tests.contracts import x_contract\ndef test_a(): assert 1\ndef test_b(): ...\n"
    )
    (tmp_path / "tests/test_new.py").write_text("def test_c(): ...\n")
    (tmp_path / "tests/support.py").write_text("def test_of_nothing(): ...\n")
    new, contracts = new_tests("main", root=tmp_path)
    assert new.arguments == ["tests/test_new.py::test_c", f"{runner}::test_b"]
    assert contracts.arguments == ["-k", "it_lasts", runner]
    changed, _ = new_tests("main", root=tmp_path, with_changed=True)
    assert f"{runner}::test_a" in changed.tests


class Runs:
    """Stands for pytest: notes its arguments, and fails in one run."""

    def __init__(self, fails_at: int) -> None:
        self.commands: list[Sequence[str]] = []
        self.fails_at = fails_at

    def __call__(self, command: Sequence[str], **_: object) -> "subprocess.CompletedProcess[str]":
        self.commands.append(command)
        return subprocess.CompletedProcess(command, 1 if len(self.commands) == self.fails_at else 5)


@pytest.mark.parametrize(("fails_at", "code", "num_runs"), [(0, 0, 6), (4, 1, 4)])
def test_each_repetition_has_a_seed_of_its_own_and_the_first_failure_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails_at: int, code: int, num_runs: int
) -> None:
    runs = Runs(fails_at)
    monkeypatch.setattr(repeat_module.subprocess, "run", runs)
    selections = [Selection(tests=("tests/test_x.py::test_a",)), Selection(tests=("tests/test_y.py",), keyword="b")]
    assert repeat(selections, times=3) == code and len(runs.commands) == num_runs
    seeds = [next(word for word in command if word.startswith("--hypothesis-seed")) for command in runs.commands]
    assert seeds == [f"--hypothesis-seed={seed}" for seed in (1, 1, 2, 2, 3, 3)][:num_runs]
    assert ("--hypothesis-seed=2" in capsys.readouterr().err) is (code == 1)


def test_the_load_ends_with_the_process_that_made_it(tmp_path: Path) -> None:
    """Also if that process is killed."""
    program = "import subprocess, sys\nfrom tests.support import load\nbefore = subprocess.Popen\n"
    program += "def start(*words, **more):\n    made = before(*words, **more)\n    print(made.pid, flush=True)\n    return made\n"
    program += "subprocess.Popen = start\nwith load.loaded_machine(2):\n    sys.stdin.read()\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    burners = [int(process.stdout.readline()) for _ in range(2)]
    process.kill()
    process.communicate()
    until(lambda: not any(map(is_running, burners)))


CONCURRENT = (
    "tests/catalog/test_catalog_contract.py",
    "tests/catalog/sql/database/test_file_lock.py",
    "tests/catalog/sql/feed/test_entries.py",
    "tests/client/commits",
    "tests/client/post_commit",
    "tests/faults/test_crashes.py",
    "tests/faults/test_stopped_lease_holder.py",
    "tests/operations/events",
    "tests/operations/maintenance/test_authorization.py",
    "tests/spark/session/test_cancellation.py",
    "tests/storage",
)
"""Tests with threads, processes and servers."""


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "arguments", [("-m", "fast"), ("-m", "not exhaustive and not model_full", *CONCURRENT)], ids=["fast", "concurrent"]
)
def test_tests_pass_while_all_processors_are_busy(arguments: tuple[str, ...]) -> None:
    assert all((ROOT / path).exists() for path in CONCURRENT)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]
    with loaded_machine():
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=7000)
    assert done.returncode == 0, done.stdout[-6000:]
