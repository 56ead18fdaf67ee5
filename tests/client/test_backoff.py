"""The waits between the attempts of a request."""

import threading
import time
from datetime import timedelta

import pytest

from cm_delta_dagster.client.backoff import attempts, attempts_without_jitter
from cm_delta_dagster.client.settings import ClientSettings

SETTINGS = ClientSettings(retry_initial_delay=timedelta(seconds=0.5), retry_max_delay=timedelta(seconds=5.0))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each wait of this thread, none of which takes any time. Threads that other tests left wait as they did."""
    waited: list[float] = []
    here, sleep = threading.get_ident(), time.sleep
    monkeypatch.setattr(
        time, "sleep", lambda seconds: waited.append(seconds) if threading.get_ident() == here else sleep(seconds)
    )
    return waited


def test_a_request_is_repeated_after_random_waits_with_doubled_bounds(waits: list[float]) -> None:
    for _ in range(50):
        assert list(attempts(SETTINGS, 4)) == [0, 1, 2, 3]
    bounds = (2.0, 4.0, 5.0)
    for number, bound in enumerate(bounds):
        own = waits[number :: len(bounds)]
        assert len(own) == 50 and 0 <= min(own) < max(own) <= bound
        assert max(own) > bound / 2, "50 random waits in a row are in the lower half"


def test_waits_without_jitter_are_as_long_as_their_bounds(waits: list[float]) -> None:
    assert list(attempts_without_jitter(SETTINGS, 5)) == [0, 1, 2, 3, 4]
    assert waits == [1.0, 2.0, 4.0, 5.0]


def test_there_is_no_wait_before_the_first_attempt_and_after_the_last(waits: list[float]) -> None:
    for _ in attempts(SETTINGS, 3):
        break
    assert list(attempts(SETTINGS, 1)) == list(attempts_without_jitter(SETTINGS, 1)) == [0]
    assert waits == []
