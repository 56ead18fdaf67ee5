"""Handing data files to Spark's own Parquet reader, all of them and nothing else (LOG-19, TT-6).

A directory is handed over whole only if its listing proves that nothing else lies in it. What the columns mean is
decided elsewhere; this module loads what the files hold.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.protocol.actions.paths import normalise_location
from cm_delta_dagster.protocol.schema.types import STRING, StructField, StructType
from cm_delta_dagster.spark.columns import reader_schema
from cm_delta_dagster.spark.footers import read_footer
from cm_delta_dagster.spark.layout import (
    PATTERN_LETTER,
    TRANSACTION_COLUMN,
    FileGroup,
    LayoutKind,
    is_visible,
    one_chunk,
    top_directory,
)
from cm_delta_dagster.spark.nullability import with_nullability
from cm_delta_dagster.spark.schema import nullable
from cm_delta_dagster.spark.session import file_relation, is_connect
from cm_delta_dagster.storage.store import Store

_OPTIONS: Mapping[str, str] = {
    # For files that do not say in which calendar their dates and times before 1582 are; those that do are obeyed.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    # A missing or damaged file is an error, whatever the session says: rows are never left out silently.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # Spark stores checksums of pages and does not compare them by itself: a changed byte would be a changed value, which
    # OPTIMIZE, UPDATE and MERGE would write into a new file.
    "parquet.page.verify-checksum.enabled": "true",
    "recursiveFileLookup": "false",
    "mergeSchema": "false",
}
_LISTED_FILE = re.compile(r"^\w+\{path=(.*); isDirectory=false; length=(\d+); replication=", re.MULTILINE)
"""What Hadoop's ``FileStatus`` prints of itself."""
_MAX_COMPARED = 2000
_MIN_FILES_FOR_DIRECTORY = 8
_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A frame of what files hold; ``stored`` tells the names, types and nullability of its columns.

    Attributes:
        sizes: of each file, in the order of their locations, if storage agrees with the log about them.
    """

    frame: DataFrame
    stored: StructType
    sizes: pa.Array | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Where the files of one table are and how Spark gets them.

    Attributes:
        location: absolute URI of the table root.
        partitions: partition columns, of which directories may tell the values.
    """

    session: SparkSession
    store: Store
    location: str
    partitions: tuple[StructField, ...]

    def load(self, stored: StructType, locations: pa.Array, sizes: pa.Array) -> Loaded:
        """Named files without discovery: Spark looks for partitions only below the parent of each file."""
        reader = self.session.read.schema(reader_schema(stored)).options(**_OPTIONS)
        return self._loaded(reader.parquet(*_as_patterns(locations.to_pylist())), stored, locations, sizes)

    def load_discovered(self, stored: StructType, group: FileGroup, *, whole_directories: bool) -> Loaded:
        """Files whose directories tell the partition values, which become text columns named like the partitions."""
        hidden = [StructField(TRANSACTION_COLUMN, STRING)] if group.kind is LayoutKind.TRANSACTION else []
        texts = [StructField(item.name, STRING) for item in self.partitions]
        schema = reader_schema(StructType((*stored.fields, *texts, *hidden)))
        reader = self.session.read.schema(schema).options(**_OPTIONS).option("basePath", self.location)
        # On Connect the plan is analysed anew with every execution, long after the listing was proven.
        whole = group.kind is LayoutKind.TRANSACTION and whole_directories and not is_connect(self.session)
        directories, single = _candidate_directories(group.locations, self.location) if whole else ({}, [])
        if directories:
            frame = reader.parquet(*_as_patterns([*single, *directories]))
            # The proof comes after Spark has listed: what is there now and live was there then, and nothing else was.
            unproven = [name for name, live in directories.items() if not _holds_exactly(self.store, name, live)]
            if unproven:
                paths = [*single, *(path for name in unproven for path in directories[name])]
                proven = [name for name in directories if name not in unproven]
                frame = reader.parquet(*_as_patterns([*paths, *proven]))
        else:
            frame = reader.parquet(*_as_patterns(group.locations.to_pylist()))
        return self._loaded(frame, stored, group.locations, _sizes(group.files))

    def _loaded(self, frame: DataFrame, stored: StructType, locations: pa.Array, sizes: pa.Array) -> Loaded:
        agreed = one_chunk(sizes) if self._check_lengths(frame, locations, sizes) else None
        if all(item.nullable and _all_nullable(item.type) for item in stored.fields):
            return Loaded(frame=frame, stored=stored, sizes=agreed)
        exact = with_nullability(self.session, frame, stored)
        if exact is not None:
            return Loaded(frame=exact, stored=stored, sizes=agreed)
        return Loaded(frame=frame, stored=_made_nullable(stored), sizes=agreed)

    def _check_lengths(self, frame: DataFrame, locations: pa.Array, sizes: pa.Array) -> bool:
        """Find files that were cut short: to Spark a file without a byte is a file without rows. And files too many.

        Tells whether all files have the size that the log states.
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


def _as_patterns(names: Iterable[str]) -> list[str]:
    """File names as Spark takes them, which are patterns.

    Its option ``__globPaths__`` is no way out: with it, each name that looks like a pattern stands for all the names given.
    """
    return [PATTERN_LETTER.sub(r"\\\g<0>", name) for name in names]


def _listed_bytes(frame: DataFrame) -> int | None:
    """Bytes of all files that Spark has listed for the frame; None where it does not tell."""
    try:
        return int(file_relation(frame).location().sizeInBytes())
    except (Py4JError, AttributeError, TypeError):
        return None


def lists_exactly(frame: DataFrame, locations: pa.Array, sizes: pa.Array) -> bool:
    """Whether Spark is known to have listed these files for the frame, each with its size, and no other file.

    False where it cannot be told in little time: on Spark Connect, or of very many files.
    """
    if len(locations) > _MAX_COMPARED:
        return False
    try:
        text = str(file_relation(frame).location().allFiles().mkString("\n"))
    except (Py4JError, AttributeError, TypeError):
        return False
    listed = sorted((normalise_location(path), int(size)) for path, size in _LISTED_FILE.findall(text))
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
    """Transaction directories with enough live files to be worth one listing, and all other files."""
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
    """Whether what Spark sees below ``directory`` is the live files and nothing else."""
    root = normalise_location(directory) + "/"
    listed = {normalise_location(status.location) for status in store.list_recursive(directory)}
    visible = {name for name in listed if is_visible(name.removeprefix(root))}
    return visible == {normalise_location(name) for name in live}
