"""A file lock with a timeout.

The lock is released when its process ends, and a forked child does not inherit it. ``flock`` either returns immediately or waits
without a limit, and polling would use the processor that the holder needs. Therefore a thread waits for the lock. If the caller
gives up, the thread keeps waiting and releases the lock when it gets it; a later caller for the same file reuses such a thread,
so that there are never more threads than there were concurrent callers.
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
    fcntl = None  # type: ignore[assignment]  # On Windows no lock is acquired.

_log = logging.getLogger(__name__)


@contextmanager
def file_lock(path: Path, *, seconds: float) -> Iterator[bool]:
    """Try to acquire the lock for the block, waiting at most ``seconds``. Yields whether the block holds the lock.

    Args:
        path: the lock file, which is created with its directory if it does not exist.
    """
    request = _Request(path)
    try:
        yield request.acquire(seconds)
    finally:
        request.release()


class _LockFile:
    """An open lock file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self.path = path
        self.descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        _OPEN.add(self)

    def lock(self, *, wait: bool) -> bool:
        """Lock the file. Returns whether it is locked."""
        if self.descriptor is None:
            return False
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Unlock and close the file. In a forked child it is already closed."""
        _OPEN.discard(self)
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is None:
            return
        with suppress(
            OSError
        ):  # A child that was just forked also has the file open, so that closing does not unlock it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


class _Waiter:
    """A thread that waits for the lock of one file. ``_CHANGED`` guards its state."""

    def __init__(self, file: _LockFile) -> None:
        self.file = file
        self.has_caller = True
        self.is_done = False
        self.has_lock = False
        self.thread = threading.Thread(target=self._wait, name="cm-delta-file-lock", daemon=True)

    def _wait(self) -> None:
        try:
            has_lock = self.file.lock(wait=True)
        except OSError as error:
            _log.debug("The lock file %s was not locked: %s", self.file.path, error)
            has_lock = False
        with _CHANGED:
            self.is_done, self.has_lock = True, has_lock and self.has_caller
            if not self.has_caller:
                _WITHOUT_CALLER[self.file.path].remove(self)
            if not self.has_lock:
                self.file.release()
            _CHANGED.notify_all()


class _Request:
    """The request of one block: nothing, the lock, or a thread that waits for it.

    Each step stores what must be released before it can be interrupted, because a signal may arrive at any time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: _LockFile | None = None
        self._waiter: _Waiter | None = None

    def acquire(self, seconds: float) -> bool:
        """Wait at most ``seconds``. Returns whether the lock is held; otherwise the request is released."""
        until = time.monotonic() + seconds
        try:
            granted = fcntl is not None and (self._try_lock() or self._wait_until(until))
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread could be started.
            _log.debug("The lock file %s was not locked: %s", self._path, error)
            granted = False
        if not granted:
            self.release()
        return granted

    def release(self) -> None:
        """Release the lock, or leave the waiting thread."""
        file, self._file = self._file, None
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            with _CHANGED:
                if waiter.thread.is_alive() and not waiter.is_done:
                    waiter.has_caller = False
                    _WITHOUT_CALLER.setdefault(self._path, []).append(waiter)
                    return
                file = waiter.file
        if file is not None:
            file.release()

    def _try_lock(self) -> bool:
        self._waiter = _reused_waiter(self._path)
        if self._waiter is not None:
            return False
        self._file = _LockFile(self._path)
        if self._file.lock(wait=False):
            return True
        self._waiter, self._file = _Waiter(self._file), None
        self._waiter.thread.start()
        return False

    def _wait_until(self, until: float) -> bool:
        assert self._waiter is not None
        with _CHANGED:
            while not self._waiter.is_done:
                remaining = until - time.monotonic()
                if remaining <= 0:
                    return False
                _CHANGED.wait(remaining)
            return self._waiter.has_lock


def _reused_waiter(path: Path) -> _Waiter | None:
    with _CHANGED:
        waiters = _WITHOUT_CALLER.get(path)
        if not waiters:
            return None
        waiter = waiters.pop()
        waiter.has_caller = True
        return waiter


def _reset_after_fork() -> None:
    """In a forked child: the threads and the locks belong to the parent."""
    global _CHANGED
    _CHANGED = threading.Condition()
    _WITHOUT_CALLER.clear()
    for file in tuple(_OPEN):
        descriptor, file.descriptor = file.descriptor, None
        if descriptor is not None:
            os.close(descriptor)
    _OPEN.clear()


_CHANGED = threading.Condition()
_WITHOUT_CALLER: dict[Path, list[_Waiter]] = {}
_OPEN: set[_LockFile] = set()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
