"""Reading a set of data files as a DataFrame (protocol headings "Data Files", "Deletion Vectors", "Column Mapping",
"Row Tracking").

Rows come from Spark's own Parquet reader, without a Spark job or a changed setting before the query itself. This module
knows neither the log nor the catalog.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID, RowIdColumns
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import BINARY, LONG, StructField, StructType
from cm_delta_dagster.spark.bitmaps import deletion_words, word_batches
from cm_delta_dagster.spark.columns import (
    Names,
    Path,
    is_unchanged,
    named,
    names_of_mode,
    non_null_paths,
    padded,
    pairs,
    stored_schema,
    table_column,
)
from cm_delta_dagster.spark.errors import spark_errors
from cm_delta_dagster.spark.field_ids import as_names, group_by_names, is_absent, names_by_file
from cm_delta_dagster.spark.file_values import (
    BASE_ROW_ID_COLUMN,
    COMMIT_VERSION_COLUMN,
    FILE_COLUMN,
    OWN_PREFIX,
    POSITION_COLUMN,
    SIZE_COLUMN,
    WORDS_COLUMN,
    file_path,
    file_size,
    is_deleted,
    join_file_values,
    known,
    row_index,
    spark_file_key,
    spark_file_path,
    word_lists,
)
from cm_delta_dagster.spark.layout import (
    FileGroup,
    LayoutKind,
    absolute_locations,
    count_distinct_values,
    distinct_values,
    group_files,
)
from cm_delta_dagster.spark.load import Loaded, Loader, lists_exactly
from cm_delta_dagster.spark.nullability import guarded, proven
from cm_delta_dagster.spark.partition_text import typed_column
from cm_delta_dagster.spark.predicates import on_stored_columns
from cm_delta_dagster.spark.schema import quoted, to_spark
from cm_delta_dagster.spark.session import LISTING_SETTINGS, is_connect, temporary_settings
from cm_delta_dagster.storage.store import Store

__all__ = ["FILE_COLUMN", "scan", "scan_with_files", "spark_file_key", "spark_file_path"]

_MAX_LITERAL_SCANS = 24
_SMALL_LISTING = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What every part of one scan has in common."""

    loader: Loader
    schema: StructType
    partitions: tuple[StructField, ...]
    mapping: ColumnMappingMode
    trusted: frozenset[Path]
    predicate: Predicate | None
    row_tracking: RowIdColumns | None
    with_files: bool

    @property
    def session(self) -> SparkSession:
        return self.loader.session

    @property
    def data_columns(self) -> StructType:
        """Columns of the table that data files may hold."""
        taken = {item.name for item in self.partitions}
        return StructType(tuple(item for item in self.schema.fields if item.name not in taken))

    @property
    def result_columns(self) -> list[str]:
        extra = [FILE_COLUMN] if self.with_files else []
        return [*self.schema.names, *([ROW_ID, ROW_COMMIT_VERSION] if self.row_tracking else []), *extra]

    def stored(self, names: Names) -> StructType:
        """What is read from files that call their columns so."""
        found = stored_schema(self.data_columns, names, self.trusted)
        if self.row_tracking is None:
            return found
        hidden = (self.row_tracking.row_id, self.row_tracking.row_commit_version)
        return StructType((*found.fields, *(StructField(name, LONG) for name in hidden)))


