"""Conflict resolution (protocol "Commit protocol"; the rules of delta-spark, OCC-5 to OCC-14). Room: protocol.

Pure: handed what a transaction read and wants to change, and one winning commit, it says whether both can stand. Read
sets are predicates, so that writes to different partitions do not get in each other's way.
"""

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from cm_delta_dagster.protocol.action_json import CommitActions
from cm_delta_dagster.protocol.data_skipping import keep_mask
from cm_delta_dagster.protocol.file_actions import ADD_SCHEMA
from cm_delta_dagster.protocol.path_encoding import file_keys
from cm_delta_dagster.protocol.predicates import Predicate, to_sql
from cm_delta_dagster.protocol.schema import StructType


class IsolationLevel(StrEnum):
    """``delta.isolationLevel``."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"


class ConflictKind(StrEnum):
    """Names as delta-spark's exceptions have them."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommit:
    """A transaction that lost a race.

    Attributes:
        removed: normalised paths of the files that it removes.
        app_ids: applications whose ``txn`` it writes and whose other writers it excludes.
        noted_transactions: pairs of application and version that it records without excluding other versions.
    """

    read_set: ReadSet
    removed: frozenset[str]
    metadata_changed: bool
    protocol_changed: bool
    app_ids: frozenset[str]
    domains: frozenset[str]
    is_blind_append: bool
    data_change: bool
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
    for check in (_protocol, _metadata, _transactions, _domains, _deletes, _appends):
        conflict = check(pending, winner, location)
        if conflict is not None:
            return conflict
    return None


def _conflict(kind: ConflictKind, winner: CommitActions, message: str) -> Conflict:
    return Conflict(kind=kind, version=winner.version, message=message)


def _protocol(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """OCC-6. Prepared files may miss what a new feature asks for, so that only a pure append of files goes on."""
    if winner.protocol is None:
        return None
    if pending.protocol_changed:
        return _conflict(ConflictKind.PROTOCOL_CHANGED, winner, "Both change the table's protocol.")
    return _conflict(
        ConflictKind.PROTOCOL_CHANGED, winner, "It changed the table's protocol, and the files written may not meet it."
    )


def _metadata(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """OCC-7."""
    if winner.metadata is None:
        return None
    return _conflict(
        ConflictKind.METADATA_CHANGED, winner, "It changed the table's schema, partitioning or properties."
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
    mine = pending.read_set.domains | pending.domains
    both = sorted(mine & {domain.domain for domain in winner.domains})
    if not both:
        return None
    return _conflict(ConflictKind.CONCURRENT_DOMAIN, winner, f"It wrote the same metadata domain {both[0]!r}.")


def _deletes(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """OCC-9, OCC-10."""
    if not winner.removes.num_rows:
        return None
    keys = file_keys(location, winner.removes.column("path"))
    if pending.removed:
        hit = keys.filter(pc.is_in(keys, value_set=pa.array(sorted(pending.removed), pa.string())))
        if len(hit):
            return _conflict(
                ConflictKind.CONCURRENT_DELETE_DELETE,
                winner,
                f"Both remove the file {hit[0].as_py()} ({len(hit)} in all).",
            )
    if not winner_changes_rows(winner):
        return None  # A rearrangement moved rows without changing them; what was read still holds (OCC-12).
    if pending.read_set.whole_table:
        return _conflict(ConflictKind.CONCURRENT_DELETE_READ, winner, "It removed files, and the whole table was read.")
    named = pc.and_(
        pc.fill_null(winner.removes.column("extendedFileMetadata"), False),
        pc.is_valid(winner.removes.column("partitionValues")),
    )
    unknown = pending.partition_columns and not pc.all(named).as_py()
    if unknown and pending.read_set.predicates:
        # A remove without extended metadata does not say which partition it leaves (FILE-9): it may be any.
        return _conflict(
            ConflictKind.CONCURRENT_DELETE_READ, winner, "It removed files of partitions that it does not name."
        )
    predicate = _first_match(pending, _as_adds(winner.removes))
    if predicate is None:
        return None
    return _conflict(
        ConflictKind.CONCURRENT_DELETE_READ,
        winner,
        f"It removed files that may hold rows read here: {to_sql(predicate)}.",
    )


def _appends(pending: PendingCommit, winner: CommitActions, location: str) -> Conflict | None:
    """OCC-8, OCC-12. Under WriteSerializable a blind append may be put before or after a reader, whichever suits."""
    if not winner.adds.num_rows:
        return None
    changing = winner.adds.filter(pc.fill_null(winner.adds.column("dataChange"), True))
    if not changing.num_rows:
        return None
    # Whoever removes files has read them, whatever the flag says.
    blind = (
        winner.commit_info is not None and winner.commit_info.is_blind_append is True and not winner.removes.num_rows
    )
    if blind and pending.isolation is IsolationLevel.WRITE_SERIALIZABLE and not pending.metadata_changed:
        return None
    if not pending.data_change:
        return None  # A rearrangement depends only on the files that it removes, and those are checked above.
    if pending.read_set.whole_table:
        return _conflict(ConflictKind.CONCURRENT_APPEND, winner, "It added files, and the whole table was read.")
    predicate = _first_match(pending, changing)
    if predicate is None:
        return None
    return _conflict(
        ConflictKind.CONCURRENT_APPEND, winner, f"It added files that may hold rows for {to_sql(predicate)}."
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
