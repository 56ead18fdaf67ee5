"""The real store and the real catalog as transition functions: (state, call) to (answer, next state), each computed once.

A state is a whole one: every object of the store, every row of the database. To compute a step the real object is put into the
state, the call is made, and the state that it leaves behind is read. Nothing is known here of what a call means.
"""

import shutil
import sqlite3
import tempfile
import typing
from collections.abc import Callable, Hashable
from pathlib import Path

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.storage.memory_store import MemoryStore
from tests.model.calls import Answer, Call, perform
from tests.model.determinism import Identity, acting_as

START_MS = 1_700_000_000_000
Objects: typing.TypeAlias = dict[str, tuple[bytes, int]]
Rows: typing.TypeAlias = dict[str, tuple[tuple[typing.Any, ...], ...]]


class Service(typing.Protocol):
    """A real object whose whole state can be set and read."""

    def enter(self, state: Hashable) -> None: ...
    def perform(self, call: Call) -> Answer: ...
    def leave(self) -> Hashable: ...


class StoreService:
    """:class:`MemoryStore`; a state is the objects with their modification times, sorted."""

    def __init__(self) -> None:
        self._state: tuple[tuple[str, bytes, int], ...] = ()
        self._now = START_MS
        self.store = MemoryStore(now_ms=lambda: self._now)

    def enter(self, state: Hashable) -> None:
        assert isinstance(state, tuple)
        self.store = MemoryStore(now_ms=lambda: self._now)
        for location, data, modified in state:
            self._now = modified
            self.store.write(location, data)
        self._now = START_MS

    def perform(self, call: Call) -> Answer:
        return perform(self.store, call)

    def leave(self) -> Hashable:
        found = self.store.list_recursive("memory:/")
        return tuple((each.location, self.store.read(each.location), each.modification_time) for each in found)


class CatalogService:
    """:class:`SqlCatalog` over a SQLite file; a state is the rows of every table of the database, sorted.

    Args:
        broken: makes a broken catalog of the real one, for mutants.
    """

    def __init__(self, broken: Callable[[Catalog], Catalog] | None = None) -> None:
        memory = Path("/dev/shm")
        self._directory = tempfile.mkdtemp(prefix="cm-delta-model", dir=memory if memory.is_dir() else None)
        path = f"{self._directory}/catalog.db"
        self._real = SqlCatalog(f"sqlite:///{path}", warehouse="memory://lake", now_ms=lambda: START_MS)
        with acting_as(Identity("catalog")):
            self._real.registry.list_tables()  # Makes the database.
        self.catalog: Catalog = self._real if broken is None else broken(self._real)
        self._raw = sqlite3.connect(path, isolation_level=None)
        self._raw.execute("PRAGMA synchronous=OFF")
        names = self._raw.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        self._tables = tuple(str(name) for (name,) in names)
        self._seen = self._change_counter()
        self._state = self._dump()

    def enter(self, state: Hashable) -> None:
        assert isinstance(state, tuple)
        if state == self._state:
            return
        self._raw.execute("BEGIN IMMEDIATE")
        for table, rows, before in zip(self._tables, state, self._state, strict=True):
            if rows == before:
                continue
            self._raw.execute(f"DELETE FROM {table}")
            if rows:
                self._raw.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        self._raw.execute("COMMIT")
        self._state = state

    def perform(self, call: Call) -> Answer:
        return perform(self.catalog, call)

    def leave(self) -> Hashable:
        changed = self._change_counter()
        if changed != self._seen:
            self._seen, self._state = changed, self._dump()
        return self._state

    def close(self) -> None:
        self._raw.close()
        self._real.close()
        shutil.rmtree(self._directory)

    def _change_counter(self) -> int:
        # Grows with every change that another connection has committed, and only then.
        return int(self._raw.execute("PRAGMA data_version").fetchone()[0])

    def _dump(self) -> tuple[tuple[tuple[typing.Any, ...], ...], ...]:
        rows = (self._raw.execute(f"SELECT * FROM {table}").fetchall() for table in self._tables)
        return tuple(tuple(sorted(found, key=repr)) for found in rows)


class Machine:
    """A service with numbered states. ``computed`` counts steps of the real object, the others were remembered."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._numbers: dict[Hashable, int] = {}
        self._states: list[Hashable] = []
        self._steps: dict[tuple[int, str, str], tuple[Answer, int]] = {}
        self._drawing: set[str] = set()
        self.computed = 0
        self.initial = self._number(service.leave())

    def state(self, number: int) -> typing.Any:
        return self._states[number]

    def step(self, state: int, call: Call, caller: str) -> tuple[Answer, int]:
        """``caller`` names who calls in which situation; it only seeds the ids that the service generates."""
        key = (state, call.key, caller if call.method in self._drawing else "")
        found = self._steps.get(key)
        if found is not None:
            return found
        self.computed += 1
        self._service.enter(self._states[state])
        identity = Identity(f"{caller}@{call.method}")
        with acting_as(identity):
            answer = self._service.perform(call)
        if identity.drawn:
            self._drawing.add(call.method)
            key = (state, call.key, caller)
        self._steps[key] = (answer, self._number(self._service.leave()))
        return self._steps[key]

    def _number(self, state: Hashable) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number
