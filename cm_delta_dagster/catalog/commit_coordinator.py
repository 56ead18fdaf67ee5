"""Interface to the ratification of commits.

Protocol headings "Catalog Responsibilities", "Getting Ratified Commits from the Catalog", "Publishing Commits". The values are in
``ratification``.
"""

import typing
from collections.abc import Mapping
from contextlib import AbstractContextManager

from cm_delta_dagster.catalog.holds import Hold, HoldRequest
from cm_delta_dagster.catalog.ratification import (
    CommitOutcome,
    CommitProposal,
    MultiTableOutcome,
    Ratified,
    RatifiedCommit,
    RatifiedCommits,
    VersionTaken,
)


class CommitCoordinator(typing.Protocol):
    """Ratifies the commits of a table and answers which ones are ratified.

    Guarantees: a ratified commit is durable when the call returns; versions are ratified in order, each exactly once.
    """

    def now_ms(self) -> int:
        """The catalog's clock, which all of its clients share, in epoch milliseconds.

        Sends no request, except for the first connection. Raises CatalogUnavailableError if that connection fails.
        """
        ...

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        """Ratify exactly one proposal for each version.

        A repeated proposal (same file name and version) returns ``Ratified(repeated=True)`` and has no effect. If another
        commit has the version, the answer is ``VersionTaken``; the rest of the proposal is not checked.

        Raises:
            ApprovalRequiredError: a rule lets the commit pass only with an approval; see :meth:`hold`.
            HoldClosedError: ``hold_id`` names a hold that is not pending, or another commit, or a part of a hold.
            OperationRefusedError: the caller may not ratify the hold.
            CommitRefusedError: a check refuses it, or its request was not made for a rule that it violates.
            CommitRejectedError: the version leaves a gap; the published version is not below the version; the in-commit
                timestamp is too far ahead of the catalog's clock and does not directly follow the previous one; or the
                proposal contradicts itself.
            TableNotFoundError: unknown or dropped table.
        """
        ...

    def hold(self, proposals: Mapping[str, CommitProposal], request: HoldRequest) -> Hold | None:
        """Hold the proposals of one table or of several as one group. None if they were to wait for an approval and need none.

        The proposals are checked as for a commit. If a pending hold has one of the files, or the same ``app_id`` and
        ``app_version`` of a table, that hold is the answer and nothing else is held. Proposals with the ``hold_id`` of a hold that
        waits for its ratification turn it into one that waits for an approval.

        Args:
            proposals: by table id.

        Raises:
            CommitRefusedError: a rule refuses a commit, with or without an approval.
            CommitRejectedError: as for :meth:`commit`; or the commits of a table are made put-if-absent, or the content of a
                commit is not known.
            InvalidArgumentError: the duration is not permitted, or the work is held together with other tables.
            HoldClosedError: as for :meth:`commit`.
            TableNotFoundError: an unknown or dropped table.
        """
        ...

    def commit_together(self, proposals: Mapping[str, CommitProposal]) -> MultiTableOutcome:
        """Ratify one proposal for each of several tables, all of them or none, in one transaction.

        The same call repeated returns ``RatifiedTogether`` with ``repeated`` commits and has no effect. A reader that asks for
        the tables in one call sees all of the commits or none.

        Args:
            proposals: by table id.

        Raises:
            CommitRejectedError: as for :meth:`commit`, for any of the proposals; nothing was ratified.
            CatalogError: some of the proposals were ratified by another call, and others were not.
            InvalidArgumentError: there is no proposal.
            TableNotFoundError: one of the tables is unknown or dropped; nothing was ratified.
        """
        ...

    def commit_lock(self, table_id: str, *, seconds: float) -> AbstractContextManager[bool]:
        """Wait at most ``seconds`` for the advisory commit lock of the table; the value is whether it was acquired.

        Writers that had a conflict take the lock to avoid further ones. It is advisory: ``commit`` gives the same answers
        with and without it. Raises nothing.
        """
        ...

    def record_published(self, table_id: str, proposal: CommitProposal) -> Ratified | VersionTaken:
        """Record a commit that the creation of its published file has ratified.

        A repeated call (same version and ``txn_id``) returns ``Ratified(repeated=True)``.

        Raises:
            CommitRejectedError: the version leaves a gap, an earlier version is unpublished, or the commit policy of the
                table is not put-if-absent.
            TableNotFoundError: unknown or dropped table.
        """
        ...

    def set_published_version(self, table_id: str, version: int) -> None:
        """Report that ``_delta_log`` holds every version up to ``version``. A report may come late and skip versions.

        A version below the recorded one changes nothing. Content up to ``version`` is deleted, except that of the newest
        commits if they are small.

        Raises:
            InvalidArgumentError: ``version`` is above the latest one; only ratified commits are published.
            TableNotFoundError: unknown or dropped table.
        """
        ...

    def get_ratified_commits(
        self,
        table_id: str,
        *,
        start: int | None = None,
        end: int | None = None,
        content_from_version: int | None = None,
    ) -> RatifiedCommits:
        """The unpublished ratified commits within the inclusive range, and the latest version.

        Args:
            content_from_version: from this version on, the answer has the content of every commit where the catalog has it,
                published commits included (``cached_commits``). None: the content of inline commits only.

        Raises:
            TableNotFoundError: unknown or dropped table.
        """
        ...

    def commit_records(self, table_id: str, *, start: int, end: int) -> tuple[RatifiedCommit, ...]:
        """The catalog's records of the versions ``start..end``, published or not, ascending.

        The size of version 0 is 0 if it was not reported at registration. Raises TableNotFoundError.
        """
        ...

    def commit_digests(self, table_id: str, *, start: int, end: int) -> Mapping[int, str]:
        """SHA-256 of the versions ``start..end``, published or not, as 64 hexadecimal digits by version.

        Versions without a recorded digest, and those of an unknown table, are left out.
        """
        ...
