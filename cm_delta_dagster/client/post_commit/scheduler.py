"""Asynchronous work of a client: one background thread, and timers for delayed work.

Failures of the work are logged and never raised. At interpreter exit the exiting thread does the delayed work. A forked child
starts without work; the parent keeps its own.
"""

import logging
import os
import threading
import typing
import weakref
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace

_log = logging.getLogger(__name__)

_MAX_BACKOFF_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Delayed:
    """Delayed work, the seconds until its next try, and the number of tries that are left."""

    what: str
    work: Callable[[], None]
    seconds: float
    tries: int
    failed: int = 0

    def after_failure(self) -> "_Delayed":
        """The same work with a doubled delay and one try less."""
        seconds = min(_MAX_BACKOFF_SECONDS, 2 * self.seconds)
        return replace(self, seconds=seconds, tries=self.tries - 1, failed=self.failed + 1)


class BackgroundWork:
    """One background thread, delayed work, and a way to wait for both. Thread-safe."""

    def __init__(self) -> None:
        self._closed = False
        self.reset_after_fork()
        register_fork_reset(self)

    def reset_after_fork(self) -> None:
        """Drop the threads, locks and work of the parent process."""
        self._delayed: dict[tuple[str, Hashable], _Delayed] = {}
        self._timers: dict[threading.Thread, tuple[str, Hashable]] = {}
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cm-delta-post-commit")
        self._pending: set[Future[None]] = set()
        self._lock = threading.Lock()

    def submit(self, what: str, work: Callable[[], None]) -> None:
        """Run ``work`` in the background thread; a failure is logged as a failure of ``what``."""
        try:
            with self._lock:
                future = self._executor.submit(log_failures, what, work)
                self._pending.add(future)
        except RuntimeError:  # The interpreter is shutting down and starts no threads.
            log_failures(what, work)
        else:
            future.add_done_callback(self._forget)

    def schedule(
        self, group: str, key: Hashable, what: str, work: Callable[[], None], *, seconds: float, tries: int = 1
    ) -> None:
        """Run ``work`` once after ``seconds`` for all calls with the same group and key until then; failures are logged.

        Args:
            group: the table id; :meth:`flush` selects work by it.
            tries: number of tries until it succeeds, with a backoff that doubles from ``seconds`` up to 30 seconds. A process
                that exits neither waits for the backoff nor retries.
        """
        if not threading.main_thread().is_alive():  # The interpreter is shutting down: no timer would run.
            log_failures(what, work)
            return
        full_key = (group, key)
        with self._lock:
            waiting = self._delayed.get(full_key)
            if waiting is not None and not waiting.failed:
                return
            retries = [timer for timer, its in self._timers.items() if its == full_key and timer.daemon]
            self._start_timer(full_key, _Delayed(what=what, work=work, seconds=seconds, tries=tries))
            for timer in retries:  # The new timer, which is due earlier, replaces the one of the next retry.
                _cancel(timer)
                del self._timers[timer]

    def flush(self, group: str | None = None) -> None:
        """Do the delayed work of ``group``, or all of it, now; return when it is done or has failed."""
        with self._lock:
            keys = {timer: key for timer, key in self._timers.items() if group is None or key[0] == group}
        for timer, key in keys.items():
            _cancel(timer)
            self._run_delayed(key)
        for timer in keys:
            timer.join()
        with self._lock:
            for timer in keys:
                self._timers.pop(timer, None)

    def _start_timer(self, key: tuple[str, Hashable], delayed: _Delayed) -> None:
        """Start a timer; the process waits for a first try on exit, not for a retry. The caller holds the lock."""
        run = self._run_retry if delayed.failed else self._run_delayed
        timer = threading.Timer(delayed.seconds, run, (key,))
        timer.daemon = delayed.failed > 0
        timer.start()  # Raises where no thread can be started; then nothing is recorded below.
        self._delayed[key] = delayed
        self._timers[timer] = key

    def _run_retry(self, key: tuple[str, Hashable]) -> None:
        """Run in a daemon timer: hand the work to a thread that the interpreter waits for on exit."""
        with self._lock:
            self._timers.pop(threading.current_thread(), None)
            if key in self._delayed and threading.main_thread().is_alive():
                worker = threading.Thread(target=self._run_delayed, args=(key,), name="cm-delta-retry", daemon=False)
                try:
                    worker.start()
                except RuntimeError:  # No thread can be started; the next commit repeats the work.
                    del self._delayed[key]
                else:
                    self._timers[worker] = key

    def _run_delayed(self, key: tuple[str, Hashable]) -> None:
        with self._lock:
            delayed = self._delayed.pop(key, None)
        if delayed is not None:
            self._try(key, delayed)
        with self._lock:
            self._timers.pop(threading.current_thread(), None)

    def _try(self, key: tuple[str, Hashable], delayed: _Delayed) -> None:
        try:
            delayed.work()
        except Exception:  # Logged, as every failure of asynchronous work.
            retry = delayed.after_failure()
            with self._lock:
                retries = retry.tries > 0 and not self._closed
                if retries and key not in self._delayed:
                    with suppress(RuntimeError):  # No thread can be started; the next commit repeats the work.
                        self._start_timer(key, retry)
            if retries and delayed.failed:  # The first failure was logged as a warning.
                _log.info("%s failed again; the next try is in %.1f s", delayed.what, retry.seconds, exc_info=True)
            else:
                _log_failure(delayed.what)

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._pending.discard(future)

    def wait(self) -> None:
        """Do delayed work now and return when it and all submitted work is done."""
        self.flush()
        with self._lock:
            pending = set(self._pending)
        wait(pending)

    def close(self) -> None:
        """As :meth:`wait`, without retries of work that fails."""
        with self._lock:
            self._closed = True
        self.wait()
        self._executor.shutdown(wait=True)


def _cancel(thread: threading.Thread) -> None:
    if isinstance(thread, threading.Timer):
        thread.cancel()


def log_failures(what: str, work: Callable[[], None]) -> None:
    """Run ``work``; an exception is logged as a failure of ``what`` and not raised."""
    try:
        work()
    except Exception:  # The commit is ratified whatever happens here.
        _log_failure(what)


def _log_failure(what: str) -> None:
    _log.warning("%s failed; the commit is not affected", what, exc_info=True)


class _ForkResettable(typing.Protocol):
    def reset_after_fork(self) -> None: ...


_INSTANCES: "weakref.WeakSet[_ForkResettable]" = weakref.WeakSet()


def register_fork_reset(instance: _ForkResettable) -> None:
    """Have a forked child call ``instance.reset_after_fork()``: threads that hold its locks exist in the parent only."""
    _INSTANCES.add(instance)


def _after_fork_in_child() -> None:
    for instance in tuple(_INSTANCES):
        instance.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
