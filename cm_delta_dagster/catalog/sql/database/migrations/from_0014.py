"""From revision 0014 to 0015: principals and roles have names of two namespaces, ``user:NAME`` and ``role:NAME``."""

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

_USER, _ROLE, _PUBLIC = "user:", "role:", "public"

_GRANTS = sa.table("cm_delta_grants", sa.column("grantee"))
_TABLES = sa.table("cm_delta_tables", sa.column("owner"))
_ROLES = sa.table("cm_delta_roles", sa.column("role"))
_MEMBERS = sa.table("cm_delta_role_members", sa.column("role"), sa.column("member"))
_RULES = sa.table("cm_delta_commit_rules", sa.column("scope"), sa.column("name"), sa.column("arguments"))
_ALLOWED = sa.table("cm_delta_maintenance_rules", sa.column("scope"), sa.column("kind"), sa.column("principals"))
_APPROVALS = sa.table("cm_delta_approvals", sa.column("approval_id"), sa.column("rules"))


def upgrade(connection: sa.Connection) -> None:
    """A name that was that of a role is the role's, so that a user of that name has its privileges no more."""
    roles = {_PUBLIC, *connection.execute(sa.select(_ROLES.c.role)).scalars()}

    def qualified(name: str) -> str:
        return f"{_ROLE if name in roles else _USER}{name}"

    for table, column in ((_GRANTS, _GRANTS.c.grantee), (_TABLES, _TABLES.c.owner)):
        names = connection.execute(sa.select(column).distinct().where(column.is_not(None))).scalars()
        # Longest first, so that no name is converted twice: ``user:a`` may have been a name.
        for name in sorted(names, key=len, reverse=True):
            connection.execute(sa.update(table).where(column == name).values({column.name: qualified(name)}))
    _qualify_roles(connection, qualified)
    for row in connection.execute(sa.select(_RULES)).all():
        same = sa.and_(_RULES.c.scope == row.scope, _RULES.c.name == row.name)
        arguments = json.dumps(_arguments(json.loads(row.arguments), qualified))
        connection.execute(sa.update(_RULES).where(same).values(arguments=arguments))
    for row in connection.execute(sa.select(_ALLOWED)).all():
        same = sa.and_(_ALLOWED.c.scope == row.scope, _ALLOWED.c.kind == row.kind)
        principals = json.dumps([qualified(name) for name in json.loads(row.principals)])
        connection.execute(sa.update(_ALLOWED).where(same).values(principals=principals))
    for row in connection.execute(sa.select(_APPROVALS)).all():
        same = _APPROVALS.c.approval_id == row.approval_id
        demands = json.dumps([_demand(json.loads(text), qualified) for text in json.loads(row.rules)])
        connection.execute(sa.update(_APPROVALS).where(same).values(rules=demands))


def _qualify_roles(connection: sa.Connection, qualified: Callable[[str], str]) -> None:
    members = connection.execute(sa.select(_MEMBERS)).all()
    roles = connection.execute(sa.select(_ROLES.c.role)).scalars().all()
    connection.execute(sa.delete(_MEMBERS))
    connection.execute(sa.delete(_ROLES))
    if roles:
        connection.execute(sa.insert(_ROLES), [{"role": f"{_ROLE}{role}"} for role in roles])
    if members:
        rows = [{"role": f"{_ROLE}{row.role}", "member": qualified(row.member)} for row in members]
        connection.execute(sa.insert(_MEMBERS), rows)


def _arguments(arguments: dict[str, Any], qualified: Callable[[str], str]) -> dict[str, Any]:
    if not isinstance(arguments.get("principals"), list):
        return arguments
    return {**arguments, "principals": [qualified(name) for name in arguments["principals"]]}


def _demand(demand: dict[str, Any], qualified: Callable[[str], str]) -> str:
    return json.dumps({**demand, "arguments": _arguments(demand["arguments"], qualified)})
