"""Failing requests to object stores: what is repeated, what a failed creation has done, what the errors say."""

import itertools
import logging
import os
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cm_delta_dagster.errors import ObjectAlreadyExistsError, ObjectNotFoundError, StorageError, WriteRefusedError
from cm_delta_dagster.storage.fsspec_store import FsspecStore
from tests.support.fault_proxy import Effect, Fault, FaultProxy, fault_proxy
from tests.support.object_stores import azure_connection_string, gcs_options, make_bucket, s3_options
from tests.support.server_process import free_port

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
KEY = "AKIAIOSFODNN7EXAMPLE"
_CONNECTIONS = itertools.count(20)
"""Each number is in use once, since it makes other options, and so another server."""

DATA = b"x" * 2000


@pytest.fixture(scope="module")
def proxy(s3_endpoint: str) -> Iterator[FaultProxy]:
    with fault_proxy(s3_endpoint) as proxy:
        proxy.seconds = 1.5  # Longer than the store waits for an answer.
        yield proxy


@pytest.fixture(scope="module")
def store(proxy: FaultProxy) -> FsspecStore:
    options = {"endpoint_url": proxy.url, "key": KEY, "secret": SECRET, "config_kwargs": {"read_timeout": 1}}
    return FsspecStore("s3", options=options)


@pytest.fixture(scope="module")
def bucket(store: FsspecStore) -> str:
    name = f"b-{uuid.uuid4().hex}"
    make_bucket(store, name)
    store.write_if_absent(f"s3://{name}/first", b"the probe of the bucket was made")
    return f"s3://{name}"


@pytest.fixture
def place(bucket: str, proxy: FaultProxy) -> Iterator[str]:
    yield f"{bucket}/{uuid.uuid4().hex}"
    proxy.inject()
    proxy.hides_missing = False


IDEMPOTENT: dict[str, tuple[str, Callable[[FsspecStore, str], object]]] = {
    "read": ("GET", lambda store, place: store.read(f"{place}/x")),
    "read_range": ("GET", lambda store, place: store.read_range(f"{place}/x", offset=1, length=9)),
    "list_from": ("GET", lambda store, place: store.list_from(place)),
    "list_recursive": ("GET", lambda store, place: list(store.list_recursive(place))),
    "stat": ("HEAD", lambda store, place: store.stat(f"{place}/x")),
    "write": ("PUT", lambda store, place: store.write(f"{place}/x", DATA)),
    "delete": ("DELETE", lambda store, place: store.delete(f"{place}/x")),
}


@pytest.mark.parametrize(
    ("request_of", "status", "code"),
    [
        *((name, 503, "SlowDown") for name in IDEMPOTENT),
        ("read", 500, "InternalError"),
        ("read", 429, "TooManyRequests"),
        ("list_from", 429, "TooManyRequests"),
        ("write", 400, "BadDigest"),
        ("write", 400, "IncompleteBody"),
        ("write", 400, "RequestTimeout"),
    ],
)
def test_a_request_that_fails_twice_is_repeated(
    store: FsspecStore, proxy: FaultProxy, place: str, request_of: str, status: int, code: str
) -> None:
    method, act = IDEMPOTENT[request_of]
    store.write(f"{place}/x", DATA)
    expected = act(store, place)
    store.write(f"{place}/x", DATA)
    proxy.inject(Fault(effect=Effect.ANSWER_BEFORE, method=method, times=2, status=status, code=code))
    found = act(store, place)
    if request_of in ("read", "read_range"):
        assert found == expected
    assert proxy.count(method) == 3, "the attempts of the client library and of the store must not multiply"


@pytest.mark.parametrize("request_of", IDEMPOTENT)
@pytest.mark.parametrize(
    "effect", [Effect.RESET_BEFORE, Effect.RESET_AFTER, pytest.param(Effect.SILENT_AFTER, marks=pytest.mark.slow)]
)
def test_a_request_without_an_answer_is_repeated(
    store: FsspecStore, proxy: FaultProxy, place: str, request_of: str, effect: Effect
) -> None:
    method, act = IDEMPOTENT[request_of]
    store.write(f"{place}/x", DATA)
    proxy.inject(Fault(effect=effect, method=method))
    act(store, place)
    assert proxy.count(method) == 2
    assert [status.size for status in store.list_from(place)] == ([] if request_of == "delete" else [len(DATA)])


