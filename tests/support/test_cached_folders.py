"""Folders of the cache are made once, by one process, and never found half made."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cached_folders import PeerUnavailableError, cache_home, cached_folder, or_skip

ROOT = Path(__file__).parents[2]
MAKES = """
import os, signal, sys
from pathlib import Path
from tests.support.cached_folders import cached_folder
def make(folder):
    with open(sys.argv[1], "a") as calls:
        print(folder.name, file=calls)
    (folder / "content").write_text("made")
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
print(cached_folder("peer", make) / "content")
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CM_DELTA_REQUIRE_PEERS", raising=False)
    return cache_home()


def start(calls: Path, ends: str = "normally") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", MAKES, str(calls), ends], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_of_several_processes_one_makes_the_folder(tmp_path: Path, home: Path) -> None:
    processes = [start(tmp_path / "calls") for _ in range(3)]
    paths = {process.communicate()[0].strip() for process in processes}
    assert paths == {str(home / "peer" / "content")}
    assert (tmp_path / "calls").read_text().splitlines() == [".peer.unfinished"]


def test_what_a_killed_process_left_is_made_again(tmp_path: Path, home: Path) -> None:
    assert start(tmp_path / "calls", "killed").wait() == -signal.SIGKILL
    assert not (home / "peer").exists()
    (home / ".peer.unfinished" / "left").touch()
    folder = cached_folder("peer", lambda unfinished: (unfinished / "content").touch())
    assert {file.name for file in folder.iterdir()} == {"content", "complete"}
    assert not (home / ".peer.unfinished").exists()


def test_an_error_leaves_no_folder_and_the_next_call_tries_again(home: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        cached_folder("peer", lambda _: 1 / 0)
    assert {file.name for file in home.iterdir()} == {".peer.lock"}
    assert cached_folder("peer", lambda _: None) == home / "peer"


def test_what_is_unavailable_is_tried_once_and_skips_unless_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def make(folder: Path) -> None:
        calls.append(folder)
        raise PeerUnavailableError("no index")

    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match="no index"):
            or_skip(cached_folder, "peer", make)
    monkeypatch.setenv("CM_DELTA_REQUIRE_PEERS", "1")
    with pytest.raises(PeerUnavailableError, match="no index"):
        or_skip(cached_folder, "peer", make)
    assert len(calls) == 1
