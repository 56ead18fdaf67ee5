"""Commands of ``cm-delta`` for commit rules, and for commits that wait for an approval."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from cm_delta_dagster.catalog.approvals import Approval
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.rules.kinds import KINDS
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.output import say, say_json
from cm_delta_dagster.errors import CommitConflictError
from cm_delta_dagster.operations.tables.approve_commit import approve_commit
from cm_delta_dagster.protocol.predicates.timestamps import utc_text

_as_json = click.option("--json", "as_json", is_flag=True, help="Print a JSON array, or object.")
_KINDS = "\b\n" + "\n".join(f"{kind.kind.value}({', '.join(kind.takes)}): {kind.summary}" for kind in KINDS.values())
_NUMBERS = {"rows": int, "files": int, "fraction": float}
_TEXTS = ("pattern",)


@click.group()
def rules() -> None:
    """Show and set commit rules: what all commits to a table, a schema or a catalog must satisfy."""


@rules.command("list")
@click.argument("scope", default="")
@_as_json
@click.pass_context
def list_rules(context: click.Context, scope: str, as_json: bool) -> None:
    """List the rules that apply at or below SCOPE; all without SCOPE."""
    with open_catalog(context) as catalog:
        found = catalog.commit_rules(scope)
    if as_json:
        _echo_json([_rule_fields(rule) for rule in found])
        return
    for rule in found:
        arguments = ", ".join(f"{key}={_shown(value)}" for key, value in rule.arguments.items())
        action = "needs approval" if rule.on_violation is OnViolation.APPROVAL else "refused"
        because = f": {rule.reason}" if rule.reason else ""
        say(f"{rule.scope}  {rule.name}  {rule.kind.value}({arguments})  {action}{because}")
    if not found:
        say(f"No commit rule applies to {scope}." if scope else "No commit rule is set.")


@rules.command("add", epilog=f"Kinds, with their arguments:\n\n{_KINDS}")
@click.argument("scope")
@click.argument("kind", type=click.Choice([kind.value for kind in CommitRuleKind]))
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--name", help="Shown in refusals; by default the kind.")
@click.option(
    "--approval", is_flag=True, help="Keep violating commits until an owner approves them, instead of refusing them."
)
@click.option("--reason", default="", help="Shown in refusals.")
@click.option("--contact", default="", help="Whom to ask; by default the principal who sets the rule.")
@click.option(
    "--confirm",
    is_flag=True,
    help="Set the rule although it locks everybody out, or names what the table does not have.",
)
@click.pass_context
def add_rule(context: click.Context, /, **given: Any) -> None:
    """Set a rule of KIND for SCOPE; names in a VALUE are separated by commas, e.g. columns=id,day."""
    rule = CommitRule(
        scope=given["scope"],
        name=given["name"] or given["kind"],
        kind=CommitRuleKind(given["kind"]),
        arguments=_arguments(given["arguments"]),
        on_violation=OnViolation.APPROVAL if given["approval"] else OnViolation.REFUSE,
        reason=given["reason"],
        contact=given["contact"],
    )
    with open_catalog(context) as catalog:
        stored = catalog.set_commit_rule(rule, confirmed=given["confirm"], may_replace=bool(given["name"]))
    say(f"The rule {stored} is set.")


@rules.command("remove")
@click.argument("scope")
@click.argument("name")
@click.option("--reason", default="", help="Recorded in the audit.")
@click.pass_context
def remove_rule(context: click.Context, scope: str, name: str, reason: str) -> None:
    """Remove the rule NAME of SCOPE."""
    with open_catalog(context) as catalog:
        catalog.remove_commit_rule(scope, name, reason=reason)
    say(f"{scope} has no rule {name!r} any more.")


@click.command()
@click.argument("scope", default="")
@click.option("--all", "with_closed", is_flag=True, help="Also those that were decided or expired.")
@_as_json
@click.pass_context
def approvals(context: click.Context, scope: str, with_closed: bool, as_json: bool) -> None:
    """List the commits that wait for an approval, of all tables or those in SCOPE."""
    with open_catalog(context) as catalog:
        found = catalog.approvals(scope, with_closed=with_closed)
    if as_json:
        _echo_json([_approval_fields(approval) for approval in found])
        return
    for approval in found:
        by = approval.requested_by or "unknown"
        say(
            f"{approval.approval_id}  {approval.state.value:<11}  {approval.identifier}  {approval.operation} by {by} at "
            f"{utc_text(approval.requested_ms)}, until {utc_text(approval.expires_ms)}"
        )
        for what in approval.what:
            say(f"    {what}")
        if approval.reason:
            say(f"    {approval.reason}")
    if not found:
        say("No commit waits for an approval.")


@click.command()
@click.argument("approval_id")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.pass_context
def approve(context: click.Context, approval_id: str, as_json: bool) -> None:
    """Commit what waits as APPROVAL_ID, rebased on the latest version; a repeated call does nothing."""
    with open_client(context) as client:
        try:
            done = approve_commit(client, approval_id)
        except CommitConflictError as error:
            raise click.ClickException(str(error)) from error
    if as_json:
        _echo_json({"approval_id": approval_id, "version": done.version, "repeated": done.repeated})
        return
    earlier = " already" if done.repeated else ""
    say(f"The commit is{earlier} version {done.version} of {done.approval.identifier}.")


@click.command()
@click.argument("approval_id")
@click.option("--reason", required=True, help="Why; the writer reads it.")
@click.pass_context
def reject(context: click.Context, approval_id: str, reason: str) -> None:
    """Close the request APPROVAL_ID without a commit."""
    with open_catalog(context) as catalog:
        closed = catalog.reject_approval(approval_id, reason=reason)
    say(f"The request {approval_id} for {closed.operation} on {closed.identifier} is rejected.")


def _arguments(texts: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        key, value = _argument(text)
        if key in found:
            raise click.UsageError(f"{key} is given twice; separate several names by commas, e.g. columns=id,day.")
        found[key] = value
    return found


def _argument(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not value:
        raise click.UsageError(f"{text!r} is not KEY=VALUE, e.g. columns=id,day or fraction=0.4.")
    if key in _TEXTS:
        return key, value
    number = _NUMBERS.get(key)
    if number is None:
        return key, tuple(part.strip() for part in value.split(",") if part.strip())
    try:
        return key, number(value)
    except ValueError:
        raise click.UsageError(f"{key} takes a number, and {value!r} is none.") from None


def _shown(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _rule_fields(rule: CommitRule) -> dict[str, Any]:
    names = ("scope", "name", "kind", "on_violation", "reason", "contact", "set_by", "set_ms")
    return {name: getattr(rule, name) for name in names} | {"arguments": dict(rule.arguments)}


def _approval_fields(approval: Approval) -> dict[str, Any]:
    names = (field for field in approval.__dataclass_fields__ if field != "identifier")
    return {name: getattr(approval, name) for name in names} | {"table": str(approval.identifier)}


def _echo_json(value: dict[str, Any] | Iterable[dict[str, Any]]) -> None:
    say_json(value, indent=2)
