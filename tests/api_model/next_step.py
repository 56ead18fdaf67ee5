"""The kinds of steps, when each is possible, and how often it is chosen."""

from collections.abc import Callable
from typing import Any

from tests.api_model import steps
from tests.api_model.chosen_steps import Chooser
from tests.api_model.model import Version
from tests.api_model.steps import Step
from tests.api_model.world import World

NAMES = ("a", "b", "c", "d")


def next_step(world: World, choose: Chooser) -> Step:
    """A step that fits the state; the first one creates a table."""
    if not world.done:
        return choose.creation(NAMES[0])
    kinds = [make for weight, is_possible, make in _KINDS for _ in range(weight) if is_possible(world)]
    return choose.pick(kinds)(world, choose)


def _table(world: World, choose: Chooser) -> tuple[str, Version, int]:
    """A table, its latest version, and the client that makes the call."""
    name = choose.pick(sorted(world.tables))
    return name, world.tables[name].latest, choose.pick([0, 0, 1])


def _other(choose: Chooser, name: str, world: World) -> str:
    """Another name, which is seldom taken."""
    others = [other for other in NAMES if other != name]
    free = [other for other in others if other not in world.tables]
    return choose.pick(free if free and choose.maybe(0.9) else others)


def _create(world: World, choose: Chooser) -> Step:
    return choose.creation(_other(choose, "", world))


def _append(world: World, choose: Chooser) -> Step:
    name, version, client = _table(world, choose)
    return steps.Append(name, choose.rows(version), parts=choose.pick([1, 2]), client=client)


def _write(world: World, choose: Chooser) -> Step:
    return choose.write(*_table(world, choose))


def _read(world: World, choose: Chooser) -> Step:
    name, version, _ = _table(world, choose)
    back = choose.number(0, min(3, world.tables[name].number))
    return steps.Read(name, choose.condition(version), back)


def _stream(world: World, choose: Chooser) -> Step:
    name, _, client = _table(world, choose)
    return steps.Stream(name, client=client)


def _alter(world: World, choose: Chooser) -> Step:
    return choose.alteration(*_table(world, choose))


def _restore(world: World, choose: Chooser) -> Step:
    name, _, client = _table(world, choose)
    return steps.Restore(name, choose.number(1, max(1, world.tables[name].number)), client=client)


def _maintain(world: World, choose: Chooser) -> Step:
    name, _, client = _table(world, choose)
    return choose.maintenance(name, client)


def _pass_time(world: World, choose: Chooser) -> Step:
    return steps.PassTime(choose.pick([1, 30, 200, 800]))


def _begin(world: World, choose: Chooser) -> Step:
    names = sorted(world.tables)
    chosen = choose.chance.sample(names, choose.number(1, min(2, len(names))))
    return steps.Begin(tuple(choose.write(name, world.tables[name].latest) for name in chosen))


def _end(world: World, choose: Chooser) -> Step:
    return steps.Commit() if choose.maybe(0.85) else steps.Abandon()


def _rename(world: World, choose: Chooser) -> Step:
    name, _, client = _table(world, choose)
    return steps.Rename(name, _other(choose, name, world), client=client)


def _drop(world: World, choose: Chooser) -> Step:
    name, _, client = _table(world, choose)
    return steps.Drop(name, client=client)


def _undrop(world: World, choose: Chooser) -> Step:
    return steps.Undrop(choose.pick(sorted(world.dropped)))


def _clone(world: World, choose: Chooser) -> Step:
    name, _, client = _table(world, choose)
    back = choose.number(0, min(2, world.tables[name].number))
    return steps.Clone(
        name, _other(choose, name, world), choose.pick(["shallow", "shallow", "deep"]), back, client=client
    )


def _release(world: World, choose: Chooser) -> Step:
    name, _, client = _table(world, choose)
    return steps.Release(name, client=client)


def _create_by_path(world: World, choose: Chooser) -> Step:
    return choose.creation_by_path(_other(choose, "", world))


def _adopt(world: World, choose: Chooser) -> Step:
    return steps.Adopt(choose.pick(sorted(world.released)), _other(choose, "", world))


def _set_rule(world: World, choose: Chooser) -> Step:
    name, _, client = _table(world, choose)
    kind = choose.pick(["append_only", "max_removed_rows"])
    return steps.Rule(name, kind, choose.maybe(0.7), client=client)


def _remove_rules(world: World, choose: Chooser) -> Step:
    return steps.RemoveRules(choose.pick(sorted(world.rules)))


def _decide(world: World, choose: Chooser) -> Step:
    return steps.Decide(choose.maybe(0.75))


def _has_tables(world: World) -> bool:
    return bool(world.tables)


_KINDS: tuple[tuple[int, Callable[[World], Any], Callable[[World, Chooser], Step]], ...] = (
    (2, lambda world: len(world.tables) < 3, _create),
    (4, _has_tables, _append),
    (12, _has_tables, _write),
    (2, _has_tables, _read),
    (2, _has_tables, _stream),
    (5, _has_tables, _alter),
    (2, _has_tables, _restore),
    (4, _has_tables, _maintain),
    (1, lambda world: True, _pass_time),
    (3, lambda world: world.tables and len(world.transactions) < 2, _begin),
    (5, lambda world: world.transactions, _end),
    (1, _has_tables, _rename),
    (1, lambda world: len(world.tables) > 1, _drop),
    (2, lambda world: world.dropped, _undrop),
    (1, lambda world: 0 < len(world.tables) < 4, _clone),
    (1, lambda world: world.tables and not world.released, _release),
    (1, lambda world: not world.released, _create_by_path),
    (3, lambda world: world.released and len(world.tables) < 4, _adopt),
    (1, lambda world: world.tables and not world.rules, _set_rule),
    (1, lambda world: world.rules, _remove_rules),
    (3, lambda world: world.waiting, _decide),
)
"""How often a kind is chosen, when it is possible, and the function that makes a step of it."""
