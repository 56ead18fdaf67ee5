"""Waiting for what happens by itself."""

import time
from collections.abc import Callable


def until(condition: Callable[[], bool]) -> None:
    """Return once ``condition`` holds, for which there is as long as a busy machine may need."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
