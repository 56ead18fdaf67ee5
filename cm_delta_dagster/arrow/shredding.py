"""Reassembly of shredded variants (protocol heading "Variant Shredding").

A shredded variant has parts of its values in typed Parquet columns (``typed_value``) and the rest in ``value``. This module
returns the plain encoding. It does not shred.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate

import pyarrow as pa
import pyarrow.types as pat

from cm_delta_dagster.arrow import variant as v
from cm_delta_dagster.arrow.schema import VARIANT_TYPE

_MAX_SHORT_STRING = 63


class _FieldNames:
    """The field names of one variant; a name that the file's dictionary lacks is added."""

    __slots__ = ("_added", "_ids", "_metadata", "names")

    def __init__(self, metadata: bytes) -> None:
        self._metadata = metadata
        self.names = list(v.field_names(metadata))
        self._ids = {name: position for position, name in enumerate(self.names)}
        self._added = False

    def id_of(self, name: str) -> int:
        if name not in self._ids:
            self._ids[name] = len(self.names)
            self.names.append(name)
            self._added = True
        return self._ids[name]

    @property
    def metadata(self) -> bytes:
        if not self._added:
            return self._metadata
        texts = [name.encode() for name in self.names]
        offsets = list(accumulate(map(len, texts), initial=0))
        width = _width(max(offsets[-1], len(texts)))
        numbers = b"".join(number.to_bytes(width, "little") for number in (len(texts), *offsets))
        return bytes([(width - 1) << 6 | 1]) + numbers + b"".join(texts)


_VariantValues = list[bytes | None]


def unshredded(array: pa.StructArray, column: str) -> pa.Array:
    """Variants as ``VARIANT_TYPE``.

    Args:
        array: a struct of ``metadata``, ``value`` and, if the variants are shredded, ``typed_value``.
        column: name of the column, for messages.

    Raises:
        CorruptLogError: a variant has neither a value nor a typed one, or its bytes are damaged.
    """
    missing = array.is_null() if array.null_count else None
    if array.type.get_field_index("typed_value") < 0:
        parts = [array.field(array.type.get_field_index(name)).cast(pa.binary()) for name in ("metadata", "value")]
        return pa.StructArray.from_arrays(parts, fields=list(VARIANT_TYPE), mask=missing)
    is_valid = array.is_valid().to_pylist()
    metadata: list[bytes] = _child(array, "metadata").to_pylist()
    names = [_FieldNames(content) if valid else None for content, valid in zip(metadata, is_valid, strict=True)]
    try:
        values = _rebuilt(array, names)
    except (IndexError, struct.error, OverflowError) as error:
        raise v.damaged_variant(f"column {column!r}: {error}") from error
    if any(valid and value is None for valid, value in zip(is_valid, values, strict=True)):
        raise v.damaged_variant(f"a row of column {column!r} has neither a value nor a typed value")
    parts = [
        pa.array([name.metadata if name else b"" for name in names], pa.binary()),
        pa.array([value or b"" for value in values], pa.binary()),
    ]
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT_TYPE), mask=missing)


def _child(array: pa.StructArray, name: str) -> pa.Array:
    """A field of the struct, null where the struct is null."""
    position = array.type.get_field_index(name)
    return array.flatten()[position] if position >= 0 else pa.nulls(len(array), pa.binary())


def _rebuilt(array: pa.StructArray, names: Sequence[_FieldNames | None]) -> _VariantValues:
    """Bytes of each variant of a struct of ``value`` and ``typed_value``; None for one that is missing."""
    values: _VariantValues = _child(array, "value").to_pylist()
    if array.type.get_field_index("typed_value") < 0:
        return values
    typed = _child(array, "typed_value")
    if pat.is_struct(typed.type):
        return _objects(typed, values, names)
    if _is_list(typed.type):
        typed_values = _arrays(typed, names)
    else:
        typed_values = _primitives(typed)
    # Except for objects, a value is in one of the two columns.
    return [value if typed is None else typed for value, typed in zip(values, typed_values, strict=True)]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pat.is_list(kind) or pat.is_large_list(kind))


def _objects(typed: pa.StructArray, values: _VariantValues, names: Sequence[_FieldNames | None]) -> _VariantValues:
    members = {item.name: _rebuilt(_child(typed, item.name), names) for item in typed.type}
    result: _VariantValues = []
    for row, is_typed in enumerate(typed.is_valid().to_pylist()):
        name = names[row]
        if not is_typed or name is None:
            result.append(values[row])
            continue
        fields = {key: content for key, contents in members.items() if (content := contents[row]) is not None}
        result.append(_object(_other_fields(values[row], name) | fields, name))
    return result


def _other_fields(value: bytes | None, names: _FieldNames) -> dict[str, bytes]:
    """The fields in ``value``, which have no typed column."""
    if value is None:
        return {}
    if not value or value[0] & 3 != v.OBJECT:
        raise v.damaged_variant("a typed object has a value that is not an object")
    return {names.names[key]: value[start : v.value_end(value, start)] for key, start in v.object_fields(value, 0)}


def _object(fields: Mapping[str, bytes], names: _FieldNames) -> bytes:
    ordered = sorted(fields.items(), key=lambda item: item[0].encode())
    ids = [names.id_of(key) for key, _ in ordered]
    offsets = list(accumulate((len(content) for _, content in ordered), initial=0))
    id_width, offset_width = _width(max(ids, default=0)), _width(offsets[-1])
    is_large = len(ids) > 255
    header = (is_large << 4 | (id_width - 1) << 2 | (offset_width - 1)) << 2 | v.OBJECT
    return b"".join(
        (
            bytes([header]),
            len(ids).to_bytes(4 if is_large else 1, "little"),
            *(key.to_bytes(id_width, "little") for key in ids),
            *(offset.to_bytes(offset_width, "little") for offset in offsets),
            *(content for _, content in ordered),
        )
    )


