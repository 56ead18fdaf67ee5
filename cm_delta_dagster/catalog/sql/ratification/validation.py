"""Checks of the content of proposals for every caller, before the transaction that ratifies them.

Only :func:`check_definition`, which compares with the stored definition, runs within that transaction.

What the bytes of a commit decide is checked by :mod:`~cm_delta_dagster.protocol.commits.proposal_checks.content`. A proposal whose
content is not known or too large is not checked.

The record of a commit that was made put-if-absent is not refused: its file is the commit already, and without the record the
catalog could ratify no later version, and an owner could not take the commit back. A warning names it. Commits that recovery and
adoption record are not checked, for the same reason; both read each of them first.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.ratification import CommitProposal, InitialCommit
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.ratification import proposal_check
from cm_delta_dagster.catalog.sql.ratification.check_reads import CheckReads
from cm_delta_dagster.catalog.sql.ratification.context import checked_bytes, has_size_and_digest
from cm_delta_dagster.catalog.sql.rows import definitions, locations
from cm_delta_dagster.errors import CommitRefusedError, CommitRejectedError, CorruptLogError, IllegalCommitError
from cm_delta_dagster.protocol.actions.paths import canonical_location, resolve_path
from cm_delta_dagster.protocol.commits.proposal_checks.content import (
    MAX_CHECKED_BYTES,
    CheckedContent,
    check_content,
    illegal,
)
from cm_delta_dagster.protocol.commits.proposal_checks.features import flaw_of_features

_SMALL_BYTES = 64 * 1024
"""Parsing less takes less time than to ask the database for the privileges of the caller."""

_COMMITS = (Privilege.APPEND, Privilege.MODIFY, Privilege.ALTER, Privilege.MAINTAIN)


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
        IllegalCommitError: names the action and the field. Nothing was ratified.
        CommitRejectedError: the proposal contradicts the content that the catalog is to store.
        CommitRefusedError: the caller has no privilege to commit to the table.
    """
    return {
        table_id: _checked(database, table_id, proposal, with_fingerprint or proposal.approval_id is not None)
        for table_id, proposal in proposals.items()
    }


def _checked(
    database: CallerDatabase, table_id: str, proposal: CommitProposal, with_fingerprint: bool
) -> CommitProposal:
    is_small = max(len(proposal.content or b""), len(proposal.content_to_check or b"")) < _SMALL_BYTES

    def require_privilege() -> bool:
        return database.read(lambda connection: _require_privilege(connection, table_id, proposal))

    has_checks = False if is_small else require_privilege()
    try:
        data = checked_bytes(proposal)
        content = None if data is None else check_content(data)
        proposal_check.check_stored_content(proposal, content)
        if content is not None and content.absolute_paths:
            # The row is not locked: the columns about the place of a table never change.
            location = database.read(lambda connection: locations.own_location(connection, table_id))
            _check_paths(location, content.absolute_paths)
    except (IllegalCommitError, CommitRejectedError):
        if is_small:
            require_privilege()
        raise
    if content is not None and not is_small and (has_checks or with_fingerprint):
        _compute(content, with_fingerprint=with_fingerprint)
    return replace(proposal, checked=content)


def _compute(content: CheckedContent, *, with_fingerprint: bool) -> None:
    """Compute what the active checks will ask for, which takes long for a large commit, before rows are locked."""
    with suppress(CorruptLogError):
        _ = content.content
        if with_fingerprint:
            _ = content.fingerprint


def check_initial(
    database: CallerDatabase, table_id: str, initial: InitialCommit | None, *, operation: str
) -> InitialCommit | None:
    """Check the content of version 0 as :func:`check`. Returns it with what was parsed of it. Raises IllegalCommitError."""
    data = None if initial is None else initial.content_to_check or initial.content
    if initial is None or data is None or len(data) > MAX_CHECKED_BYTES:
        return initial
    content = check_content(data)
    if content.absolute_paths:
        location = database.read(
            lambda connection: locations.location_to_create(connection, table_id, operation=operation)
        )
        _check_paths(location, content.absolute_paths)
    is_proposed = has_size_and_digest(data, size=initial.file_size, sha256=initial.sha256)
    return replace(initial, checked=content if is_proposed else None)


def read_published(proposal: CommitProposal) -> tuple[CommitProposal, str | None]:
    """A commit that was made put-if-absent, with what was parsed of it, and why the catalog would not have ratified it.

    Returns:
        The proposal, and a sentence; None instead of the sentence if the catalog would have ratified it, or does not know its
        content.
    """
    data = checked_bytes(proposal)
    try:
        return replace(proposal, checked=None if data is None else check_content(data)), None
    except IllegalCommitError as error:
        return replace(proposal, checked=None), str(error)


def _require_privilege(connection: sa.Connection, table_id: str, proposal: CommitProposal) -> bool:
    """Refuse a caller that may not commit to the table. Returns whether a check is active for the table."""
    reads = CheckReads(connection, table_id)
    if not guard.is_enabled(connection) or not reads.privileges.isdisjoint(_COMMITS):
        return bool(reads.active)
    identifier = guard.identifier_of_table(connection, table_id)
    if identifier is None:  # The transaction raises TableNotFoundError.
        return False
    what = f"The commit of version {proposal.version} to {identifier}"
    refusal = guard.missing(connection, what, _COMMITS[:1], on=str(identifier), table_id=table_id)
    raise CommitRefusedError(str(refusal), refusal=refusal)


def check_definition(connection: sa.Connection, table_id: str, proposal: CommitProposal) -> None:
    """Refuse metadata and protocol of which the commit sets one, if they do not fit together. The row of the table is locked."""
    if proposal.checked is None or (proposal.checked.metadata is None) == (proposal.checked.protocol is None):
        return
    stored_metadata, stored_protocol = definitions.stored(connection, table_id)
    metadata, protocol = proposal.checked.metadata or stored_metadata, proposal.checked.protocol or stored_protocol
    flaw = None if metadata is None or protocol is None else flaw_of_features(metadata, protocol)
    if flaw is not None:
        raise illegal(flaw)


def _check_paths(location: str | None, paths: tuple[str, ...]) -> None:
    """Refuse paths that are not below ``location``; None permits all."""
    if location is None:
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
