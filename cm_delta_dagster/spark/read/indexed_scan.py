"""Reading data files through a file index: Spark asks for the files when it plans the query."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.file_columns import partition_column
from cm_delta_dagster.protocol.features.column_mapping import physical_name
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType
from cm_delta_dagster.spark.expressions.columns import (
    Names,
    stored_path,
    stored_schema,
)
from cm_delta_dagster.spark.library import Column, DataFrame, F
from cm_delta_dagster.spark.read.bitmaps import bit_batches
from cm_delta_dagster.spark.read.file_index import DeletedRows, FileIndexes, RelationSchemas
from cm_delta_dagster.spark.read.file_values import (
    BASE_ROW_ID_COLUMN,
    COMMIT_VERSION_COLUMN,
    FILE_COLUMN,
    OWN_PREFIX,
    POSITION_COLUMN,
    READER_POSITION_COLUMN,
    file_path,
)
from cm_delta_dagster.spark.read.hand_over import skipping_columns
from cm_delta_dagster.spark.read.layout import absolute_locations
from cm_delta_dagster.spark.read.load import READ_OPTIONS
from cm_delta_dagster.spark.read.scan_parts import (
    Scan,
    by_names,
    check_own_names,
    early_condition,
    row_ids,
    stored_columns,
    table_columns,
)
from cm_delta_dagster.spark.session.plans import selected

_FIRST_BIT_COLUMN = f"{OWN_PREFIX}first_bit"
_NUM_BITS_COLUMN = f"{OWN_PREFIX}num_bits"
_BIT_COLUMN = f"{OWN_PREFIX}bit"
_EXTRAS = (_FIRST_BIT_COLUMN, _NUM_BITS_COLUMN, BASE_ROW_ID_COLUMN, COMMIT_VERSION_COLUMN)


def indexed_parts(scan: Scan, indexes: FileIndexes, files: pa.Table) -> Iterator[DataFrame]:
    """One DataFrame for each group of files; files with a deletion vector are separate so that the others need no test of rows.

    Raises ObjectNotFoundError if the first file is missing, as where the whole table is. Spark finds others when it opens them.
    """
    if files.num_rows:
        scan.store.stat(absolute_locations(scan.layout.location, files["path"].slice(0, 1))[0].as_py())
    for names, named_alike in by_names(scan, files):
        has_bitmap = scan.has_bitmap(named_alike)
        num_bitmaps = pc.sum(has_bitmap).as_py() or 0
        if num_bitmaps < named_alike.num_rows:
            yield _read(scan, indexes, names, named_alike, without_vectors=num_bitmaps > 0)
        if num_bitmaps:
            deleted = named_alike.filter(has_bitmap)
            bitmaps = scan.bitmaps(deleted)
            for rows in bit_batches(bitmaps):
                part = deleted.slice(rows.start, rows.stop - rows.start)
                yield _read(scan, indexes, names, part, deleted=indexes.deleted_rows(bitmaps[rows]))


def _read(
    scan: Scan,
    indexes: FileIndexes,
    names: Names,
    files: pa.Table,
    *,
    without_vectors: bool = False,
    deleted: DeletedRows | None = None,
) -> DataFrame:
    stored = scan.stored(names)
    extras = (*(deleted is not None,) * 2, *(scan.row_tracking is not None,) * 2)
    if any(extras) or scan.with_files:
        check_own_names(scan, stored)
        stored = StructType((*stored.fields, StructField(READER_POSITION_COLUMN, LONG)))
    values = _partition_columns(scan, stored, files)
    schemas = _relation_schemas(scan, stored, values, extras)
    locations = (
        absolute_locations(scan.layout.location, files["path"]) if scan.storage.is_object_store else pa.array([])
    )
    frame = indexes.frame(
        scan.session,
        files,
        layout=scan.layout,
        storage=scan.storage,
        schemas=schemas,
        options={**scan.storage.options_for(locations), **READ_OPTIONS},
        without_vectors=without_vectors,
        deleted=deleted,
    )
    stored_by_name = {**dict(stored_columns(scan, stored)), **values}
    if scan.predicate is not None and (condition := early_condition(scan, stored, stored_by_name)) is not None:
        frame = frame.where(condition)
    columns = table_columns(scan, stored_by_name)
    if not any(extras) and not scan.with_files:
        if (*stored.names, *schemas.partitions.names) == scan.schema.names and all(map(_is_text, columns)):
            # The frame has the right columns already; a projection would only cost round trips.
            return frame
        return selected(frame, columns)
    if scan.with_files:
        frame = frame.withColumn(FILE_COLUMN, file_path(frame, scan.storage))
    if deleted is not None:
        frame = _marked_or_others(scan, frame, deleted)
    if scan.row_tracking is not None:
        base, version = BASE_ROW_ID_COLUMN, COMMIT_VERSION_COLUMN
        columns += row_ids(scan.row_tracking, base, version, position=READER_POSITION_COLUMN)
    if scan.with_files:
        columns += [FILE_COLUMN, f"{READER_POSITION_COLUMN} AS {POSITION_COLUMN}"]
    return selected(frame, columns)


def _marked_or_others(scan: Scan, frame: DataFrame, deleted: DeletedRows) -> DataFrame:
    """The rows of ``frame`` whose bit is set, or those whose bit is not, as the scan returns them."""
    bit = f"CAST({_FIRST_BIT_COLUMN} + {READER_POSITION_COLUMN} AS INT) AS {_BIT_COLUMN}"
    has_bit = F.expr(f"{READER_POSITION_COLUMN} < {_NUM_BITS_COLUMN}")
    is_marked = has_bit & deleted.bit(_BIT_COLUMN, scan.session)
    return frame.selectExpr("*", bit).where(is_marked if scan.returns_marked else ~is_marked)


def _is_text(column: Column | str) -> bool:
    return isinstance(column, str)


def _relation_schemas(
    scan: Scan, stored: StructType, values: Mapping[str, StructField | None], extras: tuple[bool, ...]
) -> RelationSchemas:
    fields = [item for item in values.values() if item is not None]
    added = [StructField(name, LONG) for name, is_wanted in zip(_EXTRAS, extras, strict=True) if is_wanted]
    paths = {path: stored_path(path, scan.data_columns, stored) for path in skipping_columns(scan.layout)}
    return RelationSchemas(
        stored=stored,
        partitions=StructType((*fields, *added)),
        extras=extras,
        paths={path: names for path, names in paths.items() if names is not None},
    )


def _partition_columns(scan: Scan, stored: StructType, files: pa.Table) -> dict[str, StructField | None]:
    """For each partition column, the column of the relation; in id mode a file may have any column under its name."""
    taken = {name.lower() for name in stored.names}
    columns: dict[str, StructField | None] = {}
    for number, item in enumerate(scan.partitions):
        physical = physical_name(item, scan.layout.mapping)
        name = f"{OWN_PREFIX}partition{number}" if physical.lower() in taken else physical
        has_null = not item.nullable and partition_column(files, physical).null_count > 0
        trusted: frozenset[ColumnPath] = frozenset() if has_null else frozenset([(item.name,)])
        columns[item.name] = next(iter(stored_schema(StructType((item,)), _always(name), trusted).fields), None)
    return columns


def _always(name: str) -> Names:
    return lambda path, item: name