@pytest.mark.parametrize(
    "effect",
    [
        Effect.RESET_AFTER,
        Effect.TRUNCATED,
        Effect.SHORTENED,
        pytest.param(Effect.SILENT_AFTER, marks=pytest.mark.slow),
    ],
)
def test_a_read_whose_answer_is_lost_or_cut_is_repeated(
    store: FsspecStore, proxy: FaultProxy, place: str, effect: Effect
) -> None:
    store.write(f"{place}/x", DATA)
    proxy.inject(Fault(effect=effect, method="GET"))
    assert store.read(f"{place}/x") == DATA
    proxy.inject(Fault(effect=effect, method="GET"))
    assert store.read_range(f"{place}/x", offset=0, length=len(DATA)) == DATA


def test_a_body_that_differs_from_its_checksum_is_read_again(store: FsspecStore, proxy: FaultProxy, place: str) -> None:
    store.write_if_absent(f"{place}/x", DATA)
    proxy.inject(Fault(effect=Effect.ALTERED, method="GET"))
    assert store.read(f"{place}/x") == DATA
    assert proxy.count("GET") == 2


@pytest.mark.slow
def test_a_body_that_stays_different_from_its_checksum_is_an_error(
    store: FsspecStore, proxy: FaultProxy, place: str
) -> None:
    store.write(f"{place}/x", DATA)
    proxy.inject(Fault(effect=Effect.ALTERED, method="GET", times=100))
    with pytest.raises(StorageError, match="do not have the checksum that the store sent") as raised:
        store.read(f"{place}/x")
    assert f"{place}/x" in str(raised.value)


def test_another_etag_changes_nothing(store: FsspecStore, proxy: FaultProxy, place: str) -> None:
    """Nothing depends on ETags, which are no checksums where a store encrypts or copies."""
    for method in ("PUT", "GET", "HEAD"):
        proxy.inject(Fault(effect=Effect.OTHER_ETAG, method=method, times=100))
        location = f"{place}/{method}"
        store.write_if_absent(location, DATA)
        assert (store.read(location), store.stat(location).size) == (DATA, len(DATA))


def test_without_permission_to_list_a_missing_object_is_not_taken_for_absent(
    store: FsspecStore, proxy: FaultProxy, place: str
) -> None:
    """S3 then answers 403 and not 404. An empty listing or "not found" could be taken for an empty table."""
    store.write_if_absent(f"{place}/x", DATA)
    proxy.hides_missing = True
    assert store.read(f"{place}/x") == DATA
    acts = (
        store.read,
        store.stat,
        store.list_from,
        lambda at: list(store.list_recursive(at)),
        lambda at: store.read_range(at, offset=0, length=1),
    )
    for act in acts:
        with pytest.raises(StorageError, match=r"access is denied.*s3:ListBucket") as raised:
            act(f"{place}/missing")
        assert not isinstance(raised.value, ObjectNotFoundError) and f"{place}/missing" in str(raised.value)
    store.write_if_absent(f"{place}/y", DATA)
    with pytest.raises(ObjectAlreadyExistsError):
        store.write_if_absent(f"{place}/y", DATA)
    store.delete(f"{place}/missing")


@pytest.mark.slow
def test_a_body_that_stays_too_short_is_an_error_and_not_fewer_bytes(
    store: FsspecStore, proxy: FaultProxy, place: str
) -> None:
    store.write(f"{place}/x", DATA)
    proxy.inject(Fault(effect=Effect.TRUNCATED, method="GET", times=100))
    with pytest.raises(StorageError, match="did not answer completely"):
        store.read(f"{place}/x")


@pytest.mark.requirements("LOG-5")
@pytest.mark.parametrize(
    "effect",
    [
        Effect.ANSWER_BEFORE,
        Effect.ANSWER_AFTER,
        Effect.RESET_BEFORE,
        Effect.RESET_AFTER,
        pytest.param(Effect.SILENT_AFTER, marks=pytest.mark.slow),
    ],
)
def test_a_creation_with_an_unknown_outcome_succeeds_once(
    store: FsspecStore, proxy: FaultProxy, place: str, effect: Effect
) -> None:
    """Its own object is not taken for another writer's."""
    proxy.inject(Fault(effect=effect, method="PUT", times=2))
    store.write_if_absent(f"{place}/0.json", DATA)
    assert proxy.count("PUT") >= 2
    assert store.read(f"{place}/0.json") == DATA
    with pytest.raises(ObjectAlreadyExistsError):
        store.write_if_absent(f"{place}/0.json", DATA)


