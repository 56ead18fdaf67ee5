"""Explores every interleaving of a cast: explicit states, each visited once, with the real code as the transition function.

A state is the whole store, the whole database, the reference model and, for each member, everything it has seen so far. From each
state every member may make its next call; and it may stop for ever before or after it (a crash), or the call may fail with or
without effect while the member goes on (a lost request, a lost response), or take effect at any later time (a delayed request), as
long as the cast's budget lasts. Two interleavings that reach the same state have the same future, so equal states are visited
once: this is exact, not an approximation. The states form a graph without cycles, whose paths are the interleavings; they are
counted without being walked.
"""

import random
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.errors import CatalogUnavailableError, CmDeltaError, StorageError
from tests.model.calls import CATALOG, Answer, Call
from tests.model.observation import check_end, observe
from tests.model.reference import Model, Violation
from tests.model.runs import Behaviours, Ended, Member, Node
from tests.model.services import CatalogService, Machine, StoreService

_CRASHED = -1

World: typing.TypeAlias = tuple[int, int, int]
"""Numbers of the store's state, the catalog's state and the model."""

State: typing.TypeAlias = tuple[World, tuple[int, ...], int, int, tuple[int, ...]]
"""World, node of each member (or how it ended), crashes left, losses left, nodes whose call is still on its way."""


@dataclass(frozen=True)
class Cast:
    """Who acts, after what, and what may go wrong.

    Attributes:
        setup: acts alone, first, undisturbed.
        crashes: members that may stop for ever, at any call.
        losses: calls that may fail, with or without effect, while their member goes on.
        delays: a call that fails may also take effect at any later time.
        observer: reads alone in every state of store and catalog, as a client that comes after a crash of all.
        recovery: acts alone at every end, one after the other; what it leaves is read by the observer again.
        rows: what each writer writes.
        broken: makes a broken catalog of the real one.
    """

    name: str
    members: tuple[Member, ...]
    setup: tuple[Member, ...]
    observer: Member | None
    recovery: tuple[Member, ...] = ()
    crashes: int = 1
    losses: int = 0
    delays: bool = False
    rows: typing.Mapping[str, frozenset[str]] = field(default_factory=dict)
    broken: Callable[[Catalog], Catalog] | None = None


@dataclass
class Counts:
    """What an exploration did.

    Attributes:
        interleavings: complete paths without a crash or a loss.
        executions: complete paths with them.
        ends: different final states.
        losses, crashes: transitions of that kind.
        runs: runs of a member's real code from its beginning.
        steps: calls that the real store or catalog computed.
    """

    states: int = 0
    transitions: int = 0
    interleavings: int = 0
    executions: int = 0
    ends: int = 0
    crashes: int = 0
    losses: int = 0
    reads: int = 0
    recoveries: int = 0
    runs: int = 0
    steps: int = 0

    def __str__(self) -> str:
        return (
            f"{self.executions:.3g} executions ({self.interleavings:,} undisturbed interleavings) in {self.states:,} states and "
            f"{self.transitions:,} transitions, of which {self.crashes:,} crashes and {self.losses:,} losses; {self.ends:,} "
            f"different ends, {self.recoveries:,} recoveries, {self.reads:,} reads compared; {self.runs:,} runs of real "
            f"members, {self.steps:,} real calls"
        )


class CounterExample(AssertionError):
    """A schedule that breaks the protocol: the violation, and every step that led to it."""

    def __init__(self, violation: str, schedule: Sequence[str], counts: Counts) -> None:
        self.violation, self.schedule, self.counts = violation, tuple(schedule), counts
        super().__init__("\n  ".join([f"{violation}\nafter the schedule:", *schedule]))


@dataclass(frozen=True)
class Move:
    """One way on from a state: the member's node, what came of its call, and whether that was a ``crash`` or a ``loss``."""

    node: Node
    what: Answer | str
    kind: str
    after: State

    def __str__(self) -> str:
        return f"{self.node.member.name}: {self.node.reached} -> {self.what}"


