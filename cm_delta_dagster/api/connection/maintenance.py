"""``lake.maintenance``: which maintenance the catalog permits, its leases, and the deletion of dropped tables."""

from collections.abc import Iterable
from datetime import timedelta

from cm_delta_dagster.api.connection.connection_part import ConnectionPart
from cm_delta_dagster.api.table.table_maintenance import maintenance_kind
from cm_delta_dagster.catalog.leases import Lease
from cm_delta_dagster.catalog.maintenance import MaintenanceConditions, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.maintenance_windows import MaintenanceWindow
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.operations.arguments import duration_ms, several
from cm_delta_dagster.operations.tables.purge import (
    ABANDONED_AFTER_MS,
    DROPPED_RETENTION_MS,
    PurgePlan,
    PurgeResult,
    check_table_can_be_purged,
    plan_purge,
    purge,
)
from cm_delta_dagster.operations.tables.scopes import IF_MEANT, check_scope


class ConnectionMaintenance(ConnectionPart):
    """Which maintenance is permitted, who runs it, and what is deleted of dropped tables: ``lake.maintenance``."""

    def set_policy(
        self,
        scope: str,
        kind: MaintenanceKind | str,
        *,
        allowed: bool = True,
        principals: str | Iterable[str] = (),
        windows: str | Iterable[str] = (),
        min_retention: timedelta | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        reason: str = "",
        future: bool = False,
    ) -> None:
        """Allow or deny a kind of maintenance for ``catalog``, ``catalog.schema`` or ``catalog.schema.table``.

        The policy of the longest scope decides; a call for the same scope and kind replaces it. So a denial for a schema does not
        concern a table that has a policy of its own; :meth:`list_policies` has both. A denial with ``principals`` or ``windows``
        does not concern other principals and times; for them the wider scope decides.

        Args:
            allowed: False denies the maintenance.
            principals: principals and roles; with none everybody. If ``allowed``, others are denied it.
            windows: times such as ``22:00-06:00`` (UTC) or ``Mon-Fri 22:00-06:00 Europe/Berlin``; with none always.
            min_retention: least retention of a run that deletes files, also if a shorter one is passed.
            max_files: most files that one run may delete or rewrite.
            max_bytes: most bytes of them.
            reason: shown with the decision.
            future: set the policy for a scope that has no table yet.

        Raises:
            InvalidArgumentError: an unknown kind, a malformed scope, time or number, a scope that names nothing, or a denial with
                a least retention or a largest run.
            OperationRefusedError: the caller does not own the scope.
        """
        conditions = MaintenanceConditions(
            principals=several(principals, what="The principals"),
            windows=tuple(map(MaintenanceWindow.parse, several(windows, what="The windows"))),
            min_retention=min_retention,
            max_files=max_files,
            max_bytes=max_bytes,
        )
        rule = MaintenanceRule(
            scope=scope, kind=maintenance_kind(kind), allowed=allowed, reason=reason, conditions=conditions
        )
        if not future:
            check_scope(self._client.registry, self._client.namespaces, scope, remedy=IF_MEANT)
        self._client.maintenance_policies.set_maintenance_rule(rule)

    def remove_policy(self, scope: str, kind: MaintenanceKind | str) -> None:
        """Remove the policy of that scope and kind, so that the wider scope or the default decides again.

        Does nothing if there is no such policy. Raises InvalidArgumentError for an unknown kind or a malformed scope.
        """
        self._client.maintenance_policies.remove_maintenance_rule(scope, maintenance_kind(kind))

    def list_policies(self) -> tuple[MaintenanceRule, ...]:
        """Return every policy. Without a policy, checkpoint, log compaction and checksum are allowed; other kinds are denied."""
        return self._client.maintenance_policies.maintenance_rules()

    def list_leases(self) -> tuple[Lease, ...]:
        """Return the maintenance leases that were not released, also those that have expired."""
        return tuple(self._client.leases.leases())

    def expire_lease(self, name: TableIdentifier | str, *, owner: str, reason: str = "") -> None:
        """End the maintenance lease of another run on a table: it can neither commit nor delete any more.

        Args:
            owner: who holds the lease, as :meth:`list_leases` shows it.
            reason: for the audit.

        Raises:
            TableNotFoundError: there is no such table.
            LeaseNotHeldError: ``owner`` does not hold the lease; nothing was changed.
            OperationRefusedError: grants are enabled, and the caller must not maintain the table.
        """
        table = self._client.table(name)
        self._client.leases.expire_lease(table.table_id, owner=owner, reason=reason)

    def plan_purge(
        self,
        scope: str = "",
        *,
        retention: timedelta = timedelta(milliseconds=DROPPED_RETENTION_MS),
        abandoned_after: timedelta = timedelta(milliseconds=ABANDONED_AFTER_MS),
    ) -> PurgePlan:
        """List the dropped tables and abandoned creations that :meth:`purge` would delete; deletes nothing.

        Args:
            scope: ``catalog``, ``catalog.schema``, a table's former name, or everything.
            retention: tables dropped more recently are kept.
            abandoned_after: creations that began more recently are kept, since they may still be in progress.

        Returns:
            The plan; its ``retained`` has the dropped tables that are kept, and until when.

        Raises:
            InvalidArgumentError: the scope names nothing, or is a table that was not dropped.
        """
        plan = plan_purge(
            self._client,
            scope=scope,
            retention_ms=duration_ms(retention, name="retention"),
            abandoned_after_ms=duration_ms(abandoned_after, name="abandoned_after"),
        )
        return plan.bound(lambda bound: purge(self._client, bound))

    def purge(
        self,
        scope: str = "",
        *,
        retention: timedelta = timedelta(milliseconds=DROPPED_RETENTION_MS),
        abandoned_after: timedelta = timedelta(milliseconds=ABANDONED_AFTER_MS),
    ) -> PurgeResult:
        """Delete the files of dropped tables and abandoned creations permanently. Arguments as of :meth:`plan_purge`.

        Raises:
            MaintenanceNotPermittedError: the policy no longer allows to purge a table of the plan, or ``scope`` is a table that it
                does not allow to purge.
            PurgeRefusedError: a table is outside this connection's warehouse, or ``scope`` is a table that was dropped too
                recently.
        """
        plan = self.plan_purge(scope, retention=retention, abandoned_after=abandoned_after)
        check_table_can_be_purged(plan, scope)
        return plan.apply()
