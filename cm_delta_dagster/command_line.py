"""``cm-delta``: look into a catalog and set its maintenance policy from a shell.

A top beside ``orchestration``: it calls the catalog and nothing calls it. It reads and writes no table data, and makes no
catalog where there is none: a mistyped URL is an error.
"""

import datetime
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from cm_delta_dagster.catalog.catalog import FeedEntry, MaintenanceKind, MaintenanceRule, TableIdentifier
from cm_delta_dagster.catalog.sql import IfMissing, SqlCatalog
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.version import __version__

_PAGE = 1000


class _Kind(click.ParamType):  # type: ignore[type-arg]
    """A kind of maintenance, typed in any case and shown as the policy shows it."""

    name = "kind"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> MaintenanceKind:
        try:
            return MaintenanceKind(str(value).upper())
        except ValueError:
            self.fail(f"{str(value)!r} is no kind of maintenance; there are {_KINDS}.", param, ctx)


_KINDS = ", ".join(kind.value for kind in MaintenanceKind)


@contextmanager
def _catalog(context: click.Context) -> Iterator[SqlCatalog]:
    url = context.obj
    if not url:
        raise click.UsageError("No catalog given: pass --catalog URL or set CM_DELTA_CATALOG_URL.")
    try:
        with SqlCatalog(url, if_missing=IfMissing.REFUSE) as catalog:
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
@click.version_option(__version__, prog_name="cm-delta")
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
        found = catalog.list_tables(scope)
        if scope and not found:
            raise click.ClickException(_nothing_in(catalog, scope))
        for identifier in found:
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
        click.argument("kind", type=_Kind()),
        click.argument("scope"),
    ):
        function = decorator(function)
    return function


@policy.command(epilog=f"KIND is one of {_KINDS}, in upper or lower case.")
@_rule_command
def allow(context: click.Context, scope: str, kind: MaintenanceKind, reason: str) -> None:
    """Allow KIND for SCOPE (catalog, catalog.schema or catalog.schema.table)."""
    _set_rule(context, MaintenanceRule(scope=scope, kind=kind, allowed=True, reason=reason))
    click.echo(f"Allowed {kind} for {scope}.")


@policy.command(epilog=f"KIND is one of {_KINDS}, in upper or lower case.")
@_rule_command
def deny(context: click.Context, scope: str, kind: MaintenanceKind, reason: str) -> None:
    """Deny KIND for SCOPE (catalog, catalog.schema or catalog.schema.table)."""
    _set_rule(context, MaintenanceRule(scope=scope, kind=kind, allowed=False, reason=reason))
    click.echo(f"Denied {kind} for {scope}.")


@policy.command(epilog=f"KIND is one of {_KINDS}, in upper or lower case.")
@click.argument("scope")
@click.argument("kind", type=_Kind())
@click.pass_context
def reset(context: click.Context, scope: str, kind: MaintenanceKind) -> None:
    """Remove the rule for KIND at SCOPE: the wider scope, or the default, decides again."""
    with _catalog(context) as catalog:
        if not any((rule.scope, rule.kind) == (scope, kind) for rule in catalog.maintenance_rules()):
            _warn(f"there was no rule for {kind} at {scope}.")
        catalog.remove_maintenance_rule(scope, kind)
    click.echo(f"No rule for {kind} at {scope} any more.")


def _set_rule(context: click.Context, rule: MaintenanceRule) -> None:
    """A rule may come before the tables that it is for, so that a scope without one is only warned about."""
    with _catalog(context) as catalog:
        catalog.set_maintenance_rule(rule)
        if not _tables_in(catalog, rule.scope):
            _warn(f"{_nothing_in(catalog, rule.scope)} The rule was set all the same and holds for tables to come.")


def _tables_in(catalog: SqlCatalog, scope: str) -> tuple[TableIdentifier, ...]:
    parts = scope.split(".")
    return tuple(found for found in catalog.list_tables(".".join(parts[:2])) if str(found) == scope or len(parts) < 3)


def _nothing_in(catalog: SqlCatalog, scope: str) -> str:
    known = sorted({f"{found.catalog}.{found.schema}" for found in catalog.list_tables()})
    shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"The catalog has no table in {scope!r}; names are case-sensitive. Its schemas are: {shown or 'none'}."


def _warn(message: str) -> None:
    click.echo(f"Warning: {message}", err=True)


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
