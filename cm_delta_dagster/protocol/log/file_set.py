"""Sets of file actions, searchable by logical file (protocol heading "Action Reconciliation").

A :class:`FileSet` is an immutable set of adds or removes with one row per logical file. It consists of segments, and sets that
differ in a few files share the others. The cost of applying a commit therefore depends on the number of its files, not on the
size of the table. ``action_reconciliation`` determines the newest action for each file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.file_columns import dv_ids
from cm_delta_dagster.protocol.actions.paths import relative_file_keys

BLOCK_ROWS = 16_384
"""Maximum number of rows that are copied to remove one of them."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_WORD = 8
_IDENTITY = ["path", "deletionVector"]


@dataclass(frozen=True, slots=True, eq=False)
class KeyedFiles:
    """File actions and the hashes of their normalised paths. Equal paths have equal hashes; collisions are possible."""

    files: pa.Table
    location: str
    hashes: np.ndarray

    @classmethod
    def of(cls, files: pa.Table, location: str) -> "KeyedFiles":
        """Raises CorruptLogError for a path that cannot be resolved."""
        paths = [relative_file_keys(location, chunk) for chunk in files.column("path").chunks]
        hashes = np.concatenate([_NO_HASHES, *(text_hashes(chunk) for chunk in paths)])
        return cls(files, location, hashes)

    @classmethod
    def concat(cls, parts: Sequence["KeyedFiles"]) -> "KeyedFiles":
        """Concatenate ``parts``, at least one."""
        if len(parts) == 1:
            return parts[0]
        files = pa.concat_tables([part.files for part in parts])
        return cls(files, parts[0].location, np.concatenate([part.hashes for part in parts]))

    def identities(self) -> "KeyedFiles":
        """The same files with only the columns that identify them."""
        return KeyedFiles(self.files.select(_IDENTITY), self.location, self.hashes)

    def keys(self, rows: np.ndarray) -> pa.Array:
        """The keys of the logical files in ``rows``, see :func:`logical_keys`."""
        return logical_keys(_take(self.files, rows), self.location)

    def filter(self, mask: np.ndarray) -> "KeyedFiles":
        """The files where ``mask`` is true."""
        if mask.all():
            return self
        return KeyedFiles(self.files.filter(pa.array(mask)), self.location, self.hashes[mask])


def logical_keys(files: pa.Table, location: str) -> pa.Array:
    """The key of each logical file: the path relative to the table root and, if present, the ``dvId``."""
    chunks = [relative_file_keys(location, chunk) for chunk in files.column("path").chunks]
    paths = pa.concat_arrays(chunks) if chunks else pa.nulls(0, pa.string())
    vectors = dv_ids(files)
    if vectors.null_count == len(vectors):
        return paths
    # The key of a file without a deletion vector is its path, as in tables without any deletion vector.
    return pc.coalesce(pc.binary_join_element_wise(paths, vectors, "\n"), paths)


_NO_HASHES = np.zeros(0, dtype=np.uint64)


def text_hashes(texts: pa.Array) -> np.ndarray:
    """A 64-bit hash of all bytes of each text. ``texts`` has no nulls."""
    hashes = np.empty(len(texts), dtype=np.uint64)
    if not len(texts):
        return hashes
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    for first in range(0, len(texts), BLOCK_ROWS):
        ends = offsets[first : first + BLOCK_ROWS + 1]
        hashes[first : first + BLOCK_ROWS] = _block_hashes(data_buffer, ends[:-1], ends[1:])
    return hashes


