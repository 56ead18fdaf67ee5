"""``cm-delta``: look into a catalog and set its maintenance policy from a shell.

A top beside ``orchestration``: it calls the catalog and nothing calls it. It reads and writes no table data.
"""

import datetime
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from cm_delta_dagster.catalog.catalog import FeedEntry, MaintenanceKind, MaintenanceRule, TableIdentifier
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.errors import CmDeltaError

_PAGE = 1000
_KIND = click.Choice([kind.value for kind in MaintenanceKind], case_sensitive=False)


@contextmanager
def _catalog(context: click.Context) -> Iterator[SqlCatalog]:
    url = context.obj
    if not url:
        raise click.UsageError("No catalog given: pass --catalog URL or set CM_DELTA_CATALOG_URL.")
    try:
        with SqlCatalog(url) as catalog:
            yield catalog
    except CmDeltaError as error:
        raise click.ClickException(str(error)) from error


@click.group(name="cm-delta")
@click.option(
    "--catalog",
    "url",
    envvar="CM_DELTA_CATALOG_URL",
    help="Catalog database, e.g. sqlite:////data/catalog.db. Default: environment variable CM_DELTA_CATALOG_URL.",
)
@click.pass_context
def main(context: click.Context, url: str | None) -> None:
    """Catalog-managed Delta tables."""
    context.obj = url


@main.command()
@click.argument("scope", default="")
@click.pass_context
def tables(context: click.Context, scope: str) -> None:
    """List the tables of the catalog, or of SCOPE (catalog or catalog.schema)."""
    with _catalog(context) as catalog:
        for identifier in catalog.list_tables(scope):
            click.echo(str(identifier))


@main.command()
@click.argument("name")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Newest commits to show.")
@click.pass_context
def commits(context: click.Context, name: str, limit: int) -> None:
    """List the newest commits of the table NAME (catalog.schema.table), oldest first."""
    with _catalog(context) as catalog:
        identifier = TableIdentifier.parse(name)
        entry = catalog.load_table(identifier)
        newest = deque(
            (item for item in _feed_of(catalog, identifier) if item.table_id == entry.table_id), maxlen=limit
        )
        click.echo("VERSION  RATIFIED              STATE      DATA  OPERATION")
        for item in newest:
            state = "published" if item.version <= entry.ratified.published_version else "ratified"
            data = "yes" if item.summary.data_change else "no"
            click.echo(f"{item.version:>7}  {_time(item.ratified_ms)}  {state:<9}  {data:<4}  {item.summary.operation}")


@main.group()
def policy() -> None:
    """Show and set which maintenance is allowed. The rule of the narrowest scope decides."""


@policy.command()
@click.argument("name", default="")
@click.pass_context
def show(context: click.Context, name: str) -> None:
    """List every rule, or what applies to the table NAME (catalog.schema.table)."""
    with _catalog(context) as catalog:
        if name:
            identifier = TableIdentifier.parse(name)
            catalog.load_table(identifier)
            for kind in MaintenanceKind:
                decision = catalog.maintenance_decision(identifier, kind)
                click.echo(f"{_verdict(decision.allowed)}  {kind.value:<19}  {decision.decided_by}: {decision.reason}")
            return
        for rule in catalog.maintenance_rules():
            click.echo(f"{_verdict(rule.allowed)}  {rule.kind.value:<19}  {rule.scope}{_suffix(rule.reason)}")
        exempt = ", ".join(kind.value for kind in MaintenanceKind if kind.allowed_by_default)
        click.echo(f"Without a rule: {exempt} are allowed, everything else is denied.")


def _rule_command(function: Callable[..., None]) -> Callable[..., None]:
    for decorator in (
        click.pass_context,
        click.option("--reason", default="", help="Shown to those who ask."),
        click.argument("kind", type=_KIND),
        click.argument("scope"),
    ):
        function = decorator(function)
    return function


@policy.command()
@_rule_command
def allow(context: click.Context, scope: str, kind: str, reason: str) -> None:
    """Allow KIND for SCOPE (catalog, catalog.schema or catalog.schema.table)."""
    with _catalog(context) as catalog:
        catalog.set_maintenance_rule(
            MaintenanceRule(scope=scope, kind=MaintenanceKind(kind), allowed=True, reason=reason)
        )
    click.echo(f"Allowed {kind} for {scope}.")


@policy.command()
@_rule_command
def deny(context: click.Context, scope: str, kind: str, reason: str) -> None:
    """Deny KIND for SCOPE (catalog, catalog.schema or catalog.schema.table)."""
    with _catalog(context) as catalog:
        catalog.set_maintenance_rule(
            MaintenanceRule(scope=scope, kind=MaintenanceKind(kind), allowed=False, reason=reason)
        )
    click.echo(f"Denied {kind} for {scope}.")


@policy.command()
@click.argument("scope")
@click.argument("kind", type=_KIND)
@click.pass_context
def reset(context: click.Context, scope: str, kind: str) -> None:
    """Remove the rule for KIND at SCOPE: the wider scope, or the default, decides again."""
    with _catalog(context) as catalog:
        catalog.remove_maintenance_rule(scope, MaintenanceKind(kind))
    click.echo(f"No rule for {kind} at {scope} any more.")


def _feed_of(catalog: SqlCatalog, identifier: TableIdentifier) -> Iterator[FeedEntry]:
    after = 0
    while page := catalog.feed(after=after, limit=_PAGE, identifiers=(identifier,)):
        yield from page
        after = page[-1].position


def _time(epoch_ms: int) -> str:
    return datetime.datetime.fromtimestamp(epoch_ms / 1000, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _verdict(allowed: object) -> str:
    return "allowed" if allowed else "denied "


def _suffix(reason: str) -> str:
    return f": {reason}" if reason else ""


if __name__ == "__main__":
    main()
