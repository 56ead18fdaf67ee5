"""What a scan or a write needs to know of a table, and what a scan reads of it (protocol headings "Data Files",
"Column Mapping").

The values are shared by all engines. They hold no state of the log; the caller builds them from a snapshot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode
from cm_delta_dagster.protocol.features.iceberg_compat import active_versions
from cm_delta_dagster.protocol.features.row_tracking import RowIdColumns
from cm_delta_dagster.protocol.features.table_properties import TableProperties
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import StructField, StructType

_NO_PROPERTIES = TableProperties({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """Where the data files of a table are, and how rows are stored in them.

    Attributes:
        location: absolute URI of the table root.
        schema: logical schema, as in the log.
        partition_columns: logical names, as in the metadata.
        mapping: how data files name their columns.
        clustering_columns: paths of logical names; files get statistics for them in any case.
        time_zone: of partition values of type ``timestamp`` that state none; None for that of the Spark session, or UTC without
            a session.
    """

    location: str
    schema: StructType
    partition_columns: Sequence[str] = ()
    mapping: ColumnMappingMode = ColumnMappingMode.NONE
    properties: TableProperties = _NO_PROPERTIES
    clustering_columns: Sequence[tuple[str, ...]] = ()
    time_zone: tzinfo | None = None

    @property
    def partition_fields(self) -> tuple[StructField, ...]:
        """The partition columns as fields of the schema, in the order of ``partition_columns``."""
        return tuple(item for name in self.partition_columns if (item := self.schema.field(name)) is not None)

    @property
    def stores_partitions(self) -> bool:
        """Whether data files hold the partition columns too, as Iceberg compatibility requires."""
        return bool(self.partition_columns) and bool(active_versions(self.properties.configuration))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowPositions:
    """The live rows at some positions, or those at all other positions.

    Attributes:
        by_path: for each file, by its path in the log, the positions that are returned or left out. Where they are left out,
            those that the deletion vector of the file deletes are among them.
        are_returned: whether the rows at these positions are returned. Otherwise all other rows are.
    """

    by_path: Mapping[str, BitMap64]
    are_returned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """The rows and columns that a scan returns.

    Attributes:
        files: live files, columns of ``file_columns.ADD_SCHEMA``.
        columns: top-level columns to return, in this order, found ignoring case; all columns of the schema for None.
        predicate: condition on the rows.
        row_tracking: names of the hidden row tracking columns; also return ``_row_id`` and ``_row_commit_version``.
        positions: which rows of each file are returned; all live ones for None.
        with_places: also return the place of each row, a number of file and position, as the last column.
    """

    files: pa.Table
    columns: Sequence[str] | None = None
    predicate: Predicate | None = None
    row_tracking: RowIdColumns | None = None
    positions: RowPositions | None = None
    with_places: bool = False
