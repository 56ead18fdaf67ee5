"""File actions of one layout: conversion of JSON lines that differ only in their values.

Most lines of a commit have the same keys in the same order. The text between the values is then the same in all of them, and
comparing it takes a fraction of the time of parsing. Every byte of a line is checked: it is part of that constant text, or part of
a value that consists of plain characters, digits or escaped quotes only. Lines that differ in any other way are left to another
layout or to a parser. Protocol heading "Add File and Remove File".
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

MIN_ROWS = 256
"""With fewer lines parsing is as fast."""

_FEW_LINES = 32
"""With fewer lines of one layout the search does not pay off."""
_MAX_LENGTHS = 64
_MAX_DIGITS = 18
_WORD = 8
_QUOTE, _BACKSLASH, _ZERO, _NINE = b'"\\09'
_MAX_VALUE = 64 * 1024
_BLOCK = 1 << 20
_FIRST_PRINTABLE = 0x20
_TOKEN = re.compile(rb'[ \t]*("(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null|[{}:,])')


@dataclass(frozen=True, slots=True)
class _Slot:
    """A value that may differ from line to line: of a field, or of ``key`` in a map or struct field."""

    field: str
    key: str | None
    is_text: bool


@dataclass(frozen=True, slots=True)
class _Layout:
    """A layout of lines. ``texts`` are the constant parts before, between and after the values of ``slots``; ``lengths`` are
    those of the values in the first line; ``constants`` are the fields of the first line.
    """

    texts: tuple[bytes, ...]
    slots: tuple[_Slot, ...]
    lengths: tuple[int, ...]
    constants: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UniformLines:
    """The lines of one layout, in order, as ``rows``.

    ``is_uniform`` has an item for each line of the text; it is true for the lines that are in ``rows``.
    """

    rows: pa.StructArray
    is_uniform: np.ndarray


def parse_uniform(
    data: bytes, starts: np.ndarray, ends: np.ndarray, *, action: str, schema: pa.Schema
) -> UniformLines | None:
    """The lines of ``data`` that have the layout of the first line.

    Maps are returned as structs of strings, other columns as in ``schema``; fields that no line has are omitted. None if the
    layout of the first line is not supported, or too few lines have it.

    Args:
        data: the content of a commit.
        starts: position of the first byte of each line, ascending; at least one line.
        ends: position after the last byte of each line, without its newline.
        action: the only key of each line.
        schema: fields of the action.
    """
    layout = _layout_of(data[starts[0] : ends[0]], action, schema)
    if layout is None or len(data) >= 2**31:
        return None
    search = _Search.of(data, layout, starts, ends)
    if search is None:
        return None
    try:
        texts = [_texts(data, *span) for span in search.spans]
        plain = np.ones(len(search.lines), dtype=bool)
        for slot, column in zip(layout.slots, texts, strict=True):
            plain[_odd_rows(slot, column)] = False
        lines = search.lines[plain]
        if len(lines) < len(search.lines):
            texts = [column.filter(pa.array(plain)) for column in texts]
        if not len(lines):
            return None
        values = [_values(slot, column) for slot, column in zip(layout.slots, texts, strict=True)]
        rows = _assembled(layout, values, schema, len(lines))
    except (pa.ArrowException, UnicodeEncodeError):  # A lone surrogate raises UnicodeEncodeError.
        return None
    is_uniform = np.zeros(len(starts), dtype=bool)
    is_uniform[lines] = True
    return UniformLines(rows, is_uniform)


def _layout_of(line: bytes, action: str, schema: pa.Schema) -> _Layout | None:
    actions = object_with_unique_keys(line)
    if actions is None or len(actions) != 1 or not isinstance(fields := actions.get(action), dict):
        return None
    tokens = json_leaves(line)
    if tokens is None:
        return None
    texts, slots, lengths, previous = [], [], [], 0
    for path, token, start in tokens:
        slot = _slot_of(path[1:], token, schema)
        if slot is None:
            continue
        first, last = (start + 1, start + len(token) - 1) if slot.is_text else (start, start + len(token))
        texts.append(line[previous:first])
        slots.append(slot)
        lengths.append(last - first)
        previous = last
    if "path" not in {slot.field for slot in slots} or len(texts[0]) < _WORD:
        return None
    if any(fields.get(name) is not None and not isinstance(fields[name], kind) for name, kind in _constants(schema)):
        return None
    constants = {name: fields.get(name) for name in schema.names}
    found = {(slot.field, slot.key) for slot in slots}
    for field in schema:
        # If a map has values other than strings and null, a parser reads the line.
        values = (constants[field.name] or {}) if pa.types.is_map(field.type) else {}
        if any(value is not None and (field.name, key) not in found for key, value in values.items()):
            return None
    return _Layout((*texts, line[previous:]), tuple(slots), tuple(lengths), constants)


def _constants(schema: pa.Schema) -> Iterator[tuple[str, type]]:
    """The fields of ``schema``, each with the Python type that its value must have after JSON parsing."""
    for field in schema:
        if pa.types.is_boolean(field.type):
            yield field.name, bool
        elif pa.types.is_map(field.type) or pa.types.is_struct(field.type):
            yield field.name, dict
        elif pa.types.is_string(field.type):
            yield field.name, str
        elif pa.types.is_integer(field.type):
            yield field.name, int


def object_with_unique_keys(text: bytes) -> dict[str, Any] | None:
    """The JSON object ``text``; None for other text, and if it or an object inside of it has a key twice."""

    def unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(members)
        if len(found) != len(members):
            raise ValueError("a key occurs twice")
        return found

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_leaves(line: bytes) -> list[tuple[tuple[str, ...], bytes, int]] | None:
    """Path, text and position of each scalar of a JSON object; None if it contains an array or other unknown tokens."""
    found: list[tuple[tuple[str, ...], bytes, int]] = []
    path: list[str] = []
    position, is_key = 0, False
    while position < len(line):
        match = _TOKEN.match(line, position)
        if match is None:
            return None
        token, position = match[1], match.end()
        if token == b"{":
            path.append("")
            is_key = True
        elif token == b"}":
            path.pop()
        elif token == b",":
            is_key = True
        elif token != b":":
            if is_key:
                path[-1] = json.loads(token)
                is_key = False
            else:
                found.append((tuple(path), token, match.start(1)))
    return found


def _slot_of(path: tuple[str, ...], token: bytes, schema: pa.Schema) -> _Slot | None:
    """The slot of a value that may differ between lines; None if the value must be constant."""
    index = schema.get_field_index(path[0]) if path else -1
    if index < 0:
        return None
    kind, is_text = schema.field(index).type, token.startswith(b'"')
    if len(path) == 1 and pa.types.is_integer(kind) and not is_text and token != b"null":
        return _Slot(path[0], None, False)
    if len(path) == 1 and path[0] in ("path", "stats") and is_text:
        return _Slot(path[0], None, True)
    if len(path) == 2 and pa.types.is_map(kind) and is_text:
        return _Slot(path[0], path[1], True)
    if len(path) == 2 and pa.types.is_struct(kind) and kind.get_field_index(path[1]) >= 0 and token != b"null":
        # A string in a numeric child, or a number in a string child, must be constant.
        return _Slot(path[0], path[1], is_text) if is_text == pa.types.is_string(kind.field(path[1]).type) else None
    return None


class _Lines:
    """The bytes of a commit, with each eight consecutive bytes as an integer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._words = np.ndarray(shape=(len(data) - _WORD + 1,), dtype="<u8", buffer=data, strides=(1,))

    def _at(self, places: np.ndarray) -> np.ndarray:
        """The eight bytes at each position; arbitrary bytes if fewer than eight follow."""
        last = len(self._words) - 1
        if len(places) and (places.max() > last or places.min() < 0):
            places = places.clip(0, last)
        words: np.ndarray = self._words[places]
        return words

    def have(self, places: np.ndarray, text: bytes) -> np.ndarray:
        """Whether ``text`` is at each position."""
        if len(text) < _WORD:
            return self._ends_with(places + len(text), text)
        steps = [*range(0, len(text) - _WORD, _WORD), len(text) - _WORD]
        same = np.ones(len(places), dtype=bool)
        for step in steps:
            same &= self._at(places + step) == np.frombuffer(text, "<u8", 1, step)[0]
        return same

    def _ends_with(self, places: np.ndarray, text: bytes) -> np.ndarray:
        """Whether the last bytes of ``text``, at most eight, are before each position."""
        tail = text[-_WORD:]
        unread = np.uint64(8 * (_WORD - len(tail)))
        same: np.ndarray = self._at(places - _WORD) >> unread == np.uint64(int.from_bytes(tail, "little"))
        return same

    def lengths(self, places: np.ndarray, text: bytes, *, forward: bool) -> np.ndarray:
        """The lengths of the values that begin (or end) at ``places`` and are followed (or preceded) by ``text``; -1 if not found.

        The length of the first value is tried on all values, then the length of the first remaining value, and so on: paths,
        partition values and numbers have few different lengths. A wrong length gives a value with a quote or a value that is not
        a number, and :func:`_odd_rows` finds these.
        """
        lengths = np.full(len(places), -1, dtype=np.int64)
        rest = np.arange(len(places))
        near = text[:_WORD] if forward else text[-_WORD:]
        for _ in range(_MAX_LENGTHS):
            if not len(rest):
                break
            place = int(places[rest[0]])
            if forward:
                length = self._data.find(near, place, place + _MAX_VALUE) - place
            else:
                length = place - len(near) - self._data.rfind(near, max(0, place - _MAX_VALUE), place)
            if not 0 <= length <= _MAX_VALUE:
                rest = rest[1:]
                continue
            hit = self._ends_with(places[rest] + (length + len(near) if forward else -length), near)
            lengths[rest[hit]] = length
            rest = rest[~hit]
        return lengths


