"""The commands ``cm-delta commit-mode``, which show and set how commits are made."""

import click

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.catalog import open_catalog
from cm_delta_dagster.cli.client import open_client
from cm_delta_dagster.cli.output import say
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy


@click.group("commit-mode")
def commit_mode() -> None:
    """Show and set the commit mode. The mode of the narrowest scope decides."""


@commit_mode.command("show")
@click.argument("name", default="")
@click.pass_context
def show_commit_mode(context: click.Context, name: str) -> None:
    """List the mode of every scope that has one, or the mode of the table NAME (catalog.schema.table)."""
    with open_catalog(context) as catalog:
        if name:
            say(str(catalog.load_table(TableIdentifier.parse(name)).ratified.commit_policy))
            return
        for rule in catalog.commit_policies():
            say(f"{rule.scope}: {rule.policy}")
        say("Without a mode commits are staged.")


@commit_mode.command("set")
@click.argument("scope")
@click.argument("mode", type=click.Choice(["staged", "inline", "auto", "put_if_absent"]))
@click.option("--inline-max-bytes", type=click.IntRange(min=0), help="For auto: size of the largest inline commit.")
@click.pass_context
def set_commit_mode(context: click.Context, scope: str, mode: str, inline_max_bytes: int | None) -> None:
    """Set MODE for SCOPE (catalog, catalog.schema or catalog.schema.table); repeat it to complete a switch that failed."""
    with open_client(context) as client:
        chosen = CommitPolicy(kind=CommitPolicyKind(mode), inline_max_bytes=inline_max_bytes)
        choose_commit_policy(client, scope=scope, policy=chosen)
    say(f"The commit mode of {scope} is {chosen}.")


@commit_mode.command("reset")
@click.argument("scope")
@click.pass_context
def reset_commit_mode(context: click.Context, scope: str) -> None:
    """Remove the mode of SCOPE: the wider scope, or the default, decides again."""
    with open_client(context) as client:
        choose_commit_policy(client, scope=scope, policy=None)
    say(f"There is no commit mode for {scope} now.")
