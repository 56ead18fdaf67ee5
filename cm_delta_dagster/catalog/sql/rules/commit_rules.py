"""Commit rules: how they change, and where they apply. The rows are in ``rule_rows``."""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from itertools import chain, count

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import plain_name
from cm_delta_dagster.catalog.commit_policy import NOT_THROUGH_CATALOG
from cm_delta_dagster.catalog.commit_rules import CommitRule
from cm_delta_dagster.catalog.rules.kinds import absent_names, checked_rule
from cm_delta_dagster.catalog.sql.access import audit, grantees, guard, known_principals
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import (
    COMMIT_POLICIES,
    COMMIT_RULES,
    IS_ACTIVE,
    NAME_COLUMNS,
    TABLES,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.rows import active_checks, names, rule_lock
from cm_delta_dagster.catalog.sql.rows.definitions import metadata_of
from cm_delta_dagster.catalog.sql.rules import rule_rows as rows
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.texts import checked_reason, checked_text
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.remedies import RepeatWithOption


class SqlCommitRules(Part):
    """Implements :class:`~cm_delta_dagster.catalog.commit_rule_registry.CommitRuleRegistry`."""

    @writes
    def set_commit_rule(
        self, connection: sa.Connection, rule: CommitRule, *, confirmed: bool = False, may_replace: bool = True
    ) -> CommitRule:
        """Create or replace the rule. Raises InvalidArgumentError, OperationRefusedError."""
        names.scope_parts(rule.scope)
        rule = checked_rule(rule)
        rule_lock.acquire(connection)
        guard.require_on_scope(connection, guard.Operation.SET_POLICY, rule.scope)
        rule = rows.with_names(rule, partial(grantees.stored, connection))
        unguarded = _put_if_absent(connection, rule.scope)
        if unguarded:
            raise InvalidArgumentError(
                f"The rule {rule} was not set: commits of {', '.join(unguarded)} are made by creating their files (put-if-absent), "
                "and the catalog cannot refuse them. Set the commit mode to staged, inline or auto first, or choose a narrower "
                "scope."
            )
        before = rows.rule(connection, rule.scope, rule.name)
        if before is not None and not may_replace:
            _refuse_replacement(connection, before, rule)
        doubt = None if confirmed else _lock_out(connection, rule) or _absent(connection, rule)
        if doubt is not None:
            refusal = InvalidArgumentError(f"The rule {rule} was not set: {doubt}. Nothing was changed.")
            raise refusal.with_remedy(RepeatWithOption(option="force"))
        stored = replace(rule, set_by=caller_of(connection) or "", set_ms=now_of(connection))
        connection.execute(sa.delete(COMMIT_RULES).where(*rows.same(rule.scope, rule.name)))
        connection.execute(sa.insert(COMMIT_RULES).values(rows.values(stored)))
        active_checks.activate(connection, rows.CHECK, rule.scope)
        _record(connection, "set commit rule", stored, before=before, after=stored, reason=rule.reason)
        return rows.shown(connection, stored)[0]

    @writes
    def remove_commit_rule(self, connection: sa.Connection, scope: str, name: str, *, reason: str = "") -> None:
        """Delete the rule. Raises InvalidArgumentError, OperationRefusedError."""
        names.scope_parts(scope)
        name, reason = checked_text(name, what="the name of a rule"), checked_reason(reason)
        rule_lock.acquire(connection)
        guard.require_on_scope(connection, guard.Operation.SET_POLICY, scope)
        before = rows.rule(connection, scope, name)
        if before is None:
            known = [rule.name for rule in rows.rules(connection, scope) if rule.scope == scope]
            raise InvalidArgumentError(
                f"{scope} has no commit rule {name!r}; it has {', '.join(known) or 'none'}. Nothing was changed."
            )
        connection.execute(sa.delete(COMMIT_RULES).where(*rows.same(scope, name)))
        if connection.execute(sa.select(COMMIT_RULES.c.name).where(COMMIT_RULES.c.scope == scope)).first() is None:
            active_checks.deactivate(connection, rows.CHECK, scope)
        _record(connection, "remove commit rule", before, before=before, after=None, reason=reason)

    @reads
    def commit_rules(self, connection: sa.Connection, scope: str = "") -> tuple[CommitRule, ...]:
        """The rules at, above or below ``scope``. Raises InvalidArgumentError for a malformed scope."""
        if scope != "":
            names.scope_parts(scope)
        return rows.shown(connection, *rows.rules(connection, scope))


def carry(connection: sa.Connection, before: TableIdentifier, after: TableIdentifier) -> None:
    """Set the rules of a table's old name for its new name, if they would not hold for it: a rename must not permit anything.

    Those of the old schema and catalog become rules of the table.
    """
    known = list(rows.rules_of(connection, after))
    for rule in rows.rules_of(connection, before):
        if rows.contains(rule.scope, str(after)) or any(map(partial(_demands_the_same, rule), known)):
            continue
        taken = {rule_of_table.name for rule_of_table in known if rule_of_table.scope == str(after)}
        carried = replace(rule, scope=str(after), name=_free_name(rule, taken))
        connection.execute(sa.insert(COMMIT_RULES).values(rows.values(carried)))
        active_checks.activate(connection, rows.CHECK, str(after))
        _record(
            connection,
            "set commit rule",
            carried,
            before=None,
            after=carried,
            reason=f"rename of {before}",
        )
        known.append(carried)


def _demands_the_same(rule: CommitRule, other: CommitRule) -> bool:
    return (rule.kind, rule.arguments, rule.on_violation) == (other.kind, other.arguments, other.on_violation)


def _free_name(rule: CommitRule, taken: Collection[str]) -> str:
    """The name of the rule, with its scope if another rule has the name."""
    of_scope = f"{rule.name} of {rule.scope}"
    names = chain((rule.name, of_scope), (f"{of_scope} ({number})" for number in count(2)))
    return next(name for name in names if name not in taken)


def check_covered(connection: sa.Connection, table_id: str, identifier: TableIdentifier) -> None:
    """Refuse a name for a table whose commits are made put-if-absent, if the catalog must be able to refuse commits to it.

    Raises InvalidArgumentError.
    """
    mode = sa.select(TABLES.c.commit_policy).where(TABLES.c.table_id == table_id)
    if connection.execute(mode).scalar_one_or_none() not in NOT_THROUGH_CATALOG:
        return
    applying = rows.rules_of(connection, identifier)
    if guard.is_enabled(connection):
        why, remedy = "the catalog enforces grants", "disable the grants"
    elif applying:
        why, remedy = f"the rule {applying[0]} applies to it", "remove the rule"
    else:
        return
    raise InvalidArgumentError(
        f"The table cannot have the name {identifier}: its commits are made by creating their files (put-if-absent), which the "
        f"catalog cannot refuse, and {why}. Nothing was changed. Set its commit mode to staged first; for a dropped table "
        f"{remedy}, undrop it, and set the mode."
    )


def refuse_put_if_absent(connection: sa.Connection, scope: str) -> None:
    """Refuse put-if-absent for a scope with rules. Raises InvalidArgumentError."""
    applying = rows.rules(connection, scope)
    if applying:
        named = ", ".join(str(rule) for rule in applying[:5])
        raise InvalidArgumentError(
            f"The commit mode of {scope} was not set to put-if-absent: commit rules apply to it ({named}), and the catalog cannot "
            "refuse commits that are made by creating files. Remove the rules first, or choose another commit mode."
        )


def _put_if_absent(connection: sa.Connection, scope: str) -> list[str]:
    """The tables and scopes at or below ``scope``, or above it, whose commits are made put-if-absent."""
    own = sa.select(*NAME_COLUMNS).where(IS_ACTIVE, TABLES.c.commit_policy.in_(NOT_THROUGH_CATALOG))
    tables = [str(identifier_of(row)) for row in connection.execute(own)]
    wide = sa.select(COMMIT_POLICIES.c.scope).where(COMMIT_POLICIES.c.policy.in_(NOT_THROUGH_CATALOG))
    scopes = list(connection.execute(wide).scalars())
    return sorted(
        [name for name in tables if rows.contains(scope, name)]
        + [f"new tables of {name}" for name in scopes if rows.contains(scope, name) or rows.contains(name, scope)]
    )


def _refuse_replacement(connection: sa.Connection, before: CommitRule, rule: CommitRule) -> None:
    """Refuse to replace a rule that demands something else, if the caller did not name the rule."""
    if (before.kind, before.arguments) == (rule.kind, rule.arguments):
        return
    raise InvalidArgumentError(
        f"The rule {rule} was not set: {rule.scope} has a rule of that name, {_text(connection, before)}. Nothing was changed. "
        "Give another name for a second rule, or that name to replace the rule."
    ).with_remedy(RepeatWithOption(option="name", value=rule.name))


def _absent(connection: sa.Connection, rule: CommitRule) -> str | None:
    """What the rule names and the table of its scope does not have, as a clause; None if nothing, or if it is not known."""
    table_id = guard.table_id_of(connection, rule.scope)
    metadata = None if table_id is None else metadata_of(connection, table_id)
    absent = () if metadata is None else absent_names(rule, metadata)
    return f"{rule.scope} does not have {', '.join(map(str, absent))}" if absent else None


def _lock_out(connection: sa.Connection, rule: CommitRule) -> str | None:
    """Why no principal could make what the rule stops, as a clause; None if a principal could: at least the owner who sets it."""
    principals = rule.arguments.get("principals")
    if isinstance(principals, tuple) and not any(known_principals.can_act(connection, name) for name in principals):
        named = ", ".join(map(plain_name, principals))
        return f"no principal could change the schema: of {named} none is a role with members, or a principal that is known"
    return None


def _record(
    connection: sa.Connection,
    action: str,
    rule: CommitRule,
    *,
    before: CommitRule | None,
    after: CommitRule | None,
    reason: str,
) -> None:
    change = audit.Change(
        action=action,
        scope=rule.scope,
        before=None if before is None else _text(connection, before),
        after=None if after is None else _text(connection, after),
        reason=reason,
    )
    audit.record(connection, change)


def _text(connection: sa.Connection, rule: CommitRule) -> str:
    return rows.described(*rows.shown(connection, rule))
