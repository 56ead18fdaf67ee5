"""``cm-delta``: list tables and commits, set policies, and check, rename, drop and purge tables from a shell.

The commands call operations and the catalog. Only ``head`` and ``sql`` read rows; only ``sql`` and ``optimize`` write rows. Only
``recover --warehouse --apply`` creates a catalog; for the other commands, a URL without a catalog is an error.
"""

import datetime
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, repeat
from typing import Any

import click

from cm_delta_dagster.catalog.commit_feed import FeedEntry
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.access_commands import ACCESS_COMMANDS
from cm_delta_dagster.cli.alter_commands import alter
from cm_delta_dagster.cli.client import CommandOptions, open_catalog, open_client, parse_storage_options, parse_tags
from cm_delta_dagster.cli.clone_command import clone
from cm_delta_dagster.cli.days import DAYS, days_in_ms, days_of
from cm_delta_dagster.cli.event_commands import EVENT_COMMANDS
from cm_delta_dagster.cli.hints import HintingGroup
from cm_delta_dagster.cli.onboarding_commands import ONBOARDING_COMMANDS
from cm_delta_dagster.cli.optimize_command import optimize
from cm_delta_dagster.cli.policy_commands import nothing_in, policy
from cm_delta_dagster.cli.read_commands import READ_COMMANDS
from cm_delta_dagster.cli.recovery_commands import RECOVERY_COMMANDS
from cm_delta_dagster.cli.restore_command import restore
from cm_delta_dagster.cli.rule_commands import RULE_COMMANDS
from cm_delta_dagster.cli.spark_commands import spark_jars
from cm_delta_dagster.client.commits.context import CommitContext
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.operations.doctor import Depth, RepairPlan
from cm_delta_dagster.operations.doctor import doctor as check_table
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.orphan_files import find_orphan_files, is_empty
from cm_delta_dagster.operations.tables.purge import DROPPED_RETENTION_MS, plan_purge
from cm_delta_dagster.operations.tables.purge import purge as apply_purge
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy
from cm_delta_dagster.operations.tables.undrop import undrop_table
from cm_delta_dagster.version import __version__

_PAGE = 1000


@click.group(name="cm-delta", cls=HintingGroup)
@click.option(
    "--catalog",
    "url",
    envvar="CM_DELTA_CATALOG_URL",
    help="Catalog database, e.g. sqlite:////data/catalog.db. Default: environment variable CM_DELTA_CATALOG_URL.",
)
@click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the object store, or PREFIX={JSON} for the locations below a prefix; may be repeated. Other users of the "
    "machine can see arguments: put secrets as JSON into the environment variable CM_DELTA_STORAGE_OPTIONS.",
)
@click.option(
    "--principal",
    envvar="CM_DELTA_PRINCIPAL",
    help="Who runs the command: the name of a user or a pipeline. Default: environment variable CM_DELTA_PRINCIPAL. On PostgreSQL "
    "it is the role that logs in.",
)
@click.option(
    "--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Tag of the commits of the command; may be repeated."
)
@click.option("--user-metadata", help="User metadata of the commits of the command.")
@click.version_option(__version__, prog_name="cm-delta")
@click.pass_context
def main(context: click.Context, /, **given: Any) -> None:
    """Catalog-managed Delta tables."""
    options = parse_storage_options(given["storage_options"], os.environ.get("CM_DELTA_STORAGE_OPTIONS"))
    recorded = CommitContext(tags=parse_tags(given["tags"]), user_metadata=given["user_metadata"])
    context.obj = CommandOptions(
        url=given["url"], storage_options=options, principal=given["principal"], context=recorded
    )


@main.command()
@click.argument("scope", default="")
@click.pass_context
def tables(context: click.Context, scope: str) -> None:
    """List the tables of the catalog, or of SCOPE (catalog or catalog.schema)."""
    with open_catalog(context) as catalog:
        found = catalog.list_tables(scope)
        if scope and not found:
            raise click.ClickException(nothing_in(catalog, scope))
        for identifier in found:
            click.echo(str(identifier))


