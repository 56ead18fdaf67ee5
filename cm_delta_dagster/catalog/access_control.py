"""Interface to callers, grants and roles. The values are in ``access``."""

import typing
from collections.abc import Sequence

from cm_delta_dagster.catalog.access import Caller, Grant, Privilege, Role


class AccessControl(typing.Protocol):
    """Who may do what. Until grants are enabled, every client may do everything that its rights in the database allow.

    Every change is an entry of the audit. Methods that change something raise OperationRefusedError if the caller does not have
    the privilege ``own`` on the scope.
    """

    def whoami(self) -> Caller:
        """The principal of this client, its roles, and whether grants are enforced."""
        ...

    def enable_grants(self, *, owner: str | None = None, force: bool = False) -> None:
        """Enforce grants from now on. A principal has privileges only by grants, by its roles, and as the owner of tables.

        Args:
            owner: principal that gets the privilege ``own`` on ``*``; by default the caller.
            force: True to enable grants although afterwards no principal owns ``*``.

        Raises:
            InvalidArgumentError: no principal would own ``*``, or commits of a table are made put-if-absent, which the catalog
                cannot refuse.
        """
        ...

    def disable_grants(self) -> None:
        """Stop the enforcement; grants and roles stay."""
        ...

    def grant(self, privileges: Sequence[Privilege], scope: str, grantee: str, *, reason: str = "") -> None:
        """Grant privileges on ``*``, ``catalog``, ``catalog.schema`` or ``catalog.schema.table``; a repeated call has no effect.

        A grant on a wide scope applies to tables that are created later, too.

        Raises:
            InvalidArgumentError: no privilege, a malformed scope, or an impossible name.
            TableNotFoundError: there is no such table.
        """
        ...

    def revoke(
        self,
        privileges: Sequence[Privilege],
        scope: str,
        grantee: str,
        *,
        reason: str = "",
        force: bool = False,
    ) -> None:
        """Delete grants of exactly this scope.

        Raises:
            InvalidArgumentError: the grantee has no such grant; or no principal would own ``*`` afterwards, without ``force``.
            TableNotFoundError: there is no such table.
        """
        ...

    def grants(self, scope: str = "") -> Sequence[Grant]:
        """The grants that apply to ``scope``, those of wider and narrower scopes included; all without a scope."""
        ...

    def add_to_role(self, role: str, members: Sequence[str], *, reason: str = "") -> None:
        """Add principals and roles to a role, which is created if it does not exist.

        Raises InvalidArgumentError if a role would be a member of itself.
        """
        ...

    def remove_from_role(self, role: str, members: Sequence[str], *, reason: str = "", force: bool = False) -> None:
        """Remove members. Raises InvalidArgumentError if one is not a member, or as :meth:`revoke` for the last owner."""
        ...

    def drop_role(self, role: str, *, reason: str = "", force: bool = False) -> None:
        """Delete a role with its memberships and grants. Raises InvalidArgumentError as :meth:`remove_from_role`."""
        ...

    def roles(self) -> Sequence[Role]:
        """All roles with their direct members, sorted."""
        ...

    def table_owner(self, table_id: str) -> str | None:
        """The owner of a table; None if its creator stated no name. Raises TableNotFoundError."""
        ...

    def transfer_table(self, table_id: str, owner: str, *, reason: str = "") -> None:
        """Make ``owner`` the owner of the table. Raises TableNotFoundError."""
        ...
