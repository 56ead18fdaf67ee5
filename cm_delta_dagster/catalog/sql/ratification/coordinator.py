"""The part of the catalog that ratifies commits: the one path from a proposal to its outcome."""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager

import sqlalchemy as sa

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.holds import Hold, HoldRequest
from cm_delta_dagster.catalog.ratification import (
    MAX_CLOCK_DIFFERENCE_MS,
    CommitOutcome,
    CommitProposal,
    MultiTableOutcome,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    RatifiedTogether,
    VersionTaken,
)
from cm_delta_dagster.catalog.sql.database.callers import now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.ratification import commits, holds, proposal_check, records, validation
from cm_delta_dagster.catalog.sql.rows import marks
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.remedies import TakeBackCommit

_log = logging.getLogger(__name__)


class SqlCommitCoordinator(Part):
    """Implements :class:`~cm_delta_dagster.catalog.commit_coordinator.CommitCoordinator`."""

    def now_ms(self) -> int:
        """The catalog's clock. Raises CatalogUnavailableError."""
        return self._database.now_ms()

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        """Ratify. Raises CommitRejectedError, TableNotFoundError, CatalogUnavailableError (unknown commit outcome)."""
        outcome = self.commit_together({table_id: proposal})
        return outcome.commits[table_id] if isinstance(outcome, RatifiedTogether) else outcome.refusals[table_id]

    def commit_together(self, proposals: Mapping[str, CommitProposal]) -> MultiTableOutcome:
        """Ratify all or none. Raises CommitRejectedError, TableNotFoundError, CatalogError, InvalidArgumentError."""
        if not proposals:
            raise InvalidArgumentError("No commits were proposed together; give a proposal for at least one table.")
        for proposal in proposals.values():
            proposal_check.check_proposal(proposal)
        return self._ratify(validation.check(self._database, proposals))

    @writes
    def _ratify(self, connection: sa.Connection, proposals: Mapping[str, CommitProposal]) -> MultiTableOutcome:
        return commits.ratify(connection, proposals)

    def hold(self, proposals: Mapping[str, CommitProposal], request: HoldRequest) -> Hold | None:
        """Hold the proposals. Raises CommitRefusedError, TableNotFoundError, CommitRejectedError, IllegalCommitError."""
        holds.check_request(proposals, request)
        for proposal in proposals.values():
            proposal_check.check_proposal(proposal)
        return self._hold(validation.check(self._database, proposals, with_fingerprint=True), request)

    @writes
    def _hold(
        self, connection: sa.Connection, proposals: Mapping[str, CommitProposal], request: HoldRequest
    ) -> Hold | None:
        return holds.hold(connection, proposals, request)

    def commit_lock(self, table_id: str, *, seconds: float) -> AbstractContextManager[bool]:
        """The advisory commit lock of the table. Raises nothing."""
        return self._database.shared.commit_lock(table_id, seconds=seconds)

    def record_published(self, table_id: str, proposal: CommitProposal) -> Ratified | VersionTaken:
        """Record a commit whose published file exists. Raises CommitRejectedError, TableNotFoundError.

        The file is already the commit: a refusal would make the table unreadable. What is wrong with it is logged.
        """
        proposal_check.check_published(proposal)
        proposal, flaw = validation.read_published(proposal)
        outcome, now_ms = self._record_published(table_id, proposal)
        if isinstance(outcome, Ratified):
            self._warn_of(table_id, proposal, flaw=flaw, now_ms=None if outcome.repeated else now_ms)
            if not outcome.repeated:
                self._warn_of_lower_marks(table_id, proposal)
        return outcome

    @writes
    def _record_published(
        self, connection: sa.Connection, table_id: str, proposal: CommitProposal
    ) -> tuple[Ratified | VersionTaken, int]:
        return commits.record_published(connection, table_id, proposal), now_of(connection)

    def _warn_of(self, table_id: str, proposal: CommitProposal, *, flaw: str | None, now_ms: int | None) -> None:
        ahead_ms = 0 if now_ms is None else proposal.summary.in_commit_timestamp - now_ms
        if ahead_ms > MAX_CLOCK_DIFFERENCE_MS:
            _log.warning(
                "Version %d of table %s was made by creating its file, with an in-commit timestamp %.0f seconds ahead of the "
                "catalog's clock. All later commits get later timestamps. Set the clock of the machine that wrote it.",
                proposal.version,
                table_id,
                ahead_ms / 1000,
            )
        if flaw is not None:
            _log.warning(
                "Version %d of table %s was made by creating its file, without the catalog: %s It is the latest version "
                "nevertheless. %s",
                proposal.version,
                table_id,
                flaw,
                advice(TakeBackCommit(version=proposal.version)),
            )

    def _warn_of_lower_marks(self, table_id: str, proposal: CommitProposal) -> None:
        stated = None if proposal.checked is None else proposal.checked.marks
        if stated is None or (stated.row_id is None and not stated.identity):
            return
        flaw = self._database.read(lambda connection: marks.flaw_of_published(connection, table_id, proposal))
        if flaw is not None:
            _log.warning(
                "Version %d of table %s was made by creating its file, without the catalog: %s. Rows may have numbers that other "
                "rows had before. The catalog keeps the higher one and refuses later commits that state a lower one. "
                "Correct the writer.",
                proposal.version,
                table_id,
                flaw,
            )

    @reads
    def get_ratified_commits(
        self,
        connection: sa.Connection,
        table_id: str,
        *,
        start: int | None = None,
        end: int | None = None,
        content_from_version: int | None = None,
    ) -> RatifiedCommits:
        """Unpublished ratified commits in the inclusive range, and the head, in one statement. Raises TableNotFoundError."""
        return records.get_ratified_commits(
            connection, table_id, start=start, end=end, content_from_version=content_from_version
        )

    @reads
    def commit_records(
        self, connection: sa.Connection, table_id: str, *, start: int, end: int
    ) -> tuple[RatifiedCommit, ...]:
        """Records of versions, published or not, in one statement. Raises TableNotFoundError."""
        return records.commit_records(connection, table_id, start=start, end=end)

    @reads
    def commit_digests(self, connection: sa.Connection, table_id: str, *, start: int, end: int) -> Mapping[int, str]:
        """SHA-256 digests by version, in one statement."""
        return records.commit_digests(connection, table_id, start=start, end=end)

    def set_published_version(self, table_id: str, version: int) -> None:
        """Raise the published version. Raises InvalidArgumentError above the latest version, TableNotFoundError."""
        # Both statements may run twice, and content may be deleted later: PostgreSQL needs no transaction.
        run = self._database.write if self._database.shared.is_sqlite else self._database.read
        run(lambda connection: commits.set_published_version(connection, table_id, version))
