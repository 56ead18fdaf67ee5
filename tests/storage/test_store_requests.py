"""Which requests a store sends to S3, and that they have the effect of those that it does not send."""

import uuid
from collections.abc import Iterator

import pytest

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.support.object_stores import make_bucket, s3_options
from tests.support.recording_proxy import Kind, RecordingProxy


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[RecordingProxy]:
    with RecordingProxy(s3_endpoint) as running:
        yield running


@pytest.fixture
def root(s3_endpoint: str) -> str:
    name = f"b-{uuid.uuid4().hex}"
    make_bucket(FsspecStore("s3", options=s3_options(s3_endpoint)), name)
    return f"s3://{name}"


def kinds(proxy: RecordingProxy) -> list[Kind]:
    found = [request.kind for request in proxy.requests()]
    proxy.clear()
    return found


@pytest.mark.requirements("LOG-5")
def test_a_process_makes_one_probe_in_a_bucket(proxy: RecordingProxy, root: str) -> None:
    for number in range(3):
        store = FsspecStore("s3", options=s3_options(proxy.url))
        store.write_if_absent(f"{root}/{number}", b"x")
    creations, deletion = [Kind.CONDITIONAL_PUT] * 2, [Kind.DELETE]
    assert kinds(proxy) == [*creations, *deletion, *[Kind.CONDITIONAL_PUT] * 3]
    assert [status.name for status in store.list_from(root)] == ["0", "1", "2"]


def test_other_options_are_another_server(proxy: RecordingProxy, root: str) -> None:
    FsspecStore("s3", options=s3_options(proxy.url)).write_if_absent(f"{root}/a", b"x")
    proxy.clear()
    FsspecStore("s3", options={**s3_options(proxy.url), "key": "other"}).write_if_absent(f"{root}/b", b"x")
    assert kinds(proxy) == [Kind.CONDITIONAL_PUT, Kind.CONDITIONAL_PUT, Kind.DELETE, Kind.CONDITIONAL_PUT]


def test_a_listing_takes_one_request_for_a_thousand_objects(proxy: RecordingProxy, root: str) -> None:
    store = FsspecStore("s3", options=s3_options(proxy.url))
    for name in ("00.json", "09.json", "10.json", "11.json", "sub/12.json"):
        store.write(f"{root}/t/{name}", b"x")
    store.write(f"{root}/t2/13.json", b"x")
    proxy.clear()
    assert [status.name for status in store.list_from(f"{root}/t")] == ["00.json", "09.json", "10.json", "11.json"]
    assert [status.name for status in store.list_from(f"{root}/t", start="10.json")] == ["10.json", "11.json"]
    assert [status.name for status in store.list_from(f"{root}/t", start="1")] == ["10.json", "11.json"]
    assert [status.name for status in store.list_from(f"{root}/t", start="12")] == []
    assert len(list(store.list_recursive(f"{root}/t"))) == 5
    assert store.list_from(f"{root}/missing") == [] and list(store.list_recursive(f"{root}/missing")) == []
    assert kinds(proxy) == [Kind.LIST] * 7


@pytest.mark.requirements("LOG-18")
def test_a_listing_of_many_objects_is_complete_and_in_order(proxy: RecordingProxy, root: str) -> None:
    store = FsspecStore("s3", options={**s3_options(proxy.url)})
    backend = pytest.importorskip("moto.s3.models").s3_backends["123456789012"]["aws"]
    names = [f"{number:06d}.json" for number in range(1050)]
    for name in names:
        backend.put_object(root.removeprefix("s3://"), f"t/{name}", b"x", disable_notification=True)
    assert [status.name for status in store.list_from(f"{root}/t")] == names
    assert kinds(proxy) == [Kind.LIST] * 2
    assert [status.name for status in store.list_from(f"{root}/t", start=names[500])] == names[500:]
    assert kinds(proxy) == [Kind.LIST]
