"""Columns by which the rows of a table can be clustered or Z-ordered (protocol heading "Clustered Table"): those whose bounds let
readers skip files.
"""

from collections.abc import Sequence

from cm_delta_dagster.errors import InvalidArgumentError, SchemaMismatchError
from cm_delta_dagster.protocol.features.clustering import MAX_CLUSTERING_COLUMNS
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.schema.column_paths import ColumnPath, column_path
from cm_delta_dagster.protocol.schema.types import DataType, DecimalType, PrimitiveType, StructType, data_type_text
from cm_delta_dagster.protocol.statistics.statistics import statistics_columns
from cm_delta_dagster.remedies import SetClusteringColumns

_TYPES_WITH_BOUNDS = frozenset(
    {"byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp", "timestamp_ntz"}
)


def check_clustering_columns(layout: TableLayout, columns: Sequence[str]) -> tuple[ColumnPath, ...]:
    """Paths of the clustering columns ``columns`` as the schema of ``layout`` spells them.

    Raises:
        InvalidArgumentError: the table has partition columns, there are more than four columns, or a column cannot be used;
            see :func:`check_layout_columns`.
    """
    if columns and layout.partition_columns:
        raise InvalidArgumentError(
            f"The table is partitioned by {', '.join(layout.partition_columns)}, and a partitioned table cannot be clustered. "
            "Nothing was changed. Use partition columns or clustering columns, not both."
        )
    if len(columns) > MAX_CLUSTERING_COLUMNS:
        raise InvalidArgumentError(
            f"{len(columns)} clustering columns are given, and a table has at most {MAX_CLUSTERING_COLUMNS}. Nothing was "
            "changed. Keep those that queries filter by most."
        )
    return check_layout_columns(layout, columns, verb="clustered")


def check_layout_columns(layout: TableLayout, columns: Sequence[str], *, verb: str) -> tuple[ColumnPath, ...]:
    """Paths of ``columns`` as the schema of ``layout`` spells them.

    Args:
        columns: names as text, ``a`` or ``a.b``; case is ignored.
        verb: what would be done by them, for messages: ``clustered`` or ``Z-ordered``.

    Raises:
        InvalidArgumentError: a column does not exist, is named twice, is a partition column, has a type without bounds, or
            has no statistics by the properties of the table.
    """
    paths: list[ColumnPath] = []
    partitions = {name.casefold() for name in layout.partition_columns}
    counted = {
        leaf.path: leaf.type for leaf in statistics_columns(layout.schema, layout.partition_columns, layout.properties)
    }
    for text in columns:
        path, data_type = _resolved(layout.schema, column_path(text))
        name = ".".join(path)
        refusal = f"Rows cannot be {verb} by {name!r}"
        if path[0].casefold() in partitions:
            raise InvalidArgumentError(
                f"{refusal}: it is a partition column, of which each file has one value. Nothing was changed. Leave it out."
            )
        if not _has_bounds(data_type):
            raise InvalidArgumentError(
                f"{refusal}: statistics have no bounds of type {data_type_text(data_type)}. Nothing was changed. Use columns of "
                "numbers, text, dates or timestamps."
            )
        if path not in counted:
            raise InvalidArgumentError(
                f"{refusal}: by the properties of the table it has no statistics. Nothing was changed. Add it to "
                "delta.dataSkippingStatsColumns, or raise delta.dataSkippingNumIndexedCols."
            )
        if path in paths:
            raise InvalidArgumentError(f"{refusal} twice. Nothing was changed. Name each column once.")
        paths.append(path)
    return tuple(paths)


def check_keeps_columns(table: str, schema: StructType, columns: Sequence[ColumnPath]) -> None:
    """Refuse a new schema of a clustered table that lacks a clustering column.

    Args:
        table: name of the table in error messages.
        columns: paths of the clustering columns as the present schema spells them.

    Raises:
        SchemaMismatchError: a column is missing, is spelled otherwise, or has a type without bounds.
    """
    for path in columns:
        try:
            present, data_type = _resolved(schema, path)
        except InvalidArgumentError:
            present, data_type = (), schema
        if present != path or not _has_bounds(data_type):
            raise SchemaMismatchError(
                f"The new schema lacks the clustering column {'.'.join(path)!r} of {table}, or has it with another spelling or "
                "a type without bounds; nothing was written. Keep the column, or change the clustering columns first."
            ).with_remedy(SetClusteringColumns())


def _has_bounds(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or (
        isinstance(data_type, PrimitiveType) and data_type.name in _TYPES_WITH_BOUNDS
    )


def _resolved(schema: StructType, path: ColumnPath) -> tuple[ColumnPath, DataType]:
    names: list[str] = []
    level: DataType = schema
    for name in path:
        item = level.field(name) if isinstance(level, StructType) else None
        if item is None:
            raise InvalidArgumentError(
                f"There is no column {'.'.join(path)!r}; the columns are {', '.join(schema.names)}. Nothing was changed."
            )
        names.append(item.name)
        level = item.type
    return tuple(names), level
