"""Maintenance rules.

Protocol heading "Maintenance Operations on Catalog-managed Tables". Functions over an open connection.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.maintenance import (
    MaintenanceDecision,
    MaintenanceKind,
    MaintenanceRule,
)
from cm_delta_dagster.catalog.sql.schema import (
    MAINTENANCE_RULES,
    NAME_COLUMNS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.tables import TableIdentifier

_RULES = sa.select(MAINTENANCE_RULES)
_DECIDING = _RULES.where(
    MAINTENANCE_RULES.c.kind == sa.bindparam("of_kind"),
    MAINTENANCE_RULES.c.scope.in_(sa.bindparam("scopes", expanding=True)),
)
_NAME_NOW = sa.select(*NAME_COLUMNS).where(TABLES.c.table_id == sa.bindparam("of_table"))


def set_rule(connection: sa.Connection, rule: MaintenanceRule) -> None:
    """Insert or replace the rule of that scope and kind."""
    values = {"allowed": rule.allowed, "reason": rule.reason}
    same = sa.and_(MAINTENANCE_RULES.c.scope == rule.scope, MAINTENANCE_RULES.c.kind == rule.kind.value)
    if connection.execute(sa.update(MAINTENANCE_RULES).where(same).values(values)).rowcount:
        return
    row = {"scope": rule.scope, "kind": rule.kind.value, **values}
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(MAINTENANCE_RULES).values(row))
    except sa.exc.IntegrityError:  # Another client inserted the rule concurrently; the later call replaces it.
        connection.execute(sa.update(MAINTENANCE_RULES).where(same).values(values))


def remove_rule(connection: sa.Connection, scope: str, kind: MaintenanceKind) -> None:
    """Delete the rule if there is one."""
    connection.execute(
        sa.delete(MAINTENANCE_RULES).where(MAINTENANCE_RULES.c.scope == scope, MAINTENANCE_RULES.c.kind == kind.value)
    )


def carry_denials(connection: sa.Connection, before: TableIdentifier, after: TableIdentifier) -> None:
    """Copy the rules that deny maintenance under the old name to the new name: a rename must not permit anything."""
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
    """The rule of the narrowest scope applies; without a rule, the default of the protocol."""
    if table_id is not None:
        row = connection.execute(_NAME_NOW, {"of_table": table_id}).one_or_none()
        if row is not None:
            identifier = identifier_of(row)
    schema_scope = f"{identifier.catalog}.{identifier.schema}"
    parameters = {"of_kind": kind.value, "scopes": [identifier.catalog, schema_scope, str(identifier)]}
    found = connection.execute(_DECIDING, parameters).all()
    if found:
        rule = max(found, key=lambda row: row.scope.count("."))
        reason = rule.reason or f"{'allowed' if rule.allowed else 'denied'} by the rule for {rule.scope}"
        return MaintenanceDecision(kind=kind, allowed=rule.allowed, reason=reason, decided_by=rule.scope)
    reason = (
        "requires no permission, and no rule denies it"
        if kind.allowed_by_default
        else "requires a rule that allows it, and there is none for the table, its schema or its catalog"
    )
    return MaintenanceDecision(kind=kind, allowed=kind.allowed_by_default, reason=reason, decided_by="default")
