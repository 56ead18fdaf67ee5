"""Exponential backoff between the attempts of a commit and of its requests to catalog and storage."""

import random
import time
from collections.abc import Iterator

from cm_delta_dagster.client.settings import ClientSettings

_MAX_DOUBLINGS = 40
"""Beyond that every sensible limit is reached, and a float must not overflow."""


def max_backoff_seconds(settings: ClientSettings, retry: int) -> float:
    """Upper bound of the wait before the ``retry``-th repetition (from 1); it doubles with each one."""
    return min(
        settings.retry_max_delay.total_seconds(),
        settings.retry_initial_delay.total_seconds() * 2.0 ** min(retry - 1, _MAX_DOUBLINGS),
    )


def back_off(settings: ClientSettings, retry: int) -> bool:
    """Sleep a random time up to :func:`max_backoff_seconds`, so that writers that conflicted do not conflict again.

    Returns whether any time has passed.
    """
    seconds = random.uniform(0, max_backoff_seconds(settings, retry))
    time.sleep(seconds)
    return seconds > 0


def attempts(settings: ClientSettings, count: int) -> Iterator[int]:
    """Yield the numbers 0 to ``count - 1`` of the attempts of one request, and sleep before each repetition.

    The first wait is up to four times that of a commit that conflicted, since a catalog or a store has to recover.
    """
    for attempt in range(count):
        if attempt:
            back_off(settings, attempt + 2)
        yield attempt


def attempts_without_jitter(settings: ClientSettings, count: int) -> Iterator[int]:
    """As :func:`attempts` for a request that competes with no other writer: each wait takes as long as its bound.

    The first bound is twice that of a commit that conflicted.
    """
    for attempt in range(count):
        if attempt:
            time.sleep(max_backoff_seconds(settings, attempt + 1))
        yield attempt
