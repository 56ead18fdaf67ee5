"""ALTER TABLE in the Python API, under the names that Spark's statements and deltalake's ``TableAlterer`` have."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.peer_names import ALTERER_NAMES
from cm_delta_dagster.api.table.constraint_methods import ConstraintMethods
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.tables.alter import AlterResult
from cm_delta_dagster.operations.tables.alter_with_rewrite import alter_with_rewrite
from cm_delta_dagster.operations.tables.alterations import (
    AddColumns,
    Alteration,
    ChangeColumn,
    DropColumns,
    DropFeature,
    EnableFeature,
    NewColumn,
    RenameColumn,
    SetComment,
    SetProperties,
    UnsetProperties,
    position_of,
)
from cm_delta_dagster.operations.tables.clustering import cluster_by
from cm_delta_dagster.protocol.schema.alterations import Position
from cm_delta_dagster.protocol.schema.column_paths import ColumnName, column_path, path_text
from cm_delta_dagster.protocol.schema.types import DataType
from cm_delta_dagster.spark.expressions.schema import from_spark
from cm_delta_dagster.spark.library import SparkDataType, T, is_data_type

AnyType: TypeAlias = DataType | SparkDataType | str
"""A type of this package or of pyspark, or SQL text such as ``bigint`` or ``struct<a: int>``."""


class TableAlterer(AbsentMethods, ConstraintMethods):
    """Changes the columns, the properties and the features of one table; each call is one commit.

    A column is named by text such as ``a``, ``a.b``, ``items.element.x`` or ``pairs.value.y``, or by the list of the names. Case
    is ignored. A call that would change nothing commits nothing.

    All methods raise InvalidArgumentError if the change cannot be made, and CommitConflictError if another commit changed the
    table's metadata meanwhile.

    Each takes ``commit_properties``, the provenance of the commit, which the table history records.
    """

    _peer_names = ALTERER_NAMES

    def add_columns(
        self,
        columns: NewColumn | Sequence[NewColumn] | Mapping[str, AnyType],
        *,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> AlterResult:
        """Add columns or fields; rows that exist have NULL in them.

        Args:
            columns: the columns in order, or their types by name; each is placed last unless it says otherwise.
        """
        if isinstance(columns, Mapping):
            listed = [NewColumn(name, _type(data_type)) for name, data_type in columns.items()]
        else:
            new_columns = [columns] if isinstance(columns, NewColumn) else list(columns)
            if not all(isinstance(column, NewColumn) for column in new_columns):
                raise InvalidArgumentError(
                    f"columns is {columns!r}; give the types by name, such as {{'note': 'string'}}, or a list of NewColumn."
                )
            listed = [replace(column, type=_type(column.type)) for column in new_columns]
        return self._alter(AddColumns(listed), commit_properties)

    def rename_column(
        self, column: ColumnName, to: str, *, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> AlterResult:
        """Rename a column or field. The table needs column mapping.

        Args:
            to: the new name, not a path.
        """
        return self._alter(RenameColumn(column, to), commit_properties)

    def drop_column(self, column: ColumnName, *, commit_properties: CommitProperties = NO_PROPERTIES) -> AlterResult:
        """Drop a column or field. The table needs column mapping; its values stay in the data files until they are rewritten."""
        return self._alter(DropColumns([column]), commit_properties)

    def change_type(
        self, column: ColumnName, to: AnyType, *, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> AlterResult:
        """Change the type to a wider one. The table needs the property ``delta.enableTypeWidening``.

        Args:
            column: also an element, key or value, such as ``items.element``.
        """
        return self._alter(ChangeColumn(column=column, type=_type(to)), commit_properties)

    def reorder_column(
        self,
        column: ColumnName,
        *,
        first: bool = False,
        after: str | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> AlterResult:
        """Move a column among the columns of its level: before all others, or after one of them."""
        return self._alter(ChangeColumn(column=column, position=_position(first, after)), commit_properties)

    def comment_column(
        self, column: ColumnName, comment: str, *, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> AlterResult:
        """Set the comment of a column."""
        return self._alter(ChangeColumn(column=column, comment=comment), commit_properties)

    def set_not_null(self, column: ColumnName, *, commit_properties: CommitProperties = NO_PROPERTIES) -> AlterResult:
        """Forbid NULL in a column of a table without rows."""
        return self._alter(ChangeColumn(column=column, nullable=False), commit_properties)

    def drop_not_null(self, column: ColumnName, *, commit_properties: CommitProperties = NO_PROPERTIES) -> AlterResult:
        """Allow NULL in a column."""
        return self._alter(ChangeColumn(column=column, nullable=True), commit_properties)

    def set_properties(
        self, properties: Mapping[str, str], *, force: bool = False, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> AlterResult:
        """Set table properties, and enable the features that they need.

        ``delta.enableRowTracking`` on a table with rows takes several commits. If they are interrupted, the table can be used,
        and the same call completes the change. ``delta.columnMapping.mode`` = ``none`` rewrites all data files.

        Args:
            force: accept keys with the prefix ``delta.`` that this client does not know.

        Raises:
            UnsupportedFeatureError: a property needs a feature that this client does not support.
        """
        return self._alter(SetProperties(properties=dict(properties), force=force), commit_properties)

    def unset_properties(
        self, names: str | Sequence[str], *, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> AlterResult:
        """Remove table properties; those that the table does not have are ignored."""
        listed = (names,) if isinstance(names, str) else tuple(names)
        return self._alter(UnsetProperties(names=listed), commit_properties)

    def enable_feature(self, feature: str, *, commit_properties: CommitProperties = NO_PROPERTIES) -> AlterResult:
        """Add a table feature, such as ``timestampNtz``, and those that it needs to the protocol."""
        return self._alter(EnableFeature(feature), commit_properties)

    def drop_feature(self, feature: str, *, commit_properties: CommitProperties = NO_PROPERTIES) -> AlterResult:
        """Drop a table feature. Files are rewritten before, if they need the feature: it takes a second commit.

        Files are rewritten for ``columnMapping``, ``deletionVectors`` and ``typeWidening``. Constraints and defaults must be
        dropped first.

        If readers had to support the feature, cleanup keeps the checkpoints of the versions that have it (feature
        ``checkpointProtection``).
        """
        return self._alter(DropFeature(feature), commit_properties)

    def set_comment(self, comment: str | None, *, commit_properties: CommitProperties = NO_PROPERTIES) -> AlterResult:
        """Set the description of the table; None removes it."""
        return self._alter(SetComment(comment), commit_properties)

    def cluster_by(
        self, columns: str | Sequence[ColumnName], *, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> AlterResult:
        """Set the columns by which :meth:`DeltaTable.optimize` clusters rows; files are not rewritten.

        Args:
            columns: up to four columns or fields such as ``a`` or ``a.b``; ``()`` for none.

        Raises:
            InvalidArgumentError: the table has partition columns, or a column has no statistics.
        """
        listed = (columns,) if isinstance(columns, str) else tuple(path_text(column_path(column)) for column in columns)
        return cluster_by(self._table, columns=listed, context=commit_properties)

    def _alter(self, alteration: Alteration, commit_properties: CommitProperties) -> AlterResult:
        spark = self._connection.available
        return alter_with_rewrite(self._table, alteration, spark=spark, context=commit_properties)


def _type(data_type: AnyType) -> DataType | str:
    if not is_data_type(data_type):
        return data_type
    return from_spark(T.StructType([T.StructField("c", data_type)])).fields[0].type


def _position(first: bool, after: str | None) -> Position:
    position = position_of(first=first, after=after)
    if position is None:
        raise InvalidArgumentError("The new place of the column is missing. Give first=True or after=....")
    return position
