"""Creates a table by committing its version 0 (protocol heading "Creating and Dropping Catalog-managed Tables").

The catalog reserves an id and a location, version 0 is written there, and the catalog registers the name last. So a creation
that fails before leaves nothing visible; its files lie at a location that no other table gets.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from cm_delta_dagster.catalog.ratification import CommitSummary, InitialCommit
from cm_delta_dagster.catalog.tables import StagingTable, TableEntry, TableIdentifier
from cm_delta_dagster.client.backoff import attempts_without_jitter
from cm_delta_dagster.client.commits.changed_partitions import ChangedPartition, changed_partitions
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.proposal import summary_of
from cm_delta_dagster.client.commits.transaction import Committed, Committer, Transaction
from cm_delta_dagster.client.commits.written_data import WrittenData
from cm_delta_dagster.client.services import Services
from cm_delta_dagster.client.snapshots.commit_sources import digest_of
from cm_delta_dagster.client.snapshots.snapshot import Snapshot, advance
from cm_delta_dagster.client.table import Table
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
from cm_delta_dagster.protocol.actions.actions import Action, CommitInfo, DomainMetadata, Metadata, Protocol
from cm_delta_dagster.protocol.commits.commit_validation import encode_checked
from cm_delta_dagster.protocol.features.in_commit_timestamps import next_in_commit_timestamp
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.log.markers import MarkedState
from cm_delta_dagster.storage.discard import discard, discard_below
from cm_delta_dagster.storage.store import Store

_log = logging.getLogger(__name__)

CREATE_TABLE = "CREATE TABLE"
CREATE_TABLE_AS = "CREATE TABLE AS SELECT"
CLONE = "CLONE"


class CreateTransaction:
    """Creates one table at a reserved id and location by one commit, version 0.

    Either one write operation makes that commit, recorded as ``CREATE TABLE AS SELECT``: for it, this class implements
    :class:`~cm_delta_dagster.client.write_target.WriteTarget`. Or :meth:`commit_empty` makes it, without rows, or the transaction
    of :meth:`start_clone`, with files of another table. Afterwards
    :meth:`table` returns the table, and the transaction takes no further commit.

    Args:
        parameters: operation parameters of the creation.
        domains: metadata domains that version 0 sets, by name.

    Attributes:
        entry: the catalog's entry of the table; None until version 0 is committed.
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
        domains: Mapping[str, DomainMetadata] = MappingProxyType({}),
    ) -> None:
        self.services = services
        self.identifier = identifier
        self.table_id = staging.table_id
        self.location = staging.location
        self._is_external = staging.is_external
        self.store = store
        self.entry: TableEntry | None = None
        self._parameters = dict(parameters)
        self._initial = Snapshot.before_creation(
            identifier=str(identifier),
            table_id=staging.table_id,
            location=staging.location,
            protocol=protocol,
            metadata=metadata,
            domains=domains,
        )

    def table(self) -> Table:
        """A handle of the created table. Raises InvalidArgumentError before version 0 is committed."""
        if self.entry is None:
            raise InvalidArgumentError(f"{self.identifier} is being created and has no versions yet.")
        return Table(
            services=self.services,
            identifier=self.entry.identifier,
            table_id=self.table_id,
            location=self.location,
            store=self.store,
        )

    def snapshot(self) -> Snapshot:
        """The state that version 0 builds on. Raises InvalidArgumentError after the commit."""
        self.refuse_if_committed()
        return self._initial

    def find_transaction(self, *, app_id: str, version: int) -> int | None:
        """None: there are no commits that could hold a ``txn``. Raises InvalidArgumentError after the commit."""
        self.refuse_if_committed()
        return None

    def start_transaction(
        self,
        snapshot: Snapshot,
        *,
        operation: str,
        parameters: Mapping[str, str] | None = None,
        context: CommitProperties = NO_PROPERTIES,
    ) -> Transaction:
        """The transaction that makes version 0. It builds on :meth:`snapshot`.

        ``commitInfo`` records ``CREATE TABLE AS SELECT`` and the parameters of the creation. The arguments ``snapshot``,
        ``operation`` and ``parameters`` are part of :class:`~cm_delta_dagster.client.write_target.WriteTarget` and not used.
        Raises InvalidArgumentError after the commit.
        """
        return self._first_commit(CREATE_TABLE_AS, context)

    def commit_write(self, transaction: Transaction, data: WrittenData) -> Committed:
        """Make version 0. Raises as :meth:`Transaction.commit`, and TableAlreadyExistsError."""
        return transaction.commit()

    def commit_empty(self, context: CommitProperties = NO_PROPERTIES) -> Committed:
        """Make version 0 without rows. Raises as :meth:`Transaction.commit`, and TableAlreadyExistsError."""
        return self._first_commit(CREATE_TABLE, context).commit()

    def start_clone(self, context: CommitProperties = NO_PROPERTIES) -> Transaction:
        """The transaction that makes version 0 of a clone. Raises InvalidArgumentError after the commit."""
        return self._first_commit(CLONE, context)

    def abort(self) -> None:
        """Remove the empty directories of a failed creation; files are left to the purge of abandoned creations."""
        if self.entry is None:
            self.store.remove_empty_directories(self.location)

    def discard_files(self) -> None:
        """Delete the files of a creation that did not get its name. At a given location, other programs may have files."""
        if not self._is_external:
            discard_below(self.store, self.location)
            return
        discard(self.store, f"{log_files.log_directory(self.location)}/{log_files.commit_file_name(0)}")
        self.store.remove_empty_directories(log_files.log_directory(self.location))

    def refuse_if_committed(self) -> None:
        """Raises InvalidArgumentError after the commit."""
        if self.entry is not None:
            raise InvalidArgumentError(
                f"{self.entry.identifier} has been created, and a creation takes one write. Nothing else was committed. Open the "
                "table by its name, and write to it."
            )

    def _first_commit(self, operation: str, context: CommitProperties) -> "_FirstCommit":
        self.refuse_if_committed()
        return _FirstCommit(
            snapshot=self._initial,
            committer=_CreationCommitter(self),
            operation=operation,
            parameters=self._parameters,
            context=context.with_defaults(self.services.context),
        )


