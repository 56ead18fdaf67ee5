"""Collects per-file statistics (protocol heading "Per-file Statistics").

Chooses the columns that have statistics and builds the ``stats`` text of a data file from its Parquet footer. Does not read
files: the caller passes footers. ``stats_json`` parses the texts.

Column names are those in the statistics: for a table with column mapping the caller passes a schema with physical names.
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.predicates.predicates import column_path
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import DataType, DecimalType, PrimitiveType, StructType
from cm_delta_dagster.protocol.statistics.stats_json import parse_statistics

STRING_PREFIX_LENGTH = 32
"""Maximum length of a string bound in characters, if the bound can be shortened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsColumn:
    """A leaf column with statistics; ``path`` has the names from the top level down."""

    path: ColumnPath
    type: DataType

    @property
    def parquet_path(self) -> str:
        """The path as in Parquet footers."""
        return ".".join(self.path)


def schema_leaves(schema: StructType) -> tuple[StatisticsColumn, ...]:
    """The leaf columns of the schema in order: the leaves of structs; arrays and maps count as leaves."""
    return tuple(_leaves(schema, ()))


def _leaves(schema: StructType, prefix: ColumnPath) -> Iterable[StatisticsColumn]:
    for field in schema.fields:
        path = (*prefix, field.name)
        if isinstance(field.type, StructType):
            yield from _leaves(field.type, path)
        else:
            yield StatisticsColumn(path=path, type=field.type)


def statistics_columns(
    schema: StructType,
    partition_columns: Sequence[str],
    properties: TableProperties,
    *,
    clustering_columns: Sequence[ColumnPath] = (),
) -> tuple[StatisticsColumn, ...]:
    """The leaf columns that have statistics, in schema order, without partition columns.

    These are the columns in ``delta.dataSkippingStatsColumns`` if it is set, else the first
    ``delta.dataSkippingNumIndexedCols`` columns, and all clustering columns.

    Raises:
        InvalidArgumentError: a name in ``delta.dataSkippingStatsColumns`` is invalid.
    """
    partitions = {name.casefold() for name in partition_columns}
    leaves = [leaf for leaf in schema_leaves(schema) if leaf.path[0].casefold() not in partitions]
    listed = _listed_columns(properties.data_skipping_stats_columns)
    if listed is not None:
        chosen = {leaf.path for leaf in leaves if any(_below(leaf.path, path) for path in listed)}
    else:
        count = properties.data_skipping_num_indexed_cols
        chosen = {leaf.path for leaf in (leaves if count < 0 else leaves[:count])}
    chosen |= {leaf.path for leaf in leaves if any(_below(leaf.path, path) for path in clustering_columns)}
    return tuple(leaf for leaf in leaves if leaf.path in chosen)


def _listed_columns(listed: str | Sequence[str] | None) -> list[ColumnPath] | None:
    if listed is None:
        return None
    names = _split_names(listed) if isinstance(listed, str) else listed
    return [column_path(name.strip()) for name in names if name.strip()]


def _split_names(text: str) -> list[str]:
    """Split a comma-separated list of columns; commas in back-quoted names do not separate."""
    names, start, quoted = [], 0, False
    for position, character in enumerate(text):
        if character == "`":
            quoted = not quoted
        elif character == "," and not quoted:
            names.append(text[start:position])
            start = position + 1
    return [*names, text[start:]]


def _below(path: ColumnPath, ancestor: Sequence[str]) -> bool:
    """Whether ``path`` is ``ancestor`` or a field inside it, ignoring case."""
    head = path[: len(ancestor)]
    return len(head) == len(ancestor) and all(a.casefold() == b.casefold() for a, b in zip(head, ancestor, strict=True))


def footer_statistics(
    metadata: pq.FileMetaData,
    schema: StructType,
    columns: Sequence[StatisticsColumn],
    *,
    without_nan: Collection[StatisticsColumn] = (),
) -> str:
    """Build the ``stats`` text of a data file from its Parquet footer.

    Leaves out what some row group does not report, and arrays and maps, whose leaves count elements.

    Args:
        metadata: footer of the file.
        schema: the table schema; columns that are not in it are left out.
        columns: result of :func:`statistics_columns`.
        without_nan: columns of floats that are known to have no NaN, so that they get bounds in files of any writer.

    Raises:
        InvalidArgumentError: the footer's row count is negative.
    """
    if metadata.num_rows < 0:
        raise InvalidArgumentError(
            f"A Parquet footer reports {metadata.num_rows} rows. The file is damaged; write it again."
        )
    known = {field.name for field in schema.fields}
    groups = [group for group in map(metadata.row_group, range(metadata.num_row_groups)) if group.num_rows > 0]
    positions = _footer_positions(groups[0]) if groups else {}
    reader = _BoundsReader(metadata)
    minimums: dict[str, Any] = {}
    maximums: dict[str, Any] = {}
    null_counts: dict[str, Any] = {}
    for column in columns:
        position = positions.get(column.parquet_path)
        if position is None or column.path[0] not in known:
            continue
        chunks = [(group.num_rows, group.column(position).statistics) for group in groups]
        null_count = _null_count(chunks)
        if null_count is not None:
            _place(null_counts, column.path, str(null_count))
        # A column without non-null values has no bounds.
        if null_count == metadata.num_rows:
            continue
        lower, upper = reader.bounds(column.type, position, chunks, has_no_nan=column in without_nan)
        if lower is not None:
            _place(minimums, column.path, lower)
        if upper is not None:
            _place(maximums, column.path, upper)
    return _json_text(
        {
            "numRecords": str(metadata.num_rows),
            "minValues": minimums,
            "maxValues": maximums,
            "nullCount": null_counts,
            "tightBounds": "true",
        }
    )


