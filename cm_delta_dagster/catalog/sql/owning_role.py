"""The role that owns the catalog's tables on PostgreSQL. Functions over an open connection.

While PostgreSQL enforces grants, only this role and its members can change grants, rules and policies, and create, rename and drop
tables.
"""

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

_OWNER = sa.text(
    "SELECT pg_catalog.pg_get_userbyid(c.relowner) AS name, "
    "pg_catalog.pg_has_role(session_user, c.relowner, 'USAGE') AS is_member, "
    "pg_catalog.to_regproc('cm_delta_place') IS NOT NULL AS enforces "
    "FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass('cm_delta_tables')"
)
_MEMBERS = sa.text(
    "SELECT r.rolname FROM pg_catalog.pg_roles r, pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass('cm_delta_tables') "
    "AND r.rolcanlogin AND pg_catalog.pg_has_role(r.oid, c.relowner, 'USAGE') AND r.rolname = ANY(:names)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwningRole:
    """The role that owns the catalog's tables.

    Attributes:
        is_member: whether the role that logged in is this role or has its rights.
        enforces: whether PostgreSQL enforces grants.
    """

    name: str
    is_member: bool
    enforces: bool


def of(connection: sa.Connection) -> OwningRole | None:
    """The owner; None if there is no catalog."""
    row = connection.execute(_OWNER).one_or_none()
    return None if row is None else OwningRole(name=row.name, is_member=row.is_member, enforces=row.enforces)


def has_login_among(connection: sa.Connection, names: Collection[str]) -> bool:
    """Whether one of ``names`` is a role that can log in, and is the owner of the tables or has its rights."""
    return connection.execute(_MEMBERS, {"names": sorted(names)}).first() is not None
