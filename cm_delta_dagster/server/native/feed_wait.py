"""Waits for the next entry of the feed, without a thread for each reader that waits.

The server looks with increasing intervals. A reader that waits sees a new entry at most a second late.
"""

import asyncio
import time

from starlette.concurrency import run_in_threadpool

from cm_delta_dagster.catalog.event_feed import checked_position
from cm_delta_dagster.catalog.sql import SqlCatalog

_FIRST_POLL_S, _MAX_POLL_S = 0.02, 1.0


async def wait_for_event(catalog: SqlCatalog, *, after: int, seconds: float) -> bool:
    """Whether the feed got an entry above ``after`` within ``seconds``. Raises InvalidArgumentError."""
    checked_position(after, name="after")
    deadline = time.monotonic() + seconds
    backoff = _FIRST_POLL_S
    while not await run_in_threadpool(catalog.events.wait_for_events, after=after, seconds=0):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        await asyncio.sleep(min(backoff, left))
        backoff = min(2 * backoff, _MAX_POLL_S)
    return True
