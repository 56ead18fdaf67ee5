"""Maintenance rules and leases.

Protocol heading "Maintenance Operations on Catalog-managed Tables". Functions over an open connection. A lease excludes other
maintenance runs from a table, not writers.
"""

import sqlalchemy as sa

from cm_delta_dagster.catalog.maintenance import (
    LeaseGranted,
    LeaseHeldByAnother,
    MaintenanceDecision,
    MaintenanceKind,
    MaintenanceRule,
)
from cm_delta_dagster.catalog.sql import guard
from cm_delta_dagster.catalog.sql.commit_rows import unknown_table
from cm_delta_dagster.catalog.sql.guard import Operation
from cm_delta_dagster.catalog.sql.schema import (
    IS_ACTIVE,
    MAINTENANCE_LEASES,
    MAINTENANCE_RULES,
    NAME_COLUMNS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError, OperationRefusedError

_RULES = sa.select(MAINTENANCE_RULES)
_DECIDING = _RULES.where(
    MAINTENANCE_RULES.c.kind == sa.bindparam("of_kind"),
    MAINTENANCE_RULES.c.scope.in_(sa.bindparam("scopes", expanding=True)),
)
_LOCKED_TABLE = (
    sa.select(TABLES.c.table_id).where(TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE).with_for_update()
)
_NAME_NOW = sa.select(*NAME_COLUMNS).where(TABLES.c.table_id == sa.bindparam("of_table"))


def set_rule(connection: sa.Connection, rule: MaintenanceRule) -> None:
    """Insert or replace the rule of that scope and kind."""
    guard.require_on_scope(connection, Operation.SET_POLICY, rule.scope)
    _set_rule(connection, rule)


def _set_rule(connection: sa.Connection, rule: MaintenanceRule) -> None:
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
    guard.require_on_scope(connection, Operation.SET_POLICY, scope)
    connection.execute(
        sa.delete(MAINTENANCE_RULES).where(MAINTENANCE_RULES.c.scope == scope, MAINTENANCE_RULES.c.kind == kind.value)
    )


def carry_denials(connection: sa.Connection, before: TableIdentifier, after: TableIdentifier) -> None:
    """Copy the rules that deny maintenance under the old name to the new name: a rename must not permit anything."""
    denials = _RULES.where(MAINTENANCE_RULES.c.scope == str(before), MAINTENANCE_RULES.c.allowed.is_(False))
    for row in connection.execute(denials).all():
        reason = f"denied as {before} before its rename{f': {row.reason}' if row.reason else ''}"
        _set_rule(
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
    refused = _refused_by_grants(connection, identifier, kind, table_id)
    if refused is not None:
        return refused
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


def _refused_by_grants(
    connection: sa.Connection, identifier: TableIdentifier, kind: MaintenanceKind, table_id: str | None
) -> MaintenanceDecision | None:
    """The denial of maintenance for which the caller lacks the privilege. What needs no permission needs no privilege."""
    if kind.allowed_by_default:
        return None
    operation = Operation.PURGE if kind is MaintenanceKind.TABLE_PURGE else Operation.MAINTAIN
    try:
        if table_id is None:
            guard.require_on_scope(connection, operation, str(identifier))
        else:
            guard.require(connection, operation, identifier, table_id=table_id)
    except OperationRefusedError as error:
        return MaintenanceDecision(kind=kind, allowed=False, reason=str(error), decided_by=guard.RULE)
    return None


def acquire_lease(
    connection: sa.Connection, table_id: str, kind: MaintenanceKind, *, owner: str, duration_ms: int, now_ms: int
) -> LeaseGranted | LeaseHeldByAnother:
    """Acquire or renew the lease unless another owner holds it, under the lock of the table's row."""
    if duration_ms <= 0 or not owner:
        raise InvalidArgumentError(
            f"A maintenance lease requires an owner and a positive duration; given were {owner!r} and {duration_ms} ms."
        )
    guard.require_on_table(connection, Operation.LEASE, table_id)
    if connection.execute(_LOCKED_TABLE, {"of_table": table_id}).first() is None:
        raise unknown_table(table_id)
    same = MAINTENANCE_LEASES.c.table_id == table_id
    held = connection.execute(sa.select(MAINTENANCE_LEASES).where(same)).one_or_none()
    if held is not None and held.owner != owner and held.expires_ms > now_ms:
        return LeaseHeldByAnother(owner=held.owner, kind=MaintenanceKind(held.kind), expires_ms=held.expires_ms)
    values = {"kind": kind.value, "owner": owner, "expires_ms": now_ms + duration_ms}
    if held is None:
        connection.execute(sa.insert(MAINTENANCE_LEASES).values(table_id=table_id, **values))
    else:
        connection.execute(sa.update(MAINTENANCE_LEASES).where(same).values(values))
    return LeaseGranted(expires_ms=now_ms + duration_ms)


def release_lease(connection: sa.Connection, table_id: str, *, owner: str) -> None:
    """Delete the lease if ``owner`` holds it."""
    connection.execute(
        sa.delete(MAINTENANCE_LEASES).where(
            MAINTENANCE_LEASES.c.table_id == table_id, MAINTENANCE_LEASES.c.owner == owner
        )
    )
