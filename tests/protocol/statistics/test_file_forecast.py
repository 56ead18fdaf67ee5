"""Forecasts of the files that a change writes."""

import pytest

from cm_delta_dagster.protocol.statistics.file_forecast import (
    ChangedRows,
    CopiedRows,
    Gathered,
    gathered,
    scan_tasks,
    shuffled_tasks,
)

MB = 1 << 20


def copied(num_files: int, size: int, *, tasks: int, partitions: int = 1) -> CopiedRows:
    return CopiedRows(sizes=dict.fromkeys(range(partitions), size // partitions), num_files=num_files, num_tasks=tasks)


def changed(num_bytes: int, *, tasks: int, partitioned: bool = False) -> ChangedRows:
    return ChangedRows(num_bytes=num_bytes, num_tasks=tasks, is_partitioned=partitioned)


CASES: dict[str, tuple[CopiedRows | None, ChangedRows | None, Gathered]] = {
    "one task inserts few rows": (None, changed(MB, tasks=1, partitioned=True), Gathered.NONE),
    "200 tasks insert few rows into partitions": (None, changed(MB, tasks=200, partitioned=True), Gathered.ALL),
    "200 tasks insert few rows": (None, changed(MB, tasks=200), Gathered.ALL),
    "two tasks insert few rows": (None, changed(MB, tasks=2), Gathered.ALL),
    "two tasks insert many rows": (None, changed(100 * MB, tasks=2), Gathered.NONE),
    "200 tasks insert as much as 100 files need": (None, changed(12_800 * MB, tasks=200), Gathered.NONE),
    "many rows of many partitions come from many tasks": (
        None,
        changed(12_800 * MB, tasks=100, partitioned=True),
        Gathered.ALL,
    ),
    "a small file is copied by one task": (copied(1, MB, tasks=1), None, Gathered.NONE),
    "a small file is copied, and rows are inserted": (copied(1, MB, tasks=1), changed(10, tasks=1), Gathered.ALL),
    "a large table is copied": (copied(8, 800 * MB, tasks=8), None, Gathered.NONE),
    "a large table is copied, and one task inserts rows": (
        copied(8, 800 * MB, tasks=8),
        changed(10, tasks=1, partitioned=True),
        Gathered.NONE,
    ),
    "a large table is copied, and 200 tasks insert rows": (
        copied(8, 800 * MB, tasks=8),
        changed(MB, tasks=200, partitioned=True),
        Gathered.CHANGED,
    ),
    "many cores copy a table": (copied(8, 800 * MB, tasks=200), None, Gathered.ALL),
    "thousands of small files are copied": (copied(9000, 900 * MB, tasks=300, partitions=30), None, Gathered.ALL),
    "a file for each of many partitions is copied": (
        copied(300, 3000 * MB, tasks=30, partitions=300),
        None,
        Gathered.NONE,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_shuffled_where_more_files_than_the_target_size_requires_would_be_written(name: str) -> None:
    """More than twice as many, if the rows are many."""
    again, rows, expected = CASES[name]
    assert gathered(again, rows) is expected


def test_a_smaller_target_accepts_more_files() -> None:
    rows = changed(64 * MB, tasks=16)
    assert gathered(None, rows) is Gathered.ALL
    assert gathered(None, rows, target=4 * MB) is Gathered.NONE


@pytest.mark.parametrize(
    ("num_bytes", "num_files", "cores", "tasks"),
    [(MB, 1, 2, 1), (MB, 1, 200, 1), (1000 * MB, 8, 2, 9), (1000 * MB, 1, 200, 200), (10 * MB, 1000, 2, 32)],
)
def test_the_number_of_tasks_that_read_files_follows_sizes_and_cores(
    num_bytes: int, num_files: int, cores: int, tasks: int
) -> None:
    """As ``FilePartition.maxSplitBytes`` of Spark divides them."""
    assert scan_tasks(num_bytes, num_files, cores=cores) == tasks


@pytest.mark.parametrize(
    ("num_bytes", "cores", "tasks"), [(1000, 8, 1), (5 * MB, 8, 5), (100 * MB, 8, 8), (6400 * MB, 8, 100)]
)
def test_the_number_of_tasks_after_a_shuffle_follows_sizes_and_cores(num_bytes: int, cores: int, tasks: int) -> None:
    assert shuffled_tasks(num_bytes, cores=cores, most=200) == tasks
    assert shuffled_tasks(num_bytes, cores=cores, most=1) == 1
