"""Times as messages show them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cm_delta_dagster.protocol.predicates.timestamps import parse_timestamp, utc_text


@pytest.mark.parametrize(
    ("epoch_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_769_860_800_007, "2026-01-31T12:00:00.007Z"),
        (10**17, "100000000000000000 ms since 1970"),
        (-(10**17), "-100000000000000000 ms since 1970"),
    ],
)
def test_a_time_is_shown_as_iso_8601_in_utc(epoch_ms: int, text: str) -> None:
    assert utc_text(epoch_ms) == text


_YEAR_1000 = -30_610_224_000_000
_YEAR_10000 = 253_402_300_800_000


@given(st.integers(_YEAR_1000, _YEAR_10000 - 1))
def test_the_text_of_a_time_is_read_as_that_time(epoch_ms: int) -> None:
    assert parse_timestamp(utc_text(epoch_ms)) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=epoch_ms)
