"""Methods of a connection for grants, roles, owners of tables and the audit."""

from collections.abc import Iterable, Sequence

from cm_delta_dagster.catalog.access import Caller, Grant, Privilege, Role
from cm_delta_dagster.catalog.application_ids import ApplicationId
from cm_delta_dagster.catalog.audit import AuditEntry
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import several
from cm_delta_dagster.operations.tables.scopes import IF_MEANT, check_scope


class ConnectionAccess:
    """A base of :class:`~cm_delta_dagster.api.connection.Connection`."""

    client: DeltaClient

    def whoami(self) -> Caller:
        """Return the principal of this connection, its roles, and whether the catalog enforces grants."""
        return self.client.access.whoami()

    def enable_grants(self, *, owner: str | None = None, lock_out: bool = False) -> None:
        """Enforce grants from now on: a principal may do what it was granted, and what it may do as the owner of a table.

        Args:
            owner: principal that owns all tables and may change all grants; by default the principal of this connection.
            lock_out: True to enable grants although no principal owns all tables afterwards.

        Raises:
            InvalidArgumentError: no principal would own all tables; or commits of a table are made put-if-absent.
            OperationRefusedError: grants are enforced, and this principal does not own all tables.
        """
        self.client.access.enable_grants(owner=owner, lock_out=lock_out)

    def disable_grants(self) -> None:
        """Stop the enforcement; grants and roles stay. Raises OperationRefusedError."""
        self.client.access.disable_grants()

    def grant(
        self,
        privileges: Privilege | str | Iterable[Privilege | str],
        scope: str,
        to: str,
        *,
        reason: str = "",
        future: bool = False,
    ) -> None:
        """Grant privileges; a repeated call does nothing.

        Args:
            privileges: one of ``read``, ``append``, ``modify``, ``alter``, ``maintain``, ``own``, or several.
            scope: ``*`` for all tables, ``catalog``, ``catalog.schema`` or ``catalog.schema.table``. A grant on a wide scope
                applies to tables that are created later, too.
            to: a principal, a role, or ``public`` for everybody.
            reason: for the audit.
            future: grant on a catalog or a schema that has no table yet.

        Raises:
            InvalidArgumentError: an unknown privilege, a malformed scope, or one that names nothing, or no name.
            TableNotFoundError: there is no such table.
            OperationRefusedError: this principal does not own the scope.
        """
        parsed = _privileges(privileges)
        if not future:
            check_scope(self.client.registry, self.client.namespaces, scope, remedy=IF_MEANT, with_tables=False)
        self.client.access.grant(parsed, scope, to, reason=reason)

    def revoke(
        self,
        privileges: Privilege | str | Iterable[Privilege | str],
        scope: str,
        principal: str,
        *,
        reason: str = "",
        lock_out: bool = False,
    ) -> None:
        """Delete grants of exactly this scope; arguments and errors as in :meth:`grant`.

        Args:
            lock_out: True to delete even the last grant of ``own`` on ``*``.

        Raises:
            InvalidArgumentError: there is no such grant, or no principal would own all tables afterwards.
        """
        self.client.access.revoke(_privileges(privileges), scope, principal, reason=reason, lock_out=lock_out)

    def grants(self, scope: str = "") -> tuple[Grant, ...]:
        """Return the grants that apply in a scope, those of wider and narrower scopes included; all without a scope."""
        return tuple(self.client.access.grants(scope))

    def add_to_role(self, role: str, members: str | Sequence[str], *, reason: str = "") -> None:
        """Add principals or roles to a role, which is created if it does not exist.

        Raises:
            InvalidArgumentError: no name, or the role would be a member of itself.
            OperationRefusedError: this principal does not own all tables.
        """
        self.client.access.add_to_role(role, several(members, what="The members"), reason=reason)

    def remove_from_role(
        self, role: str, members: str | Sequence[str], *, reason: str = "", lock_out: bool = False
    ) -> None:
        """Remove members of a role; arguments and errors as in :meth:`revoke`."""
        self.client.access.remove_from_role(
            role, several(members, what="The members"), reason=reason, lock_out=lock_out
        )

    def drop_role(self, role: str, *, reason: str = "", lock_out: bool = False) -> None:
        """Delete a role with its grants; arguments and errors as in :meth:`revoke`."""
        self.client.access.drop_role(role, reason=reason, lock_out=lock_out)

    def roles(self) -> tuple[Role, ...]:
        """Return all roles with their direct members."""
        return tuple(self.client.access.roles())

    def owner(self, name: TableIdentifier | str) -> str | None:
        """Return the owner of a table, at first its creator; None if that stated no name. Raises TableNotFoundError."""
        return self.client.access.table_owner(self._table_id(name))

    def transfer(self, name: TableIdentifier | str, to: str, *, reason: str = "") -> None:
        """Make a principal or a role the owner of a table. Raises TableNotFoundError, OperationRefusedError."""
        self.client.access.transfer_table(self._table_id(name), to, reason=reason)

    def application_ids(self, name: TableIdentifier | str) -> tuple[ApplicationId, ...]:
        """Return the application ids that commits of a table have set (``txn``), with the principal that did so last.

        Raises TableNotFoundError, OperationRefusedError.
        """
        return tuple(self.client.application_ids.application_ids(self._table_id(name)))

    def reset_application_id(self, name: TableIdentifier | str, app_id: str, *, reason: str = "") -> None:
        """Let the next principal set an application id of a table without ``alter``. The table keeps its ``txn``.

        Args:
            app_id: as in the log, or as :meth:`application_ids` returns it.
            reason: for the audit.

        Raises:
            InvalidArgumentError: no recorded commit of the table has set the application id.
            TableNotFoundError: there is no such table.
            OperationRefusedError: this principal does not have the privilege ``alter`` on the table.
        """
        self.client.application_ids.reset_application_id(self._table_id(name), app_id, reason=reason)

    def audit(self, scope: str = "", *, after: int | None = None, limit: int = 1000) -> tuple[AuditEntry, ...]:
        """Return who changed grants, roles and rules, and what was refused: the newest entries, in the order of time.

        Args:
            scope: only entries of this catalog, schema or table; all by default.
            after: only entries with a larger ``entry_id``, and of these the oldest: to read the whole audit from 0 on.
            limit: largest number of entries.

        Raises:
            OperationRefusedError: this principal does not own the scope.
        """
        return tuple(self.client.audit_log.audit(scope=scope, after=after, limit=limit))

    def _table_id(self, name: TableIdentifier | str) -> str:
        return self.client.registry.load_table(TableIdentifier.of(name)).table_id


def _privileges(privileges: Privilege | str | Iterable[Privilege | str]) -> tuple[Privilege, ...]:
    return tuple(map(_privilege, several(privileges, what="The privileges")))


def _privilege(name: Privilege | str) -> Privilege:
    try:
        return Privilege(name)
    except ValueError as error:
        known = ", ".join(privilege.value for privilege in Privilege)
        raise InvalidArgumentError(f"{name!r} is not a privilege; the privileges are {known}.") from error
