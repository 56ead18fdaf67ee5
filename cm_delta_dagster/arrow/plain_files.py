"""Data files that the Parquet reader of another engine returns as this package would: nothing in them needs a conversion.

A footer shows the Parquet types of the columns, the calendar of dates, and counts of nulls; the log shows none of these. So the
footers of local files are read, once for each file and shape of the columns. In doubt a file is not plain; the scan of this
package then reads it, and raises its errors.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import loads
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from cm_delta_dagster.arrow.calendar import legacy_calendar
from cm_delta_dagster.arrow.nullability import promises_inside
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.char_types import char_widths
from cm_delta_dagster.protocol.schema.types import (
    DOUBLE,
    FLOAT,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    data_type_text,
)
from cm_delta_dagster.protocol.statistics.stats_json import parse_statistics
from cm_delta_dagster.storage.local_store import LocalStore, local_path
from cm_delta_dagster.storage.store import Store

_PLAIN_TYPES: Mapping[str, tuple[str, Sequence[Mapping[str, Any]]]] = {
    "boolean": ("BOOLEAN", ({"Type": "None"},)),
    "byte": ("INT32", ({"Type": "Int", "bitWidth": 8, "isSigned": True},)),
    "short": ("INT32", ({"Type": "Int", "bitWidth": 16, "isSigned": True},)),
    "integer": ("INT32", ({"Type": "None"}, {"Type": "Int", "bitWidth": 32, "isSigned": True})),
    "long": ("INT64", ({"Type": "None"}, {"Type": "Int", "bitWidth": 64, "isSigned": True})),
    "float": ("FLOAT", ({"Type": "None"},)),
    "double": ("DOUBLE", ({"Type": "None"},)),
    "string": ("BYTE_ARRAY", ({"Type": "String"},)),
    "binary": ("BYTE_ARRAY", ({"Type": "None"},)),
    "date": ("INT32", ({"Type": "Date"},)),
    "timestamp": (
        "INT64",
        (
            {
                "Type": "Timestamp",
                "isAdjustedToUTC": True,
                "timeUnit": "microseconds",
                "is_from_converted_type": False,
            },
        ),
    ),
    "timestamp_ntz": (
        "INT64",
        (
            {
                "Type": "Timestamp",
                "isAdjustedToUTC": False,
                "timeUnit": "microseconds",
                "is_from_converted_type": False,
            },
        ),
    ),
}
"""By type of the table, the physical type and the annotations with which every reader returns the same values."""

_DECIMAL_STORAGE = frozenset(("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"))
_CODECS = frozenset(("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"))
_EXTENSION = b"ARROW:extension:name"
_KNOWN_FILES = 65_536
_KNOWN_SCHEMAS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainColumn:
    """A column of a table that files store as it is: its name in the table and in the files."""

    field: StructField
    stored: str

    @property
    def is_float(self) -> bool:
        return self.field.type in (FLOAT, DOUBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainFile:
    """A local file that can be read as it is: its row in the table of files, and its path in the file system."""

    row: int
    path: str


def plain_columns(layout: TableLayout, names: Sequence[str]) -> tuple[PlainColumn, ...] | None:
    """Those of the columns that are not partition columns; None if a value of one is converted on every read."""
    if layout.mapping is ColumnMappingMode.ID:
        return None
    partitions = {item.name for item in layout.partition_fields}
    columns = []
    for name in names:
        item = layout.schema.field(name)
        if item is None or not (item.name in partitions or _may_be_plain(item, layout.mapping)):
            return None
        if item.name not in partitions:
            columns.append(PlainColumn(field=item, stored=physical_name(item, layout.mapping)))
    return tuple(columns)


def _may_be_plain(item: StructField, mapping: ColumnMappingMode) -> bool:
    if char_widths(item) is not None:
        return False
    if not isinstance(item.type, StructType | ArrayType | MapType):
        return isinstance(item.type, DecimalType) or getattr(item.type, "name", "") in _PLAIN_TYPES
    if not item.nullable or promises_inside(item.type):
        return False
    return all(_is_plain_leaf(kind, mapping) for kind in _parts_of(item.type))


def _parts_of(data_type: DataType) -> Iterator[DataType]:
    """A type and the types inside it."""
    yield data_type
    match data_type:
        case StructType():
            for item in data_type.fields:
                yield from _parts_of(item.type)
        case ArrayType():
            yield from _parts_of(data_type.element_type)
        case MapType():
            yield from _parts_of(data_type.key_type)
            yield from _parts_of(data_type.value_type)


def _is_plain_leaf(data_type: DataType, mapping: ColumnMappingMode) -> bool:
    """Whether a part of a nested type is read as it is.

    The fields of a struct have physical names in the files. Floats are left out, because an engine may skip rows with NaN by
    statistics without it.
    """
    match data_type:
        case StructType():
            return mapping is ColumnMappingMode.NONE and bool(data_type.fields)
        case ArrayType() | MapType() | DecimalType():
            return True
    return data_type not in (FLOAT, DOUBLE) and getattr(data_type, "name", "") in _PLAIN_TYPES


def plain_files(store: Store, layout: TableLayout, files: pa.Table, columns: Sequence[PlainColumn]) -> list[PlainFile]:
    """Those of the files of which the columns can be read as they are stored, without deleted rows.

    Args:
        files: columns of ``file_columns.ADD_SCHEMA``.
    """
    if not isinstance(store, LocalStore):
        return []
    rows = zip(
        files["path"].to_pylist(),
        files["size"].to_pylist(),
        files["deletionVector"].is_valid().to_pylist(),
        parse_statistics(files["stats"], {}).num_records.to_pylist(),
        strict=True,
    )
    check = _FooterCheck(columns)
    result = []
    for row, (path, size, has_vector, num_records) in enumerate(rows):
        local = None if has_vector else _local_path(layout.location, path)
        if local is not None and check.is_plain(local, size, num_records):
            result.append(PlainFile(row=row, path=local))
    return result


def _local_path(table: str, path: str) -> str | None:
    try:
        location = resolve_path(table, path)
        return local_path(location) if location.startswith("file:") else None
    except CmDeltaError:
        return None


_checked_files: "OrderedDict[tuple[Any, ...], bool]" = OrderedDict()
"""Results by path, size and time of the file, its number of records by the log, and the columns."""
_shapes: dict[tuple[Any, ...], int] = {}
"""Numbers of the columns that files were checked for: names, types and nullability. Short keys for the results."""
_lock = threading.Lock()


class _FooterCheck:
    """Checks files for the same columns; footers with the same schema share a part of the work."""

    def __init__(self, columns: Sequence[PlainColumn]) -> None:
        self._columns = columns
        shape = tuple((item.stored, data_type_text(item.field.type), item.field.nullable) for item in columns)
        with _lock:
            self._number = _shapes.setdefault(shape, len(_shapes))
        self._schemas: list[tuple[pq.ParquetSchema, bytes | None, Mapping[str, tuple[int, ...]] | None]] = []

    def is_plain(self, path: str, size: int | None, num_records: int | None) -> bool:
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return False
        if size != status.st_size:
            return False
        key = (path, size, status.st_mtime_ns, status.st_ino, num_records, self._number)
        with _lock:
            known = _checked_files.get(key)
            if known is not None:
                _checked_files.move_to_end(key)
                return known
        try:
            answer = self._fits(pq.read_metadata(path), num_records)
        except (OSError, ValueError, pa.ArrowException):
            return False
        with _lock:
            _checked_files[key] = answer
            while len(_checked_files) > _KNOWN_FILES:
                _checked_files.popitem(last=False)
        return answer

    def _fits(self, footer: pq.FileMetaData, num_records: int | None) -> bool:
        if legacy_calendar(footer.metadata).is_any or num_records not in (None, footer.num_rows):
            return False
        leaves = self._leaves(footer)
        if leaves is None:
            return False
        first = footer.row_group(0) if footer.num_row_groups else None
        if first is not None and any(
            first.column(leaf).compression not in _CODECS for group in leaves.values() for leaf in group
        ):
            return False
        required = [leaves[item.stored][0] for item in self._columns if not item.field.nullable]
        return all(_has_no_null(footer, leaf) for leaf in required)

    def _leaves(self, footer: pq.FileMetaData) -> Mapping[str, tuple[int, ...]] | None:
        # Writers with Arrow state its types beside the schema, of which they are no part.
        schema, stated = footer.schema, (footer.metadata or {}).get(b"ARROW:schema")
        for known, known_stated, leaves in self._schemas:
            if known.equals(schema) and known_stated == stated:
                return leaves
        leaves = _plain_leaves(schema, self._columns)
        self._schemas = [(schema, stated, leaves), *self._schemas[: _KNOWN_SCHEMAS - 1]]
        return leaves


def _has_no_null(footer: pq.FileMetaData, leaf: int) -> bool:
    if footer.schema.column(leaf).max_definition_level == 0:
        return True
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(leaf).statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count:
            return False
    return True


def _plain_leaves(schema: pq.ParquetSchema, columns: Sequence[PlainColumn]) -> Mapping[str, tuple[int, ...]] | None:
    """The positions of the Parquet columns of each column; None if one is missing, ambiguous or stored in another way."""
    arrow = schema.to_arrow_schema()
    if len({name.lower() for name in arrow.names}) < len(arrow.names):
        return None
    positions: dict[str, list[int]] = {}
    paths = [schema.column(index).path for index in range(len(schema))]
    for index, path in enumerate(paths):
        positions.setdefault(path.partition(".")[0], []).append(index)
    result = {}
    for item in columns:
        stored = arrow.get_field_index(item.stored)
        if stored < 0 or not _same_shape(arrow.field(stored), item.field.type):
            return None
        expected = list(_expected_leaves((item.stored,), item.field.type, 0))
        # A name with a dot cannot be distinguished from the path of a nested field.
        actual = positions.get(item.stored, [])
        if len(expected) != len(actual):
            return None
        if not all(
            _is_stored_as(schema.column(leaf), *leaf_of) for leaf, leaf_of in zip(actual, expected, strict=True)
        ):
            return None
        result[item.stored] = tuple(actual)
    return result


def _same_shape(stored: pa.Field, data_type: DataType) -> bool:
    """Whether a nested type has the same fields with the same names in the same order. Storage is checked elsewhere."""
    kind = stored.type
    # An engine returns the type of Arrow that the writer has stated.
    if pat.is_duration(kind) or isinstance(kind, pa.BaseExtensionType) or _EXTENSION in (stored.metadata or {}):
        return False
    match data_type:
        case StructType():
            return (
                pat.is_struct(kind)
                and [item.name for item in kind] == list(data_type.names)
                and all(_same_shape(part, item.type) for part, item in zip(kind, data_type.fields, strict=True))
            )
        case ArrayType():
            return pat.is_list(kind) and _same_shape(kind.value_field, data_type.element_type)
        case MapType():
            return (
                pat.is_map(kind)
                and _same_shape(kind.key_field, data_type.key_type)
                and _same_shape(kind.item_field, data_type.value_type)
            )
    return not pat.is_nested(kind)


def _expected_leaves(
    paths: tuple[str, ...], data_type: DataType, repeated: int
) -> Iterator[tuple[tuple[str, ...], DataType, int]]:
    """The possible paths, the type and the repetition level of each Parquet column of a type whose own paths are ``paths``."""
    match data_type:
        case StructType():
            for item in data_type.fields:
                yield from _expected_leaves(tuple(f"{path}.{item.name}" for path in paths), item.type, repeated)
        case ArrayType():
            elements = tuple(f"{path}.list.{name}" for path in paths for name in ("element", "item"))
            yield from _expected_leaves(elements, data_type.element_type, repeated + 1)
        case MapType():
            for name, inside in (("key", data_type.key_type), ("value", data_type.value_type)):
                parts = tuple(f"{path}.key_value.{name}" for path in paths)
                yield from _expected_leaves(parts, inside, repeated + 1)
        case _:
            yield paths, data_type, repeated


def _is_stored_as(column: pq.ColumnSchema, paths: tuple[str, ...], data_type: DataType, repeated: int) -> bool:
    if column.path not in paths or column.max_repetition_level != repeated:
        return False
    annotation = loads(column.logical_type.to_json())
    if isinstance(data_type, DecimalType):
        expected = {"Type": "Decimal", "precision": data_type.precision, "scale": data_type.scale}
        return column.physical_type in _DECIMAL_STORAGE and annotation == expected
    physical, annotations = _PLAIN_TYPES[getattr(data_type, "name", "")]
    return column.physical_type == physical and any(known.items() <= annotation.items() for known in annotations)
