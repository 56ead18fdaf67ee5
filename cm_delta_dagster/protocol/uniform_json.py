"""Many file actions of one layout: JSON lines that differ in values only, as a writer makes them. Room: protocol.

The lines of one commit mostly have the same keys in the same order. Then the text between the values is the same in all of
them, and finding out that it is takes a fraction of the time of parsing. Every byte of every line is accounted for: it is
part of such a text, or part of a value of which nothing but plain letters, digits or escaped quotes is accepted. A line that
is different in any way makes the answer None, and a parser has to read the lines.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

MIN_ROWS = 256
"""Fewer lines are parsed in no time."""

_MAX_LENGTHS = 64
_MAX_DIGITS = 18
_WORD = 8
_QUOTE, _BACKSLASH, _ZERO, _NINE = b'"\\09'
_MAX_VALUE = 64 * 1024
_BLOCK = 1 << 20
_FIRST_PRINTABLE = 0x20
_TOKEN = re.compile(rb'[ \t]*("(?:[^"\\]|\\.)*"|-?[0-9]+|true|false|null|[{}:,])')


@dataclass(frozen=True, slots=True)
class _Slot:
    """A value that differs from line to line: of a field, or of ``key`` in a field that is a map."""

    field: str
    key: str | None
    is_text: bool


@dataclass(frozen=True, slots=True)
class _Layout:
    """``texts`` has what stands before, between and after the values of ``slots``."""

    texts: tuple[bytes, ...]
    slots: tuple[_Slot, ...]
    lengths: tuple[int, ...]
    constants: dict[str, Any]


def parse_uniform(
    data: bytes, starts: np.ndarray, ends: np.ndarray, *, action: str, schema: pa.Schema
) -> pa.StructArray | None:
    """The lines of ``data`` from ``starts`` to ``ends`` as rows of a struct, or None where they are not all of one layout.

    Maps come as structs of strings, other columns as in ``schema``; fields that no line has are left out.

    Args:
        starts: in order, the first byte of each line; at least one.
        ends: the byte after the last one of each line, without its newline.
        action: the only key of each line.
    """
    layout = _layout_of(data[starts[0] : ends[0]], action, schema)
    if layout is None or len(data) >= 2**31:
        return None
    spans = _Lines(data).spans(layout, starts, ends)
    if spans is None:
        return None
    try:
        values = [_values(data, slot, *span) for slot, span in zip(layout.slots, spans, strict=True)]
    except pa.ArrowInvalid:
        return None
    if any(value is None for value in values):
        return None
    return _assembled(layout, values, schema, len(starts))


def _layout_of(line: bytes, action: str, schema: pa.Schema) -> _Layout | None:
    try:
        fields = json.loads(line)[action]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    texts, slots, lengths, previous = [], [], [], 0
    seen: set[tuple[str, ...]] = set()
    tokens = _leaves(line)
    if tokens is None:
        return None
    for path, token, start in tokens:
        if path in seen or path[0] != action:
            return None
        seen.add(path)
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
    if fields.get("deletionVector") is not None:
        return None
    constants = {name: fields.get(name) for name in schema.names}
    return _Layout((*texts, line[previous:]), tuple(slots), tuple(lengths), constants)


def _constants(schema: pa.Schema) -> Iterator[tuple[str, type]]:
    """Fields whose value may be the same in all lines only, and the type that it must have in JSON."""
    for field in schema:
        if pa.types.is_boolean(field.type):
            yield field.name, bool
        elif pa.types.is_map(field.type):
            yield field.name, dict
        elif pa.types.is_string(field.type):
            yield field.name, str
        elif pa.types.is_integer(field.type):
            yield field.name, int


def _leaves(line: bytes) -> list[tuple[tuple[str, ...], bytes, int]] | None:
    """Keys, text and place of each value of a line that is no object; None for a line that has more than objects in it."""
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
    """The slot for a value that may differ; None for one that must not."""
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
    return None


class _Lines:
    """The bytes of a commit, of which any eight are a number."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._words = np.ndarray(shape=(len(data) - _WORD + 1,), dtype="<u8", buffer=data, strides=(1,))

    def spans(
        self, layout: _Layout, starts: np.ndarray, ends: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]] | None:
        """First byte and end of the values of each slot.

        Values before the longest one are found from the front of the lines, those behind it from their back, so that its
        own length need not be found. None where a line has another text anywhere.
        """
        texts, slots, lengths = layout.texts, layout.slots, layout.lengths
        longest = max(range(len(slots)), key=lambda number: lengths[number])
        front, back = starts, ends
        before, behind = [], []
        for number in range(longest + 1):
            if not self._equal(front, texts[number]):
                return None
            front = front + len(texts[number])
            if number < longest:
                found = self._lengths(front, texts[number + 1], forward=True)
                if found is None:
                    return None
                before.append((front, front + found))
                front = front + found
        for number in range(len(slots), longest, -1):
            back = back - len(texts[number])
            if not self._equal(back, texts[number]):
                return None
            if number > longest + 1:
                found = self._lengths(back, texts[number - 1], forward=False)
                if found is None:
                    return None
                behind.append((back - found, back))
                back = back - found
        if (back < front).any():
            return None
        return [*before, (front, back), *reversed(behind)]

    def _at(self, places: np.ndarray) -> np.ndarray:
        """Eight bytes from each place on; something else where there are no eight."""
        words: np.ndarray = self._words[np.clip(places, 0, len(self._words) - 1)]
        return words

    def _equal(self, places: np.ndarray, text: bytes) -> bool:
        if len(text) < _WORD:
            return bool(self._ends_with(places + len(text), text).all())
        steps = [*range(0, len(text) - _WORD, _WORD), len(text) - _WORD]
        return all(bool((self._at(places + step) == np.frombuffer(text, "<u8", 1, step)[0]).all()) for step in steps)

    def _ends_with(self, places: np.ndarray, text: bytes) -> np.ndarray:
        """Whether the last bytes of ``text``, at most eight of them, stand before each of ``places``."""
        tail = text[-_WORD:]
        unread = np.uint64(8 * (_WORD - len(tail)))
        same: np.ndarray = self._at(places - _WORD) >> unread == np.uint64(int.from_bytes(tail, "little"))
        return same

    def _lengths(self, places: np.ndarray, text: bytes, *, forward: bool) -> np.ndarray | None:
        """How long the values are that begin (or end) at ``places`` and are followed (or preceded) by ``text``.

        The length of the first value is tried on all others, then that of the first one left, and so on: paths, partition
        values and numbers have but a few. A wrong one makes a value with a quote in it or no number, which is refused later.
        """
        lengths = np.zeros(len(places), dtype=np.int64)
        rest = np.arange(len(places))
        near = text[:_WORD] if forward else text[-_WORD:]
        for _ in range(_MAX_LENGTHS):
            place = int(places[rest[0]])
            if forward:
                length = self._data.find(near, place, place + _MAX_VALUE) - place
            else:
                length = place - len(near) - self._data.rfind(near, max(0, place - _MAX_VALUE), place)
            if not 0 <= length <= _MAX_VALUE:
                return None
            hit = self._ends_with(places[rest] + (length + len(near) if forward else -length), near)
            lengths[rest[hit]] = length
            rest = rest[~hit]
            if not len(rest):
                return lengths
        return None


