"""Commands of ``cm-delta`` that reconcile catalog and storage: ``recover``, ``relocate`` and ``backup``."""

from collections.abc import Sequence
from pathlib import Path

import click

from cm_delta_dagster.catalog.sql import IfMissing
from cm_delta_dagster.cli.client import open_client, open_planning_client
from cm_delta_dagster.cli.output import say
from cm_delta_dagster.client.warehouse import absolute_location
from cm_delta_dagster.operations.maintenance.sizes import size_text
from cm_delta_dagster.operations.recovery.display_text import counted
from cm_delta_dagster.operations.recovery.plan import KeptHistory, explain
from cm_delta_dagster.operations.recovery.recover import plan_recovery
from cm_delta_dagster.operations.recovery.recover import recover as apply_recovery
from cm_delta_dagster.operations.recovery.recover_warehouse import plan_warehouse_recovery, recover_warehouse
from cm_delta_dagster.operations.recovery.relocate import RelocationPlan, known_locations, plan_relocation
from cm_delta_dagster.operations.recovery.relocate import relocate as apply_relocation
from cm_delta_dagster.operations.recovery.warehouse_plan import explain_adoption

_MAX_LOCATIONS = 5


@click.command()
@click.argument("name", default="")
@click.option("--all", "every", is_flag=True, help="Every table of the catalog.")
@click.option("--warehouse", default=None, help="Adopt the tables of a lost catalog that lie in this warehouse.")
@click.option("--keep", type=click.Choice([kept.value for kept in KeptHistory]), help="Which of two histories to keep.")
@click.option("--take-staged", multiple=True, metavar="FILE", help="Also record this staged file; may be repeated.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="LOCATION=NAME",
    help="With --warehouse: the name of a table; may be repeated.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Carry the plan out; without it, only show the plan.")
@click.pass_context
def recover(
    context: click.Context,
    name: str,
    every: bool,
    warehouse: str | None,
    keep: str | None,
    take_staged: tuple[str, ...],
    names: tuple[str, ...],
    apply_it: bool,
) -> None:
    """Record commits that storage holds and the catalog does not know: of the table NAME, of --all, or of a --warehouse."""
    if sum((bool(name), every, warehouse is not None)) != 1:
        raise click.UsageError("Give one of: a table NAME, --all, or --warehouse DIR.")
    if warehouse is None:
        if names:
            raise click.UsageError("--name goes with --warehouse.")
        _recover_tables(context, name, KeptHistory(keep) if keep else None, take_staged, apply_it=apply_it)
        return
    if keep:
        raise click.UsageError("--keep is for tables that the catalog knows, and does not go with --warehouse.")
    _recover_warehouse(context, warehouse, dict(map(_location_and_name, names)), take_staged, apply_it=apply_it)


def _recover_tables(
    context: click.Context, name: str, keep: KeptHistory | None, take_staged: tuple[str, ...], *, apply_it: bool
) -> None:
    with open_client(context) as client:
        plan = plan_recovery(client, tables=[name] if name else None, keep=keep, take_staged=take_staged)
        for table in plan.tables:
            for line in explain(table):
                say(line)
        is_damaged = any(table.problem is not None for table in plan.tables)
        if not apply_it:
            advice = " --apply carries out the plan." if any(table.changes_anything for table in plan.tables) else ""
            say(f"{counted(plan.num_commits, 'commit')} would be recorded; nothing was changed.{advice}")
            context.exit(1 if is_damaged else 0)
        if plan.undecided:
            raise click.ClickException("Nothing was changed: choose with --keep which history to keep.")
        if is_damaged and len(plan.tables) == 1:
            raise click.ClickException("Nothing was changed.")  # The plan, which says why, was printed above.
        result = apply_recovery(client, plan)
    for done in result.tables:
        if done.set_aside is not None:
            say(f"{done.identifier}: commits that are not kept were set aside in {done.set_aside}.")
    say(f"{counted(result.num_commits, 'commit')} recorded in the catalog.")
    if is_damaged:
        context.exit(1)


