"""Interface to commits that wait for an approval. The values are in ``approvals``."""

import typing

from cm_delta_dagster.catalog.approvals import Approval, ParkedCommit


class ApprovalRequests(typing.Protocol):
    """Keeps commits that need an approval.

    ``CommitCoordinator.request_approval`` keeps a commit. An approved commit is proposed as any other, with its ``approval_id``.
    The catalog ratifies it and closes the request in one transaction, so that it becomes a version at most once.
    """

    def approvals(
        self, scope: str = "", *, table_id: str | None = None, with_closed: bool = False
    ) -> tuple[Approval, ...]:
        """The requests for tables at or below ``scope``, or of one table, oldest first. Only pending ones by default."""
        ...

    def find_approval(self, table_id: str, *, app_id: str, app_version: int) -> Approval | None:
        """The newest request for the write with this ``txn``; None if there is none."""
        ...

    def parked_commit(self, approval_id: str) -> ParkedCommit:
        """A request with its commit. Raises InvalidArgumentError for an unknown id."""
        ...

    def protected_commits(self, table_id: str) -> tuple[ParkedCommit, ...]:
        """The commits whose files must be kept: pending ones, and those that expired a short time ago."""
        ...

    def reject_approval(self, approval_id: str, *, reason: str) -> Approval:
        """Close a pending request; a rejected one stays as it is.

        Raises:
            ApprovalClosedError: the request was committed, expired or closed by a conflict.
            OperationRefusedError: the caller is not an owner.
            InvalidArgumentError: unknown id, or no reason.
        """
        ...

    def close_approval(self, approval_id: str, *, reason: str) -> Approval:
        """Close a pending request whose commit can no longer be made. Errors as :meth:`reject_approval`."""
        ...
