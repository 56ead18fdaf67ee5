"""Reads many ``stats`` texts of few shapes without a parser (protocol heading "Per-file Statistics").

The statistics of a table usually have the same keys in the same order, and many have the same length. Texts that differ only in
digits and in letters of strings form a rectangle of bytes, which is compared column by column. Every byte of a text is verified
against a text that was parsed: it is equal, or both are digits, or both are plain letters in a string. All other texts are
left to the parser.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from cm_delta_dagster.protocol.actions.json_fast_path import json_leaves, object_with_unique_keys

MIN_TEXTS = 256
"""The parser is faster for fewer texts."""

_Path: TypeAlias = tuple[str, ...]

_BLOCK_BYTES = 1 << 22
"""Fits into the processor's cache and is large enough to outweigh the overhead of the interpreter."""
_BLOCK_TEXTS = 16 * 1024
_PART_TEXTS = 64 * 1024
_THREADS = 4
_MAX_SHAPES = 8
"""Limit per block and length of text."""
_MIN_TEXTS_OF_LENGTH = 16
"""Fewer texts of the same length are left to the parser."""
_MIN_HALVED_ROWS = 64
_TRIAL_TEXTS = 32 * 1024
"""If the fast path has read less than half of this many texts, it leaves the others to the parser."""
_MAX_DIGITS = 18
_WORD = 8
_QUOTE, _BACKSLASH, _ZERO, _NINE, _SPACE = b'"\\09 '
_NUMBER = re.compile(rb"-?([0-9]+)(?:\.([0-9]+))?(?:[eE][+-]?([0-9]+))?")
_INTEGER = re.compile(rb"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class ScannedTexts:
    """Values that were read, as ``columns``.

    ``is_unread`` has an item for each text; it is true for the texts that the parser must read, for which the columns are null.
    """

    columns: Mapping[_Path, pa.Array]
    is_unread: np.ndarray


def scan_texts(chunks: Sequence[pa.Array], wanted: Mapping[_Path, pa.DataType]) -> ScannedTexts:
    """Read the ``wanted`` values of JSON texts; null where a text lacks a value.

    Args:
        chunks: the texts, as ``string`` or ``large_string``.
        wanted: paths of keys, and the type of the value: int64, float or string. Texts with a value of another type are left to
            the parser.
    """
    parts = _parts(chunks)
    if len(parts) == 1:
        scans = [_Scan(wanted).read_all(parts[0])]
    else:
        with ThreadPoolExecutor(max_workers=len(parts)) as pool:
            scans = list(pool.map(lambda part: _Scan(wanted).read_all(part), parts))
    columns = {
        path: pa.concat_arrays([pa.nulls(0, kind), *(values[number] for scan in scans for values in scan.values)])
        for number, (path, kind) in enumerate(wanted.items())
    }
    return ScannedTexts(columns, np.concatenate([scan.unread_mask() for scan in scans]))


def _parts(chunks: Sequence[pa.Array]) -> list[list[pa.Array]]:
    """Divide the chunks, in order, among a few threads. Operations on blocks release the interpreter lock."""
    count = sum(map(len, chunks))
    size = max(_PART_TEXTS, -(-count // _THREADS))
    parts: list[list[pa.Array]] = [[]]
    for chunk in chunks:
        if sum(map(len, parts[-1])) >= size:
            parts.append([])
        parts[-1].append(chunk)
    return parts


@dataclass(slots=True)
class _Scan:
    """Collects pieces, i.e. row numbers and their values, in the order in which they are read."""

    wanted: Mapping[_Path, pa.DataType]
    shapes: dict[int, list["_Shape"]] = field(default_factory=dict)
    rows: list[np.ndarray] = field(default_factory=list)
    values: list[list[pa.Array]] = field(default_factory=list)
    left: list[np.ndarray] = field(default_factory=list)
    constants: dict[tuple[_Path, bytes], pa.Scalar] = field(default_factory=dict)
    count: int = 0
    seen: int = 0
    read: int = 0

    def read_all(self, chunks: Sequence[pa.Array]) -> "_Scan":
        for chunk in chunks:
            self.add(chunk, self.count)
            self.count += len(chunk)
        return self

    def unread_mask(self) -> np.ndarray:
        """One boolean per text: true if it is left to the parser."""
        left = np.zeros(self.count, dtype=bool)
        left[_joined(self.left)] = True
        return left

    def add(self, texts: pa.Array, first: int) -> None:
        """Read ``texts``, whose row numbers start at ``first``."""
        if texts.null_count:
            valid = texts.is_valid().to_numpy(zero_copy_only=False)
            absent = np.flatnonzero(~valid)
            pieces = len(self.rows)
            self._keep_nothing(first + absent)
            self._add(texts.drop_null(), first + np.flatnonzero(valid))
            self._put_in_order(pieces)
        else:
            self._add(texts, np.arange(first, first + len(texts)))

    def _add(self, texts: pa.Array, rows: np.ndarray) -> None:
        if not len(texts):
            return
        width = max(1, _data(texts)[1] // len(texts))
        size = min(max(_MIN_TEXTS_OF_LENGTH, _BLOCK_BYTES // width), _BLOCK_TEXTS)
        for start in range(0, len(texts), size):
            if self.seen >= _TRIAL_TEXTS and 2 * self.read < self.seen:
                self._leave(rows[start:])
                return
            pieces = len(self.rows)
            self._add_block(texts.slice(start, size), rows[start : start + size])
            self._put_in_order(pieces)

    def _put_in_order(self, first: int) -> None:
        """Merge the pieces from number ``first`` on and sort them by row number."""
        rows = _joined(self.rows[first:])
        if (rows[1:] > rows[:-1]).all():
            return
        order = np.argsort(rows)
        values = zip(*self.values[first:], strict=True)
        del self.rows[first:]
        self.values[first:] = [[pa.concat_arrays(pieces).take(pa.array(order)) for pieces in values]]
        self.rows.append(rows[order])

    def _add_block(self, texts: pa.Array, rows: np.ndarray) -> None:
        self.seen += len(texts)
        lengths = np.diff(_offsets(texts))
        if lengths.min() != lengths.max():
            order = np.argsort(lengths, kind="stable")
            texts, rows, lengths = texts.take(pa.array(order)), rows[order], lengths[order]
        data = texts.buffers()[2]
        if data is None:
            self._leave(rows)
            return
        start = int(_offsets(texts)[0])
        edges = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(rows)]
        for low, high in pairwise(edges):
            length = int(lengths[low])
            if high - low < _MIN_TEXTS_OF_LENGTH or length < _WORD:
                self._leave(rows[low:high])
            else:
                letters = np.ndarray(shape=(high - low, length), dtype=np.uint8, buffer=data, offset=start)
                self._add_rectangle(letters, rows[low:high])
            start += length * (high - low)

    def _add_rectangle(self, letters: np.ndarray, rows: np.ndarray) -> None:
        """``letters`` has one text per row."""
        known = self.shapes.setdefault(letters.shape[1], [])
        untried = list(known)
        for _ in range(_MAX_SHAPES):
            if untried:
                shape = untried.pop(0)
            else:
                found = _Shape.of(letters[0].tobytes(), self.wanted)
                if found is None:
                    break
                shape = found
                known.insert(0, shape)
                del known[_MAX_SHAPES:]
            low, high = _by_columns(np.minimum, letters), _by_columns(np.maximum, letters)
            if shape.fits_all(letters, low, high):
                self._keep_values(shape, letters, low == high, rows)
                return
            fits = shape.fits(letters)
            if fits.any():
                fitting = letters[fits]
                self._keep_values(shape, fitting, fitting.min(axis=0) == fitting.max(axis=0), rows[fits])
                letters, rows = letters[~fits], rows[~fits]
            if len(rows) < _MIN_TEXTS_OF_LENGTH:
                break
        self._leave(rows)

    def _keep_values(self, shape: "_Shape", letters: np.ndarray, same: np.ndarray, rows: np.ndarray) -> None:
        try:
            values = [self._values(shape, letters, same, path) for path in self.wanted]
        except ValueError:  # Raised by Arrow, or for a text that is not UTF-8.
            self._leave(rows)
            return
        self._keep(rows, values)
        self.read += len(rows)

    def _values(self, shape: "_Shape", letters: np.ndarray, same: np.ndarray, path: _Path) -> pa.Array:
        kind, place = self.wanted[path], shape.leaves.get(path)
        if place is None:
            return pa.nulls(len(letters), kind)
        start, end = place
        if not same[start:end].all():
            return _varied(letters, same, start, end, kind)
        token = letters[0, start:end].tobytes()
        if (path, token) not in self.constants:
            self.constants[path, token] = _scalar(token, kind)
        return pa.repeat(self.constants[path, token], len(letters))

    def _keep(self, rows: np.ndarray, values: list[pa.Array]) -> None:
        self.rows.append(rows)
        self.values.append(values)

    def _keep_nothing(self, rows: np.ndarray) -> None:
        self._keep(rows, [pa.nulls(len(rows), kind) for kind in self.wanted.values()])

    def _leave(self, rows: np.ndarray) -> None:
        self.left.append(rows)
        self._keep_nothing(rows)


def _by_columns(combine: np.ufunc, letters: np.ndarray) -> np.ndarray:
    """``combine.reduce(letters, axis=0)`` in half the time: combines halves of the array instead of single rows."""
    while len(letters) > _MIN_HALVED_ROWS:
        half = len(letters) // 2
        rest = letters[2 * half :]
        letters = combine(letters[:half], letters[half : 2 * half])
        if len(rest):
            combine(letters[0], rest[0], out=letters[0])
    least: np.ndarray = combine.reduce(letters, axis=0)
    return least


def _joined(rows: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *rows])


def _offsets(texts: pa.Array) -> np.ndarray:
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    return np.frombuffer(texts.buffers()[1], width)[texts.offset : texts.offset + len(texts) + 1]


def _data(texts: pa.Array) -> tuple[int, int]:
    """Offset and number of the bytes of the texts."""
    offsets = _offsets(texts)
    return int(offsets[0]), int(offsets[-1] - offsets[0])


@dataclass(frozen=True, slots=True)
class _Shape:
    """A pattern for texts of the same length.

    ``text`` is an example. The other arrays mark the positions of its bytes. A ``fixed`` byte is the same in all texts. A byte of
    ``digits`` is a digit of a number; ``leading`` marks the first digits, which must not be zero. A ``plain`` byte is a letter of a
    string. ``leaves`` has the start and the end (exclusive) of each value.
    """

    text: np.ndarray
    fixed: np.ndarray
    digits: np.ndarray
    leading: np.ndarray
    plain: np.ndarray
    leaves: Mapping[_Path, tuple[int, int]]

    @classmethod
    def of(cls, text: bytes, wanted: Mapping[_Path, pa.DataType]) -> "_Shape | None":
        """The shape of a text; None if it is not plain JSON or has a value of another type than wanted."""
        if object_with_unique_keys(text) is None:
            return None
        tokens = json_leaves(text)
        if tokens is None:
            return None
        digits, leading, plain = (np.zeros(len(text), dtype=bool) for _ in range(3))
        leaves = {}
        for path, token, start in tokens:
            leaves[path] = (start, start + len(token))
            if token.startswith(b'"'):
                plain[start + 1 : start + len(token) - 1] = b"\\" not in token
            elif (number := _NUMBER.fullmatch(token)) is not None:
                for group in range(1, 4):
                    digits[start + max(0, number.start(group)) : start + max(0, number.end(group))] = True
                leading[start + number.start(1)] = len(number[1]) > 1
        if not all(_is_kind(text, leaves, path, kind) for path, kind in wanted.items()):
            return None
        return cls(np.frombuffer(text, np.uint8), ~(digits | plain), digits, leading, plain, leaves)

    def fits_all(self, letters: np.ndarray, low: np.ndarray, high: np.ndarray) -> bool:
        """Whether all rows of ``letters`` have this shape; ``low`` and ``high`` are the bounds of its columns."""
        same = low == high
        if not (same & (low == self.text))[self.fixed].all():
            return False
        if (low[self.digits] < _ZERO).any() or (high[self.digits] > _NINE).any() or (low[self.leading] == _ZERO).any():
            return False
        # Constant columns are checked by their only letter.
        special = self.plain & (low < _SPACE) | self.plain & same & ((low == _QUOTE) | (low == _BACKSLASH))
        if special.any():
            return False
        varied = letters[:, np.flatnonzero(self.plain & ~same)]
        return not ((varied == _QUOTE) | (varied == _BACKSLASH)).any()

    def fits(self, letters: np.ndarray) -> np.ndarray:
        """One boolean per row of ``letters``: whether it has this shape."""
        fine = (letters == self.text) & self.fixed
        fine |= (letters >= _ZERO) & (letters <= _NINE) & self.digits & ~((letters == _ZERO) & self.leading)
        fine |= (letters >= _SPACE) & (letters != _QUOTE) & (letters != _BACKSLASH) & self.plain
        answer: np.ndarray = fine.all(axis=1)
        return answer


def _is_kind(text: bytes, leaves: Mapping[_Path, tuple[int, int]], path: _Path, kind: pa.DataType) -> bool:
    """Whether the value at ``path`` has the type ``kind``, is null or is absent."""
    if path not in leaves:
        return not any(other[: len(path)] == path for other in leaves)
    start, end = leaves[path]
    token = text[start:end]
    if token == b"null":
        return True
    if pa.types.is_integer(kind):
        return _INTEGER.fullmatch(token) is not None and start >= _WORD
    if pa.types.is_floating(kind):
        return _NUMBER.fullmatch(token) is not None
    return pa.types.is_string(kind) and token.startswith(b'"')


def _varied(letters: np.ndarray, same: np.ndarray, start: int, end: int, kind: pa.DataType) -> pa.Array:
    """The values in columns ``start`` to ``end``; ``same`` is true for constant columns.

    Raises ArrowInvalid for a value that cannot be converted to ``kind``.
    """
    if pa.types.is_integer(kind):
        return pa.array(_integers(letters, start + int(same[start:end].argmin()), start, end))
    if pa.types.is_string(kind):
        start, end = start + 1, end - 1
    part = np.ascontiguousarray(letters[:, start:end])
    texts = pa.Array.from_buffers(pa.binary(end - start), len(letters), [None, pa.py_buffer(part)])
    return texts.cast(pa.binary()).cast(pa.string()).cast(kind)


def _scalar(token: bytes, kind: pa.DataType) -> pa.Scalar:
    if token == b"null":
        return pa.scalar(None, kind)
    if pa.types.is_string(kind):
        return pa.scalar(json.loads(token), kind)
    return pa.scalar(token.decode(), pa.string()).cast(kind)


_ZEROS = np.uint64(int.from_bytes(b"00000000", "little"))
_STEPS = (
    (np.uint64(10), np.uint64(8), np.uint64(0x00FF00FF00FF00FF)),
    (np.uint64(100), np.uint64(16), np.uint64(0x0000FFFF0000FFFF)),
    (np.uint64(10_000), np.uint64(32), np.uint64(0x00000000FFFFFFFF)),
)


def _integers(letters: np.ndarray, varied: int, start: int, end: int) -> np.ndarray:
    """The integers in columns ``start`` to ``end``; the columns before ``varied`` are constant."""
    head = letters[0, start:varied].tobytes()
    is_negative = head.startswith(b"-")
    total = np.full(len(letters), abs(int(head)) if head.strip(b"-") else 0, dtype=np.int64)
    cuts = [varied, *range(end - (end - varied - 1) // _WORD * _WORD, end + 1, _WORD)]
    for low, high in pairwise(cuts):
        total *= 10 ** (high - low)
        total += _up_to_eight_digits(letters, low, high)
    return -total if is_negative else total


def _up_to_eight_digits(letters: np.ndarray, start: int, end: int) -> np.ndarray:
    count, length = letters.shape
    places = np.ndarray(shape=(count,), dtype="<u8", buffer=letters, offset=end - _WORD, strides=(length,))
    # The low bytes precede the number; they are replaced by zeros.
    others = np.uint64((1 << 8 * (_WORD - (end - start))) - 1)
    words = (places & ~others) | (_ZEROS & others)
    words -= _ZEROS
    for factor, shift, mask in _STEPS:
        words = (words * factor + (words >> shift)) & mask
    return words.view(np.int64)
