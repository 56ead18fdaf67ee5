"""Methods of :class:`~cm_delta_dagster.catalog.sql.catalog.SqlCatalog` for callers, grants, roles and the audit."""

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import ROLE, WHOLE_CATALOG, Caller, Grant, Privilege, Role
from cm_delta_dagster.catalog.audit import AuditEntry
from cm_delta_dagster.catalog.sql.access import audit, grants, guard
from cm_delta_dagster.catalog.sql.access.grantees import PUBLIC
from cm_delta_dagster.catalog.sql.database.caller_database import CallerDatabase
from cm_delta_dagster.catalog.sql.database.callers import checked_principal
from cm_delta_dagster.catalog.sql.rows import names
from cm_delta_dagster.catalog.texts import checked_reason
from cm_delta_dagster.errors import InvalidArgumentError

_MAX_LIMIT = 100_000


class AccessMethods:
    """A base of the catalog. Each method opens the connection or transaction of one operation."""

    _database: CallerDatabase
    _now_ms: Callable[[], int]

    def whoami(self) -> Caller:
        """The caller of this client."""
        return self._database.read(grants.whoami)

    def enable_grants(self, *, owner: str | None = None, lock_out: bool = False) -> None:
        """Enforce grants. Raises InvalidArgumentError, OperationRefusedError."""
        now_ms, named = self._now_ms(), checked_principal(owner)
        self._database.write(
            lambda connection: grants.enable(connection, owner=named, lock_out=lock_out, now_ms=now_ms)
        )

    def disable_grants(self) -> None:
        """Stop the enforcement. Raises OperationRefusedError."""
        now_ms = self._now_ms()
        self._database.write(lambda connection: grants.disable(connection, now_ms=now_ms))

    def grant(self, privileges: Sequence[Privilege], scope: str, grantee: str, *, reason: str = "") -> None:
        """Insert grants. Raises InvalidArgumentError, TableNotFoundError, OperationRefusedError."""
        wanted, name, why = _privileges(privileges), _required_name(grantee), checked_reason(reason)
        now_ms = self._now_ms()
        self._database.write(
            lambda connection: grants.grant(connection, wanted, scope, name, reason=why, now_ms=now_ms)
        )

    def revoke(
        self,
        privileges: Sequence[Privilege],
        scope: str,
        grantee: str,
        *,
        reason: str = "",
        lock_out: bool = False,
    ) -> None:
        """Delete grants. Raises InvalidArgumentError, TableNotFoundError, OperationRefusedError."""
        wanted, name, why = _privileges(privileges), _required_name(grantee), checked_reason(reason)
        now_ms = self._now_ms()
        self._database.write(
            lambda connection: grants.revoke(
                connection, wanted, scope, name, reason=why, lock_out=lock_out, now_ms=now_ms
            )
        )

    def grants(self, scope: str = "") -> tuple[Grant, ...]:
        """The grants at, above and below a scope. Raises InvalidArgumentError for a malformed one."""
        if scope not in ("", WHOLE_CATALOG):
            names.scope_parts(scope)
        return self._database.read(lambda connection: grants.grants(connection, scope))

    def add_to_role(self, role: str, members: Sequence[str], *, reason: str = "") -> None:
        """Insert memberships. Raises InvalidArgumentError, OperationRefusedError."""
        name, found, why = _role_name(role), _members(members), checked_reason(reason)
        now_ms = self._now_ms()
        self._database.write(lambda connection: grants.add_to_role(connection, name, found, reason=why, now_ms=now_ms))

    def remove_from_role(self, role: str, members: Sequence[str], *, reason: str = "", lock_out: bool = False) -> None:
        """Delete memberships. Raises InvalidArgumentError, OperationRefusedError."""
        name, found, why = _role_name(role), _members(members), checked_reason(reason)
        now_ms = self._now_ms()
        self._database.write(
            lambda connection: grants.remove_from_role(
                connection, name, found, reason=why, lock_out=lock_out, now_ms=now_ms
            )
        )

    def drop_role(self, role: str, *, reason: str = "", lock_out: bool = False) -> None:
        """Delete a role. Raises InvalidArgumentError, OperationRefusedError."""
        name, why, now_ms = _role_name(role), checked_reason(reason), self._now_ms()
        self._database.write(
            lambda connection: grants.drop_role(connection, name, reason=why, lock_out=lock_out, now_ms=now_ms)
        )

    def roles(self) -> tuple[Role, ...]:
        """All roles, sorted."""
        return self._database.read(grants.roles)

    def table_owner(self, table_id: str) -> str | None:
        """The owner of a table. Raises TableNotFoundError."""
        return self._database.read(lambda connection: grants.table_owner(connection, table_id))

    def transfer_table(self, table_id: str, owner: str, *, reason: str = "") -> None:
        """Set the owner of a table. Raises TableNotFoundError, InvalidArgumentError, OperationRefusedError."""
        name, why, now_ms = _required_name(owner), checked_reason(reason), self._now_ms()
        self._database.write(
            lambda connection: grants.transfer_table(connection, table_id, name, reason=why, now_ms=now_ms)
        )

    def audit(self, *, scope: str = "", after: int | None = None, limit: int = 1000) -> tuple[AuditEntry, ...]:
        """Entries of the audit. Raises InvalidArgumentError, OperationRefusedError."""
        if scope == WHOLE_CATALOG:
            scope = ""
        if scope != "":
            names.scope_parts(scope)
        start = 0 if after is None else after
        whole = isinstance(limit, int) and isinstance(start, int)
        if not whole or not 0 < limit <= _MAX_LIMIT or not 0 <= start <= names.LARGEST:
            raise InvalidArgumentError(
                f"The audit was asked for {limit} entries after {start}; give a limit from 1 to {_MAX_LIMIT} and an id of at least "
                "0."
            )

        def entries(connection: sa.Connection) -> tuple[AuditEntry, ...]:
            guard.require(connection, guard.Operation.READ_AUDIT, scope or WHOLE_CATALOG)
            return audit.entries(connection, scope=scope, after=after, limit=limit)

        return self._database.read(entries)


def _privileges(privileges: Sequence[Privilege]) -> tuple[Privilege, ...]:
    found = tuple(dict.fromkeys(privileges))
    if not found:
        raise InvalidArgumentError(
            f"No privilege was given; the privileges are {', '.join(one.value for one in Privilege)}."
        )
    return found


def _required_name(name: str) -> str:
    checked = checked_principal(name)
    if checked is None:
        raise InvalidArgumentError("No principal was given: name the user, the pipeline or the role.")
    return checked


def _role_name(name: str) -> str:
    checked = _required_name(name)
    if checked in (PUBLIC, f"{ROLE}{PUBLIC}"):
        raise InvalidArgumentError(f"{name!r} is the role of everybody; it has no members to add or remove.")
    return checked


def _members(members: Sequence[str]) -> tuple[str, ...]:
    if isinstance(members, str) or not isinstance(members, Sequence) or not members:
        raise InvalidArgumentError(f"The members {members!r} are not a list of names; give at least one, e.g. ['ana'].")
    return tuple(_role_name(member) for member in members)
