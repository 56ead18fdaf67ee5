"""Reading a set of data files as a DataFrame (protocol headings "Data Files", "Deletion Vectors"). Room: spark.

Rows come from Spark's own Parquet reader. The files read are exactly the files given: a directory is handed over whole
only if its listing proves that nothing else lies in it. This module knows neither the log nor the catalog.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.path_encoding import normalise_location
from cm_delta_dagster.protocol.schema import BINARY, STRING, VOID, StructField, StructType
from cm_delta_dagster.spark.bitmaps import deletion_words
from cm_delta_dagster.spark.errors import Violation, spark_errors, violation_text
from cm_delta_dagster.spark.layout import (
    TRANSACTION_COLUMN,
    FileGroup,
    LayoutKind,
    count_distinct_values,
    distinct_values,
    group_files,
    is_visible,
    top_directory,
)
from cm_delta_dagster.spark.partition_text import typed_column
from cm_delta_dagster.spark.schema import nullable, quoted, sql_type, to_spark
from cm_delta_dagster.spark.session import LISTING_SETTINGS, is_connect, temporary_settings
from cm_delta_dagster.storage.store import Store

FILE_COLUMN = "__cm_delta_file"
"""Name of the extra column of :func:`scan_with_files`: the location of the row's file as Spark spells it."""

_POSITION_COLUMN = "__cm_delta_position"
_WORDS_COLUMN = "__cm_delta_words"
_KEY_COLUMN = "__cm_delta_key"

_OPTIONS: Mapping[str, str] = {
    # Dates and times before 1582 are what the file says; only Delta's calendar exists.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    # A missing or damaged file is an error, whatever the session says: rows are never left out silently.
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "recursiveFileLookup": "false",
    "mergeSchema": "false",
    # File names are names, not patterns.
    "__globPaths__": "false",
}
_CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(r"char\((\d+)\)", re.IGNORECASE)
_MIN_FILES_FOR_DIRECTORY = 8
_MAX_LITERAL_SCANS = 24
_SMALL_LISTING = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What every part of one scan has in common."""

    session: SparkSession
    store: Store
    location: str
    schema: StructType
    partitions: tuple[StructField, ...]
    with_files: bool

    @property
    def stored(self) -> StructType:
        """Columns that data files may hold."""
        taken = {item.name for item in self.partitions}
        return StructType(
            tuple(nullable(item) for item in self.schema.fields if item.name not in taken and item.type != VOID)
        )


def scan(
    session: SparkSession,
    *,
    store: Store,
    location: str,
    schema: StructType,
    partition_columns: Sequence[str],
    files: pa.Table,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """The logical rows of ``files``: partition values from the log, deletion vectors applied, absent columns null.

    Args:
        location: absolute URI of the table root.
        files: live files, columns of ``file_actions.ADD_SCHEMA``.
        columns: top-level columns to return, in this order, found ignoring case; all of the schema for None.

    Raises:
        InvalidArgumentError: an unknown column.
        CorruptLogError: a path, partition value or deletion vector of the log is damaged.
        ObjectNotFoundError: a file is missing; the message names it.
    """
    frame = _scan(session, store, location, schema, partition_columns, files, with_files=False)
    return frame if columns is None else frame.select(*[F.col(quoted(name)) for name in _known(columns, schema)])


def scan_with_files(
    session: SparkSession,
    *,
    store: Store,
    location: str,
    schema: StructType,
    partition_columns: Sequence[str],
    files: pa.Table,
) -> DataFrame:
    """As :func:`scan`, and :data:`FILE_COLUMN` last; :func:`spark_file_key` makes its values comparable with file
    keys."""
    return _scan(session, store, location, schema, partition_columns, files, with_files=True)


def spark_file_key(spelled: str) -> str:
    """Normalised key, as of ``path_encoding.file_keys``, of a file location as Spark's ``_metadata.file_path`` spells
    it."""
    return normalise_location(unquote(spelled))


def spark_file_path(location: str) -> str:
    """How Spark's ``_metadata.file_path`` spells a decoded absolute location: Java's ``URI.toString``."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        scheme, rest = "file", location
    authority, _, path = rest.partition("/")
    prefix = f"{scheme}:/" if not authority else f"{scheme}://{authority}/"
    return prefix + "".join(map(_java_quoted, path))


def _java_quoted(character: str) -> str:
    legal = character.isascii() and (character.isalnum() or character in "-_.!~*'():@&=+$,;/")
    other = not character.isascii() and not character.isspace() and not "\x80" <= character <= "\x9f"
    return character if legal or other else "".join(f"%{byte:02X}" for byte in character.encode())


