"""Which statements ratify a proposal: one transaction, or one statement on PostgreSQL."""

import copy
import logging
from collections.abc import Callable, Mapping

from cm_delta_dagster.catalog.ratification import (
    CommitOutcome,
    CommitProposal,
    MultiTableOutcome,
    Ratified,
    VersionTaken,
)
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.ratification import commits, single_statement, validation
from cm_delta_dagster.catalog.sql.ratification.statement_skips import StatementSkips
from cm_delta_dagster.remedies import TakeBackCommit, advice

_log = logging.getLogger(__name__)


class Ratifier:
    """Ratifies proposals and records publication. Thread-safe.

    The statement does not say why it ratified nothing; the transaction, which follows then, does.

    Args:
        now_ms: the catalog's clock.
        max_ahead_ms: commits whose in-commit timestamp is further ahead of that clock are refused.
    """

    def __init__(self, database: CallerDatabase, *, now_ms: Callable[[], int], max_ahead_ms: int) -> None:
        self._database = database
        self._now_ms = now_ms
        self._max_ahead_ms = max_ahead_ms
        self._skips = StatementSkips()

    def acting_in(self, database: CallerDatabase) -> "Ratifier":
        """The ratifier of the calls of another principal."""
        other = copy.copy(self)
        other._database = database
        return other

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        """Ratify one proposal, after its content was checked."""
        proposal = validation.check(self._database, {table_id: proposal})[table_id]
        now_ms = self._now_ms()
        is_fit = self._database.shared.has_single_statement_commit and single_statement.can_ratify(proposal)
        is_tried = is_fit and not self._skips.skips_next(table_id)
        if is_tried:
            ratified = self._database.read(
                lambda connection: single_statement.commit(
                    connection, table_id, proposal, now_ms=now_ms, max_ahead_ms=self._max_ahead_ms
                )
            )
            if ratified is not None:
                return ratified
        outcome = self._database.write(
            lambda connection: commits.commit(
                connection, table_id, proposal, now_ms=now_ms, max_ahead_ms=self._max_ahead_ms
            )
        )
        if is_tried and isinstance(outcome, Ratified) and not outcome.repeated:
            self._skips.add(table_id)
        return outcome

    def commit_together(self, proposals: Mapping[str, CommitProposal]) -> MultiTableOutcome:
        """Ratify one proposal for each table, or none, after their content was checked."""
        proposals = validation.check(self._database, proposals)
        now_ms = self._now_ms()
        if self._database.shared.has_single_statement_commit:
            try:
                return self._database.write(
                    lambda connection: single_statement.commit_together(
                        connection, proposals, now_ms=now_ms, max_ahead_ms=self._max_ahead_ms
                    )
                )
            except single_statement.NotRatifiedError:
                pass
        return self._database.write(
            lambda connection: commits.commit_together(
                connection, proposals, now_ms=now_ms, max_ahead_ms=self._max_ahead_ms
            )
        )

    def record_published(self, table_id: str, proposal: CommitProposal) -> Ratified | VersionTaken:
        """Record a commit whose published file exists."""
        now_ms = self._now_ms()
        outcome = self._database.write(
            lambda connection: commits.record_published(connection, table_id, proposal, now_ms=now_ms)
        )
        ahead_ms = proposal.summary.in_commit_timestamp - now_ms
        if isinstance(outcome, Ratified) and not outcome.repeated and ahead_ms > self._max_ahead_ms:
            # The file is already the commit: a refusal would make the table unreadable.
            _log.warning(
                "Version %d of table %s was made by creating its file, with an in-commit timestamp %.0f seconds ahead of the "
                "catalog's clock. All later commits get later timestamps. Set the clock of the machine that wrote it.",
                proposal.version,
                table_id,
                ahead_ms / 1000,
            )
        flaw = validation.flaw_of_published(proposal) if isinstance(outcome, Ratified) else None
        if flaw is not None:
            _log.warning(
                "Version %d of table %s was made by creating its file, without the catalog: %s It is the latest version "
                "nevertheless. %s",
                proposal.version,
                table_id,
                flaw,
                advice(TakeBackCommit(version=proposal.version)),
            )
        return outcome

    def set_published_version(self, table_id: str, version: int) -> None:
        """Raise the published version."""
        # Both statements may run twice, and content may be deleted later: PostgreSQL needs no transaction.
        run = self._database.read if self._database.shared.has_single_statement_commit else self._database.write
        run(lambda connection: commits.set_published_version(connection, table_id, version))
