"""The empty objects that stand for directories, which Spark's clients of object stores create."""

import uuid

import pytest

from cm_delta_dagster.storage.discard import discard_below, in_order_of_deletion
from cm_delta_dagster.storage.fsspec_store import FsspecStore
from cm_delta_dagster.storage.store import ObjectStatus
from tests.support.fault_proxy import Effect, Fault, fault_proxy
from tests.support.object_stores import azure_connection_string, make_bucket, make_directory, object_store


@pytest.fixture(params=["s3", "gofakes3", "azure", "gcs"])
def store_and_root(request: pytest.FixtureRequest) -> tuple[FsspecStore, str]:
    store = object_store(request.param, request)
    name = f"b-{uuid.uuid4().hex}"
    make_bucket(store, name)
    return store, f"{store._scheme}://{name}/root"


def shown(store: FsspecStore, root: str) -> list[str]:
    return [found.location.removeprefix(f"{root}/") for found in store.list_recursive(root, with_directories=True)]


def test_directories_are_listed_on_demand_and_deleted(store_and_root: tuple[FsspecStore, str]) -> None:
    store, root = store_and_root
    store.write(f"{root}/a/x", b"x")
    for name in ("a/", "b/", "b/c d/", "b/c d/e/"):
        make_directory(store, f"{root}/{name}")
    assert [found.location for found in store.list_recursive(root)] == [f"{root}/a/x"]
    assert [found.location for found in store.list_from(f"{root}/a")] == [f"{root}/a/x"]
    listed = list(store.list_recursive(root, with_directories=True))
    assert [found.location for found in listed] == [
        f"{root}/{name}" for name in ("a/", "a/x", "b/", "b/c d/", "b/c d/e/")
    ]
    assert all(found.modification_time > 0 for found in listed)
    assert [found.size for found in listed] == [0, 1, 0, 0, 0]
    for _ in range(2):
        store.delete(f"{root}/b/c d/e/")
    assert shown(store, root) == ["a/", "a/x", "b/", "b/c d/"]
    discard_below(store, f"{root}/b")
    assert shown(store, root) == ["a/", "a/x", "b/"]
    assert store.read(f"{root}/a/x") == b"x"


def test_directories_are_deleted_after_what_is_in_them() -> None:
    names = ["a/", "a/b/", "a/b/x", "a.x", "c/"]
    listed = [ObjectStatus(location=f"s3://b/{name}", size=0, modification_time=1) for name in names]
    ordered = [status.location.removeprefix("s3://b/") for status in in_order_of_deletion(listed)]
    assert ordered == ["a.x", "a/b/x", "c/", "a/b/", "a/"]


@pytest.mark.slow
def test_a_directory_that_azure_keeps_because_it_is_not_empty_is_no_error(azurite: str) -> None:
    """Accounts with a hierarchical namespace answer so; the emulator has none, so a proxy does."""
    with fault_proxy(azurite.rpartition("BlobEndpoint=")[2].rpartition("/")[0]) as proxy:
        store = FsspecStore("abfss", options={"connection_string": azure_connection_string(proxy.url)})
        name = f"b-{uuid.uuid4().hex}"
        make_bucket(store, name)
        make_directory(store, f"abfss://{name}/a/")
        proxy.inject(Fault(effect=Effect.ANSWER_BEFORE, method="DELETE", status=409, code="DirectoryIsNotEmpty"))
        store.delete(f"abfss://{name}/a/")
        assert proxy.count("DELETE") == 1
        assert shown(store, f"abfss://{name}") == ["a/"]
        store.delete(f"abfss://{name}/a/")
        assert shown(store, f"abfss://{name}") == []
