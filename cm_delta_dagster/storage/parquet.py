"""Arrow tables to and from the Parquet bytes of the log. Room: storage.

Serves checkpoints and sidecars; knows nothing of their columns. Data files are not read or written here.
"""

import typing

import pyarrow as pa
import pyarrow.parquet as pq

from cm_delta_dagster.errors import CorruptLogError


def encode_parquet(table: pa.Table, *, compression: typing.Literal["zstd", "snappy"] = "zstd") -> bytes:
    """One Parquet file with the rows of ``table``; timestamps as INT64, no Arrow-specific metadata."""
    sink = pa.BufferOutputStream()
    # store_schema would embed Arrow's own schema, which only Arrow readers look at.
    pq.write_table(table, sink, compression=compression, store_schema=False, coerce_timestamps="us")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode_parquet(data: bytes, columns: typing.Sequence[str] | None = None) -> pa.Table:
    """The rows of a Parquet file.

    Args:
        columns: names (``add``) or dotted paths (``add.path``) to read, all if None; unknown ones are ignored.

    Raises:
        CorruptLogError: the bytes are no complete Parquet file.
    """
    try:
        with _open(data) as file:
            return file.read(columns=None if columns is None else list(columns))
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(data, error) from error


def populated_columns(data: bytes) -> tuple[str, ...]:
    """Dotted paths of the leaf columns that hold at least one value, or may hold one, according to the footer.

    Raises:
        CorruptLogError: the bytes are no complete Parquet file.
    """
    try:
        with _open(data) as file:
            metadata = file.metadata
            paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
            return tuple(path for index, path in enumerate(paths) if _may_hold_values(metadata, index))
    except (pa.ArrowException, OSError) as error:
        raise _corrupt(data, error) from error


def _open(data: bytes) -> pq.ParquetFile:
    # Microseconds: nanoseconds, the default for INT96, would overflow outside of the years 1677 to 2262.
    return pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us")


def _may_hold_values(metadata: pq.FileMetaData, column: int) -> bool:
    # Lists and maps may be empty instead of null, and the footer does not tell which.
    if metadata.schema.column(column).max_repetition_level:
        return True
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(column)
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count < chunk.num_values:
            return True
    return False


def _corrupt(data: bytes, error: Exception) -> CorruptLogError:
    return CorruptLogError(
        f"A Parquet file of the log ({len(data)} bytes) cannot be read: {error}. "
        "It is damaged or incomplete; write a new checkpoint, or remove the file so that an older one is used."
    )
