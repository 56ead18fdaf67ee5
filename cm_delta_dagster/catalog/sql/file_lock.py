"""A lock on a file that is waited for no longer than one wants to. Room: catalog.sql.

It ends with its process, and is not held on by a forked child. The system knows how to try for such a lock and how to wait for
it for ever; trying again and again costs the processor, of all those who wait, what the one who has the lock needs. So a thread
waits. Where nobody wants the lock any more when it comes, the thread gives it back, and whoever wants it before that takes the
thread over, so that there are no more of them than were ever needed at once.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # Not on Windows: no lock is had there.

_log = logging.getLogger(__name__)


@contextmanager
def file_lock(path: Path, *, seconds: float) -> Iterator[bool]:
    """Hold the lock within the block, if it can be had within ``seconds``; tells whether it is held.

    Args:
        path: of the file, which is made, with its directory, if it is not there.
    """
    file = _locked(path, seconds)
    try:
        yield file is not None
    finally:
        if file is not None:
            file.release()


class _LockFile:
    """An open file with a lock, or to get one."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self.path = path
        self.descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        _OPEN.add(self)

    def lock(self, *, wait: bool) -> bool:
        """Whether it is locked now."""
        if self.descriptor is None:
            return False
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Unlocked and closed; in a forked child it was closed before."""
        _OPEN.discard(self)
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is None:
            return
        with suppress(OSError):  # Closing is not enough: a child that was just forked has the file open too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


class _Waiter:
    """A thread that waits for the lock of one file. All of its state is guarded by ``_CHANGED``."""

    def __init__(self, file: _LockFile) -> None:
        self.file = file
        self.is_wanted = True
        self.is_over = False
        self.has_lock = False
        threading.Thread(target=self._wait, name="cm-delta-turn", daemon=True).start()

    def _wait(self) -> None:
        try:
            has_lock = self.file.lock(wait=True)
        except OSError as error:
            _log.debug("No lock of %s: %s", self.file.path, error)
            has_lock = False
        with _CHANGED:
            self.is_over, self.has_lock = True, has_lock and self.is_wanted
            if not self.is_wanted:
                _LEFT[self.file.path].remove(self)
            if not self.has_lock:
                self.file.release()
            _CHANGED.notify_all()


def _locked(path: Path, seconds: float) -> _LockFile | None:
    if fcntl is None:
        return None
    until = time.monotonic() + seconds
    try:
        waiter = _taken_over(path)
        if waiter is None:
            file = _LockFile(path)
            if file.lock(wait=False):
                return file
            try:
                waiter = _Waiter(file)
            except RuntimeError:  # There are no more threads to be had.
                file.release()
                return None
    except OSError as error:
        _log.debug("No lock of %s: %s", path, error)
        return None
    with _CHANGED:
        while not waiter.is_over:
            left = until - time.monotonic()
            if left <= 0:
                waiter.is_wanted = False
                _LEFT.setdefault(path, []).append(waiter)
                return None
            _CHANGED.wait(left)
        return waiter.file if waiter.has_lock else None


def _taken_over(path: Path) -> _Waiter | None:
    with _CHANGED:
        left = _LEFT.get(path)
        if not left:
            return None
        waiter = left.pop()
        waiter.is_wanted = True
        return waiter


def _begin_anew() -> None:
    """In a forked child: the threads are the parent's, and so are the locks."""
    global _CHANGED
    _CHANGED = threading.Condition()
    _LEFT.clear()
    for file in tuple(_OPEN):
        descriptor, file.descriptor = file.descriptor, None
        if descriptor is not None:
            os.close(descriptor)
    _OPEN.clear()


_CHANGED = threading.Condition()
_LEFT: dict[Path, list[_Waiter]] = {}
_OPEN: set[_LockFile] = set()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
