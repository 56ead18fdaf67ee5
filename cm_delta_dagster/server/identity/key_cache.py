"""The keys of an identity provider in one process: read when they are first needed, again after a time, and for an unknown key.

While they cannot be read, those that were read last are used until a limit. One request at a time reads the keys, at most every
:data:`MIN_SECONDS_BETWEEN_READS`. Others go on with the keys of the process if these are recent enough. If not, or if a request has
a key that the process does not know, it waits for the one that reads. Few may wait, and more are refused, because requests with
other tokens need the threads of the server.
"""

import logging
import threading
import time
from collections.abc import Callable

import jwt

from cm_delta_dagster.errors import CatalogUnavailableError
from cm_delta_dagster.server.identity.key_set import KeySet, KeySetError, key_set, read_keys
from cm_delta_dagster.server.identity.provider import IdentityProvider

_LOG = logging.getLogger(__name__)

MIN_SECONDS_BETWEEN_READS = 30.0
"""However many requests have a key that is not known, or fail because the keys cannot be read."""
_MOST_WAITING = 4
"""Requests that wait for keys which another one reads."""


class KeyCache:
    """The keys. Thread-safe.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, provider: IdentityProvider, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._provider, self._clock = provider, clock
        self._lock = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)
        self._state: tuple[KeySet, float] | None = None
        self._tried = float("-inf")

    def key(self, identity: str, algorithm: str) -> jwt.PyJWK | None:
        """The key with this id for the algorithm; None if the provider has none.

        Raises CatalogUnavailableError if the keys have not been readable for longer than they may be used, or too many requests
        wait for them.
        """
        provider = self._provider
        if self._age() > provider.jwks_refresh_seconds:
            self._read_again(waits=self._age() > provider.jwks_max_age_seconds)
        key = self._known().get((identity, algorithm))
        if key is None:
            self._read_again(waits=True)
            key = self._known().get((identity, algorithm))
        return key

    def _age(self) -> float:
        """Seconds since the keys were read last."""
        state = self._state
        return float("inf") if state is None else self._clock() - state[1]

    def _known(self) -> KeySet:
        state = self._state
        if state is None or self._age() > self._provider.jwks_max_age_seconds:
            raise _unavailable(
                "it has not been able to read the keys of the provider", "the log of the server has the cause"
            )
        return state[0]

    def _read_again(self, *, waits: bool) -> None:
        """Read the keys, unless that has just been tried. If another thread reads them, wait for it or return.

        Raises CatalogUnavailableError if too many wait.
        """
        if not self._lock.acquire(blocking=False):
            if waits:
                self._wait()
            return
        try:
            now = self._clock()
            if now - self._tried < MIN_SECONDS_BETWEEN_READS:
                return
            self._tried = now
            self._state = (key_set(read_keys(self._provider.jwks), self._provider.algorithms), now)
        except KeySetError as error:
            _LOG.warning("The keys of the identity provider cannot be read from %s: %s", self._provider.jwks, error)
        finally:
            self._lock.release()

    def _wait(self) -> None:
        """Wait for the thread that reads the keys."""
        if not self._waiting.acquire(blocking=False):
            raise _unavailable("the keys of the provider are being read", "other requests wait for them")
        try:
            with self._lock:
                pass
        finally:
            self._waiting.release()


def _unavailable(cause: str, more: str) -> CatalogUnavailableError:
    return CatalogUnavailableError(
        f"The server cannot verify tokens of the identity provider: {cause}. Nothing was changed. Retry later; {more}."
    )