def scan(
    session: SparkSession,
    *,
    store: Store,
    location: str,
    schema: StructType,
    partition_columns: Sequence[str],
    files: pa.Table,
    mapping: ColumnMappingMode = ColumnMappingMode.NONE,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
    row_tracking: RowIdColumns | None = None,
) -> DataFrame:
    """The logical rows of ``files``: partition values from the log, deletion vectors applied, absent columns null.

    Types, nullability and metadata of the columns are those of ``schema``.

    Args:
        location: absolute URI of the table root.
        schema: logical schema, as the log has it.
        files: live files, columns of ``file_actions.ADD_SCHEMA``.
        mapping: how files call their columns.
        columns: top-level columns to return, in this order, found ignoring case; all of the schema for None.
        predicate: condition that the caller applies to the result; lets Spark skip parts of files where it could not
            see through the columns by itself. It never leaves out a row for which it is true.
        row_tracking: also return ``_row_id`` and ``_row_commit_version``, last.

    Raises:
        InvalidArgumentError: an unknown column.
        CorruptLogError: a path, partition value or deletion vector of the log is damaged.
        ObjectNotFoundError: a file is missing; the message names it.
        StorageError: a file was cut short; the message names it.
    """
    source = _source(
        session, store, location, schema, partition_columns, files, mapping, predicate, row_tracking, with_files=False
    )
    frame = _scan(source, files)
    if columns is None:
        return frame
    extra = [ROW_ID, ROW_COMMIT_VERSION] if row_tracking else []
    return frame.select(*[F.col(quoted(name)) for name in (*_known(columns, schema), *extra)])


def scan_with_files(
    session: SparkSession,
    *,
    store: Store,
    location: str,
    schema: StructType,
    partition_columns: Sequence[str],
    files: pa.Table,
    mapping: ColumnMappingMode = ColumnMappingMode.NONE,
) -> DataFrame:
    """As :func:`scan`, and :data:`FILE_COLUMN` last; :func:`spark_file_key` makes its values comparable with file
    keys."""
    return _scan(
        _source(session, store, location, schema, partition_columns, files, mapping, None, None, with_files=True), files
    )


def _known(columns: Sequence[str], schema: StructType) -> list[str]:
    names = []
    for name in columns:
        field = schema.field(name)
        if field is None:
            raise InvalidArgumentError(f"The table has no column {name!r}; its columns are {', '.join(schema.names)}.")
        names.append(field.name)
    return names


def _source(
    session: SparkSession,
    store: Store,
    location: str,
    schema: StructType,
    partition_columns: Sequence[str],
    files: pa.Table,
    mapping: ColumnMappingMode,
    predicate: Predicate | None,
    row_tracking: RowIdColumns | None,
    *,
    with_files: bool,
) -> _Source:
    partitions = tuple(item for name in partition_columns if (item := schema.field(name)) is not None)
    names = tuple(item.name for item in partitions)
    promised = () if is_connect(session) else (path for path in non_null_paths(schema) if path[0] not in names)
    if row_tracking is not None:
        _check_row_tracking(schema, files)
    return _Source(
        loader=Loader(
            session=session,
            store=store,
            location=location,
            partitions=tuple(replace(item, name=physical_name(item, mapping)) for item in partitions),
        ),
        schema=schema,
        partitions=partitions,
        mapping=mapping,
        trusted=proven(files, iter(promised), schema=schema, partition_columns=names, mapping=mapping),
        predicate=predicate,
        row_tracking=row_tracking,
        with_files=with_files,
    )


def _check_row_tracking(schema: StructType, files: pa.Table) -> None:
    for name in (ROW_ID, ROW_COMMIT_VERSION):
        if schema.field(name) is not None:
            raise InvalidArgumentError(
                f"The table has a column named {name!r} of its own, so row ids cannot be returned under that name. Read "
                "the table without them."
            )
    for column in ("baseRowId", "defaultRowCommitVersion"):
        if files[column].null_count:
            path = files.filter(pc.is_null(files[column]))["path"][0].as_py()
            raise CorruptLogError(
                f"Row tracking is enabled, and the data file {path!r} has no {column} in the log, so the ids of its rows "
                "are not known. Read the table without row ids."
            )


def _scan(source: _Source, files: pa.Table) -> DataFrame:
    with spark_errors(f"reading data files of {source.loader.location}"):
        settings = LISTING_SETTINGS if files.num_rows > _SMALL_LISTING else {}
        with temporary_settings(source.session, settings):
            parts = list(_parts(source, files))
        if not parts:
            return _empty(source)
        return reduce(DataFrame.union, parts)


