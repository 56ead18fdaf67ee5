"""Many file actions at once: JSON lines into columns through ``pyarrow.json``. Room: protocol.

``pyarrow.json`` has no map type, takes ISO dates in undeclared fields for timestamps and infers types block by block.
So every known field is declared; the keys of ``partitionValues`` and ``tags`` are found by a first look and declared
as strings, too.
"""

import io
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from cm_delta_dagster.protocol.file_actions import ADD_SCHEMA, REMOVE_SCHEMA, STRING_MAP

_BLOCK_BYTES = 16 * 1024 * 1024
_MAPS = ("partitionValues", "tags")


def parse_file_actions(lines: Sequence[bytes]) -> tuple[pa.Table, pa.Table] | None:
    """Adds and removes of lines that each begin with one, or None where a careful line-by-line reading is needed."""
    keys = _first_keys(lines)
    if keys is None:
        return None
    data = b"\n".join(lines)
    try:
        for _ in range(3):
            table = _read(data, keys)
            more = _undeclared_keys(table, keys)
            if not more:
                return _extract(table, "add", ADD_SCHEMA), _extract(table, "remove", REMOVE_SCHEMA)
            for path, names in more.items():
                keys[path] |= names
    except (pa.ArrowException, KeyError, ValueError):
        return None
    return None


_Keys = dict[tuple[str, str], set[str]]


def _first_keys(lines: Sequence[bytes]) -> _Keys | None:
    """Keys of the maps in the first and the last line of each kind; nearly always those of all lines."""
    keys: _Keys = {(action, name): set() for action in ("add", "remove") for name in _MAPS}
    for action, prefix in (("add", b'{"add"'), ("remove", b'{"remove"')):
        first = next((line for line in lines if line.startswith(prefix)), None)
        last = next((line for line in reversed(lines) if line.startswith(prefix)), None)
        for line in (first, last):
            if line is None:
                continue
            try:
                fields = json.loads(line)[action]
                for name in _MAPS:
                    keys[action, name] |= set(fields.get(name) or ())
            except (ValueError, KeyError, AttributeError, TypeError):
                return None
    return keys


def _read(data: bytes, keys: _Keys) -> pa.Table:
    schema = pa.schema(
        [
            pa.field(action, pa.struct([_declared(action, field, keys) for field in fields]))
            for action, fields in (("add", ADD_SCHEMA), ("remove", REMOVE_SCHEMA))
        ]
    )
    return pa_json.read_json(
        io.BytesIO(data),
        read_options=pa_json.ReadOptions(block_size=max(_BLOCK_BYTES, 2 * data.find(b"\n"))),
        parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
    )


def _declared(action: str, field: pa.Field, keys: _Keys) -> pa.Field:
    if field.name in _MAPS:
        names = sorted(keys[action, field.name])
        return pa.field(field.name, pa.struct([pa.field(name, pa.string()) for name in names]))
    return field


def _undeclared_keys(table: pa.Table, keys: _Keys) -> _Keys:
    more: _Keys = {}
    for action, name in keys:
        kind = table.schema.field(action).type
        found = {field.name for field in kind.field(name).type} - keys[action, name]
        if found:
            more[action, name] = found
    return more


def _extract(table: pa.Table, action: str, schema: pa.Schema) -> pa.Table:
    """The rows of one action, chunk by chunk: where a chunk holds nothing else, its columns are taken over uncopied."""
    batches = []
    for chunk in table.column(action).chunks:
        rows = chunk.filter(chunk.is_valid()) if chunk.null_count else chunk
        if len(rows):
            batches.append(_batch(rows, schema))
    return pa.Table.from_batches(batches, schema=schema)


def _batch(rows: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
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
    """A struct of strings as ``map<string, string>``; null stays null."""
    names = [field.name for field in values.type]
    count, width = len(values), len(names)
    if values.null_count == count:
        return pa.nulls(count, STRING_MAP)
    valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
    if not names:
        offsets = pa.array(np.zeros(count + 1, dtype=np.int32))
        return _map(offsets, pa.array([], pa.string()), pa.array([], pa.string()), valid)
    columns = pa.concat_arrays([pc.struct_field(values, name).cast(pa.string()) for name in names])
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
