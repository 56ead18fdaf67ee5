"""Real members of a cast, stopped at every call: a run, and the tree of everything that a member may see and do.

A member is deterministic: what it does next depends only on the answers it was given. So its behaviour is a tree with one node
for each sequence of answers; a node knows the call that the real code makes there, or how the real code ended. The tree is grown
on demand by running the code; a run is kept at the node where it stopped and continues from there, and only where two sequences of
answers part is the code run again from its beginning, with the recorded answers.
"""

import queue
import threading
import time
import typing
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from cm_delta_dagster.catalog.ratification import CACHED_CONTENT_BYTES
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.errors import CatalogUnavailableError, CmDeltaError
from cm_delta_dagster.storage.stores import Stores
from tests.model.calls import CATALOG, STORE, Answer, Call
from tests.model.determinism import Identity, acting_as
from tests.model.services import START_MS
from tests.support.catalog_parts import PARTS

_MAX_PARKED = 200
_MAX_PARKED_SECONDS = 60.0  # A lease on a table is renewed, by a thread of its own, after 200 seconds.
_SECONDS_TO_ANSWER = 300.0

SETTINGS = ClientSettings(
    retry_initial_delay=timedelta(0),
    commit_lock_timeout=timedelta(0),
    max_resolve_attempts=2,
    read_threads=1,
    copied_content_bytes=0,
    publish_delay=timedelta(0),
    max_clock_difference=timedelta(milliseconds=2 * 365 * 24 * 60 * 60 * 1000),
)
"""No backoff and no commit lock: every interleaving can happen. Fewer queries of an unknown outcome, and one call at a time;
files are all that readers have. Every member goes by its own clock.
"""

SHIPPED = replace(SETTINGS, copied_content_bytes=CACHED_CONTENT_BYTES, publish_delay=timedelta(seconds=1))
"""With copies in the catalog, and with publications and marks that are put off: until the next commit, or for ever."""

LOOKING = replace(SETTINGS, retry_initial_delay=timedelta(microseconds=1), retry_max_delay=timedelta(microseconds=1))
"""With a backoff that takes no time: after it a writer refreshes before it proposes, as with the commit lock."""


@dataclass(frozen=True)
class Ended:
    """How a member ended: its result, or the error that it was given. ``key`` is equal for equal ends."""

    key: str
    result: Any = field(compare=False, default=None)
    error: CmDeltaError | None = field(compare=False, default=None)


class _Stop(BaseException):
    """Ends a run whose answer will never come. Not an Exception, so that no handler of the product keeps it alive."""


