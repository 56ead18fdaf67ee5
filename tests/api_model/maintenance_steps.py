"""Older versions, files and the log."""

from dataclasses import replace
from functools import partial

from tests.api_model import steps
from tests.api_model.model import Effect, NotApplicableError, next_number
from tests.api_model.world import HOUR_MS, FaultError, World

_TABLE_RETENTION_HOURS = 7 * 24
_LOG_RETENTION_HOURS = 30 * 24


def restore(world: World, step: steps.Restore) -> str | None:
    model = world.table(step.table)
    number = model.number - step.back
    if number not in model.versions or number in model.uncertain or step.back == 0:
        raise NotApplicableError("no such version")
    target, latest = model.versions[number], model.latest
    rows = target.rows
    if not target.has_row_ids:  # Rows that had ids lose them.
        rows = tuple(replace(row, number=next_number()) if row.number in model.row_ids else row for row in rows)
    state = {
        "rows": rows,
        "properties": target.properties,
        "partition_by": target.partition_by,
        "cluster_by": target.cluster_by,
        "columns": target.columns,
    }
    lost = {row.number for row in latest.rows} - {row.number for row in rows}
    if world.rules.get(step.table) or (latest.has("delta.appendOnly") and lost):
        raise NotApplicableError("what a rule counts is not modelled")
    call = partial(world.driver.restore, step.table, number, step.client)
    before = model.number
    error = world.error_of(call)
    if error is not None:
        raise FaultError(f"{step} was refused: {type(error).__name__}: {error}") from error
    if world.driver.version(step.table) == before:
        if latest.content != target.content or latest.columns != target.columns:
            raise FaultError(f"{step} restored nothing")
        return "nothing to do"
    world.committed(step, model, Effect("RESTORE", state=state, exact=False))
    return None


def optimize(world: World, step: steps.Optimize) -> str | None:
    version = world.table(step.table).latest
    order = [
        column.name
        for column in version.columns
        if column.name not in version.partition_by and column.kind in ("bigint", "int", "string", "date")
    ][:2]
    how = step.how
    if (how == "zorder" and (version.cluster_by or not order)) or (how == "full" and not version.cluster_by):
        how = "compact"
    call = partial(world.driver.optimize, step.table, how, order, step.client)
    operation = "REORG" if how == "reorg" else "OPTIMIZE"
    return world.change(step, Effect(operation), call, most=2)


def vacuum(world: World, step: steps.Vacuum) -> str | None:
    model = world.table(step.table)
    cutoff = world.now - (_TABLE_RETENTION_HOURS if step.hours is None else step.hours) * HOUR_MS
    if any(
        write.model is model and pending.began_ms <= cutoff
        for pending in world.transactions
        for write in pending.writes
    ):
        raise NotApplicableError("it may delete files of an open transaction")
    world.driver.vacuum(step.table, step.hours, step.client)
    model.uncertain |= model.ended_by(cutoff)
    return None


def log_step(world: World, step: steps.LogStep) -> str | None:
    model = world.table(step.table)
    if step.what == "compact_log" and model.number == 0:
        raise NotApplicableError("one version")
    if step.what == "compact_log":
        world.error_of(lambda: world.driver.log_step(step.table, step.what, step.client))
        return None
    world.driver.log_step(step.table, step.what, step.client)
    if step.what == "clean_log":
        cutoff = world.now - _LOG_RETENTION_HOURS * HOUR_MS
        model.uncertain |= model.ended_by(cutoff)
        model.history_since_ms = max(model.history_since_ms, cutoff)
    return None


def pass_time(world: World, step: steps.PassTime) -> str | None:
    world.driver.clock.now += step.hours * HOUR_MS
    return None
