"""A temporary local file of rows that do not fit into memory. It has no name, so that it goes when the process ends."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Self

import pyarrow as pa

from cm_delta_dagster.arrow.spill.temporary_space import drop_file, temporary_file, temporary_space
from cm_delta_dagster.protocol.statistics.curves import Integers

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(slots=True, eq=False)
class SpilledRuns:
    """Rows in buckets, in a file of the directory for temporary files (``TMPDIR``).

    Attributes:
        schema: of the rows.
    """

    schema: pa.Schema
    _file: IO[bytes] = field(init=False, default_factory=temporary_file)
    _size: int = field(init=False, default=0)
    _offsets: dict[int, list[int]] = field(init=False, default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the space of the file back."""
        drop_file(self._file)

    def add(self, bucket: int, rows: pa.RecordBatch, places: Integers) -> None:
        """Write rows of a bucket, and a number for each, their places. All rows are written before the first are read."""
        self._offsets.setdefault(bucket, []).append(self._size)
        stored = pa.RecordBatch.from_arrays([*rows.columns, pa.array(places)], schema=self._stored_schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, stored.schema, options=_OPTIONS) as writer:
            writer.write_batch(stored)
        with temporary_space():
            self._size += self._file.write(sink.getvalue())

    def bucket(self, bucket: int) -> tuple[pa.Table, Integers]:
        """All rows of a bucket, and their places."""
        stored = pa.Table.from_batches(list(self._stored(bucket)), self._stored_schema).combine_chunks()
        last = stored.num_columns - 1
        return stored.remove_column(last), stored.column(last).to_numpy()

    def parts(self, bucket: int) -> Iterator[tuple[pa.RecordBatch, Integers]]:
        """The rows of a bucket as they were written, and their places."""
        for stored in self._stored(bucket):
            last = stored.num_columns - 1
            yield pa.RecordBatch.from_arrays(stored.columns[:last], schema=self.schema), stored.column(last).to_numpy()

    def _stored(self, bucket: int) -> Iterator[pa.RecordBatch]:
        for offset in self._offsets.get(bucket, []):
            with temporary_space():  # The first read writes what is still in memory.
                self._file.seek(offset)
            yield pa.ipc.open_stream(self._file).read_next_batch()

    @property
    def _stored_schema(self) -> pa.Schema:
        return self.schema.append(pa.field("", pa.int64()))
