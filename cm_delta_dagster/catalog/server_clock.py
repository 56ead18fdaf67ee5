"""The clock of a server, as its clients know it."""

import time


def seconds_since_boot() -> float:
    """A monotonic clock that includes the time the machine is suspended, where the system has one."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class ServerClock:
    """The server's clock: read at times, extrapolated in between. Thread-safe."""

    def __init__(self) -> None:
        self._read: tuple[float, float] | None = None

    def now_ms(self) -> int | None:
        """Epoch milliseconds; None before the first reading."""
        if self._read is None:
            return None
        server_ms, at_seconds = self._read
        return int(server_ms + (seconds_since_boot() - at_seconds) * 1000)

    def set(self, server_ms: float, *, at_seconds: float) -> None:
        """Record a reading at ``at_seconds`` of :func:`seconds_since_boot`."""
        self._read = server_ms, at_seconds
