"""What the two ways of reading data files, with a file index and without, have in common."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo

import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.errors import UnsupportedFeatureError
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name
from cm_delta_dagster.protocol.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID, RowIdColumns
from cm_delta_dagster.protocol.features.table_layout import RowPositions, TableLayout
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath
from cm_delta_dagster.protocol.schema.types import LONG, StructField, StructType
from cm_delta_dagster.remedies import ReadWithoutSpark
from cm_delta_dagster.spark.expressions.columns import (
    Names,
    is_unchanged,
    names_of_mode,
    pairs,
    stored_schema,
    table_column,
)
from cm_delta_dagster.spark.expressions.predicates import on_stored_columns
from cm_delta_dagster.spark.expressions.schema import quoted
from cm_delta_dagster.spark.library import Column, SparkSession
from cm_delta_dagster.spark.read.bitmaps import deletion_bitmaps
from cm_delta_dagster.spark.read.field_ids import as_names, group_by_names, is_absent, names_by_file
from cm_delta_dagster.spark.read.file_index import FileIndexes
from cm_delta_dagster.spark.read.file_values import (
    FILE_COLUMN,
    OWN_PREFIX,
    POSITION_COLUMN,
    READER_POSITION_COLUMN,
)
from cm_delta_dagster.spark.read.layout import absolute_locations
from cm_delta_dagster.spark.session.session import default_zone
from cm_delta_dagster.spark.stores.object_stores import SparkStorage
from cm_delta_dagster.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What all parts of one scan share.

    Attributes:
        storage: how Spark reaches the table.
        indexes: of the session; None if it has none.
        never_null: paths of NOT NULL columns that hold no null in any of the files.
        with_files: also return :data:`FILE_COLUMN` and :data:`POSITION_COLUMN`.
        positions: which rows of each file are returned; all live ones for None.
    """

    session: SparkSession
    store: Store
    storage: SparkStorage
    indexes: FileIndexes | None
    layout: TableLayout
    never_null: frozenset[ColumnPath]
    predicate: Predicate | None
    row_tracking: RowIdColumns | None
    with_files: bool
    positions: RowPositions | None = None

    @property
    def schema(self) -> StructType:
        return self.layout.schema

    @property
    def partitions(self) -> tuple[StructField, ...]:
        return self.layout.partition_fields

    @property
    def zone(self) -> tzinfo:
        """Time zone of ``timestamp`` partition values that state none."""
        return default_zone(self.layout.time_zone, self.session)

    @property
    def data_columns(self) -> StructType:
        """Columns of the table that data files may hold."""
        taken = {item.name for item in self.partitions}
        return StructType(tuple(item for item in self.schema.fields if item.name not in taken))

    @property
    def returns_marked(self) -> bool:
        """Whether the rows in the bitmaps of :meth:`bitmaps` are returned. Otherwise all other rows are."""
        return self.positions is not None and self.positions.are_returned

    def has_bitmap(self, files: pa.Table) -> pa.ChunkedArray:
        """For each of ``files``, whether the rows that are returned depend on their positions."""
        has_vector = files["deletionVector"].is_valid()
        return has_vector if self.positions is None else pa.chunked_array([pa.array([True] * len(files), pa.bool_())])

    def bitmaps(self, files: pa.Table) -> list[BitMap64]:
        """For each of ``files``, the positions of the rows that are returned (:attr:`returns_marked`) or left out.

        Raises:
            CorruptLogError, ObjectNotFoundError, UnsupportedFeatureError: as ``deletion_bitmaps``.
        """
        if self.positions is None:
            return deletion_bitmaps(self.store, location=self.layout.location, files=files)
        return [self.positions.by_path[path] for path in files["path"].to_pylist()]

    @property
    def result_columns(self) -> list[str]:
        extra = [FILE_COLUMN, POSITION_COLUMN] if self.with_files else []
        return [*self.schema.names, *([ROW_ID, ROW_COMMIT_VERSION] if self.row_tracking else []), *extra]

    def stored(self, names: Names) -> StructType:
        """The columns to read from files that name their columns by ``names``."""
        stored = stored_schema(self.data_columns, names, self.never_null)
        if self.row_tracking is None:
            return stored
        hidden = (self.row_tracking.row_id, self.row_tracking.row_commit_version)
        return StructType((*stored.fields, *(StructField(name, LONG) for name in hidden)))


def by_names(scan: Scan, files: pa.Table) -> Iterator[tuple[Names, pa.Table]]:
    """The files that name their columns alike; all of them, unless columns are found by id."""
    if not files.num_rows:
        return
    if scan.layout.mapping is not ColumnMappingMode.ID:
        yield names_of_mode(scan.layout.mapping), files
        return
    locations = absolute_locations(scan.layout.location, files["path"]).to_pylist()
    names_of_files = names_by_file(scan.store, scan.data_columns, locations)
    for names, positions in group_by_names(names_of_files):
        yield as_names(names), files.take(pa.array(positions, pa.int64()))


def check_own_names(scan: Scan, stored: StructType) -> None:
    """Raise UnsupportedFeatureError if a column has a name that is reserved for the values of files."""
    names = (*stored.names, *(physical_name(item, scan.layout.mapping) for item in scan.partitions))
    reserved = (OWN_PREFIX, READER_POSITION_COLUMN)
    taken = next((name for name in names if name.lower().startswith(reserved) and not is_absent(name)), None)
    if taken is not None:
        raise UnsupportedFeatureError(
            f"The table has a column named {taken!r}; names that begin so are used here while rows are read, so it cannot be read "
            "through Spark. Rename the column, or use another engine."
        ).with_remedy(ReadWithoutSpark())


def table_columns(scan: Scan, stored_by_name: Mapping[str, StructField | None]) -> list[Column | str]:
    """The columns of the table from those of a loaded frame, as Columns or SQL texts.

    Args:
        stored_by_name: the stored column of each column of the table.
    """
    return [
        quoted(item.name)
        if is_unchanged(item, stored_by_name[item.name])
        else table_column(item, stored_by_name[item.name])
        for item in scan.schema.fields
    ]


def stored_columns(scan: Scan, stored: StructType) -> Iterator[tuple[str, StructField | None]]:
    """Each data column of the table with its stored column."""
    for item, stored_field in pairs(scan.data_columns, stored):
        yield item.name, stored_field


def early_condition(scan: Scan, stored: StructType, stored_by_name: Mapping[str, StructField | None]) -> Column | None:
    """The part of the condition that Spark cannot push down to the files through the converted columns."""
    hidden = frozenset(
        item.name.lower()
        for item in scan.data_columns.fields
        if (stored_field := stored_by_name[item.name]) is not None
        and (stored_field.type != item.type or stored_field.nullable != item.nullable)
    )
    assert scan.predicate is not None
    return on_stored_columns(scan.predicate, scan.data_columns, stored, only=hidden)


def row_ids(columns: RowIdColumns, base: str, version: str, *, position: str = POSITION_COLUMN) -> list[str]:
    """Row ids and commit versions as SQL texts.

    Args:
        base: text of the first row id of the file.
        version: text of the commit version of the file.
        position: name of the column with the position of the row.
    """
    return [
        f"coalesce({quoted(columns.row_id)}, {base} + {position}) AS {ROW_ID}",
        f"coalesce({quoted(columns.row_commit_version)}, {version}) AS {ROW_COMMIT_VERSION}",
    ]