@pytest.mark.requirements("LOG-5")
@pytest.mark.parametrize("effect", [Effect.ANSWER_BEFORE, Effect.ANSWER_AFTER, Effect.RESET_AFTER])
def test_a_creation_with_an_unknown_outcome_does_not_take_the_object_of_another_writer(
    store: FsspecStore, proxy: FaultProxy, place: str, effect: Effect
) -> None:
    """Not even one with the same bytes."""
    store.write_if_absent(f"{place}/0.json", DATA)
    for data in (DATA, b"other"):
        proxy.inject(Fault(effect=effect, method="PUT", times=2))
        with pytest.raises(ObjectAlreadyExistsError):
            store.write_if_absent(f"{place}/0.json", data)
    assert store.read(f"{place}/0.json") == DATA


@pytest.mark.slow
def test_a_creation_that_never_gets_an_answer_says_that_its_outcome_is_unknown(
    store: FsspecStore, proxy: FaultProxy, place: str
) -> None:
    proxy.inject(Fault(effect=Effect.ANSWER_AFTER, method="PUT", times=100))
    with pytest.raises(StorageError, match="may have been written or not") as raised:
        store.write_if_absent(f"{place}/0.json", DATA)
    assert not isinstance(raised.value, ObjectAlreadyExistsError)
    proxy.inject()
    assert store.read(f"{place}/0.json") == DATA


REFUSAL = Fault(effect=Effect.ANSWER_BEFORE, method="PUT", status=403, code="ExpiredToken", times=100)


def test_a_creation_whose_first_request_is_refused_says_that_nothing_was_written(
    store: FsspecStore, proxy: FaultProxy, place: str
) -> None:
    proxy.inject(REFUSAL)
    with pytest.raises(WriteRefusedError, match=r"credentials have expired.* Nothing was written\.$"):
        store.write_if_absent(f"{place}/0.json", DATA)
    proxy.inject()
    assert store.list_from(place) == []


@pytest.mark.parametrize("effect", [Effect.ANSWER_AFTER, Effect.RESET_AFTER, Effect.RESET_BEFORE])
def test_a_creation_that_is_refused_after_a_lost_answer_says_that_its_outcome_is_unknown(
    store: FsspecStore, proxy: FaultProxy, place: str, effect: Effect
) -> None:
    """Also if the connection was in use before, where the client library would send the request again by itself."""
    store.write(f"{place}/warm", DATA)
    proxy.inject(Fault(effect=effect, method="PUT"), REFUSAL)
    with pytest.raises(StorageError, match=r"credentials have expired.*may have been written or not") as raised:
        store.write_if_absent(f"{place}/0.json", DATA)
    assert not isinstance(raised.value, WriteRefusedError)
    proxy.inject()
    created = effect is not Effect.RESET_BEFORE
    assert [status.name for status in store.list_from(place)] == ([*["0.json"] * created, "warm"])


def test_a_creation_whose_object_cannot_be_looked_at_says_that_its_outcome_is_unknown(
    store: FsspecStore, proxy: FaultProxy, place: str
) -> None:
    denied = Fault(effect=Effect.ANSWER_BEFORE, method="HEAD", status=403, code="AccessDenied", times=100)
    proxy.inject(Fault(effect=Effect.ANSWER_AFTER, method="PUT"), denied)
    with pytest.raises(StorageError, match=r"access is denied.*may have been written or not") as raised:
        store.write_if_absent(f"{place}/0.json", DATA)
    assert not isinstance(raised.value, WriteRefusedError)


