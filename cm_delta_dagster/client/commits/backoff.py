"""Exponential backoff with jitter between the attempts of a commit."""

import random
import time

from cm_delta_dagster.client.settings import ClientSettings

_MAX_DOUBLINGS = 40
"""Beyond that every sensible limit is reached, and a float must not overflow."""


def max_backoff_seconds(settings: ClientSettings, retry: int) -> float:
    """Upper bound of the wait before the ``retry``-th repetition (from 1); it doubles with each one."""
    return min(settings.retry_max_seconds, settings.retry_initial_seconds * 2.0 ** min(retry - 1, _MAX_DOUBLINGS))


def back_off(settings: ClientSettings, retry: int) -> bool:
    """Sleep a random time up to :func:`max_backoff_seconds`, so that writers that conflicted do not conflict again.

    Returns whether any time has passed.
    """
    seconds = random.uniform(0, max_backoff_seconds(settings, retry))
    time.sleep(seconds)
    return seconds > 0
