"""A write that is not committed yet (protocol heading "Writer Requirements for Catalog-managed tables"). Mutable.

A transaction knows what it read and what it will change; it does not know files beyond their actions. ``commit`` hands it to
the committer, which proposes it, rebases it over winners and reports the outcome.
"""

import typing
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from cm_delta_dagster.catalog.ratification import TableCounts
from cm_delta_dagster.client.commits.changed_partitions import ChangedPartition, changed_partitions
from cm_delta_dagster.client.commits.context import ENGINE_INFO, NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.table_counts import counts_after
from cm_delta_dagster.client.commits.transaction_intent import HoldAudit, TransactionIntent
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import IllegalCommitError
from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    TransactionGroup,
)
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.file_columns import table_to_adds, table_to_removes
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.commits.candidate_files import KnownFiles
from cm_delta_dagster.protocol.commits.conflicts import IsolationLevel, PendingCommit, ReadSet
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.clustering import is_clustered
from cm_delta_dagster.protocol.features.identity_columns import same_columns, with_marks_kept
from cm_delta_dagster.protocol.features.in_commit_timestamps import with_enablement
from cm_delta_dagster.protocol.features.protocol_evolution import check_metadata_supported, check_protocol_change
from cm_delta_dagster.protocol.features.table_features import (
    CATALOG_MANAGED,
    check_writable,
    is_catalog_managed,
    supports,
)
from cm_delta_dagster.protocol.features.table_properties import CHECKPOINT_PROTECTION_KEY
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.statistics.statistics import num_records

