"""How many requests of one caller a process takes in a minute."""

import threading
import time
from collections.abc import Callable

from cm_delta_dagster.server.request_errors import TooManyRequestsError

_MINUTE = 60.0


class RateLimit:
    """Counts the requests of each caller since the start of its minute. Thread-safe.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, max_per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._max, self._clock = max_per_minute, clock
        self._lock = threading.Lock()
        self._minutes: dict[str, tuple[float, int]] = {}

    def count(self, caller: str) -> None:
        """Count a request of a caller, e.g. ``token 3f1c9a0b7d2e``. Raises TooManyRequestsError."""
        now = self._clock()
        with self._lock:
            began, count = self._minutes.get(caller, (now, 0))
            if now - began >= _MINUTE:
                began, count = now, 0
            self._minutes[caller] = began, count + 1
        if count >= self._max:
            raise TooManyRequestsError(
                f"The {caller} has made {self._max} requests in a minute, which is the limit. Nothing was changed. "
                f"Retry in {_MINUTE - (now - began):.0f} seconds."
            )
