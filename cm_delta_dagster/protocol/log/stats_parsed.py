"""Converts between ``stats`` texts and the ``stats_parsed`` struct of checkpoints (protocol heading "Checkpoint Schema").

Works on whole columns, because a table may have millions of files. The statistics themselves determine which columns the
struct has. ``statistics`` collects statistics and ``data_skipping`` uses them.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.schema.arrow_types import to_arrow_type
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import DataType, StructType
from cm_delta_dagster.protocol.statistics.stats_json import WIDE_BOUNDS, ParsedStatistics, parse_statistics

# Characters that JSON text must escape, in RE2 syntax: control characters, quote and backslash.
_NEEDS_ESCAPE = r'[\x00-\x1f"\\]'
_TIGHT = r'"tightBounds"\s*:\s*true'


def stats_struct(stats: pa.ChunkedArray | pa.Array, schema: StructType, *, without: frozenset[str]) -> pa.Array | None:
    """Convert a column of ``stats`` texts to the ``stats_parsed`` column; None if no file has statistics.

    Args:
        stats: one text per file.
        schema: the table schema with physical names. Columns without any value are left out of the struct.
        without: names of top-level columns to leave out, i.e. the partition columns.
    """
    leaves = {path: kind for path, kind in _leaves(schema, ()) if path[0] not in without}
    parsed = parse_statistics(stats, leaves)
    tight = _tight_bounds(stats)
    sections: dict[str, pa.Array] = {}
    if parsed.num_records.null_count < len(parsed.num_records):
        sections["numRecords"] = parsed.num_records
    if tight.null_count < len(tight):
        sections["tightBounds"] = tight
    for name, leaf_values in _sections(parsed, leaves):
        if leaf_values:
            sections[name] = _struct_of(leaf_values)
    if not sections:
        return None
    return _make_struct(sections)


def stats_texts(parsed: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Convert a ``stats_parsed`` column to equivalent ``stats`` texts; null where the struct is null."""
    array = _one_array(parsed)
    return _json_text(array)


def _leaves(schema: StructType, prefix: ColumnPath) -> Iterator[tuple[ColumnPath, DataType]]:
    for item in schema.fields:
        if isinstance(item.type, StructType):
            yield from _leaves(item.type, (*prefix, item.name))
        else:
            yield (*prefix, item.name), item.type


def _sections(
    parsed: ParsedStatistics, leaves: Mapping[ColumnPath, DataType]
) -> Iterator[tuple[str, Mapping[ColumnPath, pa.Array]]]:
    for name, bounds in (("minValues", parsed.minimums), ("maxValues", parsed.maximums)):
        native = {path: _native(values, leaves[path]) for path, values in bounds.items()}
        yield name, {path: values for path, values in native.items() if values.null_count < len(values)}
    yield "nullCount", {path: values for path, values in parsed.null_counts.items() if values.null_count < len(values)}


def _native(values: pa.Array, data_type: DataType) -> pa.Array:
    kind = to_arrow_type(data_type)
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        # Only bounds that do not fit the type of the column become null.
        return pa.array([_cast_one(value, kind) for value in values], kind)


def _cast_one(value: pa.Scalar, kind: pa.DataType) -> Any:
    try:
        return value.cast(kind).as_py()
    except pa.ArrowInvalid:
        return None


def _tight_bounds(stats: pa.ChunkedArray | pa.Array) -> pa.Array:
    # The pattern is exact: quotes inside JSON strings are escaped, and counts and bounds are never booleans.
    tight, wide = pc.match_substring_regex(stats, _TIGHT), pc.match_substring_regex(stats, WIDE_BOUNDS)
    return _one_array(pc.if_else(tight, True, pc.if_else(wide, False, pa.scalar(None, pa.bool_()))))


def _struct_of(leaves: Mapping[ColumnPath, pa.Array]) -> pa.Array:
    below: dict[str, dict[ColumnPath, pa.Array]] = {}
    for path, values in leaves.items():
        below.setdefault(path[0], {})[path[1:]] = values
    return _make_struct({name: rest[()] if () in rest else _struct_of(rest) for name, rest in below.items()})


def _make_struct(children: Mapping[str, pa.Array]) -> pa.Array:
    """A struct that is null where all of its children are null."""
    arrays = list(children.values())
    absent = arrays[0].is_null()
    for values in arrays[1:]:
        absent = pc.and_(absent, values.is_null())
    fields = [pa.field(name, values.type) for name, values in children.items()]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=absent)


def _one_array(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def _json_text(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_struct(kind):
        return _json_object(values)
    for is_kind, convert in _CONVERSIONS:
        if is_kind(kind):
            return convert(values)
    # Binary, lists and maps have no bounds.
    return pa.nulls(len(values), pa.string())


def _json_object(values: pa.Array) -> pa.Array:
    members = []
    for item, children in zip(values.type, values.flatten(), strict=True):
        # nullCounts is a misspelling of nullCount in an example of the protocol text; the field has no meaning.
        if item.name == "nullCounts":
            continue
        text = _json_text(children)
        member = pc.binary_join_element_wise(json.dumps(item.name, ensure_ascii=False) + ":", text, ",", "")
        members.append(pc.fill_null(member, ""))
    # Joining with null_handling="skip" would drop the rows in which every member is null.
    if members:
        inner = pc.utf8_rtrim(pc.binary_join_element_wise(*members, ""), ",")
    else:
        inner = pa.array([""] * len(values), pa.string())
    wrapped = pc.binary_join_element_wise("{", inner, "}", "")
    return pc.if_else(values.is_valid(), wrapped, pa.scalar(None, pa.string()))


def _plain(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def _float_text(values: pa.Array) -> pa.Array:
    # NaN and infinities have no JSON form and are not useful as bounds.
    return pc.if_else(pc.is_finite(values), values.cast(pa.string()), pa.scalar(None, pa.string()))


def _decimal_text(values: pa.Array) -> pa.Array:
    # Arrow may use scientific notation, which some decimal parsers reject.
    return pa.array([None if value is None else format(value, "f") for value in values.to_pylist()], pa.string())


def _timestamp_text(values: pa.Array) -> pa.Array:
    micros = values.cast(pa.timestamp("us", values.type.tz), safe=False)
    return _string_text(pc.replace_substring(micros.cast(pa.string()), " ", "T"))


def _date_text(values: pa.Array) -> pa.Array:
    return _string_text(values.cast(pa.string()))


def _string_text(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    special = pc.fill_null(pc.match_substring_regex(texts, _NEEDS_ESCAPE), False)
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    if not pc.any(special).as_py():
        return quoted
    escaped = [json.dumps(text, ensure_ascii=False) for text in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (pa.types.is_integer, _plain),
    (pa.types.is_boolean, _plain),
    (pa.types.is_floating, _float_text),
    (pa.types.is_decimal, _decimal_text),
    (pa.types.is_date, _date_text),
    (pa.types.is_timestamp, _timestamp_text),
    (pa.types.is_string, _string_text),
    (pa.types.is_large_string, _string_text),
)
