"""Work that nobody waits for: one thread, and timers for what is put off.

What is to be done is a closure; its failure is logged and never raised. The interpreter may end and the process may fork at any
time: what was put off is then done by whoever ends, or is left to the parent.
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

_LONGEST_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _PutOff:
    """Work that waits, how long it waits before its next try, and how many of them there are at most."""

    what: str
    work: Callable[[], None]
    seconds: float
    tries: int
    failed: int = 0

    def again(self) -> "_PutOff":
        """The same after a try in vain."""
        pause = min(_LONGEST_PAUSE_SECONDS, 2 * self.seconds)
        return replace(self, seconds=pause, tries=self.tries - 1, failed=self.failed + 1)


class BackgroundWork:
    """One thread for work that nobody waits for, work that is put off, and a way to wait for all of it.

    A forked child begins anew: what the parent has arranged is the parent's.
    """

    def __init__(self) -> None:
        self._closed = False
        self.reset_after_fork()
        renewed_after_fork(self)

    def reset_after_fork(self) -> None:
        """Without threads, locks and work of before, which after a fork nobody here would ever end."""
        self._delayed: dict[tuple[str, Hashable], _PutOff] = {}
        self._timers: dict[threading.Thread, tuple[str, Hashable]] = {}
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cm-delta-after-commit")
        self._pending: set[Future[None]] = set()
        self._lock = threading.Lock()

    def submit(self, what: str, work: Callable[[], None]) -> None:
        """Run ``work`` later; a failure is logged as a failure of ``what``."""
        try:
            with self._lock:
                future = self._executor.submit(guarded, what, work)
                self._pending.add(future)
        except RuntimeError:  # The interpreter is about to end: no thread takes anything on any more.
            guarded(what, work)
        else:
            future.add_done_callback(self._forget)

    def schedule(
        self, of: str, key: Hashable, what: str, work: Callable[[], None], *, seconds: float, tries: int = 1
    ) -> None:
        """Run ``work`` once within ``seconds`` for all calls of one ``key`` until then; a failure is logged as above.

        Args:
            of: what it belongs to, for :meth:`hurry`.
            tries: how often it is run at most until it succeeds, with pauses that double from ``seconds`` up to half a
                minute. A process that ends does not wait for such a pause, nor does it come back to the work.
        """
        if not threading.main_thread().is_alive():  # The interpreter is about to end: nothing happens later any more.
            guarded(what, work)
            return
        own = (of, key)
        with self._lock:
            waiting = self._delayed.get(own)
            if waiting is not None and not waiting.failed:
                return
            before = [timer for timer, its in self._timers.items() if its == own and timer.daemon]
            self._put_off(own, _PutOff(what=what, work=work, seconds=seconds, tries=tries))
            for timer in before:  # It waits for a next try, which is due sooner now.
                _cancel(timer)
                del self._timers[timer]

    def flush(self, of: str | None = None) -> None:
        """Do at once what was put off for ``of``, or for anything, and return when it is done or has failed."""
        with self._lock:
            found = {timer: own for timer, own in self._timers.items() if of is None or own[0] == of}
        for timer, own in found.items():
            _cancel(timer)
            self._run_delayed(own)
        for timer in found:
            timer.join()
        with self._lock:
            for timer in found:
                self._timers.pop(timer, None)

    def _put_off(self, own: tuple[str, Hashable], put_off: _PutOff) -> None:
        """Under the lock. What has failed once keeps no process alive while it waits, what was not tried yet does."""
        run = self._run_in_time if put_off.failed else self._run_delayed
        timer = threading.Timer(put_off.seconds, run, (own,))
        timer.daemon = put_off.failed > 0
        timer.start()  # Where no thread can be had, nothing is left behind that would wait for it.
        self._delayed[own] = put_off
        self._timers[timer] = own

    def _run_in_time(self, own: tuple[str, Hashable]) -> None:
        """Of a thread that the interpreter does not wait for: the work is done by one that it does wait for."""
        with self._lock:
            self._timers.pop(threading.current_thread(), None)
            if own in self._delayed and threading.main_thread().is_alive():
                worker = threading.Thread(target=self._run_delayed, args=(own,), name="cm-delta-again", daemon=False)
                try:
                    worker.start()
                except RuntimeError:  # Whoever commits next sees to it.
                    del self._delayed[own]
                else:
                    self._timers[worker] = own

    def _run_delayed(self, own: tuple[str, Hashable]) -> None:
        with self._lock:
            put_off = self._delayed.pop(own, None)
        if put_off is not None:
            self._try(own, put_off)
        with self._lock:
            self._timers.pop(threading.current_thread(), None)

    def _try(self, own: tuple[str, Hashable], put_off: _PutOff) -> None:
        try:
            put_off.work()
        except Exception:  # As of everything here.
            again = put_off.again()
            with self._lock:
                goes_on = again.tries > 0 and not self._closed
                if goes_on and own not in self._delayed:
                    with suppress(RuntimeError):  # No thread to wait in: whoever commits next sees to it.
                        self._put_off(own, again)
            if goes_on and put_off.failed:  # Said once already.
                _log.info("%s failed again; the next try is in %.1f s", put_off.what, again.seconds, exc_info=True)
            else:
                _log_failure(put_off.what)

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._pending.discard(future)

    def wait(self) -> None:
        """Return when everything submitted so far is done; what was put off is done at once."""
        self.flush()
        with self._lock:
            pending = set(self._pending)
        wait(pending)

    def close(self) -> None:
        """As :meth:`wait`, and what fails now is not tried again."""
        with self._lock:
            self._closed = True
        self.wait()
        self._executor.shutdown(wait=True)


def _cancel(thread: threading.Thread) -> None:
    if isinstance(thread, threading.Timer):
        thread.cancel()


def guarded(what: str, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:  # The commit stands whatever happens here; the reason goes to the log.
        _log_failure(what)


def _log_failure(what: str) -> None:
    _log.warning("%s failed; the commit is not affected", what, exc_info=True)


class _Renewed(typing.Protocol):
    def reset_after_fork(self) -> None: ...


_LIVING: "weakref.WeakSet[_Renewed]" = weakref.WeakSet()


def renewed_after_fork(one: _Renewed) -> None:
    """Have a forked child call ``one.reset_after_fork()``, since the threads that hold its locks are the parent's."""
    _LIVING.add(one)


def _after_fork_in_child() -> None:
    for one in tuple(_LIVING):
        one.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
