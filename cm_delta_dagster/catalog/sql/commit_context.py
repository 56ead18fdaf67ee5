"""What a check of ``commit_checks`` knows of a proposal."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeAlias

import sqlalchemy as sa

from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import CorruptLogError, Refusal
from cm_delta_dagster.protocol.commits.commit_content import CommitContent, content_of


class ProposalKind(StrEnum):
    """How a commit reaches the catalog."""

    PROPOSED = "proposed"
    """It is not a commit until the catalog ratifies it."""

    PUBLISHED = "published"
    """Its published file exists, made put-if-absent: it is a commit already, and a refusal makes the table unreadable."""

    REGISTERED = "registered"
    """It is version 0 of a table that gets its name."""


@dataclass(frozen=True, kw_only=True)  # Without slots: the content is computed once.
class CommitContext:
    """One proposal before it is accepted.

    Attributes:
        head: the locked row of the table, with the columns of ``commits.locked_head``; None for REGISTERED.
        caller: principal of the proposer; None if it stated no name.
        now_ms: the catalog's clock.
    """

    table_id: str
    identifier: TableIdentifier
    proposal: CommitProposal
    head: Any
    caller: str | None
    now_ms: int
    kind: ProposalKind = ProposalKind.PROPOSED

    @cached_property
    def content(self) -> CommitContent | None:
        """What the commit does; None if its content is not known, does not have the proposed size or digest, or is damaged.

        A check must then assume that the commit does whatever the check refuses.
        """
        proposal = self.proposal
        data = proposal.content_to_check if proposal.content is None else proposal.content
        if data is None or len(data) != proposal.file_size:
            return None
        if proposal.sha256 is not None and hashlib.sha256(data).hexdigest() != proposal.sha256:
            return None
        try:
            return content_of(data, version=proposal.version)
        except CorruptLogError:
            return None

    def refusal(self, *, rule: str, scope: str, reason: str) -> Refusal:
        """The refusal of this proposal; add ``set_by`` and ``ask`` with ``dataclasses.replace`` where they are known."""
        what = f"The commit of version {self.proposal.version} to {self.identifier}"
        return Refusal(what=what, reason=reason, rule=rule, scope=scope, table_id=self.table_id)


Check: TypeAlias = Callable[[sa.Connection, CommitContext], None]
"""Raises CommitRefusedError, or returns. It runs in the transaction that ratifies the proposal, under the lock of the row."""
