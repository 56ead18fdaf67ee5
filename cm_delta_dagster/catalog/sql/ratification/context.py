"""What a check of ``checks`` knows of a proposal."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeAlias

import sqlalchemy as sa

from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.ratification.check_reads import CheckReads
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions.commit_json import CommitActions, decode_commit
from cm_delta_dagster.protocol.commits.commit_content import CommitContent, content_of
from cm_delta_dagster.protocol.commits.commit_fingerprint import fingerprint
from cm_delta_dagster.protocol.commits.proposal_checks.content import MAX_CHECKED_BYTES
from cm_delta_dagster.refusals import Refusal


class ProposalKind(StrEnum):
    """How a commit reaches the catalog."""

    PROPOSED = "proposed"
    """It is not a commit until the catalog ratifies it."""

    PUBLISHED = "published"
    """Its published file exists, made put-if-absent: it is a commit already, and a refusal makes the table unreadable."""

    REGISTERED = "registered"
    """It is version 0 of a table that gets its name."""


def stated_bytes(proposal: CommitProposal) -> bytes | None:
    """The bytes of a commit; None if they are not known. The proposal passed ``proposal_check.check_bytes``."""
    return proposal.content_to_check if proposal.content is None else proposal.content


def checked_bytes(proposal: CommitProposal) -> bytes | None:
    """The bytes of a commit for its checks; None if they are not known, or have more than ``MAX_CHECKED_BYTES``.

    Args:
        proposal: passed ``proposal_check.check_bytes``, so that the bytes are those of the commit.
    """
    data = stated_bytes(proposal)
    return None if data is None or len(data) > MAX_CHECKED_BYTES else data


@dataclass(frozen=True, kw_only=True)  # Without slots: the content is computed once.
class CommitContext:
    """One proposal before it is accepted.

    Attributes:
        head: the locked row of the table, with the columns of ``locked_heads.locked_head``; None for REGISTERED.
        caller: principal of the proposer; None if it stated no name.
        now_ms: the catalog's clock.
        reads: what the checks read of the database.
    """

    table_id: str
    identifier: TableIdentifier
    proposal: CommitProposal
    head: Any
    caller: str | None
    now_ms: int
    reads: CheckReads
    kind: ProposalKind = ProposalKind.PROPOSED

    @cached_property
    def data(self) -> bytes | None:
        """The bytes of the commit, as :func:`checked_bytes`."""
        checked = self.proposal.checked
        return checked_bytes(self.proposal) if checked is None else checked.data

    @cached_property
    def decoded(self) -> CommitActions | CorruptLogError | None:
        """The actions of the commit, or why it cannot be read; None as for :attr:`data`."""
        version, checked = self.proposal.version, self.proposal.checked
        try:
            if checked is not None:
                return checked.actions(version=version)
            return None if self.data is None else decode_commit(self.data, version=version)
        except CorruptLogError as error:
            return error

    @property
    def actions(self) -> CommitActions | None:
        """The actions of the commit; None if its content is not known, or is damaged.

        A check must then assume that the commit does whatever the check refuses.
        """
        return None if isinstance(self.decoded, CorruptLogError) else self.decoded

    @cached_property
    def content(self) -> CommitContent | None:
        """What the commit does; None as for :attr:`actions`."""
        if self.actions is None:
            return None
        checked = self.proposal.checked
        return content_of(self.actions) if checked is None else checked.content

    @property
    def fingerprint(self) -> str | None:
        """What identifies the commit whatever its version; None as for :attr:`actions`."""
        checked = self.proposal.checked
        if checked is None:
            return None if self.actions is None else fingerprint(self.actions)
        try:
            return checked.fingerprint
        except CorruptLogError:
            return None

    def refusal(self, *, rule: str, scope: str, reason: str) -> Refusal:
        """The refusal of this proposal; add ``set_by`` and ``ask`` with ``dataclasses.replace`` where they are known."""
        what = f"The commit of version {self.proposal.version} to {self.identifier}"
        return Refusal(what=what, reason=reason, rule=rule, scope=scope, table_id=self.table_id)


def context_of(
    connection: sa.Connection,
    table_id: str,
    proposal: CommitProposal,
    head: Any,
    *,
    identifier: TableIdentifier,
    kind: ProposalKind,
    reads: CheckReads | None = None,
) -> CommitContext:
    """What the checks of the proposal know of it."""
    return CommitContext(
        table_id=table_id,
        identifier=identifier,
        proposal=proposal,
        head=head,
        caller=caller_of(connection),
        now_ms=now_of(connection),
        kind=ProposalKind.REGISTERED if head is None else kind,
        reads=reads or CheckReads(connection, table_id),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What the catalog stores of a proposal.

    Attributes:
        forgets_definition: whether the stored definition may be wrong afterwards.
        keeps_inline: whether the content of inline commits stays although they are reported as published.
    """

    proposal: CommitProposal
    forgets_definition: bool = False
    keeps_inline: bool = False


Check: TypeAlias = Callable[[sa.Connection, CommitContext], Accepted | None]
"""Raises CommitRefusedError, or returns what the catalog stores; None for the proposal as it is.

It runs in the transaction that ratifies the proposal, under the lock of the row.
"""