def _values(data: bytes, slot: _Slot, starts: np.ndarray, ends: np.ndarray) -> pa.Array | None:
    """The column of one slot; None where a value is not as plain as it has to be."""
    values = _texts(data, starts, ends)
    letters = _letters(values)
    if not slot.is_text:
        return _numbers(values, letters, ends - starts)
    if len(letters) and (letters[0] == _QUOTE or letters[-1] == _BACKSLASH):
        return None
    escapes = []
    for first in range(0, len(letters), _BLOCK):
        # With the letter after the block, as an escape may lie across its end.
        block = letters[first : first + _BLOCK + 1]
        quotes, backslashes = block == _QUOTE, block == _BACKSLASH
        if (block < _FIRST_PRINTABLE).any() or not np.array_equal(quotes[1:], backslashes[:-1]):
            return None
        escapes.append(np.flatnonzero(backslashes[:_BLOCK]) + first)
    places = np.concatenate(escapes) if escapes else np.zeros(0, dtype=np.int64)
    if not len(places):
        return values.cast(pa.string())
    return _unescaped(letters, _offsets(values), places) if slot.field == "stats" else None


def _unescaped(letters: np.ndarray, offsets: np.ndarray, places: np.ndarray) -> pa.Array | None:
    """The texts without the backslashes, all of which stand before quotes, at ``places``."""
    offsets = offsets - offsets[0]
    inner = offsets[(offsets > 0) & (offsets < len(letters))]
    if (letters[inner - 1] == _BACKSLASH).any():
        return None  # The end of a value cuts an escape: its quote was the end of the text.
    shorter = (offsets - np.searchsorted(places, offsets)).astype(np.int32)
    text = letters.tobytes().translate(None, b"\\")
    kept = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(shorter), pa.py_buffer(text)])
    return kept.cast(pa.string())


def _texts(data: bytes, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
    """The bytes of each value, one after the other."""
    # Seen as one array, values and what lies between them take turns; no value is copied but once.
    bounds = np.empty(2 * len(starts), dtype=np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    turns = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return turns.take(pa.array(np.arange(0, len(bounds), 2)))


def _offsets(values: pa.Array) -> np.ndarray:
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]


def _letters(values: pa.Array) -> np.ndarray:
    offsets = _offsets(values)
    return np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]


def _numbers(values: pa.Array, letters: np.ndarray, lengths: np.ndarray) -> pa.Array | None:
    if lengths.min() < 1 or lengths.max() > _MAX_DIGITS or (letters < _ZERO).any() or (letters > _NINE).any():
        return None
    first = letters[_offsets(values)[:-1] - _offsets(values)[0]]
    if ((first == _ZERO) & (lengths > 1)).any():
        return None
    return values.cast(pa.string()).cast(pa.int64())


def _assembled(layout: _Layout, values: list[pa.Array], schema: pa.Schema, count: int) -> pa.StructArray:
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
        if pa.types.is_map(field.type) and constant is not None:
            found = maps.get(field.name, {})
            columns[field.name] = _struct({key: found.get(key) for key in constant}, count)
        elif constant is not None:
            columns[field.name] = pa.repeat(pa.scalar(constant, field.type), count)
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _struct(columns: dict[str, pa.Array | None], count: int) -> pa.Array:
    arrays = [pa.nulls(count, pa.string()) if column is None else column for column in columns.values()]
    fields = [pa.field(name, pa.string()) for name in columns]
    if not arrays:
        return pa.repeat(pa.scalar({}, pa.struct([])), count)
    return pa.StructArray.from_arrays(arrays, fields=fields)
