"""Version 0 (protocol "Creating catalog-managed tables").

A table in the making looks like a table without files: the verbs write to it as to any other, and what they commit
becomes version 0, followed by the name. The name comes last, so that a failure before leaves nothing that can be seen;
what it leaves on storage lies at a location that no table will ever have (CM-D5).
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from cm_delta_dagster.catalog.ratification import CommitSummary, InitialCommit
from cm_delta_dagster.catalog.tables import StagingTable, TableEntry, TableIdentifier
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.client.commits.proposal import summary_of
from cm_delta_dagster.client.commits.transaction import Committed, Committer, Transaction, changed_partitions
from cm_delta_dagster.client.snapshots.commit_sources import digest_of
from cm_delta_dagster.client.snapshots.snapshot import Snapshot, advance
from cm_delta_dagster.client.table import Services, Table
from cm_delta_dagster.client.warehouse import write_table_marker
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitStateUnknownError,
    IllegalCommitError,
    InvalidArgumentError,
    ObjectAlreadyExistsError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Action, CommitInfo, Metadata, Protocol
from cm_delta_dagster.protocol.features.in_commit_timestamps import next_in_commit_timestamp
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.action_reconciliation import FileState, TableState
from cm_delta_dagster.protocol.log.markers import MarkedState
from cm_delta_dagster.storage.discard import discard_below
from cm_delta_dagster.storage.store import ObjectStatus, Store

_log = logging.getLogger(__name__)

CREATE_TABLE = "CREATE TABLE"
CREATE_TABLE_AS = "CREATE TABLE AS SELECT"

_BEFORE_THE_FIRST = -1


class NewTable(Table):
    """A reserved id and location without a name. What is committed to it is version 0 and gives it its name.

    Invariants: until then ``snapshot()`` is the draft, of version -1 and without files; afterwards it is a table as any
    other. Every transaction but :meth:`commit_empty` is recorded as ``CREATE TABLE AS SELECT``.

    Args:
        parameters: operation parameters of the creation.
    """

    def __init__(
        self,
        *,
        services: Services,
        identifier: TableIdentifier,
        staging: StagingTable,
        store: Store,
        metadata: Metadata,
        protocol: Protocol,
        parameters: Mapping[str, str],
    ) -> None:
        super().__init__(
            services=services,
            identifier=identifier,
            table_id=staging.table_id,
            location=staging.location,
            store=store,
        )
        self.entry: TableEntry | None = None
        self._parameters = dict(parameters)
        self._draft = Snapshot(
            identifier=str(identifier),
            table_id=staging.table_id,
            location=staging.location,
            version=_BEFORE_THE_FIRST,
            published_version=_BEFORE_THE_FIRST,
            data_version=_BEFORE_THE_FIRST,
            timestamp_ms=0,
            state=TableState(
                version=_BEFORE_THE_FIRST,
                protocol=protocol,
                metadata=metadata,
                files=FileState.empty(staging.location),
            ),
        )

    def snapshot(self, *, version: int | None = None, timestamp_ms: int | None = None) -> Snapshot:
        """The draft, or once version 0 is there as :meth:`Table.snapshot`."""
        if self.entry is not None:
            return super().snapshot(version=version, timestamp_ms=timestamp_ms)
        if version is not None or timestamp_ms is not None:
            raise InvalidArgumentError(f"{self.identifier} is being created and has no versions yet.")
        return self._draft

    def start_transaction(
        self,
        snapshot: Snapshot,
        *,
        operation: str,
        parameters: Mapping[str, str] | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> Transaction:
        """The transaction that makes version 0; once that is there as :meth:`Table.start_transaction`."""
        if self.entry is not None:
            return super().start_transaction(snapshot, operation=operation, parameters=parameters, context=context)
        return self._creation(CREATE_TABLE_AS, context)

    def commit_empty(self, context: CommitContext = NO_CONTEXT) -> Committed:
        """Make version 0 without rows. Raises as :meth:`Transaction.commit`, and TableAlreadyExistsError."""
        return self._creation(CREATE_TABLE, context).commit()

    def clear(self) -> None:
        """Remove the directories that a failed creation left empty; no file is touched."""
        if self.entry is None:
            self.store.remove_empty_directories(self.location)

    def _creation(self, operation: str, context: CommitContext) -> "_Creation":
        return _Creation(
            snapshot=self._draft,
            committer=_CreationCommitter(self),
            operation=operation,
            parameters=self._parameters,
            context=context,
        )


class _Creation(Transaction):
    """Metadata and protocol are always part of it; whether it changes data depends on its files alone."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        committer: Committer,
        operation: str,
        parameters: Mapping[str, str],
        context: CommitContext,
    ) -> None:
        super().__init__(
            snapshot=snapshot, committer=committer, operation=operation, parameters=parameters, context=context
        )
        self._metadata = snapshot.metadata
        self._protocol = snapshot.protocol

    @property
    def is_blind_append(self) -> bool:
        return True

    @property
    def data_change(self) -> bool:
        return any(file.data_change for file in self._adds)

    def changed_partitions(self) -> tuple[Mapping[str, str | None], ...] | None:
        return changed_partitions(self.snapshot.partition_columns, self._adds)

    def actions(self, base: Snapshot, *, in_commit_timestamp: int) -> list[Action]:
        info, *others = super().actions(base, in_commit_timestamp=in_commit_timestamp)
        assert isinstance(info, CommitInfo)
        return [replace(info, read_version=None), *others]