@main.command()
@click.argument("name")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many to show.")
@click.pass_context
def commits(context: click.Context, name: str, limit: int) -> None:
    """List the newest commits of the table NAME (catalog.schema.table), newest first."""
    with open_catalog(context) as catalog:
        identifier = TableIdentifier.parse(name)
        entry = catalog.load_table(identifier)
        newest = deque(
            (item for item in _feed_of(catalog, identifier) if item.table_id == entry.table_id), maxlen=limit
        )
        click.echo("VERSION  RATIFIED              STATE      DATA  OPERATION")
        for item in reversed(newest):
            state = "published" if item.version <= entry.ratified.published_version else "ratified"
            data = "yes" if item.summary.data_change else "no"
            click.echo(f"{item.version:>7}  {_time(item.ratified_ms)}  {state:<9}  {data:<4}  {item.summary.operation}")


@main.command()
@click.argument("name")
@click.option("--repair", is_flag=True, help="Show the plan of repairs and carry it out; only provably safe repairs.")
@click.option("--deep", is_flag=True, help="Also read the footers and deletion vectors of all data files.")
@click.pass_context
def doctor(context: click.Context, name: str, repair: bool, deep: bool) -> None:
    """Compare catalog and storage of the table NAME; the exit code is 1 if a finding is an error.

    Without --repair nothing is changed. Repairs copy the files that they replace to _delta_log/_set_aside.
    """
    with open_client(context) as client, _progress() as progress:
        report = check_table(
            client.table(name),
            repair=repair,
            depth=Depth.FOOTERS if deep else Depth.LISTING,
            progress=progress,
            on_plan=show_plan,
        )
    click.echo(
        f"{report.identifier}: version {report.version}, published to {report.published_version}; compared "
        f"{counted(report.num_commits, 'commit')} and looked for {counted(report.num_files, 'file')} at {report.location}."
    )
    if deep:
        click.echo(
            f"Read {counted(report.num_files_read, 'data file')}; {report.num_files_without_row_count} without a row count "
            "in the log."
        )
    for finding in report.repaired:
        click.echo(f"repaired {finding.problem}: {finding.where}")
    for failure in report.failed:
        click.echo(f"not repaired: {failure}")
    for finding in report.findings:
        hint = " [repaired by --repair]" if finding in report.repairable and not repair else ""
        click.echo(f"{finding.severity:<8} {finding.problem}: {finding.where}: {finding.message}{hint}")
    if not repair and report.plan.steps:
        show_plan(report.plan)
    if not report.healthy:
        context.exit(1)
    click.echo("Healthy.")


