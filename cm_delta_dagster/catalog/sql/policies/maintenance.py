"""Maintenance rules.

Protocol heading "Maintenance Operations on Catalog-managed Tables". Functions over an open connection.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.maintenance import (
    NO_CONDITIONS,
    MaintenanceConditions,
    MaintenanceDecision,
    MaintenanceKind,
    MaintenanceRule,
)
from cm_delta_dagster.catalog.maintenance_decisions import decide, described
from cm_delta_dagster.catalog.maintenance_windows import MaintenanceWindow
from cm_delta_dagster.catalog.sql.access import audit, grantees, guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.callers import caller_of
from cm_delta_dagster.catalog.sql.database.schema import (
    MAINTENANCE_RULES,
    NAME_COLUMNS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import OperationRefusedError

_RULES = sa.select(MAINTENANCE_RULES)
_DECIDING = _RULES.where(
    MAINTENANCE_RULES.c.kind == sa.bindparam("of_kind"),
    MAINTENANCE_RULES.c.scope.in_(sa.bindparam("scopes", expanding=True)),
)
_CALLER = sa.select(guard.NAMES.c.name)
_NAME_NOW = sa.select(*NAME_COLUMNS).where(TABLES.c.table_id == sa.bindparam("of_table"))


def set_rule(connection: sa.Connection, rule: MaintenanceRule, *, now_ms: int) -> None:
    """Insert or replace the rule of that scope and kind."""
    guard.require_on_scope(connection, Operation.SET_POLICY, rule.scope)
    before = _stored(connection, rule.scope, rule.kind)
    rule = _with_names(rule, partial(grantees.stored, connection))
    _write(connection, replace(rule, set_by=caller_of(connection), set_ms=now_ms))
    _record(connection, rule.scope, rule.kind, before=before, after=rule, reason=rule.reason, now_ms=now_ms)


def remove_rule(connection: sa.Connection, scope: str, kind: MaintenanceKind, *, now_ms: int) -> None:
    """Delete the rule if there is one."""
    guard.require_on_scope(connection, Operation.SET_POLICY, scope)
    before = _stored(connection, scope, kind)
    if before is None:
        return
    connection.execute(sa.delete(MAINTENANCE_RULES).where(_same(scope, kind)))
    _record(connection, scope, kind, before=before, after=None, reason="", now_ms=now_ms)


def carry_denials(connection: sa.Connection, before: TableIdentifier, after: TableIdentifier, *, now_ms: int) -> None:
    """Deny for the new name of a table what is denied for its old name: a rename must not permit anything.

    For each kind the narrowest rule of the old name counts. A rule of the new name that denies the kind always stays.
    """
    scopes = [str(before), f"{before.catalog}.{before.schema}", before.catalog]
    found = map(_rule, connection.execute(_RULES.where(MAINTENANCE_RULES.c.scope.in_(scopes))).all())
    narrowest: dict[MaintenanceKind, MaintenanceRule] = {}
    for rule in sorted(found, key=lambda each: scopes.index(each.scope)):
        narrowest.setdefault(rule.kind, rule)
    for rule in narrowest.values():
        known = _stored(connection, str(after), rule.kind)
        is_denied = known is not None and not known.allowed and known.conditions == NO_CONDITIONS
        if rule.allowed or is_denied or f"{after}.".startswith(f"{rule.scope}."):
            continue
        reason = f"denied as {before} before its rename{f': {rule.reason}' if rule.reason else ''}"
        carried = replace(rule, scope=str(after), reason=reason)
        _write(connection, carried)
        _record(connection, str(after), rule.kind, before=known, after=carried, reason=reason, now_ms=now_ms)


def rules(connection: sa.Connection) -> tuple[MaintenanceRule, ...]:
    """Every rule, by scope and kind."""
    stored = sorted(map(_rule, connection.execute(_RULES).all()), key=lambda rule: (rule.scope, rule.kind))
    show = grantees.shown_by(connection)
    return tuple(_with_names(rule, show) for rule in stored)


def _with_names(rule: MaintenanceRule, convert: Callable[[str], str]) -> MaintenanceRule:
    """The rule with other names of its principals, as callers write them or as the catalog stores them."""
    principals = tuple(map(convert, rule.conditions.principals))
    return replace(rule, conditions=replace(rule.conditions, principals=principals))


def decision(
    connection: sa.Connection,
    identifier: TableIdentifier,
    kind: MaintenanceKind,
    *,
    table_id: str | None = None,
    now_ms: int,
) -> MaintenanceDecision:
    """What the rules of the table's scopes say; without a rule, the default of the protocol."""
    identifier = _name_now(connection, table_id) or identifier
    refused = _refused_by_grants(connection, identifier, kind, table_id)
    if refused is not None:
        return refused
    schema_scope = f"{identifier.catalog}.{identifier.schema}"
    parameters = {"of_kind": kind.value, "scopes": [identifier.catalog, schema_scope, str(identifier)]}
    found = [_rule(row) for row in connection.execute(_DECIDING, parameters)]
    names: set[str] = set()
    if any(rule.conditions.principals for rule in found):
        caller = {"caller": grantees.of_user(caller_of(connection))}
        names = {name for name in connection.execute(_CALLER, caller).scalars() if name is not None}
    return decide(kind, found, caller=names, now_ms=now_ms)


