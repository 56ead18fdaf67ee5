"""What a write to data files gets and returns, the same for each engine (protocol heading "Data Files")."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cm_delta_dagster.errors import CorruptLogError, InvalidArgumentError, InvalidDataError, UnsupportedFeatureError
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.protocol.actions.partition_directories import check_column_name
from cm_delta_dagster.protocol.actions.partition_values import parse_partition_value
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, physical_name, physical_schema
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import VOID, StructField, data_type_text
from cm_delta_dagster.protocol.schema.void_columns import check_void_places
from cm_delta_dagster.protocol.statistics.statistics import StatisticsColumn, schema_leaves, statistics_columns


class WriteEngine(StrEnum):
    """What writes rows to data files. Both write the same."""

    ARROW = "arrow"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles:
    """Data files that are not committed yet.

    Attributes:
        engine: that wrote them.
        directory: the new directory that holds all of them.
        rows_by_partition: rows for each combination of partition texts, in the order of the partition columns.
        high_water_marks: the furthest values of the numbered identity columns, if they moved.
    """

    engine: WriteEngine
    adds: tuple[AddFile, ...]
    num_rows: int
    size_bytes: int
    directory: str
    rows_by_partition: Mapping[tuple[str | None, ...], int] = field(default_factory=dict)
    high_water_marks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSpec:
    """How data files are written.

    Attributes:
        statistics_columns: leaf columns to collect statistics for, with the names that files have.
        compression: Parquet codec; Spark's default for None.
        guard: every row must satisfy it.
        now_ms: epoch milliseconds, for a store that does not report when a file was modified.
        is_filled: the rows have every column of the table, also those that the table computes. They may be rows of the table.
        checked: False for rows that only move to another file: no value changes, and no rule is checked.
        hidden_columns: columns that are not in the schema; files store them under their own names, without statistics.
        file_bytes: size of a file by Arrow; None for that of the table, or 128 MiB. A partition of a write by Spark is a file.
        root: directory of the files below the table, ending in ``/``; empty for the table itself.
        numbered: identity columns for which the rows have generated values.
    """

    statistics_columns: Sequence[StatisticsColumn] = ()
    compression: str | None = None
    guard: Predicate | None = None
    now_ms: int = 0
    is_filled: bool = False
    checked: bool = True
    hidden_columns: tuple[StructField, ...] = ()
    file_bytes: int | None = None
    root: str = ""
    numbered: frozenset[str] = frozenset()


def write_spec(layout: TableLayout, spec: WriteSpec) -> WriteSpec:
    """``spec`` with the statistics and the compression that follow from the properties of the table.

    Raises:
        InvalidArgumentError: a property of the table has an invalid value.
    """
    chosen = statistics_columns(
        layout.schema, layout.partition_columns, layout.properties, clustering_columns=layout.clustering_columns
    )
    if layout.mapping is not ColumnMappingMode.NONE:
        # Both lists have the leaves of the schema in the same order.
        logical = schema_leaves(layout.schema)
        stored = dict(zip(logical, schema_leaves(physical_schema(layout.schema, layout.mapping)), strict=True))
        chosen = tuple(stored[leaf] for leaf in chosen)
    return replace(spec, statistics_columns=chosen, compression=layout.properties.parquet_compression)


def check_storable(layout: TableLayout) -> None:
    """Refuse a table whose columns cannot be stored in files and directories.

    Raises:
        InvalidArgumentError: a partition column has a name without a directory, or no column is stored in files.
        SchemaMismatchError: the schema has the type void where files cannot hold its values.
    """
    schema, partition_columns = layout.schema, layout.partition_columns
    for name, stored in zip(partition_columns, stored_partitions(layout), strict=True):
        check_column_name(stored[1])
        if name.startswith("."):
            raise InvalidArgumentError(
                f"Readers take directories of the partition column {name!r} for hidden. Rename the column."
            )
    check_void_places(schema)
    partitions = {name.lower() for name in partition_columns}
    if all(item.name.lower() in partitions or item.type == VOID for item in schema.fields):
        raise InvalidArgumentError(
            "A data file needs at least one column besides the partition columns, and void columns are not stored. Add "
            "a column."
        )


def stored_partitions(layout: TableLayout) -> list[tuple[StructField, str]]:
    """The partition columns, each with its name in directories and partition values. Raises InvalidArgumentError."""
    columns = [(name, layout.schema.field(name)) for name in layout.partition_columns]
    missing = [name for name, item in columns if item is None]
    if missing:
        raise InvalidArgumentError(f"The partition column {missing[0]!r} is not a column of the table.")
    mapped = layout.mapping is not ColumnMappingMode.NONE
    return [
        (item, physical_name(item, layout.mapping) if mapped else name) for name, item in columns if item is not None
    ]


def check_readable(
    values: Mapping[str, str | None], partitions: Sequence[tuple[StructField, str]], readable: set[tuple[str, str]]
) -> None:
    """Check that each text can be parsed as a value of its column, except those in ``readable``; add them to it.

    Args:
        values: the partition values of a file, by the names of ``partitions``, the result of :func:`stored_partitions`.

    Raises:
        InvalidDataError: a text cannot be read back.
    """
    for column, name in partitions:
        text = values[name]
        if text is not None and (name, text) not in readable:
            _check_text(column, text)
            readable.add((name, text))


def _check_text(column: StructField, text: str) -> None:
    try:
        parse_partition_value(text, column.type)
    except (CorruptLogError, InvalidDataError, InvalidArgumentError, UnsupportedFeatureError) as error:
        raise InvalidDataError(
            f"Partition column {column.name!r} holds a value whose text {text!r} could not be read back as "
            f"{data_type_text(column.type)}; nothing was committed. Replace the value."
        ) from error
