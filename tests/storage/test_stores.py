"""The registry of stores."""

import pickle

import pytest

from cm_delta_dagster.errors import StoreNotSupportedError
from cm_delta_dagster.storage.local_store import LocalStore
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.stores import Stores

S3_OPTIONS = StorageOptions.of({"key": "k", "secret": "s"}, warehouse="s3://bucket/w")


def test_each_scheme_has_one_store() -> None:
    stores = Stores()
    assert isinstance(stores.store_for("file:///x"), LocalStore)
    assert isinstance(stores.store_for("/x"), LocalStore)
    assert isinstance(stores.store_for("memory://x"), MemoryStore)
    assert stores.store_for("memory://x") is stores.store_for("MEMORY://y")


def test_two_registries_do_not_share_memory() -> None:
    assert Stores().store_for("memory://x") is not Stores().store_for("memory://x")


def test_a_given_store_replaces_the_built_in_one() -> None:
    mine = MemoryStore()
    assert Stores({"file": mine, "own": mine}).store_for("own://x") is mine


@pytest.mark.parametrize("location", ["ftp://host/x", "relative/path", "", "x", "git+s3://y"])
def test_a_location_without_a_store_is_refused(location: str) -> None:
    with pytest.raises(StoreNotSupportedError):
        Stores().store_for(location)


@pytest.mark.requirements("STREAM-5")
def test_a_store_is_pickled_with_its_options() -> None:
    """The other process creates its own file system; a memory store cannot be pickled."""
    pytest.importorskip("s3fs")
    store = Stores(storage_options=S3_OPTIONS).store_for("s3://bucket/x")
    there = pickle.loads(pickle.dumps(store))
    assert there is not store
    assert (there._filesystem.key, there._filesystem.secret) == ("k", "s")
    assert isinstance(pickle.loads(pickle.dumps(LocalStore())), LocalStore)
    with pytest.raises(TypeError):
        pickle.dumps(MemoryStore())
