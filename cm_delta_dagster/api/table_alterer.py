"""ALTER TABLE in the Python API."""

from collections.abc import Sequence

from cm_delta_dagster.api.constraint_methods import ConstraintMethods
from cm_delta_dagster.operations.tables.alter import AlterResult
from cm_delta_dagster.operations.tables.clustering import cluster_by


class TableAlterer(ConstraintMethods):
    """Changes the constraints and the computed columns of one table; each call is one commit."""

    def cluster_by(self, columns: str | Sequence[str]) -> AlterResult:
        """Set the columns by which :meth:`DeltaTable.optimize` clusters rows; files are not rewritten.

        Args:
            columns: up to four columns or fields such as ``a`` or ``a.b``; ``()`` for none.

        Raises:
            InvalidArgumentError: the table has partition columns, or a column has no statistics.
        """
        listed = (columns,) if isinstance(columns, str) else tuple(columns)
        return cluster_by(self._table, columns=listed, context=self._context)