def _known(columns: Sequence[str], schema: StructType) -> list[str]:
    names = []
    for name in columns:
        field = schema.field(name)
        if field is None:
            raise InvalidArgumentError(f"The table has no column {name!r}; its columns are {', '.join(schema.names)}.")
        names.append(field.name)
    return names


def _scan(
    session: SparkSession,
    store: Store,
    location: str,
    schema: StructType,
    partition_columns: Sequence[str],
    files: pa.Table,
    *,
    with_files: bool,
) -> DataFrame:
    partitions = tuple(item for name in partition_columns if (item := schema.field(name)) is not None)
    source = _Source(
        session=session, store=store, location=location, schema=schema, partitions=partitions, with_files=with_files
    )
    with spark_errors(f"reading data files of {location}"):
        settings = LISTING_SETTINGS if files.num_rows > _SMALL_LISTING else {}
        with temporary_settings(session, settings):
            parts = list(_parts(source, files))
        if not parts:
            return _empty(source)
        return reduce(DataFrame.union, parts)


def _empty(source: _Source) -> DataFrame:
    schema = to_spark(StructType(tuple(nullable(item) for item in source.schema.fields)))
    return source.session.createDataFrame([], schema.add(FILE_COLUMN, T.StringType()) if source.with_files else schema)


def _parts(source: _Source, files: pa.Table) -> Iterator[DataFrame]:
    """One DataFrame for each group of files; files with a deletion vector stand apart so that the others pay
    nothing."""
    has_vector = pc.is_valid(files["deletionVector"])
    plain = files.filter(pc.invert(has_vector))
    for group in group_files(plain, location=source.location, partition_fields=source.partitions):
        yield from _read_group(source, group)
    marked = files.filter(has_vector)
    for group in group_files(marked, location=source.location, partition_fields=source.partitions):
        words = deletion_words(source.store, location=source.location, files=group.files)
        yield from _read_group(source, group, words=_by_location(source, group.locations, {_WORDS_COLUMN: words}))


def _read_group(source: _Source, group: FileGroup, words: DataFrame | None = None) -> Iterator[DataFrame]:
    if group.kind is not LayoutKind.LOG_ONLY:
        frame = _load_discovered(source, group, whole_directories=words is None)
        texts = {item.name: F.col(quoted(item.name)) for item in source.partitions}
        yield _finished(source, frame, texts, words)
    elif not source.partitions:
        yield _finished(source, _load(source, group.locations.to_pylist()), {}, words)
    elif count_distinct_values(group) <= _MAX_LITERAL_SCANS:
        for values, locations in distinct_values(group):
            literals = {
                item.name: F.lit(value).cast("string") for item, value in zip(source.partitions, values, strict=True)
            }
            yield _finished(source, _load(source, locations.to_pylist()), literals, words)
    else:
        yield _joined_group(source, group, words)


def _joined_group(source: _Source, group: FileGroup, words: DataFrame | None) -> DataFrame:
    """Many partition values in directories that do not tell them: join with a small table of the log's values."""
    names = {f"__cm_delta_value{position}": position for position in range(len(source.partitions))}
    known = F.lit(True).alias("__cm_delta_known")
    table = _by_location(source, group.locations, {name: group.values[index] for name, index in names.items()})
    frame = _load(source, group.locations.to_pylist())
    frame = frame.withColumn(FILE_COLUMN, _file_path(frame))
    joined = frame.join(F.broadcast(table.select("*", known)), F.col(FILE_COLUMN) == F.col(_KEY_COLUMN), "left")
    missed = F.raise_error(F.lit(_UNMATCHED))
    texts = {
        source.partitions[index].name: F.when(F.col("__cm_delta_known"), F.col(name)).otherwise(missed)
        for name, index in names.items()
    }
    return _finished(source, joined, texts, words, position=None if words is None else _row_index(frame))


_UNMATCHED = violation_text(
    Violation.ENGINE,
    "Spark spells the location of a data file in an unexpected way, so the values that the log has for it were not "
    "found. Nothing was read. Rename the table's directory to plain letters, or report this.",
)


