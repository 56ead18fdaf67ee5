"""Conflict resolution (protocol "Commit protocol"; the rules of delta-spark, OCC-5 to OCC-14).

Pure: handed what a transaction read and wants to change, and one winning commit, it says whether both can stand. Read
sets are predicates, so that writes to different partitions do not get in each other's way.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.commit_json import CommitActions
from cm_delta_dagster.protocol.actions.file_columns import ADD_SCHEMA
from cm_delta_dagster.protocol.actions.paths import file_keys
from cm_delta_dagster.protocol.commits.candidate_files import KnownFiles
from cm_delta_dagster.protocol.features import row_tracking
from cm_delta_dagster.protocol.features.table_features import FEATURES, is_active, reader_features, writer_features
from cm_delta_dagster.protocol.predicates.predicates import Predicate, short_sql
from cm_delta_dagster.protocol.schema.types import StructField, StructType, parse_schema
from cm_delta_dagster.protocol.statistics.data_skipping import keep_mask

_HIGH_WATER_MARK = "delta.identity.highWaterMark"
_DELETION_VECTORS = "delta.enableDeletionVectors"
_MERGED_DOMAINS = frozenset({row_tracking.DOMAIN})
"""Domains whose feature merges what two commits wrote: the mark is computed anew on each attempt (DOM-7, ROWTRK-11)."""
_NO_DUTY_TO_FILES = frozenset(("domainMetadata", "vacuumProtocolCheck", "v2Checkpoint"))
"""Features that bind as soon as they are listed, and ask nothing of data files."""


class IsolationLevel(StrEnum):
    """What a transaction is protected from. ``delta.isolationLevel`` chooses between the first two."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT = "SnapshotIsolation"
    """Of a commit that rearranges files without changing rows: it depends on nothing but the files that it removes."""


class ConflictKind(StrEnum):
    """Names as delta-spark's exceptions have them, but for the domain: that one is a ConcurrentTransaction there."""

    PROTOCOL_CHANGED = "ProtocolChanged"
    METADATA_CHANGED = "MetadataChanged"
    CONCURRENT_APPEND = "ConcurrentAppend"
    CONCURRENT_DELETE_READ = "ConcurrentDeleteRead"
    CONCURRENT_DELETE_DELETE = "ConcurrentDeleteDelete"
    CONCURRENT_TRANSACTION = "ConcurrentTransaction"
    CONCURRENT_DOMAIN = "ConcurrentDomainMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What a transaction's result depends on. ``whole_table`` stands for every row."""

    predicates: tuple[Predicate, ...] = ()
    whole_table: bool = False
    transactions: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingCommit:
    """A transaction that lost a race.

    Attributes:
        files: live files of the version before the winner, and more if there are.
        removed: normalised paths of the files that it removes.
        protocol: of the snapshot that it read.
        metadata: what its files were written for: its own new metadata, or that of the snapshot.
        app_ids: applications whose ``txn`` it writes and whose other writers it excludes.
        noted_transactions: pairs of application and version that it records without excluding other versions.
        schema: of the snapshot that it read, as ``partition_columns`` are.
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
    noted_transactions: frozenset[tuple[str, int]] = frozenset()
    schema: StructType
    partition_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Why a transaction cannot follow the winner ``version``; ``message`` is one sentence."""

    kind: ConflictKind
    version: int
    message: str


def check_conflict(pending: PendingCommit, winner: CommitActions, *, location: str) -> Conflict | None:
    """The first conflict between a transaction and a commit that won, or None if it may be rebased on that."""
    for check in (_protocol, _metadata, _domains, _transactions, _appends, _deletes_of_read, _deletes_of_removed):
        conflict = check(pending, winner, location)
        if conflict is not None:
            return conflict
    return None


def following(pending: PendingCommit, winner: CommitActions) -> PendingCommit:
    """``pending``, which does not conflict with ``winner``, for the check against the winner after that."""
    if not pending.read_set.predicates:
        return pending  # Nothing will be looked for among the files.
    return replace(pending, files=pending.files.plus(winner.adds))


