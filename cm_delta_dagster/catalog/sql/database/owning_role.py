"""The role that owns the catalog's tables on PostgreSQL. Functions over an open connection."""

from dataclasses import dataclass

import sqlalchemy as sa

_OWNER = sa.text(
    "SELECT pg_catalog.pg_get_userbyid(c.relowner) AS name, pg_catalog.pg_has_role(c.relowner, 'USAGE') AS is_member "
    "FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass('cm_delta_tables')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwningRole:
    """The role that owns the catalog's tables. ``is_member``: whether the role of the connection is this role or has its rights."""

    name: str
    is_member: bool


def of(connection: sa.Connection) -> OwningRole | None:
    """The owner; None if there is no catalog."""
    row = connection.execute(_OWNER).one_or_none()
    return None if row is None else OwningRole(name=row.name, is_member=row.is_member)
