"""Columns and properties."""

from dataclasses import replace
from functools import partial

from tests.api_model import steps
from tests.api_model.model import Effect, NotApplicableError, Version, next_number
from tests.api_model.widenings import is_wider
from tests.api_model.world import World


def add_column(world: World, step: steps.AddColumn) -> str | None:
    version = world.table(step.table).latest
    call = partial(world.driver.add_column, step.table, step.name, step.kind, step.client)
    if step.name.lower() in [name.lower() for name in version.names]:
        return world.must_refuse(call, "there is such a column")
    columns = (*version.columns, steps.ColumnSpec(step.name, step.kind, identity=next_number()))
    return world.change(step, Effect("ADD COLUMNS", columns=columns), call)


def rename_column(world: World, step: steps.RenameColumn) -> str | None:
    version = world.table(step.table).latest
    column = version.column(step.name)
    call = partial(world.driver.rename_column, step.table, step.name, step.to, step.client)
    if step.to == step.name:
        raise NotApplicableError("the same name")
    others = [name.lower() for name in version.names if name != step.name]
    if not version.is_mapped or step.to.lower() in others or is_source(column.name, version):
        return world.must_refuse(call, "it cannot be renamed")
    renamed = replace(column, name=step.to)
    state: dict[str, object] = {
        "partition_by": tuple(step.to if name == step.name else name for name in version.partition_by),
        "cluster_by": tuple(step.to if name == step.name else name for name in version.cluster_by),
    }
    columns = tuple(renamed if item is column else item for item in version.columns)
    effect = Effect("RENAME COLUMN", columns=columns, former={step.to: step.name}, state=state)
    return world.change(step, effect, call)


def drop_column(world: World, step: steps.DropColumn) -> str | None:
    version = world.table(step.table).latest
    column = version.column(step.name)
    call = partial(world.driver.drop_column, step.table, step.name, step.client)
    is_layout = step.name in (*version.partition_by, *version.cluster_by)
    if not version.is_mapped or is_layout or is_source(step.name, version) or len(version.columns) == 1:
        return world.must_refuse(call, "it cannot be dropped")
    columns = tuple(item for item in version.columns if item is not column)
    return world.change(step, Effect("DROP COLUMNS", columns=columns), call)


def widen_column(world: World, step: steps.WidenColumn) -> str | None:
    version = world.table(step.table).latest
    column = version.column(step.name)
    if column.default is not None or column.numbered or column.twice or column.kind == step.kind:
        raise NotApplicableError("only plain columns")
    call = partial(world.driver.widen_column, step.table, step.name, step.kind, step.client)
    if not is_wider(column.kind, step.kind, version) or is_source(step.name, version):
        return world.must_refuse(call, "the type is not wider")
    columns = tuple(replace(item, kind=step.kind) if item is column else item for item in version.columns)
    return world.change(step, Effect("CHANGE COLUMN", columns=columns), call)


def set_property(world: World, step: steps.SetProperty) -> str | None:
    model = world.table(step.table)
    if model.latest.properties.get(step.key) == step.value:
        raise NotApplicableError("it has that value")
    properties = {**model.latest.properties, step.key: step.value}
    if step.key == "delta.columnMapping.mode" and (step.value != "name" or model.latest.is_mapped):
        raise NotApplicableError("only to enable")
    effect = Effect("SET TBLPROPERTIES", state={"properties": properties})
    most = 10 if step.key == "delta.enableRowTracking" else 1
    call = partial(world.driver.set_property, step.table, step.key, step.value, step.client)
    return world.change(step, effect, call, most=most)


def is_source(name: str, version: Version) -> bool:
    """Whether a generated column depends on the column."""
    return any(column.twice == name for column in version.columns)
