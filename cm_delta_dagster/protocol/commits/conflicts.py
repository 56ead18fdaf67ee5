"""Conflict detection between a transaction and a winning commit (protocol heading "Commit Protocol").

Decides from the read set and the changes of a transaction whether it can be rebased on a commit that took its version. The rules
are those of delta-spark. Read sets are predicates, so that writes to different partitions do not conflict.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.commits.candidate_files import KnownFiles
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.column_mapping import ColumnMappingMode, stored_names
from cm_delta_dagster.protocol.features.identity_columns import same_columns
from cm_delta_dagster.protocol.features.table_features import (
    FEATURES,
    MULTI_TABLE_TRANSACTION,
    is_active,
    reader_features,
    writer_features,
)
from cm_delta_dagster.protocol.features.table_properties import DELETION_VECTORS_KEY
from cm_delta_dagster.protocol.predicates.predicates import Predicate, short_sql
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.protocol.statistics.data_skipping import keep_mask

_MERGED_DOMAINS = frozenset({row_tracking.DOMAIN})
"""Domains that do not conflict, because each commit attempt computes their content again (the row id high-water mark)."""
_FEATURES_WITHOUT_FILE_RULES = frozenset(
    ("domainMetadata", "vacuumProtocolCheck", "v2Checkpoint", MULTI_TABLE_TRANSACTION)
)
"""Features that are active if they are listed, and have no rules for data files."""


class IsolationLevel(StrEnum):
    """Isolation level of a transaction. ``delta.isolationLevel`` selects one of the first two."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT = "SnapshotIsolation"
    """For commits that rewrite files without changing rows: they depend only on the files that they remove."""


