"""Methods of a connection that set policies of the catalog: commit modes and permissions for maintenance."""

from collections.abc import Iterable

from cm_delta_dagster.api.delta_table import maintenance_kind
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind, CommitPolicyRule
from cm_delta_dagster.catalog.maintenance import MaintenanceConditions, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.maintenance_windows import MaintenanceWindow
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import several
from cm_delta_dagster.operations.tables.scopes import IF_MEANT, check_scope
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy


class ConnectionPolicies:
    """A base of :class:`~cm_delta_dagster.api.connection.Connection`."""

    client: DeltaClient

    def set_commit_mode(
        self,
        scope: str,
        mode: CommitPolicyKind | str,
        *,
        inline_max_bytes: int | None = None,
        future: bool = False,
    ) -> None:
        """Set how clients commit to ``catalog``, ``catalog.schema`` or ``catalog.schema.table``. The longest scope decides.

        Repeat the call after a failure to complete it. ``put_if_absent`` for a catalog or schema applies to tables that are
        created later.

        Args:
            mode: ``staged``, ``inline``, ``auto`` or ``put_if_absent``.
            inline_max_bytes: for ``auto``: the largest commit, in bytes, that the catalog stores until it is published.
            future: set the mode for a catalog or schema that does not exist yet.

        Raises:
            InvalidArgumentError: an unknown mode, a malformed scope, a scope that names nothing, or ``auto`` without a size.
            TableNotFoundError: no table has that name.
            StoreNotSupportedError: ``put_if_absent``, and the store of the table has no put-if-absent.
            CommitRetriesExceededError: concurrent commits won every attempt to switch the table.
        """
        policy = CommitPolicy(kind=_commit_mode(mode), inline_max_bytes=inline_max_bytes)
        if not future:
            check_scope(self.client.registry, self.client.namespaces, scope, remedy=IF_MEANT, with_tables=False)
        choose_commit_policy(self.client, scope=scope, policy=policy)

    def reset_commit_mode(self, scope: str) -> None:
        """Remove the mode of that scope, so that the wider scope or the default decides. Errors as :meth:`set_commit_mode`."""
        choose_commit_policy(self.client, scope=scope, policy=None)

    def commit_modes(self) -> tuple[CommitPolicyRule, ...]:
        """Return the mode of every scope that has one. Without a mode, commits are staged."""
        return self.client.commit_policies.commit_policies()

    def allow(
        self,
        scope: str,
        kind: MaintenanceKind | str,
        reason: str = "",
        *,
        principals: str | Iterable[str] = (),
        windows: str | Iterable[str] = (),
        min_retention_ms: int | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        future: bool = False,
    ) -> None:
        """Allow a kind of maintenance for ``catalog``, ``catalog.schema`` or ``catalog.schema.table``.

        Args:
            principals: principals and roles; with none everybody. Others are denied it.
            windows: times such as ``22:00-06:00`` (UTC) or ``Mon-Fri 22:00-06:00 Europe/Berlin``; with none always.
            min_retention_ms: least retention of a run that deletes files, in milliseconds, also if a shorter one is passed.
            max_files: most files that one run may delete or rewrite.
            max_bytes: most bytes of them.
            future: set the rule for a scope that has no table yet.

        Raises:
            InvalidArgumentError: an unknown kind, a malformed scope, time or number, or a scope that names nothing.
            OperationRefusedError: the caller does not own the scope.
        """
        conditions = MaintenanceConditions(
            principals=several(principals, what="The principals"),
            windows=tuple(map(MaintenanceWindow.parse, several(windows, what="The windows"))),
            min_retention_ms=min_retention_ms,
            max_files=max_files,
            max_bytes=max_bytes,
        )
        rule = MaintenanceRule(
            scope=scope, kind=maintenance_kind(kind), allowed=True, reason=reason, conditions=conditions
        )
        self._set_rule(rule, future=future)

    def deny(
        self,
        scope: str,
        kind: MaintenanceKind | str,
        reason: str = "",
        *,
        principals: str | Iterable[str] = (),
        windows: str | Iterable[str] = (),
        future: bool = False,
    ) -> None:
        """Deny a kind of maintenance to ``principals`` in ``windows``; arguments and errors as in :meth:`allow`.

        The longest scope decides. A denial does not concern other principals and times; for them the wider scope decides.
        """
        conditions = MaintenanceConditions(
            principals=several(principals, what="The principals"),
            windows=tuple(map(MaintenanceWindow.parse, several(windows, what="The windows"))),
        )
        rule = MaintenanceRule(
            scope=scope, kind=maintenance_kind(kind), allowed=False, reason=reason, conditions=conditions
        )
        self._set_rule(rule, future=future)

    def reset_policy(self, scope: str, kind: MaintenanceKind | str) -> None:
        """Remove the rule of that scope and kind, so that the wider scope or the default decides again.

        Does nothing if there is no such rule. Raises InvalidArgumentError for an unknown kind or a malformed scope.
        """
        self.client.maintenance_policies.remove_maintenance_rule(scope, maintenance_kind(kind))

    def policy(self) -> tuple[MaintenanceRule, ...]:
        """Return every rule. Without a rule, checkpoint, log compaction and checksum are allowed; other kinds are denied."""
        return self.client.maintenance_policies.maintenance_rules()

    def _set_rule(self, rule: MaintenanceRule, *, future: bool) -> None:
        if not future:
            check_scope(self.client.registry, self.client.namespaces, rule.scope, remedy=IF_MEANT)
        self.client.maintenance_policies.set_maintenance_rule(rule)


def _commit_mode(mode: CommitPolicyKind | str) -> CommitPolicyKind:
    try:
        return CommitPolicyKind(mode)
    except ValueError as error:
        known = ", ".join(kind.value for kind in CommitPolicyKind if kind is not CommitPolicyKind.SWITCHING)
        raise InvalidArgumentError(f"{mode!r} is not a commit mode; the modes are {known}.") from error
