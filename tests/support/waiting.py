"""Wait for asynchronous work."""

import time
from collections.abc import Callable


def until(condition: Callable[[], bool]) -> None:
    """Return when ``condition`` is true; fail after 300 seconds."""
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
