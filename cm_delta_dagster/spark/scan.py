"""Reading a set of data files as a DataFrame (protocol headings "Data Files", "Deletion Vectors", "Column Mapping",
"Row Tracking").

Spark's Parquet reader reads the rows; no Spark job runs and no setting stays changed before the query itself. This module
uses neither the log nor the catalog.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.file_columns import partition_column
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
    stored_path,
    stored_schema,
    table_column,
)
from cm_delta_dagster.spark.errors import spark_errors
from cm_delta_dagster.spark.field_ids import as_names, group_by_names, is_absent, names_by_file
from cm_delta_dagster.spark.file_index import FileIndexes, RelationSchemas, file_indexes
from cm_delta_dagster.spark.file_values import (
    BASE_ROW_ID_COLUMN,
    COMMIT_VERSION_COLUMN,
    FILE_COLUMN,
    NUMBER_COLUMN,
    OWN_PREFIX,
    POSITION_COLUMN,
    WORDS_COLUMN,
    file_path,
    is_deleted,
    join_file_values,
    join_numbered_values,
    known,
    row_index,
    spark_file_key,
    spark_file_path,
    word_lists,
)
from cm_delta_dagster.spark.hand_over import skipping_columns
from cm_delta_dagster.spark.layout import absolute_locations, canonical_texts, check_names, one_chunk
from cm_delta_dagster.spark.load import READ_OPTIONS, load_files, made_nullable
from cm_delta_dagster.spark.nullability import non_null, proven
from cm_delta_dagster.spark.object_stores import SparkStorage, spark_storage
from cm_delta_dagster.spark.partition_text import typed_column
from cm_delta_dagster.spark.predicates import on_stored_columns
from cm_delta_dagster.spark.schema import quoted, to_spark
from cm_delta_dagster.spark.session import LISTING_SETTINGS, temporary_settings
from cm_delta_dagster.storage.store import Store

__all__ = ["FILE_COLUMN", "scan", "scan_with_files", "spark_file_key", "spark_file_path"]

_SMALL_LISTING = 32
_EXTRAS = (NUMBER_COLUMN, BASE_ROW_ID_COLUMN, COMMIT_VERSION_COLUMN)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """What all parts of one scan share.

    Attributes:
        storage: how Spark reaches the table.
        indexes: of the session; None if it has none.
        never_null: paths of NOT NULL columns that hold no null in any of the files.
        with_files: also return :data:`FILE_COLUMN`.
    """

    session: SparkSession
    store: Store
    storage: SparkStorage
    indexes: FileIndexes | None
    layout: TableLayout
    never_null: frozenset[Path]
    predicate: Predicate | None
    row_tracking: RowIdColumns | None
    with_files: bool

    @property
    def schema(self) -> StructType:
        return self.layout.schema

    @property
    def partitions(self) -> tuple[StructField, ...]:
        return self.layout.partition_fields

    @property
    def zone(self) -> tzinfo:
        """Time zone of ``timestamp`` partition values that state none."""
        return UTC

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
    schema, partitions = layout.schema, layout.partition_fields
    names = tuple(item.name for item in partitions)
    indexes = file_indexes(session)
    # Without an index Spark's reader makes every column nullable.
    declared = () if indexes is None else (path for path in non_null_paths(schema) if path[0] not in names)
    if request.row_tracking is not None:
        _check_row_tracking(schema, request.files)
    return _Scan(
        session=session,
        store=store,
        storage=spark_storage(session, store, layout.location),
        indexes=indexes,
        layout=layout,
        never_null=proven(
            request.files, iter(declared), schema=schema, partition_columns=names, mapping=layout.mapping
        ),
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
    with spark_errors(f"reading data files of {scan.layout.location}"):
        if scan.indexes is not None:
            parts = list(_indexed_parts(scan, scan.indexes, files))
        else:
            # Spark lists the files when the DataFrame is made.
            with temporary_settings(scan.session, LISTING_SETTINGS if files.num_rows > _SMALL_LISTING else {}):
                parts = list(_listed_parts(scan, files))
        if not parts:
            return _empty(scan)
        return reduce(DataFrame.union, parts)


def _empty(scan: _Scan) -> DataFrame:
    schema = to_spark(scan.schema)
    extra = [name for name in scan.result_columns if name not in scan.schema.names]
    for name in extra:
        schema = schema.add(name, T.StringType() if name == FILE_COLUMN else T.LongType())
    return scan.session.createDataFrame([], schema)


def _by_names(scan: _Scan, files: pa.Table) -> Iterator[tuple[Names, pa.Table]]:
    if not files.num_rows:
        return
    if scan.layout.mapping is not ColumnMappingMode.ID:
        yield names_of_mode(scan.layout.mapping), files
        return
    locations = absolute_locations(scan.layout.location, files["path"]).to_pylist()
    found = names_by_file(scan.store, scan.data_columns, locations)
    for names, positions in group_by_names(found):
        yield as_names(names), files.take(pa.array(positions, pa.int64()))


# --- with a file index ------------------------------------------------------------------------------------------------


def _indexed_parts(scan: _Scan, indexes: FileIndexes, files: pa.Table) -> Iterator[DataFrame]:
    """One DataFrame for each group of files; files with a deletion vector are separate so that the others need no join."""
    for names, named_alike in _by_names(scan, files):
        has_vector = named_alike["deletionVector"].is_valid()
        num_vectors = pc.sum(has_vector).as_py() or 0
        if num_vectors < named_alike.num_rows:
            yield _indexed(scan, indexes, names, named_alike, without_vectors=num_vectors > 0)
        if num_vectors:
            deleted = named_alike.filter(has_vector)
            words = deletion_words(scan.store, location=scan.layout.location, files=deleted)
            for rows in word_batches(words):
                part = deleted.slice(rows.start, rows.stop - rows.start)
                yield _indexed(scan, indexes, names, part, words=words[rows])


def _indexed(
    scan: _Scan,
    indexes: FileIndexes,
    names: Names,
    files: pa.Table,
    *,
    without_vectors: bool = False,
    words: Sequence[pa.Array] = (),
) -> DataFrame:
    stored = scan.stored(names)
    extras = (bool(words), scan.row_tracking is not None, scan.row_tracking is not None)
    if any(extras):
        _check_names(scan, stored)
    values = _partition_columns(scan, stored, files)
    added = [StructField(name, LONG) for name, is_wanted in zip(_EXTRAS, extras, strict=True) if is_wanted]
    schemas = RelationSchemas(
        stored=stored,
        partitions=StructType((*(item for item in values.values() if item is not None), *added)),
        extras=extras,
        paths={
            path: found
            for path in skipping_columns(scan.layout)
            if (found := stored_path(path, scan.data_columns, stored)) is not None
        },
    )
    locations = absolute_locations(scan.layout.location, files["path"])
    frame = indexes.frame(
        scan.session,
        files,
        layout=scan.layout,
        storage=scan.storage,
        schemas=schemas,
        options={**scan.storage.options_for(locations), **READ_OPTIONS},
        zone=scan.zone,
        without_vectors=without_vectors,
    )
    held = {**dict(_held_columns(scan, stored)), **values}
    if scan.predicate is not None and (condition := _early_condition(scan, stored, held)) is not None:
        frame = frame.where(condition)
    extra = []
    if any(extras):
        # Values of files are joined before the columns are built: a later join would prevent Spark from pruning columns.
        added_columns = [row_index(frame).alias(POSITION_COLUMN)]
        if scan.with_files:
            added_columns.append(file_path(frame, scan.storage).alias(FILE_COLUMN))
            extra = [F.col(FILE_COLUMN)]
        frame = frame.select("*", *added_columns)
    elif scan.with_files:
        extra = [file_path(frame, scan.storage).alias(FILE_COLUMN)]
    if words:
        frame = join_numbered_values(scan.session, frame, {WORDS_COLUMN: word_lists(words)})
        frame = frame.where(f"{is_deleted(file=NUMBER_COLUMN)} = 0")
    if scan.row_tracking is not None:
        extra = [*_row_ids(scan.row_tracking, BASE_ROW_ID_COLUMN, COMMIT_VERSION_COLUMN), *extra]
    fields = scan.schema.fields
    if not extra and frame.columns == scan.schema.names and all(is_unchanged(item, held[item.name]) for item in fields):
        # The frame has the right columns already; a projection would only cost round trips.
        return frame
    return frame.select(*[table_column(item, held[item.name]) for item in fields], *extra)


def _partition_columns(scan: _Scan, stored: StructType, files: pa.Table) -> dict[str, StructField | None]:
    """For each partition column, the column of the relation; in id mode a file may have any column under its name."""
    taken = {name.lower() for name in stored.names}
    found: dict[str, StructField | None] = {}
    for number, item in enumerate(scan.partitions):
        physical = physical_name(item, scan.layout.mapping)
        name = f"{OWN_PREFIX}partition{number}" if physical.lower() in taken else physical
        has_null = not item.nullable and partition_column(files, physical).null_count > 0
        trusted: frozenset[Path] = frozenset() if has_null else frozenset([(item.name,)])
        found[item.name] = next(iter(stored_schema(StructType((item,)), _always(name), trusted).fields), None)
    return found


def _always(name: str) -> Names:
    return lambda path, item: name


# --- without a file index ---------------------------------------------------------------------------------------------


def _listed_parts(scan: _Scan, files: pa.Table) -> Iterator[DataFrame]:
    """As :func:`_indexed_parts`; all values of files are joined with the rows."""
    for names, named_alike in _by_names(scan, files):
        has_vector = named_alike["deletionVector"].is_valid()
        if (plain := named_alike.filter(pc.invert(has_vector))).num_rows:
            yield _listed(scan, names, plain, {})
        if (deleted := named_alike.filter(has_vector)).num_rows:
            words = deletion_words(scan.store, location=scan.layout.location, files=deleted)
            for rows in word_batches(words):
                part = deleted.slice(rows.start, rows.stop - rows.start)
                yield _listed(scan, names, part, {WORDS_COLUMN: word_lists(words[rows])})


def _listed(scan: _Scan, names: Names, files: pa.Table, values: Mapping[str, pa.Array]) -> DataFrame:
    wanted = scan.stored(names)
    stored = made_nullable(wanted)
    locations = absolute_locations(scan.layout.location, files["path"])
    check_names(locations)
    frame = load_files(
        scan.session, wanted, store=scan.store, storage=scan.storage, locations=locations, sizes=files["size"]
    )
    held = dict(_held_columns(scan, stored))
    if scan.predicate is not None and (condition := _early_condition(scan, stored, held)) is not None:
        frame = frame.where(condition)
    texts = {item.name: f"{OWN_PREFIX}value{number}" for number, item in enumerate(scan.partitions)}
    for item in scan.partitions:
        texts_of_files = canonical_texts(files, item, scan.layout.mapping, scan.zone)
        values = {**values, texts[item.name]: texts_of_files}
    if scan.row_tracking is not None:
        values = {
            **values,
            BASE_ROW_ID_COLUMN: one_chunk(files["baseRowId"]),
            COMMIT_VERSION_COLUMN: one_chunk(files["defaultRowCommitVersion"]),
        }
    if values:
        _check_names(scan, stored)
        frame = frame.select(
            "*", file_path(frame, scan.storage).alias(FILE_COLUMN), row_index(frame).alias(POSITION_COLUMN)
        )
        frame = join_file_values(scan.session, frame, locations, values)
    elif scan.with_files:
        frame = frame.select("*", file_path(frame, scan.storage).alias(FILE_COLUMN))
    if WORDS_COLUMN in values:
        frame = frame.where(f"{is_deleted()} = 0")
    outputs = [
        _from_text(item, F.expr(known(texts[item.name], "STRING")))
        if item.name in texts
        else table_column(item, held[item.name])
        for item in scan.schema.fields
    ]
    if scan.row_tracking is not None:
        outputs += _row_ids(
            scan.row_tracking, known(BASE_ROW_ID_COLUMN, "BIGINT"), known(COMMIT_VERSION_COLUMN, "BIGINT")
        )
    return frame.select(*outputs, *([F.col(FILE_COLUMN)] if scan.with_files else []))


def _from_text(item: StructField, text: Column) -> Column:
    value = F.encode(text, "ISO-8859-1") if item.type == BINARY else typed_column(text, item.type)
    return named(padded(value if item.nullable else non_null(value, item.type, item.name), item), item)


# --- columns ----------------------------------------------------------------------------------------------------------


def _check_names(scan: _Scan, stored: StructType) -> None:
    """Raise UnsupportedFeatureError if a column has a name that is reserved for the values of files."""
    names = (*stored.names, *(physical_name(item, scan.layout.mapping) for item in scan.partitions))
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


def _early_condition(scan: _Scan, stored: StructType, held: Mapping[str, StructField | None]) -> Column | None:
    """The part of the condition that Spark cannot push down to the files through the converted columns."""
    hidden = frozenset(
        item.name.lower()
        for item in scan.data_columns.fields
        if (found := held[item.name]) is not None and (found.type != item.type or found.nullable != item.nullable)
    )
    assert scan.predicate is not None
    return on_stored_columns(scan.predicate, scan.data_columns, stored, only=hidden)


def _row_ids(columns: RowIdColumns, base: str, version: str) -> list[Column]:
    """Row ids and commit versions; ``base`` and ``version`` are SQL texts of the values of the file."""
    return [
        F.expr(f"coalesce({quoted(columns.row_id)}, {base} + {POSITION_COLUMN})").alias(ROW_ID),
        F.expr(f"coalesce({quoted(columns.row_commit_version)}, {version})").alias(ROW_COMMIT_VERSION),
    ]
