"""Which statements ratify a proposal: one transaction, one statement, or a function of the database that enforces grants."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from cm_delta_dagster.catalog.ratification import CommitOutcome, CommitProposal, MultiTableOutcome, Ratified
from cm_delta_dagster.catalog.sql import commits, guard, protected_catalog, single_statement_commit
from cm_delta_dagster.catalog.sql.database import Database
from cm_delta_dagster.catalog.sql.database_errors import code_of
from cm_delta_dagster.catalog.sql.statement_skips import StatementSkips
from cm_delta_dagster.errors import CatalogError, PermissionDeniedError, TableNotFoundError

_T = TypeVar("_T")
_UNDEFINED_FUNCTION = "42883"


class Ratifier:
    """Ratifies proposals and records publication. Thread-safe.

    Args:
        now_ms: the catalog's clock.
        max_ahead_ms: commits whose in-commit timestamp is further ahead of that clock are refused.
    """

    def __init__(self, database: Database, *, now_ms: Callable[[], int], max_ahead_ms: int) -> None:
        self._database = database
        self._now_ms = now_ms
        self._max_ahead_ms = max_ahead_ms
        self._is_protected = False  # As far as known: another client may have changed it.
        self._skips = StatementSkips()

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        """Ratify one proposal."""
        now_ms = self._now_ms()
        is_tried = not self._skips.skips_next(table_id)

        def in_one_statement() -> CommitOutcome | None:
            return self._database.read(
                lambda connection: single_statement_commit.commit(
                    connection, table_id, proposal, now_ms=now_ms, max_ahead_ms=self._max_ahead_ms
                )
            )

        def by_function() -> CommitOutcome:
            return self._database.read(
                lambda connection: protected_catalog.commit(connection, table_id, proposal, now_ms=now_ms)
            )

        def in_a_transaction() -> CommitOutcome:
            outcome = self._database.write(
                lambda connection: commits.commit(
                    connection, table_id, proposal, now_ms=now_ms, max_ahead_ms=self._max_ahead_ms
                )
            )
            is_new = isinstance(outcome, Ratified) and not outcome.repeated
            if is_tried and is_new and single_statement_commit.can_ratify(proposal):
                self._skips.add(table_id)
            return outcome

        can_try = is_tried and single_statement_commit.can_ratify(proposal)
        return self._chosen(in_one_statement if can_try else None, by_function, in_a_transaction)

    def commit_together(self, proposals: Mapping[str, CommitProposal]) -> MultiTableOutcome:
        """Ratify one proposal for each table, or none."""
        now_ms = self._now_ms()

        def by_function() -> MultiTableOutcome:
            return self._database.read(
                lambda connection: protected_catalog.commit_together(connection, proposals, now_ms=now_ms)
            )

        def in_one_statement_each() -> MultiTableOutcome | None:
            try:
                return self._database.write(
                    lambda connection: single_statement_commit.commit_together(
                        connection, proposals, now_ms=now_ms, max_ahead_ms=self._max_ahead_ms
                    )
                )
            except single_statement_commit.NotRatifiedError:
                return None

        def in_a_transaction() -> MultiTableOutcome:
            return self._database.write(
                lambda connection: commits.commit_together(
                    connection, proposals, now_ms=now_ms, max_ahead_ms=self._max_ahead_ms
                )
            )

        return self._chosen(in_one_statement_each, by_function, in_a_transaction)

    def set_published_version(self, table_id: str, version: int) -> None:
        """Raise the published version."""
        # Both statements may run twice, and content may be deleted later: PostgreSQL needs no transaction.
        run = self._database.read if self._database.has_single_statement_commit else self._database.write

        def directly() -> bool:
            run(lambda connection: commits.set_published_version(connection, table_id, version))
            return True

        def by_function() -> bool:
            self._database.read(
                lambda connection: protected_catalog.set_published_version(connection, table_id, version)
            )
            return True

        self._chosen(None, by_function, directly)

    def _chosen(
        self,
        in_one_statement: Callable[[], _T | None] | None,
        by_function: Callable[[], _T],
        in_a_transaction: Callable[[], _T],
    ) -> _T:
        """The answer of the function if PostgreSQL enforces grants; otherwise of the statement, or of the transaction."""
        if not self._database.has_single_statement_commit:
            return in_a_transaction()
        if self._is_protected:
            try:
                return by_function()
            except CatalogError as error:
                if code_of(error.__cause__ or error) != _UNDEFINED_FUNCTION or self._look():
                    raise
        try:
            answer = None if in_one_statement is None else in_one_statement()
            if answer is not None:
                return answer
            # The statement does not say why it ratified nothing; the transaction is slower than the function.
            return by_function() if in_one_statement is not None and self._look() else in_a_transaction()
        except (PermissionDeniedError, TableNotFoundError):
            # Rights were revoked when grants were enabled, and rows of other tables hidden.
            if self._is_protected or not self._look():
                raise
            return by_function()

    def _look(self) -> bool:
        """Ask the catalog whether it enforces grants."""
        found = self._database.read(guard.is_enabled)
        self._is_protected = found
        return found
