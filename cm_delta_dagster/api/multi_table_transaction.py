"""Transactions over several tables in the Python API: ``with lake.transaction() as tx``."""

import typing
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.api.table.held_commit import HeldCommit
from cm_delta_dagster.api.table.row_writes import RowWrites
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import hold_duration_ms
from cm_delta_dagster.operations.writing.deferred_writes import DeferredTable, DeferredWrites
from cm_delta_dagster.operations.writing.write_result import WriteResult


class MultiTableTransaction:
    """Writes to several tables that are committed together. Use it as a context manager.

    Each table takes one write: ``append``, ``overwrite``, ``merge``, ``update`` or ``delete``. Its rows are written at once, and
    no reader sees them. The end of the block commits all writes, each as the next version of its table, or none of them. If the
    block ends by an exception, or a merge builder was not executed, nothing is committed and the data files are deleted.
    """

    def __init__(self, connection: ClientSession, *, hold: bool | timedelta = False) -> None:
        self._connection = connection
        self._hold_ms = None if hold is False else hold_duration_ms(hold)
        self._writes = DeferredWrites(connection.client)
        self._results: Mapping[str, WriteResult] | None = None
        self._held_commit: HeldCommit | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._writes.discard()
            return
        if self._hold_ms is None:
            self._results = self._writes.commit()
            return
        hold = self._writes.hold(duration_ms=self._hold_ms) or self._writes.ratified_before()
        self._held_commit = None if hold is None else HeldCommit(self._connection, hold)

    @property
    def transaction_id(self) -> str:
        """The id that the commits of this transaction have, if there are several, as the tag
        ``delta.multiTableTransaction.transactionId``. The ratification of held writes makes a new one.
        """
        return self._writes.transaction_id

    def table(self, name: TableIdentifier | str) -> "TransactionTable":
        """The table ``catalog.schema.table`` as a part of this transaction.

        Raises:
            TableNotFoundError, InvalidArgumentError: there is no such table, or the transaction has ended.
            CommitRejectedError: the commits of the table are made by creating their files (put-if-absent).
        """
        return TransactionTable(self._connection, self._writes.table(name))

    @property
    def held(self) -> HeldCommit:
        """The held writes, after the end of a block that began with ``hold``.

        If all writes were held before with the same ``Idempotency``, it is that hold, also after its ratification.

        Raises:
            InvalidArgumentError: nothing is held, or the block has not ended.
        """
        if self._held_commit is not None:
            return self._held_commit
        if self._writes.committed_before:
            raise InvalidArgumentError(
                "The transaction holds nothing: its writes were committed before, and not as one hold: the tables have recorded "
                f"{self._writes.committed_before}. There is nothing to ratify."
            )
        raise InvalidArgumentError(
            "The transaction holds nothing: it has not ended, it had no write, or it was begun without hold=True."
        )

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

    Its methods write as those of :class:`~cm_delta_dagster.api.table.delta_table.DeltaTable` do, and return a result with the
    outcome ``STAGED``: the transaction commits at its end. They do not see what the transaction has written to other tables.
    """

    _absent: typing.ClassVar[str] = (
        "a transaction over several tables only writes. Read and maintain the table with lake.table(name), which has what is "
        "committed."
    )

    def __init__(self, connection: ClientSession, target: DeferredTable) -> None:
        self._connection = connection
        self._deferred = target

    @property
    def _target(self) -> DeferredTable:
        return self._deferred

    def _hold(self, write: Callable[[WriteTarget], WriteResult], *, hold: bool | timedelta) -> HeldCommit:
        raise InvalidArgumentError(
            f"The write to {self.name} cannot be held by itself, because it is part of a transaction, which is held as a whole or "
            f"not at all. Nothing was written. Leave out hold={hold!r}, and begin the transaction with lake.transaction(hold=True)."
        )

    def _begin_merge(self) -> Callable[[], None]:
        return self._deferred.begin()

    def __repr__(self) -> str:
        return f"TransactionTable({self.name!r})"

    @property
    def name(self) -> str:
        """``catalog.schema.table``."""
        return str(self._deferred.identifier)