class InlineWork:
    """Takes the place of the client's background thread: the work is done at once, and it cannot fail the caller."""

    def submit(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # As the real one: the commit stands whatever happens here.
            return

    def schedule(
        self, of: str, key: Hashable, what: str, work: Callable[[], None], *, seconds: float, tries: int = 1
    ) -> None:
        self.submit(what, work)

    def flush(self, of: str | None = None) -> None:
        return

    def wait(self) -> None:
        return

    def close(self) -> None:
        return


class NoWork(InlineWork):
    """A background thread that never runs."""

    def submit(self, what: str, work: Callable[[], None]) -> None:
        return


class Gate:
    """A store or a catalog whose every call waits until the explorer answers it."""

    def __init__(self, service: str, ask: Callable[[Call], Any], part: str | None = None) -> None:
        self._service = service
        self._part = part
        self._ask = ask

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        if method == "now_ms":
            return lambda: START_MS  # No request, and the same for everybody at any moment.

        if self._service == CATALOG and self._part is None and method in PARTS:
            return Gate(self._service, self._ask, method)

        def call(*arguments: Any, **named: Any) -> Any:
            return self._ask(Call.of(self._service, method, arguments, named, self._part))

        return call


@dataclass(frozen=True)
class Member:
    """One member of a cast.

    Attributes:
        act: what it does with its own client, over the gates; its result is compared with the model.
        may_fail: errors that it may end with although nothing was lost on its way.
        skew_ms: how far its clock is off.
        broken_store, broken_catalog: what a broken client puts between itself and the interface.
        starts: the call that it stands at when the others begin; what it does before, it does in the world as it was then.
            None for a member that has done nothing yet.
        works_inline: checksums and checkpoints are made before ``act`` goes on; otherwise never.
    """

    name: str
    act: Callable[[DeltaClient], Any]
    may_fail: tuple[type[CmDeltaError], ...] = ()
    skew_ms: int = 0
    broken_store: Callable[[Any], Any] = lambda store: store
    broken_catalog: Callable[[Any], Any] = lambda catalog: catalog
    works_inline: bool = False
    settings: ClientSettings = SETTINGS
    starts: Callable[[Call], bool] | None = None


class Run:
    """One run of a member in a thread of its own, which only moves between ``start`` or ``resume`` and their return."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._identity = Identity(member.name)
        self._asked: queue.SimpleQueue[Call | Ended | BaseException] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._moving = False
        self._stopped = False
        self.used = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"model-{member.name}", daemon=True)

    def start(self) -> Call | Ended:
        return self._move(self._thread.start)

    def resume(self, answer: Answer) -> Call | Ended:
        return self._move(lambda: self._answers.put(answer))

    def stop(self) -> None:
        self._stopped = True
        self._answers.put(None)
        self._thread.join(_SECONDS_TO_ANSWER)
        assert not self._thread.is_alive(), f"{self._member.name} cannot be stopped"

    def _move(self, move: Callable[[], None]) -> Call | Ended:
        self.used = time.monotonic()
        with acting_as(self._identity):
            self._moving = True
            move()
            reached = self._asked.get(timeout=_SECONDS_TO_ANSWER)
            self._moving = False
        if isinstance(reached, BaseException):
            raise reached
        if isinstance(reached, Ended):
            self._thread.join(_SECONDS_TO_ANSWER)
        return reached

    def _ask(self, call: Call) -> Any:
        if self._stopped:
            raise _Stop
        if not self._moving:
            raise CatalogUnavailableError("This member is stopped; only the renewal of a lease can call now.")
        self._asked.put(call)
        answer = self._answers.get()
        if answer is None:
            raise _Stop
        return answer.give()

    def _run(self) -> None:
        member = self._member
        client = DeltaClient(
            typing.cast(Any, member.broken_catalog(Gate(CATALOG, self._ask))),
            stores=Stores({"memory": typing.cast(Any, member.broken_store(Gate(STORE, self._ask)))}),
            settings=member.settings,
            now_ms=lambda: START_MS + member.skew_ms,
        )
        client.background.close()
        client.background = typing.cast(Any, InlineWork() if member.works_inline else NoWork())
        try:
            result = member.act(client)
            self._asked.put(Ended(repr(result), result=result))
        except _Stop:
            return
        except CmDeltaError as error:
            self._asked.put(Ended(f"raises {type(error).__name__}", error=error))
        except BaseException as error:  # A bug of the product or of this test: it belongs to the explorer's caller.
            self._asked.put(error)


@dataclass(eq=False, slots=True)
class Node:
    """A member after one sequence of answers. ``lost``: whether one of them was an injected failure."""

    number: int
    member: Member
    reached: Call | Ended
    parent: "Node | None"
    answer: Answer | None
    depth: int
    lost: bool
    children: dict[tuple[str, bool], "Node"] = field(default_factory=dict)

    @property
    def answers(self) -> list[Answer]:
        """From the first to the one that led here."""
        found: list[Answer] = []
        node: Node | None = self
        while node is not None and node.answer is not None:
            found.append(node.answer)
            node = node.parent
        return found[::-1]


class Behaviours:
    """The trees of all members. ``runs`` counts how often real code was started."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.runs = 0
        self._roots: dict[str, Node] = {}
        self._parked: OrderedDict[int, Run] = OrderedDict()

    def root(self, member: Member) -> Node:
        found = self._roots.get(member.name)
        if found is None:
            run, reached = self._started(member)
            found = self._roots[member.name] = self._node(member, reached, run)
        assert found.member is member, f"two members are called {member.name}"
        return found

    def child(self, node: Node, answer: Answer, *, lost: bool = False) -> Node:
        """Where the member is after ``answer`` to the call of ``node``."""
        key = (answer.key, lost)
        found = node.children.get(key)
        if found is None:
            run = self._parked.pop(node.number, None) or self._rerun(node)
            found = node.children[key] = self._node(node.member, run.resume(answer), run, node, answer, lost=lost)
        return found

    def close(self) -> None:
        while self._parked:
            self._parked.popitem()[1].stop()

    def _started(self, member: Member) -> tuple[Run, Call | Ended]:
        self.runs += 1
        run = Run(member)
        return run, run.start()

    def _rerun(self, node: Node) -> Run:
        path: list[Node] = []
        step: Node | None = node
        while step is not None:
            path.append(step)
            step = step.parent
        run, reached = self._started(node.member)
        for at, following in zip(path[::-1], [*path[-2::-1], None], strict=True):
            if reached != at.reached:
                raise AssertionError(
                    f"{node.member.name} is not deterministic: with the same answers it made {reached}, before {at.reached}"
                )
            if following is not None and following.answer is not None:
                reached = run.resume(following.answer)
        return run

    def _node(
        self,
        member: Member,
        reached: Call | Ended,
        run: Run,
        parent: Node | None = None,
        answer: Answer | None = None,
        *,
        lost: bool = False,
    ) -> Node:
        depth = 0 if parent is None else parent.depth + 1
        node = Node(
            len(self.nodes), member, reached, parent, answer, depth, lost or (parent is not None and parent.lost)
        )
        self.nodes.append(node)
        if isinstance(reached, Call):
            self._parked[node.number] = run
            oldest = next(iter(self._parked.values()))
            if len(self._parked) > _MAX_PARKED or time.monotonic() - oldest.used > _MAX_PARKED_SECONDS:
                self._parked.popitem(last=False)[1].stop()
        return node