_SYSTEM_DOMAINS = "delta."


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A ratified transaction.

    Attributes:
        retries: number of times it was rebased over winners or proposed again.
        snapshot: the table right after this commit.
        is_deferred: the commit waits for those of other tables. Version and snapshot are then those that were read.
    """

    version: int
    txn_id: str
    in_commit_timestamp: int
    retries: int
    snapshot: Snapshot
    is_deferred: bool = False


class Committer(typing.Protocol):
    """What a transaction needs to become a version; implemented by tables."""

    def commit(self, transaction: "Transaction") -> Committed: ...


class Transaction:
    """Collects reads and changes against one snapshot; ``commit`` may be called once."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        committer: Committer,
        operation: str,
        parameters: Mapping[str, str] | None = None,
        context: CommitProperties = NO_PROPERTIES,
    ) -> None:
        check_writable(snapshot.protocol, snapshot.identifier)
        self.snapshot = snapshot
        self.operation = operation
        self.parameters = dict(parameters or {})
        self.context = context
        self.metrics: dict[str, str] = {}
        self.engine: str | None = None
        """What wrote the rows of added files."""
        self.keeps_row_ids = False
        """Whether the rows of removed files that are in added files keep their ids."""
        self.redefines_columns = False
        """Whether new metadata define the columns again, so that identity columns begin at their start."""
        self.used_row_ids = -1
        """The highest row id of added files that bring their own ids."""
        self.hold_id: str | None = None
        """The hold that the ratification of this commit closes."""
        self.audit: HoldAudit | None = None
        """What the checks of the held commit have said; None if nothing checks it."""
        self.lease_token: int | None = None
        """Fencing token of the maintenance lease under which the commit is made; it is refused if that lease has ended."""
        self.group: TransactionGroup | None = None
        """The transaction over several tables that the next attempt is a part of; each attempt has another one."""
        self.txn_id = str(uuid.uuid4())
        self._committer = committer
        self._reads: list[Predicate] = []
        self._reads_whole_table = False
        self._adds: list[AddFile] = []
        self._removes: list[RemoveFile] = []
        self._updated: list[str] = []
        self._changes: list[AddCdcFile] = []
        self._metadata: Metadata | None = None
        self._protocol: Protocol | None = None
        self._drops_feature = False
        self._transactions: dict[str, SetTransaction] = {}
        self._noted: set[str] = set()
        self._ordered: set[str] = set()
        self._domains: dict[str, DomainMetadata] = {}
        self._finished = False

    def read(self, predicate: Predicate) -> None:
        """Declare that the result depends on every row for which ``predicate`` may be true."""
        self._reads.append(predicate)

    def read_whole_table(self) -> None:
        """Declare that the result depends on every row."""
        self._reads_whole_table = True

    def add_files(self, files: Iterable[AddFile]) -> None:
        self._adds.extend(files)

    def remove_files(self, files: Iterable[RemoveFile]) -> None:
        self._removes.extend(files)

    def update_files(self, files: Iterable[AddFile]) -> None:
        """Add files again that are in the table, with other metadata and the same rows.

        The commit conflicts with one that removes such a file, which would otherwise be in the table again.
        """
        for file in files:
            self._adds.append(replace(file, data_change=False))
            self._updated.append(file.path)

    def add_change_files(self, files: Iterable[AddCdcFile]) -> None:
        """Record files with the row changes of this commit; they are then all that a reader of changes reads of it."""
        self._changes.extend(files)

    def set_metadata(self, metadata: Metadata) -> None:
        """Replace the table's metadata as a whole; a high-water mark of an identity column does not go back.

        Raises IllegalCommitError if the id would change.
        """
        if metadata.id != self.snapshot.metadata.id:
            raise IllegalCommitError(
                f"The metadata of {self.snapshot.identifier} would get another id ({metadata.id} for "
                f"{self.snapshot.metadata.id}); the id is constant. Carry it over from the snapshot."
            )
        self._metadata = metadata if self.redefines_columns else with_marks_kept(self.snapshot.metadata, metadata)

    def set_protocol(self, protocol: Protocol, *, dropped: Collection[str] = ()) -> None:
        """Replace the protocol. Raises IllegalCommitError if a feature that is not in ``dropped`` would be lost."""
        is_lost = is_catalog_managed(self.snapshot.protocol) and not is_catalog_managed(protocol)
        if is_lost and CATALOG_MANAGED not in dropped:
            raise IllegalCommitError(
                f"The protocol of {self.snapshot.identifier} would lose catalogManaged; a listed feature stays."
            )
        check_protocol_change(self.snapshot.protocol, protocol, dropped=dropped)
        self._protocol = protocol
        self._drops_feature = bool(dropped)

    def set_transaction(self, transaction: SetTransaction) -> None:
        """Record ``txn``; the commit conflicts with another one of the same ``app_id``."""
        self._transactions[transaction.app_id] = transaction

    def note_transaction(self, transaction: SetTransaction, *, is_ordered: bool = False) -> None:
        """Record ``txn`` of a write that is made once: a winner conflicts that recorded the same version.

        If versions have an order, a winner with a later one conflicts too, and any other one unless a held commit is ratified.
        """
        self._transactions[transaction.app_id] = transaction
        (self._ordered if is_ordered else self._noted).add(transaction.app_id)

    def set_domain(self, domain: DomainMetadata) -> None:
        """Write a metadata domain of the user's.

        Raises:
            IllegalCommitError: the domain belongs to a feature of Delta, which alone may write it, or the
                table does not list the feature ``domainMetadata``.
        """
        if domain.domain.startswith(_SYSTEM_DOMAINS):
            raise IllegalCommitError(
                f"The metadata domain {domain.domain!r} of {self.snapshot.identifier} belongs to Delta: names that begin with "
                f"{_SYSTEM_DOMAINS!r} do. Nothing was written. Choose another name."
            )
        if not supports(self._protocol or self.snapshot.protocol, "domainMetadata"):
            raise IllegalCommitError(
                f"{self.snapshot.identifier} takes no metadata domain {domain.domain!r}: its protocol does not list the "
                "feature domainMetadata. Nothing was written. Add the feature first."
            )
        self._domains[domain.domain] = domain

    def set_clustering(self, domain: DomainMetadata) -> None:
        """Set the clustering columns. Raises IllegalCommitError if the table is not a clustered table."""
        if not is_clustered(self._protocol or self.snapshot.protocol):
            raise IllegalCommitError(
                f"{self.snapshot.identifier} takes no clustering columns: its protocol does not list the feature clustering. "
                "Nothing was written. Add the feature first."
            )
        self._domains[domain.domain] = domain

    def remove_all_domains(self) -> None:
        """Remove every metadata domain, of a table that is to lose the feature ``domainMetadata``."""
        self._domains.update({name: replace(domain, removed=True) for name, domain in self.snapshot.domains.items()})

    @property
    def is_empty(self) -> bool:
        """Whether committing would record nothing but ``commitInfo``."""
        return not any((self._adds, self._removes, self._metadata, self._protocol, self._transactions, self._domains))

    @property
    def is_blind_append(self) -> bool:
        """Only adds data and read nothing (``commitInfo.isBlindAppend``)."""
        only_adds = bool(self._adds) and not self._removes and self._metadata is None and self._protocol is None
        return only_adds and not self._reads and not self._reads_whole_table

    @property
    def data_change(self) -> bool:
        """Whether readers may see other rows or another schema afterwards."""
        changed = any(file.data_change for file in self._adds) or any(file.data_change for file in self._removes)
        return changed or self._metadata is not None

    def changed_partitions(self) -> tuple[ChangedPartition, ...] | None:
        """The partitions whose files change data; None if they are unknown or too many for the feed.

        New metadata changes all partitions, unless the columns stay the same and files change, as in a RESTORE.
        """
        base = self.snapshot
        if self._metadata is not None and not self._changes_rows_only(self._metadata):
            return None
        return changed_partitions(
            self._adds, self._removes, columns=base.partition_columns, schema=base.schema, mapping=base.column_mapping
        )

    def _changes_rows_only(self, metadata: Metadata) -> bool:
        changes_files = any(add.data_change for add in self._adds) or any(gone.data_change for gone in self._removes)
        return changes_files and same_columns(self.snapshot.metadata, metadata)

    def counts_after(self, base: Snapshot) -> TableCounts:
        """Rows, files and bytes of the table after the commit that follows ``base``."""
        return counts_after(base, self._adds, {*(file.path for file in self._removes), *self._updated})

    @property
    def isolation(self) -> IsolationLevel:
        """The level that the table asks for, or SNAPSHOT if files are only rearranged."""
        others = any((self._metadata, self._protocol, self._transactions, self._domains))
        if not others and not self.data_change:
            return IsolationLevel.SNAPSHOT
        return IsolationLevel(self.snapshot.properties.isolation_level)

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of ``commitInfo`` that the commit feed shows too."""
        of_audit = {} if self.audit is None else self.audit.tags
        of_group = {} if self.group is None else self.group.tags
        return {**self.context.tags, **of_audit, **of_group}

    @property
    def transactions(self) -> Mapping[str, SetTransaction]:
        return self._transactions

    def pending(self, base: Snapshot) -> PendingCommit:
        """What the check against the commits after ``base`` needs to know of this transaction."""
        ordered = self._ordered if self.hold_id is not None else set[str]()
        exclusive = frozenset(self._transactions.keys() - self._noted - ordered)
        removed_paths = pa.array([*(file.path for file in self._removes), *self._updated], pa.string())
        return PendingCommit(
            read_set=ReadSet(
                predicates=tuple(self._reads),
                whole_table=self._reads_whole_table,
                transactions=exclusive,
                domains=frozenset(self._domains),
            ),
            files=KnownFiles.of(base.location, lambda: base.files),
            removed=frozenset(file_keys(self.snapshot.location, removed_paths).to_pylist()),
            protocol=self.snapshot.protocol,
            metadata=self.metadata,
            metadata_changed=self._metadata is not None,
            protocol_changed=self._protocol is not None,
            app_ids=exclusive,
            noted_transactions=self._versions_of(self._noted),
            ordered_transactions=self._versions_of(ordered),
            domains=frozenset(self._domains),
            isolation=self.isolation,
            schema=self.snapshot.schema,
            partition_columns=self.snapshot.partition_columns,
            mapping=self.snapshot.column_mapping,
        )

    def _versions_of(self, app_ids: Collection[str]) -> Mapping[str, int]:
        return {app_id: self._transactions[app_id].version for app_id in app_ids}

    def actions(self, base: Snapshot, *, in_commit_timestamp: int) -> list[Action]:
        """The actions of the commit that follows ``base``, ``commitInfo`` first.

        ``base`` is the snapshot of the transaction, advanced by compatible winners. All that depends on it is computed here,
        again for each attempt.
        """
        version = base.version + 1
        adds, domains = self._adds, dict(self._domains)
        tags = dict(self.tags)
        if row_tracking.assigns_ids(self._protocol or base.protocol, self._metadata or base.metadata):
            before = row_tracking.known_high_water_mark(base.domains)
            used = max(before, self._used_row_ids(base))
            fresh = row_tracking.assign_row_ids(adds, high_water_mark=used, version=version)
            adds = list(fresh.adds)
            if fresh.high_water_mark > before:
                domains[row_tracking.DOMAIN] = row_tracking.high_water_mark_domain(fresh.high_water_mark)
            tags[row_tracking.PRESERVED_TAG] = "true" if self.keeps_row_ids or not self._removes else "false"
        info = CommitInfo(
            in_commit_timestamp=in_commit_timestamp,
            timestamp=in_commit_timestamp,
            txn_id=self.txn_id,
            operation=self.operation,
            operation_parameters=self.parameters,
            operation_metrics=dict(self.metrics),
            read_version=base.version,
            isolation_level=str(self.isolation.value),
            is_blind_append=self.is_blind_append,
            engine_info=ENGINE_INFO if self.engine is None else f"{ENGINE_INFO} ({self.engine})",
            user_metadata=self.context.user_metadata,
            tags=tags or None,
            extra=dict(self.context.custom_metadata),
        )
        actions: list[Action] = [info]
        if self._protocol is not None:
            actions.append(self._protocol)
        if self._metadata is not None:
            actions.append(self._metadata_at(base, version=version, timestamp_ms=in_commit_timestamp))
        actions += self._transactions.values()
        actions += domains.values()
        actions += [] if self.group is None else [self.group]
        # A commit can wait for days, in a hold or for the end of a transaction: files are removed when it is made.
        actions += [replace(file, deletion_timestamp=in_commit_timestamp) for file in self._removes]
        actions += adds
        actions += self._changes
        self._check_metadata(base)
        return actions

    def _used_row_ids(self, base: Snapshot) -> int:
        """The highest row id that the commit after ``base`` must not assign, besides the high-water mark of ``base``.

        A writer may have lowered that mark, so that of the version that was read counts too, and ids that files have: files that
        the commit adds, as a RESTORE does, and, if it assigns ids, those of the table.
        """
        used = max(self._own_row_ids, row_tracking.known_high_water_mark(self.snapshot.domains))
        if all(add.base_row_id is not None for add in self._adds):
            return used
        return max(used, base.state.files.highest_row_id)

    @property
    def _own_row_ids(self) -> int:
        """The highest row id of added files that bring their own ids; -1 if none does."""
        own = [add for add in self._adds if add.base_row_id is not None]
        ids = pa.array([add.base_row_id for add in own], pa.int64())
        stats = pa.array([add.stats for add in own], pa.string())
        return max(self.used_row_ids, row_tracking.highest_row_id(ids, num_records(stats)))

    @property
    def intent(self) -> TransactionIntent:
        """What :meth:`resume` needs besides the commit."""
        return TransactionIntent(
            txn_id=self.txn_id,
            operation=self.operation,
            parameters=self.parameters,
            metrics=dict(self.metrics),
            context=self.context,
            read_version=self.snapshot.version,
            reads=tuple(self._reads),
            reads_whole_table=self._reads_whole_table,
            noted=tuple(sorted(self._noted)),
            ordered=tuple(sorted(self._ordered)),
            updated=tuple(self._updated),
            domains=tuple(sorted(self._domains)),
            keeps_row_ids=self.keeps_row_ids,
            used_row_ids=self._own_row_ids,
            drops_feature=self._drops_feature,
            audit=self.audit,
        )

    def resume(self, intent: TransactionIntent, commit: CommitActions) -> None:
        """Become the transaction of ``intent``, of which ``commit`` is an attempt that was not ratified."""
        self.context, self.audit = intent.context, intent.audit
        self.txn_id, self.metrics, self.keeps_row_ids = intent.txn_id, dict(intent.metrics), intent.keeps_row_ids
        self._reads, self._reads_whole_table = list(intent.reads), intent.reads_whole_table
        self.used_row_ids, self._adds = intent.used_row_ids, table_to_adds(commit.adds)
        if any(add.base_row_id is not None for add in self._adds):
            known = row_tracking.known_high_water_mark(self.snapshot.domains)
            own_ids = max(known, self.used_row_ids, self.snapshot.state.files.highest_row_id)
            self._adds = [row_tracking.without_ids_above(add, own_ids) for add in self._adds]
        self._removes, self._changes = table_to_removes(commit.removes), list(commit.cdc)
        self._updated, self._noted, self._ordered = list(intent.updated), set(intent.noted), set(intent.ordered)
        self._metadata, self._protocol = commit.metadata, commit.protocol
        self._drops_feature = intent.drops_feature
        self._transactions = {recorded.app_id: recorded for recorded in commit.transactions}
        self._domains = {domain.domain: domain for domain in commit.domains if domain.domain in intent.domains}

    def _metadata_at(self, base: Snapshot, *, version: int, timestamp_ms: int) -> Metadata:
        """The new metadata with the properties that depend on the version of the commit."""
        assert self._metadata is not None
        metadata = with_enablement(self._metadata, before=base.metadata, version=version, timestamp_ms=timestamp_ms)
        if not self._drops_feature or not supports(self._protocol or base.protocol, "checkpointProtection"):
            return metadata
        return replace(metadata, configuration={**metadata.configuration, CHECKPOINT_PROTECTION_KEY: str(version)})

    @property
    def metadata(self) -> Metadata:
        """What the table's metadata will be: what this transaction sets, or that of its snapshot."""
        return self._metadata or self.snapshot.metadata

    def _check_metadata(self, base: Snapshot) -> None:
        """New metadata and the protocol it lands under must fit each other and this client."""
        if self._metadata is None and self._protocol is None:
            return
        protocol, metadata = self._protocol or base.protocol, self._metadata or base.metadata
        check_metadata_supported(protocol, metadata)
        check_writable(protocol, self.snapshot.identifier)

    def commit(self) -> Committed:
        """Make this the next version of the table.

        Raises:
            CommitConflictError: a winner changed data that this transaction depends on; the message names the winner.
            CommitRejectedError: the catalog refused for another reason than the version.
            CommitRetriesExceededError: every attempt conflicted with compatible commits of other writers.
            CommitStateUnknownError: the catalog did not answer, and the outcome is unknown.
        """
        if self._finished:
            raise IllegalCommitError("This transaction was already committed; start another one.")
        self._finished = True
        return self._committer.commit(self)