class ConflictKind(StrEnum):
    """Kinds of conflicts, named like delta-spark's exceptions. delta-spark reports CONCURRENT_DOMAIN as ConcurrentTransaction."""

    PROTOCOL_CHANGED = "ProtocolChanged"
    METADATA_CHANGED = "MetadataChanged"
    CONCURRENT_APPEND = "ConcurrentAppend"
    CONCURRENT_DELETE_READ = "ConcurrentDeleteRead"
    CONCURRENT_DELETE_DELETE = "ConcurrentDeleteDelete"
    CONCURRENT_TRANSACTION = "ConcurrentTransaction"
    CONCURRENT_DOMAIN = "ConcurrentDomainMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What the result of a transaction depends on; with ``whole_table`` it depends on all rows."""

    predicates: tuple[Predicate, ...] = ()
    whole_table: bool = False
    transactions: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingCommit:
    """A transaction whose version was taken by another commit.

    Attributes:
        files: at least the live files of the version before the winner.
        removed: normalised paths of the files that the transaction removes.
        protocol: protocol of the snapshot that it read.
        metadata: its new metadata, else that of the snapshot; its files were written under this metadata.
        app_ids: ``appId`` of the ``txn`` actions that conflict with any other ``txn`` of the application.
        noted_transactions: ``version`` by ``appId`` of the ``txn`` actions that conflict only with the same version.
        ordered_transactions: those that conflict with the same version and with later ones.
        schema: schema of the snapshot that it read; ``partition_columns`` and ``mapping`` likewise.
    """

    read_set: ReadSet
    files: KnownFiles
    removed: frozenset[str]
    protocol: Protocol
    metadata: Metadata
    metadata_changed: bool
    protocol_changed: bool
    app_ids: frozenset[str]
    domains: frozenset[str]
    isolation: IsolationLevel
    noted_transactions: Mapping[str, int] = field(default_factory=dict)
    ordered_transactions: Mapping[str, int] = field(default_factory=dict)
    schema: StructType
    partition_columns: tuple[str, ...]
    mapping: ColumnMappingMode = ColumnMappingMode.NONE

    def may_match(self, files: pa.Table, predicate: Predicate) -> pa.BooleanArray:
        """One boolean for each file: false only if no row of the file can satisfy the predicate."""
        return keep_mask(
            files,
            predicate,
            schema=self.schema,
            partition_columns=self.partition_columns,
            mapping=self.mapping,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Why a transaction cannot be rebased on the winning commit ``version``; ``message`` is one sentence."""

    kind: ConflictKind
    version: int
    message: str


def check_conflict(pending: PendingCommit, winner: CommitActions, *, location: str) -> Conflict | None:
    """The first conflict between a transaction and a winning commit; None if it can be rebased.

    Args:
        location: absolute URI of the table root.
    """
    for check in (_protocol, _metadata, _domains, _transactions, _appends, _deletes_of_read, _deletes_of_removed):
        conflict = check(pending, winner, location)
        if conflict is not None:
            return conflict
    return None


def following(pending: PendingCommit, winner: CommitActions) -> PendingCommit:
    """``pending`` after a rebase on ``winner``, for the check against the next winner."""
    if not pending.read_set.predicates:
        return pending  # Conflict detection does not search the files.
    return replace(pending, files=pending.files.plus(winner.adds))


def _conflict(kind: ConflictKind, winner: CommitActions, message: str) -> Conflict:
    return Conflict(kind=kind, version=winner.version, message=message)


def _protocol(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """A protocol change conflicts if the transaction changes the protocol too, a feature was dropped, or a new one binds its files.

    The files of the transaction comply with the features of its snapshot.
    """
    if winner.protocol is None:
        return None
    if pending.protocol_changed:
        return _conflict(ConflictKind.PROTOCOL_CHANGED, winner, "Both change the table's protocol.")
    before, after = _features(pending.protocol), _features(winner.protocol)
    if before - after:
        gone = ", ".join(sorted(before - after))
        return _conflict(ConflictKind.PROTOCOL_CHANGED, winner, f"It dropped the features {gone}.")
    binding = sorted(name for name in after - before if _binds_files(name, winner.protocol, pending.metadata))
    if not binding:
        return None
    return _conflict(
        ConflictKind.PROTOCOL_CHANGED,
        winner,
        f"It added the features {', '.join(binding)}, and the files of this transaction may violate their rules.",
    )


def _features(protocol: Protocol) -> frozenset[str]:
    return writer_features(protocol) | reader_features(protocol)


def _binds_files(feature: str, protocol: Protocol, metadata: Metadata) -> bool:
    """Whether a feature has rules for the files of a commit with ``metadata``; not if it is listed but not active."""
    if feature in _FEATURES_WITHOUT_FILE_RULES:
        return False
    return feature not in FEATURES or is_active(feature, protocol, metadata)


def _metadata(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """A metadata change conflicts if the transaction changes metadata too, or may have written files that violate the new one."""
    if winner.metadata is None:
        return None
    if not pending.metadata_changed and _is_harmless(pending.metadata, winner.metadata, pending.protocol):
        return None
    return _conflict(
        ConflictKind.METADATA_CHANGED, winner, "It changed the table's schema, partitioning or properties."
    )


def _is_harmless(before: Metadata, after: Metadata, protocol: Protocol) -> bool:
    """Whether files written under ``before`` are valid under ``after``.

    True if at most these changed: the high-water marks of identity columns, and the property that enables deletion vectors, which
    became true; ``protocol`` must support the feature.
    """
    keys = before.configuration.keys() | after.configuration.keys()
    changed = {key for key in keys if before.configuration.get(key) != after.configuration.get(key)}
    vectors = after.configuration.get(DELETION_VECTORS_KEY, "").lower() == "true"
    if changed and not (changed == {DELETION_VECTORS_KEY} and vectors and "deletionVectors" in _features(protocol)):
        return False
    if replace(before, schema_string="", configuration={}) != replace(after, schema_string="", configuration={}):
        return False
    return same_columns(before, after)


def _transactions(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    mine = pending.read_set.transactions | pending.app_ids
    both = sorted(
        transaction.app_id
        for transaction in winner.transactions
        if transaction.app_id in mine
        or pending.noted_transactions.get(transaction.app_id) == transaction.version
        or pending.ordered_transactions.get(transaction.app_id, transaction.version + 1) <= transaction.version
    )
    if not both:
        return None
    return _conflict(
        ConflictKind.CONCURRENT_TRANSACTION, winner, f"It recorded a txn of the same application {both[0]!r}."
    )


def _domains(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    mine = (pending.read_set.domains | pending.domains) - _MERGED_DOMAINS
    both = sorted(mine & {domain.domain for domain in winner.domains})
    if not both:
        return None
    return _conflict(ConflictKind.CONCURRENT_DOMAIN, winner, f"It wrote the same metadata domain {both[0]!r}.")


def _appends(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """Added files that may contain rows read by the transaction.

    Under WriteSerializable a blind append does not conflict, because it may be ordered after the transaction, unless the
    transaction changes metadata. Under SnapshotIsolation no added file conflicts.
    """
    if not winner.adds.num_rows or pending.isolation is IsolationLevel.SNAPSHOT:
        return None
    # A commit that removes files has read them, even if isBlindAppend is true.
    blind = (
        winner.commit_info is not None and winner.commit_info.is_blind_append is True and not winner.removes.num_rows
    )
    if blind and pending.isolation is IsolationLevel.WRITE_SERIALIZABLE and not pending.metadata_changed:
        return None
    changing = winner.adds.filter(pc.fill_null(winner.adds.column("dataChange"), True))
    if not changing.num_rows:
        return None
    if pending.read_set.whole_table:
        return _conflict(ConflictKind.CONCURRENT_APPEND, winner, "It added files, and the whole table was read.")
    predicate = _first_match(pending, changing)
    if predicate is None:
        return None
    return _conflict(
        ConflictKind.CONCURRENT_APPEND, winner, f"It added files that may hold rows for {short_sql(predicate)}."
    )


def _deletes_of_read(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """Removed files that may contain rows read by the transaction, unless the winner only moved rows to other files."""
    if not winner.removes.num_rows or not winner_changes_rows(winner):
        return None
    if pending.read_set.whole_table:
        return _conflict(ConflictKind.CONCURRENT_DELETE_READ, winner, "It removed files, and the whole table was read.")
    suspects = _suspects(pending, winner.removes)
    if not suspects.num_rows:
        return None
    # The statistics of a removed file are in its add action. The transaction may not have read this file but another one,
    # from which the rows were moved. For an unknown file a conflict cannot be excluded.
    removed, all_known = pending.files.find(suspects.column("path"))
    predicate = _first_match(pending, removed) if all_known else pending.read_set.predicates[0]
    if predicate is None:
        return None
    return _conflict(
        ConflictKind.CONCURRENT_DELETE_READ,
        winner,
        f"It removed files that may hold rows read by this transaction: {short_sql(predicate)}.",
    )


def _suspects(pending: PendingCommit, removes: pa.Table) -> pa.Table:
    """Removed files that may have been read, judged by their partition values; removes without them are included."""
    values = removes.column("partitionValues")
    named = pc.and_(pc.fill_null(removes.column("extendedFileMetadata"), False), pc.is_valid(values))
    for column in stored_names(pending.partition_columns, pending.schema, pending.mapping):
        # Looks up all occurrences, because the first one is null both for a missing key and for a NULL value.
        named = pc.and_(named, pc.is_valid(pc.map_lookup(values, query_key=column, occurrence="all")))
    adds = _as_adds(removes)
    suspect = pc.invert(named)
    for predicate in pending.read_set.predicates:
        mask = pending.may_match(adds, predicate)
        suspect = pc.or_(suspect, mask)
    return removes.filter(suspect) if pending.read_set.predicates else removes.slice(0, 0)


def _deletes_of_removed(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """Files removed by both. Deletion vectors do not matter: a file can be removed only once."""
    if not winner.removes.num_rows or not pending.removed:
        return None
    keys = file_keys(location, winner.removes.column("path"))
    hit = keys.filter(pc.is_in(keys, value_set=pa.array(sorted(pending.removed), pa.string())))
    if not len(hit):
        return None
    return _conflict(
        ConflictKind.CONCURRENT_DELETE_DELETE, winner, f"Both remove the file {hit[0].as_py()} ({len(hit)} in total)."
    )


def winner_changes_rows(winner: CommitActions) -> bool:
    """Whether a ``remove`` of the winner changes data; a missing ``dataChange`` counts as true."""
    return bool(pc.any(pc.fill_null(winner.removes.column("dataChange"), True)).as_py() or False)


def _first_match(pending: PendingCommit, files: pa.Table) -> Predicate | None:
    """The first predicate of the read set that may match a row in ``files``."""
    for predicate in pending.read_set.predicates:
        mask = pending.may_match(files, predicate)
        if pc.any(mask).as_py():
            return predicate
    return None


def _as_adds(removes: pa.Table) -> pa.Table:
    """Removed files with the columns of ``ADD_SCHEMA``; fields that a ``remove`` lacks are null and exclude nothing."""
    columns = {name: removes.column(name) for name in ADD_SCHEMA.names if name in removes.schema.names}
    count = removes.num_rows
    for column in ADD_SCHEMA:
        columns.setdefault(column.name, pa.nulls(count, column.type))
    return pa.table(columns, schema=ADD_SCHEMA)
