"""Variants as JSON text (protocol headings "Variant Data Type", "Variant data in Parquet").

Reads the Parquet Variant encoding, which is two byte strings, ``metadata`` (a dictionary of field names) and ``value``. The text is
that of Spark's ``to_json``. :mod:`~cm_delta_dagster.arrow.shredding` reassembles shredded variants first.
"""

import base64
import datetime as dt
import itertools
import json
import math
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal

import pyarrow as pa

from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.schema.types import (
    VARIANT,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)

PRIMITIVE, SHORT_STRING, OBJECT, ARRAY = range(4)
"""Basic types: the two low bits of the first byte of a value."""

(NULL, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE, DECIMAL4, DECIMAL8, DECIMAL16, DATE, TIMESTAMP, TIMESTAMP_NTZ, FLOAT,
 BINARY, STRING, TIME, TIMESTAMP_NANOS, TIMESTAMP_NTZ_NANOS, UUID) = range(21)  # fmt: skip
"""Primitive types: the six high bits of the first byte."""

_VERSION = 1
_EPOCH = dt.datetime(1970, 1, 1)
_MAX_DEPTH = 1000
_INTEGER_WIDTH = {INT8: 1, INT16: 2, INT32: 4, INT64: 8}
_DECIMAL_WIDTH = {DECIMAL4: 4, DECIMAL8: 8, DECIMAL16: 16}
_WIDTH = {
    NULL: 0, TRUE: 0, FALSE: 0, **_INTEGER_WIDTH, DOUBLE: 8, DECIMAL4: 5, DECIMAL8: 9, DECIMAL16: 17, DATE: 4,
    TIMESTAMP: 8, TIMESTAMP_NTZ: 8, FLOAT: 4, TIME: 8, TIMESTAMP_NANOS: 8, TIMESTAMP_NTZ_NANOS: 8, UUID: 16,
}  # fmt: skip


def json_texts(array: pa.Array, data_type: DataType) -> list[str | None]:
    """Spark's JSON text of each value of a column of type ``data_type``; None for null."""
    match data_type:
        case StructType():
            return _struct_texts(array, data_type)
        case ArrayType():
            return _list_texts(array, data_type)
        case MapType():
            return _map_texts(array, data_type)
    if data_type == VARIANT:
        parts = zip(_column(array, "metadata"), _column(array, "value"), array.is_valid().to_pylist(), strict=True)
        return [variant_to_json(metadata, value) if is_valid else None for metadata, value, is_valid in parts]
    return _primitive_texts(array, data_type)


def variant_to_json(metadata: bytes, value: bytes) -> str:
    """JSON text of one variant.

    Raises:
        CorruptLogError: the bytes are not a variant.
    """
    try:
        return _text(value, 0, field_names(metadata), 0)
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise damaged_variant(str(error) or "it ends too early") from error


def damaged_variant(reason: str) -> CorruptLogError:
    """The error for bytes that are not a variant."""
    return CorruptLogError(
        f"A variant cannot be decoded: {reason}. The data file that holds it is damaged; restore it, or leave the column out."
    )


# --- the parts of the encoding ----------------------------------------------------------------------------------------


def field_names(metadata: bytes) -> tuple[str, ...]:
    """The dictionary of ``metadata``: names by their ids. Raises CorruptLogError."""
    if not metadata or metadata[0] & 0x0F != _VERSION:
        raise damaged_variant(f"its metadata has the version {metadata[0] & 0x0F if metadata else 'nothing'}")
    width = (metadata[0] >> 6) + 1
    count = _unsigned(metadata, 1, width)
    first = 1 + width
    texts = first + (count + 1) * width
    if texts > len(metadata):
        raise damaged_variant("its metadata ends too early")
    offsets = [_unsigned(metadata, first + index * width, width) for index in range(count + 1)]
    if offsets != sorted(offsets) or texts + offsets[-1] > len(metadata):
        raise damaged_variant("the offsets of its metadata are out of order")
    try:
        return tuple(metadata[texts + start : texts + end].decode() for start, end in itertools.pairwise(offsets))
    except UnicodeDecodeError as error:
        raise damaged_variant("a field name is no UTF-8") from error


def object_fields(value: bytes, position: int) -> Iterator[tuple[int, int]]:
    """Id of the name and position of the value of each field of the object at ``position``."""
    header = value[position] >> 2
    offset_width, id_width = (header & 3) + 1, (header >> 2 & 3) + 1
    count, ids = _count(value, position, header >> 4 & 1)
    offsets = ids + count * id_width
    data = offsets + (count + 1) * offset_width
    _require(value, data)
    for index in range(count):
        start = data + _unsigned(value, offsets + index * offset_width, offset_width)
        yield _unsigned(value, ids + index * id_width, id_width), start


def array_elements(value: bytes, position: int) -> Iterator[int]:
    """Position of each element of the array at ``position``."""
    header = value[position] >> 2
    width = (header & 3) + 1
    count, offsets = _count(value, position, header >> 2 & 1)
    data = offsets + (count + 1) * width
    _require(value, data)
    for index in range(count):
        yield data + _unsigned(value, offsets + index * width, width)


