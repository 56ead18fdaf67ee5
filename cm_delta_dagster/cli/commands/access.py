"""Commands of ``cm-delta access`` for grants, owners of tables, application ids and the audit."""

import click

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.options import future_option
from cm_delta_dagster.cli.printer import output, show, show_records, warn
from cm_delta_dagster.operations.tables.scopes import IF_MEANT, check_scope, in_scope

_reason = click.option("--reason", default="", help="Reason, for the audit.")
_lock_out = click.option("--force", is_flag=True, help="Also if no principal owns all tables afterwards.")
_PRIVILEGES = ", ".join(privilege.value for privilege in Privilege)


class _Privileges(click.ParamType):  # type: ignore[type-arg]  # Generic since a recent click only.
    """Privileges with commas between them, in upper or lower case."""

    name = "privileges"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Privilege, ...]:
        try:
            return tuple(Privilege(name.strip().lower()) for name in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of privileges; the privileges are {_PRIVILEGES}.", param, ctx)


_privileges = click.argument("privileges", metavar="PRIVILEGE[,PRIVILEGE]", type=_Privileges())
_grants = output("an array with the attributes of each Grant in the scope")
_owner = output("an object: name, owner")


@click.command()
@output("an object with the attributes of Caller")
def whoami() -> None:
    """Show the principal of this command, its roles, and whether grants are enforced."""
    with open_catalog() as catalog:
        caller = catalog.access.whoami()
    show(
        caller,
        f"principal: {'no principal (state one with --principal)' if caller.principal is None else caller.principal}",
        f"roles:     {', '.join(caller.roles) or 'none'}",
        f"grants:    {'enforced' if caller.grants_enabled else 'not enforced: everybody may do everything'}",
    )


@click.command()
@_privileges
@click.argument("scope")
@click.argument("to")
@_reason
@future_option
@_grants
def grant(privileges: tuple[Privilege, ...], scope: str, to: str, reason: str, future: bool) -> None:
    """Grant PRIVILEGE (read, append, modify, alter, maintain, own) on SCOPE to the principal or role TO.

    SCOPE is * for all tables, catalog, catalog.schema or catalog.schema.table. TO can be public for everybody.
    """
    with open_catalog() as catalog:
        if not future:
            check_scope(catalog.registry, catalog.namespaces, scope, remedy=IF_MEANT, with_tables=False)
        catalog.access.grant(privileges, scope, to, reason=reason)
        if not catalog.access.whoami().grants_enabled:
            warn("grants are not enforced until `cm-delta access enable-grants`: everybody may do everything.")
    _show_grants(scope)


@click.command()
@_privileges
@click.argument("scope")
@click.argument("principal")
@_reason
@_lock_out
@_grants
def revoke(privileges: tuple[Privilege, ...], scope: str, principal: str, reason: str, force: bool) -> None:
    """Delete the grants of PRIVILEGE on exactly SCOPE to PRINCIPAL."""
    with open_catalog() as catalog:
        catalog.access.revoke(privileges, scope, principal, reason=reason, force=force)
    _show_grants(scope)


@click.command("list-grants")
@click.option("--scope", default="", help="Only grants that apply in this scope.")
@_grants
def list_grants(scope: str) -> None:
    """List the grants, of narrower and wider scopes too."""
    _show_grants(scope)


def _show_grants(scope: str) -> None:
    with open_catalog() as catalog:
        grants = in_scope(catalog.access.grants(scope), catalog.registry, catalog.namespaces, scope)
        show_records(grants, "scope grantee privilege granted_by", empty="No grant applies.")


@click.command("enable-grants")
@click.option("--owner", help="Principal that owns all tables. Default: the principal of this command.")
@_lock_out
@output("an object: grants_enabled")
def enable_grants(owner: str | None, force: bool) -> None:
    """Enforce grants: a principal may do what it was granted, and what it may do as the owner of a table."""
    with open_catalog() as catalog:
        catalog.access.enable_grants(owner=owner, force=force)
    show({"grants_enabled": True}, "Grants are enforced now.")


@click.command("disable-grants")
@output("an object: grants_enabled")
def disable_grants() -> None:
    """Stop the enforcement; grants and roles stay."""
    with open_catalog() as catalog:
        catalog.access.disable_grants()
    show({"grants_enabled": False}, "Grants are not enforced now.")


@click.command()
@click.argument("name")
@_owner
def owner(name: str) -> None:
    """Show the owner of the table NAME."""
    with open_catalog() as catalog:
        current = catalog.access.table_owner(catalog.registry.load_table(TableIdentifier.parse(name)).table_id)
    show({"name": name, "owner": current}, current or "none")


@click.command("set-owner")
@click.argument("name")
@click.argument("to")
@_reason
@_owner
def set_owner(name: str, to: str, reason: str) -> None:
    """Make the principal or role TO the owner of the table NAME."""
    with open_catalog() as catalog:
        table_id = catalog.registry.load_table(TableIdentifier.parse(name)).table_id
        catalog.access.transfer_table(table_id, to, reason=reason)
        current = catalog.access.table_owner(table_id)
    show({"name": name, "owner": current}, current or "none")


@click.command("list-application-ids")
@click.argument("name")
@output("an array with the attributes of each ApplicationId of the table")
def list_application_ids(name: str) -> None:
    """List the application ids that commits of the table NAME have set, with the principal that did so last."""
    with open_catalog() as catalog:
        table_id = catalog.registry.load_table(TableIdentifier.parse(name)).table_id
        ids = catalog.application_ids.application_ids(table_id)
    show_records(ids, "app_id principal since_ms", empty="No recorded commit has set an application id.")


@click.command("reset-application-id")
@click.argument("name")
@click.argument("app_id")
@_reason
@output("an object: name, app_id")
def reset_application_id(name: str, app_id: str, reason: str) -> None:
    """Let the next principal set the application id APP_ID of the table NAME. Requires the privilege alter."""
    with open_catalog() as catalog:
        table_id = catalog.registry.load_table(TableIdentifier.parse(name)).table_id
        catalog.application_ids.reset_application_id(table_id, app_id, reason=reason)
    show({"name": name, "app_id": app_id}, f"The next principal may set the application id {app_id} of {name}.")


@click.command()
@click.option("--scope", default="", help="Only entries of this catalog, schema or table.")
@click.option("--after", type=click.IntRange(min=0), help="Only entries with a larger id, and of these the oldest.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=1), help="How many to show at most.")
@output("an array with the attributes of each AuditEntry")
def audit(scope: str, after: int | None, limit: int) -> None:
    """Show who changed grants, roles and rules, and what was refused: the newest entries, in the order of time."""
    with open_catalog() as catalog:
        entries = catalog.audit_log.audit(scope=scope, after=after, limit=limit)
        if after is None:
            entries = in_scope(entries, catalog.registry, catalog.namespaces, scope)
    columns = "entry_id at_ms principal outcome action scope reason change"
    show_records(entries, columns, change=lambda entry: " -> ".join(filter(None, (entry.before, entry.after))))
