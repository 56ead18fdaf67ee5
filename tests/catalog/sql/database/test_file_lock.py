"""File locks: threads and child processes, which the contract of the commit lock does not cover."""

import multiprocessing
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.sql.database.file_lock import _WITHOUT_CALLER, file_lock
from tests.support.waiting import until

_SPAWN = multiprocessing.get_context("spawn")
_FORK = multiprocessing.get_context("fork")


def _hold(path: Path, sender: Any) -> None:
    with file_lock(path, seconds=30) as held:
        sender.send(held)
        signal.pause()


def waiting_threads() -> int:
    return sum(thread.name == "cm-delta-file-lock" for thread in threading.enumerate())


@pytest.mark.requirements("OCC-15")
@pytest.mark.slow
def test_timed_out_waits_do_not_accumulate_threads(tmp_path: Path) -> None:
    """The holder of the lock may be suspended for hours while other writers continue without it."""
    path = tmp_path / "locks" / "1.lock"
    receiver, sender = _SPAWN.Pipe(duplex=False)
    holder = _SPAWN.Process(target=_hold, args=(path, sender))
    holder.start()
    assert receiver.poll(300) and receiver.recv()
    before = waiting_threads()
    for _ in range(20):
        with file_lock(path, seconds=0.001) as held:
            assert not held
    assert waiting_threads() == before + 1
    holder.kill()
    holder.join()
    until(lambda: waiting_threads() == before)
    with file_lock(path, seconds=0) as held:
        assert held


@pytest.mark.requirements("OCC-15")
def test_a_new_caller_reuses_the_thread_of_a_timed_out_wait(tmp_path: Path) -> None:
    path = tmp_path / "1.lock"
    with file_lock(path, seconds=0) as first:
        with file_lock(path, seconds=0.001) as second:
            assert (first, second) == (True, False)
        done: list[bool] = []

        def wait() -> None:
            with file_lock(path, seconds=30) as held:
                done.append(held)

        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: not _WITHOUT_CALLER.get(path))
        assert not done
    waiting.join(300)
    assert done == [True]


class _InterruptError(BaseException):
    pass


@pytest.mark.requirements("OCC-15")
def test_an_interrupted_wait_leaves_no_thread_behind(tmp_path: Path) -> None:
    """By the user, or by a cancelled run."""
    path = tmp_path / "1.lock"

    def interrupt(*_: object) -> None:
        raise _InterruptError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with file_lock(path, seconds=0) as held:
            assert held
            with pytest.raises(_InterruptError):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                with file_lock(path, seconds=30):
                    raise AssertionError("the lock was not released")
    finally:
        signal.signal(signal.SIGALRM, before)
    until(lambda: waiting_threads() == 0)
    with file_lock(path, seconds=0) as held:
        assert held


def _killed_with_a_child(path: Path, sender: Any) -> None:
    with file_lock(path, seconds=30) as held:
        child = _FORK.Process(target=signal.pause)
        child.start()
        sender.send((held, child.pid))
        signal.pause()


@pytest.mark.requirements("OCC-15", "CM-C15")
@pytest.mark.slow
def test_a_forked_child_does_not_keep_the_lock_of_a_killed_parent(tmp_path: Path) -> None:
    path = tmp_path / "1.lock"
    receiver, sender = _SPAWN.Pipe(duplex=False)
    parent = _SPAWN.Process(target=_killed_with_a_child, args=(path, sender))
    parent.start()
    assert receiver.poll(300)
    held, child = receiver.recv()
    assert held
    parent.kill()
    parent.join()
    try:
        os.kill(child, 0)  # The child still runs.
        with file_lock(path, seconds=30) as mine:
            assert mine
    finally:
        os.kill(child, signal.SIGKILL)


def _in_child(path: Path, sender: Any) -> None:
    with file_lock(path, seconds=0.01) as early, file_lock(path.with_name("2.lock"), seconds=0) as other:
        sender.send((early, other))


@pytest.mark.requirements("OCC-15")
def test_a_child_forked_within_the_block_has_neither_lock_nor_threads(tmp_path: Path) -> None:
    """The lock and the waiting threads belong to its parent."""
    path = tmp_path / "1.lock"
    receiver, sender = _FORK.Pipe(duplex=False)
    with file_lock(path, seconds=0) as held:
        with file_lock(path, seconds=0.001):
            pass
        assert held
        child = _FORK.Process(target=_in_child, args=(path, sender))
        child.start()
        assert receiver.poll(300)
        assert receiver.recv() == (False, True)
        child.join()
        assert child.exitcode == 0
        with file_lock(path, seconds=0) as again:
            assert not again


@pytest.mark.requirements("OCC-15")
def test_an_unwritable_directory_means_no_lock_and_no_error(tmp_path: Path) -> None:
    """The lock is advisory."""
    (tmp_path / "file").write_text("")
    with file_lock(tmp_path / "file" / "1.lock", seconds=1) as held:
        assert not held