def value_end(value: bytes, position: int) -> int:
    """Position after the value that begins at ``position``."""
    basic, header = value[position] & 3, value[position] >> 2
    if basic == SHORT_STRING:
        return position + 1 + header
    if basic == PRIMITIVE:
        if header in (BINARY, STRING):
            return position + 5 + _unsigned(value, position + 1, 4)
        if header not in _WIDTH:
            raise damaged_variant(f"its type {header} is not known")
        return position + 1 + _WIDTH[header]
    is_large = header >> 4 & 1 if basic == OBJECT else header >> 2 & 1
    width = (header & 3) + 1
    count, start = _count(value, position, is_large)
    if basic == OBJECT:
        start += count * ((header >> 2 & 3) + 1)
    return start + (count + 1) * width + _unsigned(value, start + count * width, width)


def _count(value: bytes, position: int, is_large: int) -> tuple[int, int]:
    width = 4 if is_large else 1
    return _unsigned(value, position + 1, width), position + 1 + width


def _unsigned(data: bytes, position: int, width: int) -> int:
    _require(data, position + width)
    return int.from_bytes(data[position : position + width], "little")


def _signed(data: bytes, position: int, width: int) -> int:
    _require(data, position + width)
    return int.from_bytes(data[position : position + width], "little", signed=True)


def _require(data: bytes, end: int) -> None:
    if end > len(data):
        raise damaged_variant("it ends too early")


# --- text -------------------------------------------------------------------------------------------------------------


def _text(value: bytes, position: int, names: Sequence[str], depth: int) -> str:
    if depth > _MAX_DEPTH:
        raise damaged_variant(f"it is nested more than {_MAX_DEPTH} levels deep")
    _require(value, position + 1)
    basic, header = value[position] & 3, value[position] >> 2
    if basic == SHORT_STRING:
        _require(value, position + 1 + header)
        return _quoted(value[position + 1 : position + 1 + header].decode())
    if basic == OBJECT:
        fields = [(names[key], start) for key, start in object_fields(value, position)]
        return (
            "{" + ",".join(f"{_quoted(name)}:{_text(value, start, names, depth + 1)}" for name, start in fields) + "}"
        )
    if basic == ARRAY:
        return "[" + ",".join(_text(value, at, names, depth + 1) for at in array_elements(value, position)) + "]"
    return _primitive_text(value, position + 1, header)


def _primitive_text(value: bytes, position: int, kind: int) -> str:
    if kind in _INTEGER_WIDTH:
        return str(_signed(value, position, _INTEGER_WIDTH[kind]))
    if kind in _DECIMAL_WIDTH:
        return decimal_text(_signed(value, position + 1, _DECIMAL_WIDTH[kind]), _unsigned(value, position, 1))
    if kind in (BINARY, STRING):
        length = _unsigned(value, position, 4)
        _require(value, position + 4 + length)
        content = value[position + 4 : position + 4 + length]
        return _quoted(content.decode() if kind == STRING else base64.b64encode(content).decode())
    if kind == UUID:
        _require(value, position + 16)
        return _quoted(str(uuid.UUID(bytes=value[position : position + 16])))
    if kind not in _SIMPLE_TEXTS:
        raise damaged_variant(f"its type {kind} is not known")
    return _SIMPLE_TEXTS[kind](value, position)


def _double(value: bytes, position: int) -> str:
    return double_text(struct.unpack_from("<d", value, position)[0])


def _float(value: bytes, position: int) -> str:
    return float_text(struct.unpack_from("<f", value, position)[0])


_SIMPLE_TEXTS: Mapping[int, Callable[[bytes, int], str]] = {
    NULL: lambda value, position: "null",
    TRUE: lambda value, position: "true",
    FALSE: lambda value, position: "false",
    DOUBLE: _double,
    FLOAT: _float,
    DATE: lambda value, position: _quoted(date_text(_signed(value, position, 4))),
    TIMESTAMP: lambda value, position: _quoted(moment_text(_signed(value, position, 8), 6) + "+00:00"),
    TIMESTAMP_NTZ: lambda value, position: _quoted(moment_text(_signed(value, position, 8), 6)),
    TIME: lambda value, position: _quoted(moment_text(_signed(value, position, 8), 6)[11:]),
    TIMESTAMP_NANOS: lambda value, position: _quoted(moment_text(_signed(value, position, 8), 9) + "+00:00"),
    TIMESTAMP_NTZ_NANOS: lambda value, position: _quoted(moment_text(_signed(value, position, 8), 9)),
}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def decimal_text(unscaled: int, scale: int) -> str:
    """Plain decimal text without trailing zeros."""
    if not scale:
        return str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    fraction = digits[-scale:].rstrip("0")
    return ("-" if unscaled < 0 else "") + digits[:-scale] + (f".{fraction}" if fraction else "")


