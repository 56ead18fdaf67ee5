"""Wait for asynchronous work."""

import time
from collections.abc import Callable


def until(
    condition: Callable[[], bool],
    *,
    seconds: float = 300,
    failure: Callable[[], str] | None = None,
    every: float = 0.005,
) -> None:
    """Return when ``condition`` is true.

    Args:
        seconds: when to fail. The bound is generous: it is reached only if what is expected never happens.
        failure: the message then.
        every: seconds between two calls of the condition.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, failure() if failure is not None else f"not true within {seconds} seconds"
        time.sleep(every)
