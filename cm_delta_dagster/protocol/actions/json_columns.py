"""File actions as columns, converted from JSON lines with ``pyarrow.json`` (protocol heading "Add File and Remove File").

``pyarrow.json`` has no map type, converts ISO dates in undeclared fields to timestamps and infers types block by block. So every
known field is declared. The keys of ``partitionValues`` and ``tags`` are read from sample lines and declared as strings.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA, REMOVE_SCHEMA, STRING_MAP

_SCHEMAS: Mapping[str, pa.Schema] = MappingProxyType({"add": ADD_SCHEMA, "remove": REMOVE_SCHEMA})
_BLOCK_BYTES = 4 * 1024 * 1024
_SAMPLES = 64
_MAPS = ("partitionValues", "tags")
_ADD, _REMOVE = b'{"add"', b'{"remove"'
_NEWLINE = 10
_FEW_LINES = 64
_RANGES = 16
_MAX_REFUSED = 64
"""A refused range of more lines than ``_FEW_LINES`` is divided into ``_RANGES``, so often in one commit."""
_MAX_BRACKETS = 5000
"""Brackets of one line. No file action has as many outside of its strings."""


@dataclass(frozen=True, slots=True)
class ParsedLines:
    """The file actions of a commit, and its other lines unparsed."""

    adds: pa.Table
    removes: pa.Table
    others: list[bytes]


def parse_file_actions(data: bytes) -> ParsedLines | None:
    """The adds, removes and other lines of a commit; None if it must be parsed line by line.

    Lines with leading white space before the action are among the other lines.
    """
    lines = _Lines.of(data)
    files = _file_actions(lines)
    return None if files is None else ParsedLines(*files, lines.others())


@dataclass(frozen=True, slots=True)
class StrictFiles:
    """The file actions of a commit in which no line has an unknown or repeated key, or a value of another type.

    Attributes:
        adds, removes: the file actions. Lines that are not as described are among ``others``, with a few of their neighbours.
        others: number from 1 and text of each other line.
    """

    adds: pa.Table
    removes: pa.Table
    others: list[tuple[int, bytes]]


def strict_file_actions(data: bytes) -> StrictFiles:
    """The lines of a commit; what cannot be checked as columns is left unparsed."""
    lines = _Lines.of(data)
    is_flat = np.ones(len(lines.is_add), dtype=bool)
    is_flat[lines.may_nest_deeply()] = False
    none = np.zeros(len(is_flat), dtype=bool)
    adds, are_adds = _strict(replace(lines, is_add=lines.is_add & is_flat, is_remove=none), "add", ADD_SCHEMA)
    removes, are_removes = _strict(
        replace(lines, is_add=none, is_remove=lines.is_remove & is_flat), "remove", REMOVE_SCHEMA
    )
    others = np.flatnonzero(~(are_adds | are_removes)).tolist()
    return StrictFiles(
        adds, removes, others=[(number + 1, lines.line(number).removesuffix(b"\n")) for number in others]
    )


def _strict(lines: "_Lines", action: str, schema: pa.Schema) -> tuple[pa.Table, np.ndarray]:
    """The lines of one action as columns, without those that are not exactly one action with fields of ``schema``.

    The parser does not say which line it refuses: a range of lines that it refuses is divided until few lines are left.

    Returns:
        The columns, and for each line of the commit whether it is in them.
    """
    chosen = lines.is_add | lines.is_remove
    is_column = np.zeros(len(chosen), dtype=bool)
    pending = [np.flatnonzero(chosen)]
    if not len(pending[0]):
        return schema.empty_table(), is_column
    keys, fields = _first_keys(lines, skips_malformed=True) or {}, _first_fields(lines, action)
    tables: list[pa.Table] = []
    num_refused = 0
    while pending:
        numbers = pending.pop()
        files = _strict_range(lines.only(numbers), keys, action, pa.schema(fields))
        if files is not None:
            tables.append(files)
            is_column[numbers] = True
            continue
        if len(fields) < len(schema):
            fields = list(schema)
            pending.append(numbers)
            continue
        num_refused += 1
        if len(numbers) > _FEW_LINES and num_refused <= _MAX_REFUSED:
            pending += np.array_split(numbers, min(_RANGES, len(numbers)))
    return pa.concat_tables(tables) if tables else schema.empty_table(), is_column


def _first_fields(lines: "_Lines", action: str) -> list[pa.Field]:
    """The fields of the action that some lines have; usually those of all lines."""
    schema = _SCHEMAS[action]
    names: set[str] = set()
    for line in lines.samples(lines.is_add | lines.is_remove):
        with contextlib.suppress(ValueError, KeyError, AttributeError, RecursionError):
            names |= json.loads(line)[action].keys()
    return [field for field in schema if field.name in names]


def _strict_range(lines: "_Lines", keys: "_MapKeys", action: str, fields: pa.Schema) -> pa.Table | None:
    """These lines as columns; None if a line is not as for :func:`_strict`, or has another field than ``fields``."""
    try:
        table = _read(lines.files(), keys, {action: fields}, longest_line=lines.longest, unknown="error")
        files = _extract(table, action, _SCHEMAS[action], lines.nulls)
        files.validate(full=True)
    except (pa.ArrowException, KeyError, ValueError):
        return None
    # Each line begins with an object, so as many actions as lines are one for each.
    return files if table.num_rows == files.num_rows == lines.num_files else None


def _file_actions(lines: "_Lines") -> tuple[pa.Table, pa.Table] | None:
    """The adds and removes, parsed with ``pyarrow.json``; None if it cannot parse them correctly."""
    if not lines.num_files:
        return ADD_SCHEMA.empty_table(), REMOVE_SCHEMA.empty_table()
    keys = None if lines.may_nest_deeply() else _first_keys(lines)
    if keys is None:
        return None
    files = lines.files()
    try:
        for _ in range(3):
            table = _read(files, keys, _SCHEMAS, longest_line=lines.longest)
            if table.num_rows != lines.num_files or table.column_names != list(keys):
                return None
            more = _undeclared_keys(table, keys)
            if not more:
                nulls = lines.nulls
                return _extract(table, "add", ADD_SCHEMA, nulls), _extract(table, "remove", REMOVE_SCHEMA, nulls)
            for action, maps in more.items():
                for name, names in maps.items():
                    keys[action][name] |= names
    except (pa.ArrowException, KeyError, ValueError):
        return None
    return None


@dataclass(frozen=True, slots=True)
class _Lines:
    """The start of each line of ``data``, the end of the last one, and which lines begin with an add or a remove."""

    data: bytes
    bounds: np.ndarray
    is_add: np.ndarray
    is_remove: np.ndarray
    nulls: "_Nulls"

    @classmethod
    def of(cls, data: bytes) -> "_Lines":
        letters = np.frombuffer(data, np.uint8)
        blocks = range(0, len(letters), _BLOCK_BYTES)
        ends = [np.flatnonzero(letters[start : start + _BLOCK_BYTES] == _NEWLINE) + start + 1 for start in blocks]
        bounds = np.concatenate([[0], *ends])
        if bounds[-1] < len(letters):
            bounds = np.append(bounds, len(letters))
        return cls(data, bounds, _begin(letters, bounds[:-1], _ADD), _begin(letters, bounds[:-1], _REMOVE), _Nulls())

    @property
    def num_files(self) -> int:
        return int(self.is_add.sum() + self.is_remove.sum())

    @property
    def longest(self) -> int:
        return int(np.diff(self.bounds).max())

    def may_nest_deeply(self) -> list[int]:
        """The lines with so many brackets that ``pyarrow.json``, which recurses, could exhaust the stack and crash."""
        suspects = np.flatnonzero(np.diff(self.bounds) > _MAX_BRACKETS).tolist()
        lines = ((number, self.line(number)) for number in suspects)
        return [number for number, line in lines if line.count(b"[") + line.count(b"{") > _MAX_BRACKETS]

    def only(self, numbers: np.ndarray) -> "_Lines":
        """Without the file actions of the lines that are not among ``numbers``."""
        chosen = np.zeros(len(self.is_add), dtype=bool)
        chosen[numbers] = True
        return replace(self, is_add=self.is_add & chosen, is_remove=self.is_remove & chosen)

    def line(self, number: int) -> bytes:
        return self.data[self.bounds[number] : self.bounds[number + 1]]

    def files(self) -> pa.Buffer:
        """The lines that begin with a file action. If they are contiguous, which is usual, they are not copied."""
        is_file = (self.is_add | self.is_remove).astype(np.int8)
        edges = self.bounds[np.flatnonzero(np.diff(is_file, prepend=0, append=0))].tolist()
        runs = list(zip(edges[::2], edges[1::2], strict=True))
        if len(runs) == 1:
            return pa.py_buffer(self.data).slice(runs[0][0], runs[0][1] - runs[0][0])
        return pa.py_buffer(b"".join(self.data[start:end] for start, end in runs))

    def others(self) -> list[bytes]:
        """All other lines."""
        return [self.line(number) for number in np.flatnonzero(~(self.is_add | self.is_remove)).tolist()]

    def samples(self, chosen: np.ndarray) -> list[bytes]:
        """Some of the chosen lines, including the first and the last."""
        numbers = np.flatnonzero(chosen)
        places = np.unique(np.linspace(0, len(numbers) - 1, min(_SAMPLES, len(numbers))).astype(np.int64))
        return [self.line(number) for number in numbers[places].tolist()]


def _begin(letters: np.ndarray, starts: np.ndarray, prefix: bytes) -> np.ndarray:
    """Whether the text at each of ``starts`` begins with ``prefix``."""
    begins = starts <= len(letters) - len(prefix)
    for place, letter in enumerate(prefix):
        begins &= letters.take(starts + place, mode="clip") == letter
    return begins


_MapKeys = dict[str, dict[str, set[str]]]


def _first_keys(lines: _Lines, *, skips_malformed: bool = False) -> _MapKeys | None:
    """Keys of the maps in some lines of each action that occurs; usually the keys of all lines.

    None if one of these lines is not an action, unless ``skips_malformed``.
    """
    keys: _MapKeys = {}
    for action, chosen in (("add", lines.is_add), ("remove", lines.is_remove)):
        for line in lines.samples(chosen):
            maps = keys.setdefault(action, {name: set() for name in _MAPS})
            try:
                fields = json.loads(line)[action]
                for name in _MAPS:
                    values = fields.get(name)
                    if values is not None and not isinstance(values, dict):
                        raise TypeError(f"{name} is not an object")
                    maps[name] |= set(values or ())
            except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
                if not skips_malformed:
                    return None
    return keys


def _read(
    files: pa.Buffer,
    keys: _MapKeys,
    schemas: Mapping[str, pa.Schema],
    *,
    longest_line: int,
    unknown: str = "infer",
) -> pa.Table:
    # Each declared field costs time for every line, even if the line does not have it.
    schema = pa.schema(
        [
            pa.field(action, pa.struct([_declared(field, maps) for field in schemas[action]]))
            for action, maps in keys.items()
        ]
    )
    return pa_json.read_json(
        pa.BufferReader(files),
        read_options=pa_json.ReadOptions(block_size=max(_BLOCK_BYTES, 2 * longest_line)),
        parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unknown),
    )


def _declared(field: pa.Field, maps: dict[str, set[str]]) -> pa.Field:
    if field.name in _MAPS:
        return pa.field(field.name, pa.struct([pa.field(name, pa.string()) for name in sorted(maps[field.name])]))
    return field


def _undeclared_keys(table: pa.Table, keys: _MapKeys) -> _MapKeys:
    more: _MapKeys = {}
    for action, maps in keys.items():
        kind = table.schema.field(action).type
        for name, known in maps.items():
            undeclared = {field.name for field in kind.field(name).type} - known
            if undeclared:
                more.setdefault(action, {})[name] = undeclared
    return more


def _extract(table: pa.Table, action: str, schema: pa.Schema, nulls: "_Nulls") -> pa.Table:
    """The rows of one action, chunk by chunk. The columns of a chunk without other actions are not copied."""
    batches = []
    for chunk in table.column(action).chunks if action in table.column_names else ():
        rows = chunk.filter(chunk.is_valid()) if chunk.null_count else chunk
        if len(rows):
            batches.append(_batch(rows, schema, nulls))
    return pa.Table.from_batches(batches, schema=schema)


class _Nulls:
    """Columns of nulls, which all batches of a commit share."""

    def __init__(self) -> None:
        self._known: dict[pa.DataType, pa.Array] = {}

    def of(self, count: int, kind: pa.DataType) -> pa.Array:
        known = self._known.get(kind)
        if known is None or len(known) < count:
            known = self._known[kind] = pa.nulls(count, kind)
        return known.slice(0, count)


def _batch(rows: pa.StructArray, schema: pa.Schema, nulls: _Nulls) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if rows.type.get_field_index(field.name) < 0:
            columns.append(nulls.of(len(rows), field.type))
            continue
        values = pc.struct_field(rows, field.name)
        if field.name in _MAPS:
            values = struct_to_map(values, drop_null_entries=field.name == "tags")
        elif values.type != field.type:
            values = values.cast(field.type)
        columns.append(values)
    if columns[0].null_count:
        raise ValueError("a file action without path")
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def struct_to_map(values: pa.StructArray, *, drop_null_entries: bool) -> pa.MapArray:
    """A struct of strings as ``map<string, string>``; a null struct becomes a null map.

    Args:
        drop_null_entries: leave out keys whose value is null.
    """
    names = [field.name for field in values.type]
    count, width = len(values), len(names)
    if values.null_count == count:
        return pa.nulls(count, STRING_MAP)
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    if not names:
        offsets = pa.array(np.zeros(count + 1, dtype=np.int32))
        return _map(offsets, pa.array([], pa.string()), pa.array([], pa.string()), valid)
    columns = pa.concat_arrays([column.cast(pa.string()) for column in values.flatten()])
    items = columns if width == 1 else columns.take(pa.array(np.arange(count * width).reshape(width, count).T.ravel()))
    keep = np.repeat(valid, width)
    if drop_null_entries:
        keep &= pc.is_valid(items).to_numpy(zero_copy_only=False)
    keys = pa.DictionaryArray.from_arrays(np.tile(np.arange(width, dtype=np.int32), count), pa.array(names)).cast(
        pa.string()
    )
    offsets = np.concatenate([[0], np.cumsum(keep.reshape(count, width).sum(axis=1))]).astype(np.int32)
    if not keep.all():
        mask = pa.array(keep)
        keys, items = keys.filter(mask), items.filter(mask)
    return _map(pa.array(offsets), keys, items, valid)


def _map(offsets: pa.Array, keys: pa.Array, items: pa.Array, valid: np.ndarray) -> pa.MapArray:
    return pa.MapArray.from_arrays(offsets, keys, items, mask=None if valid.all() else pa.array(~valid)).cast(
        STRING_MAP
    )
