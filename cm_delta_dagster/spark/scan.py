"""Reading a set of data files as a DataFrame (protocol headings "Data Files", "Deletion Vectors", "Column Mapping",
"Row Tracking").

Spark's Parquet reader reads the rows; no Spark job runs and no setting stays changed before the query itself. This module
uses neither the log nor the catalog.
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
from cm_delta_dagster.protocol.features.table_layout import ScanRequest, TableLayout
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
from cm_delta_dagster.spark.nullability import non_null, proven
from cm_delta_dagster.spark.object_stores import spark_storage
from cm_delta_dagster.spark.partition_text import typed_column
from cm_delta_dagster.spark.predicates import on_stored_columns
from cm_delta_dagster.spark.schema import quoted, to_spark
from cm_delta_dagster.spark.session import LISTING_SETTINGS, default_zone, is_connect, temporary_settings
from cm_delta_dagster.storage.store import Store

__all__ = ["FILE_COLUMN", "scan", "scan_with_files", "spark_file_key", "spark_file_path"]

_MAX_LITERAL_SCANS = 24
_SMALL_LISTING = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """What all parts of one scan share.

    Attributes:
        partitions: the partition columns, as fields of the schema.
        never_null: paths of NOT NULL columns that hold no null in any of the files.
        with_files: also return :data:`FILE_COLUMN`.
    """

    loader: Loader
    layout: TableLayout
    partitions: tuple[StructField, ...]
    never_null: frozenset[Path]
    predicate: Predicate | None
    row_tracking: RowIdColumns | None
    with_files: bool

    @property
    def session(self) -> SparkSession:
        return self.loader.session

    @property
    def schema(self) -> StructType:
        return self.layout.schema

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
        """The columns to read from files that name their columns by ``names``."""
        found = stored_schema(self.data_columns, names, self.never_null)
        if self.row_tracking is None:
            return found
        hidden = (self.row_tracking.row_id, self.row_tracking.row_commit_version)
        return StructType((*found.fields, *(StructField(name, LONG) for name in hidden)))


def scan(session: SparkSession, *, store: Store, layout: TableLayout, request: ScanRequest) -> DataFrame:
    """The logical rows of ``request.files``: partition values from the log, deletion vectors applied, absent columns null.

    Types, nullability and metadata of the columns are those of the schema. The caller applies ``request.predicate`` to the
    result: here it only lets Spark skip parts of files, and every row for which it is true is returned. Row ids and commit
    versions, if they are requested, are the last columns.

    Raises:
        InvalidArgumentError: an unknown column.
        CorruptLogError: a path, partition value or deletion vector of the log is damaged.
        ObjectNotFoundError: a file is missing; the message names it.
        StorageError: a file was cut short; the message names it.
        StoreNotSupportedError: the session has no file system for the location of the table.
    """
    frame = _frame(_new_scan(session, store, layout, request, with_files=False), request.files)
    if request.columns is None:
        return frame
    extra = [ROW_ID, ROW_COMMIT_VERSION] if request.row_tracking else []
    return frame.select(*[F.col(quoted(name)) for name in (*_known(request.columns, layout.schema), *extra)])


def scan_with_files(session: SparkSession, *, store: Store, layout: TableLayout, files: pa.Table) -> DataFrame:
    """All columns as :func:`scan`, and :data:`FILE_COLUMN` last; :func:`spark_file_key` makes its values comparable with
    file keys.
    """
    return _frame(_new_scan(session, store, layout, ScanRequest(files=files), with_files=True), files)


def _known(columns: Sequence[str], schema: StructType) -> list[str]:
    names = []
    for name in columns:
        field = schema.field(name)
        if field is None:
            raise InvalidArgumentError(f"The table has no column {name!r}; its columns are {', '.join(schema.names)}.")
        names.append(field.name)
    return names


def _new_scan(
    session: SparkSession, store: Store, layout: TableLayout, request: ScanRequest, *, with_files: bool
) -> _Scan:
    schema, mapping, partitions = layout.schema, layout.mapping, layout.partition_fields
    names = tuple(item.name for item in partitions)
    declared = () if is_connect(session) else (path for path in non_null_paths(schema) if path[0] not in names)
    if request.row_tracking is not None:
        _check_row_tracking(schema, request.files)
    return _Scan(
        loader=Loader(
            session=session,
            store=store,
            location=layout.location,
            storage=spark_storage(session, store, layout.location),
            partitions=tuple(replace(item, name=physical_name(item, mapping)) for item in partitions),
        ),
        layout=layout,
        partitions=partitions,
        never_null=proven(request.files, iter(declared), schema=schema, partition_columns=names, mapping=mapping),
        predicate=request.predicate,
        row_tracking=request.row_tracking,
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


def _frame(scan: _Scan, files: pa.Table) -> DataFrame:
    with spark_errors(f"reading data files of {scan.loader.location}"):
        settings = LISTING_SETTINGS if files.num_rows > _SMALL_LISTING else {}
        with temporary_settings(scan.session, settings):
            parts = list(_parts(scan, files))
        if not parts:
            return _empty(scan)
        return reduce(DataFrame.union, parts)


def _empty(scan: _Scan) -> DataFrame:
    schema = to_spark(scan.schema)
    extra = [name for name in scan.result_columns if name not in scan.schema.names]
    for name in extra:
        schema = schema.add(name, T.StringType() if name == FILE_COLUMN else T.LongType())
    return scan.session.createDataFrame([], schema)


def _parts(scan: _Scan, files: pa.Table) -> Iterator[DataFrame]:
    """One DataFrame for each group of files; files with a deletion vector are separate so that the others need no
    join.
    """
    for names, named_alike in _by_names(scan, files):
        stored = scan.stored(names)
        has_vector = pc.is_valid(named_alike["deletionVector"])
        for group in _groups(scan, stored, named_alike.filter(pc.invert(has_vector))):
            yield from _read_group(scan, stored, group, {})
        for group in _groups(scan, stored, named_alike.filter(has_vector)):
            words = deletion_words(scan.loader.store, location=scan.loader.location, files=group.files)
            for rows in word_batches(words):
                yield from _read_group(scan, stored, group.part(rows), {WORDS_COLUMN: word_lists(words[rows])})


def _groups(scan: _Scan, stored: StructType, files: pa.Table) -> list[FileGroup]:
    # In id mode a file may have any column under the name of a partition column.
    shared = {item.name.lower() for item in scan.loader.partitions} & {name.lower() for name in stored.names}
    return group_files(
        files,
        location=scan.loader.location,
        partition_fields=scan.partitions,
        mapping=scan.layout.mapping,
        discover=not shared,
        zone=default_zone(scan.layout.time_zone, scan.session),
    )


def _by_names(scan: _Scan, files: pa.Table) -> Iterator[tuple[Names, pa.Table]]:
    if scan.layout.mapping is not ColumnMappingMode.ID:
        yield names_of_mode(scan.layout.mapping), files
        return
    locations = absolute_locations(scan.loader.location, files["path"]).to_pylist()
    found = names_by_file(scan.loader.store, scan.data_columns, locations)
    for names, positions in group_by_names(found):
        yield as_names(names), files.take(pa.array(positions, pa.int64()))


def _read_group(
    scan: _Scan, stored: StructType, group: FileGroup, values: Mapping[str, pa.Array]
) -> Iterator[DataFrame]:
    if scan.row_tracking is not None:
        values = {
            **values,
            BASE_ROW_ID_COLUMN: group.files["baseRowId"].combine_chunks(),
            COMMIT_VERSION_COLUMN: group.files["defaultRowCommitVersion"].combine_chunks(),
        }
    sizes = group.files["size"]
    if group.kind is not LayoutKind.LOG_ONLY:
        loaded = scan.loader.load_discovered(stored, group, whole_directories=not values)
        texts = {item.name: F.col(quoted(physical_name(item, scan.layout.mapping))) for item in scan.partitions}
        yield _finished(scan, loaded, texts, group.locations, values)
    elif not scan.partitions:
        yield _finished(scan, scan.loader.load(stored, group.locations, sizes), {}, group.locations, values)
    elif not values and count_distinct_values(group) <= _MAX_LITERAL_SCANS:
        for literals, positions in distinct_values(group):
            locations, some = group.locations.take(positions), sizes.take(positions)
            texts = {item.name: _nullable_text(value) for item, value in zip(scan.partitions, literals, strict=True)}
            yield _finished(scan, scan.loader.load(stored, locations, some), texts, locations, {})
    else:
        # Many partition values that are not in directory names: join with a small table of the values in the log. Files
        # with deletion vectors need such a join in any case.
        names = {item.name: f"__cm_delta_value{index}" for index, item in enumerate(scan.partitions)}
        values = {**values, **dict(zip(names.values(), group.values, strict=True))}
        texts = {name: F.expr(known(column, "STRING")) for name, column in names.items()}
        yield _finished(scan, scan.loader.load(stored, group.locations, sizes), texts, group.locations, values)


def _nullable_text(value: str | None) -> Column:
    """The text as a constant that Spark takes for nullable, as the column is by the schema of the table."""
    return F.when(F.lit(True), F.lit(value)).cast("string")


def _finished(
    scan: _Scan,
    loaded: Loaded,
    texts: Mapping[str, Column],
    locations: pa.Array,
    values: Mapping[str, pa.Array],
) -> DataFrame:
    """The columns of the table in its order, without deleted rows."""
    held = dict(_held_columns(scan, loaded.stored))
    frame = loaded.frame
    if scan.predicate is not None:
        frame = frame.where(condition) if (condition := _early_condition(scan, loaded, held)) is not None else frame
    if not values:
        if (
            not texts
            and not scan.with_files
            and all(is_unchanged(item, held[item.name]) for item in scan.schema.fields)
        ):
            # The frame has the right columns already; a projection would only cost round trips.
            return frame
        outputs = [_output(item, texts, held.get(item.name)) for item in scan.schema.fields]
        return frame.select(
            *outputs, *([file_path(frame, scan.loader.storage).alias(FILE_COLUMN)] if scan.with_files else [])
        )
    _check_names(scan, loaded)
    # Values of files are joined before the columns are built: a later join would prevent Spark from pruning columns.
    placed = frame.select(
        "*",
        file_path(frame, scan.loader.storage).alias(FILE_COLUMN),
        file_size(frame).alias(SIZE_COLUMN),
        row_index(frame).alias(POSITION_COLUMN),
    )
    are_listed = loaded.sizes is not None and lists_exactly(
        loaded.frame, locations, loaded.sizes, storage=scan.loader.storage
    )
    joined = join_file_values(scan.session, placed, locations, values, sizes=loaded.sizes, are_listed=are_listed)
    kept = joined.where(f"{is_deleted()} = 0") if WORDS_COLUMN in values else joined
    outputs = [_output(item, texts, held.get(item.name)) for item in scan.schema.fields]
    tracked = [] if scan.row_tracking is None else _row_ids(scan.row_tracking)
    return kept.select(*outputs, *tracked, *([F.col(FILE_COLUMN)] if scan.with_files else []))


def _check_names(scan: _Scan, loaded: Loaded) -> None:
    """Raise UnsupportedFeatureError if a column of the files has a name that is reserved for joined columns."""
    names = (*loaded.stored.names, *(item.name for item in scan.loader.partitions))
    taken = next((name for name in names if name.lower().startswith(OWN_PREFIX) and not is_absent(name)), None)
    if taken is not None:
        raise UnsupportedFeatureError(
            f"The table has a column named {taken!r}; names that begin so are used here while rows are read, so it cannot be read "
            "through Spark. Read it without Spark (to_arrow), or rename the column."
        )


def _held_columns(scan: _Scan, stored: StructType) -> Iterator[tuple[str, StructField | None]]:
    """Each data column of the table with its stored column."""
    for item, found in pairs(scan.data_columns, stored):
        yield item.name, found


def _early_condition(scan: _Scan, loaded: Loaded, held: Mapping[str, StructField | None]) -> Column | None:
    """The part of the condition that Spark cannot push down to the files through the converted columns."""
    hidden = frozenset(
        item.name.lower()
        for item in scan.data_columns.fields
        if (found := held[item.name]) is not None and (found.type != item.type or found.nullable != item.nullable)
    )
    assert scan.predicate is not None
    return on_stored_columns(scan.predicate, scan.data_columns, loaded.stored, only=hidden)


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
    return named(padded(value if item.nullable else non_null(value, item.type, item.name), item), item)