@dataclass(slots=True)
class _Search:
    """The lines that match a layout so far, and the positions of the values that were found in them.

    Values before the longest one are found from the front of the lines, values after it from the back, so the length of the
    longest value is not searched for.
    """

    lines: np.ndarray
    front: np.ndarray
    back: np.ndarray
    before: list[tuple[np.ndarray, np.ndarray]]
    behind: list[tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, data: bytes, layout: _Layout, starts: np.ndarray, ends: np.ndarray) -> "_Search | None":
        """The lines of ``layout``; None if there are too few."""
        search = cls(np.arange(len(starts)), starts, ends, [], [])
        lines, longest = _Lines(data), max(range(len(layout.slots)), key=lambda number: layout.lengths[number])
        search._from_the_front(lines, layout.texts, longest)
        search._from_the_back(lines, layout.texts, longest)
        search._keep(search.back >= search.front)
        return search if len(search.lines) >= min(_FEW_LINES, len(starts)) else None

    @property
    def spans(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Start and end positions of the values of each slot."""
        return [*self.before, (self.front, self.back), *reversed(self.behind)]

    def _from_the_front(self, lines: _Lines, texts: tuple[bytes, ...], longest: int) -> None:
        for number in range(longest + 1):
            self._keep(lines.have(self.front, texts[number]))
            self.front = self.front + len(texts[number])
            if number < longest:
                found = lines.lengths(self.front, texts[number + 1], forward=True)
                self.before.append((self.front, self.front + found))
                self.front = self.front + found
                self._keep(found >= 0)

    def _from_the_back(self, lines: _Lines, texts: tuple[bytes, ...], longest: int) -> None:
        for number in range(len(texts) - 1, longest, -1):
            self.back = self.back - len(texts[number])
            self._keep(lines.have(self.back, texts[number]))
            if number > longest + 1:
                found = lines.lengths(self.back, texts[number - 1], forward=False)
                self.behind.append((self.back - found, self.back))
                self.back = self.back - found
                self._keep(found >= 0)

    def _keep(self, mask: np.ndarray) -> None:
        if mask.all():
            return
        self.lines, self.front, self.back = self.lines[mask], self.front[mask], self.back[mask]
        self.before = [(first, end[mask]) for first, end in ((first[mask], end) for first, end in self.before)]
        self.behind = [(first, end[mask]) for first, end in ((first[mask], end) for first, end in self.behind)]


def _odd_rows(slot: _Slot, values: pa.Array) -> np.ndarray:
    """Rows whose value contains other than plain characters, digits or escaped quotes; may contain duplicates."""
    letters, offsets = _letters(values), _offsets(values).astype(np.int64)
    offsets -= offsets[0]
    if not slot.is_text:
        lengths = np.diff(offsets)
        places = np.flatnonzero((letters < _ZERO) | (letters > _NINE))
        is_long = (lengths < 1) | (lengths > _MAX_DIGITS)
        if len(letters):
            is_long |= (letters.take(offsets[:-1], mode="clip") == _ZERO) & (lengths > 1)
        return np.concatenate([_rows_at(offsets, places), np.flatnonzero(is_long)])
    odd = [_NO_PLACES]
    for first in range(0, len(letters), _BLOCK):
        # The block includes the next byte, because an escape may cross the end of the block.
        block = letters[first : first + _BLOCK + 1]
        quotes, backslashes = block == _QUOTE, block == _BACKSLASH
        if (block < _FIRST_PRINTABLE).any():
            odd.append(np.flatnonzero(block < _FIRST_PRINTABLE) + first)
        if slot.field != "stats" and backslashes.any():
            odd.append(np.flatnonzero(backslashes) + first)
        if not np.array_equal(quotes[1:], backslashes[:-1]):
            lone = np.flatnonzero(quotes[1:] != backslashes[:-1])
            odd += [lone[quotes[1:][lone]] + 1 + first, lone[backslashes[:-1][lone]] + first]
    # An escape that crosses the end of its value.
    inner = np.flatnonzero(offsets[1:] > offsets[:-1])
    ends = offsets[1:][inner] - 1
    firsts = offsets[:-1][inner]
    cut = inner[(letters[ends] == _BACKSLASH) | (letters[firsts] == _QUOTE)] if len(inner) else _NO_PLACES
    return np.concatenate([_rows_at(offsets, np.concatenate(odd)), cut])


_NO_PLACES = np.zeros(0, dtype=np.int64)


def _rows_at(offsets: np.ndarray, places: np.ndarray) -> np.ndarray:
    rows: np.ndarray = np.searchsorted(offsets, places, side="right") - 1
    return rows


def _values(slot: _Slot, values: pa.Array) -> pa.Array:
    """The column of one slot whose values are all plain."""
    if not slot.is_text:
        return values.cast(pa.string()).cast(pa.int64())
    letters = _letters(values)
    places = [
        np.flatnonzero(letters[first : first + _BLOCK] == _BACKSLASH) + first
        for first in range(0, len(letters), _BLOCK)
    ]
    escapes = np.concatenate([_NO_PLACES, *places]) if slot.field == "stats" else _NO_PLACES
    return _unescaped(letters, _offsets(values), escapes) if len(escapes) else values.cast(pa.string())


def _unescaped(letters: np.ndarray, offsets: np.ndarray, places: np.ndarray) -> pa.Array:
    """The texts without the backslashes at ``places``, all of which precede quotes."""
    offsets = offsets - offsets[0]
    shorter = (offsets - np.searchsorted(places, offsets)).astype(np.int32)
    text = letters.tobytes().translate(None, b"\\")
    kept = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(shorter), pa.py_buffer(text)])
    return kept.cast(pa.string())


def _texts(data: bytes, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
    """The bytes of each value."""
    # In this array values and the text between them alternate; take() copies each value once.
    bounds = np.empty(2 * len(starts), dtype=np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    alternating = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return alternating.take(pa.array(np.arange(0, len(bounds), 2)))


def _offsets(values: pa.Array) -> np.ndarray:
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]


def _letters(values: pa.Array) -> np.ndarray:
    offsets = _offsets(values)
    return np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]


def _assembled(layout: _Layout, values: list[pa.Array], schema: pa.Schema, count: int) -> pa.StructArray:
    """``count`` actions as structs: ``values`` has the parsed texts of each slot; the other fields are constants of the layout."""
    columns: dict[str, pa.Array] = {}
    maps: dict[str, dict[str, pa.Array]] = {}
    for slot, column in zip(layout.slots, values, strict=True):
        if slot.key is None:
            columns[slot.field] = column
        else:
            maps.setdefault(slot.field, {})[slot.key] = column
    for field in schema:
        if field.name in columns:
            continue
        constant = layout.constants[field.name]
        if pa.types.is_struct(field.type) and constant is not None:
            columns[field.name] = _nested(field.type, constant, maps.get(field.name, {}), count)
        elif pa.types.is_map(field.type) and constant is not None:
            found = maps.get(field.name, {})
            columns[field.name] = _struct({key: found.get(key) for key in constant}, count)
        elif constant is not None:
            columns[field.name] = pa.repeat(pa.scalar(constant, field.type), count)
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _nested(kind: pa.StructType, constants: dict[str, Any], columns: dict[str, pa.Array], count: int) -> pa.StructArray:
    """A struct column; fields without a column in ``columns`` have the same value in all rows."""
    arrays = [
        columns[item.name].cast(item.type)
        if item.name in columns
        else pa.repeat(pa.scalar(constants.get(item.name), item.type), count)
        for item in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _struct(columns: dict[str, pa.Array | None], count: int) -> pa.Array:
    arrays = [pa.nulls(count, pa.string()) if column is None else column for column in columns.values()]
    fields = [pa.field(name, pa.string()) for name in columns]
    if not arrays:
        return pa.repeat(pa.scalar({}, pa.struct([])), count)
    return pa.StructArray.from_arrays(arrays, fields=fields)
