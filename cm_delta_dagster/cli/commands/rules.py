"""Commands of ``cm-delta rules``: for commit rules, and for held commits."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.holds import Hold, HoldState, WaitsFor
from cm_delta_dagster.catalog.rules.kinds import KINDS
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.options import Pair, future_option
from cm_delta_dagster.cli.printer import aligned, output, show, show_records
from cm_delta_dagster.operations.tables.ratify_hold import approve_hold, ratify_hold
from cm_delta_dagster.operations.tables.scopes import IF_MEANT, check_scope, in_scope

_KINDS = "\b\n" + "\n".join(f"{kind.kind.value}({', '.join(kind.takes)}): {kind.summary}" for kind in KINDS.values())
_NUMBERS = {"rows": int, "files": int, "fraction": float}
_TEXTS = ("pattern",)
_APPROVALS_HINT = "An owner decides: cm-delta rules approve ID, or cm-delta rules reject ID --reason TEXT."
_HELD_HINT = (
    "To end a hold: cm-delta rules ratify ID, or cm-delta rules discard ID --reason TEXT. One that waits for an approval: "
    "cm-delta rules approve ID, or cm-delta rules reject ID --reason TEXT."
)


@click.command("list")
@click.argument("scope", default="")
@output("an array with the attributes of each CommitRule")
def list_rules(scope: str) -> None:
    """List the rules that apply at or below SCOPE; all without SCOPE."""
    with open_catalog() as catalog:
        rules = catalog.commit_rules.commit_rules(scope)
        applying = in_scope(rules, catalog.registry, catalog.namespaces, scope)
    empty = f"No commit rule applies to {scope}." if scope else "No commit rule is set."
    show_records(applying, "scope name kind arguments on_violation reason", empty=empty)


@click.command("set", epilog=f"Kinds, with their arguments:\n\n{_KINDS}")
@click.argument("scope")
@click.argument("kind", type=click.Choice([kind.value for kind in CommitRuleKind]))
@click.argument(
    "arguments", nargs=-1, type=Pair("KEY=VALUE", "columns=id,day or fraction=0.4"), metavar="[KEY=VALUE]..."
)
@click.option("--name", help="Shown in refusals; by default the kind.")
@click.option(
    "--approval", is_flag=True, help="Keep violating commits until an owner approves them, instead of refusing them."
)
@click.option("--reason", default="", help="Shown in refusals.")
@click.option("--contact", default="", help="Whom to ask; by default the principal who sets the rule.")
@click.option(
    "--force",
    is_flag=True,
    help="Set the rule although it locks everybody out, or names what the table does not have.",
)
@future_option
@output("an object: scope, name, kind")
def set_rule(**values: Any) -> None:
    """Set a rule of KIND for SCOPE; names in a VALUE are separated by commas, e.g. columns=id,day."""
    rule = CommitRule(
        scope=values["scope"],
        name=values["name"] or values["kind"],
        kind=CommitRuleKind(values["kind"]),
        arguments=_arguments(values["arguments"]),
        on_violation=OnViolation.APPROVAL if values["approval"] else OnViolation.REFUSE,
        reason=values["reason"],
        contact=values["contact"],
    )
    with open_catalog() as catalog:
        if not values["future"]:
            check_scope(catalog.registry, catalog.namespaces, rule.scope, remedy=IF_MEANT)
        stored = catalog.commit_rules.set_commit_rule(rule, confirmed=values["force"], may_replace=bool(values["name"]))
    show({"scope": rule.scope, "name": rule.name, "kind": rule.kind}, f"The rule {stored} is set.")


@click.command("remove")
@click.argument("scope")
@click.argument("name")
@click.option("--reason", default="", help="Recorded in the audit.")
@output("an object: scope, name")
def remove_rule(scope: str, name: str, reason: str) -> None:
    """Remove the rule NAME of SCOPE."""
    with open_catalog() as catalog:
        catalog.commit_rules.remove_commit_rule(scope, name, reason=reason)
    show({"scope": scope, "name": name}, f"{scope} has no rule {name!r} any more.")


@click.command()
@click.argument("scope", default="")
@click.option("--all", "with_closed", is_flag=True, help="Also those that were decided or expired.")
@output("an array with the attributes of each Hold")
def approvals(scope: str, with_closed: bool) -> None:
    """List the commits that wait for an approval, of all tables or those in SCOPE."""
    holds = _holds(scope, with_closed=with_closed)
    waiting = [hold for hold in holds if hold.waits_for is WaitsFor.APPROVAL]
    _show_holds(waiting, empty="No commit waits for an approval.", hint=_APPROVALS_HINT)


@click.command()
@click.argument("approval_id")
@output("an object: approval_id, version, repeated")
def approve(approval_id: str) -> None:
    """Commit what waits as APPROVAL_ID, rebased on the latest version; a repeated call does nothing."""
    with open_client() as client:
        done = approve_hold(client, approval_id)
    earlier = " already" if done.repeated else ""
    show(
        {"approval_id": approval_id, "version": done.version, "repeated": done.repeated},
        f"The commit is{earlier} {_versions(done.hold)}.",
    )


@click.command()
@click.argument("approval_id")
@click.option("--reason", required=True, help="Why; the writer reads it.")
@output("an object: approval_id")
def reject(approval_id: str, reason: str) -> None:
    """Close the request APPROVAL_ID without a commit."""
    with open_catalog() as catalog:
        closed = catalog.holds.reject_hold(approval_id, reason=reason)
    done = f"The request {approval_id} for {closed.summary} is rejected."
    show({"approval_id": approval_id}, done)


@click.command()
@click.argument("scope", default="")
@click.option("--all", "with_closed", is_flag=True, help="Also those that have ended.")
@output("an array with the attributes of each Hold")
def held(scope: str, with_closed: bool) -> None:
    """List the held commits, of all tables or those in SCOPE, also those that wait for an approval."""
    holds = _holds(scope, with_closed=with_closed)
    _show_holds(holds, empty="No commit is held.", hint=_HELD_HINT)


@click.command()
@click.argument("hold_id")
@output("an object: hold_id, versions, repeated")
def ratify(hold_id: str) -> None:
    """Commit the hold HOLD_ID, rebased on the latest versions; a repeated call does nothing."""
    with open_client() as client:
        done = ratify_hold(client, hold_id)
    earlier = " already" if done.repeated else ""
    versions = {str(table.identifier): table.version for table in done.hold.tables}
    show(
        {"hold_id": hold_id, "versions": versions, "repeated": done.repeated},
        f"The hold is{earlier} {_versions(done.hold)}.",
    )


@click.command()
@click.argument("hold_id")
@click.option("--reason", required=True, help="Why; the writer reads it.")
@output("an object: hold_id")
def discard(hold_id: str, reason: str) -> None:
    """End the hold HOLD_ID without a commit."""
    with open_catalog() as catalog:
        closed = catalog.holds.discard_hold(hold_id, reason=reason)
    show({"hold_id": hold_id}, f"The hold {hold_id} for {closed.summary} is discarded.")


def _holds(scope: str, *, with_closed: bool) -> tuple[Hold, ...]:
    """Those in ``scope``. Raises InvalidArgumentError if there is none and the scope names nothing."""
    with open_catalog() as catalog:
        holds = catalog.holds.holds(scope, with_closed=with_closed)
        return in_scope(holds, catalog.registry, catalog.namespaces, scope)


def _show_holds(holds: Sequence[Hold], *, empty: str, hint: str) -> None:
    """Show holds, and what can be done with those that are pending."""
    columns = "hold_id waits_for state summary requested_by requested_ms expires_ms reason what"
    computed = {"summary": lambda hold: hold.summary, "what": lambda hold: hold.what}
    is_pending = any(hold.state is HoldState.PENDING for hold in holds)
    show(holds, *(aligned(holds, columns, **computed) if holds else [empty]), *([hint] if is_pending else []))


def _versions(hold: Hold) -> str:
    """What the commits of a hold became, e.g. ``version 4 of main.sales.orders``."""
    return " and ".join(f"version {table.version} of {table.identifier}" for table in hold.tables)


def _arguments(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for key, value in pairs:
        if key in arguments:
            raise click.UsageError(f"{key} is given twice; separate several names by commas, e.g. columns=id,day.")
        arguments[key] = _argument(key, value)
    return arguments


def _argument(key: str, value: str) -> Any:
    if key in _TEXTS:
        return value
    number = _NUMBERS.get(key)
    if number is None:
        return tuple(part.strip() for part in value.split(",") if part.strip())
    try:
        return number(value)
    except ValueError:
        raise click.UsageError(f"{key} takes a number, and {value!r} is none.") from None
