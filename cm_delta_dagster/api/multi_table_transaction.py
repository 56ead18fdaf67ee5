"""Transactions over several tables in the Python API: ``with lake.transaction() as tx``."""

import typing
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.row_writes import RowWrites
from cm_delta_dagster.api.table_reads import HasSession
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.writing.deferred_writes import DeferredTable, DeferredWrites
from cm_delta_dagster.operations.writing.write_result import WriteResult


class MultiTableTransaction:
    """Writes to several tables that are committed together. Use it as a context manager.

    Each table takes one write: ``append``, ``overwrite``, ``merge``, ``update`` or ``delete``. Its rows are written at once, and
    no reader sees them. The end of the block commits all writes, each as the next version of its table, or none of them. If the
    block ends by an exception, or a merge builder was not executed, nothing is committed and the data files are deleted.
    """

    def __init__(self, connection: HasSession) -> None:
        self._connection = connection
        self._writes = DeferredWrites(connection.client)
        self._results: Mapping[str, WriteResult] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._writes.discard()
            return
        self._results = self._writes.commit()

    @property
    def transaction_id(self) -> str:
        """The id that all commits of this transaction have as the tag ``cm_delta/transaction_id``."""
        return self._writes.transaction_id

    def table(self, name: TableIdentifier | str) -> "TransactionTable":
        """The table ``catalog.schema.table`` as a part of this transaction.

        Raises:
            TableNotFoundError, InvalidArgumentError: there is no such table, or the transaction has ended.
            CommitRejectedError: the commits of the table are made by creating their files (put-if-absent).
        """
        return TransactionTable(self._connection, self._writes.table(name))

    @property
    def results(self) -> Mapping[str, WriteResult]:
        """The results of the committed writes by ``catalog.schema.table``. Raises InvalidArgumentError before the commit."""
        if self._results is None:
            raise InvalidArgumentError(
                "The transaction has no results, because it has not been committed. Read them after the end of the block."
            )
        return self._results


class TransactionTable(AbsentMethods, RowWrites):
    """One table of a transaction over several tables.

    Its methods write as those of :class:`~cm_delta_dagster.api.delta_table.DeltaTable` do, and return a result with the outcome
    ``STAGED``: the transaction commits at its end. They do not see what the transaction has written to other tables.
    """

    _absent: typing.ClassVar[str] = (
        "a transaction over several tables only writes. Read and maintain the table with lake.table(name), which has what is "
        "committed."
    )

    def __init__(self, connection: HasSession, target: DeferredTable) -> None:
        self._connection = connection
        self._deferred = target

    @property
    def _target(self) -> DeferredTable:
        return self._deferred

    def _begin_merge(self) -> Callable[[], None]:
        return self._deferred.begin()

    def __repr__(self) -> str:
        return f"TransactionTable({self.name!r})"

    @property
    def name(self) -> str:
        """``catalog.schema.table``."""
        return str(self._deferred.identifier)