def _conflict(kind: ConflictKind, winner: CommitActions, message: str) -> Conflict:
    return Conflict(kind=kind, version=winner.version, message=message)


def _protocol(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """OCC-6. Files that are written already meet what was listed when they were; more may be asked of them now."""
    if winner.protocol is None:
        return None
    if pending.protocol_changed:
        return _conflict(ConflictKind.PROTOCOL_CHANGED, winner, "Both change the table's protocol.")
    before, after = _features(pending.protocol), _features(winner.protocol)
    if before - after:
        gone = ", ".join(sorted(before - after))
        return _conflict(ConflictKind.PROTOCOL_CHANGED, winner, f"It dropped the features {gone}.")
    asking = sorted(name for name in after - before if _asks_of_files(name, winner.protocol, pending.metadata))
    if not asking:
        return None
    return _conflict(
        ConflictKind.PROTOCOL_CHANGED,
        winner,
        f"It added the features {', '.join(asking)}, whose rules the files that were written may not meet.",
    )


def _features(protocol: Protocol) -> frozenset[str]:
    return writer_features(protocol) | reader_features(protocol)


def _asks_of_files(feature: str, protocol: Protocol, metadata: Metadata) -> bool:
    """Whether a feature binds the files of a commit with ``metadata``; one that is listed but not used does not."""
    if feature in _NO_DUTY_TO_FILES:
        return False
    return feature not in FEATURES or is_active(feature, protocol, metadata)


def _metadata(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """OCC-7."""
    if winner.metadata is None:
        return None
    if not pending.metadata_changed and _is_harmless(pending.metadata, winner.metadata, pending.protocol):
        return None
    return _conflict(
        ConflictKind.METADATA_CHANGED, winner, "It changed the table's schema, partitioning or properties."
    )


def _is_harmless(before: Metadata, after: Metadata, protocol: Protocol) -> bool:
    """Whether what was written for ``before`` is right under ``after`` too (OCC-7, IDENT-6).

    So it is if identity columns have moved on, or deletion vectors may be written from now on, and nothing else differs.
    """
    keys = before.configuration.keys() | after.configuration.keys()
    changed = {key for key in keys if before.configuration.get(key) != after.configuration.get(key)}
    vectors = after.configuration.get(_DELETION_VECTORS, "").lower() == "true"
    if changed and not (changed == {_DELETION_VECTORS} and vectors and "deletionVectors" in _features(protocol)):
        return False
    if replace(before, schema_string="", configuration={}) != replace(after, schema_string="", configuration={}):
        return False
    return before.schema_string == after.schema_string or _without_marks(before) == _without_marks(after)


def _without_marks(metadata: Metadata) -> tuple[StructField, ...]:
    """The columns, but for the high-water marks of identity columns."""
    return tuple(
        replace(item, metadata={key: value for key, value in item.metadata.items() if key != _HIGH_WATER_MARK})
        for item in parse_schema(metadata.schema_string).fields
    )


def _transactions(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """OCC-11."""
    mine = pending.read_set.transactions | pending.app_ids
    both = sorted(
        transaction.app_id
        for transaction in winner.transactions
        if transaction.app_id in mine or (transaction.app_id, transaction.version) in pending.noted_transactions
    )
    if not both:
        return None
    return _conflict(
        ConflictKind.CONCURRENT_TRANSACTION, winner, f"It recorded a txn of the same application {both[0]!r}."
    )


def _domains(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """OCC-11, DOM-7."""
    mine = (pending.read_set.domains | pending.domains) - _MERGED_DOMAINS
    both = sorted(mine & {domain.domain for domain in winner.domains})
    if not both:
        return None
    return _conflict(ConflictKind.CONCURRENT_DOMAIN, winner, f"It wrote the same metadata domain {both[0]!r}.")


def _appends(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """OCC-8, OCC-12. Under WriteSerializable a blind append may be put before or after a reader, whichever suits."""
    if not winner.adds.num_rows or pending.isolation is IsolationLevel.SNAPSHOT:
        return None
    # Whoever removes files has read them, whatever the flag says.
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
    """OCC-9. A rearrangement moved rows without changing them; what was read still holds after it (OCC-12)."""
    if not winner.removes.num_rows or not winner_changes_rows(winner):
        return None
    if pending.read_set.whole_table:
        return _conflict(ConflictKind.CONCURRENT_DELETE_READ, winner, "It removed files, and the whole table was read.")
    suspects = _suspects(pending, winner.removes)
    if not suspects.num_rows:
        return None
    # A remove says little of the rows that go: the file, as it was added, does. It need not be a file that was read:
    # a rearrangement may have moved the rows that were. Of a file that is not known nothing can be excluded.
    removed, all_known = pending.files.find(suspects.column("path"))
    predicate = _first_match(pending, removed) if all_known else pending.read_set.predicates[0]
    if predicate is None:
        return None
    return _conflict(
        ConflictKind.CONCURRENT_DELETE_READ,
        winner,
        f"It removed files that may hold rows read here: {short_sql(predicate)}.",
    )


def _suspects(pending: PendingCommit, removes: pa.Table) -> pa.Table:
    """Removed files that may have been read, as far as the removes tell; a remove that does not name its partition, or
    not whole, may have been of any (FILE-9).
    """
    values = removes.column("partitionValues")
    named = pc.and_(pc.fill_null(removes.column("extendedFileMetadata"), False), pc.is_valid(values))
    for column in pending.partition_columns:
        # All occurrences: the first one of a key whose value is NULL looks like that of a key that is not there.
        named = pc.and_(named, pc.is_valid(pc.map_lookup(values, query_key=column, occurrence="all")))
    adds = _as_adds(removes)
    suspect = pc.invert(named)
    for predicate in pending.read_set.predicates:
        mask = keep_mask(adds, predicate, schema=pending.schema, partition_columns=pending.partition_columns)
        suspect = pc.or_(suspect, mask)
    return removes.filter(suspect) if pending.read_set.predicates else removes.slice(0, 0)


def _deletes_of_removed(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """OCC-10: whatever its deletion vector, a file goes once."""
    if not winner.removes.num_rows or not pending.removed:
        return None
    keys = file_keys(location, winner.removes.column("path"))
    hit = keys.filter(pc.is_in(keys, value_set=pa.array(sorted(pending.removed), pa.string())))
    if not len(hit):
        return None
    return _conflict(
        ConflictKind.CONCURRENT_DELETE_DELETE, winner, f"Both remove the file {hit[0].as_py()} ({len(hit)} in all)."
    )


def winner_changes_rows(winner: CommitActions) -> bool:
    """Whether some ``remove`` of the winner changes data; a remove without the field counts as one that does."""
    return bool(pc.any(pc.fill_null(winner.removes.column("dataChange"), True)).as_py() or False)


def _first_match(pending: PendingCommit, files: pa.Table) -> Predicate | None:
    """The first predicate read for which some of ``files`` may hold a row."""
    for predicate in pending.read_set.predicates:
        mask = keep_mask(files, predicate, schema=pending.schema, partition_columns=pending.partition_columns)
        if pc.any(mask).as_py():
            return predicate
    return None


def _as_adds(removes: pa.Table) -> pa.Table:
    """Removed files as data skipping takes them; what a ``remove`` lacks is null, which excludes nothing."""
    columns = {name: removes.column(name) for name in ADD_SCHEMA.names if name in removes.schema.names}
    count = removes.num_rows
    for field in ADD_SCHEMA:
        columns.setdefault(field.name, pa.nulls(count, field.type))
    return pa.table(columns, schema=ADD_SCHEMA)
