"""DESCRIBE HISTORY: the commits of a table, newest first."""

from itertools import islice

from cm_delta_dagster.client.snapshots.history import HistoryEntry, find_transaction, iterate_history
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.errors import InvalidArgumentError

__all__ = ["HistoryEntry", "find_transaction", "history"]


def history(table: ReadableTable, *, limit: int | None = None) -> tuple[HistoryEntry, ...]:
    """Commits from the latest version down, at most ``limit`` of them.

    Ratified but unpublished commits are included; commits removed by metadata cleanup are not.

    Raises:
        InvalidArgumentError: ``limit`` is negative.
    """
    if limit is not None and limit < 0:
        raise InvalidArgumentError(f"limit is {limit}; give the number of newest commits wanted, or None for all.")
    return tuple(islice(iterate_history(table), limit))
