"""Limits of requests, over HTTP: size and depth of bodies, requests of a token, at the same time, and the time of one."""

import json
import random
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import Request

from cm_delta_dagster.server.limits import exceeds_depth
from cm_delta_dagster.server.rates import RateLimit
from cm_delta_dagster.server.request_errors import TooManyRequestsError
from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.server.wires import NATIVE_PATH, UNITY_DELTA_PATH, UNITY_PATH
from tests.support.live_server import LiveServer, live_server

SCHEMAS = f"{UNITY_PATH}/schemas"


@pytest.fixture
def server(server_settings: ServerSettings) -> Iterator[LiveServer]:
    changed = {"max_body_bytes": 4096, "max_json_depth": 20, "max_requests_per_minute": 5}
    with live_server(server_settings.model_copy(update=changed)) as live:
        yield live


@pytest.mark.parametrize("path", [f"{NATIVE_PATH}/x", SCHEMAS, f"{UNITY_DELTA_PATH}/x"])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(server: LiveServer, path: str) -> None:
    def chunks() -> Iterator[bytes]:
        yield from (b"x" * 1000 for _ in range(10))

    for body in (b"x" * 4097, chunks()):
        answer = httpx.post(f"{server.url}{path}", content=body)
        assert answer.status_code == 413 and "larger than 4096 bytes" in answer.text
    # Only the head is sent: the answer does not wait for the body.
    assert _raw(server, f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n").startswith(
        "HTTP/1.1 413"
    )
    assert _raw(server, f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1e3\r\n\r\n").startswith("HTTP/1.1 400")


def test_a_body_with_ten_thousand_levels_is_refused(server_settings: ServerSettings) -> None:
    with live_server(server_settings) as server:
        for deep in ("[" * 10_000 + "]" * 10_000, '{"a":' * 10_000 + "1" + "}" * 10_000, "[" * 101):
            answer = httpx.post(f"{server.url}{SCHEMAS}", content=deep, headers=server.headers_of("ana"))
            assert answer.status_code == 400 and "more than 100 levels" in answer.json()["message"]


def test_the_depth_of_a_text_is_that_of_its_arrays_and_objects() -> None:
    assert not exceeds_depth(b"[" * 7 + b"]" * 7, 7) and exceeds_depth(b"[" * 8, 7)
    assert not exceeds_depth(b"[{}," * 3 + b"[]" + b"]" * 3, 4) and exceeds_depth(b"[{}," * 3 + b"[]" + b"]" * 3, 3)
    assert not exceeds_depth(json.dumps(["[" * 50, '\\"[[[[', "{" * 9]).encode(), 1)
    assert exceeds_depth(b'["\\\\",[[["\\"]"]]]]', 3) and not exceeds_depth(b'["\\\\",[[["\\"]"]]]]', 4)
    chooser = random.Random(7)
    large = json.dumps([[chooser.choice(['\\"', "[", "{}", "\\\\", "x" * 9]) for _ in range(9)] for _ in range(60_000)])
    assert len(large) > 2**21 and not exceeds_depth(large.encode(), 2) and exceeds_depth(large.encode(), 1)


def test_a_token_makes_a_number_of_requests_in_a_minute(server: LiveServer) -> None:
    headers, others = server.headers_of("ana"), server.headers_of("ana")
    codes = [httpx.get(f"{server.url}{SCHEMAS}?catalog_name=main", headers=headers).status_code for _ in range(7)]
    assert 429 not in codes[:5] and codes[5:] == [429, 429]
    refused = httpx.get(f"{server.url}{SCHEMAS}?catalog_name=main", headers=headers)
    assert refused.json()["error_code"] == "RESOURCE_EXHAUSTED" and refused.headers["retry-after"] == "60"
    assert httpx.get(f"{server.url}{SCHEMAS}?catalog_name=main", headers=others).status_code != 429


def test_a_minute_of_a_token_begins_with_its_first_request() -> None:
    now = 100.0
    limit = RateLimit(2, clock=lambda: now)
    for _ in range(3):
        for caller in ("token a", "token a", "principal a"):
            limit.count(caller)
        with pytest.raises(TooManyRequestsError, match="The token a has made 2 requests in a minute"):
            limit.count("token a")
        now += 60


def test_requests_above_the_number_at_the_same_time_are_refused_and_health_is_not(
    server_settings: ServerSettings,
) -> None:
    entered, released = threading.Event(), threading.Event()

    def wait() -> dict[str, str]:
        entered.set()
        assert released.wait(300)
        return {}

    with live_server(server_settings.model_copy(update={"max_concurrent_requests": 1})) as server:
        server.app.add_api_route(f"{UNITY_PATH}/wait", wait)
        answers: list[httpx.Response] = []
        waiting = threading.Thread(
            target=lambda: answers.append(httpx.get(f"{server.url}{UNITY_PATH}/wait", timeout=300))
        )
        waiting.start()
        assert entered.wait(300)
        refused = httpx.get(f"{server.url}{SCHEMAS}")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert httpx.get(f"{server.url}/health/ready").status_code == 200
        released.set()
        waiting.join()
        assert answers[0].status_code == 200
        assert httpx.get(f"{server.url}{SCHEMAS}").status_code == 401


def test_a_request_that_takes_too_long_is_answered_and_ends_on_its_own(server_settings: ServerSettings) -> None:
    released, ended = threading.Event(), threading.Event()

    def wait() -> None:
        assert released.wait(300)
        ended.set()

    with live_server(server_settings.model_copy(update={"request_seconds": 0.2})) as server:
        server.app.add_api_route(f"{UNITY_DELTA_PATH}/wait", wait)
        answer = httpx.get(f"{server.url}{UNITY_DELTA_PATH}/wait", timeout=300)
        assert answer.status_code == 504 and not ended.is_set()
        assert answer.json()["error"]["type"] == "CommitStateUnknownException"
        assert "Whether the request took effect is unknown" in answer.json()["error"]["message"]
        released.set()
        assert ended.wait(300)


def test_a_body_that_does_not_arrive_is_not_waited_for(server_settings: ServerSettings) -> None:
    with live_server(server_settings.model_copy(update={"request_seconds": 0.2})) as server:
        answer = _raw(server, f"POST {SCHEMAS} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{{")
        assert answer.startswith("HTTP/1.1 408") and "did not arrive within 0.2 seconds" in answer


@pytest.mark.parametrize(
    "head",
    [
        "GET /health/live HTTP/1.0\r\n",
        "GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        "HTTP2-Settings: AAMAAABkAAQ\r\n",
        "GET /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n",
    ],
)
def test_old_and_hopeful_clients_are_served_with_http_1(server: LiveServer, head: str) -> None:
    answer = _raw(server, f"{head}Connection: close\r\n\r\n" if "Upgrade" not in head else f"{head}\r\n")
    assert answer.startswith("HTTP/1.1 200") and answer.endswith('{"status":"live"}')


def test_an_error_that_is_not_expected_shows_nothing_and_is_logged_once(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: Request) -> None:
        raise RuntimeError("the password is hunter2")

    server.app.add_api_route(f"{UNITY_DELTA_PATH}/fail", fail)
    answer = httpx.get(f"{server.url}{UNITY_DELTA_PATH}/fail", headers={"X-Request-Id": "job-1"})
    expected: dict[str, Any] = {"type": "InternalServerErrorException", "code": 500}
    message = answer.json()["error"].pop("message")
    assert answer.status_code == 500 and answer.json()["error"] | expected == answer.json()["error"]
    assert "job-1" in message and "hunter2" not in answer.text
    logged = [
        record for record in caplog.records if record.name.startswith("cm_delta_dagster.server") and record.exc_info
    ]
    assert len(logged) == 1 and "job-1" in logged[0].getMessage()


def _raw(server: LiveServer, request: str) -> str:
    """The answer to the bytes of a request, up to its end or the end of the connection."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=300) as connection:
        connection.sendall(request.encode())
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
            head, separator, body = answer.partition(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if separator and lengths and len(body) >= int(lengths[0].split(b":")[1]):
                break
    return answer.decode()