class _FirstCommit(Transaction):
    """Version 0: always sets metadata and protocol; it changes data if its files do."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        committer: Committer,
        operation: str,
        parameters: Mapping[str, str],
        context: CommitProperties,
    ) -> None:
        super().__init__(
            snapshot=snapshot, committer=committer, operation=operation, parameters=parameters, context=context
        )
        self._metadata = snapshot.metadata
        self._protocol = snapshot.protocol
        self._domains.update(snapshot.domains)

    @property
    def is_blind_append(self) -> bool:
        return True

    @property
    def data_change(self) -> bool:
        return any(file.data_change for file in self._adds)

    def changed_partitions(self) -> tuple[ChangedPartition, ...] | None:
        base = self.snapshot
        return changed_partitions(
            self._adds, (), columns=base.partition_columns, schema=base.schema, mapping=base.column_mapping
        )

    def actions(self, base: Snapshot, *, in_commit_timestamp: int) -> list[Action]:
        info, *others = super().actions(base, in_commit_timestamp=in_commit_timestamp)
        assert isinstance(info, CommitInfo)
        return [replace(info, read_version=None), *others]


class _CreationCommitter:
    """Writes version 0 at the reserved location and registers the name."""

    def __init__(self, creation: CreateTransaction) -> None:
        self._creation = creation

    def commit(self, transaction: Transaction) -> Committed:
        """See :meth:`Transaction.commit`.

        Raises:
            TableAlreadyExistsError: another table got the name meanwhile; every file of this creation was deleted.
            TableNotFoundError: the reservation was purged meanwhile; every file of this creation was deleted.
            CommitStateUnknownError: the catalog did not answer the registration; the table exists whole or not at all.
            InvalidArgumentError: version 0 is committed.
        """
        creation = self._creation
        creation.refuse_if_committed()
        timestamp = next_in_commit_timestamp(creation.services.now_ms(), None)
        actions = transaction.actions(transaction.snapshot, in_commit_timestamp=timestamp)
        data = encode_checked(actions)
        written_ms = self._write(data)
        summary = summary_of(transaction, transaction.snapshot, timestamp)
        own = commit_json.decode_commit(data, version=0)
        assert own.metadata is not None and own.protocol is not None
        initial = InitialCommit(
            file_size=len(data),
            file_modification_time=timestamp if written_ms is None else written_ms,
            metadata=own.metadata,
            protocol=own.protocol,
            content=data if len(data) <= creation.services.settings.copied_content_bytes else None,
            sha256=digest_of(data),
            content_to_check=data,
        )
        creation.entry = self._register(summary, initial)
        self._write_marker(creation.entry)
        snapshot = replace(advance(transaction.snapshot, (own,), published_version=0), reported_counts=summary.counts)
        creation.table().post_commit.after_creation(snapshot, data=data)
        return Committed(
            version=0, txn_id=transaction.txn_id, in_commit_timestamp=timestamp, retries=0, snapshot=snapshot
        )

    def _write(self, data: bytes) -> int | None:
        """Write version 0; its modification time in epoch milliseconds, if the store returns it with the write."""
        creation = self._creation
        location = f"{log_files.log_directory(creation.location)}/{log_files.commit_file_name(0)}"
        try:
            written = creation.store.write_if_absent(location, data)
        except ObjectAlreadyExistsError as error:
            raise IllegalCommitError(
                f"The catalog reserved {creation.location} for {creation.identifier}, but a Delta log already exists there. "
                "Nothing was changed. Two catalogs may be using one warehouse directory; give each its own. Or another program has "
                "created a table at a location that was given; choose another one."
            ) from error
        return None if written is None else written.modification_time

    def _write_marker(self, entry: TableEntry) -> None:
        creation = self._creation
        write_table_marker(
            creation.store,
            entry.location,
            table_id=entry.table_id,
            identifier=entry.identifier,
            catalog_id=creation.services.warehouse.ensure_marker().catalog_id,
            state=MarkedState.ACTIVE,
        )

    def _register(self, summary: CommitSummary, initial: InitialCommit) -> TableEntry:
        """Register the name. Repeating it is safe: for the same id and name the catalog returns the entry."""
        creation, settings = self._creation, self._creation.services.settings
        last: CatalogUnavailableError | None = None
        for attempt in attempts_without_jitter(settings, settings.max_resolve_attempts):
            try:
                return self._try_to_register(summary, initial, is_first=not attempt)
            except CatalogUnavailableError as error:
                _log.warning("No answer to the registration of %s: %s", creation.identifier, error)
                last = error
        raise CommitStateUnknownError(
            f"The catalog did not answer whether {creation.identifier} was registered ({last}). The table exists whole or not at "
            "all. Once the catalog answers again, open it by its name, or create it again if it is not found."
        ) from last

    def _try_to_register(self, summary: CommitSummary, initial: InitialCommit, *, is_first: bool) -> TableEntry:
        creation, registry = self._creation, self._creation.services.registry
        try:
            return registry.register_table(creation.table_id, creation.identifier, summary=summary, initial=initial)
        except (TableAlreadyExistsError, TableNotFoundError) as error:
            # Another table has the name, or the reservation was purged. After an unanswered request the files stay: the
            # request may still be processed, or the table existed meanwhile.
            if is_first:
                creation.discard_files()
                raise
            try:
                return registry.load_table_by_id(creation.table_id)  # It was registered, and renamed since.
            except TableNotFoundError:
                pass
            if isinstance(error, TableNotFoundError):
                raise CommitStateUnknownError(
                    f"The catalog did not answer whether {creation.identifier} was registered, and does not know the "
                    f"table now: it was purged, or dropped again ({error}). Nothing was deleted."
                ) from error
            raise
