"""Interface to commits that are held, for their ratification or for an approval. The values are in ``holds``."""

import typing

from cm_delta_dagster.catalog.holds import HeldProposal, Hold


class HeldCommits(typing.Protocol):
    """Keeps commits that wait.

    ``CommitCoordinator.hold`` keeps them. A held commit that is to become a version is proposed as any other, with its ``hold_id``;
    those of several tables are proposed together. The catalog ratifies them and closes the hold in one transaction, so that they
    become versions at most once.
    """

    def holds(self, scope: str = "", *, table_id: str | None = None, with_closed: bool = False) -> tuple[Hold, ...]:
        """The holds with a table at or below ``scope``, or with this table, oldest first. Only pending ones by default.

        With grants a caller sees the holds that it made, and those whose tables it may maintain.
        """
        ...

    def find_hold(self, table_id: str, *, app_id: str, app_version: int) -> Hold | None:
        """The newest hold of the write with this ``txn`` that the caller may see; None if there is none."""
        ...

    def held_proposals(self, hold_id: str) -> tuple[HeldProposal, ...]:
        """The commits of a hold, in the order of the ids of their tables. Raises InvalidArgumentError for an unknown id."""
        ...

    def protected_commits(self, table_id: str) -> tuple[HeldProposal, ...]:
        """The commits of a table whose files must be kept: pending ones, and those that expired a short time ago.

        Raises OperationRefusedError: the caller may maintain neither the table nor one whose files it reads as a clone.
        """
        ...

    def reject_hold(self, hold_id: str, *, reason: str) -> Hold:
        """Close a pending hold as its owner decides; a rejected one stays as it is.

        Raises:
            HoldClosedError: the hold was ratified or discarded, has expired, or was closed by a conflict.
            OperationRefusedError: the caller does not own each table.
            InvalidArgumentError: unknown id, or no reason.
        """
        ...

    def discard_hold(self, hold_id: str, *, reason: str) -> Hold:
        """Close a pending hold as who made it, or an owner, decides; a discarded one stays as it is.

        Errors as :meth:`reject_hold`, except that the caller may be who made it.
        """
        ...

    def close_hold(self, hold_id: str, *, reason: str) -> Hold:
        """Close a pending hold whose commits can no longer be made.

        Errors as :meth:`reject_hold`; who made a hold that waits for its ratification may close it too.
        """
        ...
