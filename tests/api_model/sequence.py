"""Runs the steps of a sequence."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.api_model import checks, column_steps, maintenance_steps, pending_steps, row_steps, steps, table_steps
from tests.api_model.driver import CmDeltaError, Driver
from tests.api_model.model import NotApplicableError
from tests.api_model.steps import Step
from tests.api_model.world import FaultError, World

_HANDLERS: Mapping[type[Step], Callable[[World, Any], str | None]] = {
    steps.Append: row_steps.write_rows,
    steps.Overwrite: row_steps.write_rows,
    steps.Delete: row_steps.write_rows,
    steps.Update: row_steps.write_rows,
    steps.MergeKeys: row_steps.write_rows,
    steps.Merge: row_steps.write_rows,
    steps.Read: row_steps.read,
    steps.Stream: row_steps.stream,
    steps.Begin: pending_steps.begin,
    steps.Commit: pending_steps.commit,
    steps.Abandon: pending_steps.abandon,
    steps.Rule: pending_steps.rule,
    steps.RemoveRules: pending_steps.remove_rules,
    steps.Decide: pending_steps.decide,
    steps.AddColumn: column_steps.add_column,
    steps.RenameColumn: column_steps.rename_column,
    steps.DropColumn: column_steps.drop_column,
    steps.WidenColumn: column_steps.widen_column,
    steps.SetProperty: column_steps.set_property,
    steps.Restore: maintenance_steps.restore,
    steps.Optimize: maintenance_steps.optimize,
    steps.Vacuum: maintenance_steps.vacuum,
    steps.LogStep: maintenance_steps.log_step,
    steps.PassTime: maintenance_steps.pass_time,
    steps.Create: table_steps.create,
    steps.Rename: table_steps.rename,
    steps.Drop: table_steps.drop,
    steps.Undrop: table_steps.undrop,
    steps.Clone: table_steps.clone,
    steps.Release: table_steps.release,
    steps.Adopt: table_steps.adopt,
    steps.CreateByPath: table_steps.create_by_path,
}


def run_step(world: World, step: Step) -> None:
    """Run one step and compare the tables that it concerns. Raises FaultError."""
    world.done.append(step)
    world.driver.clock.now += 1000
    try:
        outcome = _HANDLERS[type(step)](world, step)
    except NotApplicableError:
        outcome = "skipped"
        world.done.pop()
    except CmDeltaError as error:
        raise FaultError(f"{step} was refused: {type(error).__name__}: {error}") from error
    name = f"{type(step).__name__} {outcome or 'done'}"
    world.outcomes[name] = world.outcomes.get(name, 0) + 1
    world.driver.finish_files()
    if outcome != "skipped":
        checks.after_step(world)


def finish(world: World) -> None:
    """Compare everything that can be read."""
    while world.transactions:
        pending_steps.abandon(world, steps.Abandon())
    world.driver.finish_files()
    checks.at_end(world)


def run_sequence(sequence: Sequence[Step], home: Path, spark: SparkSession) -> World:
    """Run steps on a new catalog in an empty directory. Raises FaultError."""
    world = World(Driver(home, spark))
    try:
        for step in sequence:
            run_step(world, step)
        finish(world)
    finally:
        world.driver.close()
    return world