@dataclass
class _Frame:
    state: State
    moves: Iterator[Move]
    arrived: Move | None
    interleavings: int = 0
    executions: int = 0
    is_end: bool = True


class Explorer:
    """All that is known of one cast; use as a context manager."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self.counts = Counts()
        self._catalog = CatalogService(cast.broken)
        self.store_machine, self.catalog_machine = Machine(StoreService()), Machine(self._catalog)
        self.behaviours = Behaviours()
        self._models: list[Model] = []
        self._model_numbers: dict[Model, int] = {}
        self._steps: dict[tuple[World, str, str], tuple[Answer, World]] = {}
        self._ends: dict[tuple[str, str], int] = {}
        self._end_nodes: list[Node] = []
        self._observed: set[World] = set()
        self._recovered: set[World] = set()

    def __enter__(self) -> "Explorer":
        return self

    def __exit__(self, *_: object) -> None:
        self.behaviours.close()
        self._catalog.close()

    def model(self, world: World) -> Model:
        return self._models[world[2]]

    def initial(self) -> State:
        """The state after the setup."""
        world = (self.store_machine.initial, self.catalog_machine.initial, self._number(Model()))
        trace: list[str] = []
        try:
            for member in self.cast.setup:
                world, _ = self.alone(member, world, trace)
            nodes = tuple(self._entered(self._ready(member, world), world) for member in self.cast.members)
        except Violation as violation:
            raise CounterExample(str(violation), trace, self.counts) from violation
        return world, nodes, self.cast.crashes, self.cast.losses, ()

    def _ready(self, member: Member, world: World) -> Node:
        node = self.behaviours.root(member)
        starts = member.starts
        while starts is not None and isinstance(node.reached, Call) and not starts(node.reached):
            answer, after = self._step(world, node.reached, node)
            assert after == world, f"{member.name} changed something before it started"
            node = self.behaviours.child(node, answer)
        return node

    def explore(self) -> Counts:
        """Visit every state. Raises CounterExample."""
        initial = self.initial()
        finished: dict[State, tuple[int, int]] = {}
        stack = [_Frame(initial, self.moves(initial), None)]
        try:
            self._observe(initial[0])
            while stack:
                frame = stack[-1]
                move = next(frame.moves, None)
                if move is None:
                    if frame.is_end:
                        self._end(frame)
                    stack.pop()
                    finished[frame.state] = (frame.interleavings, frame.executions)
                    if stack and frame.arrived is not None:
                        _add(stack[-1], frame.arrived, finished[frame.state])
                    continue
                self._count(move)
                frame.is_end = False
                known = finished.get(move.after)
                if known is not None:
                    _add(frame, move, known)
                else:
                    stack.append(_Frame(move.after, self.moves(move.after), move))
                    self._observe(move.after[0])
        except Violation as violation:
            schedule = [str(frame.arrived) for frame in stack if frame.arrived is not None]
            raise CounterExample(str(violation), schedule, self._totals()) from violation
        self.counts.states = len(finished)
        self.counts.interleavings, self.counts.executions = finished[initial]
        return self._totals()

    def sample(self, seed: int, executions: int) -> Counts:
        """Walk so many executions at random, each from its own seed. Raises CounterExample, which names the seed."""
        seen: set[State] = set()
        for number in range(executions):
            for move in self.walk(f"{seed}/{number}"):
                self._count(move)
                seen.add(move.after)
        self.counts.states = len(seen)
        self.counts.executions = executions
        return self._totals()

    def walk(self, seed: str) -> list[Move]:
        """One random execution from the beginning to an end. Raises CounterExample."""
        choice = random.Random(seed)
        state, found = self.initial(), list[Move]()
        try:
            while (move := self._chosen(state, choice)) is not None:
                found.append(move)
                state = move.after
                self._observe(state[0])
            self._recover(state)
        except Violation as violation:
            schedule = [f"seed {seed}", *(str(move) for move in found)]
            raise CounterExample(str(violation), schedule, self._totals()) from violation
        return found

    def moves(self, state: State) -> Iterator[Move]:
        """Every way on from ``state``. Raises Violation, with the step in its text."""
        for position in range(len(self.cast.members)):
            yield from self._moves_of(state, position, ("", "crash", "loss"))
        yield from self._arrivals(state)

    def alone(self, member: Member, world: World, trace: list[str] | None = None) -> tuple[World, Node]:
        """Let a member act undisturbed until it ends."""
        node = self.behaviours.root(member)
        while isinstance(node.reached, Call):
            answer, world = self._step(world, node.reached, node)
            if trace is not None:
                trace.append(f"{member.name}: {node.reached} -> {answer}")
            node = self.behaviours.child(node, answer)
        self.counts.reads += check_end(self.model(world), node, rows=self._rows(member))
        return world, node

    def results(self, name: str) -> list[Ended]:
        """Every different way in which that member ended."""
        return [typing.cast(Ended, node.reached) for node in self._end_nodes if node.member.name == name]

    def _moves_of(self, state: State, position: int, kinds: Sequence[str]) -> Iterator[Move]:
        world, nodes, crashes, losses, delayed = state
        if nodes[position] < 0:
            return
        node = self.behaviours.nodes[nodes[position]]
        call = node.reached
        assert isinstance(call, Call)

        def go(there: World, number: int, *, crash: int = 0, loss: int = 0, late: tuple[int, ...] = ()) -> State:
            moved = (*nodes[:position], number, *nodes[position + 1 :])
            return there, moved, crashes - crash, losses - loss, tuple(sorted(delayed + late))

        try:
            answer, after = self._step(world, call, node)
            if "" in kinds:
                yield Move(node, answer, "", go(after, self._entered(self.behaviours.child(node, answer), after)))
            if "crash" in kinds and crashes:
                yield Move(node, "crash before it", "crash", go(world, _CRASHED, crash=1))
                if after != world:
                    yield Move(node, "crash after it", "crash", go(after, _CRASHED, crash=1))
            if "loss" in kinds and losses:
                child = self.behaviours.child(node, Answer.failed(_loss(call)), lost=True)
                if after != world:
                    yield Move(node, "done, answer lost", "loss", go(after, self._entered(child, after), loss=1))
                yield Move(node, "request lost", "loss", go(world, self._entered(child, world), loss=1))
                if after != world and self.cast.delays:
                    there = go(world, self._entered(child, world), loss=1, late=(node.number,))
                    yield Move(node, "no answer, done later", "loss", there)
        except Violation as violation:
            raise Violation(f"{violation}\n  in the step {node.member.name}: {call}") from violation

    def _arrivals(self, state: State) -> Iterator[Move]:
        """Delayed calls that take effect now; no member waits for the response."""
        world, nodes, crashes, losses, delayed = state
        for number in delayed:
            node = self.behaviours.nodes[number]
            _, after = self._step(world, typing.cast(Call, node.reached), node)
            left = list(delayed)
            left.remove(number)
            yield Move(node, "arrives now", "loss", (after, nodes, crashes, losses, tuple(left)))

    def _chosen(self, state: State, choice: random.Random) -> Move | None:
        living = [position for position, node in enumerate(state[1]) if node >= 0]
        arrivals = list(self._arrivals(state))
        if arrivals and (not living or choice.random() < 0.1):
            return choice.choice(arrivals)
        if not living:
            return None
        kinds = choice.choices([("",), ("crash",), ("loss",)], [0.94, 0.02, 0.04])[0]
        position = choice.choice(living)
        return choice.choice(
            list(self._moves_of(state, position, kinds)) or list(self._moves_of(state, position, ("",)))
        )

    def _step(self, world: World, call: Call, node: Node) -> tuple[Answer, World]:
        caller = f"{node.member.name}/{node.depth}"
        key = (world, call.key, caller)
        found = self._steps.get(key)
        if found is None:
            store, catalog, _ = world
            if call.service == CATALOG:
                answer, catalog = self.catalog_machine.step(catalog, call, caller)
            else:
                answer, store = self.store_machine.step(store, call, caller)
            model = observe(self.model(world), call, answer, lambda location: self._version_zero(store, location))
            found = self._steps[key] = (answer, (store, catalog, self._number(model)))
        return found

    def _entered(self, node: Node, world: World) -> int:
        """The number that stands for ``node`` in a state. Members that ended alike are alike: nothing follows."""
        if isinstance(node.reached, Call):
            return node.number
        self.counts.reads += check_end(self.model(world), node, rows=self._rows(node.member))
        key = (node.member.name, node.reached.key)
        if key not in self._ends:
            self._ends[key] = _CRASHED - 1 - len(self._ends)
            self._end_nodes.append(node)
        return self._ends[key]

    def _end(self, frame: _Frame) -> None:
        _, _, crashes, losses, _ = frame.state
        undisturbed = crashes == self.cast.crashes and losses == self.cast.losses
        frame.interleavings, frame.executions = int(undisturbed), 1
        self.counts.ends += 1
        self._recover(frame.state)

    def _recover(self, state: State) -> None:
        """Acknowledged commits exist, and a later client finds a complete table."""
        world, nodes = state[:2]
        for number in nodes:
            if number < _CRASHED:
                node = self._end_nodes[_CRASHED - 1 - number]
                check_end(self.model(world), node, rows=self._rows(node.member))
        if not self.cast.recovery or world in self._recovered:
            return
        self._recovered.add(world)
        self.counts.recoveries += 1
        for member in self.cast.recovery:
            world, _ = self.alone(member, world)
        for _, table in self.model(world).tables:
            if table.announced != table.latest:
                raise Violation(f"after recovery {table.announced} of {table.latest} versions are published")
        self._observe(world)

    def _observe(self, world: World) -> None:
        if self.cast.observer is None or world in self._observed or not self.model(world).names:
            return
        after, node = self.alone(self.cast.observer, world)
        self._observed.add(world)
        # A commit that only storage knew is recorded in the catalog by the next client.
        unrecorded = any(table.unrecorded for _, table in self.model(world).tables)
        if typing.cast(Ended, node.reached).error is not None or (after != world and not unrecorded):
            raise Violation(f"a reader that came now {typing.cast(Ended, node.reached).key} or changed something")

    def _version_zero(self, store: int, location: str) -> bytes | None:
        wanted = f"{location}/_delta_log/{0:020d}.json"
        return next((data for found, data, _ in self.store_machine.state(store) if found == wanted), None)

    def _rows(self, member: Member) -> frozenset[str]:
        return self.cast.rows.get(member.name, frozenset())

    def _number(self, model: Model) -> int:
        number = self._model_numbers.setdefault(model, len(self._models))
        if number == len(self._models):
            self._models.append(model)
        return number

    def _count(self, move: Move) -> None:
        self.counts.transitions += 1
        self.counts.crashes += move.kind == "crash"
        self.counts.losses += move.kind == "loss"

    def _totals(self) -> Counts:
        self.counts.runs = self.behaviours.runs
        self.counts.steps = self.store_machine.computed + self.catalog_machine.computed
        return self.counts


def _add(frame: _Frame, move: Move, below: tuple[int, int]) -> None:
    frame.executions += below[1]
    if not move.kind:
        frame.interleavings += below[0]


def _loss(call: Call) -> CmDeltaError:
    if call.service == CATALOG:
        return CatalogUnavailableError(f"The answer to {call.method} was lost.")
    return StorageError(f"The answer to {call.method} was lost.")
