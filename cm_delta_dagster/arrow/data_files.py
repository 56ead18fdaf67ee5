"""Opening data files over the store (protocol heading "Data Files").

A local file is opened by its path; small objects of other stores are read whole, large objects by ranges. All failures become
errors that name the file: rows are never omitted silently.
"""

import errno
import io
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from cm_delta_dagster.errors import (
    CmDeltaError,
    CorruptLogError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.storage.local_store import LocalStore, local_path
from cm_delta_dagster.storage.store import Store

_WHOLE_OBJECT_BYTES = 8 * 2**20
_FILE_WAS_NOT_READ = frozenset((errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE))
"""Numbers of errors of the operating system that say nothing about the content of a file."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of the log: its absolute ``location`` and its ``size`` in bytes as in the log."""

    store: Store
    location: str
    size: int

    @property
    def is_local(self) -> bool:
        return isinstance(self.store, LocalStore) and self.location.startswith("file:")

    def open(self, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
        """The file, ready to be read; INT96 as microseconds, so that no timestamp overflows.

        Args:
            metadata: its footer, if it was read before.

        Raises:
            ObjectNotFoundError: the file does not exist. CorruptLogError: it is not a complete Parquet file.
        """
        with self.errors():
            return pq.ParquetFile(
                self._source(),
                metadata=metadata,
                pre_buffer=not self.is_local,
                coerce_int96_timestamp_unit="us",
                # Many writers, such as Spark, store checksums; only these detect damage that still decodes.
                page_checksum_verification=True,
            )

    def _source(self) -> pa.NativeFile:
        if self.is_local:
            return pa.OSFile(local_path(self.location), "rb")
        if self.size <= _WHOLE_OBJECT_BYTES:
            return pa.BufferReader(self.store.read(self.location))
        return pa.PythonFile(_Ranges(self.store, self.location), "r")

    def errors(self) -> "_FileErrors":
        """Map errors of opening and reading the file to errors of this package."""
        return _FileErrors(self.location)


class _FileErrors(AbstractContextManager[None]):
    """The mapping of :meth:`DataFile.errors`. A class, because each small file enters it several times."""

    __slots__ = ("_location",)

    def __init__(self, location: str) -> None:
        self._location = location

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, CmDeltaError):
            if self._location not in str(error) and not isinstance(error, ObjectNotFoundError):
                error.args = (f"{self._location}: {error.message}",)
        elif isinstance(error, FileNotFoundError):
            raise ObjectNotFoundError(
                f"The data file {self._location} is gone, although the table's log names it; nothing of it can be read. Restore "
                "the file, or a version of the table without it. A version older than the last vacuum can no longer be read."
            ) from error
        elif isinstance(error, pa.ArrowNotImplementedError | pa.ArrowCapacityError):
            raise UnsupportedFeatureError(
                f"The data file {self._location} cannot be read here: {error}. It need not be damaged; pyarrow {pa.__version__} "
                "does not support what it holds. Read the table through Spark, or let its writer write other types."
            ) from error
        elif isinstance(error, MemoryError | pa.ArrowCancelled):
            return  # Not the fault of the file.
        elif isinstance(error, OSError) and error.errno in _FILE_WAS_NOT_READ:
            raise StorageError(
                f"The data file {self._location} cannot be read: {error}. Its content was not seen; fix the cause and retry."
            ) from error
        elif isinstance(error, pa.ArrowException | OSError | ValueError):
            raise CorruptLogError(
                f"The data file {self._location} cannot be read: {error}. It is damaged, incomplete or not what the log says; "
                "restore it, or a version of the table without it."
            ) from error


class _Ranges(io.RawIOBase):
    """A large object as a file with random access."""

    def __init__(self, store: Store, location: str) -> None:
        self._store = store
        self._location = location
        self._size = store.stat(location).size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = origin + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        length = self._size - self._position if size is None or size < 0 else size
        data = self._store.read_range(self._location, offset=self._position, length=length) if length > 0 else b""
        self._position += len(data)
        return data
