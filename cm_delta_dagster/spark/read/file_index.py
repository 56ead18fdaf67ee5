"""Reading live files through a file index in the JVM of Spark's driver.

Spark asks the index for the files of a scan when it plans a query, with all filters that it has found by then. The index is a
Java source of this package, which Janino, Spark's own compiler of generated code, compiles once for each Java process. Spark
Connect and platforms that hide the JVM have no such index; ``load`` reads there.
"""

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.timestamps import DeferredZone
from cm_delta_dagster.protocol.schema.types import TIMESTAMP, StructType, schema_to_json
from cm_delta_dagster.spark.library import Column, DataFrame, SparkSession, pyspark
from cm_delta_dagster.spark.read.bitmaps import num_bits
from cm_delta_dagster.spark.read.hand_over import packed_column, packed_files, skipping_columns
from cm_delta_dagster.spark.session.java_classes import compiled, jvm_errors
from cm_delta_dagster.spark.session.session import default_zone, is_connect, network_errors
from cm_delta_dagster.spark.stores.object_stores import SparkStorage

_log = logging.getLogger(__name__)

_SOURCES = ("LiveFileIndex", "FileLengths", "Blocks", "DeletedRows", "Skipping")
"""The Java sources in ``jvm``, without their extension."""
_FACTORY = "cm_delta_dagster.LiveFileIndex$Factory"

_MAX_ROWS = 65_536
_SMALL_ROWS = 1024
_JOINED_ROWS = 4096
_CACHED_FILES = 200_000
_CACHED_BLOCKS = 256
_CACHED_BITS = 1 << 26

_HANDED = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "stats",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
)

_Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Files in the JVM. Holding ``files`` keeps the addresses of their memory, which are in ``memory``, valid."""

    files: pa.Table
    memory: _Key
    handle: Any
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRows:
    """The deleted rows of files in the JVM, one bit for each row up to the last deleted one."""

    handle: Any
    num_bits: int
    digest: bytes

    def bit(self, column: str, session: SparkSession) -> Column:
        """Whether the bit is set whose number is in ``column``. Raises NoFileIndexError."""
        return pyspark.sql.Column(_called(self.handle, "bit", column, session._jsparkSession))


class NoFileIndexError(Exception):
    """The JVM refused a file index; scans do without."""


@dataclass(slots=True)
class FileIndexes:
    """The file indexes of one Java process. Threads may share it.

    Blocks are found by the bytes of their files. Successive versions in the cache of a catalog share memory, so that most of
    these bytes need no look; a table that is opened by its location is parsed again for each read.
    """

    _factory: Any
    _blocks: OrderedDict[_Key, _Block] = field(default_factory=OrderedDict)
    _in_memory: dict[_Key, _Key] = field(default_factory=dict)
    _deleted: OrderedDict[bytes, DeletedRows] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def frame(
        self,
        session: SparkSession,
        files: pa.Table,
        *,
        layout: TableLayout,
        storage: SparkStorage,
        schemas: "RelationSchemas",
        options: Mapping[str, str],
        without_vectors: bool = False,
        deleted: DeletedRows | None = None,
    ) -> DataFrame:
        """The columns of ``schemas`` of all ``files``, or of those without a deletion vector.

        Args:
            deleted: where their deleted rows are, if the extras of ``schemas`` have it.

        Raises:
            CorruptLogError: a path or a partition value of the log is damaged.
            NoFileIndexError: the JVM refused it.
        """
        columns = skipping_columns(layout)
        about = (layout.location, schema_to_json(layout.schema), tuple(layout.partition_columns), layout.mapping)
        key = (*about, _zone_key(layout, session), storage.location(layout.location), tuple(columns))
        zone = default_zone(layout.time_zone, session)

        def packed(part: pa.Table) -> bytes:
            return packed_files(part, layout=layout, storage=storage, columns=columns, zone=zone)

        blocks = [self._block(part, key, packed) for part in _pieces(files.select(_HANDED))]
        self._drop_old(2 * files.num_rows)
        extras = schemas.extras
        identity = hashlib.sha256(repr((about, without_vectors, extras, schemas.partitions)).encode())
        for digest in (*(block.digest for block in blocks), *([] if deleted is None else [deleted.digest])):
            identity.update(digest)
        paths = ["\0".join(path) if (path := schemas.paths.get(name)) is not None else None for name in columns]
        frame = self._call(
            "relation",
            identity.hexdigest(),
            storage.location(layout.location),
            [block.handle for block in blocks],
            without_vectors,
            bytes(extras) if any(extras) else b"",
            None if deleted is None else deleted.handle,
            schema_to_json(schemas.partitions),
            schema_to_json(schemas.stored),
            packed_column(pa.array(paths, pa.string())),
            packed_column(pa.array([text for pair in options.items() for text in pair], pa.string())),
            session._jsparkSession,
        )
        return pyspark.sql.DataFrame(frame, session)

    def deleted_rows(self, bitmaps: Sequence[BitMap64]) -> DeletedRows:
        """The rows whose positions are in the bitmaps, one for each file of a scan.

        Raises NoFileIndexError: the JVM refused them.
        """
        lengths = [num_bits(bitmap) for bitmap in bitmaps]
        content = b"".join(bitmap.serialize() for bitmap in bitmaps)
        digest = hashlib.sha256(content).digest()
        with self._lock:
            rows = self._deleted.get(digest)
        if rows is None:
            handle = self._call("deletedRows", packed_column(pa.array(lengths, pa.int64())), content)
            rows = DeletedRows(handle=handle, num_bits=sum(lengths), digest=digest)
        with self._lock:
            self._deleted[digest] = rows
            self._deleted.move_to_end(digest)
            while len(self._deleted) > 1 and sum(item.num_bits for item in self._deleted.values()) > _CACHED_BITS:
                self._deleted.popitem(last=False)
        return rows

    def _call(self, name: str, *arguments: Any) -> Any:
        return _called(self._factory, name, *arguments)

    def _block(self, files: pa.Table, key: _Key, packed: Callable[[pa.Table], bytes]) -> _Block:
        memory = (key, _memory(files))
        with self._lock:
            content = self._in_memory.get(memory)
            if content is not None:
                self._blocks.move_to_end(content)
                return self._blocks[content]
        content = (key, _content(files))
        with self._lock:
            block = self._blocks.get(content)
        if block is None:
            handed = packed(files)
            handle, digest = self._call("block", handed), hashlib.sha256(handed).digest()
            block = _Block(files=files, memory=memory, handle=handle, digest=digest)
        block = replace(block, files=files, memory=memory)
        with self._lock:
            self._forget(self._blocks.pop(content, None))
            self._blocks[content] = block
            self._in_memory[memory] = content
        return block

    def _forget(self, block: _Block | None) -> None:
        if block is not None:
            self._in_memory.pop(block.memory, None)

    def _drop_old(self, num_used: int) -> None:
        """Drop the blocks that were not used for longest; DataFrames keep their own."""
        with self._lock:
            num_files = sum(item.files.num_rows for item in self._blocks.values())
            while num_files > max(_CACHED_FILES, num_used) or len(self._blocks) > _CACHED_BLOCKS:
                _, dropped = self._blocks.popitem(last=False)
                self._forget(dropped)
                num_files -= dropped.files.num_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationSchemas:
    """The columns of a relation over an index.

    Attributes:
        stored: columns that the files hold, under their names in the files.
        partitions: columns whose values the index has: partition columns, and then the chosen ``extras``.
        extras: whether the number of the first bit of its deleted rows, the number of its bits, its base row id and its commit
            version are among them.
        paths: for a column of the table, by logical path, the names in ``stored``.
    """

    stored: StructType
    partitions: StructType
    extras: tuple[bool, ...]
    paths: Mapping[tuple[str, ...], tuple[str, ...]]


def _called(target: Any, name: str, *arguments: Any) -> Any:
    """The answer of a method in the JVM. Raises NoFileIndexError if the JVM refuses."""
    try:
        return getattr(target, name)(*arguments)
    except network_errors():
        raise
    except jvm_errors() as error:
        raise NoFileIndexError(str(error)) from error


_lock = threading.Lock()
_indexes: WeakKeyDictionary[Any, FileIndexes | None] = WeakKeyDictionary()
_is_reported = False


def file_indexes(session: SparkSession) -> FileIndexes | None:
    """The file indexes of the session's Java process; None if it has none, which is logged once."""
    if is_connect(session):
        return None
    try:
        gateway, jvm = session.sparkContext._gateway, session._jvm
        with _lock:
            if gateway not in _indexes:
                _indexes[gateway] = None  # Stays if the compiler fails, which it would again.
                _indexes[gateway] = FileIndexes(compiled(jvm, _SOURCES).loadClass(_FACTORY).newInstance())
            return _indexes[gateway]
    except network_errors():
        raise
    except jvm_errors() as error:
        report_fallback(error)
        return None


