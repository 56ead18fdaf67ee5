"""Timestamps of commits."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cm_delta_dagster.protocol.actions.actions import Metadata
from cm_delta_dagster.protocol.features.in_commit_timestamps import (
    next_in_commit_timestamp,
    with_enablement,
)


@pytest.mark.requirements("ICT-4")
@pytest.mark.parametrize(
    ("now", "previous", "expected"), [(100, None, 100), (100, 50, 100), (100, 100, 101), (100, 5000, 5001)]
)
def test_the_next_timestamp_is_now_or_just_after_the_previous(now: int, previous: int | None, expected: int) -> None:
    assert next_in_commit_timestamp(now, previous) == expected


@pytest.mark.requirements("ICT-5")
@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=2))
def test_timestamps_increase_even_if_the_clock_goes_back(clock: list[int]) -> None:
    times: list[int] = []
    for now in clock:
        times.append(next_in_commit_timestamp(now, times[-1] if times else None))
    assert all(earlier < later for earlier, later in itertools.pairwise(times))


_ENABLED = "delta.enableInCommitTimestamps"
_VERSION = "delta.inCommitTimestampEnablementVersion"
_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"
_SINCE = {_VERSION: "3", _TIMESTAMP: "30"}


def _metadata(**configuration: str) -> Metadata:
    return Metadata(id="i", schema_string="{}", configuration={"other": "1", **configuration})


@pytest.mark.requirements("ICT-6", "ICT-8", "ICT-13")
@pytest.mark.parametrize(
    ("before", "after", "version", "expected"),
    [
        ({}, {_ENABLED: "true"}, 7, {_ENABLED: "true", _VERSION: "7", _TIMESTAMP: "70"}),
        ({_ENABLED: "false"}, {_ENABLED: "true", **_SINCE}, 7, {_ENABLED: "true", _VERSION: "7", _TIMESTAMP: "70"}),
        ({}, {_ENABLED: "true"}, 0, {_ENABLED: "true"}),
        ({_ENABLED: "true"}, {_ENABLED: "true"}, 7, {_ENABLED: "true"}),
        ({_ENABLED: "true", **_SINCE}, {_ENABLED: "true", **_SINCE}, 7, {_ENABLED: "true", **_SINCE}),
        ({_ENABLED: "true", **_SINCE}, {_ENABLED: "false", **_SINCE}, 7, {_ENABLED: "false"}),
        ({}, {"more": "2"}, 7, {"more": "2"}),
    ],
)
def test_enablement_is_recorded_and_disablement_removes_the_record(
    before: dict[str, str], after: dict[str, str], version: int, expected: dict[str, str]
) -> None:
    written = with_enablement(
        _metadata(**after), before=_metadata(**before), version=version, timestamp_ms=10 * version
    )
    assert written == _metadata(**expected)
