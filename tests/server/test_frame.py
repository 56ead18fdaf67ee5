"""Health, request ids, the access log and the form of errors, over HTTP."""

import json
import logging
from typing import Any

import httpx
import pytest

from cm_delta_dagster.server.wires import NATIVE_PATH, UNITY_DELTA_PATH, UNITY_PATH
from tests.support.live_server import LiveServer
from tests.support.waiting import until


def test_a_server_says_that_it_lives_and_that_it_reaches_its_database(server: LiveServer) -> None:
    assert httpx.get(f"{server.url}/health/live").json() == {"status": "live"}
    answer = httpx.get(f"{server.url}/health/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})


def test_an_unknown_path_is_answered_in_the_form_of_the_api_that_it_is_below(server: LiveServer) -> None:
    native = httpx.get(f"{server.url}{NATIVE_PATH}/nothing")
    assert native.status_code == 404 and native.json()["error"]["kind"] == ""
    delta = httpx.get(f"{server.url}{UNITY_DELTA_PATH}/nothing")
    assert delta.json() == {"error": {"message": "Not Found", "type": "NotFoundException", "code": 404, "stack": None}}
    unity = httpx.get(f"{server.url}{UNITY_PATH}/nothing")
    assert unity.json()["error_code"] == "NOT_FOUND" and unity.json()["message"] == "Not Found"


def test_the_id_of_a_request_is_in_its_answer_and_in_the_access_log(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "cm_delta_dagster.server.access"):
        own = httpx.get(f"{server.url}/health/live", headers={"X-Request-Id": "job-17"})
        new = httpx.get(f"{server.url}/health/live")
        forged = httpx.get(f"{server.url}/health/live", headers={"X-Request-Id": 'a"b {}'})
        until(lambda: len(_access_lines(caplog)) == 3)
    assert own.headers["x-request-id"] == "job-17"
    assert len({new.headers["x-request-id"], forged.headers["x-request-id"], 'a"b {}'}) == 3
    line = next(line for line in _access_lines(caplog) if line["request_id"] == "job-17")
    assert (line["method"], line["path"], line["status"]) == ("GET", "/health/live", 200)


def _access_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines of the access log, which has a request when its answer is sent."""
    records = [record for record in caplog.records if record.name == "cm_delta_dagster.server.access"]
    return [json.loads(record.getMessage()) for record in records]