def report_fallback(error: Exception) -> None:
    """Log, once for this process, that scans do without an index."""
    global _is_reported
    if not _is_reported:
        _is_reported = True
        _log.warning(
            "Tables are read without a file index, because the Java process of the Spark session is not accessible (%s: %s). "
            "The rows are the same. Conditions on a DataFrame that was read skip no files; give them to the read.",
            type(error).__name__,
            str(error).partition("\n")[0],
        )


def _pieces(files: pa.Table) -> Iterator[pa.Table]:
    """The files in parts that successive versions of a table share; neighbouring small parts are joined."""
    small: list[pa.RecordBatch] = []
    for batch in files.to_batches(max_chunksize=_MAX_ROWS):
        if small and (batch.num_rows > _SMALL_ROWS or sum(item.num_rows for item in small) > _JOINED_ROWS):
            yield pa.Table.from_batches(small)
            small = []
        if batch.num_rows > _SMALL_ROWS:
            yield pa.Table.from_batches([batch])
        else:
            small.append(batch)
    if small:
        yield pa.Table.from_batches(small)


def _zone_key(layout: TableLayout, session: SparkSession) -> tzinfo | None:
    """The time zone of partition values that state none; None if no value can depend on it."""
    if all(item.type != TIMESTAMP for item in layout.partition_fields):
        return None
    zone = default_zone(layout.time_zone, session)
    try:
        return zone.zone if isinstance(zone, DeferredZone) else zone
    except InvalidArgumentError:
        return None  # A zone that cannot be found is an error of values that need it.


def _memory(files: pa.Table) -> _Key:
    """Identity of the memory: two keys are equal only if the files are the same bytes in memory."""
    return tuple(_addresses(column.chunks) for column in files.columns)


def _content(files: pa.Table) -> bytes:
    """Digest of the files: two are equal only if the files are."""
    digest = hashlib.sha256()
    for batch in files.combine_chunks().to_batches():
        digest.update(batch.serialize())
    return digest.digest()


def _addresses(chunks: Sequence[pa.Array]) -> _Key:
    return tuple(
        (chunk.offset, len(chunk), *(0 if buffer is None else buffer.address for buffer in chunk.buffers()))
        for chunk in chunks
    )
