"""The program of the page of the feed, which posts events to a URL: a real catalog, a real process, a real HTTP server."""

import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.sql import SqlCatalog
from tests.contracts.catalog_bench import create, proposal
from tests.support.waiting import until

PAGE = (Path(__file__).parents[2] / "docs" / "feed.md").read_text()
SECRET = "whisper"


class Receiver:
    """An HTTP server that keeps the requests it gets. ``answer`` returns the status for one of them."""

    def __init__(self) -> None:
        self.requests: list[tuple[Mapping[str, str], bytes]] = []
        self.answer: Callable[[dict[str, Any]], int] = lambda event: 204
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(receiver.answer(json.loads(body)))
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/events"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def positions(self) -> list[int]:
        return [json.loads(body)["position"] for _, body in self.requests]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog whose feed has three events."""
    with SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/w") as catalog:
        table = create(catalog).table_id
        catalog.coordinator.commit(table, proposal(1))
        catalog.coordinator.commit(table, proposal(2))
        yield catalog


@pytest.fixture
def start(tmp_path: Path, catalog: SqlCatalog, receiver: Receiver) -> Callable[..., "subprocess.Popen[str]"]:
    (tmp_path / "post_events.py").write_text(_block(r"^`post_events.py`:\n\n```py\n(.*?)^```$"))
    variables = {
        "CM_DELTA_CATALOG_URL": f"sqlite:///{tmp_path}/catalog.db",
        "EVENTS_URL": receiver.url,
        "EVENTS_SECRET": SECRET,
        "EVENTS_POSITION": f"{tmp_path}/position",
        "NO_PROXY": "127.0.0.1",
    }

    def start(*options: str) -> "subprocess.Popen[str]":
        command = [sys.executable, str(tmp_path / "post_events.py"), *options]
        return subprocess.Popen(command, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True)

    return start


@pytest.fixture
def run(start: Callable[..., "subprocess.Popen[str]"]) -> Callable[[], tuple[int, str]]:
    def run() -> tuple[int, str]:
        process = start()
        _, errors = process.communicate(timeout=500)
        return process.returncode, errors

    return run


def _block(pattern: str) -> str:
    """Code of the page."""
    match = re.search(pattern, PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def stored(tmp_path: Path) -> str:
    return (tmp_path / "position").read_text()


Run = Callable[[], tuple[int, str]]


def test_each_event_is_posted_in_order_with_a_signature_and_not_again(
    tmp_path: Path, catalog: SqlCatalog, receiver: Receiver, run: Run
) -> None:
    assert run() == (0, "")
    assert receiver.positions == [1, 2, 3] and stored(tmp_path) == "3"
    namespace: dict[str, Any] = {}
    exec(_block(r"```python\n(import base64\n.*?)^headers = "), namespace)
    for headers, body in receiver.requests:
        assert namespace["is_authentic"](headers, body, SECRET.encode(), time.time())
        assert not namespace["is_authentic"](headers, body + b" ", SECRET.encode(), time.time())
        assert headers["webhook-id"] == str(json.loads(body)["position"])
    assert run() == (0, "") and len(receiver.requests) == 3
    catalog.coordinator.commit(catalog.feed.feed(after=0, limit=1)[0].table_id, proposal(3))
    assert run() == (0, "") and receiver.positions == [1, 2, 3, 4]


@pytest.mark.parametrize("status", [302, 500])
def test_a_refused_event_is_the_first_of_the_next_run(
    tmp_path: Path, receiver: Receiver, run: Run, status: int
) -> None:
    receiver.answer = lambda event: status if event["position"] == 2 else 200
    code, errors = run()
    assert code == 1 and errors == f"{status} for the event at position 2; run the program again.\n"
    assert receiver.positions == [1, 2] and stored(tmp_path) == "1"
    receiver.answer = lambda event: 200
    assert run() == (0, "") and receiver.positions == [1, 2, 2, 3]


def test_an_event_is_posted_again_if_the_program_is_killed_before_it_stores_the_position(
    tmp_path: Path, receiver: Receiver, run: Run, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    started = threading.Event()

    def answer(event: dict[str, Any]) -> int:
        if event["position"] == 2:
            started.wait()
            process.kill()
            process.wait()
        return 200

    receiver.answer = answer
    process = start()
    started.set()
    process.communicate(timeout=500)
    assert receiver.positions == [1, 2] and stored(tmp_path) == "1"
    receiver.answer = lambda event: 200
    assert run() == (0, "")
    assert receiver.positions == [1, 2, 2, 3]
    assert receiver.requests[1][1] == receiver.requests[2][1]
    assert receiver.requests[1][0]["webhook-id"] == receiver.requests[2][0]["webhook-id"]


def test_deleted_events_end_the_program_and_keep_the_position(
    tmp_path: Path, catalog: SqlCatalog, receiver: Receiver, run: Run
) -> None:
    (tmp_path / "position").write_text("1")
    catalog.maintenance_policies.set_maintenance_rule(
        MaintenanceRule(scope="main", kind=MaintenanceKind.FEED_CLEANUP, allowed=True)
    )
    recorded_ms = catalog.coordinator.now_ms()
    until(lambda: catalog.coordinator.now_ms() > recorded_ms)
    assert catalog.events.delete_old_entries(before_ms=catalog.coordinator.now_ms())
    code, errors = run()
    assert code == 1 and "FeedGapError" in errors and "read on after position" in errors
    assert receiver.requests == [] and stored(tmp_path) == "1"
