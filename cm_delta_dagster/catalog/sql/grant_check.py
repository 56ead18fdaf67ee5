"""The check that the proposer of a commit has the privileges which the content of the commit requires."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.sql import guard
from cm_delta_dagster.catalog.sql.commit_context import CommitContext, ProposalKind
from cm_delta_dagster.errors import CommitRefusedError, CorruptLogError
from cm_delta_dagster.protocol.actions.actions import DomainMetadata
from cm_delta_dagster.protocol.commits.commit_content import CommitContent
from cm_delta_dagster.protocol.features import row_tracking

NAME = guard.RULE

_OF_UNKNOWN_CONTENT = (Privilege.MODIFY, Privilege.ALTER)


def check(connection: sa.Connection, context: CommitContext) -> None:
    """Raises CommitRefusedError if the caller lacks a privilege."""
    if context.kind is not ProposalKind.PROPOSED:
        # Registration requires its privilege by itself. A published commit exists already, and a reader may record it.
        return
    required = required_privileges(context.content)
    held = guard.held_on_table(connection, context.table_id)
    lacking = tuple(privilege for privilege in required if privilege not in held)
    if not lacking:
        return
    what = f"The commit of version {context.proposal.version} to {context.identifier}"
    refusal = guard.missing(connection, what, lacking, on=str(context.identifier), table_id=context.table_id)
    raise CommitRefusedError(str(refusal), refusal=refusal)


def required_privileges(content: CommitContent | None) -> tuple[Privilege, ...]:
    """The privileges for a commit with this content; for an unknown content those for every content."""
    if content is None:
        return _OF_UNKNOWN_CONTENT
    required = []
    if content.removes_rows:
        required.append(Privilege.MODIFY)
    if content.metadata or content.protocol or not all(map(_only_assigns_row_ids, content.domains)):
        required.append(Privilege.ALTER)
    if content.files_rearranged and not content.removes_rows:
        required.append(Privilege.MAINTAIN)
    if content.files_added or not required:
        required.append(Privilege.APPEND)
    return tuple(dict.fromkeys(required))


def _only_assigns_row_ids(domain: DomainMetadata) -> bool:
    """Whether the action is that of a commit which adds files to a table with row tracking."""
    if domain.domain != row_tracking.DOMAIN or domain.removed:
        return False
    try:
        return row_tracking.high_water_mark({domain.domain: domain}) >= 0
    except CorruptLogError:
        return False
