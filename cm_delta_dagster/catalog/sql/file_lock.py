"""A lock on a file that is waited for no longer than one wants to.

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
    claim = _Claim(path)
    try:
        yield claim.is_granted_within(seconds)
    finally:
        claim.give_up()


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
        self.thread = threading.Thread(target=self._wait, name="cm-delta-turn", daemon=True)

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


class _Claim:
    """What one block has of the lock: nothing, the lock, or a thread that waits for it.

    It is noted before anything can go wrong, since an interrupt of the user's may come at any time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: _LockFile | None = None
        self._waiter: _Waiter | None = None

    def is_granted_within(self, seconds: float) -> bool:
        """Wait so long at most; after that nothing is waited for any more."""
        until = time.monotonic() + seconds
        try:
            granted = fcntl is not None and (self._is_granted_at_once() or self._is_granted_before(until))
        except (OSError, RuntimeError) as error:  # Or there are no more threads to be had.
            _log.debug("No lock of %s: %s", self._path, error)
            granted = False
        if not granted:
            self.give_up()
        return granted

    def give_up(self) -> None:
        """Have nothing of it any more."""
        file, self._file = self._file, None
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            with _CHANGED:
                if waiter.thread.is_alive() and not waiter.is_over:
                    waiter.is_wanted = False
                    _LEFT.setdefault(self._path, []).append(waiter)
                    return
                file = waiter.file
        if file is not None:
            file.release()

    def _is_granted_at_once(self) -> bool:
        self._waiter = _taken_over(self._path)
        if self._waiter is not None:
            return False
        self._file = _LockFile(self._path)
        if self._file.lock(wait=False):
            return True
        self._waiter, self._file = _Waiter(self._file), None
        self._waiter.thread.start()
        return False

    def _is_granted_before(self, until: float) -> bool:
        assert self._waiter is not None
        with _CHANGED:
            while not self._waiter.is_over:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                _CHANGED.wait(left)
            return self._waiter.has_lock


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
