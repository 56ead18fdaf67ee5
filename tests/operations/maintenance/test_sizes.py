"""Formatted sizes and durations."""

import pytest

from cm_delta_dagster.catalog.durations import span_text
from cm_delta_dagster.operations.maintenance.sizes import size_text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (10_648_581, "10.2 MiB"),
        (1024**3, "1.0 GiB"),
        (1024**5, "1.0 PiB"),
        (3000 * 1024**5, "3,000.0 PiB"),
    ],
)
def test_sizes_are_formatted_in_a_suitable_unit(num_bytes: int, text: str) -> None:
    assert size_text(num_bytes) == text


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (604_800_000, "7 days"),
        (86_400_000, "1 day"),
        (90_000_000, "25 hours"),
        (3_600_000, "1 hour"),
        (300_000, "5 minutes"),
        (1_500, "1.5 seconds"),
        (0, "0 seconds"),
    ],
)
def test_durations_are_formatted_as_a_whole_number_of_units(span_ms: int, text: str) -> None:
    assert span_text(span_ms) == text
