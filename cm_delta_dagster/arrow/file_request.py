"""What a scan reads of data files."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyroaring import BitMap64

from cm_delta_dagster.arrow.data_files import DataFile
from cm_delta_dagster.arrow.predicates import RowFilter
from cm_delta_dagster.protocol.features.row_tracking import RowIdColumns
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.char_types import CharWidths
from cm_delta_dagster.protocol.schema.types import StructField


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the result: from the log (``is_partition``), a row tracking column, the places of the rows, or from the file.

    ``is_promised``: the column, or a field inside it, is NOT NULL.
    """

    field: StructField
    is_partition: bool = False
    is_row_tracking: bool = False
    is_place: bool = False
    is_promised: bool = False

    @property
    def is_in_file(self) -> bool:
        return not (self.is_partition or self.is_row_tracking or self.is_place)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRequest:
    """What to read of every file.

    Attributes:
        predicate: decides which row groups are read; ``row_filter`` is the same condition, compiled.
        widths: of the columns with ``char(n)`` strings.
    """

    layout: TableLayout
    outputs: tuple[OutputColumn, ...]
    predicate: Predicate | None
    row_filter: RowFilter | None
    partition_names: frozenset[str]
    widths: Mapping[str, CharWidths]
    row_tracking: RowIdColumns | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileToRead:
    """One file, with the values of its log entry.

    Attributes:
        path: as in the log.
        constants: values of columns that the file does not store, e.g. partition values, by column.
        deleted: positions of deleted rows.
        picked: positions of the only rows to read; None for all.
        first_place: the place of the first row of the file.
        num_records: rows of the file by its statistics, including deleted rows; None if unknown.
    """

    file: DataFile
    path: str
    constants: Mapping[str, pa.Scalar]
    deleted: BitMap64 | None
    base_row_id: int | None
    row_commit_version: int | None
    first_place: int
    num_records: int | None = None
    picked: BitMap64 | None = None
