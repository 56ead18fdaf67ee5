"""Rows of Arrow by their keys: which of them has the key of another row.

Keys are numbers, texts, dates, times, booleans and bytes, compared as they are, but NaN equals NaN, and -0.0 equals 0.0. NULL
equals nothing, unless a column is null-safe.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

_Codes = npt.NDArray[np.int64]

NO_ROW = -1
"""For a row whose key no row has."""


@dataclass(frozen=True, slots=True)
class _Column:
    """One key column: its distinct values, and the numbers of pairs of a value and what the columns before have."""

    values: pa.Array
    pairs: _Codes
    has_nulls: bool

    def codes(self, before: _Codes, keys: pa.Array) -> _Codes:
        """Equal numbers for rows with equal keys up to this column; :data:`NO_ROW` for keys that no row has."""
        places = _indices(keys, self.values, has_nulls=self.has_nulls)
        pairs = np.where((before < 0) | (places < 0), NO_ROW, before * len(self.values) + places)
        return _places(self.pairs, pairs)


@dataclass(frozen=True)
class KeyedRows:
    """Rows with key columns.

    Attributes:
        rows: whose columns are not chunked.
        names: of the key columns.
        null_safe: the key columns in which NULL equals NULL.
    """

    rows: pa.Table
    names: Sequence[str]
    null_safe: Collection[str] = ()
    _columns: list[_Column] = field(default_factory=list, init=False)

    @cached_property
    def _codes(self) -> _Codes:
        """A number for each row, equal for equal keys; :data:`NO_ROW` for a key that equals nothing."""
        codes = np.zeros(self.rows.num_rows, np.int64)
        for name in self.names:
            keys = _with_one_form(self.rows[name].combine_chunks())
            has_nulls = name in self.null_safe
            values = pc.unique(keys) if has_nulls else pc.unique(keys).drop_null()
            places = _indices(keys, values, has_nulls=has_nulls)
            pairs = np.where((codes < 0) | (places < 0), NO_ROW, codes * max(1, len(values)) + places)
            column = _Column(values, np.unique(pairs[pairs >= 0]), has_nulls)
            codes = _places(column.pairs, pairs)
            self._columns.append(column)
        return codes

    @cached_property
    def _order(self) -> tuple[_Codes, _Codes]:
        """The codes of complete keys in order, and their rows."""
        codes = self._codes
        rows = np.flatnonzero(codes >= 0)
        order = rows[np.argsort(codes[rows], kind="stable")]
        return codes[order], order

    @cached_property
    def duplicate(self) -> int | None:
        """A row whose key another row has too; None if there is none."""
        codes, order = self._order
        same = np.flatnonzero(codes[1:] == codes[:-1])
        return int(order[same[0]]) if len(same) else None

    def find(self, keys: Sequence[pa.Array]) -> tuple[_Codes, _Codes]:
        """The pairs of other rows and rows with their keys: the places of the other rows, in order, and the rows.

        Args:
            keys: the key columns of the other rows, with the types of those of these rows.
        """
        codes, order = self._order
        codes_of_keys = np.zeros(len(keys[0]), np.int64)
        for column, values in zip(self._columns, keys, strict=True):
            codes_of_keys = column.codes(codes_of_keys, values)
        first = _places(codes, codes_of_keys)
        others = np.flatnonzero(first >= 0)
        first = first[others]
        if self.duplicate is None:
            return others, order[first]
        counts = np.searchsorted(codes, codes_of_keys[others], side="right") - first
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(others, counts), order[np.repeat(first, counts) + offsets]

    def pairs(self, batches: Iterable[pa.RecordBatch]) -> "Iterator[PairedRows]":
        """All other rows, in the same batches, and their pairs with these rows.

        Args:
            batches: with key columns of the names of those of these rows.
        """
        for batch in batches:
            yield PairedRows(batch, *self.find(key_columns(batch, self.rows, self.names)))

    def bounds(self, listed: Sequence[str], most: int) -> dict[str, Any]:
        """Bounds of the complete keys; see :func:`key_bounds`."""
        return key_bounds(self.rows, self.names, self.null_safe, listed, most)


class PairedRows(NamedTuple):
    """Pairs of other rows and rows with their keys: the places of the other rows in their batch, in order, and the rows."""

    batch: pa.RecordBatch
    places: _Codes
    rows: _Codes


def key_columns(batch: pa.RecordBatch, rows: pa.Table, names: Sequence[str]) -> list[pa.Array]:
    """The key columns of a batch, with the types of those of ``rows``, in a form in which equal keys have the same bytes."""
    return [_with_one_form(batch.column(name).cast(rows.schema.field(name).type)) for name in names]


def _with_one_form(keys: pa.Array) -> pa.Array:
    if not pat.is_floating(keys.type):
        return keys
    numbers = pc.add(keys, pa.scalar(0.0, keys.type))  # -0.0 + 0.0 is 0.0.
    return pc.if_else(pc.is_nan(numbers), pa.scalar(float("nan"), keys.type), numbers)


def key_bounds(
    rows: pa.Table, names: Sequence[str], null_safe: Collection[str], listed: Sequence[str], most: int
) -> dict[str, Any]:
    """Bounds of the complete keys of rows as ``protocol.predicates.key_ranges.key_range`` takes them.

    Args:
        names: of the key columns; ``null_safe`` those in which NULL equals NULL.
        listed: key columns of which the first ``most`` values are listed too.
    """
    bounds: dict[str, Any] = {}
    for place, name in enumerate(names):
        parts, firsts = [], []
        for batch in rows.select(list(names)).to_batches():
            values = _comparable(_complete(batch, names, null_safe).column(name))
            if values is None or values.null_count:  # Rows with NULL are outside of any range.
                break
            least = pc.min_max(values)
            parts.append(pa.array([least["min"], least["max"]], values.type))
            if name in listed:
                firsts.append(_first_values(values, most))
        else:
            least = pc.min_max(pa.concat_arrays(parts)) if parts else None
            bounds[f"min_k{place}"] = None if least is None else _form(least["min"])
            bounds[f"max_k{place}"] = None if least is None else _form(least["max"])
            if name in listed:
                values = _first_values(pa.concat_arrays(firsts), most) if firsts else ()
                bounds[f"all_k{place}"] = [_form(value) for value in values]
    return bounds


def _complete(rows: pa.RecordBatch, names: Sequence[str], null_safe: Collection[str]) -> pa.RecordBatch:
    """The rows whose keys equal something."""
    for name in names:
        if name not in null_safe and rows.column(name).null_count:
            rows = rows.filter(rows.column(name).is_valid())
    return rows


def _first_values(values: pa.Array, most: int) -> pa.Array:
    distinct = pc.unique(values)
    return distinct.take(pc.array_sort_indices(distinct)).slice(0, most)


def _indices(keys: pa.Array, values: pa.Array, *, has_nulls: bool) -> _Codes:
    """The place of each key among values; :data:`NO_ROW` for keys that are not among them."""
    places = pc.index_in(keys, value_set=values, skip_nulls=not has_nulls)
    numbers: _Codes = places.fill_null(NO_ROW).to_numpy(zero_copy_only=False)
    return numbers


def _places(ordered: _Codes, codes: _Codes) -> _Codes:
    """The place of each code among ``ordered`` ones; :data:`NO_ROW` for codes that are not among them."""
    if not len(ordered):
        return np.full(len(codes), NO_ROW, np.int64)
    places = np.searchsorted(ordered, codes)
    places[places == len(ordered)] = 0
    return np.where(ordered[places] == codes, places, NO_ROW)


def _comparable(keys: pa.Array) -> pa.Array | None:
    """Keys in a form in which Python holds all values; None for keys without a range."""
    if pat.is_timestamp(keys.type):
        return keys if keys.type.tz is None else keys.cast(pa.int64())
    if pat.is_date(keys.type):
        return keys.cast(pa.int32())
    is_number = pat.is_integer(keys.type) or pat.is_decimal(keys.type) or pat.is_boolean(keys.type)
    has_range = is_number or pat.is_string(keys.type) or pat.is_binary(keys.type)
    return keys if has_range else None


def _form(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    return str(value.cast(pa.string())) if pat.is_timestamp(value.type) else value.as_py()
