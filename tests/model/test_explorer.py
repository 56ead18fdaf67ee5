"""The explorer itself: it counts what there is, and what it remembers is what the real objects do."""

import contextlib
import math
from collections.abc import Iterator

import pytest

from tests.model.calls import CATALOG, Answer, Call, perform
from tests.model.casts import (
    MODES,
    cast,
    creation,
    creator,
    overwriter,
    publisher,
    reader,
    staged_cleaner,
    stages,
    writer,
)
from tests.model.determinism import Identity, acting_as
from tests.model.explorer import Cast, CounterExample, Explorer, Move, State
from tests.model.mutants import MUTANTS
from tests.model.runs import Ended, Run
from tests.model.services import CatalogService, StoreService


def test_members_that_do_not_meet_have_as_many_interleavings_as_arithmetic_says() -> None:
    two = cast("two readers", reader("a"), reader("b"), mode="staged", crashes=0)
    with Explorer(two) as explorer:
        calls = 0
        node = explorer.behaviours.root(two.members[0])
        world = explorer.initial()[0]
        while isinstance(node.reached, Call):
            answer, world = explorer._step(world, node.reached, node)
            node = explorer.behaviours.child(node, answer)
            calls += 1
        counts = explorer.explore()
    assert calls > 4
    assert counts.interleavings == counts.executions == math.comb(2 * calls, calls)
    assert counts.states == (calls + 1) ** 2


@pytest.mark.parametrize("losses", [0, 1])
def test_walking_every_path_finds_as_many_executions_as_the_graph_has(losses: int) -> None:
    members = (writer("a", starts=stages), reader("r", reads=1))
    small = cast("small", *members, mode="staged", crashes=1, losses=losses)
    with Explorer(small) as explorer:
        counts = explorer.explore()

    with Explorer(small) as explorer:
        reached: set[State] = set()

        def paths(state: State) -> int:
            reached.add(state)
            moves = list(explorer.moves(state))
            return sum(paths(move.after) for move in moves) if moves else 1

        assert paths(explorer.initial()) == counts.executions
        assert len(reached) == counts.states


@contextlib.contextmanager
def real_services(cast: Cast) -> Iterator[tuple[StoreService, CatalogService]]:
    catalog = CatalogService(cast.broken)
    try:
        yield StoreService(), catalog
    finally:
        catalog.close()


def repeat(cast: Cast, moves: list[Move]) -> int:
    """Do what ``moves`` say, with one store, one database and one run of each member, from beginning to end.

    Returns:
        The number of answers compared with the remembered ones.
    """
    compared = 0
    with real_services(cast) as (store, catalog):

        def do(call: Call, caller: str) -> Answer:
            with acting_as(Identity(f"{caller}@{call.method}")):
                return perform(catalog.catalog if call.service == CATALOG else store.store, call)

        for member in cast.setup:
            run, depth = Run(member), 0
            reached = run.start()
            while isinstance(reached, Call):
                reached, depth = run.resume(do(reached, f"{member.name}/{depth}")), depth + 1
        runs = {member.name: Run(member) for member in cast.members}
        at: dict[str, Call | Ended] = {name: run.start() for name, run in runs.items()}
        for move in moves:
            name, call = move.node.member.name, move.node.reached
            assert isinstance(call, Call)
            answer = None
            if isinstance(move.what, Answer) or move.what in ("crash after it", "done, answer lost", "arrives now"):
                answer = do(call, f"{name}/{move.node.depth}")
            if isinstance(move.what, Answer):
                assert at[name] == call and answer == move.what
                at[name] = runs[name].resume(move.what)
                compared += 1
            elif move.kind == "crash":
                runs[name].stop()
            elif move.what != "arrives now":
                lost = next(child.answer for child in move.node.children.values() if child.lost and child.answer)
                at[name] = runs[name].resume(lost)
        for name, reached in at.items():
            if isinstance(reached, Call):
                runs[name].stop()
    return compared


LIVE_CASTS = [
    cast(
        "live", writer("a"), overwriter("b"), publisher(), reader(), staged_cleaner(), mode=mode, losses=2, delays=True
    )
    for mode in MODES
] + [creation("live creators", creator("a"), creator("b", opens=True), losses=1)]


@pytest.mark.parametrize("live", LIVE_CASTS, ids=lambda live: live.name)
def test_what_the_explorer_remembers_is_what_store_catalog_and_clients_do(live: Cast) -> None:
    compared = 0
    with Explorer(live) as explorer:
        for number in range(25):
            compared += repeat(live, explorer.walk(f"live/{number}"))
    assert compared > 25


def test_samples_find_a_mutant_too_and_name_the_seed() -> None:
    mutant = MUTANTS["a cleaner that deletes every staged file"]
    with Explorer(mutant.cast("staged")) as explorer, pytest.raises(CounterExample, match="seed 7/"):
        explorer.sample(7, 1000)
