"""Commands of ``cm-delta access`` for roles."""

import click

from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.printer import output, show, show_records

_reason = click.option("--reason", default="", help="Reason, for the audit.")
_lock_out = click.option("--force", is_flag=True, help="Also if no principal owns all tables afterwards.")
_role = output("an object: role, members")


@click.command("list-roles")
@output("an array with the attributes of each Role")
def list_roles() -> None:
    """List roles with their members."""
    with open_catalog() as catalog:
        show_records(catalog.access.roles(), "name members", empty="There is no role.")


@click.command("add-to-role")
@click.argument("role")
@click.argument("members", nargs=-1, required=True)
@_reason
@_role
def add_to_role(role: str, members: tuple[str, ...], reason: str) -> None:
    """Add principals or roles to ROLE, which is created if it does not exist."""
    with open_catalog() as catalog:
        catalog.access.add_to_role(role, members, reason=reason)
    show({"role": role, "members": members}, f"{', '.join(members)}: now in the role {role}.")


@click.command("remove-from-role")
@click.argument("role")
@click.argument("members", nargs=-1, required=True)
@_reason
@_lock_out
@_role
def remove_from_role(role: str, members: tuple[str, ...], reason: str, force: bool) -> None:
    """Remove members of ROLE."""
    with open_catalog() as catalog:
        catalog.access.remove_from_role(role, members, reason=reason, force=force)
    show({"role": role, "members": members}, f"{', '.join(members)}: not in the role {role} any more.")


@click.command("drop-role")
@click.argument("role")
@_reason
@_lock_out
@output("an object: role")
def drop_role(role: str, reason: str, force: bool) -> None:
    """Delete ROLE with its grants."""
    with open_catalog() as catalog:
        catalog.access.drop_role(role, reason=reason, force=force)
    show({"role": role}, f"The role {role} is deleted.")
