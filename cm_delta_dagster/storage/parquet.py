"""Encodes and decodes the Parquet files of the log (checkpoints, sidecars), and reads the footers of data files."""

import typing

import pyarrow as pa
import pyarrow.parquet as pq

from cm_delta_dagster.errors import CorruptLogError, InvalidDataError
from cm_delta_dagster.storage.store import Store

UNREADABLE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)
"""What Arrow raises for bytes that are not a complete Parquet file: invalid UTF-8, lengths beyond memory, and so on."""


def encode_parquet(table: pa.Table, *, compression: typing.Literal["zstd", "snappy"] = "zstd") -> bytes:
    """One Parquet file with the rows of ``table``; timestamps as INT64, no Arrow-specific metadata."""
    sink = pa.BufferOutputStream()
    # store_schema would embed Arrow's own schema, which only Arrow readers use.
    pq.write_table(
        table, sink, compression=compression, store_schema=False, coerce_timestamps="us", write_page_checksum=True
    )
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]  # pyarrow has no types.


def decode_parquet(data: bytes, columns: typing.Sequence[str] | None = None) -> pa.Table:
    """The rows of a Parquet file.

    Args:
        columns: names (``add``) or dotted paths (``add.path``) to read, all if None; unknown ones are ignored.

    Raises:
        CorruptLogError: the bytes are not a complete Parquet file.
    """
    try:
        with _open(data) as file:
            return file.read(columns=None if columns is None else list(columns))
    except UNREADABLE as error:
        raise _corrupt(data, error) from error


def leaf_columns(data: bytes) -> tuple[str, ...]:
    """Dotted paths of the leaf columns.

    The statistics of the footer are not read: Arrow crashes on damaged ones.

    Raises:
        CorruptLogError: the bytes are not a complete Parquet file.
    """
    try:
        with _open(data) as file:
            schema = file.metadata.schema
            return tuple(schema.column(index).path for index in range(len(schema)))
    except UNREADABLE as error:
        raise _corrupt(data, error) from error


def count_rows(store: Store, location: str) -> int:
    """Rows of the data file at ``location``, from its footer.

    Raises:
        ObjectNotFoundError: there is no such file.
        InvalidDataError: it is not a complete Parquet file.
    """
    size = store.stat(location).size
    length = min(size, _FOOTER_GUESS)
    tail = store.read_range(location, offset=size - length, length=length)
    needed = int.from_bytes(tail[-8:-4], "little") + 8
    if length < needed <= size:
        tail = store.read_range(location, offset=size - needed, length=needed)
    try:
        return int(pq.read_metadata(pa.BufferReader(tail)).num_rows)
    except UNREADABLE as error:
        raise InvalidDataError(
            f"The data file {location} is not a complete Parquet file: {error}. Restore it from a backup."
        ) from error


_FOOTER_GUESS = 64 * 1024
"""Bytes of the first read from the end of a data file; most footers are shorter."""


def _open(data: bytes) -> pq.ParquetFile:
    # Nanoseconds, the default for INT96, would overflow outside of the years 1677 to 2262.
    # With page checksums a changed byte raises an error instead of changing a path.
    return pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us", page_checksum_verification=True)


def _corrupt(data: bytes, error: Exception) -> CorruptLogError:
    return CorruptLogError(
        f"A Parquet file of the log ({len(data)} bytes) cannot be read: {error}. "
        "It is damaged or incomplete; write a new checkpoint, or remove the file so that an older one is used."
    )
