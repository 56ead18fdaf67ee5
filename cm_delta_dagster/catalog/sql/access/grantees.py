"""Names of principals and roles: as callers write them, and as the catalog stores them.

In storage a principal is ``user:NAME`` and a role ``role:NAME``. A caller may write both forms, or the name alone: that of a role
if there is one, else of a principal. A role that is written with its prefix needs no entry in the
catalog: an identity provider may name it. Functions over an open connection.
"""

from collections.abc import Callable

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import ROLE, USER, plain_name
from cm_delta_dagster.catalog.sql.database.schema import ROLES
from cm_delta_dagster.errors import InvalidArgumentError

PUBLIC = "public"
"""The role of which everybody is a member."""


def of_user(principal: str | None) -> str | None:
    """The name of a principal in storage; None for a client that states none."""
    return None if principal is None else f"{USER}{principal}"


def of_role(name: str) -> str:
    """The name of a role in storage. Raises InvalidArgumentError for the name of a principal."""
    if name.startswith(USER):
        raise InvalidArgumentError(f"{name!r} is the name of a principal, and not of a role. Nothing was changed.")
    return f"{ROLE}{name.removeprefix(ROLE)}"


def stored(connection: sa.Connection, name: str) -> str:
    """The name in storage of what a caller wrote. Raises InvalidArgumentError for a prefix alone."""
    if name in (USER, ROLE):
        raise InvalidArgumentError(f"{name!r} names no principal and no role: write its name after the prefix.")
    if name.startswith((USER, ROLE)):
        return name
    role = of_role(name)
    if role == f"{ROLE}{PUBLIC}" or connection.execute(sa.select(ROLES.c.role).where(ROLES.c.role == role)).first():
        return role
    return f"{USER}{name}"


def shown_by(connection: sa.Connection) -> Callable[[str], str]:
    """What a caller writes for a name in storage: the name alone, unless it would mean another one."""
    roles = {f"{ROLE}{PUBLIC}", *connection.execute(sa.select(ROLES.c.role)).scalars()}

    def show(name: str) -> str:
        plain = plain_name(name)
        means = f"{ROLE}{plain}" if f"{ROLE}{plain}" in roles else f"{USER}{plain}"
        return plain if means == name and not plain.startswith((USER, ROLE)) else name

    return show


def shown(connection: sa.Connection, name: str) -> str:
    """As :func:`shown_by`, for one name."""
    return shown_by(connection)(name)
