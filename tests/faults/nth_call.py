"""A catalog and a store whose n-th call fails, or takes effect without an answer; and worlds that can be copied.

The wrappers implement the interfaces of catalog and store. Calls of both are counted together, including background calls.
"""

import datetime
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.parts import Part
from cm_delta_dagster.client.client import DeltaClient, wall_clock_ms
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.errors import CatalogUnavailableError, StorageError
from cm_delta_dagster.storage.local_store import LocalStore
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.stores import Stores

WAREHOUSE = "memory://lake/warehouse"
START_MS = int(datetime.datetime(2026, 3, 10, 12, tzinfo=datetime.UTC).timestamp() * 1000)
DAY_MS = 24 * 60 * 60 * 1000


class Fault(StrEnum):
    """FAILS: the call raises without effect. LOSES_THE_ANSWER: the call takes effect and raises."""

    FAILS = "fails"
    LOSES_THE_ANSWER = "loses the answer"


@dataclass
class Plan:
    """Which call fails, counted from 1; 0 for none. ``hit`` is the call that failed. A crash fails all calls after it too.

    Calls whose text contains both parts of ``broken``, the method and a part of the first argument, fail too.
    """

    at: int = 0
    fault: Fault = Fault.FAILS
    broken: tuple[str, str] | None = None
    is_crash: bool = False
    calls: int = 0
    hit: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_next(self, call: str) -> bool:
        with self._lock:
            self.calls += 1
            if self.broken is not None and all(part in call for part in self.broken):
                return True
            if self.is_down:
                return True
            if self.calls != self.at:
                return False
            self.hit = call
            return True

    @property
    def is_down(self) -> bool:
        """Whether the crash lies before the current call."""
        return self.is_crash and 0 < self.at < self.calls


class Faulty:
    """Forwards calls to the real object and fails those of the plan."""

    def __init__(self, real: Any, plan: Plan, error: type[Exception]) -> None:
        self._real, self._plan, self._error = real, plan, error

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._real, name)
        if isinstance(attribute, Part):
            return Faulty(attribute, self._plan, self._error)
        if not callable(attribute) or name in ("close", "now_ms"):  # The clock is not a request.
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            wrong = self._plan.is_next(f"{name}{arguments[:1]}")
            if wrong and (self._plan.fault is Fault.FAILS or self._plan.is_down):
                raise self._error(f"{name} fails for the test.")
            answer = attribute(*arguments, **named)
            if isinstance(answer, Iterator):
                answer = iter(list(answer))
            if wrong:
                raise self._error(f"{name} does not answer for the test.")
            return answer

        return call


@contextmanager
def _faulty_client(
    catalog: SqlCatalog, scheme: str, store: Any, plan: Plan, *, now_ms: Callable[[], int]
) -> Iterator[DeltaClient]:
    client = DeltaClient(
        Faulty(catalog, plan, CatalogUnavailableError),
        stores=Stores(stores={scheme: Faulty(store, plan, StorageError)}),
        settings=ClientSettings(
            retry_initial_delay=datetime.timedelta(0), retry_max_delay=datetime.timedelta(0), read_threads=1
        ),
        now_ms=now_ms,
    )
    try:
        yield client
    finally:
        client.close()


class World:
    """A catalog, a store and a clock, for any number of clients one after the other."""

    def __init__(self, directory: Path, *, now_ms: int = START_MS) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.now = now_ms
        self.memory = MemoryStore(now_ms=lambda: self.now)

    @contextmanager
    def client(self, plan: Plan | None = None) -> Iterator[DeltaClient]:
        """Open a client with empty caches; its background work ends before the block does."""
        catalog = SqlCatalog(f"sqlite:///{self.directory}/catalog.db", warehouse=WAREHOUSE, now_ms=lambda: self.now)
        with _faulty_client(catalog, "memory", self.memory, plan or Plan(), now_ms=lambda: self.now) as client:
            yield client

    def pass_days(self, days: float) -> None:
        self.now += int(days * DAY_MS)

    def copy(self, directory: Path) -> "World":
        """Return another world in the same state."""
        copy = World(directory)
        for path in self.directory.iterdir():
            shutil.copy(path, directory / path.name)
        for status in self.memory.list_recursive("memory:/"):
            copy.now = status.modification_time
            copy.memory.write(status.location, self.memory.read(status.location))
        copy.now = self.now
        return copy

    def objects(self, below: str) -> set[str]:
        """Return the paths of all objects below a location."""
        return {status.location.removeprefix(f"{below}/") for status in self.memory.list_recursive(below)}


class DiskWorld:
    """A catalog and local files, which Spark can write to; its state can be saved and restored."""

    def __init__(self, directory: Path) -> None:
        self._saved = directory / "saved"
        self.directory = directory / "world"
        self.directory.mkdir(parents=True)

    @contextmanager
    def client(self, plan: Plan | None = None) -> Iterator[DeltaClient]:
        """As in :class:`World`."""
        catalog = SqlCatalog(f"sqlite:///{self.directory}/catalog.db", warehouse=f"file://{self.directory}/warehouse")
        with _faulty_client(catalog, "file", LocalStore(), plan or Plan(), now_ms=wall_clock_ms) as client:
            yield client

    def save(self) -> None:
        """Save the current state."""
        shutil.copytree(self.directory, self._saved)

    def restore(self) -> None:
        """Restore the saved state in the same directory, because the catalog has absolute locations."""
        shutil.rmtree(self.directory)
        shutil.copytree(self._saved, self.directory)

    def data_files(self, location: str) -> set[str]:
        """Return the paths of all files below a location except those of the log, including incomplete files."""
        root = Path(location.removeprefix("file://"))
        found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
        return {path for path in found if not path.startswith("_delta_log/")}
