"""Commands of ``cm-delta maintenance`` for the policies that allow or deny maintenance."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from cm_delta_dagster.catalog.maintenance import (
    MaintenanceConditions,
    MaintenanceDecision,
    MaintenanceKind,
    MaintenanceRule,
)
from cm_delta_dagster.catalog.maintenance_decisions import conditions_text
from cm_delta_dagster.catalog.maintenance_windows import MaintenanceWindow
from cm_delta_dagster.catalog.sql.rows.names import scope_parts
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.options import DURATION, future_option, renamed_option
from cm_delta_dagster.cli.printer import aligned, output, show, show_records, warn
from cm_delta_dagster.operations.tables.scopes import IF_MEANT, check_scope

_KINDS = ", ".join(kind.value for kind in MaintenanceKind)
_EXEMPT = ", ".join(kind.value for kind in MaintenanceKind if kind.allowed_by_default)
_TABLE_PARTS = 3
"""catalog.schema.table"""


class _Kind(click.ParamType):  # type: ignore[type-arg]  # Generic since a recent click only.
    """A kind of maintenance, in upper or lower case."""

    name = "kind"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> MaintenanceKind:
        try:
            return MaintenanceKind(str(value).upper())
        except ValueError:
            self.fail(f"{str(value)!r} is not a kind of maintenance; the kinds are {_KINDS}.", param, ctx)


@click.command("list-policies")
@click.argument("name", default="")
@output("an array with the attributes of each MaintenanceRule, or for a table of each MaintenanceDecision")
def list_policies(name: str) -> None:
    """List every rule, what applies to the table NAME (catalog.schema.table), or the rules for a catalog or schema NAME.

    The rules for a catalog or schema are those of wider scopes, of its own, and of scopes within it.
    """
    with open_catalog() as catalog:
        parts = scope_parts(name) if name else ()
        if len(parts) == _TABLE_PARTS:
            identifier = TableIdentifier.parse(name)
            catalog.registry.load_table(identifier)
            decisions = [
                catalog.maintenance_policies.maintenance_decision(identifier, kind) for kind in MaintenanceKind
            ]
            show_records(decisions, "verdict kind decided_by reason", verdict=_verdict)
            return
        rules = [
            rule
            for rule in catalog.maintenance_policies.maintenance_rules()
            if _related(parts, scope_parts(rule.scope))
        ]
    columns, conditions = "verdict kind scope conditions reason", lambda rule: conditions_text(rule.conditions)
    lines = aligned(rules, columns, verdict=_verdict, conditions=conditions) if rules else []
    show(rules, *lines, f"Without a rule: {_EXEMPT} are allowed, everything else is denied.")


def _verdict(rule: MaintenanceRule | MaintenanceDecision) -> str:
    return "allowed" if rule.allowed else "denied"


def _related(scope: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether one of two scopes is the other one or contains it; ``()`` contains every scope."""
    return all(left == right for left, right in zip(scope, other, strict=False))


_SCOPE_AND_KIND = (
    click.argument("scope"),
    click.argument("kind", type=_Kind()),
    output("an object: scope, kind, allowed"),
)
_RULE_OPTIONS = (
    *_SCOPE_AND_KIND,
    click.option("--deny", is_flag=True, help="Deny the maintenance; without it, allow it."),
    future_option,
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
        "--min-retention",
        type=DURATION,
        help="Least retention of a run that deletes files, or entries of the feed.",
    ),
    renamed_option("--min-retention-days", "--min-retention"),
    click.option("--max-files", type=click.IntRange(min=0), help="Most files that one run may delete or rewrite."),
    click.option("--max-bytes", type=click.IntRange(min=0), help="Most bytes that one run may delete or rewrite."),
)


def _command(name: str, *options: Callable[[Any], Any]) -> Callable[[Any], click.Command]:
    def decorate(function: Any) -> click.Command:
        for option in reversed(options):
            function = option(function)
        return click.command(name, epilog=f"KIND is one of {_KINDS}, in upper or lower case.")(function)

    return decorate


@_command("set-policy", *_RULE_OPTIONS, *_LIMIT_OPTIONS)
def set_policy(**values: Any) -> None:
    """Allow KIND for SCOPE (catalog, catalog.schema or catalog.schema.table), or deny it. The narrowest scope decides."""
    _set_rule(values, allowed=not values["deny"])


@_command("remove-policy", *_SCOPE_AND_KIND)
def remove_policy(scope: str, kind: MaintenanceKind) -> None:
    """Remove the rule for KIND at SCOPE: the wider scope, or the default, decides again."""
    with open_catalog() as catalog:
        if not any(
            (rule.scope, rule.kind) == (scope, kind) for rule in catalog.maintenance_policies.maintenance_rules()
        ):
            warn(f"there was no rule for {kind} at {scope}.")
        catalog.maintenance_policies.remove_maintenance_rule(scope, kind)
    show({"scope": scope, "kind": kind, "allowed": None}, f"There is no rule for {kind} at {scope} now.")


def _set_rule(values: Mapping[str, Any], *, allowed: bool) -> None:
    conditions = MaintenanceConditions(
        principals=tuple(values["principals"]),
        windows=tuple(map(MaintenanceWindow.parse, values["windows"])),
        **{name: values.get(name) for name in ("min_retention", "max_files", "max_bytes")},
    )
    scope, kind = values["scope"], values["kind"]
    with open_catalog() as catalog:
        if not values["future"]:
            check_scope(catalog.registry, catalog.namespaces, scope, remedy=IF_MEANT)
        catalog.maintenance_policies.set_maintenance_rule(
            MaintenanceRule(scope=scope, kind=kind, allowed=allowed, reason=values["reason"], conditions=conditions)
        )
    show(
        {"scope": scope, "kind": kind, "allowed": allowed}, f"{'Allowed' if allowed else 'Denied'} {kind} for {scope}."
    )