def authorize(
    connection: sa.Connection,
    identifier: TableIdentifier,
    kind: MaintenanceKind,
    *,
    table_id: str | None = None,
    now_ms: int,
) -> MaintenanceDecision:
    """:func:`decision` for a run that starts now. The audit has it, except for what is permitted by default."""
    found = decision(connection, identifier, kind, table_id=table_id, now_ms=now_ms)
    if found.allowed and kind.allowed_by_default:
        return found
    verdict = "allowed" if found.allowed else "denied"
    change = audit.Change(
        action="maintenance",
        scope=_scope(_name_now(connection, table_id) or identifier),
        after=f"{kind.value}: {verdict} by {found.decided_by}",
        reason=found.reason,
        table_id=table_id,
    )
    audit.record(connection, change, now_ms=now_ms)
    return found


def _scope(identifier: TableIdentifier) -> str:
    """The name of a table, or the scope whose missing parts are empty."""
    return str(identifier).rstrip(".")


def _name_now(connection: sa.Connection, table_id: str | None) -> TableIdentifier | None:
    if table_id is None:
        return None
    row = connection.execute(_NAME_NOW, {"of_table": table_id}).one_or_none()
    return None if row is None else identifier_of(row)


def _same(scope: str, kind: MaintenanceKind) -> sa.ColumnElement[bool]:
    return sa.and_(MAINTENANCE_RULES.c.scope == scope, MAINTENANCE_RULES.c.kind == kind.value)


def _stored(connection: sa.Connection, scope: str, kind: MaintenanceKind) -> MaintenanceRule | None:
    row = connection.execute(_RULES.where(_same(scope, kind))).one_or_none()
    return None if row is None else _rule(row)


def _write(connection: sa.Connection, rule: MaintenanceRule) -> None:
    conditions = rule.conditions
    values = {
        "allowed": rule.allowed,
        "reason": rule.reason,
        "principals": json.dumps(conditions.principals),
        "windows": json.dumps([str(window) for window in conditions.windows]),
        "min_retention_ms": conditions.min_retention_ms,
        "max_files": conditions.max_files,
        "max_bytes": conditions.max_bytes,
        "set_by": rule.set_by,
        "set_ms": rule.set_ms,
    }
    same = _same(rule.scope, rule.kind)
    if connection.execute(sa.update(MAINTENANCE_RULES).where(same).values(values)).rowcount:
        return
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(MAINTENANCE_RULES).values(scope=rule.scope, kind=rule.kind.value, **values))
    except sa.exc.IntegrityError:  # Another client inserted the rule concurrently; the later call replaces it.
        connection.execute(sa.update(MAINTENANCE_RULES).where(same).values(values))


def _rule(row: Any) -> MaintenanceRule:
    return MaintenanceRule(
        scope=row.scope,
        kind=MaintenanceKind(row.kind),
        allowed=row.allowed,
        reason=row.reason,
        conditions=MaintenanceConditions(
            principals=tuple(json.loads(row.principals)),
            windows=tuple(map(MaintenanceWindow.parse, json.loads(row.windows))),
            min_retention_ms=row.min_retention_ms,
            max_files=row.max_files,
            max_bytes=row.max_bytes,
        ),
        set_by=row.set_by,
        set_ms=row.set_ms,
    )


def _record(
    connection: sa.Connection,
    scope: str,
    kind: MaintenanceKind,
    *,
    before: MaintenanceRule | None,
    after: MaintenanceRule | None,
    reason: str,
    now_ms: int,
) -> None:
    change = audit.Change(
        action="set maintenance rule" if after is not None else "remove maintenance rule",
        scope=scope,
        before=None if before is None else described(before),
        after=None if after is None else described(after),
        reason=reason,
    )
    audit.record(connection, change, now_ms=now_ms)


def _refused_by_grants(
    connection: sa.Connection, identifier: TableIdentifier, kind: MaintenanceKind, table_id: str | None
) -> MaintenanceDecision | None:
    """The denial of maintenance for which the caller lacks the privilege. What needs no permission needs no privilege."""
    if kind.allowed_by_default:
        return None
    operation = Operation.PURGE if kind is MaintenanceKind.TABLE_PURGE else Operation.MAINTAIN
    try:
        if table_id is None:
            guard.require_on_scope(connection, operation, _scope(identifier))
        else:
            guard.require(connection, operation, identifier, table_id=table_id)
    except OperationRefusedError as error:
        return MaintenanceDecision(kind=kind, allowed=False, reason=str(error), decided_by=guard.RULE)
    return None
