"""Commits one transaction of each of some tables: all are ratified, or none (protocol heading "Commit Protocol").

Each transaction is staged and rebased by itself; a rebase repeats none of the user's computation. The catalog ratifies the
proposals in one transaction. If a version is taken, the transaction of that table is rebased over its winners, and all are
proposed again, with a ``transactionGroup`` that names the new versions. Publication and the other post-commit hooks run for
each table. A commit of one table is the same with one part and without ``transactionGroup``; it alone can be made by creating
its file.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.holds import HOLD_DURATION_MS, Hold, WaitsFor
from cm_delta_dagster.catalog.ratification import CommitOutcome, CommitPolicyChanged, Ratified, VersionTaken
from cm_delta_dagster.client.commits.committer import TableCommitter
from cm_delta_dagster.client.commits.held_commit import approval_required, hold_commits, is_repeated
from cm_delta_dagster.client.commits.outcomes import Attempt, propose
from cm_delta_dagster.client.commits.proposal import PreparedCommit
from cm_delta_dagster.client.commits.rebase import Rebase
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.errors import ApprovalRequiredError, CommitRejectedError
from cm_delta_dagster.protocol.actions.actions import GroupParticipant, TransactionGroup

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """The transaction of one table, and what commits transactions of that table.

    Attributes:
        is_behind: whether other commits are known to have been made since the version that the transaction read.
    """

    committer: TableCommitter
    transaction: Transaction
    is_behind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RatifiedPart:
    """The commit of one table, right after the catalog ratified it."""

    rebase: Rebase
    prepared: PreparedCommit
    outcome: Ratified
    attempt: int


class MultiTableCommit:
    """The commit of one or several tables. Call :meth:`ratify`, then :meth:`finish`; each once.

    Args:
        parts: one for each table, at least one.
        transaction_id: that the commits of several tables record; None for a new one.
    """

    def __init__(
        self,
        parts: Sequence[TableCommit],
        *,
        coordinator: CommitCoordinator,
        settings: ClientSettings,
        transaction_id: str | None = None,
    ) -> None:
        # In one order, so that concurrent commits of several tables meet at the same table first.
        self._parts = sorted(parts, key=lambda part: part.transaction.snapshot.table_id)
        self._coordinator = coordinator
        self._settings = settings
        self._transaction_id = transaction_id or str(uuid.uuid4())

    def ratify(self) -> tuple[RatifiedPart, ...]:
        """Have the catalog ratify all transactions.

        Raises:
            ApprovalRequiredError: the commits wait for an approval.
            CommitConflictError: a winner changed data that a transaction depends on; the message names table and winner.
            HoldOutdatedError: a winner changed rows of a table after the audit of its held commit.
            CommitRejectedError: the catalog refused a proposal for another reason than the version, or the commits of one of
                several tables are made by creating files.
            CommitRetriesExceededError: every attempt conflicted with compatible commits of other writers.
            CommitStateUnknownError: the catalog did not answer, and the outcome is unknown. After every other error nothing is
                ratified.
        """
        rebases = [part.committer.begin(part.transaction) for part in self._parts]
        attempts = self._max_attempts
        for number in range(attempts):
            with self._wait(rebases, number) as has_waited:
                for part, rebase in zip(self._parts, rebases, strict=True):
                    # Without the commits since then, a commit that was held would be refused.
                    if has_waited or (number == 0 and part.is_behind):
                        rebase.catch_up()
                tries, outcomes = self._attempt(rebases)
            parts = tuple(
                RatifiedPart(rebase=rebase, prepared=attempt.prepared, outcome=outcome, attempt=number)
                for rebase, attempt in zip(rebases, tries, strict=True)
                if isinstance(outcome := outcomes.get(rebase.base.table_id), Ratified)
            )
            if len(parts) == len(rebases):
                return parts
            refused = self._rebase(rebases, outcomes)
        raise self._parts[refused].committer.exceeded(self._parts[refused].transaction, rebases[refused], attempts)

    def hold(self, *, duration_ms: int) -> Hold:
        """Have the catalog hold all transactions as one group, which waits for its ratification, in place of :meth:`ratify`.

        Raises:
            CommitRefusedError, CommitRejectedError: nothing is held; also if commits of a table are made by creating files.
            CatalogUnavailableError: the commits may be held; nothing was committed.
            InvalidArgumentError: the duration is not permitted.
        """
        rebases = [part.committer.begin(part.transaction) for part in self._parts]
        for rebase in rebases:
            check_through_catalog(rebase.base.identifier, rebase.base.commit_policy)
        self._set_groups(rebases)
        tries = self._for_all(self._prepare, list(zip(self._parts, rebases, strict=True)))
        hold = self._hold(tries, waits_for=WaitsFor.RATIFICATION, duration_ms=duration_ms)
        assert hold is not None, "only a request for an approval can be unnecessary"
        return hold

    def request_approval(self) -> None:
        """Have a hold that waits for an approval keep the audit of its transactions, in place of :meth:`ratify`.

        Raises:
            ApprovalRequiredError: always, unless it is one of these.
            CommitConflictError, HoldOutdatedError, CommitRejectedError: as :meth:`ratify`.
            CatalogUnavailableError: the hold may keep the audit.
        """
        rebases = [part.committer.begin(part.transaction) for part in self._parts]
        for rebase in rebases:
            rebase.catch_up()
        self._request_approval(self._for_all(self._prepare, list(zip(self._parts, rebases, strict=True))))

    @property
    def _max_attempts(self) -> int:
        """The number of attempts of the transaction that permits the fewest."""
        of_client = self._settings.max_commit_attempts
        return min(part.transaction.context.max_attempts(of_client) for part in self._parts)

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

    def _attempt(self, rebases: Sequence[Rebase]) -> tuple[Sequence[Attempt], Mapping[str, CommitOutcome]]:
        """Prepare and propose the next version of each table, in their order; the outcomes by table id."""
        if len(rebases) == 1 and not rebases[0].base.commit_policy.through_catalog:
            base, part = rebases[0].base, self._parts[0]
            attempt, outcome = part.committer.create_if_permitted(part.transaction, base)
            return [attempt], {base.table_id: outcome}
        for rebase in rebases:
            check_through_catalog(rebase.base.identifier, rebase.base.commit_policy)
        self._set_groups(rebases)
        tries = self._for_all(self._prepare, list(zip(self._parts, rebases, strict=True)))
        try:
            outcomes = propose(tries, coordinator=self._coordinator, settings=self._settings)
        except ApprovalRequiredError:
            self._request_approval(tries)
            outcomes = {}  # They need none any more: propose them again.
        return tries, outcomes

    def _set_groups(self, rebases: Sequence[Rebase]) -> None:
        """Have the commits of several tables name each other with the versions that are proposed next."""
        if len(rebases) == 1:
            return
        group = TransactionGroup(
            transaction_id=self._transaction_id,
            participants=tuple(
                GroupParticipant(table_id=rebase.base.table_id, proposed_version=rebase.base.version + 1)
                for rebase in rebases
            ),
            coordinating_catalog=self._parts[0].committer.catalog_id(),
        )
        for part in self._parts:
            part.transaction.group = group

    def _request_approval(self, tries: Sequence[Attempt]) -> None:
        """Have the catalog hold the commits until they are approved. Returns if they need no approval any more.

        Raises:
            ApprovalRequiredError: always if the catalog holds them, or holds those of an earlier attempt of the same write.
            CommitRefusedError: a rule refuses one.
        """
        hold = self._hold(tries, waits_for=WaitsFor.APPROVAL)
        if hold is not None:
            raise approval_required(hold, is_repeated=is_repeated(hold, self._transactions))

    def _hold(
        self, tries: Sequence[Attempt], *, waits_for: WaitsFor, duration_ms: int = HOLD_DURATION_MS
    ) -> Hold | None:
        return hold_commits(
            self._transactions,
            tries,
            coordinator=self._coordinator,
            settings=self._settings,
            waits_for=waits_for,
            duration_ms=duration_ms,
        )

    @property
    def _transactions(self) -> Sequence[Transaction]:
        return [part.transaction for part in self._parts]

    def _prepare(self, part: tuple[TableCommit, Rebase]) -> Attempt:
        return part[0].committer.prepare(part[0].transaction, part[1].base)

    def _finish(self, part: tuple[TableCommit, RatifiedPart]) -> Committed:
        commit, done = part
        return commit.committer.finish(
            commit.transaction, done.rebase, done.prepared, done.outcome, attempt=done.attempt
        )

    def _rebase(self, rebases: Sequence[Rebase], outcomes: Mapping[str, CommitOutcome]) -> int:
        """Rebase the transactions that were not ratified. Returns the position of one of them."""
        refused = 0
        for position, rebase in enumerate(rebases):
            outcome = outcomes.get(rebase.base.table_id)
            if isinstance(outcome, CommitPolicyChanged):
                if len(rebases) > 1:
                    raise _not_through_catalog(rebase.base.identifier)
                rebase.base = replace(rebase.base, commit_policy=outcome.policy)
            elif isinstance(outcome, VersionTaken):
                rebase.apply(outcome.winners)
                refused = position
        return refused

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
        f"A commit to {identifier} cannot be held, or be part of a transaction over several tables: the commits of the table are "
        "made by creating their files (put-if-absent), or its commit mode is being switched. Nothing was committed. Set its commit "
        "mode to staged, inline or auto; or write to it outside of the transaction and without hold."
    )
