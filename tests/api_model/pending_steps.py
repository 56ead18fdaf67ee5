"""Writers that have not seen the latest version: transactions, and commits that wait for an approval."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

from tests.api_model import steps
from tests.api_model.driver import CmDeltaError, CommitConflictError
from tests.api_model.model import NotApplicableError, RefusedError, agrees, effect_of
from tests.api_model.row_steps import stage
from tests.api_model.world import HOUR_MS, FaultError, Pending, World, Write

_APPROVAL_HOURS = 7 * 24


def begin(world: World, step: steps.Begin) -> str | None:
    models = [world.table(write.table) for write in step.writes]
    if len({write.table for write in step.writes}) < len(step.writes):
        raise NotApplicableError("one write for each table")
    pending = Pending(world.driver.begin(step.client), [], world.now, step.client)
    for write, model in zip(step.writes, models, strict=True):
        version = model.latest
        handle = world.driver.in_transaction(pending.handle, write.table)
        try:
            effect = effect_of(write, version)
        except (RefusedError, NotApplicableError) as error:
            if isinstance(error, RefusedError):
                world.must_refuse(partial(stage, world, write, handle, version), str(error))
            world.driver.abandon(pending.handle)
            return "refused"
        stage(world, write, handle, version)
        pending.writes.append(Write(write, model, model.number, effect))
    world.transactions.append(pending)
    return None


def commit(world: World, step: steps.Commit) -> str | None:
    if not world.transactions:
        raise NotApplicableError("no open transaction")
    pending = world.transactions.pop(0)
    return end(world, pending, lambda: world.driver.commit(pending.handle))


def end(world: World, pending: Pending, call: Callable[[], object]) -> str:
    """Commit writes that waited: each has its effect on the latest version, or none has one."""
    names = {id(model): name for name, model in world.tables.items()}
    homeless = [write for write in pending.writes if id(write.model) not in names]
    error = world.error_of(call)
    if error is not None:
        check_refusal(world, pending, error, homeless)
        return "conflict" if isinstance(error, CommitConflictError) else "refused"
    without_effect = [write for write in homeless if write.effect.is_empty and write.effect.must_commit is not True]
    if len(without_effect) < len(homeless):
        raise FaultError(f"committed to a table that is gone: {homeless[0].step}")
    for write in pending.writes:
        if id(write.model) not in names:
            continue
        problem = difference_of_rebase(write)
        if problem is not None:
            raise FaultError(f"{write.step} was computed at version {write.base} and committed, although {problem}")
        moved = replace(write.step, table=names[id(write.model)])
        world.committed(moved, write.model, write.effect)
    return "rebased" if any(write.model.number > write.base + 1 for write in pending.writes) else "done"


def check_refusal(world: World, pending: Pending, error: CmDeltaError, homeless: list[Write]) -> None:
    """A refusal needs a reason: another commit, a rule, or a table that is gone."""
    moved = [write for write in pending.writes if write.model.number > write.base]
    names = {id(model): name for name, model in world.tables.items()}
    by_rule = any(
        world.stopped_by_rule(names.get(id(write.model), ""), write.effect, write.model.latest)
        for write in pending.writes
    )
    if homeless or by_rule:
        return
    if not moved:
        raise FaultError(f"refused without a reason: {type(error).__name__}: {error}") from error
    appended = all(write.effect.blind for write in pending.writes) and all(
        write.model.versions[number].blind
        for write in moved
        for number in range(write.base + 1, write.model.number + 1)
    )
    if appended and not any(map(numbers_rows_again, moved)):
        raise FaultError(f"appends conflict with appends: {error}") from error


def numbers_rows_again(write: Write) -> bool:
    """Whether the write numbers rows of an identity column, as a commit since its base did: both set the high-water mark."""
    versions = [write.model.versions[number] for number in range(write.base, write.model.number + 1)]
    has_new_rows = any(len(after.rows) > len(before.rows) for before, after in pairwise(versions))
    return bool(write.effect.inserted) and has_new_rows and any(column.numbered for column in versions[0].columns)


def abandon(world: World, step: steps.Abandon) -> str | None:
    if not world.transactions:
        raise NotApplicableError("no open transaction")
    world.driver.abandon(world.transactions.pop(0).handle)
    return None


def rule(world: World, step: steps.Rule) -> str | None:
    world.table(step.table)
    world.driver.add_rule(step.table, step.kind, step.approval, step.client)
    world.rules.setdefault(step.table, {})[step.kind] = step.approval
    return None


def remove_rules(world: World, step: steps.RemoveRules) -> str | None:
    found = world.rules.pop(step.table, {})
    if not found:
        raise NotApplicableError("no rules")
    for kind in found:
        world.driver.remove_rule(step.table, kind, step.client)
    return None


def decide(world: World, step: steps.Decide) -> str | None:
    if not world.waiting:
        raise NotApplicableError("nothing waits")
    pending = world.waiting.pop(0)
    expired = world.now - pending.began_ms >= _APPROVAL_HOURS * HOUR_MS
    if not step.approve:
        error = world.error_of(lambda: world.driver.reject(pending.handle, 0))
        if error is not None and not expired:
            raise FaultError(f"not rejected: {error}") from error
        return "rejected"
    return decided(world, pending, expired)


def decided(world: World, pending: Pending, expired: bool) -> str:
    write = pending.writes[0]
    model = write.model
    if expired:
        return world.must_refuse(partial(world.driver.approve, pending.handle, 0), "the request has expired")
    is_current = any(model is table for table in world.tables.values())
    before = model.number
    error = world.error_of(lambda: world.driver.approve(pending.handle, 0))
    if error is not None:
        if before == write.base and is_current and not rules_changed(world, pending):
            raise FaultError(f"not approved: {type(error).__name__}: {error}") from error
        return "conflict"
    problem = difference_of_rebase(write)
    if problem is not None:
        raise FaultError(f"{write.step} waited since version {write.base} and was approved, although {problem}")
    name = next(name for name, table in world.tables.items() if table is model)
    return world.committed(replace(write.step, table=name), model, write.effect)


def rules_changed(world: World, pending: Pending) -> bool:
    """Whether a rule may stop the commit now that it was not made to wait for."""
    write = pending.writes[0]
    name = next((name for name, table in world.tables.items() if table is write.model), "")
    return name != write.step.table or world.stopped_by_rule(name, write.effect, write.model.latest) != "approval"


def difference_of_rebase(write: Write) -> str | None:
    """Why the effect is not that of the call at the latest version, or before the appends that were committed meanwhile."""
    model, base = write.model, write.base
    if model.number == base or write.effect.is_empty:  # A call that changes nothing is before all other commits.
        return None
    latest = model.latest
    seen = {row.number: row.key() for row in model.versions[base].rows}
    now = {row.number: row.key() for row in latest.rows}
    for number in write.effect.touched():
        if now.get(number) != seen[number]:
            return f"row {dict(seen[number])} was changed meanwhile"
    if latest.columns != model.versions[base].columns:
        return "the columns were changed meanwhile"
    blind = [number for number in range(base + 1, model.number + 1) if model.versions[number].blind]
    appended = {row.number for number in blind for row in model.versions[number].rows if row.changed_at == number}
    earlier = replace(latest, rows=tuple(row for row in latest.rows if row.number not in appended))
    for version in (latest, earlier):
        try:
            if agrees(write.effect, effect_of(write.step, version), version):
                return None
        except (RefusedError, NotApplicableError):
            continue
    return "the result is not that of any order of the commits"
