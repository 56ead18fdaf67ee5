"""Parses ``stats`` texts to Arrow columns (protocol heading "Per-file Statistics").

Parses only the requested columns. Invalid texts and values become null and are not errors, because statistics are optional.
``statistics`` collects statistics, ``data_skipping`` uses them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import DataType, DecimalType, PrimitiveType

WIDE_BOUNDS = r'"tightBounds"\s*:\s*false'
"""Pattern of ``stats`` texts whose bounds are not tight: rows that a deletion vector deletes may have set them."""

_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedStatistics:
    """Statistics of many files as Arrow columns with one entry per file, null where unknown.

    Types of bounds: int64 for integers, decimal128(38, scale) for decimals, float32 and float64, date32, string, and int64
    microseconds for timestamps, as written (upper bounds may be truncated to milliseconds).
    """

    num_records: pa.Array
    minimums: Mapping[ColumnPath, pa.Array]
    maximums: Mapping[ColumnPath, pa.Array]
    null_counts: Mapping[ColumnPath, pa.Array]


def parse_statistics(stats: pa.Array | pa.ChunkedArray, columns: Mapping[ColumnPath, DataType]) -> ParsedStatistics:
    """Parse the statistics of ``columns`` in the ``stats`` texts. Invalid texts and values become null."""
    kinds: dict[ColumnPath, pa.DataType] = {("numRecords",): pa.int64()}
    bounded = {path: kind for path, type_ in columns.items() if (kind := _json_kind(type_)) is not None}
    for section in ("minValues", "maxValues"):
        kinds |= {(section, *path): kind for path, kind in bounded.items()}
    kinds |= {("nullCount", *path): pa.int64() for path in columns}
    values = _parse_leaves(stats.chunks if isinstance(stats, pa.ChunkedArray) else [stats], kinds)
    return ParsedStatistics(
        num_records=values[("numRecords",)],
        minimums={path: _typed(values[("minValues", *path)], columns[path]) for path in bounded},
        maximums={path: _typed(values[("maxValues", *path)], columns[path]) for path in bounded},
        null_counts={path: values[("nullCount", *path)] for path in columns},
    )


def _parse_leaves(chunks: Sequence[pa.Array], kinds: Mapping[ColumnPath, pa.DataType]) -> dict[ColumnPath, pa.Array]:
    """Values of the texts by path, with the given types."""
    texts = [chunk.cast(pa.large_string()) for chunk in chunks] or [pa.array([], pa.large_string())]
    rows = _parse_rows(texts[0] if len(texts) == 1 else pa.concat_arrays(texts), _nested_type(kinds))
    return dict(_leaves(rows, ()))


def _leaves(rows: pa.StructArray, prefix: ColumnPath) -> Iterator[tuple[ColumnPath, pa.Array]]:
    """The values of all leaves, each level flattened at once: access to a field by its name compares the names of all fields."""
    for item, values in zip(rows.type, rows.flatten(), strict=True):
        path = (*prefix, item.name)
        if pa.types.is_struct(item.type):
            yield from _leaves(values, path)
        else:
            yield path, values


_JSON_KINDS = {
    "byte": pa.int64(),
    "short": pa.int64(),
    "integer": pa.int64(),
    "long": pa.int64(),
    # The width matters: 0.1 as a float is not equal to 0.1 as a double.
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.string(),
    "timestamp": pa.string(),
    "timestamp_ntz": pa.string(),
}


def _json_kind(data_type: DataType) -> pa.DataType | None:
    if isinstance(data_type, DecimalType):
        return pa.decimal128(38, data_type.scale)
    return _JSON_KINDS.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


def _nested_type(leaves: Mapping[ColumnPath, pa.DataType]) -> pa.StructType:
    children: dict[str, dict[ColumnPath, pa.DataType]] = {}
    for path, kind in leaves.items():
        children.setdefault(path[0], {})[path[1:]] = kind
    return pa.struct(
        [pa.field(name, below[()] if () in below else _nested_type(below)) for name, below in children.items()]
    )


_MAX_SLOW_ROWS = 128
_ONE_THREAD_BYTES = 1 << 16
"""Up to this size other threads cost more than they save."""


def _parse_rows(texts: pa.Array, kind: pa.StructType) -> pa.Array:
    """Parse one struct of ``kind`` per text. Parses all texts in one pass; if that fails, splits them into halves."""
    if len(texts) == 0:
        return pa.array([], kind)
    rows = _parse_fast(texts, kind)
    if rows is not None:
        return rows
    if len(texts) <= _MAX_SLOW_ROWS:
        return pa.array([_parse_slowly(text, kind) for text in texts.to_pylist()], kind)
    middle = len(texts) // 2
    return pa.concat_arrays([_parse_rows(texts[:middle], kind), _parse_rows(texts[middle:], kind)])


def _parse_fast(texts: pa.Array, kind: pa.StructType) -> pa.Array | None:
    # Each text becomes the value of a member, so that a blank text or two documents in one text cannot shift the rows.
    head, tail, separator = (pa.scalar(text, pa.large_string()) for text in ('{"s":', "}\n", ""))
    wrapped = pc.binary_join_element_wise(head, pc.fill_null(texts, "null"), tail, separator)
    longest = pc.max(pc.binary_length(wrapped)).as_py()
    document = _flat_buffer(wrapped)
    try:
        table = pj.read_json(
            pa.BufferReader(document),
            read_options=pj.ReadOptions(
                use_threads=len(document) > _ONE_THREAD_BYTES, block_size=min(max(1 << 20, 2 * longest), (1 << 31) - 1)
            ),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([pa.field("s", kind)]), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(texts):
        return None
    return pa.concat_arrays(table["s"].chunks)


def _flat_buffer(texts: pa.Array) -> pa.Buffer:
    """The contiguous bytes of a large_string array without nulls, without copying."""
    _, offsets, data = texts.buffers()
    positions = pa.Array.from_buffers(pa.int64(), len(texts) + 1, [None, offsets], offset=texts.offset)
    start, end = positions[0].as_py(), positions[len(texts)].as_py()
    return data.slice(start, end - start)


def _parse_slowly(text: str | None, kind: pa.StructType) -> Any:
    try:
        return None if text is None else _clean(json.loads(text, parse_float=Decimal), kind)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def _clean(value: Any, kind: pa.DataType) -> Any:
    """``value`` as the Arrow type ``kind``; None where it has another type."""
    if pa.types.is_struct(kind):
        return (
            {field.name: _clean(value.get(field.name), field.type) for field in kind}
            if isinstance(value, dict)
            else None
        )
    if pa.types.is_string(kind):
        return value if isinstance(value, str) and _is_utf8(value) else None
    if isinstance(value, bool):
        return None
    if pa.types.is_integer(kind):
        return _clean_integer(value)
    if pa.types.is_floating(kind):
        # Some writers write non-finite bounds as strings; these are ignored.
        return float(value) if isinstance(value, int | Decimal) and -(10**38) < value < 10**38 else None
    return _clean_decimal(value, kind)


_MAX_EXACT_DOUBLE = 2**53


def _clean_integer(value: Any) -> int | None:
    if isinstance(value, Decimal):
        # Written as a double, which holds larger integers only rounded.
        return int(value) if abs(value) <= _MAX_EXACT_DOUBLE and value == int(value) else None
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _clean_decimal(value: Any, kind: pa.DataType) -> Decimal | None:
    try:
        exact = Decimal(value) if isinstance(value, str | int | Decimal) else None
        return None if exact is None else pa.scalar(exact, kind).as_py()
    except (ArithmeticError, pa.ArrowInvalid):
        return None


def _typed(values: pa.Array, data_type: DataType) -> pa.Array:
    """Parse bounds of dates and timestamps; other bounds have their type already."""
    if not isinstance(data_type, PrimitiveType):
        return values
    match data_type.name:
        case "date":
            return _cast_texts(values, pa.date32(), pa.date32(), _parse_date)
        case "timestamp":
            return _cast_texts(values, pa.timestamp("us", "UTC"), pa.int64(), _parse_timestamp)
        case "timestamp_ntz":
            return _cast_texts(values, pa.timestamp("us"), pa.int64(), _parse_timestamp_ntz)
        case _:
            return values


def _cast_texts(values: pa.Array, kind: pa.DataType, final: pa.DataType, parse_one: Any) -> pa.Array:
    try:
        return values.cast(kind).cast(final)
    except pa.ArrowInvalid:
        return pa.array([None if text is None else parse_one(text) for text in values.to_pylist()], final)


def _parse_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _parse_timestamp(text: str) -> int | None:
    moment = _parse_moment(text)
    if moment is None or moment.tzinfo is None:
        return None
    try:
        return _microseconds(moment.astimezone(UTC).replace(tzinfo=None))
    except OverflowError:
        return None


def _parse_timestamp_ntz(text: str) -> int | None:
    moment = _parse_moment(text)
    return None if moment is None or moment.tzinfo is not None else _microseconds(moment)


def _parse_moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