def test_a_client_that_repeats_requests_by_itself_cannot_say_that_nothing_was_written(
    store: FsspecStore, proxy: FaultProxy, place: str
) -> None:
    repeating = FsspecStore("s3", options={**store.options, "config_kwargs": {"retries": {"total_max_attempts": 2}}})
    repeating.write_if_absent(f"{place}/first", DATA)
    proxy.inject(REFUSAL)
    with pytest.raises(StorageError, match="credentials have expired") as raised:
        repeating.write_if_absent(f"{place}/0.json", DATA)
    assert not isinstance(raised.value, WriteRefusedError)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(effect=Effect.ANSWER_BEFORE), marks=pytest.mark.slow, id="busy"),
        pytest.param(Fault(effect=Effect.RESET_AFTER), marks=pytest.mark.slow, id="reset"),
        pytest.param(
            Fault(effect=Effect.ANSWER_BEFORE, method="DELETE", status=403, code="AccessDenied"), id="no deletion"
        ),
    ],
)
def test_a_fault_at_a_request_of_the_probe_does_not_fail_the_write(
    store: FsspecStore, proxy: FaultProxy, place: str, fault: Fault
) -> None:
    for number in range(1 if fault.method else 3):
        # The options differ, so that each store is another server, for which the process makes the probe again.
        config = {**store.options.get("config_kwargs", {}), "max_pool_connections": next(_CONNECTIONS)}
        fresh = FsspecStore("s3", options={**store.options, "config_kwargs": config})
        proxy.inject(replace(fault, path=".cm-delta-probe-", skip=number))
        fresh.write_if_absent(f"{place}/{number}", DATA)
        assert proxy.count("PUT") >= 3 and store.read(f"{place}/{number}") == DATA


def test_a_request_that_is_rejected_without_a_reason_says_what_it_may_be(
    store: FsspecStore, proxy: FaultProxy, place: str
) -> None:
    """The answer to HEAD has no body."""
    proxy.inject(Fault(effect=Effect.ANSWER_BEFORE, method="HEAD", status=400, code="ExpiredToken", times=9))
    with pytest.raises(StorageError, match=r"gave no reason, as for credentials that have expired") as raised:
        store.stat(f"{place}/x")
    # botocore itself asks once more, for the region of the bucket.
    assert proxy.count("HEAD") <= 2 and not isinstance(raised.value, ObjectNotFoundError)


@pytest.mark.requirements("LOG-5")
def test_another_conditional_write_in_progress_is_waited_for(store: FsspecStore, proxy: FaultProxy, place: str) -> None:
    proxy.inject(
        Fault(effect=Effect.ANSWER_BEFORE, method="PUT", times=2, status=409, code="ConditionalRequestConflict")
    )
    store.write_if_absent(f"{place}/0.json", DATA)
    assert store.read(f"{place}/0.json") == DATA


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "InvalidAccessKeyId", "does not accept the credentials"),
        (403, "SignatureDoesNotMatch", "does not accept the credentials"),
        (403, "AccessDenied", "access is denied"),
        (400, "ExpiredToken", "credentials have expired"),
        (301, "PermanentRedirect", "is in another region"),
        (400, "AuthorizationHeaderMalformed", "is in another region"),
        (404, "NoSuchBucket", "does not exist. Create it"),
        (403, "RequestTimeTooSkewed", "Set the clock of this machine"),
        (403, "QuotaExceeded", "the store is full, or a quota is used up. Free space"),
        (507, "XMinioStorageFull", "the store is full, or a quota is used up. Free space"),
        (405, "MethodNotAllowed", "probably it is not an object store. Check the endpoint"),
        (418, "Teapot", "the request failed"),
    ],
)
def test_each_refusal_has_its_own_error_without_secrets(
    store: FsspecStore, proxy: FaultProxy, place: str, status: int, code: str, message: str
) -> None:
    """The answers of AWS; moto has one region, and accepts every key."""
    for method, act in (("GET", store.read), ("PUT", lambda at: store.write(at, DATA))):
        proxy.inject(Fault(effect=Effect.ANSWER_BEFORE, method=method, status=status, code=code, times=3))
        with pytest.raises(StorageError, match=message) as raised:
            act(f"{place}/x")
        assert not isinstance(raised.value, ObjectNotFoundError)
        shown = "".join(traceback.format_exception(raised.value))
        assert place in shown and SECRET not in shown and KEY not in shown
        # botocore itself asks once more after the address of another region.
        assert proxy.count(method) <= (2 if status == 301 else 1)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3", "abfss", "gs"])
