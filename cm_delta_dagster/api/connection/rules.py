"""``lake.rules``: commit rules, and held commits."""

from cm_delta_dagster.api.connection.connection_part import ConnectionPart
from cm_delta_dagster.api.table.held_commit import HeldCommit
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.holds import Hold, WaitsFor
from cm_delta_dagster.catalog.rules.kinds import checked_action, checked_arguments, rule_kind
from cm_delta_dagster.operations.tables.ratify_hold import RatifiedHold, approve_hold
from cm_delta_dagster.operations.tables.scopes import IF_MEANT, check_scope


class ConnectionRules(ConnectionPart):
    """What the catalog demands of commits, and the commits that wait for the approval of an owner: ``lake.rules``."""

    def set_commit_rule(
        self,
        scope: str,
        kind: CommitRuleKind | str,
        *,
        name: str | None = None,
        on_violation: OnViolation | str = OnViolation.REFUSE,
        reason: str = "",
        contact: str = "",
        force: bool = False,
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
            force: set the rule although no principal could make, or approve, the commits that it stops, or although the table of
                the scope does not have the columns or constraints.
            future: set the rule for a scope that has no table yet.
            arguments: of the kind: ``columns``, ``properties``, ``constraints``, ``tags``, ``principals`` (names), ``rows`` or
                ``files`` (a number), ``fraction`` (of the table, 0 to 1), ``pattern`` (a regular expression).

        Returns:
            The rule as the catalog stored it.

        Raises:
            InvalidArgumentError: an unknown kind or argument; a table of the scope is committed put-if-absent; the scope names
                nothing; the rule would replace another one, and no ``name`` was given; or, without ``force``, the rule locks
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
            check_scope(self._client.registry, self._client.namespaces, scope, remedy=IF_MEANT)
        return self._client.commit_rules.set_commit_rule(rule, confirmed=force, may_replace=name is not None)

    def remove_commit_rule(self, scope: str, name: str, *, reason: str = "") -> None:
        """Delete the rule of that scope and name. Raises InvalidArgumentError if there is none, OperationRefusedError."""
        self._client.commit_rules.remove_commit_rule(scope, name, reason=reason)

    def list_commit_rules(self, scope: str = "") -> tuple[CommitRule, ...]:
        """Return the rules that apply at or below ``scope``, those of wider scopes included; all without a scope.

        Raises InvalidArgumentError if there is none and nothing has the name of the scope; so do the other lists.
        """
        return self._in_scope(self._client.commit_rules.commit_rules(scope), scope)

    def list_approvals(self, scope: str = "", *, with_closed: bool = False) -> tuple[Hold, ...]:
        """Return the commits that wait for an approval, oldest first; ``with_closed`` also those that were decided or expired."""
        holds = self._in_scope(self._client.holds.holds(scope, with_closed=with_closed), scope)
        return tuple(hold for hold in holds if hold.waits_for is WaitsFor.APPROVAL)

    def held(self, scope: str = "", *, with_closed: bool = False) -> tuple[HeldCommit, ...]:
        """Return the holds, oldest first, also those that wait for an approval; ``with_closed`` also those that have ended."""
        holds = self._in_scope(self._client.holds.holds(scope, with_closed=with_closed), scope)
        return tuple(HeldCommit(self._session, hold) for hold in holds)

    def hold(self, hold_id: str) -> HeldCommit:
        """Return the hold with this id. Raises InvalidArgumentError if there is none that the caller may see."""
        return HeldCommit(self._session, self._client.holds.held_proposals(hold_id)[0].hold)

    def approve(self, approval_id: str) -> RatifiedHold:
        """Commit what waits as ``approval_id``, rebased on the latest version. A repeated call returns the same version.

        Raises:
            CommitConflictError: another commit changed what it depends on; the message names it, and the request is closed.
            HoldClosedError: the request was rejected, has expired, or was closed by a conflict.
            HoldOutdatedError: checks of the commit have not read it yet, or others have changed rows since; the request stays.
            CommitRefusedError: a rule refuses the commit with and without an approval, or the request was not made for the rule
                as it is now; the request stays.
            OperationRefusedError: the caller does not own the table; the request stays.
            InvalidArgumentError: there is no such request.
            CommitStateUnknownError: the catalog did not answer; call it again.
        """
        return approve_hold(self._client, approval_id)

    def reject(self, approval_id: str, reason: str) -> Hold:
        """Close the request; its commit is never made, and ``vacuum`` deletes its files later. A repeated call does nothing.

        Raises:
            HoldClosedError: the request was approved, has expired, or was closed by a conflict.
            OperationRefusedError: the caller does not own the table.
            InvalidArgumentError: there is no such request, or no reason.
        """
        return self._client.holds.reject_hold(approval_id, reason=reason)
