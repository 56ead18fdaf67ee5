"""Times of commits without an in-commit timestamp."""

import pytest

from cm_delta_dagster.protocol.log.commit_times import monotonic_times


@pytest.mark.requirements("TT-7")
def test_file_times_are_adjusted_to_increase() -> None:
    assert monotonic_times([10, 10, 5, 30, 29]) == (10, 11, 12, 30, 31)
    assert monotonic_times([]) == ()
