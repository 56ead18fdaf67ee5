"""Commits one transaction of each of several tables: all are ratified, or none (protocol heading "Commit Protocol").

Each transaction is staged and rebased by itself. The catalog ratifies the proposals in one transaction. If a version is taken,
the transaction of that table is rebased over its winners, and all are proposed again. Publication and the other post-commit hooks
run for each table.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.ratification import (
    CommitPolicyChanged,
    MultiTableOutcome,
    Ratified,
    RatifiedTogether,
    RefusedTogether,
)
from cm_delta_dagster.client.commits.backoff import attempts
from cm_delta_dagster.client.commits.committer import TableCommitter
from cm_delta_dagster.client.commits.proposal import PreparedCommit
from cm_delta_dagster.client.commits.rebase import Rebase
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitStateUnknownError,
    TableNotFoundError,
)

_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """The transaction of one table, and what commits transactions of that table."""

    committer: TableCommitter
    transaction: Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class RatifiedPart:
    """The commit of one table, right after the catalog ratified it."""

    rebase: Rebase
    prepared: PreparedCommit
    outcome: Ratified
    attempt: int


class MultiTableCommit:
    """The commit of several tables. Call :meth:`ratify`, then :meth:`finish`; each once.

    Args:
        parts: one for each table, at least one.
    """

    def __init__(
        self, parts: Sequence[TableCommit], *, coordinator: CommitCoordinator, settings: ClientSettings
    ) -> None:
        # In one order, so that concurrent commits of several tables meet at the same table first.
        self._parts = sorted(parts, key=lambda part: part.transaction.snapshot.table_id)
        self._coordinator = coordinator
        self._settings = settings

    def ratify(self) -> tuple[RatifiedPart, ...]:
        """Have the catalog ratify all transactions.

        Raises:
            CommitConflictError: a winner changed data that a transaction depends on; the message names table and winner.
            CommitRejectedError: the catalog refused a proposal for another reason than the version, or the commits of a table
                are made by creating files.
            CommitRetriesExceededError: every attempt conflicted with compatible commits of other writers.
            CommitStateUnknownError: the catalog did not answer, and the outcome is unknown. After every other error nothing is
                ratified.
        """
        rebases = [part.committer.begin(part.transaction) for part in self._parts]
        for attempt in range(self._settings.max_commit_attempts):
            with self._wait(rebases, attempt) as has_waited:
                if has_waited:
                    for rebase in rebases:
                        rebase.catch_up()
                for rebase in rebases:
                    check_through_catalog(rebase.base.identifier, rebase.base.commit_policy)
                prepared = self._for_all(self._prepare, list(zip(self._parts, rebases, strict=True)))
                outcome = self._propose(prepared)
            if isinstance(outcome, RatifiedTogether):
                return tuple(
                    RatifiedPart(
                        rebase=rebase,
                        prepared=ready,
                        outcome=outcome.commits[rebase.base.table_id],
                        attempt=attempt,
                    )
                    for rebase, ready in zip(rebases, prepared, strict=True)
                )
            refused = self._rebase(rebases, outcome)
        raise self._parts[refused].committer.exceeded(self._parts[refused].transaction, rebases[refused])

    def finish(self, ratified: Sequence[RatifiedPart]) -> tuple[Committed, ...]:
        """Run the post-commit hooks of each table; the commits in the order of the tables' ids."""
        return tuple(self._for_all(self._finish, list(zip(self._parts, ratified, strict=True))))

    @contextmanager
    def _wait(self, rebases: Sequence[Rebase], attempt: int) -> Iterator[bool]:
        """Hold the commit lock of one contended table. Several locks could be waited for in a circle."""
        contended = [number for number, part in enumerate(self._parts) if part.committer.lock.is_contended]
        chosen = contended[0] if contended else 0
        with self._parts[chosen].committer.lock.attempt(rebases[chosen].base, attempt) as has_waited:
            yield has_waited

    def _prepare(self, part: tuple[TableCommit, Rebase]) -> PreparedCommit:
        return part[0].committer.prepare(part[0].transaction, part[1].base)

    def _finish(self, part: tuple[TableCommit, RatifiedPart]) -> Committed:
        commit, done = part
        return commit.committer.finish(
            commit.transaction, done.rebase, done.prepared, done.outcome, attempt=done.attempt
        )

    def _rebase(self, rebases: Sequence[Rebase], outcome: RefusedTogether) -> int:
        """Rebase the transactions whose versions are taken. Returns the position of one of them."""
        refused = 0
        for position, rebase in enumerate(rebases):
            refusal = outcome.refusals.get(rebase.base.table_id)
            if isinstance(refusal, CommitPolicyChanged):
                raise _not_through_catalog(rebase.base.identifier)
            if refusal is not None:
                rebase.apply(refusal.winners)
                refused = position
        return refused

    def _propose(self, prepared: Sequence[PreparedCommit]) -> MultiTableOutcome:
        """Propose all; if the catalog does not answer, again.

        The catalog compares each proposal with the commits that it has: it answers a proposal that it ratified before as
        repeated, and the same proposals are never ratified twice.
        """
        snapshots = [part.transaction.snapshot for part in self._parts]
        proposals = {snapshot.table_id: ready.proposal for snapshot, ready in zip(snapshots, prepared, strict=True)}
        last: CatalogUnavailableError | None = None
        for _ in attempts(self._settings, self._settings.max_resolve_attempts):
            try:
                return self._coordinator.commit_together(proposals)
            except TableNotFoundError as error:
                if last is None:
                    raise
                raise self._unknown(prepared, f"{last} Then one of the tables was dropped: {error}") from error
            except CatalogUnavailableError as error:
                names = ", ".join(snapshot.identifier for snapshot in snapshots)
                _log.warning("No answer to the proposal of commits to %s: %s", names, error)
                last = error
        raise self._unknown(prepared, str(last)) from last

    def _unknown(self, prepared: Sequence[PreparedCommit], reason: str) -> CommitStateUnknownError:
        commits = ", ".join(
            f"version {ready.version} of {part.transaction.snapshot.identifier} (txnId {part.transaction.txn_id})"
            for part, ready in zip(self._parts, prepared, strict=True)
        )
        return CommitStateUnknownError(
            f"The catalog did not answer whether it ratified these commits: {commits}. ({reason}) Either all of them become "
            "visible or none; nothing was deleted. Once the catalog answers again, look for one of these txnIds in the history "
            "of its table before you retry.",
            txn_id=self._parts[0].transaction.txn_id,
            version=prepared[0].version,
        )

    def _for_all(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Run ``work`` for each item, concurrently if the settings allow it; an error is raised when all have ended."""
        threads = min(len(items), self._settings.read_threads)
        if threads == 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(max_workers=threads) as pool:
            return [future.result() for future in [pool.submit(work, item) for item in items]]


def check_through_catalog(identifier: object, policy: CommitPolicy) -> None:
    """Refuse a table whose commits are not proposed to the catalog. Raises CommitRejectedError."""
    if not policy.through_catalog:
        raise _not_through_catalog(identifier)


def _not_through_catalog(identifier: object) -> CommitRejectedError:
    return CommitRejectedError(
        f"{identifier} cannot be part of a transaction over several tables: its commits are made by creating their files "
        "(put-if-absent), or its commit mode is being switched. Nothing was committed. Set its commit mode to staged, inline or "
        "auto, or write to it outside of the transaction."
    )
