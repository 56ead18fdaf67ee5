"""The check that the proposer of a commit has the privileges which the content of the commit requires."""

from dataclasses import replace

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.ratification import proposal_check
from cm_delta_dagster.catalog.sql.ratification.context import Accepted, CommitContext, ProposalKind
from cm_delta_dagster.catalog.sql.rows import application_ids
from cm_delta_dagster.errors import CommitRefusedError, CorruptLogError
from cm_delta_dagster.protocol.commits.commit_content import CommitContent
from cm_delta_dagster.remedies import ResetApplicationId

NAME = guard.RULE

_OF_UNKNOWN_CONTENT = (Privilege.MODIFY, Privilege.ALTER)
_ONE_OF_A_KIND = ("", "metaData", "protocol")
"""Actions of which readers use one, and the empty name of a line that is not JSON."""


def check(connection: sa.Connection, context: CommitContext) -> Accepted | None:
    """Check the proposal. Returns what the catalog stores of it, without what its content does not show.

    Raises CommitRefusedError if the caller lacks a privilege, CommitRejectedError if the content is not that of the
    proposal.
    """
    if context.kind is not ProposalKind.PROPOSED:
        # Registration requires its privilege by itself. A published commit exists already, and a reader may record it.
        return None
    _reject_other_content(context)
    required = required_privileges(context.content)
    privileges = context.reads.privileges
    taken = None if Privilege.ALTER in privileges else _taken_application_id(connection, context)
    if taken is not None:
        required = tuple(dict.fromkeys((*required, Privilege.ALTER)))
    lacking = tuple(privilege for privilege in required if privilege not in privileges)
    if not lacking:
        return _accepted(context, privileges)
    what = f"The commit of version {context.proposal.version} to {context.identifier}"
    refusal = guard.missing(connection, what, lacking, on=str(context.identifier), table_id=context.table_id)
    if taken is None:
        raise CommitRefusedError(str(refusal), refusal=refusal)
    app_id, principal = taken
    why = f"; the principal {principal} set the application id {app_id!r} of its txn last, which requires alter"
    refusal = replace(refusal, reason=f"{refusal.reason}{why}")
    remedy = ResetApplicationId(table=str(context.identifier), app_id=app_id)
    raise CommitRefusedError(str(refusal), refusal=refusal).with_remedy(remedy)


def _taken_application_id(connection: sa.Connection, context: CommitContext) -> tuple[str, str] | None:
    """An application id in a ``txn`` of the commit that another principal set last, with that principal."""
    transactions = () if context.actions is None else context.actions.transactions
    app_ids = tuple(transaction.app_id for transaction in transactions)
    return application_ids.of_another(connection, context.table_id, app_ids, context.caller)


def required_privileges(content: CommitContent | None) -> tuple[Privilege, ...]:
    """The privileges for a commit with this content; for an unknown content those for every content."""
    if content is None or content.has_other_lines or content.lacks_fields:
        return _OF_UNKNOWN_CONTENT
    required = []
    if content.removes_rows:
        required.append(Privilege.MODIFY)
    if content.metadata or content.protocol or content.sets_other_domains or not content.advances_row_ids:
        required.append(Privilege.ALTER)
    if content.files_rearranged and not content.removes_rows:
        required.append(Privilege.MAINTAIN)
    if content.files_added or not required:
        required.append(Privilege.APPEND)
    return tuple(dict.fromkeys(required))


def _reject_other_content(context: CommitContext) -> None:
    """Reject content that readers do not read as the checks do, or that is not the one that the proposal describes."""
    data, decoded = context.data, context.decoded
    if data is None:
        return
    wrong: str | None
    if b"\r" in data:
        wrong = "content that has a carriage return, at which some readers end a line"
    elif isinstance(decoded, CorruptLogError) and decoded.action in _ONE_OF_A_KIND and decoded.field is None:
        wrong = f"content that is not a commit ({decoded})"
    else:
        wrong = (
            None
            if isinstance(decoded, CorruptLogError)
            else proposal_check.contradiction(context.proposal, data, context.proposal.checked)
        )
    if wrong is not None:
        raise proposal_check.contradicted(context.proposal, wrong)


def _accepted(context: CommitContext, privileges: frozenset[Privilege]) -> Accepted:
    """What the catalog stores of a checked proposal.

    Commit rules compare later commits with the stored definition, which only an owner may state. A version that is falsely
    reported as published must not delete the only copy of a commit.
    """
    proposal, actions = context.proposal, context.actions
    keeps_inline = Privilege.MAINTAIN not in privileges
    if Privilege.OWN in privileges:
        return Accepted(proposal=proposal, keeps_inline=keeps_inline)
    if actions is None:
        unstated = replace(proposal, metadata=None, protocol=None)
        return Accepted(proposal=unstated, forgets_definition=True, keeps_inline=keeps_inline)
    changes_data = actions.has_data_change or actions.metadata is not None
    shown = replace(
        proposal,
        metadata=actions.metadata,
        protocol=proposal.protocol if actions.metadata is not None else actions.protocol,
        summary=replace(proposal.summary, data_change=changes_data),
    )
    return Accepted(proposal=shown, keeps_inline=keeps_inline)


def keeps_inline(connection: sa.Connection, table_id: str) -> bool:
    """Whether a report of a published version by the caller leaves the content of inline commits."""
    return guard.is_enabled(connection) and Privilege.MAINTAIN not in guard.held_on_table(connection, table_id)
