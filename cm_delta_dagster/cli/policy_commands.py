"""Commands of ``cm-delta`` for the rules that permit or deny maintenance."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from cm_delta_dagster.catalog.maintenance import MaintenanceConditions, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.maintenance_decisions import conditions_text
from cm_delta_dagster.catalog.maintenance_windows import MaintenanceWindow
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.rows.names import scope_parts
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.days import DAYS, days_in_ms
from cm_delta_dagster.cli.output import say


class _Kind(click.ParamType):  # type: ignore[type-arg]  # Generic since a recent click only.
    """A kind of maintenance, in upper or lower case."""

    name = "kind"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> MaintenanceKind:
        try:
            return MaintenanceKind(str(value).upper())
        except ValueError:
            self.fail(f"{str(value)!r} is not a kind of maintenance; the kinds are {_KINDS}.", param, ctx)


_KINDS = ", ".join(kind.value for kind in MaintenanceKind)


_TABLE_PARTS = 3
"""catalog.schema.table"""


@click.group()
def policy() -> None:
    """Show and set which maintenance is allowed. The rule of the narrowest scope decides."""


@policy.command()
@click.argument("name", default="")
@click.pass_context
def show(context: click.Context, name: str) -> None:
    """List every rule, what applies to the table NAME (catalog.schema.table), or the rules for a catalog or schema NAME.

    The rules for a catalog or schema are those of wider scopes, of its own, and of scopes within it.
    """
    with open_catalog(context) as catalog:
        wanted = scope_parts(name) if name else ()
        if len(wanted) == _TABLE_PARTS:
            identifier = TableIdentifier.parse(name)
            catalog.load_table(identifier)
            for kind in MaintenanceKind:
                decision = catalog.maintenance_decision(identifier, kind)
                say(f"{_verdict(decision.allowed)}  {kind.value:<19}  {decision.decided_by}: {decision.reason}")
            return
        for rule in catalog.maintenance_rules():
            if not _related(wanted, scope_parts(rule.scope)):
                continue
            conditions = conditions_text(rule.conditions)
            where = f"{rule.scope} {conditions}".rstrip()
            say(f"{_verdict(rule.allowed)}  {rule.kind.value:<19}  {where}{_suffix(rule.reason)}")
        exempt = ", ".join(kind.value for kind in MaintenanceKind if kind.allowed_by_default)
        say(f"Without a rule: {exempt} are allowed, everything else is denied.")


def _related(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether one of two scopes is the other one or contains it; ``()`` contains every scope."""
    return all(left == right for left, right in zip(one, other, strict=False))


_RULE_OPTIONS = (
    click.argument("scope"),
    click.argument("kind", type=_Kind()),
    click.option("--reason", default="", help="Shown with the decision."),
    click.option(
        "--for", "principals", multiple=True, metavar="NAME", help="Only this principal or role; may be repeated."
    ),
    click.option(
        "--during",
        "windows",
        multiple=True,
        metavar="WINDOW",
        help="Only in this time, e.g. 22:00-06:00 or 'Mon-Fri 22:00-06:00 Europe/Berlin'; may be repeated.",
    ),
)
_LIMIT_OPTIONS = (
    click.option(
        "--min-retention-days", type=DAYS, help="Least retention of a run that deletes files, or entries of the feed."
    ),
    click.option("--max-files", type=click.IntRange(min=0), help="Most files that one run may delete or rewrite."),
    click.option("--max-bytes", type=click.IntRange(min=0), help="Most bytes that one run may delete or rewrite."),
)


def _with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return click.pass_context(function)

    return decorate


@policy.command(epilog=f"KIND is one of {_KINDS}, in upper or lower case.")
@_with_options(*_RULE_OPTIONS, *_LIMIT_OPTIONS)
def allow(context: click.Context, /, **given: Any) -> None:
    """Allow KIND for SCOPE (catalog, catalog.schema or catalog.schema.table)."""
    _set_rule(context, given, allowed=True)
    say(f"Allowed {given['kind']} for {given['scope']}.")


@policy.command(epilog=f"KIND is one of {_KINDS}, in upper or lower case.")
@_with_options(*_RULE_OPTIONS)
def deny(context: click.Context, /, **given: Any) -> None:
    """Deny KIND for SCOPE (catalog, catalog.schema or catalog.schema.table)."""
    _set_rule(context, given, allowed=False)
    say(f"Denied {given['kind']} for {given['scope']}.")


@policy.command(epilog=f"KIND is one of {_KINDS}, in upper or lower case.")
@click.argument("scope")
@click.argument("kind", type=_Kind())
@click.pass_context
def reset(context: click.Context, scope: str, kind: MaintenanceKind) -> None:
    """Remove the rule for KIND at SCOPE: the wider scope, or the default, decides again."""
    with open_catalog(context) as catalog:
        if not any((rule.scope, rule.kind) == (scope, kind) for rule in catalog.maintenance_rules()):
            _warn(f"there was no rule for {kind} at {scope}.")
        catalog.remove_maintenance_rule(scope, kind)
    say(f"There is no rule for {kind} at {scope} now.")


def _set_rule(context: click.Context, given: Mapping[str, Any], *, allowed: bool) -> None:
    """Set a rule; warn if its scope has no table, since a rule may be set before its tables are created."""
    with open_catalog(context) as catalog:
        rule = _rule(given, allowed=allowed)
        catalog.set_maintenance_rule(rule)
        if not _tables_in(catalog, rule.scope):
            _warn(f"{nothing_in(catalog, rule.scope)} The rule was set and applies to tables that are created later.")


def _rule(given: Mapping[str, Any], *, allowed: bool) -> MaintenanceRule:
    days = given.get("min_retention_days")
    conditions = MaintenanceConditions(
        principals=tuple(given["principals"]),
        windows=tuple(map(MaintenanceWindow.parse, given["windows"])),
        min_retention_ms=None if days is None else days_in_ms(days),
        max_files=given.get("max_files"),
        max_bytes=given.get("max_bytes"),
    )
    return MaintenanceRule(
        scope=given["scope"], kind=given["kind"], allowed=allowed, reason=given["reason"], conditions=conditions
    )


def _tables_in(catalog: SqlCatalog, scope: str) -> tuple[TableIdentifier, ...]:
    parts = scope.split(".")
    return tuple(found for found in catalog.list_tables(".".join(parts[:2])) if str(found) == scope or len(parts) < 3)


def nothing_in(catalog: SqlCatalog, scope: str) -> str:
    """Why a scope without tables may be a mistake."""
    known = sorted({f"{found.catalog}.{found.schema}" for found in catalog.list_tables()})
    shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"The catalog has no table in {scope!r}; names are case-sensitive. Its schemas are: {shown or 'none'}."


def _warn(message: str) -> None:
    say(f"Warning: {message}", err=True)


def _verdict(allowed: object) -> str:
    return "allowed" if allowed else "denied "


def _suffix(reason: str) -> str:
    return f": {reason}" if reason else ""