def show_plan(plan: RepairPlan) -> None:
    """Print a plan of repairs."""
    if plan.steps:
        click.echo(f"Plan of repairs of {plan.identifier} at version {plan.version}:")
    else:
        click.echo("No finding can be repaired." if plan.untouched else "Nothing to repair.")
    for number, step in enumerate(plan.steps, 1):
        click.echo(f"{number:>3}. {step.repair}: {step.description}")
        for location in step.sets_aside:
            click.echo(f"       copied to _set_aside first: {location}")
    if plan.steps:
        for finding in plan.untouched:
            click.echo(f"     no repair: {finding.problem}: {finding.where}: {finding.message}")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that shows a progress bar on standard error."""
    with ExitStack() as stack:
        bars: list[Any] = []

        def show(done: int, total: int) -> None:
            if not bars:
                bar = click.progressbar(length=total, label="Reading data files", file=sys.stderr)
                bars.append(stack.enter_context(bar))
            bars[0].update(done - bars[0].pos)

        yield show


@main.command()
@click.argument("name")
@click.pass_context
def drop(context: click.Context, name: str) -> None:
    """Free the name of the table NAME; its files stay until it is purged."""
    with open_client(context) as client:
        drop_table(client, identifier=name)
    click.echo(f"Dropped {name}. `cm-delta undrop {name}` brings it back.")


@main.command()
@click.argument("name")
@click.option("--id", "table_id", default=None, help="Table id, if several tables of that name were dropped.")
@click.pass_context
def undrop(context: click.Context, name: str, table_id: str | None) -> None:
    """Bring back the dropped table NAME."""
    with open_client(context) as client:
        table = undrop_table(client, identifier=name, table_id=table_id)
    click.echo(f"{table.identifier} is restored (table id {table.table_id}).")


@main.command()
@click.argument("name")
@click.argument("to")
@click.pass_context
def rename(context: click.Context, name: str, to: str) -> None:
    """Rename the table NAME to TO; of the rules for NAME only denials move along."""
    with open_client(context) as client:
        rename_table(client, identifier=name, to=to)
    click.echo(f"{name} is renamed to {to}.")


@main.command()
@click.argument("scope", default="")
@click.option("--warehouse", help="With --apply: warehouse of the catalog; files outside of it are never deleted.")
@click.option(
    "--days",
    type=DAYS,
    default=days_of(DROPPED_RETENTION_MS),
    show_default=True,
    help="Keep tables dropped less than that many days ago. Unfinished creations count as abandoned after 7 days.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Delete; without it, only show what would be deleted.")
@click.pass_context
def purge(context: click.Context, scope: str, warehouse: str | None, days: float, apply_it: bool) -> None:
    """Delete the files of dropped tables and abandoned creations permanently, after a retention."""
    if apply_it and warehouse is None:
        raise click.UsageError("--apply needs --warehouse: files outside of the warehouse are never deleted.")
    with open_client(context, warehouse) as client:
        plan = plan_purge(client, scope=scope, retention_ms=days_in_ms(days))
        verdicts = [*zip(plan.candidates, repeat("delete")), *zip(plan.denied, repeat("denied"))]
        for found, verdict in verdicts:
            click.echo(
                f"{verdict}  {found.table.identifier}  {found.table.state} {_time(found.table.since_ms)}  "
                f"{counted(found.num_files, 'file')}, {size_text(found.num_bytes)}  {found.table.location}"
            )
        if not apply_it:
            advice = " --apply --warehouse WAREHOUSE purges." if plan.candidates else ""
            click.echo(f"{counted(len(plan.candidates), 'table')} would be purged; nothing was deleted.{advice}")
            return
        result = apply_purge(client, plan)
    click.echo(
        f"Purged {counted(len(result.purged), 'table')}: {counted(result.num_files, 'file')}, {size_text(result.num_bytes)}."
    )


@main.command("orphan-files")
@click.option("--warehouse", required=True, help="Warehouse to list.")
@click.pass_context
def orphan_files(context: click.Context, warehouse: str) -> None:
    """List files of the warehouse that belong to no table of the catalog; nothing is deleted."""
    with open_client(context, warehouse) as client:
        found = find_orphan_files(client, warehouse=warehouse)
        if not found and is_empty(client, warehouse=warehouse):
            raise click.ClickException(
                f"There is no object at {absolute_location(warehouse)}. Check the spelling, and the scheme of an object store."
            )
    for orphan in found:
        click.echo(
            f"{orphan.location}  {counted(orphan.num_files, 'file')}, {size_text(orphan.num_bytes)}  "
            f"last written {_time(orphan.last_written_ms)}"
        )
    click.echo(f"{counted(len(found), 'location')} without a table in this catalog.")


_SINGLE_COMMANDS = (alter, clone, optimize, policy, restore, spark_jars)
_GROUPS = (
    EVENT_COMMANDS,
    READ_COMMANDS,
    RECOVERY_COMMANDS,
    ONBOARDING_COMMANDS,
    ACCESS_COMMANDS,
    RULE_COMMANDS,
    _SINGLE_COMMANDS,
)
for _command in chain.from_iterable(_GROUPS):
    main.add_command(_command)


@main.group("commit-mode")
def commit_mode() -> None:
    """Show and set the commit mode. The mode of the narrowest scope decides."""


@commit_mode.command("show")
@click.argument("name", default="")
@click.pass_context
def show_commit_mode(context: click.Context, name: str) -> None:
    """List the mode of every scope that has one, or the mode of the table NAME (catalog.schema.table)."""
    with open_catalog(context) as catalog:
        if name:
            click.echo(str(catalog.load_table(TableIdentifier.parse(name)).ratified.commit_policy))
            return
        for rule in catalog.commit_policies():
            click.echo(f"{rule.scope}: {rule.policy}")
        click.echo("Without a mode commits are staged.")


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
    click.echo(f"The commit mode of {scope} is {chosen}.")


@commit_mode.command("reset")
@click.argument("scope")
@click.pass_context
def reset_commit_mode(context: click.Context, scope: str) -> None:
    """Remove the mode of SCOPE: the wider scope, or the default, decides again."""
    with open_client(context) as client:
        choose_commit_policy(client, scope=scope, policy=None)
    click.echo(f"There is no commit mode for {scope} now.")


def _feed_of(catalog: SqlCatalog, identifier: TableIdentifier) -> Iterator[FeedEntry]:
    after = 0
    while page := catalog.feed(after=after, limit=_PAGE, identifiers=(identifier,)):
        yield from page
        after = page[-1].position


def _time(epoch_ms: int) -> str:
    return datetime.datetime.fromtimestamp(epoch_ms / 1000, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    main()
