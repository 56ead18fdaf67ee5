"""``lake.access``: grants, roles, owners of tables, tokens, application ids and the audit."""

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta

from cm_delta_dagster.api.connection.connection_part import ConnectionPart
from cm_delta_dagster.catalog.access import Caller, Grant, Privilege, Role
from cm_delta_dagster.catalog.application_ids import ApplicationId
from cm_delta_dagster.catalog.audit import AuditEntry
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.tokens import AccessToken, CreatedToken
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import duration_ms, several
from cm_delta_dagster.operations.tables.scopes import IF_MEANT, check_scope

_log = logging.getLogger(__name__)


class ConnectionAccess(ConnectionPart):
    """Who may do what with the tables, and who did: ``lake.access``."""

    def whoami(self) -> Caller:
        """Return the principal of this connection, its roles, and whether the catalog enforces grants."""
        return self._client.access.whoami()

    def enable_grants(self, *, owner: str | None = None, force: bool = False) -> None:
        """Enforce grants from now on: a principal may do what it was granted, and what it may do as the owner of a table.

        Args:
            owner: principal that owns all tables and may change all grants; by default the principal of this connection.
            force: True to enable grants although no principal owns all tables afterwards.

        Raises:
            InvalidArgumentError: no principal would own all tables; or commits of a table are made put-if-absent.
            OperationRefusedError: grants are enforced, and this principal does not own all tables.
        """
        self._client.access.enable_grants(owner=owner, force=force)

    def disable_grants(self) -> None:
        """Stop the enforcement; grants and roles stay. Raises OperationRefusedError."""
        self._client.access.disable_grants()

    def grant(
        self,
        privileges: Privilege | str | Iterable[Privilege | str],
        scope: str,
        to: str,
        *,
        reason: str = "",
        future: bool = False,
    ) -> None:
        """Grant privileges; a repeated call does nothing. A warning is logged if the catalog does not enforce grants.

        Args:
            privileges: one of ``read``, ``append``, ``modify``, ``alter``, ``maintain``, ``own``, or several.
            scope: ``*`` for all tables, ``catalog``, ``catalog.schema`` or ``catalog.schema.table``. A grant on a wide scope
                applies to tables that are created later, too.
            to: a principal, a role, or ``public`` for everybody; ``role:NAME`` for a role of an identity provider.
            reason: for the audit.
            future: grant on a catalog or a schema that has no table yet.

        Raises:
            InvalidArgumentError: an unknown privilege, a malformed scope, or one that names nothing, or no name.
            TableNotFoundError: there is no such table.
            OperationRefusedError: this principal does not own the scope.
        """
        parsed = _privileges(privileges)
        if not future:
            check_scope(self._client.registry, self._client.namespaces, scope, remedy=IF_MEANT, with_tables=False)
        self._client.access.grant(parsed, scope, to, reason=reason)
        if not self._client.access.whoami().grants_enabled:
            _log.warning(
                "The grant on %s is recorded, but the catalog does not enforce grants: everybody may do everything until "
                "lake.access.enable_grants() is called.",
                scope,
            )

    def revoke(
        self,
        privileges: Privilege | str | Iterable[Privilege | str],
        scope: str,
        principal: str,
        *,
        reason: str = "",
        force: bool = False,
    ) -> None:
        """Delete grants of exactly this scope; arguments and errors as in :meth:`grant`.

        Args:
            force: True to delete even the last grant of ``own`` on ``*``.

        Raises:
            InvalidArgumentError: there is no such grant, or no principal would own all tables afterwards.
        """
        self._client.access.revoke(_privileges(privileges), scope, principal, reason=reason, force=force)

    def list_grants(self, scope: str = "") -> tuple[Grant, ...]:
        """Return the grants that apply in a scope, those of wider and narrower scopes included; all without a scope.

        A scope may have grants before it has tables. Raises InvalidArgumentError if no grant applies and nothing has that name.
        """
        return self._in_scope(self._client.access.grants(scope), scope)

    def add_to_role(self, role: str, members: str | Sequence[str], *, reason: str = "") -> None:
        """Add principals or roles to a role, which is created if it does not exist.

        Raises:
            InvalidArgumentError: no name, or the role would be a member of itself.
            OperationRefusedError: this principal does not own all tables.
        """
        self._client.access.add_to_role(role, several(members, what="The members"), reason=reason)

    def remove_from_role(
        self, role: str, members: str | Sequence[str], *, reason: str = "", force: bool = False
    ) -> None:
        """Remove members of a role; arguments and errors as in :meth:`revoke`."""
        self._client.access.remove_from_role(role, several(members, what="The members"), reason=reason, force=force)

    def drop_role(self, role: str, *, reason: str = "", force: bool = False) -> None:
        """Delete a role with its grants; arguments and errors as in :meth:`revoke`."""
        self._client.access.drop_role(role, reason=reason, force=force)

    def list_roles(self) -> tuple[Role, ...]:
        """Return all roles with their direct members."""
        return tuple(self._client.access.roles())

    def owner(self, name: TableIdentifier | str) -> str | None:
        """Return the owner of a table, at first its creator; None if that stated no name. Raises TableNotFoundError."""
        return self._client.access.table_owner(self._table_id(name))

    def set_owner(self, name: TableIdentifier | str, to: str, *, reason: str = "") -> None:
        """Make a principal or a role the owner of a table. Raises TableNotFoundError, OperationRefusedError."""
        self._client.access.transfer_table(self._table_id(name), to, reason=reason)

    def list_application_ids(self, name: TableIdentifier | str) -> tuple[ApplicationId, ...]:
        """Return the application ids that commits of a table have set (``txn``), with the principal that did so last.

        Raises TableNotFoundError, OperationRefusedError.
        """
        return tuple(self._client.application_ids.application_ids(self._table_id(name)))

    def reset_application_id(self, name: TableIdentifier | str, app_id: str, *, reason: str = "") -> None:
        """Let the next principal set an application id of a table without ``alter``. The table keeps its ``txn``.

        Args:
            app_id: as in the log, or as :meth:`list_application_ids` returns it.
            reason: for the audit.

        Raises:
            InvalidArgumentError: no recorded commit of the table has set the application id.
            TableNotFoundError: there is no such table.
            OperationRefusedError: this principal does not have the privilege ``alter`` on the table.
        """
        self._client.application_ids.reset_application_id(self._table_id(name), app_id, reason=reason)

    def create_token(
        self, principal: str, *, expires_in: timedelta | None, read_only: bool = False, scope: str = "*"
    ) -> CreatedToken:
        """Create a token, with which ``principal`` calls a server of this catalog. Its ``secret`` cannot be shown again.

        Args:
            principal: a user or a pipeline, whose privileges the token has.
            expires_in: how long it is valid; None for a token that does not expire.
            read_only: True for a token that changes nothing.
            scope: ``*``, ``catalog``, ``catalog.schema`` or ``catalog.schema.table``: where it has the privileges.

        Raises:
            InvalidArgumentError: an impossible name, duration or scope.
            TableNotFoundError: there is no such table.
            OperationRefusedError: grants are enforced, and this principal does not own all tables.
        """
        expires_in_ms = None if expires_in is None else duration_ms(expires_in, name="expires_in")
        return self._client.tokens.create_token(
            principal, expires_in_ms=expires_in_ms, read_only=read_only, scope=scope
        )

    def list_tokens(self) -> tuple[AccessToken, ...]:
        """Return all tokens without their secrets, the oldest first. Raises OperationRefusedError."""
        return tuple(self._client.tokens.tokens())

    def revoke_token(self, token_id: str, *, reason: str = "") -> AccessToken:
        """Refuse a token from now on.

        Raises:
            InvalidArgumentError: there is no such token.
            OperationRefusedError: grants are enforced, and this principal does not own all tables.
        """
        return self._client.tokens.revoke_token(token_id, reason=reason)

    def audit(self, scope: str = "", *, after: int | None = None, limit: int = 1000) -> tuple[AuditEntry, ...]:
        """Return who changed grants, roles and rules, and what was refused: the newest entries, in the order of time.

        Args:
            scope: only entries of this catalog, schema or table; all by default.
            after: only entries with a larger ``entry_id``, and of these the oldest: to read the whole audit from 0 on.
            limit: largest number of entries.

        Raises:
            OperationRefusedError: this principal does not own the scope.
            InvalidArgumentError: there is no entry, and nothing has the name of the scope.
        """
        entries = self._client.audit_log.audit(scope=scope, after=after, limit=limit)
        return tuple(entries) if after is not None else self._in_scope(entries, scope)

    def _table_id(self, name: TableIdentifier | str) -> str:
        return self._client.registry.load_table(TableIdentifier.of(name)).table_id


def _privileges(privileges: Privilege | str | Iterable[Privilege | str]) -> tuple[Privilege, ...]:
    return tuple(map(_privilege, several(privileges, what="The privileges")))


def _privilege(name: Privilege | str) -> Privilege:
    try:
        return Privilege(name.lower() if isinstance(name, str) else name)
    except ValueError as error:
        known = ", ".join(privilege.value for privilege in Privilege)
        raise InvalidArgumentError(
            f"{name!r} is not a privilege; the privileges are {known}. SELECT is read, INSERT is append, UPDATE and DELETE are "
            "modify."
        ) from error
