"""Methods of :class:`~cm_delta_dagster.catalog.sql.catalog.SqlCatalog` for policies and version pins."""

from collections.abc import Callable

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyRule, PolicyChange
from cm_delta_dagster.catalog.maintenance import (
    MaintenanceDecision,
    MaintenanceKind,
    MaintenanceRule,
)
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.database.callers import checked_principal
from cm_delta_dagster.catalog.sql.policies import commit_policies, maintenance, pins
from cm_delta_dagster.catalog.sql.rows import names
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.texts import checked_reason
from cm_delta_dagster.errors import PermissionDeniedError


class PolicyMethods:
    """A base of the catalog. Each method opens the connection or transaction of one operation."""

    _database: CallerDatabase
    _now_ms: Callable[[], int]

    def set_commit_policy(self, rule: CommitPolicyRule) -> None:
        """Create or replace the rule of a catalog or a schema. Raises InvalidArgumentError."""
        names.scope_parts(rule.scope)
        now_ms = self._now_ms()
        self._database.write(lambda connection: commit_policies.set_rule(connection, rule, now_ms=now_ms))

    def remove_commit_policy(self, scope: str) -> None:
        """Delete the rule of ``scope``. Raises InvalidArgumentError for a malformed scope."""
        names.scope_parts(scope)
        now_ms = self._now_ms()
        self._database.write(lambda connection: commit_policies.remove_rule(connection, scope, now_ms=now_ms))

    def change_commit_policy(self, table_id: str, policy: CommitPolicy | None) -> PolicyChange:
        """Set the policy, or return what must be done first. Raises TableNotFoundError, InvalidArgumentError."""
        now_ms = self._now_ms()
        return self._database.write(
            lambda connection: commit_policies.change(connection, table_id, policy, now_ms=now_ms)
        )

    def begin_release(self, table_id: str) -> PolicyChange:
        """Set put-if-absent for a release. Raises TableNotFoundError, OperationRefusedError, InvalidArgumentError."""
        now_ms = self._now_ms()
        return self._database.write(
            lambda connection: commit_policies.begin_release(connection, table_id, now_ms=now_ms)
        )

    def commit_policies(self) -> tuple[CommitPolicyRule, ...]:
        """Every rule, by scope."""
        return self._database.read(commit_policies.rules)

    def set_maintenance_rule(self, rule: MaintenanceRule) -> None:
        """Create or replace the rule. Raises InvalidArgumentError for a malformed scope, principal or reason."""
        names.scope_parts(rule.scope)
        checked_reason(rule.reason)
        for name in rule.conditions.principals:
            checked_principal(name)
        now_ms = self._now_ms()
        self._database.write(lambda connection: maintenance.set_rule(connection, rule, now_ms=now_ms))

    def remove_maintenance_rule(self, scope: str, kind: MaintenanceKind) -> None:
        """Delete the rule of ``scope``. Raises InvalidArgumentError for a malformed scope."""
        names.scope_parts(scope)
        now_ms = self._now_ms()
        self._database.write(lambda connection: maintenance.remove_rule(connection, scope, kind, now_ms=now_ms))

    def maintenance_rules(self) -> tuple[MaintenanceRule, ...]:
        """Every rule, by scope and kind."""
        return self._database.read(maintenance.rules)

    def maintenance_decision(
        self, identifier: TableIdentifier, kind: MaintenanceKind, *, table_id: str | None = None
    ) -> MaintenanceDecision:
        """The rule of the narrowest scope, else the default. The table need not exist."""
        now_ms = self._now_ms()
        return self._database.read(
            lambda connection: maintenance.decision(connection, identifier, kind, table_id=table_id, now_ms=now_ms)
        )

    def authorize_maintenance(
        self, identifier: TableIdentifier, kind: MaintenanceKind, *, table_id: str | None = None
    ) -> MaintenanceDecision:
        """The decision, recorded in the audit unless this role of the database cannot write it."""
        now_ms = self._now_ms()
        try:
            return self._database.write(
                lambda connection: maintenance.authorize(connection, identifier, kind, table_id=table_id, now_ms=now_ms)
            )
        except PermissionDeniedError:
            return self.maintenance_decision(identifier, kind, table_id=table_id)

    def pin_version(self, table_id: str, version: int, *, owner: str) -> int:
        """Pin a version unless there is a pin. Raises TableNotFoundError, InvalidArgumentError."""
        now_ms = self._now_ms()
        return self._database.write(
            lambda connection: pins.pin(connection, table_id, version, owner=owner, now_ms=now_ms)
        )

    def raise_pinned_version(self, table_id: str, version: int, *, owner: str) -> int:
        """Raise the pin. Raises TableNotFoundError, InvalidArgumentError."""
        now_ms = self._now_ms()
        return self._database.write(
            lambda connection: pins.raise_pin(connection, table_id, version, owner=owner, now_ms=now_ms)
        )

    def pinned_version(self, table_id: str, *, owner: str) -> int | None:
        """The version that the owner has pinned, in one statement."""
        return self._database.read(lambda connection: pins.pinned(connection, table_id, owner=owner))
