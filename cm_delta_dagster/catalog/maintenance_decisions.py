"""The decision about maintenance of one table, from the rules of its scopes. Pure functions."""

from collections.abc import Collection, Iterable, Sequence

from cm_delta_dagster.catalog.access import plain_name
from cm_delta_dagster.catalog.durations import milliseconds_of, span_text
from cm_delta_dagster.catalog.maintenance import (
    BY_DEFAULT,
    MaintenanceConditions,
    MaintenanceDecision,
    MaintenanceKind,
    MaintenanceRule,
)


def decide(
    kind: MaintenanceKind, rules: Iterable[MaintenanceRule], *, caller: Collection[str], now_ms: int
) -> MaintenanceDecision:
    """The narrowest rule that applies decides; without one, the default of the protocol.

    Args:
        rules: those of ``kind`` for the table, its schema and its catalog.
        caller: the names of the caller and of its roles, as the catalog stores them and the principals of the rules.
        now_ms: the catalog's clock, epoch milliseconds.
    """
    narrowest_first = sorted(rules, key=lambda rule: rule.scope.count("."), reverse=True)
    for rule in narrowest_first:
        obstacle = _obstacle(rule, caller, now_ms)
        if rule.allowed and obstacle is not None:
            return _decision(kind, rule, narrowest_first, allowed=False, reason=f"{_reason(rule)}, but {obstacle}")
        if obstacle is None:
            return _decision(kind, rule, narrowest_first, allowed=rule.allowed, reason=_reason(rule))
    reason = (
        "requires no permission, and no rule denies it"
        if kind.allowed_by_default
        else "requires a rule that allows it, and there is none for the table, its schema or its catalog"
    )
    return MaintenanceDecision(kind=kind, allowed=kind.allowed_by_default, reason=reason, decided_by=BY_DEFAULT)


def _decision(
    kind: MaintenanceKind, rule: MaintenanceRule, rules: Sequence[MaintenanceRule], *, allowed: bool, reason: str
) -> MaintenanceDecision:
    allowing = [rule.conditions for rule in rules if rule.allowed]
    retentions = [conditions.min_retention for conditions in allowing if conditions.min_retention is not None]
    files = [conditions.max_files for conditions in allowing if conditions.max_files is not None]
    sizes = [conditions.max_bytes for conditions in allowing if conditions.max_bytes is not None]
    return MaintenanceDecision(
        kind=kind,
        allowed=allowed,
        reason=reason,
        decided_by=rule.scope,
        min_retention=max(retentions, default=None),
        max_files=min(files, default=None),
        max_bytes=min(sizes, default=None),
    )


def _reason(rule: MaintenanceRule) -> str:
    return rule.reason or verdict_text(rule.scope, allowed=rule.allowed)


def verdict_text(scope: str, *, allowed: bool) -> str:
    """The reason of a decision by a rule that has none."""
    return f"{'allowed' if allowed else 'denied'} by the rule for {scope}"


def _obstacle(rule: MaintenanceRule, caller: Collection[str], now_ms: int) -> str | None:
    """Why the rule does not concern this caller now, as a clause; None if it does."""
    principals, windows = rule.conditions.principals, rule.conditions.windows
    if principals and not set(principals) & set(caller):
        return f"only for {' and '.join(map(plain_name, principals))}"
    if windows and not any(window.contains(now_ms) for window in windows):
        return f"only in the time {' or '.join(map(str, windows))}"
    return None


def described(rule: MaintenanceRule) -> str:
    """The rule in words, for the audit."""
    conditions = conditions_text(rule.conditions)
    return f"{'allow' if rule.allowed else 'deny'} {rule.kind.value} {conditions}".rstrip()


def conditions_text(conditions: MaintenanceConditions) -> str:
    """Conditions in words; empty without one."""
    parts = [f"for {' and '.join(map(plain_name, conditions.principals))}"] if conditions.principals else []
    parts += [f"in the time {' or '.join(map(str, conditions.windows))}"] if conditions.windows else []
    if conditions.min_retention is not None:
        parts.append(f"retention at least {span_text(milliseconds_of(conditions.min_retention))}")
    limits = ((conditions.max_files, "files"), (conditions.max_bytes, "bytes"))
    parts += [f"at most {limit} {unit}" for limit, unit in limits if limit is not None]
    return ", ".join(parts)
