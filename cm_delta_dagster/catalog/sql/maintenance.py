"""Maintenance policy and claims (CM-M4, CM-M5, CM-M7).

Functions over an open connection. A claim keeps two maintenance runs apart; it does not lock out
writers.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.maintenance import (
    LeaseGranted,
    LeaseHeldByAnother,
    MaintenanceDecision,
    MaintenanceKind,
    MaintenanceRule,
)
from cm_delta_dagster.catalog.sql.commits import unknown_table
from cm_delta_dagster.catalog.sql.schema import IS_ACTIVE, MAINTENANCE_CLAIMS, MAINTENANCE_RULES, TABLES
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError

_RULES = sa.select(MAINTENANCE_RULES)
_DECIDING = _RULES.where(
    MAINTENANCE_RULES.c.kind == sa.bindparam("of_kind"),
    MAINTENANCE_RULES.c.scope.in_(sa.bindparam("scopes", expanding=True)),
)
_LOCKED_TABLE = (
    sa.select(TABLES.c.table_id).where(TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE).with_for_update()
)
_NAME_NOW = sa.select(TABLES.c.catalog_name, TABLES.c.schema_name, TABLES.c.table_name).where(
    TABLES.c.table_id == sa.bindparam("of_table")
)


def set_rule(connection: sa.Connection, rule: MaintenanceRule) -> None:
    """Replace what stands for that scope and kind."""
    values = {"allowed": rule.allowed, "reason": rule.reason}
    same = sa.and_(MAINTENANCE_RULES.c.scope == rule.scope, MAINTENANCE_RULES.c.kind == rule.kind.value)
    if connection.execute(sa.update(MAINTENANCE_RULES).where(same).values(values)).rowcount:
        return
    row = {"scope": rule.scope, "kind": rule.kind.value, **values}
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(MAINTENANCE_RULES).values(row))
    except sa.exc.IntegrityError:  # Another client made the rule in between; the later caller's word stands.
        connection.execute(sa.update(MAINTENANCE_RULES).where(same).values(values))


def remove_rule(connection: sa.Connection, scope: str, kind: MaintenanceKind) -> None:
    """Delete the rule if there is one."""
    connection.execute(
        sa.delete(MAINTENANCE_RULES).where(MAINTENANCE_RULES.c.scope == scope, MAINTENANCE_RULES.c.kind == kind.value)
    )


def carry_denials(connection: sa.Connection, before: TableIdentifier, after: TableIdentifier) -> None:
    """Deny under the new name what a rule for the table's old name denies: a rename permits nothing."""
    denials = _RULES.where(MAINTENANCE_RULES.c.scope == str(before), MAINTENANCE_RULES.c.allowed.is_(False))
    for row in connection.execute(denials).all():
        reason = f"denied as {before} before its rename{f': {row.reason}' if row.reason else ''}"
        set_rule(
            connection, MaintenanceRule(scope=str(after), kind=MaintenanceKind(row.kind), allowed=False, reason=reason)
        )


def rules(connection: sa.Connection) -> tuple[MaintenanceRule, ...]:
    """Every rule, by scope and kind."""
    found = (
        MaintenanceRule(scope=row.scope, kind=MaintenanceKind(row.kind), allowed=row.allowed, reason=row.reason)
        for row in connection.execute(_RULES)
    )
    return tuple(sorted(found, key=lambda rule: (rule.scope, rule.kind)))


def decision(
    connection: sa.Connection, identifier: TableIdentifier, kind: MaintenanceKind, *, table_id: str | None = None
) -> MaintenanceDecision:
    """The rule of the longest scope decides; without one, the protocol's default."""
    if table_id is not None:
        row = connection.execute(_NAME_NOW, {"of_table": table_id}).one_or_none()
        if row is not None:
            identifier = TableIdentifier(row.catalog_name, row.schema_name, row.table_name)
    schema_scope = f"{identifier.catalog}.{identifier.schema}"
    parameters = {"of_kind": kind.value, "scopes": [identifier.catalog, schema_scope, str(identifier)]}
    found = connection.execute(_DECIDING, parameters).all()
    if found:
        rule = max(found, key=lambda row: row.scope.count("."))
        reason = rule.reason or f"{'allowed' if rule.allowed else 'denied'} by the rule for {rule.scope}"
        return MaintenanceDecision(kind=kind, allowed=rule.allowed, reason=reason, decided_by=rule.scope)
    reason = (
        "needs no permission, and no rule denies it"
        if kind.allowed_by_default
        else "needs a rule that allows it, and there is none for the table, its schema or its catalog"
    )
    return MaintenanceDecision(kind=kind, allowed=kind.allowed_by_default, reason=reason, decided_by="default")


def claim(
    connection: sa.Connection, table_id: str, kind: MaintenanceKind, *, owner: str, duration_ms: int, now_ms: int
) -> LeaseGranted | LeaseHeldByAnother:
    """Take, renew or be refused, under the lock of the table's row."""
    if duration_ms <= 0 or not owner:
        raise InvalidArgumentError(
            f"A maintenance claim needs an owner and a positive duration; given were {owner!r} and {duration_ms} ms."
        )
    if connection.execute(_LOCKED_TABLE, {"of_table": table_id}).first() is None:
        raise unknown_table(table_id)
    same = MAINTENANCE_CLAIMS.c.table_id == table_id
    held = connection.execute(sa.select(MAINTENANCE_CLAIMS).where(same)).one_or_none()
    if held is not None and held.owner != owner and held.expires_ms > now_ms:
        return LeaseHeldByAnother(owner=held.owner, kind=MaintenanceKind(held.kind), expires_ms=held.expires_ms)
    values = {"kind": kind.value, "owner": owner, "expires_ms": now_ms + duration_ms}
    if held is None:
        connection.execute(sa.insert(MAINTENANCE_CLAIMS).values(table_id=table_id, **values))
    else:
        connection.execute(sa.update(MAINTENANCE_CLAIMS).where(same).values(values))
    return LeaseGranted(expires_ms=now_ms + duration_ms)


def release(connection: sa.Connection, table_id: str, *, owner: str) -> None:
    """Only the owner's own claim goes; somebody else's later one stays."""
    connection.execute(
        sa.delete(MAINTENANCE_CLAIMS).where(
            MAINTENANCE_CLAIMS.c.table_id == table_id, MAINTENANCE_CLAIMS.c.owner == owner
        )
    )
