"""A client over a real SQLite catalog and an in-memory store, with a clock that the test moves."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits import commit_lock
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.stores import Stores
from tests.support.creation import create_table

SCHEMA = StructType(
    fields=(
        StructField(name="id", type=PrimitiveType(name="long")),
        StructField(name="day", type=PrimitiveType(name="date")),
    )
)


class Clock:
    """Epoch milliseconds that stand still until moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture(autouse=True)
def _lasting_contention(monkeypatch: pytest.MonkeyPatch) -> None:
    """A contended table stays so during a test, however long the test takes."""
    monkeypatch.setattr(commit_lock, "_CONTENDED_SECONDS", 3600.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def catalog(tmp_path: Path, clock: Clock) -> SqlCatalog:
    return SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse="memory://warehouse", now_ms=clock)


@pytest.fixture
def client(catalog: SqlCatalog, store: MemoryStore, clock: Clock) -> Iterator[DeltaClient]:
    # Without copies in the catalog: what happens to files is what most tests are about.
    settings = ClientSettings(retry_initial_delay=timedelta(seconds=0.001), copied_content_bytes=0)
    client = DeltaClient(catalog, stores=Stores({"memory": store}), settings=settings, now_ms=clock)
    yield client
    client.close()


@pytest.fixture
def new_table(client: DeltaClient) -> Callable[..., Table]:
    """Makes ``main.test.<name>`` with columns id and day, partitioned by day."""

    def make(name: str = "t", **properties: str) -> Table:
        return create_table(
            client,
            identifier=f"main.test.{name}",
            schema=SCHEMA,
            partition_columns=("day",),
            properties={key.replace("__", "."): value for key, value in properties.items()},
        )

    return make
