"""Principals and roles have names of two namespaces: ``user:NAME`` and ``role:NAME``."""

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_USER, _ROLE, _PUBLIC = "user:", "role:", "public"

_GRANTS = sa.table("cm_delta_grants", sa.column("grantee"))
_TABLES = sa.table("cm_delta_tables", sa.column("owner"))
_ROLES = sa.table("cm_delta_roles", sa.column("role"))
_MEMBERS = sa.table("cm_delta_role_members", sa.column("role"), sa.column("member"))
_RULES = sa.table("cm_delta_commit_rules", sa.column("scope"), sa.column("name"), sa.column("arguments"))
_ALLOWED = sa.table("cm_delta_maintenance_rules", sa.column("scope"), sa.column("kind"), sa.column("principals"))
_APPROVALS = sa.table("cm_delta_approvals", sa.column("approval_id"), sa.column("rules"))


def upgrade() -> None:
    """A name that was that of a role is the role's, so that a user of that name has its privileges no more."""
    roles = {_PUBLIC, *op.get_bind().execute(sa.select(_ROLES.c.role)).scalars()}
    _convert(
        lambda name: f"{_ROLE if name in roles else _USER}{name}", lambda role: f"{_ROLE}{role}", longest_first=True
    )


def downgrade() -> None:
    """Names lose their prefix."""
    _convert(_plain, _plain, longest_first=False)


def _plain(name: str) -> str:
    return name.removeprefix(_USER) if name.startswith(_USER) else name.removeprefix(_ROLE)


def _convert(of_name: Callable[[str], str], of_role: Callable[[str], str], *, longest_first: bool) -> None:
    """Convert all names. The order keeps a name that was converted from being converted again: ``user:a`` may have been a name."""
    connection = op.get_bind()
    for table, column in ((_GRANTS, _GRANTS.c.grantee), (_TABLES, _TABLES.c.owner)):
        names = connection.execute(sa.select(column).distinct().where(column.is_not(None))).scalars()
        for name in sorted(names, key=len, reverse=longest_first):
            connection.execute(sa.update(table).where(column == name).values({column.name: of_name(name)}))
    members = connection.execute(sa.select(_MEMBERS)).all()
    roles = connection.execute(sa.select(_ROLES.c.role)).scalars().all()
    connection.execute(sa.delete(_MEMBERS))
    connection.execute(sa.delete(_ROLES))
    if roles:
        connection.execute(sa.insert(_ROLES), [{"role": of_role(role)} for role in roles])
    if members:
        rows = [{"role": of_role(row.role), "member": of_name(row.member)} for row in members]
        connection.execute(sa.insert(_MEMBERS), rows)
    for row in connection.execute(sa.select(_RULES)).all():
        same = sa.and_(_RULES.c.scope == row.scope, _RULES.c.name == row.name)
        _set(_RULES, same, "arguments", _arguments(json.loads(row.arguments), of_name))
    for row in connection.execute(sa.select(_ALLOWED)).all():
        same = sa.and_(_ALLOWED.c.scope == row.scope, _ALLOWED.c.kind == row.kind)
        _set(_ALLOWED, same, "principals", [of_name(name) for name in json.loads(row.principals)])
    for row in connection.execute(sa.select(_APPROVALS)).all():
        demands = [_demand(json.loads(text), of_name) for text in json.loads(row.rules)]
        _set(_APPROVALS, _APPROVALS.c.approval_id == row.approval_id, "rules", demands)


def _set(table: sa.TableClause, same: "sa.ColumnElement[bool]", column: str, value: object) -> None:
    op.get_bind().execute(sa.update(table).where(same).values({column: json.dumps(value)}))


def _arguments(arguments: dict[str, Any], of_name: Callable[[str], str]) -> dict[str, Any]:
    if not isinstance(arguments.get("principals"), list):
        return arguments
    return {**arguments, "principals": [of_name(name) for name in arguments["principals"]]}


def _demand(demand: dict[str, Any], of_name: Callable[[str], str]) -> str:
    return json.dumps({**demand, "arguments": _arguments(demand["arguments"], of_name)})
