"""ALTER TABLE for constraints, defaults and identity columns."""

from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.tables.alter import AlterResult
from cm_delta_dagster.operations.tables.computed_columns import set_default, sync_identity
from cm_delta_dagster.operations.tables.constraints import add_constraint, drop_constraint
from cm_delta_dagster.protocol.schema.column_paths import ColumnName


class ConstraintMethods:
    """Changes what the rows of one table must satisfy and what the table computes for them; each call is one commit."""

    def __init__(self, table: Table, connection: ClientSession) -> None:
        self._table = table
        self._connection = connection

    def add_constraint(
        self, name: str, check: str, *, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> AlterResult:
        """Add a CHECK constraint; every row of the table must satisfy it, and NULL is a violation.

        Args:
            name: case is ignored.
            check: condition over the columns of a row, as SQL text.

        Raises:
            InvalidArgumentError: the name is taken, or ``check`` is not a deterministic condition over the columns.
            InvalidDataError: a row of the table violates the constraint; the message shows one.
        """
        spark = self._connection.spark
        return add_constraint(self._table, spark=spark, name=name, check=check, context=commit_properties)

    def drop_constraint(
        self, name: str, *, if_exists: bool = False, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> AlterResult:
        """Drop a CHECK constraint.

        Args:
            if_exists: commit nothing if there is no such constraint.

        Raises:
            InvalidArgumentError: the table has no such constraint, and not ``if_exists``.
        """
        return drop_constraint(self._table, name=name, if_exists=if_exists, context=commit_properties)

    def set_default(
        self, column: ColumnName, default: str, *, commit_properties: CommitProperties = NO_PROPERTIES
    ) -> AlterResult:
        """Set the default of a column for later writes; rows of the table do not change.

        Args:
            default: SQL expression without columns, e.g. ``'new'`` with its quotes, or ``current_date()``.

        Raises:
            InvalidArgumentError: there is no such column, its values cannot be those of the expression, or the table lacks the
                feature ``allowColumnDefaults``; see :meth:`enable_feature`.
            InvalidDataError: the column cannot hold the value of the expression.
        """
        spark = self._connection.spark
        return set_default(self._table, spark=spark, column=column, default=default, context=commit_properties)

    def drop_default(self, column: ColumnName, *, commit_properties: CommitProperties = NO_PROPERTIES) -> AlterResult:
        """Drop the default of a column: later writes that give no value store NULL. Raises InvalidArgumentError."""
        spark = self._connection.spark
        return set_default(self._table, spark=spark, column=column, default=None, context=commit_properties)

    def sync_identity(self, column: str, *, commit_properties: CommitProperties = NO_PROPERTIES) -> AlterResult:
        """Move the high-water mark of an identity column to its furthest value, after rows with given values were written.

        Raises:
            InvalidArgumentError: there is no such identity column.
        """
        return sync_identity(self._table, spark=self._connection.spark, column=column, context=commit_properties)
