"""Requests that no client of ours sends: each gets the error form of its API, and changes nothing."""

from typing import Any

import httpx
import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.server.wires import NATIVE_PATH, UNITY_DELTA_PATH, UNITY_PATH
from tests.contracts.catalog_bench import NAME, Clock, create
from tests.support.live_server import LiveServer, live_server
from tests.support.waiting_request import waiting_request

TABLE = f"{UNITY_DELTA_PATH}/catalogs/main/schemas/sales/tables/orders"


def has_form_of(path: str, answer: httpx.Response) -> bool:
    """Whether the answer is an error in the form of the API that the path is below."""
    body: Any = answer.json()
    if path.startswith(UNITY_DELTA_PATH):
        return set(body) == {"error"} and {"message", "type", "code"} <= set(body["error"])
    if path.startswith(UNITY_PATH):
        return {"error_code", "message", "details"} <= set(body)
    return set(body) == {"error"} and {"kind", "message"} <= set(body["error"])


@pytest.mark.parametrize("prefix", [NATIVE_PATH, UNITY_PATH, UNITY_DELTA_PATH])
@pytest.mark.parametrize(
    "path", ["", "/", "/nothing", "/x%2Fy", "/%2e%2e/%2e%2e/etc/passwd", "/x%00", "/%ff", "/a.b.c.d.e", "/x" * 1000]
)
def test_a_path_that_is_not_served_is_answered_in_the_form_of_its_api(
    server: LiveServer, prefix: str, path: str
) -> None:
    headers = server.headers_of("ana")
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        url = httpx.URL(server.url).copy_with(raw_path=f"{prefix}{path}".encode())
        answer = httpx.request(method, url, headers=headers)
        assert answer.status_code in (400, 404, 405), (method, answer.text)
        assert has_form_of(prefix, answer)


@pytest.mark.parametrize(
    ("content_type", "named"),
    [
        ({"Content-Type": "text/plain"}, "'text/plain'"),
        ({"Content-Type": "application/x-ndjson"}, "ndjson"),
        ({}, "missing"),
    ],
)
@pytest.mark.parametrize("path", [f"{UNITY_PATH}/schemas", TABLE])
def test_a_body_that_is_not_said_to_be_json_is_refused_by_its_content_type(
    server: LiveServer, path: str, content_type: dict[str, str], named: str
) -> None:
    headers = server.headers_of("ana") | content_type
    answer = httpx.post(f"{server.url}{path}", headers=headers, content=b'{"name": "s", "catalog_name": "main"}')
    assert answer.status_code == 400 and has_form_of(path, answer)
    assert "The content type of the request is" in answer.text and named in answer.text


def test_the_content_type_is_not_blamed_for_what_is_wrong_in_json(server: LiveServer) -> None:
    headers = server.headers_of("ana") | {"Content-Type": "application/json; charset=utf-8"}
    answer = httpx.post(f"{server.url}{UNITY_PATH}/schemas", headers=headers, content=b'{"name": 5}')
    assert answer.status_code == 400 and "content type" not in answer.text


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b'{"updates": 5}', b'{"a":' * 90 + b"1" + b"}" * 90]
)
def test_a_body_that_is_not_what_the_api_takes_is_refused(server: LiveServer, body: bytes) -> None:
    with server.catalog() as catalog:
        table_id = create(catalog).table_id
    headers = {**server.headers_of("ana"), "Content-Type": "application/json"}
    for path in (TABLE, f"{UNITY_PATH}/schemas", f"{NATIVE_PATH}/coordinator/commit"):
        answer = httpx.post(f"{server.url}{path}", content=body, headers=headers)
        assert answer.status_code == 400, (path, answer.text)
        assert has_form_of(path, answer)
    with server.catalog() as catalog:
        assert catalog.coordinator.get_ratified_commits(table_id).latest_version == 0
        assert catalog.registry.list_tables() == (NAME,)


def test_a_token_that_expires_during_a_request_serves_no_other(server_settings: ServerSettings) -> None:
    clock = Clock()
    with live_server(server_settings, now_ms=clock) as server:
        with server.catalog(owner="owner") as catalog:
            token = catalog.tokens.create_token("ana", expires_in_ms=3_600_000)
            assert token.token.expires_ms is not None
            clock.now = token.token.expires_ms - 1
        headers = {"Authorization": f"Bearer {token.secret}"}
        url = f"{server.url}{UNITY_PATH}/schemas?catalog_name=main"
        first = httpx.get(url, headers=headers)
        assert first.status_code != 401
        with waiting_request(server, f"{UNITY_PATH}/wait", headers) as answers:
            clock.now += 1
            assert httpx.get(url, headers=headers).status_code == 401
        assert answers[0].status_code == 200


def test_the_caller_of_a_read_only_token_is_refused_in_the_form_of_each_api(server: LiveServer) -> None:
    with server.catalog(owner="owner") as catalog:
        create(catalog)
        catalog.access.grant([Privilege.OWN], "main", "ana")
    headers = server.headers_of("ana", read_only=True)
    new_schema = {"name": "new", "catalog_name": "main"}
    unity = httpx.post(f"{server.url}{UNITY_PATH}/schemas", json=new_schema, headers=headers)
    assert (unity.status_code, unity.json()["error_code"]) == (403, "PERMISSION_DENIED")
    native_path = f"{server.url}{NATIVE_PATH}/namespaces/create_namespace"
    native = httpx.post(native_path, json={"name": "main.new"}, headers=headers)
    assert native.status_code == 403 and native.json()["error"]["kind"] == "OperationRefusedError"
    delta = httpx.delete(f"{server.url}{TABLE}", headers=headers)
    assert (delta.status_code, delta.json()["error"]["type"]) == (403, "PermissionDeniedException")
    assert "is read-only" in unity.text and "is read-only" in native.text and "is read-only" in delta.text
    with server.catalog() as catalog:
        assert [schema.name for schema in catalog.namespaces.list_schemas()] == ["main.sales"]
        assert catalog.registry.list_tables() == (NAME,)
