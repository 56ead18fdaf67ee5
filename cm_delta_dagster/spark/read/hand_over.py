"""Packing live files, and what the log has about them, for the file index in the JVM of Spark's driver.

A block holds the files of a part of the table: locations, sizes, partition values and bounds of columns. Each column is
compressed on its own, so that the JVM unpacks a column of statistics only if a filter needs it. ``jvm/Blocks.java``
reads this form.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.actions.partition_values import partition_value_array, physical_values
from cm_delta_dagster.protocol.features.column_mapping import physical_name
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import VOID
from cm_delta_dagster.protocol.statistics.data_skipping import data_columns
from cm_delta_dagster.protocol.statistics.file_bounds import DataColumn, FileBounds
from cm_delta_dagster.protocol.statistics.statistics import statistics_columns
from cm_delta_dagster.protocol.statistics.stats_json import parse_statistics
from cm_delta_dagster.spark.read.layout import absolute_locations, check_names, one_chunk
from cm_delta_dagster.spark.stores.object_stores import SparkStorage

MAX_COLUMNS = 32
"""Maximum number of columns whose bounds are handed over."""

_FAST = 1
_NO_NULL, _ONLY_NULLS = 1, 2
"""Bits of one number; a file without rows has both."""


def skipping_columns(layout: TableLayout) -> Mapping[ColumnPath, DataColumn]:
    """The columns, by logical path, whose bounds are handed over."""
    listed = statistics_columns(layout.schema, layout.partition_columns, layout.properties)
    columns = data_columns(
        [item.path for item in listed],
        schema=layout.schema,
        partition_columns=layout.partition_columns,
        mapping=layout.mapping,
    )
    return dict(list(columns.items())[:MAX_COLUMNS])


def packed_files(
    files: pa.Table,
    *,
    layout: TableLayout,
    storage: SparkStorage,
    columns: Mapping[ColumnPath, DataColumn],
    zone: tzinfo = UTC,
) -> bytes:
    """One block.

    Args:
        files: live files, columns of ``file_columns.ADD_SCHEMA``.
        columns: result of :func:`skipping_columns`.
        zone: time zone of ``timestamp`` partition values that state none.

    Raises:
        CorruptLogError: a path or a partition value of the log is damaged.
        UnsupportedFeatureError: a file has a name that Spark cannot open.
    """
    locations = absolute_locations(layout.location, files["path"])
    check_names(locations)
    if storage.is_object_store:
        locations = pa.array([storage.location(name) for name in locations.to_pylist()], pa.string())
    fields = [item for item in layout.partition_fields if item.type != VOID]
    names = [physical_name(item, layout.mapping) for item in fields]
    texts = [one_chunk(partition_column(files, name)) for name in names]
    tuples, first = _tuples(texts, files.num_rows)
    fixed = [
        locations,
        files["size"],
        pc.fill_null(files["modificationTime"], 0),
        files["deletionVector"].is_valid(),
        pa.array(tuples),
        files["baseRowId"],
        files["defaultRowCommitVersion"],
    ]
    values = [
        physical_values(partition_value_array(text.take(first), item.type, zone=zone))
        for text, item in zip(texts, fields, strict=True)
    ]
    packed = [packed_column(one_chunk(item)) for item in [*fixed, *values, *_bounds(files, columns)]]
    return struct.pack(">ii", len(values), len(packed)) + b"".join(
        struct.pack(">i", len(item)) + item for item in packed
    )


def packed_column(values: pa.Array) -> bytes:
    """A column as ``Column`` in ``jvm/Blocks.java`` reads it: kind, length, a byte for each null, values."""
    kind, content = _content(values)
    is_null = values.is_null().to_numpy(zero_copy_only=False).astype(np.uint8)
    return zlib.compress(kind + struct.pack(">i", len(values)) + is_null.tobytes() + content, _FAST)


def _content(values: pa.Array) -> tuple[bytes, bytes]:
    kind = values.type
    if pa.types.is_floating(kind):
        return b"d", _numbers(values.cast(pa.float64()))
    if pa.types.is_decimal(kind):
        return b"n", _texts(values.cast(pa.string()))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return b"s" if pa.types.is_string(kind) else b"b", _texts(values)
    if pa.types.is_null(kind):
        return b"l", bytes(8 * len(values))
    whole = values.cast(pa.int32()) if pa.types.is_date32(kind) else values
    return b"l", _numbers(whole.cast(pa.int64()))


def _numbers(values: pa.Array) -> bytes:
    numbers: npt.NDArray[np.generic] = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    return numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()


def _texts(values: pa.Array) -> bytes:
    """Offsets of 32 bits, and all bytes."""
    whole = pc.fill_null(values.cast(pa.large_binary()), b"")
    _, places, content = whole.buffers()
    offsets = np.frombuffer(places, dtype=np.int64)[whole.offset : whole.offset + len(whole) + 1]
    start, end = (int(offsets[0]), int(offsets[-1])) if len(whole) else (0, 0)
    text = b"" if content is None else content.slice(start, end - start).to_pybytes()
    relative = offsets - start if len(whole) else np.zeros(1, dtype=np.int64)
    return relative.astype("<i4").tobytes() + text


def _tuples(texts: Sequence[pa.Array], count: int) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """For each file, the number of its combination of partition texts, and the position of one file of each combination."""
    codes = np.zeros(count, dtype=np.int64)
    for text in texts:
        encoded = pc.dictionary_encode(text, null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    return numbers.astype(np.int64), pa.array(first)


def _bounds(files: pa.Table, columns: Mapping[ColumnPath, DataColumn]) -> list[pa.Array]:
    """Lower bounds, upper bounds and nulls of each column."""
    parsed = parse_statistics(files["stats"], {column.path: column.type for column in columns.values()})
    arrays: list[pa.Array] = []
    unknown = pa.nulls(files.num_rows, pa.int64())
    for column in columns.values():
        bounds = FileBounds.of(parsed, column)
        without = pc.if_else(pc.fill_null(bounds.has_no_null, False), _NO_NULL, 0)
        nulls = pc.add(without, pc.if_else(pc.fill_null(bounds.has_only_nulls, False), _ONLY_NULLS, 0))
        lower, upper = bounds.lower, bounds.upper
        arrays += [unknown if lower is None else lower, unknown if upper is None else upper, nulls]
    return arrays
