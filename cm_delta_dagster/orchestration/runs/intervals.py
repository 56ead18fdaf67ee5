"""The time between two ticks of a sensor."""

from datetime import timedelta

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import duration_ms


def interval_seconds(interval: timedelta) -> int:
    """``minimum_interval_seconds`` of Dagster. Raises InvalidArgumentError unless it is a whole number of at least 1."""
    seconds, rest = divmod(duration_ms(interval, name="minimum_interval"), 1000)
    if not seconds or rest:
        raise InvalidArgumentError(f"minimum_interval is {interval!r}; give whole seconds, at least 1.")
    return seconds
