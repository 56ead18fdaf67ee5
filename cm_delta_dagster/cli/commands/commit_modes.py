"""Commands of ``cm-delta settings`` that show and set how commits are made."""

import click

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.options import future_option
from cm_delta_dagster.cli.printer import aligned, output, show
from cm_delta_dagster.operations.tables.scopes import IF_MEANT, check_scope
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy


@click.command("list-commit-modes")
@click.argument("name", default="")
@output("an array with an object for each scope that has a mode, or for the table: scope, mode")
def list_commit_modes(name: str) -> None:
    """List the mode of every scope that has one, or the mode of the table NAME (catalog.schema.table).

    The mode of the narrowest scope decides.
    """
    with open_catalog() as catalog:
        if name:
            mode = str(catalog.registry.load_table(TableIdentifier.parse(name)).ratified.commit_policy)
            show([{"scope": name, "mode": mode}], mode)
            return
        modes = [{"scope": rule.scope, "mode": str(rule.policy)} for rule in catalog.commit_policies.commit_policies()]
    show(modes, *(aligned(modes, "scope mode") if modes else ()), "Without a mode commits are staged.")


@click.command("set-commit-mode")
@click.argument("scope")
@click.argument("mode", type=click.Choice(["staged", "inline", "auto", "put_if_absent"]))
@click.option("--inline-max-bytes", type=click.IntRange(min=0), help="For auto: size of the largest inline commit.")
@future_option
@output("an object: scope, mode")
def set_commit_mode(scope: str, mode: str, inline_max_bytes: int | None, future: bool) -> None:
    """Set MODE for SCOPE (catalog, catalog.schema or catalog.schema.table); repeat it to complete a switch that failed."""
    with open_client() as client:
        chosen = CommitPolicy(kind=CommitPolicyKind(mode), inline_max_bytes=inline_max_bytes)
        if not future:
            check_scope(client.registry, client.namespaces, scope, remedy=IF_MEANT, with_tables=False)
        choose_commit_policy(client, scope=scope, policy=chosen)
    show({"scope": scope, "mode": str(chosen)}, f"The commit mode of {scope} is {chosen}.")


@click.command("remove-commit-mode")
@click.argument("scope")
@output("an object: scope, mode")
def remove_commit_mode(scope: str) -> None:
    """Remove the mode of SCOPE: the wider scope, or the default, decides again."""
    with open_client() as client:
        choose_commit_policy(client, scope=scope, policy=None)
    show({"scope": scope, "mode": None}, f"The commit mode of {scope} was removed.")