def test_a_server_that_does_not_run_is_named_as_that(scheme: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    options: dict[str, dict[str, object]] = {
        "s3": s3_options(url),
        "abfss": {"connection_string": azure_connection_string(url)},
        "gs": gcs_options(url),
    }
    store = FsspecStore(scheme, options=options[scheme])
    with pytest.raises(StorageError, match="no connection to the store can be made"):
        store.read(f"{scheme}://bucket/x")


def test_no_credentials_at_all_are_not_called_wrong(
    s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, f"{tmp_path}/none")
    store = FsspecStore("s3", options={"endpoint_url": s3_endpoint})
    with pytest.raises(WriteRefusedError, match="there are no credentials, neither in storage_options nor in the env"):
        store.write_if_absent("s3://bucket/x", DATA)


@pytest.mark.parametrize(("key", "secret"), [("k\n", "s"), ("k\x01", "s")])
def test_a_key_of_the_environment_with_a_control_character_is_an_error_without_retries(
    key: str,
    secret: str,
    proxy: FaultProxy,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    store = FsspecStore("s3", options={"endpoint_url": proxy.url})
    message = r"a credential has a line break or another control character\. Remove it"
    with caplog.at_level(logging.DEBUG), pytest.raises(WriteRefusedError, match=message):
        store.write_if_absent(f"{bucket}/x", DATA)
    assert "is repeated" not in caplog.text


def test_a_web_server_is_not_taken_for_an_object_store() -> None:
    """Also if its answers are pages in HTML."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = b"<html><body>405 Not Allowed</body></html>"
            self.send_response(405)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_PUT = do_HEAD = do_GET  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store = FsspecStore("s3", options=s3_options(f"http://127.0.0.1:{server.server_port}"))
        for act in (lambda: store.read("s3://b/x"), lambda: store.write_if_absent("s3://b/x", DATA)):
            with pytest.raises(StorageError, match="probably it is not an object store"):
                act()
        server.shutdown()


@pytest.fixture(params=[pytest.param("azure", marks=pytest.mark.slow), "gcs"])
def other(request: pytest.FixtureRequest) -> Iterator[tuple[FaultProxy, FsspecStore, str, str]]:
    """A proxy, the store behind it, a bucket in which the probe was made, and the method of a creation."""
    is_azure = request.param == "azure"
    if is_azure:
        account = request.getfixturevalue("azurite").rpartition("BlobEndpoint=")[2].rpartition("/")[0]
        target, method, scheme = account, "PUT", "abfss"
    else:
        target, method, scheme = request.getfixturevalue("gcs_endpoint"), "POST", "gs"
    with fault_proxy(target) as proxy:
        options = {"connection_string": azure_connection_string(proxy.url)} if is_azure else gcs_options(proxy.url)
        store = FsspecStore(scheme, options=options)
        name = f"b-{uuid.uuid4().hex}"
        make_bucket(store, name)
        store.write_if_absent(f"{scheme}://{name}/first", b"x")
        yield proxy, store, f"{scheme}://{name}", method


def test_a_refusal_is_definite_only_where_the_client_sends_one_request(
    other: tuple[FaultProxy, FsspecStore, str, str],
) -> None:
    """aiohttp may repeat PUT, which Azure takes, and not POST, which Google Cloud Storage takes."""
    proxy, store, bucket, method = other
    proxy.inject(Fault(effect=Effect.ANSWER_BEFORE, method=method, status=403, code="Denied", times=100))
    with pytest.raises(StorageError) as raised:
        store.write_if_absent(f"{bucket}/refused", DATA)
    assert isinstance(raised.value, WriteRefusedError) is (method == "POST")


@pytest.mark.requirements("LOG-5")
def test_other_stores_repeat_and_recognise_their_own_objects_too(
    other: tuple[FaultProxy, FsspecStore, str, str],
) -> None:
    proxy, store, bucket, method = other
    for effect in (Effect.ANSWER_BEFORE, Effect.ANSWER_AFTER, Effect.RESET_AFTER):
        location = f"{bucket}/{effect.name}"
        proxy.inject(Fault(effect=effect, method=method))
        store.write_if_absent(location, DATA)
        proxy.inject(Fault(effect=effect, method=method))
        with pytest.raises(ObjectAlreadyExistsError):
            store.write_if_absent(location, DATA)
        for get in (Effect.ANSWER_BEFORE, Effect.TRUNCATED):
            proxy.inject(Fault(effect=get, method="GET"))
            assert store.read(location) == DATA
            assert proxy.count("GET") == 2
