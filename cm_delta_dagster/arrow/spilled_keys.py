"""Rows of Arrow by their keys, for more rows than fit into memory: a hash join by parts.

Both sides are divided by a hash of the key into parts, in temporary local files. Rows with equal keys are in parts of the same
number, so that the pairs of each part are all pairs. The keys of one part of these rows are in memory at a time, those of the other
rows pass in batches. Many rows with one key, which is not NULL, are all in one part.
"""

import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from cm_delta_dagster.arrow.keyed_rows import KeyedRows, PairedRows, key_bounds, key_columns
from cm_delta_dagster.arrow.spill.spilled_runs import SpilledRuns

_PART_BYTES = 2**25
"""About so many bytes of keys are in a part. What finds them takes about ten times as much."""
_MOST_PARTS = 4096
_HASHED_BYTES = 32
"""So many bytes of a text are hashed at its beginning, and at its end."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)

_Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class SpilledKeys:
    """As :class:`~cm_delta_dagster.arrow.keyed_rows.KeyedRows`.

    Attributes:
        rows: the key columns, whose values may be in a file.
    """

    rows: pa.Table
    names: Sequence[str]
    null_safe: Collection[str] = ()

    @cached_property
    def duplicate(self) -> int | None:
        """A row whose key another row has too; None if there is none."""
        for number in range(self._num_parts):
            keys, rows = self._part(number)
            if keys.duplicate is not None:
                return int(rows[keys.duplicate])
        return None

    def bounds(self, listed: Sequence[str], most: int) -> dict[str, Any]:
        """Bounds of the complete keys; see ``key_bounds``."""
        return key_bounds(self.rows, self.names, self.null_safe, listed, most)

    def pairs(self, batches: Iterable[pa.RecordBatch]) -> Iterator[PairedRows]:
        """All other rows, in batches and in any order, and their pairs with these rows."""
        rest = iter(batches)
        first = next(rest, None)
        if first is None:
            return
        with SpilledRuns(first.schema) as spilled:
            for batch in chain([first], rest):
                places = self._parts_of(key_columns(batch, self.rows, self.names))
                for number, rows in _by_part(places):
                    spilled.add(number, batch.take(pa.array(rows)), rows)
            for number in range(self._num_parts):
                keys, numbers = self._part(number)
                for batch, _ in spilled.parts(number):
                    for paired in keys.pairs([batch]):
                        yield PairedRows(paired.batch, paired.places, numbers[paired.rows])

    @cached_property
    def _num_parts(self) -> int:
        size: int = max(self.rows.nbytes, 8 * self.rows.num_rows)
        return min(_MOST_PARTS, max(2, -(-size // _PART_BYTES)))

    @cached_property
    def _spilled(self) -> SpilledRuns:
        spilled, first = SpilledRuns(self.rows.schema), 0
        weakref.finalize(self, spilled.close)
        for batch in self.rows.to_batches():
            for number, rows in _by_part(self._parts_of(key_columns(batch, self.rows, self.names))):
                spilled.add(number, batch.take(pa.array(rows)), rows + first)
            first += batch.num_rows
        return spilled

    def _part(self, number: int) -> tuple[KeyedRows, npt.NDArray[np.int64]]:
        """Rows of a part, and their numbers among all."""
        rows, numbers = self._spilled.bucket(number)
        return KeyedRows(rows, self.names, self.null_safe), numbers

    def _parts_of(self, keys: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
        """The part of each key. Keys that equal nothing are in all parts alike."""
        num_rows = len(keys[0])
        hashes, equals_nothing = np.zeros(num_rows, np.uint64), np.zeros(num_rows, np.bool_)
        for name, values in zip(self.names, keys, strict=True):
            hashes = _mixed(hashes, _hashes(values))
            if name not in self.null_safe and values.null_count:
                equals_nothing |= values.is_null().to_numpy(zero_copy_only=False)
        parts = ((hashes >> _SHIFT) % np.uint64(self._num_parts)).astype(np.int64)
        return np.where(equals_nothing, np.arange(num_rows) % self._num_parts, parts)


def _by_part(parts: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """The rows of each part that has some, in order."""
    order = np.argsort(parts, kind="stable")
    numbers, starts = np.unique(parts[order], return_index=True)
    for number, rows in zip(numbers, np.split(order, starts[1:]), strict=True):
        yield int(number), rows


def _mixed(before: _Hashes, values: _Hashes) -> _Hashes:
    mixed = (before ^ values) * _FACTOR
    hashes: _Hashes = mixed ^ (mixed >> np.uint64(32))
    return hashes


def _hashes(values: pa.Array) -> _Hashes:
    """Numbers for keys, equal for equal keys of one type."""
    if pat.is_decimal(values.type):
        values = values.cast(pa.string())
    if pat.is_string(values.type) or pat.is_binary(values.type):
        return _text_hashes(values.cast(pa.large_binary()))
    if pat.is_boolean(values.type):
        values = values.cast(pa.int64())
    elif pat.is_date(values.type):
        values = values.cast(pa.int32())
    elif pat.is_floating(values.type):
        values = values.view(pa.int64() if pat.is_float64(values.type) else pa.int32())
    hashes: _Hashes = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    return hashes


def _text_hashes(texts: pa.Array) -> _Hashes:
    _, ends, content = texts.buffers()
    hashes = np.zeros(len(texts), np.uint64)
    if not len(texts) or content is None:
        return hashes
    offsets = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    starts, lengths = offsets[:-1], np.where(texts.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    letters = np.frombuffer(content, np.uint8)
    hashes = lengths.astype(np.uint64)
    for place in range(min(_HASHED_BYTES, int(lengths.max()))):
        rows = np.flatnonzero(lengths > place)
        for places in (starts[rows] + place, starts[rows] + lengths[rows] - 1 - place):
            hashes[rows] = _mixed(hashes[rows], letters[places].astype(np.uint64))
    return hashes
