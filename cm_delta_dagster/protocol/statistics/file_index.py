"""Caches parsed columns of file actions (protocol headings "Per-file Statistics", "Partition Value Serialization").

A :class:`FileIndex` caches the partition values and statistics that predicates needed for one table of files. The cache is keyed
by the chunks of the Arrow columns. A table that shares chunks with the previous one, as after a commit of a few files, is
parsed only where it differs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from cm_delta_dagster.protocol.actions.file_columns import partition_texts
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import DataType
from cm_delta_dagster.protocol.statistics.stats_json import ParsedStatistics, parse_statistics

MAX_COLUMNS = 8
"""Maximum number of cached statistics columns; each takes about 25 bytes per file, more for strings."""

CHUNK_ROWS = 65_536
"""Longer chunks are cached in slices of this length, so that a change within a chunk invalidates one slice only."""

_StatisticsColumn: TypeAlias = tuple[ColumnPath, DataType]
_ChunkKey: TypeAlias = tuple[int, int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Cached:
    """Parsed columns of the concatenated chunks. Holding the chunks keeps their memory addresses, and so ``keys``, valid."""

    chunks: tuple[pa.Array, ...]
    keys: tuple[_ChunkKey, ...]
    columns: Mapping[Any, tuple[pa.Array | None, ...]]

    def starts(self) -> dict[_ChunkKey, int]:
        lengths = np.cumsum([0, *(len(chunk) for chunk in self.chunks)])
        return dict(zip(self.keys, lengths.tolist(), strict=False))


_EMPTY = _Cached((), (), {})


class FileIndex:
    """Cache of parsed columns. Threads may share it: each lookup replaces the cached value and never modifies it."""

    __slots__ = ("_partitions", "_statistics")

    def __init__(self) -> None:
        self._partitions = _EMPTY
        self._statistics = _EMPTY

    def partition_values(self, files: pa.Table, physical_name: str) -> pa.DictionaryArray:
        """The text of a partition column for each file, dictionary-encoded; null for null and the empty string."""

        def parse(chunks: Sequence[pa.Array], columns: Sequence[str]) -> dict[str, tuple[pa.Array | None, ...]]:
            whole = pa.chunked_array(chunks)
            return {name: (partition_texts(whole, name).dictionary_encode(),) for name in columns}

        self._partitions = cached = _extended(self._partitions, files["partitionValues"], [physical_name], parse)
        (values,) = cached.columns[physical_name]
        return values

    def has_statistics(self, files: pa.Table, columns: Mapping[ColumnPath, DataType]) -> bool:
        """Whether the statistics of the ``columns`` of ``files`` are cached."""
        cached = self._statistics
        return all(column in cached.columns for column in columns.items()) and cached.keys == _keys(
            _pieces(files["stats"])
        )

    def statistics(self, files: pa.Table, columns: Mapping[ColumnPath, DataType]) -> ParsedStatistics:
        """Result of ``parse_statistics`` for the ``stats`` of ``files``, from the cache where possible."""

        def parse(
            chunks: Sequence[pa.Array], columns: Sequence[_StatisticsColumn | None]
        ) -> dict[_StatisticsColumn | None, tuple[pa.Array | None, ...]]:
            values: dict[_StatisticsColumn | None, tuple[pa.Array | None, ...]] = {}
            for kinds in _with_one_type([column for column in columns if column is not None]):
                parsed = parse_statistics(pa.chunked_array(chunks), kinds)
                values[None] = (parsed.num_records,)
                for path, kind in kinds.items():
                    bounds = parsed.minimums.get(path), parsed.maximums.get(path)
                    values[(path, kind)] = (*bounds, parsed.null_counts[path])
            return values

        self._statistics = cached = _extended(self._statistics, files["stats"], [None, *columns.items()], parse)
        values_by_path = {path: cached.columns[(path, kind)] for path, kind in columns.items()}
        (num_records,) = cached.columns[None]
        return ParsedStatistics(
            num_records=num_records,
            minimums={path: values[0] for path, values in values_by_path.items() if values[0] is not None},
            maximums={path: values[1] for path, values in values_by_path.items() if values[1] is not None},
            null_counts={path: values[2] for path, values in values_by_path.items()},
        )


def _with_one_type(columns: Sequence[_StatisticsColumn]) -> list[dict[ColumnPath, DataType]]:
    """The types by column, in several parts if a column has several types: a widened one is cached under each of its types."""
    parts: list[dict[ColumnPath, DataType]] = [{}]
    for path, kind in columns:
        part = next((part for part in parts if path not in part), None)
        if part is None:
            parts.append(part := {})
        part[path] = kind
    return parts


def _pieces(column: pa.ChunkedArray) -> list[pa.Array]:
    starts = ((chunk, start) for chunk in column.chunks for start in range(0, len(chunk), CHUNK_ROWS))
    return [chunk.slice(start, CHUNK_ROWS) for chunk, start in starts] or [pa.array([], column.type)]


def _keys(chunks: Sequence[pa.Array]) -> tuple[_ChunkKey, ...]:
    """Identities of chunks: two keys are equal only if the chunks are the same bytes in memory."""
    return tuple(
        (chunk.offset, len(chunk), tuple(0 if buffer is None else buffer.address for buffer in chunk.buffers()))
        for chunk in chunks
    )


def _extended(
    cached: _Cached,
    column: pa.ChunkedArray,
    requested: Sequence[Any],
    parse: Callable[[Sequence[pa.Array], Sequence[Any]], Mapping[Any, tuple[pa.Array | None, ...]]],
) -> _Cached:
    """``cached`` updated to the chunks of ``column`` and at least the ``requested`` columns."""
    chunks = _pieces(column)
    keys = _keys(chunks)
    missing = [name for name in requested if name not in cached.columns]
    if keys == cached.keys and not missing:
        return cached
    kept = [name for name in cached.columns if name not in requested][-MAX_COLUMNS:]
    kept = [
        *kept[max(0, len(kept) + len(requested) - MAX_COLUMNS) :],
        *(name for name in requested if name in cached.columns),
    ]
    columns: dict[Any, tuple[pa.Array | None, ...]] = {}
    if kept:
        columns.update(cached.columns if keys == cached.keys else _carried(cached, chunks, keys, kept, parse))
    if missing:
        columns.update(parse(column.chunks or chunks, missing))
    return _Cached(tuple(chunks), keys, {name: columns[name] for name in (*kept, *missing)})


def _carried(
    cached: _Cached,
    chunks: Sequence[pa.Array],
    keys: Sequence[_ChunkKey],
    names: Sequence[Any],
    parse: Callable[[Sequence[pa.Array], Sequence[Any]], Mapping[Any, tuple[pa.Array | None, ...]]],
) -> dict[Any, tuple[pa.Array | None, ...]]:
    """Columns of ``chunks``, parsed only where they are not in ``cached``."""
    starts = cached.starts()
    others = [chunk for chunk, key in zip(chunks, keys, strict=True) if key not in starts]
    parsed = parse(others, names) if others else {}
    carried: dict[Any, tuple[pa.Array | None, ...]] = {}
    for name in names:
        arrays = []
        for position, old in enumerate(cached.columns[name]):
            new = parsed[name][position] if others else None
            arrays.append(None if old is None else _joined(old, new, chunks, keys, starts))
        carried[name] = tuple(arrays)
    return carried


def _joined(
    old: pa.Array,
    new: pa.Array | None,
    chunks: Sequence[pa.Array],
    keys: Sequence[_ChunkKey],
    starts: Mapping[Any, int],
) -> pa.Array:
    pieces, position = [], 0
    for chunk, key in zip(chunks, keys, strict=True):
        if key in starts:
            pieces.append(old.slice(starts[key], len(chunk)))
        else:
            assert new is not None
            pieces.append(new.slice(position, len(chunk)))
            position += len(chunk)
    if pa.types.is_dictionary(old.type):
        # Each distinct value is compared once, so the dictionaries of the chunks are merged.
        pieces = pa.chunked_array(pieces).unify_dictionaries().chunks
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
