"""Writes and reads of rows."""

from functools import partial
from typing import Any

from tests.api_model import checks, steps
from tests.api_model.model import NotApplicableError, RefusedError, Version, effect_of
from tests.api_model.steps import OnTable
from tests.api_model.values import Value
from tests.api_model.world import FaultError, World


def write_rows(world: World, step: OnTable) -> str | None:
    model = world.table(step.table)
    handle = world.driver.table(step.table, step.client)
    try:
        effect = effect_of(step, model.latest)
    except RefusedError as error:
        return world.must_refuse(partial(stage, world, step, handle, model.latest), str(error))
    return world.change(step, effect, lambda: stage(world, step, handle, model.latest))


def stage(world: World, step: OnTable, handle: Any, version: Version) -> None:
    """Run a write on a table, or on a table of a transaction."""
    types = version.types

    def text(condition: Any) -> str | None:
        return None if condition is None else condition.sql(types)

    match step:
        case steps.Append():
            world.driver.append(handle, step.rows, schema_mode=step.schema_mode, parts=step.parts)
        case steps.Overwrite():
            world.driver.overwrite(
                handle, step.rows, where=text(step.where), dynamic=step.dynamic, replace_using=step.replace_using
            )
        case steps.Delete():
            world.driver.delete(handle, step.where.sql(types))
        case steps.Update():
            world.driver.update(handle, step.assignments, text(step.where), types)
        case steps.MergeKeys():
            world.driver.merge_keys(handle, step.rows, keys=step.keys, mode=step.mode, where=text(step.where))
        case steps.Merge():
            world.driver.merge(
                handle, step.rows, keys=step.keys, clauses=step.clauses, null_safe=step.null_safe,
                and_target=step.and_target, types=types,
            )  # fmt: skip


def read(world: World, step: steps.Read) -> str | None:
    model = world.table(step.table)
    number = model.number - step.back
    if number not in model.versions or number in model.uncertain:
        raise NotApplicableError("no such version")
    if not step.where.columns() <= set(model.versions[number].names):
        raise NotApplicableError("the columns are others")
    checks.condition(world, step, model, number)
    return None


def stream(world: World, step: steps.Stream) -> str | None:
    model = world.table(step.table)
    if any(column.numbered for column in model.latest.columns):
        raise NotApplicableError("identity values are not modelled")
    before = model.stream
    offset = None if before is None else before[0]
    read: list[tuple[list[dict[str, Value]], str]] = []
    error = world.error_of(lambda: read.append(world.driver.stream(step.table, offset, step.client)))
    between = [] if before is None else range(before[1] + 1, model.number + 1)
    versions = [model.versions[number] for number in between]
    if error is not None:
        model.stream = None
        is_lost = before is not None and set(between) & model.uncertain
        changed = {version.columns for version in versions} | {model.latest.columns}
        if is_lost or (before is not None and (len(changed) > 1 or changed != {before[2]})):
            return "ended"
        if before is not None and model.mapping_removals(before[1], model.number):
            return "ended"
        raise FaultError(f"{step}: {type(error).__name__}: {error}") from error
    checks.streamed(world, step, model, read[0][0], None if before is None else list(between))
    model.stream = (read[0][1], model.number, model.latest.columns)
    return None
