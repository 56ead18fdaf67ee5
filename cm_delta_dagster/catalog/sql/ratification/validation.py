"""Checks of the content of proposals for every caller, before the transaction that ratifies them.

Only :func:`check_definition`, which compares with the stored definition, runs within that transaction.

What the bytes of a commit decide is checked by :mod:`~cm_delta_dagster.protocol.commits.proposal_checks.content`. A proposal whose
content is not known or too large is not checked; one with the content of another commit is rejected.

The record of a commit that was made put-if-absent is not refused: its file is the commit already, and without the record the
catalog could ratify no later version, and an owner could not take the commit back. A warning names it. Commits that recovery and
adoption record are not checked, for the same reason; both read each of them first.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.ratification import CommitProposal, InitialCommit
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.database.schema import ACTIVE, STAGING, TABLES
from cm_delta_dagster.catalog.sql.ratification import proposal_check
from cm_delta_dagster.catalog.sql.ratification.check_reads import CheckReads
from cm_delta_dagster.catalog.sql.ratification.context import checked_bytes, stated_bytes
from cm_delta_dagster.catalog.sql.rows import definitions, locations, marks
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    CommitRefusedError,
    CommitRejectedError,
    CorruptLogError,
    IllegalCommitError,
    InvalidArgumentError,
    OperationRefusedError,
)
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.protocol.actions.paths import canonical_location, resolve_path
from cm_delta_dagster.protocol.commits.commit_validation import CommitFlaw
from cm_delta_dagster.protocol.commits.proposal_checks.changed_types import flaw_of_changed_types
from cm_delta_dagster.protocol.commits.proposal_checks.content import (
    MAX_CHECKED_BYTES,
    CheckedContent,
    check_content,
    illegal,
    readable_content,
)
from cm_delta_dagster.protocol.commits.proposal_checks.features import flaw_of_features, flaw_of_vectors
from cm_delta_dagster.protocol.commits.proposal_checks.partitions import partition_types
from cm_delta_dagster.protocol.commits.transaction_groups import flaw_of_groups

_SMALL_BYTES = 64 * 1024
"""Parsing less takes less time than to ask the database for the privileges of the caller."""

_RESERVED = sa.select(TABLES.c.table_id).where(
    TABLES.c.table_id == sa.bindparam("of_table"), TABLES.c.state.in_((STAGING, ACTIVE))
)
_COMMITS = (Privilege.APPEND, Privilege.MODIFY, Privilege.ALTER, Privilege.MAINTAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demands:
    """What the catalog demands of commits to a table: whether a check is active for it, and whether it has rules."""

    has_checks: bool = False
    has_rules: bool = False


def check(
    database: CallerDatabase, proposals: Mapping[str, CommitProposal], *, with_fingerprint: bool = False
) -> Mapping[str, CommitProposal]:
    """Check the content of proposals by the ids of their tables.

    A caller that may not commit to the table at all is refused first, and only small content is parsed for it.

    Args:
        with_fingerprint: whether the fingerprints will be asked for.

    Returns:
        The proposals with what was parsed of them.

    Raises:
        IllegalCommitError: names the action and the field, or the proposals are not the whole of the transaction over several
            tables that one of them names. Nothing was ratified.
        CommitRejectedError: the content is not that of the proposal, which may have none.
        CommitRefusedError: the caller has no privilege to commit to the table.
    """
    checked = {
        table_id: _checked(database, table_id, proposal, with_fingerprint or proposal.hold_id is not None)
        for table_id, proposal in proposals.items()
    }
    _check_groups(checked)
    return checked


def _check_groups(proposals: Mapping[str, CommitProposal]) -> None:
    """Refuse a part of a transaction over several tables, and parts of several ones."""
    versions = {table_id: proposal.version for table_id, proposal in proposals.items()}
    groups = {
        table_id: proposal.checked.transaction_group
        for table_id, proposal in proposals.items()
        if proposal.checked is not None
    }
    wrong = flaw_of_groups(versions, groups)
    if wrong is not None:
        table_id, flaw = wrong
        raise IllegalCommitError(
            f"The proposed commit to table {table_id} is not valid: {flaw}. Nothing was ratified. A catalog ratifies the "
            "commits of a transaction over several tables together; propose all of them in one call."
        )


def _checked(
    database: CallerDatabase, table_id: str, proposal: CommitProposal, with_fingerprint: bool
) -> CommitProposal:
    is_small = max(len(proposal.content or b""), len(proposal.content_to_check or b"")) < _SMALL_BYTES

    def require_privilege() -> _Demands:
        return database.read(lambda connection: _require_privilege(connection, table_id, proposal))

    demands = _Demands() if is_small else require_privilege()
    try:
        proposal_check.check_bytes(proposal)
        # Rules hold for commits of every size; without them large ones are ratified unchecked.
        data = stated_bytes(proposal) if demands.has_rules else checked_bytes(proposal)
        content = None if data is None else check_content(data)
        proposal_check.check_stored_content(proposal, content)
        if content is not None and content.absolute_paths:
            # The row is not locked: the columns about the place of a table never change.
            location = database.read(lambda connection: locations.own_location(connection, table_id))
            _check_paths(database, table_id, location, content.absolute_paths)
    except (IllegalCommitError, CommitRejectedError):
        if is_small:
            require_privilege()
        raise
    if content is not None and not is_small:
        _check_stored_partitions(database, table_id, content)
        if demands.has_checks or with_fingerprint:
            _compute(content, with_fingerprint=with_fingerprint)
    return replace(proposal, checked=content)


def _compute(content: CheckedContent, *, with_fingerprint: bool) -> None:
    """Compute what the active checks will ask for, which takes long for a large commit, before rows are locked."""
    with suppress(CorruptLogError):
        _ = content.content
        if with_fingerprint:
            _ = content.fingerprint


def check_initial(
    database: CallerDatabase,
    table_id: str,
    identifier: TableIdentifier,
    initial: InitialCommit | None,
    *,
    operation: str,
) -> InitialCommit | None:
    """Check the content of version 0 as :func:`check`. Returns it with what was parsed of it.

    Raises as :func:`check`; before large content is parsed TableNotFoundError, if the table is not reserved, and
    OperationRefusedError, if the caller may not create ``identifier``.
    """
    if initial is None:
        return None
    data = initial.content_to_check or initial.content
    if data is not None and len(data) >= _SMALL_BYTES:
        database.read(lambda connection: _require_reserved(connection, table_id, identifier))
    proposal_check.check_initial_bytes(initial)
    if data is None or len(data) > MAX_CHECKED_BYTES:
        return initial
    content = check_content(data)
    if content.absolute_paths:
        location = database.read(
            lambda connection: locations.location_to_create(connection, table_id, operation=operation)
        )
        _check_paths(database, table_id, location, content.absolute_paths)
    return replace(initial, checked=content)


def read_published(proposal: CommitProposal) -> tuple[CommitProposal, str | None]:
    """A commit that was made put-if-absent, with what can be read of it, and why the catalog would not have ratified it.

    Returns:
        The proposal, and a sentence; None instead of the sentence if the catalog would have ratified it, or does not know its
        content.
    """
    data = checked_bytes(proposal)
    try:
        return replace(proposal, checked=None if data is None else check_content(data)), None
    except IllegalCommitError as error:
        return replace(proposal, checked=None if data is None else readable_content(data)), str(error)


def _require_reserved(connection: sa.Connection, table_id: str, identifier: TableIdentifier) -> None:
    """Refuse a table that is not reserved, and a caller that may not create it under that name."""
    if connection.execute(_RESERVED, {"of_table": table_id}).first() is None:
        raise unknown_table(table_id)
    guard.require(connection, guard.Operation.CREATE, identifier)


def _require_privilege(connection: sa.Connection, table_id: str, proposal: CommitProposal) -> _Demands:
    """Refuse a table that does not exist, and a caller that may not commit to it."""
    identifier = guard.identifier_of_table(connection, table_id)
    if identifier is None:
        raise unknown_table(table_id)
    reads = CheckReads(connection, table_id)
    if not guard.is_enabled(connection) or not reads.privileges.isdisjoint(_COMMITS):
        return _Demands(has_checks=bool(reads.active), has_rules=bool(reads.rules))
    what = f"The commit of version {proposal.version} to {identifier}"
    refusal = guard.missing(connection, what, _COMMITS[:1], on=str(identifier), table_id=table_id)
    raise CommitRefusedError(str(refusal), refusal=refusal)


def check_definition(connection: sa.Connection, table_id: str, proposal: CommitProposal, head: Any) -> None:
    """Refuse what contradicts the metadata and the protocol of the table, or those that the commit sets beside them.

    Args:
        head: the locked row of the table.
    """
    content = proposal.checked
    if content is None or not (
        content.metadata or content.protocol or content.partitions.texts or content.adds_vectors
    ):
        return
    stored_metadata, stored_protocol = definitions.stored(connection, table_id)
    metadata, protocol = content.metadata or stored_metadata, content.protocol or stored_protocol
    if content.adds_vectors and protocol is not None and (flaw := flaw_of_vectors(protocol)) is not None:
        raise illegal(flaw)
    if metadata is None or protocol is None:
        return
    sets_one = (content.metadata is None) != (content.protocol is None)
    flaw = flaw_of_features(metadata, protocol) if sets_one else None
    flaw = flaw or _flaw_of_partitions(content, metadata, protocol)
    if flaw is None and content.metadata is not None and stored_metadata is not None:
        before = stored_metadata, stored_protocol or protocol
        flaw = flaw_of_changed_types(before, (metadata, protocol), operation=content.operation)
        if flaw is not None and content.marks.removes_all(marks.num_files(connection, table_id, head)):
            flaw = None
    if flaw is not None:
        raise illegal(flaw)


def _flaw_of_partitions(content: CheckedContent, metadata: Metadata, protocol: Protocol) -> CommitFlaw | None:
    """The first partition value without the type of its column; None if the definition of the table is damaged."""
    if not content.partitions.texts:
        return None
    with suppress(CorruptLogError, InvalidArgumentError):
        return content.partitions.flaw_for(partition_types(metadata, protocol))
    return None


def _check_stored_partitions(database: CallerDatabase, table_id: str, content: CheckedContent) -> None:
    """Check many partition values before the row of the table is locked. The answer is used if the columns stay until then."""
    if not content.partitions.texts or content.metadata is not None:
        return
    metadata, protocol = database.read(lambda connection: definitions.stored(connection, table_id))
    protocol = content.protocol or protocol
    if metadata is not None and protocol is not None:
        _flaw_of_partitions(content, metadata, protocol)


def _check_paths(database: CallerDatabase, table_id: str, location: str | None, paths: tuple[str, ...]) -> None:
    """Refuse paths that are not below ``location``; None permits all but those in tables that the caller may not read."""
    if location is None:
        database.read(lambda connection: _require_readable(connection, table_id, paths))
        return
    root = canonical_location(location).rstrip("/") + "/"
    outside = next(
        (path for path in paths if not canonical_location(resolve_path(location, path)).startswith(root)), ""
    )
    if outside:
        raise IllegalCommitError(
            f"The proposed commit is not valid: the path {outside!r} is outside of the table at {location}. Nothing was ratified. "
            "Only shallow clones, adopted and external tables may have files elsewhere; copy the file below the table."
        )


def _require_readable(connection: sa.Connection, table_id: str, paths: tuple[str, ...]) -> None:
    """Refuse files of another table that the caller may not read: who reads this table would read them. Sources of a clone are
    exempt, because the clone was permitted.

    Raises CommitRefusedError.
    """
    if not guard.is_enabled(connection):
        return
    for other_id in locations.tables_with_files(connection, paths, apart_from=table_id):
        try:
            guard.require_on_table(connection, guard.Operation.READ, other_id)
        except OperationRefusedError as error:
            raise CommitRefusedError(
                f"{error} The commit to table {table_id} names files of that table.", refusal=error.refusal
            ) from error
