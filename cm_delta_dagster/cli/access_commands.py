"""Commands of ``cm-delta`` for grants, roles, owners of tables and the audit."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import click

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.audit import AuditEntry
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.output import say, say_json
from cm_delta_dagster.cli.times import utc_second
from cm_delta_dagster.operations.recovery.display_text import printable

_as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_reason = click.option("--reason", default="", help="Reason, for the audit.")
_lock_out = click.option("--lock-out", is_flag=True, help="Also if no principal owns all tables afterwards.")
_privileges = click.argument("privileges", metavar="PRIVILEGE[,PRIVILEGE]")
_PRIVILEGES = ", ".join(privilege.value for privilege in Privilege)


@click.command()
@_as_json
@click.pass_context
def whoami(context: click.Context, as_json: bool) -> None:
    """Show the principal of this command, its roles, and whether grants are enforced."""
    with open_catalog(context) as catalog:
        caller = catalog.whoami()
    stated = "no principal (state one with --principal)" if caller.principal is None else caller.principal
    lines = [
        f"principal: {stated}",
        f"roles:     {', '.join(caller.roles) or 'none'}",
        f"grants:    {'enforced' if caller.grants_enabled else 'not enforced: everybody may do everything'}",
    ]
    _show(asdict(caller), lines, as_json=as_json)


@click.command()
@_privileges
@click.argument("scope")
@click.argument("to")
@_reason
@_as_json
@click.pass_context
def grant(context: click.Context, privileges: str, scope: str, to: str, reason: str, as_json: bool) -> None:
    """Grant PRIVILEGE (read, append, modify, alter, maintain, own) on SCOPE to the principal or role TO.

    SCOPE is * for all tables, catalog, catalog.schema or catalog.schema.table. TO can be public for everybody.
    """
    with open_catalog(context) as catalog:
        catalog.grant(_parsed(privileges), scope, to, reason=reason)
        _show_grants(catalog.grants(scope), as_json=as_json)


@click.command()
@_privileges
@click.argument("scope")
@click.argument("principal")
@_reason
@_lock_out
@_as_json
@click.pass_context
def revoke(
    context: click.Context,
    privileges: str,
    scope: str,
    principal: str,
    reason: str,
    lock_out: bool,
    as_json: bool,
) -> None:
    """Delete the grants of PRIVILEGE on exactly SCOPE to PRINCIPAL."""
    with open_catalog(context) as catalog:
        catalog.revoke(_parsed(privileges), scope, principal, reason=reason, lock_out=lock_out)
        _show_grants(catalog.grants(scope), as_json=as_json)


@click.group(invoke_without_command=True)
@click.option("--scope", default="", help="Only grants that apply in this scope.")
@_as_json
@click.pass_context
def grants(context: click.Context, scope: str, as_json: bool) -> None:
    """List grants, or enable and disable their enforcement."""
    if context.invoked_subcommand is None:
        with open_catalog(context) as catalog:
            _show_grants(catalog.grants(scope), as_json=as_json)


@grants.command("enable")
@click.option("--owner", help="Principal that owns all tables. Default: the principal of this command.")
@_lock_out
@click.pass_context
def enable_grants(context: click.Context, owner: str | None, lock_out: bool) -> None:
    """Enforce grants: a principal may do what it was granted, and what it may do as the owner of a table."""
    with open_catalog(context) as catalog:
        catalog.enable_grants(owner=owner, lock_out=lock_out)
    say("Grants are enforced now.")


@grants.command("disable")
@click.pass_context
def disable_grants(context: click.Context) -> None:
    """Stop the enforcement; grants and roles stay."""
    with open_catalog(context) as catalog:
        catalog.disable_grants()
    say("Grants are not enforced now.")


@click.group(invoke_without_command=True)
@_as_json
@click.pass_context
def roles(context: click.Context, as_json: bool) -> None:
    """List roles with their members, or change them."""
    if context.invoked_subcommand is not None:
        return
    with open_catalog(context) as catalog:
        found = catalog.roles()
    _show([asdict(role) for role in found], _table(("ROLE", "MEMBERS"), _role_rows(found)), as_json=as_json)


def _role_rows(found: Iterable[Any]) -> list[tuple[str, str]]:
    return [(role.name, ", ".join(role.members)) for role in found]


@roles.command("add")
@click.argument("role")
@click.argument("members", nargs=-1, required=True)
@_reason
@click.pass_context
def add_to_role(context: click.Context, role: str, members: tuple[str, ...], reason: str) -> None:
    """Add principals or roles to ROLE, which is created if it does not exist."""
    with open_catalog(context) as catalog:
        catalog.add_to_role(role, members, reason=reason)
    say(f"{', '.join(members)}: now in the role {role}.")


@roles.command("remove")
@click.argument("role")
@click.argument("members", nargs=-1, required=True)
@_reason
@_lock_out
@click.pass_context
def remove_from_role(context: click.Context, role: str, members: tuple[str, ...], reason: str, lock_out: bool) -> None:
    """Remove members of ROLE."""
    with open_catalog(context) as catalog:
        catalog.remove_from_role(role, members, reason=reason, lock_out=lock_out)
    say(f"{', '.join(members)}: not in the role {role} any more.")


@roles.command("drop")
@click.argument("role")
@_reason
@_lock_out
@click.pass_context
def drop_role(context: click.Context, role: str, reason: str, lock_out: bool) -> None:
    """Delete ROLE with its grants."""
    with open_catalog(context) as catalog:
        catalog.drop_role(role, reason=reason, lock_out=lock_out)
    say(f"The role {role} is deleted.")


@click.command()
@click.argument("name")
@click.argument("to", required=False)
@_reason
@click.pass_context
def owner(context: click.Context, name: str, to: str | None, reason: str) -> None:
    """Show the owner of the table NAME, or make the principal or role TO its owner."""
    with open_catalog(context) as catalog:
        table_id = catalog.load_table(TableIdentifier.parse(name)).table_id
        if to is not None:
            catalog.transfer_table(table_id, to, reason=reason)
        say(catalog.table_owner(table_id) or "none")


@click.command()
@click.option("--scope", default="", help="Only entries of this catalog, schema or table.")
@click.option("--after", type=click.IntRange(min=0), help="Only entries with a larger id, and of these the oldest.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=1), help="How many to show at most.")
@_as_json
@click.pass_context
def audit(context: click.Context, scope: str, after: int | None, limit: int, as_json: bool) -> None:
    """Show who changed grants, roles and rules, and what was refused: the newest entries, in the order of time."""
    with open_catalog(context) as catalog:
        found = catalog.audit(scope=scope, after=after, limit=limit)
    heads = ("ID", "TIME", "PRINCIPAL", "OUTCOME", "ACTION", "SCOPE", "WHAT")
    _show([asdict(entry) for entry in found], _table(heads, [_audit_row(entry) for entry in found]), as_json=as_json)


def _audit_row(entry: AuditEntry) -> tuple[str, ...]:
    time = utc_second(entry.at_ms)
    change = " -> ".join(text for text in (entry.before, entry.after) if text is not None)
    what = "; ".join(text for text in (change, entry.reason) if text)
    return str(entry.entry_id), time, entry.principal or "-", entry.outcome.value, entry.action, entry.scope, what


def _parsed(text: str) -> tuple[Privilege, ...]:
    try:
        return tuple(Privilege(name.strip().lower()) for name in text.split(","))
    except ValueError:
        raise click.UsageError(f"{text!r} is not a list of privileges; the privileges are {_PRIVILEGES}.") from None


def _show_grants(found: Sequence[Any], *, as_json: bool) -> None:
    rows = [(one.scope, one.grantee, one.privilege.value, one.granted_by or "-") for one in found]
    _show(
        [asdict(one) for one in found], _table(("SCOPE", "GRANTEE", "PRIVILEGE", "GRANTED BY"), rows), as_json=as_json
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns as wide as their longest value; the last one is not padded."""
    rows = [[printable(text) for text in row] for row in rows]
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in (heads, *rows)
    ]


def _show(value: Any, lines: Iterable[str], *, as_json: bool) -> None:
    if as_json:
        say_json(value)
        return
    for line in lines:
        say(line)
