"""The Arrow types that writers store in Parquet files, each with values and with the values that a table of Delta then has."""

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_VIEW, _BYTES_VIEW = pa.string_view(), pa.binary_view()
_LONG_TEXT = "longer than the twelve bytes that a view holds itself"
_DECIMALS = [Decimal("1.25"), None, Decimal("-3.00")]
_LISTS = [["a", _LONG_TEXT], None, ["c", None]]
_NUMBERS = [[1], None, [2, 3]]


@dataclass(frozen=True, slots=True)
class StoredType:
    """A type with three values; ``read`` are the values as they are read, if these differ.

    ``unread_by_spark``: Spark refuses the type in any table.
    """

    name: str
    stored: pa.DataType
    values: list[Any]
    read: list[Any] | None = None
    unread_by_spark: bool = False

    @property
    def expected(self) -> list[Any]:
        return self.values if self.read is None else self.read

    @property
    def plain(self) -> pa.DataType:
        """The type without the name of an extension."""
        return self.stored.storage_type if isinstance(self.stored, pa.BaseExtensionType) else self.stored

    def array(self) -> pa.Array:
        if isinstance(self.stored, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(self.stored, pa.array(self.values, self.plain))
        return pa.array(self.values, self.stored)


STORED_TYPES = [
    StoredType("string_view", _VIEW, ["a", None, _LONG_TEXT]),
    StoredType("binary_view", _BYTES_VIEW, [b"a", None, _LONG_TEXT.encode()]),
    StoredType("large_string", pa.large_string(), ["a", None, "c"]),
    StoredType("large_binary", pa.large_binary(), [b"a", None, b"c"]),
    StoredType("fixed_size_binary", pa.binary(2), [b"ab", None, b"cd"]),
    StoredType("large_list", pa.large_list(pa.int64()), _NUMBERS),
    StoredType("fixed_size_list", pa.list_(pa.int64(), 2), [[1, 2], None, [3, None]]),
    StoredType("list_view", pa.list_view(pa.int64()), _NUMBERS),
    StoredType("large_list_view", pa.large_list_view(pa.int64()), _NUMBERS),
    StoredType("list_of_views", pa.list_(_VIEW), _LISTS),
    StoredType("large_list_of_views", pa.large_list(_VIEW), _LISTS),
    StoredType("fixed_size_list_of_views", pa.list_(_VIEW, 2), _LISTS),
    StoredType("list_view_of_views", pa.list_view(_VIEW), _LISTS),
    StoredType("map_of_views", pa.map_(_VIEW, _BYTES_VIEW), [[("k", b"v")], None, [(_LONG_TEXT, None)]]),
    StoredType("struct_of_views", pa.struct({"x": _VIEW}), [{"x": "a"}, None, {"x": None}]),
    StoredType("dictionary", pa.dictionary(pa.int8(), pa.string()), ["a", None, "c"]),
    StoredType("dictionary_of_large", pa.dictionary(pa.uint32(), pa.large_string()), ["a", None, "c"]),
    StoredType("dictionary_of_numbers", pa.dictionary(pa.int32(), pa.int64()), [7, None, 9]),
    StoredType("list_of_dictionaries", pa.list_(pa.dictionary(pa.int32(), pa.string())), _LISTS),
    StoredType("decimal32", pa.decimal32(5, 2), _DECIMALS),
    StoredType("decimal64", pa.decimal64(12, 2), _DECIMALS),
    StoredType("decimal128", pa.decimal128(30, 2), _DECIMALS),
    StoredType("decimal256", pa.decimal256(38, 2), _DECIMALS),
    StoredType("uint8", pa.uint8(), [1, None, 2**8 - 1]),
    StoredType("uint16", pa.uint16(), [1, None, 2**16 - 1]),
    StoredType("uint32", pa.uint32(), [1, None, 2**32 - 1]),
    StoredType("uint64", pa.uint64(), [1, None, 2**64 - 1], [Decimal(1), None, Decimal(2**64 - 1)]),
    StoredType("float16", pa.float16(), [1.5, None, float("inf")], unread_by_spark=True),
    StoredType("float32", pa.float32(), [1.5, None, float("-inf")]),
    StoredType("date64", pa.date64(), [dt.date(1970, 1, 1), None, dt.date(1, 1, 1)]),
    StoredType("milliseconds", pa.timestamp("ms"), [dt.datetime(2024, 1, 1, 2, 3, 4, 5000), None, dt.datetime(1, 1, 1)]),
    StoredType(
        "nanoseconds",
        pa.timestamp("ns"),
        [1500, None, -1],
        [dt.datetime(1970, 1, 1, 0, 0, 0, 1), None, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)],
        unread_by_spark=True,
    ),
    StoredType("time_zone", pa.timestamp("us", "Europe/Berlin"), [0, None, 1], [_EPOCH, None, _EPOCH.replace(microsecond=1)]),
    StoredType("uuid", pa.uuid(), [b"a" * 16, None, b"b" * 16]),
    StoredType("json", pa.json_(), ["{}", None, "[1]"]),
    StoredType("bool8", pa.bool8(), [1, None, 0]),
]  # fmt: skip
