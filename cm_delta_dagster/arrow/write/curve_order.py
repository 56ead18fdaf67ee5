"""Ordering rows along a space-filling curve, as ``spark.write.clustering`` does (protocol heading "Clustered Table").

Rows that fit into memory are sorted there. Of more rows, a sample decides where files begin; sorted runs of rows go to a temporary
file, from which the rows of one small part of the curve after the other are read and sorted.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from cm_delta_dagster.arrow.spill.spilled_runs import SpilledRuns
from cm_delta_dagster.protocol.statistics.curve_ranges import (
    SAMPLE_ROWS,
    SEED,
    TIE_BITS,
    KeyValues,
    LayoutColumn,
    RangeBounds,
    file_starts,
    places_of,
)
from cm_delta_dagster.protocol.statistics.curves import Curve, Integers

_RUN_BYTES = 256 * 2**20
"""Bytes of rows that are sorted in memory at a time."""
_BUCKET_BYTES = 64 * 2**20
"""Bytes of rows of a part of the curve that are read from the temporary file at a time."""
_PLACED_ROWS = 512 * 1024
"""Rows whose places are computed at a time, which takes several numbers for each row."""
_TAKEN_ROWS = 128 * 1024
"""Rows of a batch of sorted rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveOrder:
    """The order of rows along a curve, and their division into files.

    Attributes:
        keys: returns the columns of the curve of all rows, in the order of the rows. Called only if the rows do not fit into
            memory.
        count: returns the number of all rows; called only then.
        num_files: into which the rows are divided, at least 1.
    """

    columns: Sequence[LayoutColumn]
    curve: Curve
    keys: Callable[[], Iterable[pa.RecordBatch]]
    count: Callable[[], int]
    num_files: int

    def files(self, rows: Iterable[pa.RecordBatch]) -> Generator[Iterator[pa.RecordBatch]]:
        """The rows of each file, in the order of the curve. Each is read before the next one. A file may have no rows.

        Args:
            rows: all rows; read once.
        """
        stream = iter(rows)
        run, is_last = _run(stream)
        if run is None:
            return
        if not is_last:
            with closing(self._files_of_runs(run, stream)) as files:
                yield from files
            return
        keys = self._key_arrays(run)
        chosen = _sampled(run.num_rows, run.num_rows)
        bounds = self._bounds([array.filter(pa.array(chosen)) for array in keys])
        places = self._places(keys, bounds, first=0, num_rows=run.num_rows)
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        for start, end in _spans(ordered, file_starts(ordered, self.num_files)):
            yield _taken(run, order[start:end])

    def _files_of_runs(
        self, run: pa.Table | None, stream: Iterator[pa.RecordBatch]
    ) -> Generator[Iterator[pa.RecordBatch]]:
        """As :meth:`files`, for the first rows and a stream of all others."""
        assert run is not None
        num_rows = self.count()
        bounds, ordered = self._sample(num_rows)
        of_files = file_starts(ordered, self.num_files)
        num_buckets = -(-run.nbytes * num_rows // run.num_rows // _BUCKET_BYTES)
        within = (
            []
            if not len(ordered)
            else [int(ordered[number * len(ordered) // num_buckets]) for number in range(1, num_buckets)]
        )
        starts = sorted({*of_files, *within})
        first = 0
        with SpilledRuns(run.schema) as spilled:
            while run is not None:
                places = self._places(self._key_arrays(run), bounds, first=first, num_rows=num_rows)
                order = np.argsort(places, kind="stable")
                sorted_places = places[order]
                for bucket, (start, end) in enumerate(_spans(sorted_places, starts)):
                    for begin in range(start, end, _TAKEN_ROWS):
                        last = min(begin + _TAKEN_ROWS, end)
                        spilled.add(bucket, _taken_rows(run, order[begin:last]), sorted_places[begin:last])
                first += run.num_rows
                run, _ = _run(stream)
            ends = np.searchsorted(starts, of_files, side="left") + 1
            for begin, end in zip(chain([0], ends), chain(ends, [len(starts) + 1]), strict=True):
                buckets = range(int(begin), max(int(begin), int(end)))
                yield (batch for bucket in buckets for batch in _in_order(*spilled.bucket(bucket)))

    def _sample(self, num_rows: int) -> tuple[list[RangeBounds], Integers]:
        """The ends of the ranges of each column, and the places of the rows of a sample in order."""
        chance = np.random.default_rng(SEED)
        parts: list[list[pa.Array]] = [[] for _ in self.columns]
        numbers, first = [], 0
        for batch in self.keys():
            chosen = _sampled(batch.num_rows, num_rows, chance)
            numbers.append(first + np.flatnonzero(chosen))
            for array, values in zip(parts, self._key_arrays(batch), strict=True):
                array.append(values.filter(pa.array(chosen)))
            first += batch.num_rows
        keys = [pa.concat_arrays(arrays) for arrays in parts]
        bounds = self._bounds(keys)
        values = list(map(KeyValues.of, keys))
        return bounds, np.sort(places_of(values, bounds, self.curve, _ties(np.concatenate(numbers), num_rows)))

    def _bounds(self, sample: Sequence[pa.Array]) -> list[RangeBounds]:
        return [RangeBounds.of(KeyValues.of(keys), 1 << self.curve.bits) for keys in sample]

    def _places(
        self, keys: Sequence[pa.Array], bounds: Sequence[RangeBounds], *, first: int, num_rows: int
    ) -> Integers:
        """The places of rows.

        Args:
            first: number of the first of them among all rows.
            num_rows: number of all rows.
        """
        places = np.empty(len(keys[0]), dtype=np.int64)
        for start in range(0, len(places), _PLACED_ROWS):
            values = [KeyValues.of(array.slice(start, _PLACED_ROWS)) for array in keys]
            numbers = np.arange(first + start, first + start + len(values[0].is_valid))
            places[start : start + _PLACED_ROWS] = places_of(values, bounds, self.curve, _ties(numbers, num_rows))
        return places

    def _key_arrays(self, rows: pa.Table | pa.RecordBatch) -> list[pa.Array]:
        return [sort_key(rows, column) for column in self.columns]


def _ties(numbers: npt.NDArray[np.int64], num_rows: int) -> Integers:
    """Rows in one cell of the curve stay in their order. A cell with many rows can be divided."""
    ties: Integers = np.minimum((numbers << TIE_BITS) // max(1, num_rows), (1 << TIE_BITS) - 1)
    return ties


def sort_key(rows: pa.Table | pa.RecordBatch, column: LayoutColumn) -> pa.Array:
    """For each row a value in the same order as those of the column: a text or a number; NULL for NULL."""
    first, *inner = column.path
    values = rows.column(rows.schema.get_field_index(first))
    for name in inner:
        values = pc.struct_field(values, [values.type.get_field_index(name)])  # A name may look like a path.
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pat.is_string(array.type) or pat.is_large_string(array.type):
        return array
    if pat.is_floating(array.type) or pat.is_decimal(array.type):
        return array.cast(pa.float64(), safe=False)
    return array.cast(pa.int32()).cast(pa.int64()) if pat.is_date32(array.type) else array.cast(pa.int64())


def _run(stream: Iterator[pa.RecordBatch]) -> tuple[pa.Table | None, bool]:
    """The next rows of a stream that fit into memory, and whether they are the last; None for no rows."""
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in stream:
        batches.append(batch)
        size += batch.nbytes
        if size >= _RUN_BYTES:
            return _joined(batches), False
    return (_joined(batches) if batches else None), True


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    """The rows of batches in one chunk. Clears the list, so that each column is in memory twice only while it is joined."""
    schema = batches[0].schema
    parts = [[batch.column(place) for batch in batches] for place in range(len(schema))]
    batches.clear()
    columns = []
    for place in range(len(schema)):
        columns.append(pa.concat_arrays(parts[place]))
        parts[place].clear()
    return pa.Table.from_arrays(columns, schema=schema)


def _sampled(count: int, num_rows: int, chance: np.random.Generator | None = None) -> npt.NDArray[np.bool_]:
    """Which of ``count`` rows are in the sample, of which all ``num_rows`` rows have about :data:`SAMPLE_ROWS`."""
    if num_rows <= SAMPLE_ROWS:
        return np.ones(count, dtype=bool)
    return (chance or np.random.default_rng(SEED)).random(count) < SAMPLE_ROWS / num_rows


def _spans(ordered: Integers, starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """From which to which row each part goes; the first part begins with the first row, the others at ``starts``."""
    ends = np.searchsorted(ordered, starts, side="left").tolist()
    yield from zip([0, *ends], [*ends, len(ordered)], strict=True)


def _taken(rows: pa.Table, order: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(order), _TAKEN_ROWS):
        yield _taken_rows(rows, order[start : start + _TAKEN_ROWS])


def _taken_rows(rows: pa.Table, order: npt.NDArray[np.int64]) -> pa.RecordBatch:
    (batch,) = rows.take(pa.array(order)).combine_chunks().to_batches()
    return batch


def _in_order(rows: pa.Table, places: Integers) -> Iterator[pa.RecordBatch]:
    """The rows of a part of the curve, which several runs have."""
    yield from _taken(rows, np.argsort(places, kind="stable"))