def double_text(value: float) -> str:
    """Java's text of a double; NaN and infinities in quotes."""
    return _java_number(value, repr(value))


def float_text(value: float) -> str:
    """Java's text of a single precision number."""
    return _java_number(value, str(pa.scalar(value, pa.float32()).cast(pa.string())) if math.isfinite(value) else "")


def _java_number(value: float, shortest: str) -> str:
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)  # finite
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent
    if value == 0:
        body = "0.0"
    elif 1e-3 <= abs(value) < 1e7:
        whole = text[:point].ljust(point, "0") if point > 0 else "0"
        body = f"{whole}.{text[point:] if point > 0 else '0' * -point + text}"
        body += "0" if body.endswith(".") else ""
    else:
        body = f"{text[0]}.{text[1:] or '0'}E{point - 1}"
    return ("-" if sign else "") + body


def date_text(days: int) -> str:
    """``yyyy-MM-dd`` of days since 1970."""
    try:
        return (_EPOCH + dt.timedelta(days=days)).date().isoformat()
    except OverflowError as error:
        raise damaged_variant(f"its date of {days} days since 1970 has no text") from error


def moment_text(ticks: int, digits: int) -> str:
    """``yyyy-MM-dd HH:mm:ss[.f]`` of ticks since 1970, of which a second has ``10 ** digits``."""
    seconds, fraction = divmod(ticks, 10**digits)
    try:
        text = (_EPOCH + dt.timedelta(seconds=seconds)).isoformat(sep=" ")
    except OverflowError as error:
        raise damaged_variant(f"its time of {seconds} seconds since 1970 has no text") from error
    return text + (f".{fraction:0{digits}d}".rstrip("0") if fraction else "")


# --- columns that hold variants below ---------------------------------------------------------------------------------


def _column(array: pa.Array, name: str) -> list[bytes]:
    values: list[bytes] = array.field(array.type.get_field_index(name)).to_pylist()
    return values


def _struct_texts(array: pa.Array, data_type: StructType) -> list[str | None]:
    members = [
        (_quoted(item.name), json_texts(array.field(index), item.type)) for index, item in enumerate(data_type.fields)
    ]

    def object_text(row: int) -> str:
        # Spark omits fields that are null, but not variants that hold a JSON null.
        pairs = [f"{name}:{text}" for name, texts in members if (text := texts[row]) is not None]
        return "{" + ",".join(pairs) + "}"

    return [object_text(row) if is_valid else None for row, is_valid in enumerate(array.is_valid().to_pylist())]


def _list_texts(array: pa.Array, data_type: ArrayType) -> list[str | None]:
    elements = ["null" if text is None else text for text in json_texts(array.values, data_type.element_type)]
    return _ranges(array, lambda start, end: "[" + ",".join(elements[start:end]) + "]")


def _map_texts(array: pa.Array, data_type: MapType) -> list[str | None]:
    keys = [text or "null" for text in json_texts(array.keys, data_type.key_type)]
    values = ["null" if text is None else text for text in json_texts(array.items, data_type.value_type)]
    entries = [
        f"{key if key.startswith(chr(34)) else _quoted(key)}:{value}" for key, value in zip(keys, values, strict=True)
    ]
    return _ranges(array, lambda start, end: "{" + ",".join(entries[start:end]) + "}")


def _ranges(array: pa.Array, text: Callable[[int, int], str]) -> list[str | None]:
    offsets = array.offsets.to_pylist()
    ranges = zip(offsets[:-1], offsets[1:], array.is_valid().to_pylist(), strict=True)
    return [text(start, end) if is_valid else None for start, end, is_valid in ranges]


def _primitive_texts(array: pa.Array, data_type: DataType) -> list[str | None]:
    if isinstance(data_type, DecimalType):
        return [None if value is None else format(value, "f") for value in array.to_pylist()]
    to_text = _COLUMN_TEXTS.get(getattr(data_type, "name", ""), str)
    name = getattr(data_type, "name", "")
    if name in ("timestamp", "timestamp_ntz"):
        array = array.cast(pa.int64()) if array.type.tz is None else array.view(pa.int64())
    elif name == "date":
        array = array.cast(pa.int32())
    return [None if value is None else to_text(value) for value in array.to_pylist()]


def _column_moment(micros: int) -> str:
    fraction = micros // 1000 % 1000
    return moment_text(micros - micros % 1_000_000, 6).replace(" ", "T") + f".{fraction:03d}"


_COLUMN_TEXTS: Mapping[str, Callable[..., str]] = {
    "boolean": lambda value: "true" if value else "false",
    "string": _quoted,
    "binary": lambda value: _quoted(base64.b64encode(value).decode()),
    "float": float_text,
    "double": double_text,
    "date": lambda days: _quoted(date_text(days)),
    "timestamp": lambda micros: _quoted(_column_moment(micros) + "Z"),
    "timestamp_ntz": lambda micros: _quoted(_column_moment(micros)),
}
