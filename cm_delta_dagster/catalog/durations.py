"""The longest duration that users can give. A time that far ahead is still a date, and fits the columns of the catalog."""

LONGEST_MS = 100 * 366 * 24 * 60 * 60 * 1000
"""A hundred years in milliseconds."""


def is_duration(value: object, *, at_least: int = 0) -> bool:
    """Whether ``value`` is a whole number of milliseconds up to a hundred years."""
    return isinstance(value, int) and not isinstance(value, bool) and at_least <= value <= LONGEST_MS
