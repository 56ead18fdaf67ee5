"""Loading data files with Spark's Parquet reader: exactly the given files.

A directory is passed instead of its files only if a listing shows that it contains no other files. This module returns the
columns as the files hold them; ``columns`` converts them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import types as T

from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.protocol.actions.paths import normalise_location
from cm_delta_dagster.protocol.schema.types import STRING, TRANSACTION_COLUMN, StructField, StructType
from cm_delta_dagster.spark.columns import reader_schema
from cm_delta_dagster.spark.footers import read_footer
from cm_delta_dagster.spark.layout import (
    PATTERN_LETTER,
    FileGroup,
    LayoutKind,
    is_visible,
    one_chunk,
    top_directory,
)
from cm_delta_dagster.spark.nullability import with_nullability
from cm_delta_dagster.spark.object_stores import ON_THIS_FILE_SYSTEM, SparkStorage
from cm_delta_dagster.spark.schema import nullable
from cm_delta_dagster.spark.session import file_relation, is_connect
from cm_delta_dagster.storage.store import Store

_OPTIONS: Mapping[str, str] = {
    # For files without the metadata that states the calendar of dates and times before 1582.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    # A missing or damaged file is an error regardless of session settings: rows are never omitted silently.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # By default Spark writes page checksums and does not verify them. A corrupt byte would then be a changed value, which
    # OPTIMIZE, UPDATE and MERGE would write into a new file.
    "parquet.page.verify-checksum.enabled": "true",
    "recursiveFileLookup": "false",
    "mergeSchema": "false",
}
_LISTED_FILE = re.compile(r"^\w+\{path=(.*); isDirectory=false; length=(\d+); replication=", re.MULTILINE)
"""Text form of Hadoop's ``FileStatus``."""
_MAX_COMPARED = 2000
_MIN_FILES_FOR_DIRECTORY = 8
_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The content of files; ``stored`` has the names, types and nullability of its columns.

    Attributes:
        sizes: of each file, in the order of their locations, if they are the same in storage and in the log.
    """

    frame: DataFrame
    stored: StructType
    sizes: pa.Array | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Loads files of one table.

    Attributes:
        location: absolute URI of the table root.
        storage: how Spark reaches it.
        partitions: partition columns, under their names in directories.
    """

    session: SparkSession
    store: Store
    location: str
    storage: SparkStorage = ON_THIS_FILE_SYSTEM
    partitions: tuple[StructField, ...]

    def load(self, stored: StructType, locations: pa.Array, sizes: pa.Array) -> Loaded:
        """Load files without partition discovery: Spark discovers partitions only below the parent of each file."""
        reader = self._reader(reader_schema(stored), locations)
        return self._loaded(reader.parquet(*self._as_patterns(locations.to_pylist())), stored, locations, sizes)

    def load_discovered(self, stored: StructType, group: FileGroup, *, whole_directories: bool) -> Loaded:
        """Load files with partition discovery; the values become text columns named like the partitions."""
        hidden = [StructField(TRANSACTION_COLUMN, STRING)] if group.kind is LayoutKind.TRANSACTION else []
        texts = [StructField(item.name, STRING) for item in self.partitions]
        schema = reader_schema(StructType((*stored.fields, *texts, *hidden)))
        reader = self._reader(schema, group.locations).option("basePath", self.storage.location(self.location))
        # Spark Connect analyses the plan again with every execution, after the directories may have changed.
        whole = group.kind is LayoutKind.TRANSACTION and whole_directories and not is_connect(self.session)
        directories, single = _candidate_directories(group.locations, self.location) if whole else ({}, [])
        if directories:
            frame = reader.parquet(*self._as_patterns([*single, *directories]))
            # This check follows Spark's listing: files are never added to these directories, so the listing had no others.
            unproven = [name for name, live in directories.items() if not _holds_exactly(self.store, name, live)]
            if unproven:
                paths = [*single, *(path for name in unproven for path in directories[name])]
                proven = [name for name in directories if name not in unproven]
                frame = reader.parquet(*self._as_patterns([*paths, *proven]))
        else:
            frame = reader.parquet(*self._as_patterns(group.locations.to_pylist()))
        return self._loaded(frame, stored, group.locations, _sizes(group.files))

    def _reader(self, schema: T.StructType, locations: pa.Array) -> DataFrameReader:
        options = {**self.storage.options_for(locations), **_OPTIONS}
        return self.session.read.schema(schema).options(**options)

    def _as_patterns(self, names: Iterable[str]) -> list[str]:
        """Locations for Spark, escaped as glob patterns, which it expects.

        The option ``__globPaths__`` does not help: with it, each name that looks like a pattern matches all given names.
        """
        return [PATTERN_LETTER.sub(r"\\\g<0>", self.storage.location(name)) for name in names]

    def _loaded(self, frame: DataFrame, stored: StructType, locations: pa.Array, sizes: pa.Array) -> Loaded:
        agreed = one_chunk(sizes) if self._check_lengths(frame, locations, sizes) else None
        if all(item.nullable and _all_nullable(item.type) for item in stored.fields):
            return Loaded(frame=frame, stored=stored, sizes=agreed)
        exact = with_nullability(self.session, frame, stored)
        if exact is not None:
            return Loaded(frame=exact, stored=stored, sizes=agreed)
        return Loaded(frame=frame, stored=_made_nullable(stored), sizes=agreed)

    def _check_lengths(self, frame: DataFrame, locations: pa.Array, sizes: pa.Array) -> bool:
        """Check that files are not truncated (Spark reads an empty file as no rows), and that Spark listed no others.

        Returns:
            Whether all files have the size that the log states.
        """
        listed = _listed_bytes(frame)
        if listed == (pc.sum(sizes).as_py() or 0):
            return True
        agreed = True
        expected = dict(zip(locations.to_pylist(), sizes.to_pylist(), strict=True))
        with ThreadPoolExecutor(max_workers=min(_THREADS, len(expected))) as pool:
            for status, size in zip(pool.map(self.store.stat, expected), expected.values(), strict=True):
                if status.size == size:
                    continue
                agreed = False
                try:
                    read_footer(self.store, status)
                except StorageError as error:
                    raise StorageError(
                        f"The data file {status.location} is damaged: the log says {size} bytes, storage has "
                        f"{status.size}, and it has no readable Parquet footer. Its rows are part of this version, so "
                        "nothing is read. Restore the file, or read a version that does not need it."
                    ) from error
        if agreed and listed is not None and listed > (meant := sum(expected.values())):
            raise StorageError(
                f"Spark has listed {listed} bytes at {self.location}, where the files to be read have {meant}, each of "
                "them as the log says: it would read other files too. Nothing was read. Read again; if that does not help, "
                "read the table without Spark (to_arrow)."
            )
        return agreed and listed is None


