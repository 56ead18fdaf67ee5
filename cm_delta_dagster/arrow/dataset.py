"""A table as a ``pyarrow.dataset.Dataset``, through which DuckDB and other engines read it with their columns and filters.

An engine calls ``scanner`` with the columns that it needs and a filter as a pyarrow expression. What follows from it selects
files, row groups and rows; pyarrow then applies the filter itself, so that the rows are right also for filters of which nothing
follows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
from pyarrow import fs

from cm_delta_dagster.arrow.expressions import UnknownExpressionError, fields_of, parse_expression
from cm_delta_dagster.arrow.implied_predicates import implied_predicate
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import StructType

ReadBatches = Callable[[Sequence[str], Predicate | None], pa.RecordBatchReader]
"""Reads some columns of the rows for which a condition is true."""

_UNSUPPORTED = (
    "A dataset of a Delta table has no {name}. Use its scanner(), to_batches(), to_table(), head() or count_rows()."
)


class DeltaDataset(pds.UnionDataset):  # type: ignore[misc]  # pyarrow has no types.
    """One version of a table; its files are opened while a scanner is read.

    ``scanner``, ``to_batches``, ``to_table``, ``head``, ``take``, ``count_rows`` and ``filter`` work as those of any
    dataset. It has no fragments, because the rows of a file depend on the log, too.
    """

    def __init__(
        self, read: ReadBatches, *, schema: StructType, arrow_schema: pa.Schema, filter: pc.Expression | None = None
    ) -> None:
        """A dataset of the columns of ``arrow_schema``, which are some of ``schema`` and perhaps hidden ones."""
        super().__init__(arrow_schema, [_unreadable(arrow_schema)])
        self._read = read
        self._table_schema = schema
        self._arrow_schema = arrow_schema
        self._filter = filter

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the types, nullability and comments of the table."""
        return self._arrow_schema

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "A dataset of a Delta table cannot be pickled, because it holds connections. Open the table in each process."
        )

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> pds.Scanner:
        """A scan that can be read once; arguments as of ``pyarrow.dataset.Dataset.scanner``.

        Raises:
            CorruptLogError: the log is damaged; also while the scan is read.
            ObjectNotFoundError: a file is missing; also while the scan is read.
        """
        condition = filter if self._filter is None else self._filter if filter is None else self._filter & filter
        needed, predicate = self._plan(columns, condition)
        batches = self._read(needed, predicate)
        projected = list(self._arrow_schema.names) if columns is None else columns
        return pds.Scanner.from_batches(batches, columns=projected, filter=condition, **options)

    def filter(self, expression: pc.Expression) -> "DeltaDataset":
        """The rows for which ``expression`` is true, too."""
        condition = expression if self._filter is None else self._filter & expression
        return DeltaDataset(self._read, schema=self._table_schema, arrow_schema=self._arrow_schema, filter=condition)

    def _plan(
        self, columns: Sequence[str] | Mapping[str, pc.Expression] | None, filter: pc.Expression | None
    ) -> tuple[list[str], Predicate | None]:
        """The columns to read, and a condition that follows from the filter."""
        expressions = list(columns.values()) if isinstance(columns, Mapping) else []
        predicate = None
        names = self._arrow_schema.names
        try:
            used = set().union(*(fields_of(parse_expression(item)) for item in expressions))
            if filter is not None:
                parsed = parse_expression(filter)
                used |= fields_of(parsed)
                predicate = implied_predicate(parsed, self._table_schema)
        except UnknownExpressionError:
            return list(names), None
        if columns is None:
            return list(names), predicate
        used |= set(columns) if not isinstance(columns, Mapping) else set()
        # Rows are counted by a column.
        return [name for name in names if name in used] or names[:1], predicate

    def _refuse(self, name: str) -> NoReturn:
        raise InvalidArgumentError(_UNSUPPORTED.format(name=name))

    @property
    def children(self) -> NoReturn:
        """Refused."""
        self._refuse("children")

    @property
    def partition_expression(self) -> NoReturn:
        """Refused."""
        self._refuse("partition_expression")

    def get_fragments(self, filter: pc.Expression | None = None) -> NoReturn:
        """Refused."""
        self._refuse("fragments")

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Refused."""
        self._refuse("replace_schema()")

    def join(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused."""
        self._refuse("join()")

    def join_asof(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused."""
        self._refuse("join_asof()")

    def sort_by(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused."""
        self._refuse("sort_by()")


def _unreadable(schema: pa.Schema) -> pds.FileSystemDataset:
    """What pyarrow's own code reads if it bypasses ``scanner``: a file that does not exist, hence an error."""
    path = _UNSUPPORTED.format(name="files that pyarrow can open")
    parquet, local = pds.ParquetFileFormat(), fs.LocalFileSystem()
    return pds.FileSystemDataset([parquet.make_fragment(path, local)], schema, parquet, local)
