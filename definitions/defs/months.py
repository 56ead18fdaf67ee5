"""The months of the demo: the last twelve complete ones. The flights are those of 2013, moved to these months."""

import datetime

import dagster as dg

RAW_YEAR = 2013
"""The year of the raw files."""

_MONTHS_OF_A_YEAR = 12


def first_of_month(day: datetime.date, *, months_ago: int = 0) -> datetime.date:
    """The first day of the month that is ``months_ago`` months before the month of ``day``."""
    number = day.year * _MONTHS_OF_A_YEAR + day.month - 1 - months_ago
    return datetime.date(number // _MONTHS_OF_A_YEAR, number % _MONTHS_OF_A_YEAR + 1, 1)


def last_twelve_months(today: datetime.date) -> dg.MonthlyPartitionsDefinition:
    """A partition for each of the twelve months before the month of ``today``."""
    first = first_of_month(today, months_ago=_MONTHS_OF_A_YEAR)
    return dg.MonthlyPartitionsDefinition(start_date=str(first), end_date=str(first_of_month(today)))


MONTHS = last_twelve_months(datetime.datetime.now(datetime.UTC).date())


def month_key(number: int) -> str:
    """The partition key of a month by its number in the year; 6 is June."""
    return next(key for key in MONTHS.get_partition_keys() if datetime.date.fromisoformat(key).month == number)


def month_end(key: str) -> datetime.date:
    """The last day of the month with this partition key."""
    return first_of_month(datetime.date.fromisoformat(key), months_ago=-1) - datetime.timedelta(days=1)
