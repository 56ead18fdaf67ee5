"""Methods of a connection for commit rules, and for commits that wait for an approval."""

from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.catalog.approvals import Approval
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.rules.kinds import checked_action, checked_arguments, rule_kind
from cm_delta_dagster.operations.tables.approve_commit import ApprovedCommit, approve_commit
from cm_delta_dagster.operations.tables.scopes import IF_MEANT, check_scope


class ConnectionRules(ClientSession):
    """A base of :class:`~cm_delta_dagster.api.connection.Connection`."""

    def add_commit_rule(
        self,
        scope: str,
        kind: CommitRuleKind | str,
        *,
        name: str | None = None,
        on_violation: OnViolation | str = OnViolation.REFUSE,
        reason: str = "",
        contact: str = "",
        confirm: bool = False,
        future: bool = False,
        **arguments: object,
    ) -> CommitRule:
        """Demand something of all commits to the tables of ``catalog``, ``catalog.schema`` or ``catalog.schema.table``.

        All rules of a table, its schema and its catalog apply. A rule of the same scope and name is replaced; without ``name`` only
        if it has the same arguments.

        Args:
            kind: e.g. ``append_only``; see :class:`CommitRuleKind`.
            name: shown in refusals; by default the kind.
            on_violation: ``refuse``, or ``approval``: the catalog keeps the commit until an owner approves or rejects it.
            reason: shown in refusals.
            contact: whom to ask, free text; by default the principal who sets the rule.
            confirm: set the rule although no principal could make, or approve, the commits that it stops, or although the table of
                the scope does not have the columns or constraints.
            future: set the rule for a scope that has no table yet.
            arguments: of the kind: ``columns``, ``properties``, ``constraints``, ``tags``, ``principals`` (names), ``rows`` or
                ``files`` (a number), ``fraction`` (of the table, 0 to 1), ``pattern`` (a regular expression).

        Returns:
            The rule as the catalog stored it.

        Raises:
            InvalidArgumentError: an unknown kind or argument; a table of the scope is committed put-if-absent; the scope names
                nothing; the rule would replace another one, and no ``name`` was given; or, without ``confirm``, the rule locks
                everybody out or names what the table does not have.
            OperationRefusedError: the caller does not own the scope.
        """
        checked = rule_kind(kind)
        rule = CommitRule(
            scope=scope,
            name=checked.value if name is None else name,
            kind=checked,
            arguments=checked_arguments(checked, arguments),
            on_violation=checked_action(on_violation),
            reason=reason,
            contact=contact,
        )
        if not future:
            check_scope(self.client.registry, self.client.namespaces, scope, remedy=IF_MEANT)
        return self.client.commit_rules.set_commit_rule(rule, confirmed=confirm, may_replace=name is not None)

    def remove_commit_rule(self, scope: str, name: str, *, reason: str = "") -> None:
        """Delete the rule of that scope and name. Raises InvalidArgumentError if there is none, OperationRefusedError."""
        self.client.commit_rules.remove_commit_rule(scope, name, reason=reason)

    def commit_rules(self, scope: str = "") -> tuple[CommitRule, ...]:
        """Return the rules that apply at or below ``scope``, those of wider scopes included; all without a scope."""
        return self.client.commit_rules.commit_rules(scope)

    def approvals(self, scope: str = "", *, with_closed: bool = False) -> tuple[Approval, ...]:
        """Return the commits that wait for an approval, oldest first; ``with_closed`` also those that were decided or expired."""
        return self.client.approvals.approvals(scope, with_closed=with_closed)

    def approve(self, approval_id: str) -> ApprovedCommit:
        """Commit what waits as ``approval_id``, rebased on the latest version. A repeated call returns the same version.

        Raises:
            CommitConflictError: another commit changed what it depends on; the message names it, and the request is closed.
            ApprovalClosedError: the request was rejected, has expired, or was closed by a conflict.
            CommitRefusedError: a rule refuses the commit with and without an approval, or the request was not made for the rule
                as it is now; the request stays.
            OperationRefusedError: the caller does not own the table; the request stays.
            InvalidArgumentError: there is no such request.
            CommitStateUnknownError: the catalog did not answer; call it again.
        """
        return approve_commit(self.client, approval_id)

    def reject(self, approval_id: str, reason: str) -> Approval:
        """Close the request; its commit is never made, and ``vacuum`` deletes its files later. A repeated call does nothing.

        Raises:
            ApprovalClosedError: the request was approved, has expired, or was closed by a conflict.
            OperationRefusedError: the caller does not own the table.
            InvalidArgumentError: there is no such request, or no reason.
        """
        return self.client.approvals.reject_approval(approval_id, reason=reason)
