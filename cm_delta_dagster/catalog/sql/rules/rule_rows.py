"""Rows of commit rules, and which of them apply to a table. Functions over an open connection."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation, RuleArgument
from cm_delta_dagster.catalog.sql.access import grantees
from cm_delta_dagster.catalog.sql.database.prepared import Call, Prepared
from cm_delta_dagster.catalog.sql.database.schema import COMMIT_RULES, TABLES, name_scopes
from cm_delta_dagster.catalog.tables import TableIdentifier

CHECK = "commit_rules"
"""Name of the check of proposals; see ``ratification.checks``."""

_THREE_SCOPES: list[sa.BindParameter[str]] = [sa.bindparam(name) for name in ("of_catalog", "of_schema", "of_name")]


def _at(scopes: Sequence[sa.ColumnElement[str]]) -> sa.Select[Any]:
    """The rules of a table with the name that the three scopes are or contain."""
    rows = sa.select(COMMIT_RULES).where(COMMIT_RULES.c.scope.in_(scopes))
    return rows.order_by(COMMIT_RULES.c.scope, COMMIT_RULES.c.name)


_OF_NAME = Prepared(_at(_THREE_SCOPES))
_OF_TABLE = Prepared(_at(name_scopes()).where(TABLES.c.table_id == sa.bindparam("of_table")))


def with_names(rule: CommitRule, convert: Callable[[str], str]) -> CommitRule:
    """The rule with other names of its principals, as callers write them or as the catalog stores them."""
    principals = rule.arguments.get("principals")
    if not isinstance(principals, tuple):
        return rule
    return replace(rule, arguments={**rule.arguments, "principals": tuple(map(convert, principals))})


def shown(connection: sa.Connection, *rules: CommitRule) -> tuple[CommitRule, ...]:
    """The rules as callers write them."""
    show = grantees.shown_by(connection)
    return tuple(with_names(rule, show) for rule in rules)


def rules(connection: sa.Connection, scope: str = "") -> tuple[CommitRule, ...]:
    """The rules at, above or below ``scope``, by scope and name; all without a scope."""
    stored = (_rule(row) for row in connection.execute(sa.select(COMMIT_RULES)))
    in_scope = (rule for rule in stored if not scope or contains(rule.scope, scope) or contains(scope, rule.scope))
    return tuple(sorted(in_scope, key=lambda rule: (rule.scope, rule.name)))


def rules_of(connection: sa.Connection, identifier: TableIdentifier) -> tuple[CommitRule, ...]:
    """The rules that apply to a table, in one statement."""
    schema = f"{identifier.catalog}.{identifier.schema}"
    rows = _OF_NAME.rows(
        connection, {"of_catalog": identifier.catalog, "of_schema": schema, "of_name": str(identifier)}
    )
    return rules_in(rows)


def read_of_rules(table_id: str) -> Call:
    """The statement that reads the rules of a table by the name that it has then; :func:`rules_in` takes its rows."""
    return _OF_TABLE, {"of_table": table_id}


def rules_in(rows: Iterable[Any]) -> tuple[CommitRule, ...]:
    """The rules in rows of ``COMMIT_RULES``."""
    return tuple(_rule(row) for row in rows)


def rule(connection: sa.Connection, scope: str, name: str) -> CommitRule | None:
    """The rule of that scope and name."""
    row = connection.execute(sa.select(COMMIT_RULES).where(*same(scope, name))).one_or_none()
    return None if row is None else _rule(row)


def same(scope: str, name: str) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions for the row of a rule."""
    return COMMIT_RULES.c.scope == scope, COMMIT_RULES.c.name == name


def contains(scope: str, inner: str) -> bool:
    """Whether ``inner`` is ``scope`` or a scope below it."""
    return inner == scope or inner.startswith(f"{scope}.")


def _rule(row: Any) -> CommitRule:
    values: Mapping[str, Any] = json.loads(row.arguments)
    arguments: dict[str, RuleArgument] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }
    return CommitRule(
        scope=row.scope,
        name=row.name,
        kind=CommitRuleKind(row.kind),
        arguments=arguments,
        on_violation=OnViolation(row.on_violation),
        reason=row.reason,
        contact=row.contact,
        set_by=row.set_by,
        set_ms=row.set_ms,
    )


def values(rule: CommitRule) -> dict[str, Any]:
    """The row of a rule."""
    return {
        "scope": rule.scope,
        "name": rule.name,
        "kind": rule.kind.value,
        "arguments": json.dumps(dict(rule.arguments)),
        "on_violation": rule.on_violation.value,
        "reason": rule.reason,
        "contact": rule.contact,
        "set_by": rule.set_by,
        "set_ms": rule.set_ms,
    }


def described(rule: CommitRule) -> str:
    """The rule in words, for the audit."""
    arguments = ", ".join(f"{key}={value}" for key, value in sorted(rule.arguments.items()))
    return f"{rule.name}: {rule.kind.value}({arguments}), {rule.on_violation.value}"
