"""Values of access control: privileges, grants, roles and callers (protocol heading "Catalog Responsibilities")."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

WHOLE_CATALOG = "*"
"""The scope of all tables."""

USER, ROLE = "user:", "role:"
"""Prefixes of names in storage: principals and roles are two namespaces, so that a user named like a role gains nothing."""


def plain_name(stored: str) -> str:
    """The name of a principal or role without its prefix, for texts."""
    return stored.removeprefix(USER) if stored.startswith(USER) else stored.removeprefix(ROLE)


class Privilege(StrEnum):
    """What a principal may do with the tables of a scope. Each privilege but READ includes others; see :attr:`included`."""

    READ = "read"
    """Load tables, follow their commits, read their rows."""

    APPEND = "append"
    """Commit new rows; includes READ."""

    MODIFY = "modify"
    """Commit changes and removals of rows; includes APPEND."""

    ALTER = "alter"
    """Create tables, change schema, properties, protocol and metadata domains; includes READ."""

    MAINTAIN = "maintain"
    """Rearrange files without changing rows, delete files that are no longer needed; includes READ."""

    OWN = "own"
    """Everything, including drop, rename, policies, and grants of these privileges."""

    @property
    def included(self) -> frozenset["Privilege"]:
        """The privileges that a holder of this one has, itself included."""
        return _INCLUDED[self]


_INCLUDED: Mapping[Privilege, frozenset[Privilege]] = {
    Privilege.READ: frozenset({Privilege.READ}),
    Privilege.APPEND: frozenset({Privilege.APPEND, Privilege.READ}),
    Privilege.MODIFY: frozenset({Privilege.MODIFY, Privilege.APPEND, Privilege.READ}),
    Privilege.ALTER: frozenset({Privilege.ALTER, Privilege.READ}),
    Privilege.MAINTAIN: frozenset({Privilege.MAINTAIN, Privilege.READ}),
    Privilege.OWN: frozenset(Privilege),
}


class CallerSource(StrEnum):
    """Where the name of a caller comes from."""

    CONNECTION = "connection"
    """The client stated it; the catalog trusts the client."""

    DATABASE = "database"
    """The client stated none: it is the role with which it logged in to the database server."""

    NONE = "none"
    """The client stated none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who uses the catalog.

    Attributes:
        principal: name of the user or the pipeline; None if the client stated none.
        roles: roles that the principal is a member of, directly or through other roles; sorted.
        grants_enabled: whether the catalog enforces grants.
    """

    principal: str | None
    source: CallerSource
    roles: tuple[str, ...] = ()
    grants_enabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A privilege of a principal or a role.

    Attributes:
        grantee: name of the principal or role.
        scope: ``*``, ``catalog``, ``catalog.schema`` or ``catalog.schema.table``. A grant on a table belongs to its id: it stays
            when the table is renamed, and does not apply to another table of the same name.
        granted_by: the principal who granted it; None if it stated no name.
        granted_ms: epoch milliseconds.
        table_id: of the table, for the scope of a table.
    """

    grantee: str
    privilege: Privilege
    scope: str
    granted_by: str | None = None
    granted_ms: int = 0
    table_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A name for several principals. ``members`` are principals and other roles, sorted."""

    name: str
    members: tuple[str, ...] = ()
