"""Maintenance rules.

Protocol heading "Maintenance Operations on Catalog-managed Tables".
"""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.durations import milliseconds_of, span_text
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
from cm_delta_dagster.catalog.sql.database.callers import caller_of, checked_principal, now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import (
    MAINTENANCE_RULES,
    NAME_COLUMNS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.rows import names
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.texts import checked_reason
from cm_delta_dagster.errors import (
    MaintenanceNotPermittedError,
    OperationRefusedError,
    PermissionDeniedError,
    RetentionTooShortError,
)
from cm_delta_dagster.remedies import AllowMaintenance

_RULES = sa.select(MAINTENANCE_RULES)
_DECIDING = _RULES.where(
    MAINTENANCE_RULES.c.kind == sa.bindparam("of_kind"),
    MAINTENANCE_RULES.c.scope.in_(sa.bindparam("scopes", expanding=True)),
)
_CALLER = sa.select(guard.NAMES.c.name)
_NAME_NOW = sa.select(*NAME_COLUMNS).where(TABLES.c.table_id == sa.bindparam("of_table"))


class SqlMaintenancePolicies(Part):
    """Implements :class:`~cm_delta_dagster.catalog.maintenance_policies.MaintenancePolicies`."""

    @writes
    def set_maintenance_rule(self, connection: sa.Connection, rule: MaintenanceRule) -> None:
        """Create or replace the rule. Raises InvalidArgumentError for a malformed scope, principal or reason."""
        names.scope_parts(rule.scope)
        checked_reason(rule.reason)
        for name in rule.conditions.principals:
            checked_principal(name)
        guard.require_on_scope(connection, Operation.SET_POLICY, rule.scope)
        before = _stored(connection, rule.scope, rule.kind)
        rule = _with_names(rule, partial(grantees.stored, connection))
        _write(connection, replace(rule, set_by=caller_of(connection), set_ms=now_of(connection)))
        _record(connection, rule.scope, rule.kind, before=before, after=rule, reason=rule.reason)

    @writes
    def remove_maintenance_rule(self, connection: sa.Connection, scope: str, kind: MaintenanceKind) -> None:
        """Delete the rule of ``scope``. Raises InvalidArgumentError for a malformed scope."""
        names.scope_parts(scope)
        guard.require_on_scope(connection, Operation.SET_POLICY, scope)
        before = _stored(connection, scope, kind)
        if before is None:
            return
        connection.execute(sa.delete(MAINTENANCE_RULES).where(_same(scope, kind)))
        _record(connection, scope, kind, before=before, after=None, reason="")

    @reads
    def maintenance_rules(self, connection: sa.Connection) -> tuple[MaintenanceRule, ...]:
        """Every rule, by scope and kind."""
        stored = sorted(map(_rule, connection.execute(_RULES).all()), key=lambda rule: (rule.scope, rule.kind))
        if not stored:
            return ()
        show = grantees.shown_by(connection)
        return tuple(_with_names(rule, show) for rule in stored)

    @reads
    def maintenance_decision(
        self,
        connection: sa.Connection,
        identifier: TableIdentifier,
        kind: MaintenanceKind,
        *,
        table_id: str | None = None,
    ) -> MaintenanceDecision:
        """The rule of the narrowest scope, else the default. The table need not exist."""
        return _decision(connection, identifier, kind, table_id)

    def authorize_maintenance(
        self, identifier: TableIdentifier, kind: MaintenanceKind, *, table_id: str | None = None
    ) -> MaintenanceDecision:
        """The decision, recorded in the audit unless this role of the database cannot write it."""
        try:
            return self._authorize(identifier, kind, table_id)
        except PermissionDeniedError:
            return self.maintenance_decision(identifier, kind, table_id=table_id)

    @writes
    def _authorize(
        self, connection: sa.Connection, identifier: TableIdentifier, kind: MaintenanceKind, table_id: str | None
    ) -> MaintenanceDecision:
        return authorize(connection, identifier, kind, table_id)


def authorize(
    connection: sa.Connection, identifier: TableIdentifier, kind: MaintenanceKind, table_id: str | None = None
) -> MaintenanceDecision:
    """The decision for a run that starts now. The audit has it, except for what is permitted by default.

    A denial is a refusal there: everybody can ask.
    """
    decision = _decision(connection, identifier, kind, table_id)
    if decision.allowed and kind.allowed_by_default:
        return decision
    verdict = "allowed" if decision.allowed else "denied"
    change = audit.Change(
        action="maintenance",
        scope=_scope(_name_now(connection, table_id) or identifier),
        after=f"{kind.value}: {verdict} by {decision.decided_by}",
        reason=decision.reason,
        table_id=table_id,
    )
    if decision.allowed:
        audit.record(connection, change)
    else:
        audit.record_denial(connection, change)
    return decision


def require_purge(connection: sa.Connection, table_id: str, kind: MaintenanceKind, *, min_age_ms: int) -> None:
    """Refuse a purge that the rules do not allow now, or not for tables that were dropped so recently.

    Raises MaintenanceNotPermittedError, RetentionTooShortError.
    """
    identifier = _name_now(connection, table_id)
    assert identifier is not None, "the caller has locked the row of the table"
    decision = _decision(connection, identifier, kind, table_id)
    if not decision.allowed:
        raise MaintenanceNotPermittedError(
            f"{kind.value} of {identifier} is not permitted: {decision.reason}. No file was deleted."
        ).with_remedy(AllowMaintenance(scope=str(identifier), kind=kind.value))
    shortest = decision.min_retention
    if shortest is not None and min_age_ms < milliseconds_of(shortest):
        raise RetentionTooShortError(
            f"{identifier} was not purged after {span_text(min_age_ms)}: the rule for {decision.decided_by} demands at least "
            f"{span_text(milliseconds_of(shortest))}. No file was deleted."
        )


def carry_denials(connection: sa.Connection, before: TableIdentifier, after: TableIdentifier) -> None:
    """Deny for the new name of a table what is denied for its old name: a rename must not permit anything.

    For each kind the narrowest rule of the old name counts. A rule of the new name that denies the kind always stays.
    """
    scopes = [str(before), f"{before.catalog}.{before.schema}", before.catalog]
    rules = map(_rule, connection.execute(_RULES.where(MAINTENANCE_RULES.c.scope.in_(scopes))).all())
    narrowest: dict[MaintenanceKind, MaintenanceRule] = {}
    for rule in sorted(rules, key=lambda rule: scopes.index(rule.scope)):
        narrowest.setdefault(rule.kind, rule)
    for rule in narrowest.values():
        known = _stored(connection, str(after), rule.kind)
        is_denied = known is not None and not known.allowed and known.conditions == NO_CONDITIONS
        if rule.allowed or is_denied or f"{after}.".startswith(f"{rule.scope}."):
            continue
        reason = f"denied as {before} before its rename{f': {rule.reason}' if rule.reason else ''}"
        carried = replace(rule, scope=str(after), reason=reason)
        _write(connection, carried)
        _record(connection, str(after), rule.kind, before=known, after=carried, reason=reason)


def _with_names(rule: MaintenanceRule, convert: Callable[[str], str]) -> MaintenanceRule:
    """The rule with other names of its principals, as callers write them or as the catalog stores them."""
    principals = tuple(map(convert, rule.conditions.principals))
    return replace(rule, conditions=replace(rule.conditions, principals=principals))


def _decision(
    connection: sa.Connection, identifier: TableIdentifier, kind: MaintenanceKind, table_id: str | None
) -> MaintenanceDecision:
    """What the rules of the table's scopes say; without a rule, the default of the protocol."""
    identifier = _name_now(connection, table_id) or identifier
    refused = _refused_by_grants(connection, identifier, kind, table_id)
    if refused is not None:
        return refused
    schema_scope = f"{identifier.catalog}.{identifier.schema}"
    parameters = {"of_kind": kind.value, "scopes": [identifier.catalog, schema_scope, str(identifier)]}
    rules = [_rule(row) for row in connection.execute(_DECIDING, parameters)]
    of_caller: set[str] = set()
    if any(rule.conditions.principals for rule in rules):
        of_caller = set(connection.execute(_CALLER, guard.caller_parameters(connection)).scalars())
    return decide(kind, rules, caller=of_caller, now_ms=now_of(connection))


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
        "min_retention_ms": None if conditions.min_retention is None else milliseconds_of(conditions.min_retention),
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
            min_retention=None if row.min_retention_ms is None else timedelta(milliseconds=row.min_retention_ms),
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
) -> None:
    change = audit.Change(
        action="set maintenance rule" if after is not None else "remove maintenance rule",
        scope=scope,
        before=None if before is None else described(before),
        after=None if after is None else described(after),
        reason=reason,
    )
    audit.record(connection, change)


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
