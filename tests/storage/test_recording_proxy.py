"""The proxy that counts requests in other tests: what it records is what the clients sent."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.support.object_stores import make_bucket, s3_options
from tests.support.recording_proxy import Caller, Kind, RecordingProxy, caller_of, classify, longest_chain

_LATENCY_S = 0.05


def test_each_request_is_recorded_once_with_its_kind_and_caller(s3_endpoint: str) -> None:
    with RecordingProxy(s3_endpoint) as proxy:
        store = FsspecStore("s3", options=s3_options(proxy.url))
        make_bucket(store, "recorded")
        store.write_if_absent("s3://recorded/probe", b"")
        proxy.clear()
        store.write("s3://recorded/a b", b"123456")
        store.write_if_absent("s3://recorded/new", b"x")
        assert store.read("s3://recorded/a b") == b"123456"
        assert store.read_range("s3://recorded/a b", offset=2, length=3) == b"345"
        store.stat("s3://recorded/a b")
        store.list_from("s3://recorded")
        store.delete("s3://recorded/new")
        found = proxy.requests()
    assert [(request.kind, request.key) for request in found] == [
        (Kind.PUT, "recorded/a b"),
        (Kind.CONDITIONAL_PUT, "recorded/new"),
        (Kind.GET, "recorded/a b"),
        (Kind.RANGED_GET, "recorded/a b"),
        (Kind.HEAD, "recorded/a b"),
        (Kind.LIST, "recorded"),
        (Kind.DELETE, "recorded/new"),
    ]
    assert {request.caller for request in found} == {Caller.LOG_CLIENT}
    assert [request.status for request in found] == [200, 200, 200, 206, 200, 200, 204]
    assert (found[0].sent_bytes, found[2].received_bytes, found[3].received_bytes) == (6, 6, 3)
    assert longest_chain(found) == len(found)


def test_latency_delays_parallel_requests_at_the_same_time(s3_endpoint: str) -> None:
    with RecordingProxy(s3_endpoint, latency_s=_LATENCY_S) as proxy:
        store = FsspecStore("s3", options=s3_options(proxy.url))
        make_bucket(store, "delayed")
        store.write("s3://delayed/one", b"1")
        proxy.clear()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: store.read("s3://delayed/one"), range(4)))
        found = proxy.requests()
        assert len(found) == 4
        assert all(request.end_s is not None and request.end_s - request.begin_s >= _LATENCY_S for request in found)


@pytest.mark.parametrize(
    ("method", "target", "headers", "kind", "key"),
    [
        ("GET", "/b?list-type=2&prefix=t%2F_delta_log%2F&delimiter=%2F", {}, Kind.LIST, "b/t/_delta_log/"),
        ("GET", "/b/?uploads", {}, Kind.LIST_UPLOADS, "b"),
        ("GET", "/b/k", {"range": "bytes=-8"}, Kind.RANGED_GET, "b/k"),
        ("PUT", "/b/k?partNumber=1&uploadId=u", {}, Kind.UPLOAD_PART, "b/k"),
        ("PUT", "/b/k", {"x-amz-copy-source": "b/j"}, Kind.COPY, "b/k"),
        ("POST", "/b/k?uploads", {}, Kind.CREATE_UPLOAD, "b/k"),
        ("POST", "/b/k?uploadId=u", {}, Kind.COMPLETE_UPLOAD, "b/k"),
        ("DELETE", "/b/k?uploadId=u", {}, Kind.ABORT_UPLOAD, "b/k"),
        ("POST", "/b/?delete", {}, Kind.DELETE_MANY, "b"),
        ("HEAD", "/b", {}, Kind.HEAD, "b"),
    ],
)
def test_kinds_of_requests(method: str, target: str, headers: dict[str, str], kind: Kind, key: str) -> None:
    assert classify(method, target, headers) == (kind, key)


@pytest.mark.parametrize(
    ("agent", "caller"),
    [
        ("Botocore/1.40.1 ua/2.1 os/linux", Caller.LOG_CLIENT),
        ("Hadoop 3.5.0 aws-sdk-java/2.35.4 md/io#sync", Caller.S3A),
        ("object_store/0.12.4", Caller.OBJECT_STORE),
        ("curl/8.0", Caller.OTHER),
    ],
)
def test_callers(agent: str, caller: Caller) -> None:
    assert caller_of(agent) is caller
