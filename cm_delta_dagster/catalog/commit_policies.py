"""Interface to the rules that choose how commits are made. The values are in ``commit_policy``."""

import typing

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyRule, PolicyChange


class CommitPolicies(typing.Protocol):
    """Commit policies of catalogs, schemas and tables. The rule of the narrowest scope applies."""

    def set_commit_policy(self, rule: CommitPolicyRule) -> None:
        """Set the policy of a catalog or a schema. PUT_IF_ABSENT applies only to tables that are registered afterwards.

        Raises InvalidArgumentError for the scope of a table, or for SWITCHING.
        """
        ...

    def remove_commit_policy(self, scope: str) -> None:
        """Delete the rule of ``scope``; the wider scope or the default applies. A missing rule is not an error."""
        ...

    def change_commit_policy(self, table_id: str, policy: CommitPolicy | None) -> PolicyChange:
        """Set the policy of one table; None removes it, and the wider scope applies. Call again until the answer is DONE.

        A change to put-if-absent requires that every commit is published. A change from put-if-absent requires that a commit
        of ``BARRIER_OPERATION`` is made put-if-absent and recorded. Until then the policy is SWITCHING.

        Raises:
            TableNotFoundError: unknown or dropped table.
            InvalidArgumentError: ``policy`` is SWITCHING.
        """
        ...

    def begin_release(self, table_id: str) -> PolicyChange:
        """Set the policy of one table to put-if-absent, to release the table, also while the catalog enforces grants.

        The answers are those of :meth:`change_commit_policy`.

        Raises:
            TableNotFoundError: unknown or dropped table.
            OperationRefusedError: the caller may not release the table.
            InvalidArgumentError: the catalog must be able to refuse commits of the table, or some are held.
        """
        ...

    def commit_policies(self) -> tuple[CommitPolicyRule, ...]:
        """Every rule by scope; the scope of a table is its current name."""
        ...
