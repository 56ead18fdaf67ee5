"""The months of the demo are the twelve complete ones before today, whatever the date is."""

import datetime

import pytest

from definitions.defs.months import first_of_month, last_twelve_months, month_end, month_key


@pytest.mark.parametrize(
    ("today", "first", "last"),
    [
        ("2025-11-23", "2024-11-01", "2025-10-01"),
        ("2021-01-01", "2020-01-01", "2020-12-01"),
        ("2020-12-31", "2019-12-01", "2020-11-01"),
        ("2024-02-29", "2023-02-01", "2024-01-01"),
    ],
)
def test_the_partitions_are_the_twelve_months_before_today(today: str, first: str, last: str) -> None:
    keys = last_twelve_months(datetime.date.fromisoformat(today)).get_partition_keys()
    assert (keys[0], keys[-1], len(keys)) == (first, last, 12)
    assert {int(key[5:7]) for key in keys} == set(range(1, 13)), "each month of 2013 has a place"


def test_a_month_is_found_by_its_number() -> None:
    assert sorted(month_key(number)[5:] for number in range(1, 13)) == [f"{number:02}-01" for number in range(1, 13)]


def test_months_end_with_their_last_day() -> None:
    assert month_end("2028-02-01") == datetime.date(2028, 2, 29)
    assert month_end("2026-12-01") == datetime.date(2026, 12, 31)
    assert first_of_month(datetime.date(2026, 1, 15), months_ago=13) == datetime.date(2024, 12, 1)
