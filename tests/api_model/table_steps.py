"""Names, clones, and tables that leave the catalog and come back."""

from dataclasses import replace
from functools import partial

from tests.api_model import checks, steps
from tests.api_model.model import Effect, NotApplicableError, TableModel, Version, applied, effect_of
from tests.api_model.world import FaultError, World


def create(world: World, step: steps.Create) -> str | None:
    version = Version(
        columns=step.columns,
        partition_by=step.partition_by,
        cluster_by=step.cluster_by,
        properties=dict(step.properties),
        rows=(),
        operation="CREATE TABLE",
        committed_ms=world.now,
    )

    def call() -> None:
        world.driver.create(
            step.table, step.columns, partition_by=step.partition_by, cluster_by=step.cluster_by,
            properties=dict(step.properties), mode=step.mode, client=step.client,
        )  # fmt: skip

    if step.table in world.tables:
        if step.mode != "create":
            raise NotApplicableError("replacing is not modelled")
        return world.must_refuse(call, "the name is taken")
    call()
    world.tables[step.table] = TableModel({0: version})
    return None


def rename(world: World, step: steps.Rename) -> str | None:
    model = world.table(step.table)
    call = partial(world.driver.rename, step.table, step.to, step.client)
    if step.to in world.tables:
        return world.must_refuse(call, "the name is taken")
    call()
    world.tables[step.to] = model
    del world.tables[step.table]
    if step.table in world.rules:
        world.rules[step.to] = {**world.rules[step.table], **world.rules.get(step.to, {})}
    return None


def drop(world: World, step: steps.Drop) -> str | None:
    model = world.table(step.table)
    table_id = world.driver.table_id(step.table)
    world.driver.drop(step.table, step.client)
    del world.tables[step.table]
    world.dropped[step.table] = (model, table_id)
    return None


def undrop(world: World, step: steps.Undrop) -> str | None:
    if step.table not in world.dropped:
        raise NotApplicableError("nothing was dropped")
    model, table_id = world.dropped[step.table]
    call = partial(world.driver.undrop, step.table, table_id, step.client)
    if step.table in world.tables:
        return world.must_refuse(call, "the name is taken")
    call()
    del world.dropped[step.table]
    world.tables[step.table] = model
    return None


def clone(world: World, step: steps.Clone) -> str | None:
    model = world.table(step.table)
    number = model.number - step.back
    if number not in model.versions or number in model.uncertain:
        raise NotApplicableError("no such version")
    if world.rules.get(step.to):
        raise NotApplicableError("a rule holds for the clone")

    def call() -> None:
        world.driver.clone(step.table, step.to, mode=step.mode, version=number, client=step.client)

    if step.to in world.tables:
        return world.must_refuse(call, "the name is taken")
    call()
    copied = replace(model.versions[number], operation="CLONE", committed_ms=world.now, changes=None, blind=False)
    rows = {row.number for row in copied.rows}
    ids = {row: row_id for row, row_id in model.row_ids.items() if row in rows} if copied.has_row_ids else {}
    clone = TableModel({0: copied}, row_ids=ids, row_of_id={row_id: row for row, row_id in ids.items()})
    clone.is_clone = True
    world.tables[step.to] = clone
    return None


def release(world: World, step: steps.Release) -> str | None:
    model = world.table(step.table)
    if any(write.model is model for pending in (*world.transactions, *world.waiting) for write in pending.writes):
        raise NotApplicableError("a write waits")
    if world.rules.get(step.table):
        return world.must_refuse(partial(world.driver.release, step.table, step.client), "a rule applies")
    paths: list[str] = []
    error = world.error_of(lambda: paths.append(world.driver.release(step.table, step.client)))
    if error is not None:
        if any(table.is_clone for table in (*world.tables.values(), *(model for model, _ in world.dropped.values()))):
            return "refused"
        raise FaultError(f"{step} was refused: {type(error).__name__}: {error}") from error
    del world.tables[step.table]
    world.released[step.table] = (model, paths[0])
    follow_path(world, model, paths[0], "")
    return None


def follow_path(world: World, model: TableModel, path: str, operation: str) -> None:
    """Take over the versions that were made on the path, which change no row."""
    for _ in range(world.driver.path_version(path) - model.number):
        model.commit(Effect(operation), world.now)
    checks.released(world, model, path)


def adopt(world: World, step: steps.Adopt) -> str | None:
    if step.table not in world.released:
        raise NotApplicableError("nothing was released")
    model, path = world.released[step.table]
    call = partial(world.driver.adopt, path, step.to, step.client)
    if step.to in world.tables:
        return world.must_refuse(call, "the name is taken")
    if world.rules.get(step.to):
        raise NotApplicableError("a rule holds for the name")
    call()
    del world.released[step.table]
    world.tables[step.to] = model
    for _ in range(world.driver.version(step.to) - model.number):
        model.commit(Effect(""), world.now)
    return None


def create_by_path(world: World, step: steps.CreateByPath) -> str | None:
    if step.table in world.released:
        raise NotApplicableError("there is such a table")
    version = Version(
        columns=tuple(steps.ColumnSpec(name, kind) for name, kind in step.rows.columns),
        partition_by=step.partition_by,
        properties={},
        rows=(),
        operation="",
        committed_ms=world.now,
    )
    effect = replace(effect_of(steps.Append(step.table, step.rows), version), operation="", blind=False)
    model = TableModel({0: applied(effect, version, 0, world.now)})
    model.commit(effect, world.now)
    path = world.driver.create_by_path(step.table, step.rows, step.partition_by)
    world.released[step.table] = (model, path)
    checks.released(world, model, path)
    return None
