"""Checks of the content of proposals for every caller, before the transaction that ratifies them.

What the bytes of a commit decide is checked by :mod:`~cm_delta_dagster.protocol.commits.proposal_checks.content`. A proposal whose
content is not known or too large is not checked. The record of a published commit is not checked either: its file is the commit
already, so that a refusal would not keep readers from it.
"""

from collections.abc import Mapping
from dataclasses import replace

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.ratification import CommitProposal, InitialCommit
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.ratification.context import checked_bytes
from cm_delta_dagster.catalog.sql.rows import locations
from cm_delta_dagster.errors import CommitRefusedError, IllegalCommitError
from cm_delta_dagster.protocol.actions.paths import canonical_location, resolve_path
from cm_delta_dagster.protocol.commits.proposal_checks.content import MAX_CHECKED_BYTES, check_content

_SMALL_BYTES = 64 * 1024
"""Parsing less takes less time than to ask the database for the privileges of the caller."""

_COMMITS = (Privilege.APPEND, Privilege.MODIFY, Privilege.ALTER, Privilege.MAINTAIN)


def check(database: CallerDatabase, proposals: Mapping[str, CommitProposal]) -> Mapping[str, CommitProposal]:
    """Check the content of proposals by the ids of their tables.

    A caller that may not commit to the table at all is refused first, and only small content is parsed for it.

    Returns:
        The proposals with what was parsed of them.

    Raises:
        IllegalCommitError: names the action and the field. Nothing was ratified.
        CommitRefusedError: the caller has no privilege to commit to the table.
    """
    return {table_id: _checked(database, table_id, proposal) for table_id, proposal in proposals.items()}


def _checked(database: CallerDatabase, table_id: str, proposal: CommitProposal) -> CommitProposal:
    data = checked_bytes(proposal)
    if data is None:
        return replace(proposal, checked=None)
    is_small = len(data) < _SMALL_BYTES

    def require_privilege() -> None:
        database.read(lambda connection: _require_privilege(connection, table_id, proposal))

    if not is_small:
        require_privilege()
    try:
        content = check_content(data)
        if content.absolute_paths:
            database.read(lambda connection: _check_paths(connection, table_id, content.absolute_paths))
    except IllegalCommitError:
        if is_small:
            require_privilege()
        raise
    return replace(proposal, checked=content)


def check_initial(initial: InitialCommit | None) -> None:
    """Check the content of version 0 as :func:`check`, without its paths. Raises IllegalCommitError."""
    data = None if initial is None else initial.content
    if data is not None and len(data) <= MAX_CHECKED_BYTES:
        check_content(data)


def _require_privilege(connection: sa.Connection, table_id: str, proposal: CommitProposal) -> None:
    if not guard.is_enabled(connection) or not guard.held_on_table(connection, table_id).isdisjoint(_COMMITS):
        return
    identifier = guard.identifier_of_table(connection, table_id)
    if identifier is None:  # The transaction raises TableNotFoundError.
        return
    what = f"The commit of version {proposal.version} to {identifier}"
    refusal = guard.missing(connection, what, _COMMITS[:1], on=str(identifier), table_id=table_id)
    raise CommitRefusedError(str(refusal), refusal=refusal)


def _check_paths(connection: sa.Connection, table_id: str, paths: tuple[str, ...]) -> None:
    """Refuse paths outside of the table. The columns that decide it never change, so that they are read without a lock."""
    location = locations.own_location(connection, table_id)
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