def _empty(source: _Source) -> DataFrame:
    schema = to_spark(source.schema)
    extra = [name for name in source.result_columns if name not in source.schema.names]
    for name in extra:
        schema = schema.add(name, T.StringType() if name == FILE_COLUMN else T.LongType())
    return source.session.createDataFrame([], schema)


def _parts(source: _Source, files: pa.Table) -> Iterator[DataFrame]:
    """One DataFrame for each group of files; files with a deletion vector stand apart so that the others pay
    nothing."""
    for names, named_alike in _by_names(source, files):
        stored = source.stored(names)
        has_vector = pc.is_valid(named_alike["deletionVector"])
        for group in _groups(source, stored, named_alike.filter(pc.invert(has_vector))):
            yield from _read_group(source, stored, group, {})
        for group in _groups(source, stored, named_alike.filter(has_vector)):
            words = deletion_words(source.loader.store, location=source.loader.location, files=group.files)
            for rows in word_batches(words):
                yield from _read_group(source, stored, group.part(rows), {WORDS_COLUMN: word_lists(words[rows])})


def _groups(source: _Source, stored: StructType, files: pa.Table) -> list[FileGroup]:
    # In id mode a file may call any column like a partition column.
    shared = {item.name.lower() for item in source.loader.partitions} & {name.lower() for name in stored.names}
    return group_files(
        files,
        location=source.loader.location,
        partition_fields=source.partitions,
        mapping=source.mapping,
        discover=not shared,
    )


def _by_names(source: _Source, files: pa.Table) -> Iterator[tuple[Names, pa.Table]]:
    if source.mapping is not ColumnMappingMode.ID:
        yield names_of_mode(source.mapping), files
        return
    locations = absolute_locations(source.loader.location, files["path"]).to_pylist()
    found = names_by_file(source.loader.store, source.data_columns, locations)
    for names, positions in group_by_names(found):
        yield as_names(names), files.take(pa.array(positions, pa.int64()))


def _read_group(
    source: _Source, stored: StructType, group: FileGroup, values: Mapping[str, pa.Array]
) -> Iterator[DataFrame]:
    if source.row_tracking is not None:
        values = {
            **values,
            BASE_ROW_ID_COLUMN: group.files["baseRowId"].combine_chunks(),
            COMMIT_VERSION_COLUMN: group.files["defaultRowCommitVersion"].combine_chunks(),
        }
    sizes = group.files["size"]
    if group.kind is not LayoutKind.LOG_ONLY:
        loaded = source.loader.load_discovered(stored, group, whole_directories=not values)
        texts = {item.name: F.col(quoted(physical_name(item, source.mapping))) for item in source.partitions}
        yield _finished(source, loaded, texts, group.locations, values)
    elif not source.partitions:
        yield _finished(source, source.loader.load(stored, group.locations, sizes), {}, group.locations, values)
    elif not values and count_distinct_values(group) <= _MAX_LITERAL_SCANS:
        for literals, positions in distinct_values(group):
            locations, some = group.locations.take(positions), sizes.take(positions)
            texts = {
                item.name: F.lit(value).cast("string") for item, value in zip(source.partitions, literals, strict=True)
            }
            yield _finished(source, source.loader.load(stored, locations, some), texts, locations, {})
    else:
        # Many partition values in directories that do not tell them: join with a small table of the log's values, which
        # there is anyhow where files have deletion vectors.
        names = {item.name: f"__cm_delta_value{index}" for index, item in enumerate(source.partitions)}
        values = {**values, **dict(zip(names.values(), group.values, strict=True))}
        texts = {name: F.expr(known(column, "STRING")) for name, column in names.items()}
        yield _finished(source, source.loader.load(stored, group.locations, sizes), texts, group.locations, values)


