"""Repartitioning the rows of many small files by bin, for OPTIMIZE.

One scan and one shuffle serve many bins: all files of a bin go to one task, so that each bin becomes one file. A scan for
each bin would need a plan for each bin, which for small files costs more than reading the rows.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import DataFrame, F
from cm_delta_dagster.spark.read.file_values import FILE_COLUMN, POSITION_COLUMN, join_file_values, known

_TASK_COLUMN = "__cm_delta_task"
_SEED = 42


def together_by_bin(rows: DataFrame, bins: Sequence[pa.Array], *, tasks: int) -> DataFrame:
    """``rows`` with ``tasks`` partitions: all rows of bin ``i`` are in partition ``i % tasks``.

    Args:
        rows: of :func:`~cm_delta_dagster.spark.read.scan.scan_with_files`; the columns of files and positions are dropped.
        bins: decoded absolute locations of the files of each bin.
    """
    keys = task_keys(tasks)[np.arange(len(bins)) % tasks]
    numbers = pa.array(np.repeat(keys, [len(locations) for locations in bins]), pa.int32())
    joined = join_file_values(rows.sparkSession, rows, pa.concat_arrays(bins), {_TASK_COLUMN: numbers})
    spread = joined.repartition(tasks, F.expr(known(_TASK_COLUMN, "INT")))
    return spread.select(*[F.col(quoted(name)) for name in rows.columns if name not in (FILE_COLUMN, POSITION_COLUMN)])


def task_keys(count: int) -> npt.NDArray[np.int32]:
    """For each of ``count`` tasks, a number that Spark's hash partitioning into ``count`` partitions assigns to it.

    Hash partitioning is Murmur3 of seed 42, modulo the number of partitions.
    """
    keys = np.full(count, -1, dtype=np.int64)
    start, step = 0, max(1024, 4 * count)
    while (keys < 0).any():
        numbers = np.arange(start, start + step, dtype=np.int32)
        tasks = _murmur3(numbers).astype(np.int64) % count
        # The first number for each task: later assignments win, so they are applied in reverse.
        fresh = np.full(count, -1, dtype=np.int64)
        fresh[tasks[::-1]] = numbers[::-1]
        keys = np.where(keys < 0, fresh, keys)
        start += step
    return keys.astype(np.int32)


def _murmur3(numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """``Murmur3_x86_32.hashInt`` of Spark."""
    with np.errstate(over="ignore"):
        k = numbers.astype(np.uint32) * np.uint32(0xCC9E2D51)
        k = _rotated(k, 15) * np.uint32(0x1B873593)
        h = _rotated(np.uint32(_SEED) ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return h.view(np.int32)


def _rotated(value: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))
