"""Which names are principals that the catalog knows. A principal has no entry of its own, so that any name can be one.

Functions over an open connection.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import ROLE, plain_name
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.database.schema import AUDIT, COMMITS, FEED, GRANTS, ROLE_MEMBERS, TABLES

_STORED = (GRANTS.c.grantee, TABLES.c.owner, ROLE_MEMBERS.c.member)
_ACTED = (AUDIT.c.principal, COMMITS.c.principal, FEED.c.actor)
_KNOWN = sa.union_all(
    *(
        sa.select(sa.literal(1)).where(place == sa.bindparam(name)).limit(1).subquery().select()
        for name, places in (("stored", _STORED), ("plain", _ACTED))
        for place in places
    )
).limit(1)
_LOGS_IN = sa.text("SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = :name AND rolcanlogin")


def can_act(connection: sa.Connection, name: str) -> bool:
    """Whether a client can act as ``name``, which is as in storage: a role with members or of the caller, or a principal that
    the catalog has seen.

    A principal has been seen if it has a grant, owns a table, is a member of a role, or has done something; on PostgreSQL every
    role that can log in is one.
    """
    if name in guard.first_names(connection):
        return True
    if name.startswith(ROLE):
        return connection.execute(sa.select(ROLE_MEMBERS.c.role).where(ROLE_MEMBERS.c.role == name)).first() is not None
    plain = plain_name(name)
    if connection.execute(_KNOWN, {"stored": name, "plain": plain}).first() is not None:
        return True
    return connection.dialect.name == "postgresql" and connection.execute(_LOGS_IN, {"name": plain}).first() is not None
