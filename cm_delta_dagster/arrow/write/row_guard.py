"""The condition that a write declares for its rows, evaluated over rows of Arrow before they are stored."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.errors import InvalidArgumentError, PartitionMismatchError
from cm_delta_dagster.protocol.predicates.predicates import Predicate, short_sql
from cm_delta_dagster.protocol.schema.types import ArrayType, MapType, StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import guard_message

_SHOWN_COLUMNS = 6


def guard_needs_spark(guard: Predicate, schema: StructType) -> str | None:
    """Why only Spark can evaluate ``guard``, for a message; None if Arrow can."""
    try:
        row_filter(guard, schema)
    except InvalidArgumentError:
        return f"only Spark evaluates the condition {short_sql(guard)}"
    return None


class RowGuard:
    """A condition that every row must satisfy."""

    def __init__(self, guard: Predicate, schema: StructType) -> None:
        """Compile the condition. Raises InvalidArgumentError if only Spark can evaluate it."""
        self._guard = guard
        self._schema = schema
        self._filter = row_filter(guard, schema)

    def check(self, values: Sequence[pa.Array], num_rows: int) -> None:
        """Check the rows of a batch.

        Args:
            values: one array for each column of the schema, as readers of the table will see it.

        Raises:
            PartitionMismatchError: the condition is false or NULL for a row, which the message shows.
        """
        arrays = dict(zip(self._schema.names, values, strict=True))
        accepted = self._filter.answer(arrays.__getitem__, num_rows).fill_null(False)
        outside = pc.index(accepted, pa.scalar(False)).as_py()
        if outside < 0:
            return
        named = [name for name in self._schema.names if name in self._filter.columns]
        simple = [name for name in named or self._schema.names if self._is_simple(name)]
        shown = ", ".join(f"{name} = {_text(arrays[name][outside])}" for name in simple[:_SHOWN_COLUMNS])
        raise PartitionMismatchError(f"{guard_message(self._guard)}{shown}.")

    def _is_simple(self, name: str) -> bool:
        item = self._schema.field(name)
        return item is not None and not isinstance(item.type, StructType | ArrayType | MapType)


def _text(scalar: pa.Scalar) -> str:
    return "NULL" if not scalar.is_valid else str(scalar.as_py())
