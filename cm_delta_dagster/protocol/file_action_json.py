"""JSON of file actions in bulk (protocol heading "Add File and Remove File"): lines of a commit -> Arrow tables.

Two ways to the same table: :func:`tables_from_records` from parsed JSON objects, for small commits and as the judge of every
odd case, and :func:`table_from_lines` with ``pyarrow.json``, a million lines a second. Both give the maps of one table the
same keys in the same order (sorted; an absent partition value is a null one), so that they are equal value for value.
"""

import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.file_actions import (
    ADD_SCHEMA,
    DELETION_VECTOR_TYPE,
    REMOVE_SCHEMA,
    drop_null_entries,
    map_from_struct,
)

SCHEMAS = {"add": ADD_SCHEMA, "remove": REMOVE_SCHEMA}
_MAPS = ("partitionValues", "tags")
_SAMPLE_LINES = 20
_BLOCK_BYTES = 8 * 2**20


def tables_from_records(kind: str, records: Sequence[dict[str, Any]], *, where: str) -> pa.Table:
    """The table of ``add`` or ``remove`` objects as JSON gave them.

    Args:
        kind: ``add`` or ``remove``.
        where: what is being read, for error messages.

    Raises:
        CorruptLogError: a required field is missing or a field has another type than the protocol says.
    """
    schema = SCHEMAS[kind]
    try:
        columns = [_column_of_records(field, [record.get(field.name) for record in records]) for field in schema]
        table = pa.Table.from_arrays(columns, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
        raise CorruptLogError(f"{where}: a {kind!r} action has a field of a wrong type: {error}") from error
    return _finished(kind, table, where=where)


def _column_of_records(field: pa.Field, values: list[Any]) -> pa.Array:
    if field.name in _MAPS:
        maps = [_text_map(field.name, value) for value in values]
        keys = sorted({key for value in maps if value is not None for key in value})
        return _as_map(field.name, pa.array(maps, pa.struct([(key, pa.string()) for key in keys])))
    if field.name == "deletionVector":
        return pa.array([_typed_vector(value) for value in values], field.type)
    if field.name == "stats":
        return pa.array([value if value is None or isinstance(value, str) else _compact(value) for value in values], field.type)
    return pa.array([_typed(field.name, field.type, value) for value in values], field.type)


def _typed(name: str, type_: pa.DataType, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_boolean(type_):
        valid = isinstance(value, bool)
    elif pa.types.is_integer(type_):
        valid = isinstance(value, int) and not isinstance(value, bool)
        if isinstance(value, float) and value.is_integer():
            return int(value)
    else:
        valid = isinstance(value, str)
    if not valid:
        raise TypeError(f"{name} is {value!r}, expected {type_}")
    return value


def _typed_vector(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise TypeError(f"deletionVector is {value!r}, expected an object")
    return {field.name: _typed(field.name, field.type, value.get(field.name)) for field in DELETION_VECTOR_TYPE}


def _text_map(name: str, value: Any) -> dict[str, str | None] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise TypeError(f"{name} is {value!r}, expected an object")
    return {key: item if item is None or isinstance(item, str) else _compact(item) for key, item in value.items()}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _as_map(name: str, column: pa.StructArray) -> pa.MapArray:
    maps = map_from_struct(column)
    return drop_null_entries(maps) if name == "tags" else maps


def _finished(kind: str, table: pa.Table, *, where: str) -> pa.Table:
    required = ("path", "size") if kind == "add" else ("path",)
    for name in required:
        missing = table.column(name).null_count
        if missing:
            raise CorruptLogError(f"{where}: {missing} {kind!r} action(s) have no {name!r}, which the protocol requires.")
    # Old writers left these out; their meaning when absent is not in doubt.
    table = _filled(table, "dataChange", True)
    return _filled(table, "modificationTime", 0) if kind == "add" else table


def _filled(table: pa.Table, name: str, value: Any) -> pa.Table:
    column = table.column(name)
    if column.null_count == 0:
        return table
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), pc.fill_null(column, value))


def table_from_lines(kind: str, lines: Sequence[bytes], *, where: str) -> pa.Table:
    """The table of many lines that all start with ``{"<kind>":``.

    Raises:
        CorruptLogError: as :func:`tables_from_records`, or a line is no JSON.
    """
    table = _fast_table(kind, lines)
    if table is None:
        return tables_from_records(kind, _records(kind, lines, where=where), where=where)
    return _finished(kind, table, where=where)


def _records(kind: str, lines: Iterable[bytes], *, where: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise CorruptLogError(f"{where}: a line is not JSON ({error}): {line[:120]!r}") from error
        others = [key for key, item in value.items() if key in KNOWN_ACTIONS and key != kind and item is not None]
        if others:
            raise CorruptLogError(f"{where}: one line holds the actions {kind!r} and {', '.join(others)}; expected one.")
        if isinstance(value.get(kind), dict):
            records.append(value[kind])
        elif value.get(kind) is not None:
            raise CorruptLogError(f"{where}: {kind!r} is not an object: {line[:120]!r}")
    return records


KNOWN_ACTIONS = frozenset(
    {"add", "remove", "metaData", "protocol", "txn", "cdc", "commitInfo", "domainMetadata", "sidecar", "checkpointMetadata"}
)


def _fast_table(kind: str, lines: Sequence[bytes]) -> pa.Table | None:
    """None where ``pyarrow.json`` cannot be trusted: the caller then parses line by line."""
    keys = _sampled_keys(kind, lines)
    data = b"\n".join(lines)
    block_bytes = max(_BLOCK_BYTES, 2 * max(map(len, lines)) + 2)
    for _ in range(2):
        column = _parsed(kind, data, keys, block_bytes)
        if column is None:
            return None
        found = {name: _fields_of(column.type, name) for name in _MAPS}
        if all(pa.types.is_string(type_) for fields in found.values() for type_ in fields.values()):
            return _bulk_table(kind, column)
        # A key that the sample missed came out as what its texts look like (a date, say): again, with its name.
        keys = {name: sorted(fields) for name, fields in found.items()}
    return None


def _sampled_keys(kind: str, lines: Sequence[bytes]) -> dict[str, list[str]]:
    keys: dict[str, set[str]] = {name: set() for name in _MAPS}
    step = max(1, len(lines) // _SAMPLE_LINES)
    for line in lines[::step]:
        try:
            record = json.loads(line)[kind]
            for name in _MAPS:
                keys[name].update(record.get(name) or ())
        except (ValueError, AttributeError, TypeError, KeyError):
            continue
    return {name: sorted(found) for name, found in keys.items()}


def _parsed(kind: str, data: bytes, keys: dict[str, list[str]], block_bytes: int) -> pa.ChunkedArray | None:
    fields = [
        pa.field(field.name, pa.struct([(key, pa.string()) for key in keys[field.name]]))
        if field.name in _MAPS
        else field
        for field in SCHEMAS[kind]
    ]
    options = pa_json.ParseOptions(
        explicit_schema=pa.schema([(kind, pa.struct(fields))]), unexpected_field_behavior="infer"
    )
    try:
        table = pa_json.read_json(
            io.BytesIO(data), read_options=pa_json.ReadOptions(block_size=block_bytes), parse_options=options
        )
    except pa.ArrowInvalid:
        return None
    column = table.column(kind)
    others_are_empty = all(table.column(name).null_count == len(table) for name in table.column_names if name != kind)
    return column if others_are_empty and column.null_count == 0 else None


def _fields_of(type_: pa.StructType, name: str) -> dict[str, pa.DataType]:
    child = type_.field(name).type
    return {field.name: field.type for field in child}


def _bulk_table(kind: str, column: pa.ChunkedArray) -> pa.Table:
    schema = SCHEMAS[kind]
    batches = []
    for chunk in column.chunks:
        children = dict(zip((field.name for field in chunk.type), chunk.flatten(), strict=True))
        arrays = [
            _as_map(field.name, _sorted_struct(children[field.name]))
            if field.name in _MAPS
            else _known_fields(field, children[field.name])
            for field in schema
        ]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema=schema)


def _known_fields(field: pa.Field, column: pa.Array) -> pa.Array:
    """Unknown fields inside of a known struct came along as inferred; the protocol says to ignore them (LOG-6)."""
    if field.name != "deletionVector" or column.type.equals(DELETION_VECTOR_TYPE):
        return column
    children = dict(zip((child.name for child in column.type), column.flatten(), strict=True))
    arrays = [children[child.name] for child in DELETION_VECTOR_TYPE]
    return pa.StructArray.from_arrays(arrays, fields=list(DELETION_VECTOR_TYPE), mask=column.is_null())


def _sorted_struct(column: pa.StructArray) -> pa.StructArray:
    names = [field.name for field in column.type]
    if names == sorted(names):
        return column
    children = dict(zip(names, column.flatten(), strict=True))
    ordered = sorted(names)
    return pa.StructArray.from_arrays([children[name] for name in ordered], ordered, mask=column.is_null())