def _arrays(typed: pa.ListArray, names: Sequence[_FieldNames | None]) -> _VariantValues:
    offsets = typed.offsets.to_pylist()
    is_valid = typed.is_valid().to_pylist()
    first = offsets[0] if offsets else 0
    elements = typed.values.slice(first, offsets[-1] - first if offsets else 0)
    owners = [names[row] for row in range(len(typed)) for _ in range(offsets[row], offsets[row + 1])]
    contents = _rebuilt(elements, owners)
    result: _VariantValues = []
    for row, valid in enumerate(is_valid):
        part = contents[offsets[row] - first : offsets[row + 1] - first]
        result.append(_array(part) if valid else None)
    return result


def _array(elements: Sequence[bytes | None]) -> bytes:
    contents = [content for content in elements if content is not None]
    if len(contents) != len(elements):
        raise v.damaged_variant("an element of an array has neither a value nor a typed value")
    offsets = list(accumulate(map(len, contents), initial=0))
    width = _width(offsets[-1])
    is_large = len(contents) > 255
    header = (is_large << 2 | (width - 1)) << 2 | v.ARRAY
    numbers = b"".join(offset.to_bytes(width, "little") for offset in offsets)
    return bytes([header]) + len(contents).to_bytes(4 if is_large else 1, "little") + numbers + b"".join(contents)


def _width(greatest: int) -> int:
    return max(1, (greatest.bit_length() + 7) // 8)


# --- typed values -----------------------------------------------------------------------------------------------------


def _primitives(typed: pa.Array) -> _VariantValues:
    kind = typed.type
    if isinstance(kind, pa.BaseExtensionType):
        typed, kind = typed.storage, kind.storage_type
    if pat.is_decimal(kind):
        encode: Callable[..., bytes] = _decimal_encoder(kind)
    elif pat.is_timestamp(kind) or pat.is_time64(kind):
        encode, typed = _time_encoder(kind), typed.view(pa.int64())
    elif pat.is_date32(kind):
        encode, typed = _packed(v.DATE, "<i"), typed.view(pa.int32())
    else:
        encoder = next((encoder for is_kind, encoder in _ENCODERS if is_kind(kind)), None)
        if encoder is None:
            raise v.damaged_variant(f"a typed value is stored as {kind}, which no variant can hold")
        encode = encoder
    return [None if value is None else encode(value) for value in typed.to_pylist()]


def _packed(kind: int, layout: str) -> Callable[..., bytes]:
    header = bytes([kind << 2])
    return lambda value: header + struct.pack(layout, value)


def _boolean(value: bool) -> bytes:
    return bytes([(v.TRUE if value else v.FALSE) << 2])


def _string(value: str) -> bytes:
    content = value.encode()
    if len(content) <= _MAX_SHORT_STRING:
        return bytes([len(content) << 2 | v.SHORT_STRING]) + content
    return _sized(v.STRING, content)


def _uuid(value: bytes) -> bytes:
    return bytes([v.UUID << 2]) + value


def _sized(kind: int, content: bytes) -> bytes:
    return bytes([kind << 2]) + struct.pack("<I", len(content)) + content


def _decimal_encoder(kind: pa.DataType) -> Callable[..., bytes]:
    if kind.precision <= 9:
        header, width = v.DECIMAL4, 4
    elif kind.precision <= 18:
        header, width = v.DECIMAL8, 8
    else:
        header, width = v.DECIMAL16, 16
    prefix = bytes([header << 2, kind.scale])
    shift = kind.scale

    def encode(value: Decimal) -> bytes:
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)  # Arrow's decimals are finite
        unscaled: int = int("".join(map(str, digits))) * 10 ** (exponent + shift)
        return prefix + (-unscaled if sign else unscaled).to_bytes(width, "little", signed=True)

    return encode


def _time_encoder(kind: pa.DataType) -> Callable[..., bytes]:
    """Encoder of times and timestamps, which are passed as integers in the unit of ``kind``."""
    match kind.unit, pat.is_time64(kind):
        case "us", True:
            code = v.TIME
        case "us", False:
            code = v.TIMESTAMP if kind.tz else v.TIMESTAMP_NTZ
        case "ns", False:
            code = v.TIMESTAMP_NANOS if kind.tz else v.TIMESTAMP_NTZ_NANOS
        case _:
            raise v.damaged_variant(f"a typed value is stored as {kind}, which no variant can hold")
    return _packed(code, "<q")


_ENCODERS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[..., bytes]]] = (
    (pat.is_boolean, _boolean),
    (pat.is_int8, _packed(v.INT8, "<b")),
    (pat.is_int16, _packed(v.INT16, "<h")),
    (pat.is_int32, _packed(v.INT32, "<i")),
    (pat.is_int64, _packed(v.INT64, "<q")),
    (pat.is_float32, _packed(v.FLOAT, "<f")),
    (pat.is_float64, _packed(v.DOUBLE, "<d")),
    (lambda kind: pat.is_string(kind) or pat.is_large_string(kind), _string),
    (lambda kind: pat.is_fixed_size_binary(kind) and kind.byte_width == 16, _uuid),
    (lambda kind: pat.is_binary(kind) or pat.is_large_binary(kind), lambda value: _sized(v.BINARY, value)),
)
