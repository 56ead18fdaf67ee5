"""The type of options that are a number of days."""

import math
from typing import Any

import click

_DAY_MS = 24 * 60 * 60 * 1000
_MAX_DAYS = 100 * 366


class DaysRange(click.FloatRange):
    """A number of days from 0 to a hundred years; NaN is refused, too."""

    def __init__(self) -> None:
        super().__init__(min=0, max=_MAX_DAYS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        days = super().convert(value, param, ctx)
        if math.isnan(days):
            self.fail(f"{value!r} is not a number of days.", param, ctx)
        return days


DAYS = DaysRange()


def days_of(milliseconds: int) -> float:
    """The default of an option, from a duration."""
    return milliseconds / _DAY_MS


def days_in_ms(days: float) -> int:
    """Whole milliseconds."""
    return round(days * _DAY_MS)
