"""Commands of ``cm-delta`` that reconcile catalog and storage: ``recover``, ``relocate`` and ``backup``."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from cm_delta_dagster.catalog.sql import IfMissing
from cm_delta_dagster.cli.catalog import is_served
from cm_delta_dagster.cli.client import open_client, open_planning_client
from cm_delta_dagster.cli.options import Pair
from cm_delta_dagster.cli.printer import output, say, show
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
    type=Pair("LOCATION=catalog.schema.table", is_last=True),
    metavar="LOCATION=NAME",
    help="With --warehouse: the name of a table; may be repeated.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Carry the plan out; without it, only show the plan.")
@output(
    "an object with the attributes of RecoveryPlan, or with --apply of RecoveryResult; with --warehouse of WarehousePlan and "
    "AdoptionResult"
)
def recover(
    name: str,
    every: bool,
    warehouse: str | None,
    keep: str | None,
    take_staged: tuple[str, ...],
    names: tuple[tuple[str, str], ...],
    apply_it: bool,
) -> None:
    """Record commits that storage holds and the catalog does not know: of the table NAME, of --all, or of a --warehouse."""
    if sum((bool(name), every, warehouse is not None)) != 1:
        raise click.UsageError("Give one of: a table NAME, --all, or --warehouse DIR.")
    if warehouse is None:
        if names:
            raise click.UsageError("--name goes with --warehouse.")
        _recover_tables(name, KeptHistory(keep) if keep else None, take_staged, apply_it=apply_it)
        return
    if keep:
        raise click.UsageError("--keep is for tables that the catalog knows, and does not go with --warehouse.")
    _recover_warehouse(warehouse, dict(names), take_staged, apply_it=apply_it)


def _recover_tables(name: str, keep: KeptHistory | None, take_staged: tuple[str, ...], *, apply_it: bool) -> None:
    with open_client() as client:
        plan = plan_recovery(client, tables=[name] if name else None, keep=keep, take_staged=take_staged)
        say(*(line for table in plan.tables for line in explain(table)))
        is_damaged = any(table.problem is not None for table in plan.tables)
        if not apply_it:
            advice = " --apply carries out the plan." if any(table.changes_anything for table in plan.tables) else ""
            advice += " --keep chooses a history." if plan.undecided else ""
            advice += " --take-staged records a staged file." if any(table.staged for table in plan.tables) else ""
            show(plan, f"{counted(plan.num_commits, 'commit')} would be recorded; nothing was changed.{advice}")
            click.get_current_context().exit(1 if is_damaged else 0)
        if plan.undecided:
            raise click.ClickException("Nothing was changed: choose with --keep which history to keep.")
        if is_damaged and len(plan.tables) == 1:
            raise click.ClickException(f"Nothing was changed. {plan.tables[0].problem}")
        result = apply_recovery(client, plan)
    aside = (
        f"{table.identifier}: commits that are not kept were set aside in {table.set_aside}."
        for table in result.tables
        if table.set_aside is not None
    )
    show(result, *aside, f"{counted(result.num_commits, 'commit')} recorded in the catalog.")
    if is_damaged:
        click.get_current_context().exit(1)


def _recover_warehouse(warehouse: str, names: dict[str, str], take_staged: tuple[str, ...], *, apply_it: bool) -> None:
    if is_served():
        raise click.UsageError(
            "A lost catalog is not recovered over HTTP: nothing was changed. Run this command on the machine of the server, with "
            "--catalog and the URL of the database that the server uses."
        )
    _require_directory(warehouse)
    if apply_it:
        opened = open_client(warehouse, if_missing=IfMissing.CREATE)
    else:
        opened = open_planning_client(warehouse)
    with opened as client:
        plan = plan_warehouse_recovery(client, warehouse=warehouse, names=names, take_staged=take_staged)
        say(*explain_adoption(plan))
        if not apply_it:
            advice = " --apply carries out the plan." if plan.tables else ""
            done = f"{counted(len(plan.tables), 'table')} would be adopted; nothing was changed.{advice}"
            if plan.conflicts:
                done = (
                    f"{len(plan.conflicts)} of {counted(len(plan.tables), 'table')} undecided; nothing was changed, and --apply "
                    "adopts no table until all are decided: --name LOCATION=catalog.schema.table gives a name."
                )
            show(plan, done)
            click.get_current_context().exit(1 if plan.conflicts else 0)
        result = recover_warehouse(client, plan)
    show(result, f"{counted(len(result.tables), 'table')} adopted. Set maintenance rules and commit modes again.")


def _require_directory(warehouse: str) -> None:
    """Refuse a local warehouse that does not exist, before a catalog is created; an object store has no directories."""
    location = absolute_location(warehouse)
    if location.startswith("file://") and not Path(location.removeprefix("file://")).is_dir():
        raise click.ClickException(
            f"There is no directory {warehouse} ({location}). Nothing was changed. Check the spelling and whether the volume is "
            "mounted."
        )


@click.command()
@click.argument("scope", default="")
@click.option("--from", "moved_from", required=True, help="Former location of the warehouse.")
@click.option("--to", "moved_to", required=True, help="Its location now.")
@click.option("--apply", "apply_it", is_flag=True, help="Change the catalog; without it, only show the plan.")
@output("an object with the attributes of RelocationPlan")
def relocate(scope: str, moved_from: str, moved_to: str, apply_it: bool) -> None:
    """Change the locations of tables after a warehouse moved: of all tables, or of SCOPE (catalog or catalog.schema)."""
    with open_client() as client:
        plan = plan_relocation(client, moved_from=moved_from, moved_to=moved_to, scope=scope)
        if not plan.moves:
            _refuse_empty(plan, known_locations(client, scope), scope)
        say(*_explained(plan))
        if not apply_it:
            done = f"{counted(len(plan.moves), 'table')} would be relocated; nothing was changed. --apply carries out the plan."
            if plan.refused:
                done = (
                    f"{len(plan.refused)} of {counted(len(plan.moves), 'table')} not found at the new location; nothing was "
                    "changed, and --apply relocates no table until all are found. Copy the files there, or name a SCOPE without "
                    "these tables."
                )
            show(plan, done)
            click.get_current_context().exit(1 if plan.refused else 0)
        moves = apply_relocation(client, plan)
    done = f"{counted(len(moves), 'table')} relocated. Connect with warehouse={plan.moved_to!r} from now on."
    show(replace(plan, moves=moves), done)


def _explained(plan: RelocationPlan) -> Iterator[str]:
    for move in plan.moves:
        yield f"{move.state:<8} {move.identifier}: {move.moved_from} -> {move.moved_to}"
        if move.detail:
            yield f"         {move.detail}"
        if move.is_still_there:
            yield f"         {move.moved_from} also holds a log: remove the copy that is no longer used."


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
@output("an object: file, num_bytes")
def backup(file: Path) -> None:
    """Copy the catalog's database, which may be in use, to the new FILE, and verify the copy."""
    with open_client() as client:
        size = client.recovery.back_up(file.absolute())
    done = (
        f"Copied the catalog to {file} ({size_text(size)}). Now copy the storage: it must not be older than this file."
    )
    show({"file": file.absolute(), "num_bytes": size}, done)
