"""Methods of :class:`~cm_delta_dagster.catalog.sql.catalog.SqlCatalog` for commit rules and approvals."""

from collections.abc import Callable

from cm_delta_dagster.catalog.approvals import Approval, ApprovalState, ParkedCommit
from cm_delta_dagster.catalog.commit_rules import CommitRule
from cm_delta_dagster.catalog.rules.kinds import checked_rule
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.rows import names
from cm_delta_dagster.catalog.sql.rules import approvals, commit_rules, rule_rows
from cm_delta_dagster.catalog.texts import checked_reason, checked_text


class RuleMethods:
    """A base of the catalog. Each method opens the connection or transaction of one operation."""

    _database: CallerDatabase
    _now_ms: Callable[[], int]

    def set_commit_rule(self, rule: CommitRule, *, confirmed: bool = False, may_replace: bool = True) -> CommitRule:
        """Create or replace the rule. Raises InvalidArgumentError, OperationRefusedError."""
        names.scope_parts(rule.scope)
        checked, now_ms = checked_rule(rule), self._now_ms()
        return self._database.write(
            lambda connection: commit_rules.set_rule(
                connection, checked, confirmed=confirmed, may_replace=may_replace, now_ms=now_ms
            )
        )

    def remove_commit_rule(self, scope: str, name: str, *, reason: str = "") -> None:
        """Delete the rule. Raises InvalidArgumentError, OperationRefusedError."""
        names.scope_parts(scope)
        known, why, now_ms = checked_text(name, what="the name of a rule"), checked_reason(reason), self._now_ms()
        self._database.write(
            lambda connection: commit_rules.remove_rule(connection, scope, known, reason=why, now_ms=now_ms)
        )

    def commit_rules(self, scope: str = "") -> tuple[CommitRule, ...]:
        """The rules at, above or below ``scope``. Raises InvalidArgumentError for a malformed scope."""
        if scope != "":
            names.scope_parts(scope)
        return self._database.read(lambda connection: rule_rows.shown(connection, *rule_rows.rules(connection, scope)))

    def approvals(
        self, scope: str = "", *, table_id: str | None = None, with_closed: bool = False
    ) -> tuple[Approval, ...]:
        """Requests, oldest first. Raises InvalidArgumentError for a malformed scope."""
        parts, now_ms = () if scope == "" else names.scope_parts(scope), self._now_ms()
        return self._database.read(
            lambda connection: approvals.listed(
                connection, parts=parts, table_id=table_id, with_closed=with_closed, now_ms=now_ms
            )
        )

    def find_approval(self, table_id: str, *, app_id: str, app_version: int) -> Approval | None:
        """The newest request of a write."""
        now_ms = self._now_ms()
        return self._database.read(
            lambda connection: approvals.find(
                connection, table_id, app_id=app_id, app_version=app_version, now_ms=now_ms
            )
        )

    def parked_commit(self, approval_id: str) -> ParkedCommit:
        """A request with its commit. Raises InvalidArgumentError."""
        wanted, now_ms = checked_text(approval_id, what="the id of a request"), self._now_ms()
        return self._database.read(lambda connection: approvals.get(connection, wanted, now_ms=now_ms))

    def protected_commits(self, table_id: str) -> tuple[ParkedCommit, ...]:
        """The commits of a table whose files must be kept."""
        now_ms = self._now_ms()
        return self._database.read(lambda connection: approvals.protected(connection, table_id, now_ms=now_ms))

    def reject_approval(self, approval_id: str, *, reason: str) -> Approval:
        """Reject a request. Raises ApprovalClosedError, OperationRefusedError, InvalidArgumentError."""
        return self._close(approval_id, ApprovalState.REJECTED, reason)

    def close_approval(self, approval_id: str, *, reason: str) -> Approval:
        """Close a request whose commit conflicts. Raises ApprovalClosedError, OperationRefusedError, InvalidArgumentError."""
        return self._close(approval_id, ApprovalState.CONFLICTING, reason)

    def _close(self, approval_id: str, state: ApprovalState, reason: str) -> Approval:
        wanted, why = checked_text(approval_id, what="the id of a request"), checked_reason(reason)
        now_ms = self._now_ms()
        return self._database.write(
            lambda connection: approvals.close(connection, wanted, state, reason=why, now_ms=now_ms)
        )
