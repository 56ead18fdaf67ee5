"""Commit times."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.protocol.commit_timestamps import monotonic_times, next_in_commit_timestamp, version_at


@pytest.mark.parametrize(
    ("now", "previous", "expected"), [(100, None, 100), (100, 50, 100), (100, 100, 101), (100, 5000, 5001)]
)
def test_the_next_timestamp_is_now_or_just_after_the_previous(now: int, previous: int | None, expected: int) -> None:
    """ICT-4."""
    assert next_in_commit_timestamp(now, previous) == expected


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=2))
def test_timestamps_grow_strictly_whatever_the_clock_does(clock: list[int]) -> None:
    """ICT-5."""
    times: list[int] = []
    for now in clock:
        times.append(next_in_commit_timestamp(now, times[-1] if times else None))
    assert all(earlier < later for earlier, later in itertools.pairwise(times))


def test_file_times_are_made_to_grow() -> None:
    """TT-7."""
    assert monotonic_times([10, 10, 5, 30, 29]) == (10, 11, 12, 30, 31)


@pytest.mark.parametrize(("timestamp", "version"), [(9, None), (10, 3), (19, 3), (20, 4), (25, 4), (30, 5), (99, 5)])
def test_a_timestamp_finds_the_newest_version_not_after_it(timestamp: int, version: int | None) -> None:
    """TT-2."""
    assert version_at([(3, 10), (4, 20), (5, 30)], timestamp) == version