class _CreationCommitter:
    """Writes version 0 at the reserved location and registers the name."""

    def __init__(self, table: NewTable) -> None:
        self._table = table

    def commit(self, transaction: Transaction) -> Committed:
        """See :meth:`Transaction.commit`.

        Raises:
            TableAlreadyExistsError: the name was given to another table meanwhile; every file of this one was deleted.
            TableNotFoundError: the creation took so long that its reservation was purged; likewise.
            CommitStateUnknownError: the catalog did not answer the registration; the table exists whole or not at all.
        """
        table = self._table
        timestamp = next_in_commit_timestamp(table.services.now_ms(), None)
        actions = transaction.actions(transaction.snapshot, in_commit_timestamp=timestamp)
        data = commit_json.encode_commit(actions)
        written = self._write(data)
        summary = summary_of(transaction, timestamp)
        own = commit_json.decode_commit(data, version=0)
        assert own.metadata is not None and own.protocol is not None
        initial = InitialCommit(
            file_size=len(data),
            file_modification_time=written.modification_time,
            metadata=own.metadata,
            protocol=own.protocol,
            content=data if len(data) <= table.services.settings.copied_content_bytes else None,
            sha256=digest_of(data),
        )
        table.entry = self._register(summary, initial)
        self._mark(table.entry)
        snapshot = advance(transaction.snapshot, (own,), published_version=0)
        table.post_commit.after_creation(snapshot, data=data)
        return Committed(
            version=0, txn_id=transaction.txn_id, in_commit_timestamp=timestamp, retries=0, snapshot=snapshot
        )

    def _write(self, data: bytes) -> ObjectStatus:
        table = self._table
        location = f"{log_files.log_directory(table.location)}/{log_files.commit_file_name(0)}"
        try:
            return table.store.write_if_absent(location, data) or table.store.stat(location)
        except ObjectAlreadyExistsError as error:
            raise IllegalCommitError(
                f"The catalog reserved {table.location} for {table.identifier}, but a Delta log is there already. Nothing "
                "was changed. Two catalogs may be using one warehouse directory; give each its own."
            ) from error

    def _mark(self, entry: TableEntry) -> None:
        table = self._table
        write_table_marker(
            table.store,
            entry.location,
            table_id=entry.table_id,
            identifier=entry.identifier,
            catalog_id=table.services.warehouse.claim().catalog_id,
            state=MarkedState.ACTIVE,
        )

    def _register(self, summary: CommitSummary, initial: InitialCommit) -> TableEntry:
        """Asking again is safe: the same id under the same name answers with the entry."""
        table, settings = self._table, self._table.services.settings
        attempt = 1
        while True:
            try:
                return self._ask(summary, initial, is_first=attempt == 1)
            except CatalogUnavailableError as error:
                if attempt >= settings.max_resolve_attempts:
                    raise CommitStateUnknownError(
                        f"The catalog did not answer whether {table.identifier} was registered ({error}). The table exists "
                        "whole or not at all. Once the catalog answers again, open it by its name, or create it again if it "
                        "is not found."
                    ) from error
                _log.warning("No answer to the registration of %s: %s", table.identifier, error)
            time.sleep(min(settings.retry_max_seconds, settings.retry_initial_seconds * 2**attempt))
            attempt += 1

    def _ask(self, summary: CommitSummary, initial: InitialCommit, *, is_first: bool) -> TableEntry:
        table = self._table
        try:
            return table.catalog.register_table(table.table_id, table.identifier, summary=summary, initial=initial)
        except (TableAlreadyExistsError, TableNotFoundError) as error:
            # The name is another's, or the reservation was purged. After an unanswered request the files stay: it may
            # still be under way, or the table was there meanwhile.
            if is_first:
                discard_below(table.store, table.location)
                raise
            try:
                return table.catalog.load_table_by_id(table.table_id)  # It was registered, and renamed since.
            except TableNotFoundError:
                pass
            if isinstance(error, TableNotFoundError):
                raise CommitStateUnknownError(
                    f"The catalog did not answer whether {table.identifier} was registered, and does not know the table "
                    f"now: it was purged, or dropped again ({error}). Nothing was deleted."
                ) from error
            raise