def _finished(
    source: _Source,
    frame: DataFrame,
    texts: Mapping[str, Column],
    words: DataFrame | None,
    position: Column | None = None,
) -> DataFrame:
    """Columns of the table in its order, deleted rows left out."""
    outputs = [_output(item, texts) for item in source.schema.fields]
    if words is None and not source.with_files:
        as_stored = source.stored.names == source.schema.names and not any(map(_blank_padded, source.schema.fields))
        # An unpartitioned read is the scan itself; a projection would only cost round trips.
        return frame if not texts and as_stored else frame.select(*outputs)
    path = F.col(FILE_COLUMN) if FILE_COLUMN in frame.columns else _file_path(frame)
    if words is None:
        return frame.select(*outputs, path.alias(FILE_COLUMN))
    index = position if position is not None else _row_index(frame)
    prepared = frame.select(*outputs, path.alias(FILE_COLUMN), index.alias(_POSITION_COLUMN))
    joined = prepared.join(F.broadcast(words), F.col(FILE_COLUMN) == F.col(_KEY_COLUMN), "left")
    row = F.col(_POSITION_COLUMN)
    word = F.get(F.col(_WORDS_COLUMN), F.floor(row / 64).cast("int"))
    deleted = F.coalesce(F.getbit(word, (row % 64).cast("int")), F.lit(0).cast("tinyint"))
    missed = F.raise_error(F.lit(_UNMATCHED)).cast("tinyint")
    kept = joined.where(F.when(F.col(_WORDS_COLUMN).isNull(), missed).otherwise(deleted) == 0)
    names = [F.col(quoted(name)) for name in source.schema.names]
    return kept.select(*names, *([F.col(FILE_COLUMN)] if source.with_files else []))


def _output(item: StructField, texts: Mapping[str, Column]) -> Column:
    if item.name in texts:
        text = texts[item.name]
        value = F.encode(text, "ISO-8859-1") if item.type == BINARY else typed_column(text, item.type)
    elif item.type == VOID:
        value = F.lit(None).cast(sql_type(item.type))
    elif not _blank_padded(item):
        return F.col(quoted(item.name))
    else:
        value = F.col(quoted(item.name))
    if width := _blank_padded(item):
        value = F.when(F.char_length(value) < width, F.rpad(value, width, " ")).otherwise(value)
    metadata = {key: entry for key, entry in item.metadata.items() if key != _CHAR_METADATA}
    return value.alias(item.name, metadata=metadata) if metadata else value.alias(item.name)


def _blank_padded(item: StructField) -> int:
    """Width of a ``char(n)`` column, 0 of any other. Files may hold values without the blanks that belong to them."""
    declared = _CHAR.fullmatch(str(item.metadata.get(_CHAR_METADATA, "")))
    return int(declared[1]) if declared and item.type == STRING else 0


def _file_path(frame: DataFrame) -> Column:
    # Not F.col("_metadata"): a data column may have that name.
    return frame.metadataColumn("_metadata").getField("file_path")


def _row_index(frame: DataFrame) -> Column:
    return frame.metadataColumn("_metadata").getField("row_index")


def _by_location(source: _Source, locations: pa.Array, values: Mapping[str, object]) -> DataFrame:
    """A small DataFrame keyed by the location of a file as Spark spells it."""
    keys = pa.array([spark_file_path(location) for location in locations.to_pylist()], pa.string())
    columns = {name: value if isinstance(value, pa.Array) else _lists(value) for name, value in values.items()}
    return source.session.createDataFrame(pa.table({_KEY_COLUMN: keys, **columns}))


def _lists(values: object) -> pa.Array:
    assert isinstance(values, list)
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.concat_arrays(values))


def _load(source: _Source, paths: Sequence[str]) -> DataFrame:
    """Named files without discovery: Spark looks for partitions only below the parent of each file."""
    return source.session.read.schema(_read_schema(source.stored)).options(**_OPTIONS).parquet(*paths)


def _load_discovered(source: _Source, group: FileGroup, *, whole_directories: bool) -> DataFrame:
    hidden = [StructField(TRANSACTION_COLUMN, STRING)] if group.kind is LayoutKind.TRANSACTION else []
    texts = [StructField(item.name, STRING) for item in source.partitions]
    schema = _read_schema(StructType((*source.stored.fields, *texts, *hidden)))
    reader = source.session.read.schema(schema).options(**_OPTIONS).option("basePath", source.location)
    # On Connect the plan is analysed anew with every execution, long after the listing was proven.
    if group.kind is not LayoutKind.TRANSACTION or not whole_directories or is_connect(source.session):
        return reader.parquet(*group.locations.to_pylist())
    directories, single = _candidate_directories(group.locations, source.location)
    if not directories:
        return reader.parquet(*single)
    frame = reader.parquet(*single, *directories)
    # The proof comes after Spark has listed: what is there now and live was there then, and nothing else was.
    unproven = [name for name, live in directories.items() if not _holds_exactly(source.store, name, live)]
    if not unproven:
        return frame
    paths = [*single, *(path for name in unproven for path in directories[name])]
    return reader.parquet(*paths, *(name for name in directories if name not in unproven))


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


def _read_schema(schema: StructType) -> T.StructType:
    """The schema for Spark's reader, without the metadata that would make it fill in values of its own."""
    spark = to_spark(schema)
    for field in spark.fields:
        field.metadata = {key: value for key, value in field.metadata.items() if key not in _READER_METADATA}
    return spark


_READER_METADATA = frozenset(("EXISTS_DEFAULT", "parquet.field.id", _CHAR_METADATA))
