"""Forecasts how many files the tasks of a change write, and which of its rows are shuffled first, so that there are few.

A task writes a file for each partition of its rows. Tasks that copy the rows of files make about as many files as they read.
Rows that change come from tasks of other queries, e.g. from 200 tasks after a shuffle in the source of a merge, with few rows each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

TARGET_BYTES = 128 << 20
"""Size up to which the rows of a partition go to one file, unless the table has ``delta.targetFileSize``."""
SMALL_BYTES = 16 << 20
"""Up to this size, a shuffle takes less time than the files that it saves. Above it, twice as many files as needed are accepted."""
_SPLIT_BYTES = 128 << 20
_OPEN_BYTES = 4 << 20
"""How Spark divides files into tasks by default: at most so many bytes a task, and so many more for each file."""
_LEAST_SHUFFLED = 1 << 20
_MOST_SHUFFLED = 64 << 20
"""Between these sizes, adaptive execution makes as many tasks after a shuffle as there are cores."""


class Gathered(StrEnum):
    """The rows of a change that are shuffled before they are written."""

    NONE = "none"
    CHANGED = "changed"
    """Rows that are inserted or updated; tasks that read the other rows also write them."""
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedRows:
    """Rows of files that leave the table, which the tasks that read the files write again.

    Attributes:
        sizes: bytes of the files by partition.
        num_tasks: tasks that read the files.
    """

    sizes: Mapping[Any, int]
    num_files: int
    num_tasks: int

    @property
    def num_bytes(self) -> int:
        return sum(self.sizes.values())

    def needed(self, target: int) -> int:
        """Files that the target size requires."""
        return sum(_quotient(size, target) for size in self.sizes.values())

    @property
    def expected(self) -> int:
        """Files that are written without a shuffle, at most: a task that reads a part of a file writes one file for it."""
        return min(self.num_files + self.num_tasks - 1, self.num_tasks * len(self.sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """Rows that are inserted or updated.

    Attributes:
        num_bytes: an estimate of their size in files.
        num_tasks: tasks that write them without a shuffle, at most.
        is_partitioned: they can belong to several partitions, of which each task may have rows.
    """

    num_bytes: int
    num_tasks: int
    is_partitioned: bool

    def needed(self, target: int) -> int:
        """Files that the target size requires if all rows belong to one partition."""
        return _quotient(self.num_bytes, target)

    def are_scattered(self, target: int) -> bool:
        """Whether more tasks than the target size requires write rows of one partition."""
        if self.is_partitioned:
            return self.num_tasks > 1
        return self.num_tasks > self.needed(target) * _accepted(self.num_bytes)


def gathered(copied: CopiedRows | None, changed: ChangedRows | None, *, target: int = TARGET_BYTES) -> Gathered:
    """Which rows are shuffled by partition and size. None stands for no rows.

    Args:
        target: bytes of a file.
    """
    if copied is not None and changed is not None and copied.num_bytes <= SMALL_BYTES:
        # The copied rows and the changed ones would make at least two files in each partition.
        return Gathered.ALL
    if copied is not None and copied.expected > copied.needed(target) * _accepted(copied.num_bytes):
        return Gathered.ALL
    if changed is None or not changed.are_scattered(target):
        return Gathered.NONE
    return Gathered.CHANGED if copied is not None else Gathered.ALL


def scan_tasks(num_bytes: int, num_files: int, *, cores: int) -> int:
    """About how many tasks Spark reads files with."""
    total = num_bytes + num_files * _OPEN_BYTES
    split = min(_SPLIT_BYTES, max(_OPEN_BYTES, total // max(cores, 1)))
    return min(_quotient(total, split), num_bytes // split + num_files)


def shuffled_tasks(num_bytes: int, *, cores: int, most: int) -> int:
    """About how many tasks adaptive execution makes after a shuffle.

    Args:
        most: tasks of the shuffle.
    """
    by_cores = min(max(cores, 1), _quotient(num_bytes, _LEAST_SHUFFLED))
    return min(most, max(by_cores, _quotient(num_bytes, _MOST_SHUFFLED)))


def _accepted(num_bytes: int) -> int:
    """How many times as many files as needed are accepted."""
    return 1 if num_bytes <= SMALL_BYTES else 2


def _quotient(size: int, part: int) -> int:
    """``size / part`` rounded up, at least 1."""
    return max(1, -(-size // part))