def _listed_bytes(frame: DataFrame) -> int | None:
    """Bytes of all files that Spark has listed for the frame; None if they are not available."""
    try:
        return int(file_relation(frame).location().sizeInBytes())
    except (Py4JError, AttributeError, TypeError):
        return None


def lists_exactly(frame: DataFrame, locations: pa.Array, sizes: pa.Array, *, storage: SparkStorage) -> bool:
    """Whether Spark has listed exactly these files for the frame, each with its size.

    False if that cannot be checked quickly: on Spark Connect, or for very many files.
    """
    if len(locations) > _MAX_COMPARED:
        return False
    try:
        text = str(file_relation(frame).location().allFiles().mkString("\n"))
    except (Py4JError, AttributeError, TypeError):
        return False
    found = ((storage.catalog_location(path), int(size)) for path, size in _LISTED_FILE.findall(text))
    listed = sorted((normalise_location(path), size) for path, size in found)
    names = [normalise_location(location) for location in locations.to_pylist()]
    return listed == sorted(zip(names, sizes.to_pylist(), strict=True))


def _sizes(files: pa.Table) -> pa.ChunkedArray:
    return files["size"]


def _all_nullable(data_type: object) -> bool:
    return not isinstance(data_type, StructType) or all(
        item.nullable and _all_nullable(item.type) for item in data_type.fields
    )


def _made_nullable(schema: StructType) -> StructType:
    fields = []
    for item in schema.fields:
        inner = _made_nullable(item.type) if isinstance(item.type, StructType) else item.type
        fields.append(nullable(StructField(item.name, inner, True, item.metadata)))
    return StructType(tuple(fields))


def _candidate_directories(locations: pa.Array, location: str) -> tuple[dict[str, list[str]], list[str]]:
    """Transaction directories with enough live files to justify a listing, and all other files."""
    table = pa.table({"directory": top_directory(locations, location), "file": locations})
    grouped = table.group_by("directory").aggregate([("file", "list")])
    directories: dict[str, list[str]] = {}
    single: list[str] = []
    for name, live in zip(grouped["directory"].to_pylist(), grouped["file_list"], strict=True):
        paths = live.as_py()
        if len(paths) >= _MIN_FILES_FOR_DIRECTORY:
            directories[name] = paths
        else:
            single += paths
    return directories, single


def _holds_exactly(store: Store, directory: str, live: Sequence[str]) -> bool:
    """Whether the files that Spark sees below ``directory`` are exactly the live files."""
    root = normalise_location(directory) + "/"
    listed = {normalise_location(status.location) for status in store.list_recursive(directory)}
    visible = {name for name in listed if is_visible(name.removeprefix(root))}
    return visible == {normalise_location(name) for name in live}
