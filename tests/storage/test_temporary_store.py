"""Options that expire are renewed, and options to write are asked for when something is written."""

import pickle
from dataclasses import dataclass, field

import pytest

from cm_delta_dagster.errors import OperationRefusedError
from cm_delta_dagster.storage.fsspec_store import FsspecStore
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.stores import Stores
from cm_delta_dagster.storage.temporary_store import TemporaryOptions, TemporaryStore
from tests.support.object_stores import make_bucket, s3_options

PREFIX = "s3://temporary/w/t"


@dataclass
class Source:
    """Gives options for one table, and records what it was asked.

    Attributes:
        life_ms: of the options that it gives.
        may_write: whether it gives options to write.
    """

    endpoint: str
    now_ms: int = 1_000_000
    life_ms: int = 3000
    may_write: bool = True
    asked: list[tuple[str, bool]] = field(default_factory=list)

    def options_for(self, location: str, *, writes: bool) -> TemporaryOptions | None:
        self.asked.append((location, writes))
        if not location.startswith(PREFIX):
            return None
        if writes and not self.may_write:
            raise OperationRefusedError("the caller may not write")
        return TemporaryOptions(prefix=PREFIX, options=s3_options(self.endpoint), expires_ms=self.now_ms + self.life_ms)

    def clock(self) -> int:
        return self.now_ms


@pytest.fixture(scope="module")
def endpoint(s3_endpoint: str) -> str:
    make_bucket(FsspecStore("s3", options=s3_options(s3_endpoint)), "temporary")
    return s3_endpoint


@pytest.fixture
def source(endpoint: str) -> Source:
    return Source(endpoint)


def test_options_are_used_for_two_thirds_of_their_life(source: Source) -> None:
    store = TemporaryStore("s3", PREFIX, source=source, now_ms=source.clock)
    store.write(f"{PREFIX}/a", b"1")
    source.now_ms += 1999
    assert store.read(f"{PREFIX}/a") == b"1" and source.asked == [(PREFIX, True)]
    source.now_ms += 1
    assert store.read(f"{PREFIX}/a") == b"1" and source.asked == [(PREFIX, True)] * 2
    source.now_ms += 10_000
    store.write(f"{PREFIX}/a", b"2")
    assert source.asked == [(PREFIX, True)] * 3


def test_options_to_write_are_asked_for_at_the_first_write(source: Source) -> None:
    store = TemporaryStore("s3", PREFIX, source=source, now_ms=source.clock)
    assert store.list_from(f"{PREFIX}/x") == [] and list(store.list_recursive(f"{PREFIX}/x")) == []
    assert source.asked == [(PREFIX, False)]
    store.write_if_absent(f"{PREFIX}/b", b"1")
    store.delete(f"{PREFIX}/b")
    assert source.asked == [(PREFIX, False), (PREFIX, True)]


def test_who_may_only_read_reads(source: Source) -> None:
    source.may_write = False
    store = TemporaryStore("s3", PREFIX, source=source, now_ms=source.clock)
    with pytest.raises(OperationRefusedError):
        store.write(f"{PREFIX}/c", b"1")
    assert store.list_from(f"{PREFIX}/x") == []


def test_a_location_is_asked_for_once(source: Source) -> None:
    stores = Stores(source=source)
    store = stores.store_for(PREFIX)
    assert store is stores.store_for(f"{PREFIX}/_delta_log") is stores.store_for(f"{PREFIX.replace('s3:', 's3a:')}/x")
    assert isinstance(stores.store_for("s3://temporary/w/other"), FsspecStore)
    assert stores.store_for("s3://temporary/w/other") is stores.store_for("s3://temporary/w/other")
    assert source.asked == [(PREFIX, False), ("s3://temporary/w/other", False)]


def test_options_of_the_user_come_first(source: Source) -> None:
    own = StorageOptions.of({"s3://temporary": s3_options(source.endpoint)}, warehouse=None)
    assert isinstance(Stores(storage_options=own, source=source).store_for(PREFIX), FsspecStore)
    assert source.asked == []


def test_a_copy_in_another_process_asks_for_options_of_its_own_and_shows_no_secret(source: Source) -> None:
    store = TemporaryStore("s3", PREFIX, source=source)
    store.write(f"{PREFIX}/d", b"1")
    data = pickle.dumps(store)
    assert b"secret" not in data and "secret" not in repr(store) + repr(source.options_for(PREFIX, writes=True))
    assert pickle.loads(data).read(f"{PREFIX}/d") == b"1"