def _block_hashes(data: pa.Buffer | None, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    lengths = ends - starts
    hashes: np.ndarray = lengths.astype(np.uint64) * _MULTIPLIER
    if data is None:
        return hashes
    long = lengths >= _WORD
    if not long.all():
        letters = np.frombuffer(data, dtype=np.uint8)
        for number in range(_WORD - 1):
            rows = np.flatnonzero(~long & (lengths > number))
            hashes[rows] = _mix(hashes[rows], letters[starts[rows] + number].astype(np.uint64))
    if not long.any():
        return hashes
    # The eight bytes from each position on, without copying.
    words = np.ndarray(shape=(data.size - _WORD + 1,), dtype="<u8", buffer=data, strides=(1,))
    everywhere = int(lengths.min()) // _WORD
    if lengths.max() == lengths.min() and np.array_equal(ends[:-1], starts[1:]):
        return _regular_hashes(hashes, data, int(starts[0]), int(lengths[0]))
    for number in range(everywhere):
        _mix(hashes, words[starts + _WORD * number])
    for number in range(everywhere, int(lengths.max()) // _WORD):
        rows = np.flatnonzero(lengths >= _WORD * (number + 1))
        hashes[rows] = _mix(hashes[rows], words[starts[rows] + _WORD * number])
    # The last eight bytes of a text include the remainder.
    rows = np.flatnonzero(long)
    hashes[rows] = _mix(hashes[rows], words[ends[rows] - _WORD])
    return hashes


def _regular_hashes(hashes: np.ndarray, data: pa.Buffer, start: int, length: int) -> np.ndarray:
    """As :func:`_block_hashes` for contiguous texts of one length, whose words are at regular distances."""
    for place in (*range(0, length - _WORD + 1, _WORD), length - _WORD):
        words = np.ndarray(shape=hashes.shape, dtype="<u8", buffer=data, offset=start + place, strides=(length,))
        _mix(hashes, words.copy())
    return hashes


def _mix(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    hashes ^= words
    hashes *= _MULTIPLIER
    hashes ^= hashes >> _SHIFT
    return hashes


def _take(files: pa.Table, rows: np.ndarray) -> pa.Table:
    """The identity columns of ``files`` at the positions ``rows``. Takes chunk by chunk: a take from a table copies all chunks."""
    batches = files.select(_IDENTITY).to_batches()
    if len(batches) <= 1:
        return files.select(_IDENTITY).take(pa.array(rows))
    bounds = np.cumsum([0, *(batch.num_rows for batch in batches)])
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    cuts = np.searchsorted(ordered, bounds)
    taken = [
        batch.take(pa.array(ordered[first:last] - start))
        for batch, first, last, start in zip(batches, cuts[:-1], cuts[1:], bounds[:-1], strict=True)
        if last > first
    ]
    back = np.empty(len(rows), dtype=np.int64)
    back[order] = np.arange(len(rows))
    table = pa.Table.from_batches(taken, schema=batches[0].schema).combine_chunks()
    return table if np.array_equal(back, np.arange(len(rows))) else table.take(pa.array(back))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows that were added to a set together, in blocks; shared by all sets that contain any of them."""

    batches: tuple[pa.RecordBatch, ...]
    schema: pa.Schema
    location: str
    _given_hashes: tuple[np.ndarray, np.ndarray] | None

    @classmethod
    def of(cls, files: pa.Table, location: str, hashes: np.ndarray | None) -> "_Rows":
        """Sorts the hashes immediately, so that searches for a few files are fast."""
        if files.num_rows < BLOCK_ROWS and len(files.column("path").chunks) > 1:
            files = files.combine_chunks()
        sorted_hashes = None if hashes is None else (hashes, np.sort(hashes))
        return cls(tuple(files.to_batches(max_chunksize=BLOCK_ROWS)), files.schema, location, sorted_hashes)

    @cached_property
    def files(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, schema=self.schema)

    @cached_property
    def bounds(self) -> np.ndarray:
        """First row of each block, and the number of rows."""
        return np.cumsum([0, *(batch.num_rows for batch in self.batches)])

    @cached_property
    def _hashes_and_sorted(self) -> tuple[np.ndarray, np.ndarray]:
        if self._given_hashes is not None:
            return self._given_hashes
        hashes = KeyedFiles.of(self.files, self.location).hashes
        return hashes, np.sort(hashes)

    @property
    def hashes(self) -> np.ndarray:
        return self._hashes_and_sorted[0]

    @property
    def keys(self) -> pa.Array:
        return logical_keys(self.files, self.location)

    @cached_property
    def order(self) -> np.ndarray:
        """The rows in the order of their hashes."""
        return np.argsort(self.hashes).astype(np.int32)

    def candidates(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Pairs (row here, position in ``hashes``) with the same hash; None if there are too many to compare."""
        ordered = self._hashes_and_sorted[1]
        first, last = np.searchsorted(ordered, hashes, side="left"), np.searchsorted(ordered, hashes, side="right")
        counts = last - first
        matching = np.flatnonzero(counts)
        if not len(matching):
            return _NO_ROWS, _NO_ROWS
        counts = counts[matching]
        if counts.sum() > _PAIRS_A_ROW * (len(ordered) + len(hashes)):
            return None
        if len(matching) <= _MAX_SCANS and "order" not in self.__dict__:
            rows = [np.flatnonzero(self.hashes == hashes[position]) for position in matching]
            return np.concatenate(rows), np.repeat(matching, counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.order[np.repeat(first[matching], counts) + within].astype(np.int64), np.repeat(matching, counts)


_MAX_SCANS = 4
"""For at most this many hashes a scan of all rows is faster than sorting the rows."""
_NO_ROWS = np.zeros(0, dtype=np.int64)
_PAIRS_A_ROW = 8
"""Limits the cost of paths that were chosen to collide: the hash function is not secret."""


@dataclass(frozen=True, slots=True, eq=False)
class _Segment:
    """The ``rows`` that are in the set: all except ``gone``, ascending. ``live`` are the blocks without those."""

    rows: _Rows
    live: tuple[pa.RecordBatch, ...]
    gone: np.ndarray

    @classmethod
    def of(cls, files: pa.Table, location: str, hashes: np.ndarray | None = None) -> "_Segment":
        rows = _Rows.of(files, location, hashes)
        return cls(rows, rows.batches, _NO_ROWS)

    def __len__(self) -> int:
        return int(self.rows.bounds[-1]) - len(self.gone)

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.live, schema=self.rows.schema)

    def live_hashes(self) -> np.ndarray:
        return np.delete(self.rows.hashes, self.gone)

    def rows_of(self, files: KeyedFiles) -> np.ndarray:
        """Row numbers of the logical files in ``files``."""
        pairs = self.rows.candidates(files.hashes)
        if pairs is None:
            hit = pc.is_in(self.rows.keys, value_set=files.keys(np.arange(len(files.hashes))))
            return np.setdiff1d(np.flatnonzero(hit.to_numpy(zero_copy_only=False)), self.gone)
        rows, positions = pairs
        if not len(rows):
            return _NO_ROWS
        # Hashes may collide, so the keys are compared.
        here = logical_keys(_take(self.rows.files, rows), files.location)
        same = pc.equal(here, files.keys(positions)).to_numpy(zero_copy_only=False)
        return np.setdiff1d(rows[same], self.gone)

    def without(self, rows: np.ndarray) -> "_Segment":
        """The segment without ``rows``, which ascend and are in the set."""
        gone = np.union1d(self.gone, rows)
        bounds = self.rows.bounds
        live = list(self.live)
        for number in np.unique(np.searchsorted(bounds, rows, side="right") - 1):
            start, end = bounds[number], bounds[number + 1]
            keep = np.ones(end - start, dtype=bool)
            keep[gone[np.searchsorted(gone, start) : np.searchsorted(gone, end)] - start] = False
            live[number] = self.rows.batches[number].filter(pa.array(keep))
        shrunk = _Segment(self.rows, tuple(live), gone)
        if 2 * len(gone) < bounds[-1]:
            return shrunk
        # At least half of the rows are gone, so the others are copied to free the memory.
        return _Segment.of(shrunk.table().combine_chunks(), self.rows.location, shrunk.live_hashes())


@dataclass(frozen=True, eq=False)
class FileSet:
    """An immutable, columnar set of adds or of removes with distinct logical files."""

    location: str
    schema: pa.Schema
    segments: tuple[_Segment, ...] = ()

    @classmethod
    def of(cls, files: pa.Table, *, location: str) -> "FileSet":
        """A set of ``files``, whose logical files are distinct."""
        try:
            hashes = KeyedFiles.of(files, location).hashes
        except CorruptLogError:
            hashes = None  # A search for files raises the error for the invalid path.
        return cls(location, files.schema, (_Segment.of(files, location, hashes),) if files.num_rows else ())

    @cached_property
    def table(self) -> pa.Table:
        """All files, in chunks of at most ``BLOCK_ROWS``; sets derived from each other share the memory of unchanged chunks."""
        return pa.Table.from_batches(
            [batch for segment in self.segments for batch in segment.live if batch.num_rows], schema=self.schema
        )

    def __len__(self) -> int:
        return sum(len(segment) for segment in self.segments)

    def without(self, files: KeyedFiles) -> "FileSet":
        """This set without the logical files in ``files``."""
        if not len(files.hashes):
            return self
        segments = tuple(self._shrunk(files))
        if all(old is new for old, new in zip(self.segments, segments, strict=True)):
            return self
        return replace(self, segments=tuple(segment for segment in segments if len(segment)))

    def _shrunk(self, files: KeyedFiles) -> Iterator[_Segment]:
        for segment in self.segments:
            rows = segment.rows_of(files)
            yield segment.without(rows) if len(rows) else segment

    def plus(self, files: KeyedFiles) -> "FileSet":
        """The union of this set and ``files``, which are distinct and not in the set."""
        if not files.files.num_rows:
            return self
        segments = [*self.segments, _Segment.of(files.files, self.location, files.hashes)]
        # Each segment has at least twice as many rows as the next, so there are few segments and a row is seldom copied.
        while len(segments) > 1 and len(segments[-2]) < 2 * len(segments[-1]):
            last, previous = segments.pop(), segments.pop()
            hashes = np.concatenate([previous.live_hashes(), last.live_hashes()])
            segments.append(_Segment.of(pa.concat_tables([previous.table(), last.table()]), self.location, hashes))
        return replace(self, segments=tuple(segments))
