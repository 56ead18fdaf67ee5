"""The writes of one transaction over several tables: each table takes one, and all are committed at once or none is.

The writes are those of single tables. Each one writes its data files and then waits; at the end the transaction commits all.
"""

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cm_delta_dagster.catalog.holds import HOLD_DURATION_MS, Hold, HoldState
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.held_commit import is_repeated
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit, check_through_catalog
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.commits.transaction_intent import HoldAudit
from cm_delta_dagster.client.commits.written_data import WrittenData
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.table_target import TableTarget
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import CmDeltaError, IllegalCommitError, InvalidArgumentError, needs_no_files
from cm_delta_dagster.operations.writing.write_result import WriteResult
from cm_delta_dagster.operations.writing.write_transaction import WriteTransaction
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol


class DeferredWrites:
    """Collects the writes of several tables; :meth:`commit` or :meth:`discard` ends it. Threads may share it.

    Attributes:
        transaction_id: recorded with each commit, if there are several, in the action ``transactionGroup`` and as a tag.
    """

    def __init__(self, client: DeltaClient) -> None:
        self.transaction_id = str(uuid.uuid4())
        self._client = client
        self._staged: dict[str, _StagedWrite] = {}
        self._begun: dict[object, TableIdentifier] = {}
        self._earlier: dict[str, _EarlierWrite] = {}
        self._is_open = True
        self._lock = threading.Lock()

    def table(self, identifier: TableIdentifier | str) -> "DeferredTable":
        """The table as the target of a write of this transaction.

        Raises:
            TableNotFoundError: there is no such table.
            InvalidArgumentError: the transaction has ended.
            CommitRejectedError: the commits of the table are made by creating their files.
        """
        self.require_open()
        entry = self._client.registry.load_table(TableIdentifier.of(identifier))
        check_through_catalog(entry.identifier, entry.ratified.commit_policy)
        return self.defer(self._client.open(entry))

    def defer(self, table: Table) -> "DeferredTable":
        """An opened table as the target of a write of this transaction. The write raises as :meth:`table`."""
        return DeferredTable(self, table)

    def commit(self) -> Mapping[str, WriteResult]:
        """Commit all writes, each as the next version of its table. Nothing happens if there are none.

        Returns:
            The results by ``catalog.schema.table``.

        Raises:
            CommitConflictError, CommitRejectedError, CommitRetriesExceededError: nothing was committed, and the data files were
                deleted.
            CommitStateUnknownError: the catalog did not answer whether it ratified the commits: all of them, or none.
            InvalidArgumentError: the transaction has ended; or a write was begun and not executed, and nothing was committed.
        """
        self._end_writes()
        if not self._staged:
            return {}
        multi_table_commit = self._multi_table_commit()
        with self._discarding():
            ratified = multi_table_commit.ratify()
        committed = {commit.snapshot.table_id: commit for commit in multi_table_commit.finish(ratified)}
        return {
            str(staged.table.identifier): staged.write.result(committed[table_id])
            for table_id, staged in self._staged.items()
        }

    def hold(self, *, duration_ms: int = HOLD_DURATION_MS, needs_audit: bool = False) -> Hold | None:
        """Hold all writes as one group in place of :meth:`commit`. None if there are none.

        Args:
            needs_audit: whether only an audit may ratify the hold, see ``operations.tables.audit_hold``.

        Raises as :meth:`commit`, and

        Raises:
            CatalogUnavailableError: the writes may be held; nothing was committed, and no file was deleted.
            InvalidArgumentError: also for a duration that is not permitted.
        """
        self._end_writes()
        if not self._staged:
            return None
        for staged in self._staged.values():
            staged.transaction.audit = HoldAudit(has_passed=False) if needs_audit else None
        with self._discarding():
            hold = self._multi_table_commit().hold(duration_ms=duration_ms)
        if is_repeated(hold, [staged.transaction for staged in self._staged.values()]):
            self._discard_files()  # An earlier attempt of the same write is held.
        return hold

    def ratified_before(self) -> Hold | None:
        """The hold that an earlier attempt of the writes was ratified as; None unless it was ratified as one hold."""
        holds = [entry.hold(self._client) for entry in self._earlier.values()]
        ratified = {hold.hold_id: hold for hold in holds if hold is not None and hold.state is HoldState.COMMITTED}
        return ratified.popitem()[1] if holds and None not in holds and len(ratified) == 1 else None

    @property
    def committed_before(self) -> str:
        """The writes that an earlier attempt has committed, for a message, e.g. ``version 1 of 'job'``; empty if there are none."""
        return " and ".join(f"version {entry.version} of {entry.app_id!r}" for entry in self._earlier.values())

    def note_earlier(self, table: Table, *, app_id: str, version: int) -> None:
        """Note that a write of this transaction with this ``txn`` was committed by an earlier attempt."""
        self._earlier[table.table_id] = _EarlierWrite(table_id=table.table_id, app_id=app_id, version=version)

    def _multi_table_commit(self) -> MultiTableCommit:
        return MultiTableCommit(
            [
                TableCommit(committer=staged.table.committer, transaction=staged.transaction)
                for staged in self._staged.values()
            ],
            coordinator=self._client.coordinator,
            settings=self._client.settings,
            transaction_id=self.transaction_id,
        )

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        """Delete the data files if the block ends by an error after which nothing refers to them."""
        try:
            yield
        except CmDeltaError as error:
            if needs_no_files(error) or isinstance(error, InvalidArgumentError):
                self._discard_files()
            raise

    def _end_writes(self) -> None:
        """Raises InvalidArgumentError if the transaction has ended, or if a write was begun and not executed."""
        if not self._end():
            raise _ended()
        if self._begun:
            self._discard_files()
            names = ", ".join(sorted({str(identifier) for identifier in self._begun.values()}))
            raise InvalidArgumentError(
                f"The transaction was not committed: a merge into {names} was begun, and not executed. Nothing was "
                "committed to any table. Execute each merge within the block."
            )

    def begin(self, identifier: TableIdentifier) -> Callable[[], None]:
        """Note that a write to the table was begun, without which :meth:`commit` fails. Call the result to carry it out."""
        key = object()
        with self._lock:
            self._begun[key] = identifier

        def carry_out() -> None:
            with self._lock:
                self._begun.pop(key, None)

        return carry_out

    def discard(self) -> None:
        """End the transaction without a commit, and delete the data files. Nothing happens if it has ended."""
        if self._end():
            self._discard_files()

    def require_open(self) -> None:
        """Raises InvalidArgumentError if the transaction has ended."""
        if not self._is_open:
            raise _ended()

    def require_free(self, table: Table) -> None:
        """Raises InvalidArgumentError if the transaction has ended, or already has a write to the table."""
        self.require_open()
        if table.table_id in self._staged:
            raise InvalidArgumentError(
                f"The transaction already has a write to {table.identifier}, and takes one for each table. Nothing was written. "
                "Combine the rows into one write, e.g. a merge, or use two transactions."
            )

    def stage(self, table: Table, transaction: Transaction, write: WriteTransaction) -> None:
        """Keep the transaction of a table until :meth:`commit`. Raises as :meth:`require_free`."""
        with self._lock:
            self.require_free(table)
            self._staged[table.table_id] = _StagedWrite(table=table, transaction=transaction, write=write)

    def _end(self) -> bool:
        """Take no further write. Returns False if the transaction had ended."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
        return was_open

    def _discard_files(self) -> None:
        for staged in self._staged.values():
            staged.write.discard()


def hold_write(
    client: DeltaClient,
    table: Table,
    write: Callable[[WriteTarget], WriteResult],
    *,
    duration_ms: int = HOLD_DURATION_MS,
) -> Hold:
    """Hold the one write that ``write`` makes to the table.

    A write with an ``Idempotency`` that was held before gives that hold, also after its ratification.

    Raises as ``write`` and :meth:`DeferredWrites.hold`, and

    Raises:
        InvalidArgumentError: there is nothing to hold: the write changes no row, or was committed before.
        CommitRejectedError: the commits of the table are made by creating their files. No file was written.
    """
    writes = DeferredWrites(client)
    try:
        result = write(writes.defer(table))
    except BaseException:
        writes.discard()
        raise
    hold = writes.hold(duration_ms=duration_ms) or writes.ratified_before()
    if hold is not None:
        return hold
    if writes.committed_before:
        raise InvalidArgumentError(
            f"The write to {table.identifier} is not held, because it was committed before, without a hold: the table has "
            f"recorded {writes.committed_before}. Nothing was committed now. There is nothing to ratify."
        )
    raise InvalidArgumentError(
        f"The write to {table.identifier} is not held, because it changes nothing: no row of version {result.version} would "
        "be added, changed or deleted. Nothing was committed. There is nothing to ratify."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EarlierWrite:
    """One write that an earlier attempt has committed, and its ``txn``."""

    table_id: str
    app_id: str
    version: int

    def hold(self, client: DeltaClient) -> Hold | None:
        """The newest hold of the write."""
        return client.holds.find_hold(self.table_id, app_id=self.app_id, app_version=self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StagedWrite:
    """One write, whose files are written and whose transaction waits."""

    table: Table
    transaction: Transaction
    write: WriteTransaction


class _CommittedTogether:
    """Refuses to commit one transaction of several alone."""

    def commit(self, transaction: Transaction) -> Committed:
        """Raises IllegalCommitError."""
        raise IllegalCommitError(
            f"The transaction of {transaction.snapshot.identifier} is part of one over several tables. Nothing was committed. "
            "Commit that one."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDefinition:
    """How the commit of a write changes the definition of its table.

    Attributes:
        snapshot: the version that the write builds on.
        protocol, metadata: afterwards, before what the write itself changes.
        depends_on_rows: rows that another writer adds meanwhile could make the change wrong.
    """

    snapshot: Snapshot
    protocol: Protocol
    metadata: Metadata
    depends_on_rows: bool

    @property
    def defined(self) -> Snapshot:
        """The version with the new definition, as the write sees it."""
        return replace(
            self.snapshot, state=replace(self.snapshot.state, protocol=self.protocol, metadata=self.metadata)
        )


class DeferredTable(TableTarget):
    """A table whose write waits for the end of the transaction over several tables."""

    def __init__(self, owner: DeferredWrites, table: Table) -> None:
        super().__init__(table)
        self._owner = owner
        self._definition: NewDefinition | None = None

    def define(self, definition: NewDefinition) -> None:
        """Have the commit of the write change the definition of the table too."""
        self._definition = definition

    def begin(self) -> Callable[[], None]:
        """See :meth:`DeferredWrites.begin`."""
        return self._owner.begin(self.identifier)

    def snapshot(self) -> Snapshot:
        """The latest version of the table, on which the write builds.

        Raises:
            InvalidArgumentError: the transaction has ended, or already has a write to the table.
            CommitRejectedError: the commits of the table are made by creating their files.
        """
        self._owner.require_free(self.table)
        if self._definition is not None:
            return self._definition.defined
        snapshot = super().snapshot()
        check_through_catalog(self.identifier, snapshot.commit_policy)
        return snapshot

    def find_transaction(self, *, app_id: str, version: int) -> int | None:
        """See :meth:`Table.find_transaction`. A write asks it if an earlier attempt was committed, which the transaction notes."""
        self._owner.note_earlier(self.table, app_id=app_id, version=version)
        return super().find_transaction(app_id=app_id, version=version)

    def start_transaction(
        self,
        snapshot: Snapshot,
        *,
        operation: str,
        parameters: Mapping[str, str] | None = None,
        context: CommitProperties = NO_PROPERTIES,
    ) -> Transaction:
        """Start the write that builds on ``snapshot``; its commit waits for the end of the transaction. Raises as Table's."""
        definition = self._definition
        transaction = self.table.start_transaction(
            snapshot if definition is None else definition.snapshot,
            operation=operation,
            parameters=parameters,
            context=context,
            committer=_CommittedTogether(),
        )
        if definition is not None and definition.depends_on_rows:
            transaction.read_whole_table()
        return transaction

    def commit_write(self, transaction: Transaction, data: WrittenData) -> Committed:
        """Keep the transaction until all are committed. Returns the version that was read.

        Raises:
            InvalidArgumentError: another thread has ended the transaction over several tables, or has written to this one. The
                data files were deleted.
        """
        assert isinstance(data, WriteTransaction), "every write of this package goes through a WriteTransaction"
        try:
            self._owner.stage(self.table, transaction, data)
        except InvalidArgumentError:
            data.discard()
            raise
        snapshot = transaction.snapshot
        return Committed(
            version=snapshot.version,
            txn_id=transaction.txn_id,
            in_commit_timestamp=snapshot.timestamp_ms,
            retries=0,
            snapshot=snapshot,
            is_deferred=True,
        )


def _ended() -> InvalidArgumentError:
    return InvalidArgumentError("The transaction has ended. Begin another one.")