def _footer_positions(group: Any) -> dict[str, int]:
    """Positions of the footer's columns by dotted path, without ambiguous paths (``a.b`` and ``b`` in ``a``)."""
    positions: dict[str, int] = {}
    twice: set[str] = set()
    for position in range(group.num_columns):
        path = group.column(position).path_in_schema
        if path in positions:
            twice.add(path)
        positions[path] = position
    for path in twice:
        del positions[path]
    return positions


def _null_count(chunks: Sequence[tuple[int, Any]]) -> int | None:
    total = 0
    for _, statistics in chunks:
        if statistics is None or not statistics.has_null_count:
            return None
        total += statistics.null_count
    return total


def _place(tree: dict[str, Any], path: ColumnPath, text: str) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = text


def _json_text(tree: Mapping[str, Any]) -> str:
    """One-line JSON of a tree whose leaves are JSON texts, so that decimals stay exact."""
    members = [
        f"{json.dumps(name, ensure_ascii=False)}:{value if isinstance(value, str) else _json_text(value)}"
        for name, value in tree.items()
    ]
    return "{" + ",".join(members) + "}"


@dataclass(frozen=True, slots=True)
class _BoundsReader:
    """Converts the raw bounds of column chunks to JSON texts."""

    metadata: Any

    def bounds(
        self, data_type: DataType, position: int, chunks: Sequence[tuple[int, Any]], *, has_no_nan: bool
    ) -> tuple[str | None, str | None]:
        """JSON texts of the lower and the upper bound over all row groups; None for an unknown bound."""
        if isinstance(data_type, DecimalType):
            return self._decimal_bounds(data_type, position, chunks)
        if not isinstance(data_type, PrimitiveType):
            return None, None
        match data_type.name:
            case "byte" | "short" | "integer" | "long":
                raw = _raw_bounds(chunks, ("INT32", "INT64"))
                return (str(raw[0]), str(raw[1])) if raw else (None, None)
            case "float" | "double":
                return self._float_bounds(chunks, has_no_nan=has_no_nan)
            case "string":
                return _string_bounds(chunks)
            case "date":
                raw = None if self._is_rebased() else _raw_bounds(chunks, ("INT32",))
                return (_date_text(raw[0]), _date_text(raw[1])) if raw else (None, None)
            case "timestamp" | "timestamp_ntz":
                return self._timestamp_bounds(data_type.name, chunks)
            case _:
                return None, None

    def _is_rebased(self) -> bool:
        """Whether Spark wrote dates in the hybrid Julian calendar, in which the raw numbers denote other days."""
        entries = self.metadata.metadata
        return entries is not None and b"org.apache.spark.legacyDateTime" in entries

    def _float_bounds(self, chunks: Sequence[tuple[int, Any]], *, has_no_nan: bool) -> tuple[str | None, str | None]:
        # parquet-mr omits the bounds of a chunk with NaN. Other writers ignore NaN in bounds; Spark orders NaN above every
        # number, so their upper bound would be wrong.
        if not has_no_nan and not self.metadata.created_by.startswith("parquet-mr"):
            return None, None
        raw = _raw_bounds(chunks, ("FLOAT", "DOUBLE"))
        if raw is None or math.isnan(raw[0]) or math.isnan(raw[1]):
            return None, None
        # Adding 0.0 converts -0.0 to 0.0; the two are equal in Spark.
        lower, upper = (None if math.isinf(value) else repr(value + 0.0) for value in raw)
        return lower, upper

    def _decimal_bounds(
        self, data_type: DecimalType, position: int, chunks: Sequence[tuple[int, Any]]
    ) -> tuple[str | None, str | None]:
        if self.metadata.schema.column(position).scale != data_type.scale:
            return None, None
        raw = _raw_bounds(chunks, ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"))
        return (_decimal_text(raw[0], data_type.scale), _decimal_text(raw[1], data_type.scale)) if raw else (None, None)

    def _timestamp_bounds(self, name: str, chunks: Sequence[tuple[int, Any]]) -> tuple[str | None, str | None]:
        # INT96 has no order and therefore no bounds. Nanoseconds are not supported.
        raw = None if self._is_rebased() else _raw_bounds(chunks, ("INT64",))
        if raw is None:
            return None, None
        logical = str(next(statistics.logical_type for _, statistics in chunks if statistics.has_min_max))
        if "timeUnit=microseconds" in logical:
            per_millisecond = 1000
        elif "timeUnit=milliseconds" in logical:
            per_millisecond = 1
        else:
            return None, None
        suffix = "Z" if name == "timestamp" else ""
        # Statistics have millisecond precision: the lower bound is rounded down, the upper bound up.
        return _milliseconds_text(raw[0] // per_millisecond, suffix), _milliseconds_text(
            -(-raw[1] // per_millisecond), suffix
        )


def _chunks_with_values(chunks: Sequence[tuple[int, Any]]) -> list[Any] | None:
    """Statistics of the chunks with non-null values; None if one of them has no bounds."""
    with_values = []
    for num_rows, statistics in chunks:
        if statistics is None:
            return None
        if statistics.has_min_max:
            with_values.append(statistics)
        elif not statistics.has_null_count or statistics.null_count != num_rows:
            return None
    return with_values or None


def _raw_bounds(chunks: Sequence[tuple[int, Any]], physical_types: tuple[str, ...]) -> tuple[Any, Any] | None:
    with_values = _chunks_with_values(chunks)
    if with_values is None or any(statistics.physical_type not in physical_types for statistics in with_values):
        return None
    lowers = [_number(statistics.min_raw) for statistics in with_values]
    uppers = [_number(statistics.max_raw) for statistics in with_values]
    # min() and max() return wrong results if an operand is NaN.
    unordered = next((value for value in (*lowers, *uppers) if value != value), None)
    return (unordered, unordered) if unordered is not None else (min(lowers), max(uppers))


def _number(raw: Any) -> Any:
    return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw


def _decimal_text(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


_UNIX_DAY = date(1970, 1, 1)
_UNIX_EPOCH = datetime(1970, 1, 1)


def _date_text(days: int) -> str | None:
    try:
        return f'"{(_UNIX_DAY + timedelta(days=days)).isoformat()}"'
    except OverflowError:
        # There is no standard text for dates outside the years 1 to 9999.
        return None


def _milliseconds_text(milliseconds: int, suffix: str) -> str | None:
    try:
        moment = _UNIX_EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return f'"{moment.isoformat(timespec="milliseconds")}{suffix}"'


def _string_bounds(chunks: Sequence[tuple[int, Any]]) -> tuple[str | None, str | None]:
    with_values = _chunks_with_values(chunks)
    if with_values is None or any(statistics.physical_type != "BYTE_ARRAY" for statistics in with_values):
        return None, None
    lower_bytes = min(statistics.min_raw for statistics in with_values)
    upper_bytes = max(statistics.max_raw for statistics in with_values)
    try:
        lower: str | None = truncate_lower_bound(lower_bytes.decode())
        upper = truncate_upper_bound(upper_bytes.decode())
    except UnicodeDecodeError:
        # Some writers truncate bounds within a character.
        return None, None
    return (
        json.dumps(lower, ensure_ascii=False),
        None if upper is None else json.dumps(upper, ensure_ascii=False),
    )


def truncate_lower_bound(text: str) -> str:
    """The lower bound in statistics of a string column with the minimum ``text``."""
    return text[:STRING_PREFIX_LENGTH]


def truncate_upper_bound(text: str) -> str | None:
    """The upper bound in statistics of a string column with the maximum ``text``; None if it cannot be shortened."""
    if len(text) <= STRING_PREFIX_LENGTH:
        return text
    for length in range(STRING_PREFIX_LENGTH, min(len(text), 2 * STRING_PREFIX_LENGTH + 1)):
        following = text[length]
        if following < "\x7f":
            return text[:length] + "\x7f"
        if following < "\U0010ffff":
            return text[:length] + "\U0010ffff"
    return text if len(text) <= 2 * STRING_PREFIX_LENGTH else None


def num_records(stats: pa.Array | pa.ChunkedArray) -> pa.Array:
    """``numRecords`` of each ``stats`` text as int64; null where it is missing or invalid."""
    return parse_statistics(stats, {}).num_records


def logical_row_count(adds: pa.Table) -> int | None:
    """Number of rows in the files without those marked as deleted by deletion vectors; None if a file has no ``numRecords``."""
    if adds.num_rows == 0:
        return 0
    records = num_records(adds["stats"])
    if records.null_count:
        return None
    vectors = adds["deletionVector"].combine_chunks()
    deleted = pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0
    return int(pc.sum(records).as_py()) - int(deleted)