def _finished(
    source: _Source,
    loaded: Loaded,
    texts: Mapping[str, Column],
    locations: pa.Array,
    values: Mapping[str, pa.Array],
) -> DataFrame:
    """Columns of the table in its order, deleted rows left out."""
    held = dict(_held_columns(source, loaded.stored))
    frame = loaded.frame
    if source.predicate is not None:
        frame = frame.where(condition) if (condition := _early_condition(source, loaded, held)) is not None else frame
    if not values:
        if (
            not texts
            and not source.with_files
            and all(is_unchanged(item, held[item.name]) for item in source.schema.fields)
        ):
            # Such a read is the scan itself; a projection would only cost round trips.
            return frame
        outputs = [_output(item, texts, held.get(item.name)) for item in source.schema.fields]
        return frame.select(*outputs, *([file_path(frame).alias(FILE_COLUMN)] if source.with_files else []))
    _check_names(source, loaded)
    # Values of files are joined before the columns are made: a join in between would keep Spark from pruning them.
    placed = frame.select(
        "*",
        file_path(frame).alias(FILE_COLUMN),
        file_size(frame).alias(SIZE_COLUMN),
        row_index(frame).alias(POSITION_COLUMN),
    )
    are_listed = loaded.sizes is not None and lists_exactly(loaded.frame, locations, loaded.sizes)
    joined = join_file_values(source.session, placed, locations, values, sizes=loaded.sizes, are_listed=are_listed)
    kept = joined.where(f"{is_deleted()} = 0") if WORDS_COLUMN in values else joined
    outputs = [_output(item, texts, held.get(item.name)) for item in source.schema.fields]
    tracked = [] if source.row_tracking is None else _row_ids(source.row_tracking)
    return kept.select(*outputs, *tracked, *([F.col(FILE_COLUMN)] if source.with_files else []))


def _check_names(source: _Source, loaded: Loaded) -> None:
    """Refuse files whose columns could be taken for those that are joined with them."""
    names = (*loaded.stored.names, *(item.name for item in source.loader.partitions))
    taken = next((name for name in names if name.lower().startswith(OWN_PREFIX) and not is_absent(name)), None)
    if taken is not None:
        raise UnsupportedFeatureError(
            f"The table has a column named {taken!r}; names that begin so are used here while rows are read, so it cannot be read "
            "through Spark. Read it without Spark (to_arrow), or rename the column."
        )


def _held_columns(source: _Source, stored: StructType) -> Iterator[tuple[str, StructField | None]]:
    """Each data column of the table with what is stored for it."""
    for item, found in pairs(source.data_columns, stored):
        yield item.name, found


def _early_condition(source: _Source, loaded: Loaded, held: Mapping[str, StructField | None]) -> Column | None:
    """The part of the condition that Spark could not push into the files through the columns made of them."""
    hidden = frozenset(
        item.name.lower()
        for item in source.data_columns.fields
        if (found := held[item.name]) is not None and (found.type != item.type or found.nullable != item.nullable)
    )
    assert source.predicate is not None
    return on_stored_columns(source.predicate, source.data_columns, loaded.stored, only=hidden)


def _row_ids(columns: RowIdColumns) -> list[Column]:
    fresh = known(f"{BASE_ROW_ID_COLUMN} + {POSITION_COLUMN}", "BIGINT")
    version = known(COMMIT_VERSION_COLUMN, "BIGINT")
    return [
        F.expr(f"coalesce({quoted(columns.row_id)}, {fresh})").alias(ROW_ID),
        F.expr(f"coalesce({quoted(columns.row_commit_version)}, {version})").alias(ROW_COMMIT_VERSION),
    ]


def _output(item: StructField, texts: Mapping[str, Column], stored: StructField | None) -> Column:
    if item.name not in texts:
        return table_column(item, stored)
    text = texts[item.name]
    value = F.encode(text, "ISO-8859-1") if item.type == BINARY else typed_column(text, item.type)
    return named(padded(value if item.nullable else guarded(value, item.type, item.name), item), item)