def _recover_warehouse(
    context: click.Context, warehouse: str, names: dict[str, str], take_staged: tuple[str, ...], *, apply_it: bool
) -> None:
    _require_directory(warehouse)
    if apply_it:
        opened = open_client(context, warehouse, if_missing=IfMissing.CREATE)
    else:
        opened = open_planning_client(context, warehouse)
    with opened as client:
        plan = plan_warehouse_recovery(client, warehouse=warehouse, names=names, take_staged=take_staged)
        for line in explain_adoption(plan):
            say(line)
        if not apply_it:
            if plan.conflicts:
                say(
                    f"{len(plan.conflicts)} of {counted(len(plan.tables), 'table')} undecided; nothing was changed, and --apply "
                    "adopts no table until all are decided."
                )
                context.exit(1)
            advice = " --apply carries out the plan." if plan.tables else ""
            say(f"{counted(len(plan.tables), 'table')} would be adopted; nothing was changed.{advice}")
            return
        done = recover_warehouse(client, plan)
    say(f"{counted(len(done.tables), 'table')} adopted. Set maintenance rules and commit modes again.")


def _require_directory(warehouse: str) -> None:
    """Refuse a local warehouse that does not exist, before a catalog is created; an object store has no directories."""
    location = absolute_location(warehouse)
    if location.startswith("file://") and not Path(location.removeprefix("file://")).is_dir():
        raise click.ClickException(
            f"There is no directory {warehouse} ({location}). Nothing was changed. Check the spelling and whether the volume is "
            "mounted."
        )


def _location_and_name(text: str) -> tuple[str, str]:
    location, equals, name = text.rpartition("=")
    if not equals or not location:
        raise click.UsageError(f"{text!r} is not LOCATION=catalog.schema.table.")
    return location, name


@click.command()
@click.argument("scope", default="")
@click.option("--from", "moved_from", required=True, help="Former location of the warehouse.")
@click.option("--to", "moved_to", required=True, help="Its location now.")
@click.option("--apply", "apply_it", is_flag=True, help="Change the catalog; without it, only show the plan.")
@click.pass_context
def relocate(context: click.Context, scope: str, moved_from: str, moved_to: str, apply_it: bool) -> None:
    """Change the locations of tables after a warehouse moved: of all tables, or of SCOPE (catalog or catalog.schema)."""
    with open_client(context) as client:
        plan = plan_relocation(client, moved_from=moved_from, moved_to=moved_to, scope=scope)
        if not plan.moves:
            _refuse_empty(plan, known_locations(client, scope), scope)
        for move in plan.moves:
            say(f"{move.state:<8} {move.identifier}: {move.moved_from} -> {move.moved_to}")
            if move.detail:
                say(f"         {move.detail}")
            if move.is_still_there:
                say(f"         {move.moved_from} also holds a log: remove the copy that is no longer used.")
        if not apply_it:
            if plan.refused:
                say(
                    f"{len(plan.refused)} of {counted(len(plan.moves), 'table')} not found at the new location; nothing was "
                    "changed, and --apply relocates no table until all are found. Copy the files there, or name a SCOPE without "
                    "these tables."
                )
                context.exit(1)
            say(
                f"{counted(len(plan.moves), 'table')} would be relocated; nothing was changed. --apply carries out the plan."
            )
            return
        moves = apply_relocation(client, plan)
    say(f"{counted(len(moves), 'table')} relocated. Connect with warehouse={plan.moved_to!r} from now on.")


def _refuse_empty(plan: RelocationPlan, locations: Sequence[str], scope: str) -> None:
    """Refuse a relocation of no table, unless it is the repetition of one that was made."""
    if any(location.startswith(f"{plan.moved_to}/") for location in locations):
        return
    shown = ", ".join(locations[:_MAX_LOCATIONS])
    more = len(locations) - _MAX_LOCATIONS
    rest = f" and {more} more" if more > 0 else ""
    raise click.ClickException(
        f"No table{f' of {scope}' if scope else ''} lies below {plan.moved_from}; nothing was changed. The locations of the tables "
        f"are: {shown or 'none'}{rest}."
    )


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_context
def backup(context: click.Context, file: Path) -> None:
    """Copy the catalog's database, which may be in use, to the new FILE, and verify the copy."""
    with open_client(context) as client:
        size = client.recovery.back_up(file.absolute())
    say(f"Copied the catalog to {file} ({size_text(size)}). Now copy the storage: it must not be older than this file.")
