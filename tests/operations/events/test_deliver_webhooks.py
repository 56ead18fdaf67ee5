"""Webhooks: a real receiver gets every event at least once and in order, and may fail, be slow or be down."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cm_delta_dagster.catalog.event_feed import EventFilter
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.webhooks import Webhook
from cm_delta_dagster.errors import InvalidArgumentError, WebhookNotFoundError
from cm_delta_dagster.operations.events.clean_feed import clean_feed
from cm_delta_dagster.operations.events.deliver_webhooks import (
    DeliverySettings,
    deliver_webhooks,
    redeliver_failures,
    run_webhooks,
)
from cm_delta_dagster.operations.events.webhook_signature import ID, SIGNATURE, TIMESTAMP, is_authentic_webhook
from tests.support.lake import Lake
from tests.support.waiting import until

SECRET = b"whisper"
LOCAL = ("127.0.0.1",)
"""The receivers of the tests are on this machine, which the settings must permit."""
QUICK = DeliverySettings(max_attempts=4, first_wait_s=0.01, max_wait_s=0.02, timeout_s=30, private_networks=LOCAL)


@dataclass
class Receiver:
    """A local server. ``answer`` gets the number of the request and returns its status, after what it does before."""

    answer: Callable[[int], int] = lambda number: 204
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]

    @contextmanager
    def serving(self) -> Iterator[None]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = receiver.answer(len(receiver.requests))
                try:
                    self.send_response(status)
                    if status == 302:
                        self.send_header("location", "http://127.0.0.1:1/elsewhere")
                    self.end_headers()
                except OSError:
                    return  # The client has given up.

            def log_message(self, *_: object) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    monkeypatch.setenv("HOOK_SECRET", SECRET.decode())
    return Receiver()


def subscribe(lake: Lake, receiver: Receiver, name: str = "hook", **wanted: Any) -> None:
    if not receiver.port:
        with receiver.serving():
            pass  # Finds a free port.
    lake.catalog.put_webhook(
        Webhook(name=name, url=receiver.url, secret="env:HOOK_SECRET", wanted=EventFilter(**wanted), position=0)
    )


def position(lake: Lake) -> int:
    (webhook,) = lake.catalog.webhooks()
    return int(webhook.position)


def test_every_event_is_delivered_once_in_order_with_a_signature(lake: Lake, receiver: Receiver) -> None:
    table = lake.new_table()
    lake.append(table)
    subscribe(lake, receiver)
    with receiver.serving():
        (report,) = deliver_webhooks(lake.client, settings=QUICK)
        assert (report.num_delivered, report.num_failed, report.error) == (3, 0, None)
        assert deliver_webhooks(lake.client, settings=QUICK)[0].num_delivered == 0
    assert [event["kind"] for event in receiver.events] == ["TABLE_CREATED", "COMMIT", "POLICY_CHANGED"]
    assert receiver.events[1]["table"] == "main.test.t" and receiver.events[1]["operation"] == "WRITE"
    for headers, body in receiver.requests:
        assert (
            headers[ID]
            == json.loads(body)["id"]
            == f"{lake.catalog.identity().catalog_id}:{json.loads(body)['position']}"
        )
        now_s = int(headers[TIMESTAMP])
        assert now_s == lake.clock.now // 1000
        assert is_authentic_webhook(headers, body, SECRET, now_s=now_s + 10)
        sent = {name.title(): value for name, value in headers.items()}
        assert is_authentic_webhook(sent, body, SECRET.decode(), now_s=now_s)
        assert not is_authentic_webhook(headers, body + b" ", SECRET, now_s=now_s)
        assert not is_authentic_webhook(headers, body, b"other", now_s=now_s)
        assert not is_authentic_webhook(headers, body, SECRET, now_s=now_s + 3600)
        assert not is_authentic_webhook({**headers, SIGNATURE: "v1,\u00e4"}, body, SECRET, now_s=now_s)


def test_sender_and_receiver_take_the_same_text_as_secret(
    lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "whsec_d2hpc3Blcg=="  # The Base64 form of "whisper".
    monkeypatch.setenv("HOOK_SECRET", text)
    lake.new_table()
    subscribe(lake, receiver)
    with receiver.serving():
        deliver_webhooks(lake.client, settings=QUICK)
    headers, body = receiver.requests[0]
    now_s = int(headers[TIMESTAMP])
    assert all(is_authentic_webhook(headers, body, secret, now_s=now_s) for secret in (text, "whisper", b"whisper"))
    assert not is_authentic_webhook(headers, body, text.encode(), now_s=now_s)
    with pytest.raises(InvalidArgumentError, match="not Base64") as refused:
        is_authentic_webhook(headers, body, "whsec_a", now_s=now_s)
    assert "whsec_a" not in str(refused.value)


def test_only_the_wanted_events_are_delivered(lake: Lake, receiver: Receiver) -> None:
    lake.append(lake.new_table("a"))
    lake.append(lake.new_table("b"))
    subscribe(lake, receiver, kinds=frozenset({FeedKind.COMMIT}), scopes=("main.test.b",))
    with receiver.serving():
        deliver_webhooks(lake.client, settings=QUICK)
    assert [(event["table"], event["version"]) for event in receiver.events] == [("main.test.b", 1)]
    assert position(lake) == lake.catalog.latest_feed_position()


@pytest.mark.parametrize("status", [302, 404, 500])
def test_an_event_is_repeated_until_it_is_accepted(lake: Lake, receiver: Receiver, status: int) -> None:
    lake.new_table()
    subscribe(lake, receiver, kinds=frozenset({FeedKind.TABLE_CREATED}))
    receiver.answer = lambda number: status if number < 3 else 200
    with receiver.serving():
        (report,) = deliver_webhooks(lake.client, settings=QUICK)
    assert (report.num_delivered, report.num_failed) == (1, 0)
    assert len({headers[ID] for headers, _ in receiver.requests}) == 1 and len(receiver.requests) == 3


def test_an_event_that_is_never_delivered_is_kept_as_a_failure(lake: Lake, receiver: Receiver) -> None:
    table = lake.new_table()
    lake.append(table)
    subscribe(lake, receiver, kinds=frozenset({FeedKind.TABLE_CREATED, FeedKind.COMMIT}))
    receiver.answer = lambda number: 503 if number <= QUICK.max_attempts else 200
    with receiver.serving():
        (report,) = deliver_webhooks(lake.client, settings=QUICK)
        assert (report.num_delivered, report.num_failed) == (1, 1)
        (failure,) = lake.catalog.webhook_failures("hook")
        assert (failure.position, failure.error) == (1, "the receiver answered 503")
        assert redeliver_failures(lake.client, "hook", settings=QUICK) == (1, 0)
    assert lake.catalog.webhook_failures("hook") == ()
    assert receiver.requests[-1][1].decode() == failure.body


def test_a_silent_receiver_is_given_up_after_the_timeout(lake: Lake, receiver: Receiver) -> None:
    lake.new_table()
    subscribe(lake, receiver, kinds=frozenset({FeedKind.TABLE_CREATED}))

    sent_again = threading.Event()

    def answer(number: int) -> int:
        if number == 1:
            assert sent_again.wait(300)
        sent_again.set()
        return 200

    receiver.answer = answer
    with receiver.serving():
        (report,) = deliver_webhooks(lake.client, settings=replace(QUICK, timeout_s=1))
    assert (report.num_delivered, len(receiver.requests)) == (1, 2)


@pytest.mark.parametrize(
    ("start", "more", "error"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x", "TimeoutError"),
        (b"\0\xff\n", b"", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 101, b"", "more than 100 headers"),
    ],
    ids=["one byte at a time", "no HTTP", "many headers"],
)
def test_an_answer_that_is_none_is_a_failure(
    lake: Lake, receiver: Receiver, start: bytes, more: bytes, error: str
) -> None:
    lake.new_table()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

        def answer(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                client.recv(65536)
                client.sendall(start)
                while more:
                    client.sendall(more)
                    time.sleep(0.05)

        threading.Thread(target=serve, daemon=True).start()
        receiver.port = server.getsockname()[1]
        subscribe(lake, receiver, kinds=frozenset({FeedKind.TABLE_CREATED}))
        (report,) = deliver_webhooks(
            lake.client, settings=replace(QUICK, max_attempts=1, timeout_s=0.5 if more else 30)
        )
    (failure,) = lake.catalog.webhook_failures("hook")
    assert (report.num_failed, report.error) == (1, None)
    assert error in failure.error and failure.error.isprintable()


def test_a_receiver_that_is_down_gets_the_events_when_it_is_up(
    lake: Lake, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    table = lake.new_table()
    subscribe(lake, receiver, kinds=frozenset({FeedKind.TABLE_CREATED, FeedKind.COMMIT}))
    patient = replace(QUICK, max_attempts=10_000)
    stop = threading.Event()
    running = threading.Thread(target=lambda: run_webhooks(lake.client, settings=patient, stop=stop))
    running.start()
    until(lambda: "did not accept the event" in caplog.text)
    with receiver.serving():
        until(lambda: len(receiver.requests) == 1)
        lake.append(table)
        until(lambda: len(receiver.requests) == 2)
        stop.set()
        running.join(300)
    assert not running.is_alive()
    assert [event["version"] for event in receiver.events] == [0, 1]
    assert lake.catalog.webhook_failures("hook") == ()


def test_one_failing_receiver_does_not_delay_another(lake: Lake, receiver: Receiver) -> None:
    lake.new_table()
    healthy = Receiver()
    subscribe(lake, receiver, kinds=frozenset({FeedKind.TABLE_CREATED}))
    subscribe(lake, healthy, "other", kinds=frozenset({FeedKind.TABLE_CREATED}))
    with healthy.serving():
        reports = {report.name: report for report in deliver_webhooks(lake.client, settings=QUICK)}
    assert (reports["hook"].num_failed, reports["other"].num_delivered) == (1, 1)


def test_one_process_delivers_a_subscription_at_a_time(lake: Lake, receiver: Receiver) -> None:
    lake.new_table()
    subscribe(lake, receiver)
    assert lake.catalog.lease_webhook("hook", owner="other", duration_ms=1000)
    with receiver.serving():
        (report,) = deliver_webhooks(lake.client, settings=QUICK)
        assert report.num_delivered == 0 and "Another process delivers" in str(report.error)
        lake.clock.now += 1000
        assert deliver_webhooks(lake.client, settings=QUICK)[0].num_delivered
    assert not lake.catalog.advance_webhook("hook", owner="other", position=99)


def test_a_subscriber_gets_the_positions_of_deleted_events(lake: Lake, receiver: Receiver) -> None:
    table = lake.new_table()
    subscribe(lake, receiver, kinds=frozenset({FeedKind.TABLE_CREATED, FeedKind.COMMIT}))
    with receiver.serving():
        deliver_webhooks(lake.client, settings=QUICK)
        lake.append(table)
        lake.clock.pass_days(40)
        lake.allow(MaintenanceKind.FEED_CLEANUP)
        result = clean_feed(lake.client)
        lake.append(table)
        deliver_webhooks(lake.client, settings=QUICK)
    gap = receiver.events[1]
    assert (gap["kind"], gap["resume_after"]) == ("FEED_GAP", result.deleted_up_to)
    assert receiver.events[2]["version"] == 2


def test_a_missing_secret_is_reported_and_nothing_is_sent(lake: Lake, receiver: Receiver) -> None:
    lake.new_table()
    lake.catalog.put_webhook(
        Webhook(name="hook", url="http://127.0.0.1:1/", secret="env:NOT_SET", wanted=EventFilter(), position=0)
    )
    (report,) = deliver_webhooks(lake.client, settings=QUICK)
    assert "There is no secret at env:NOT_SET" in str(report.error) and position(lake) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a b"},
        {"url": "ftp://host/"},
        {"url": "https://user:password@host/"},
        {"url": "http://"},
        {"url": "http://[half"},
        {"url": "http://host:0/"},
        {"url": "http://host:65536/"},
        {"url": "http://host:port/"},
        {"url": "http://host/ü"},
        {"url": "http://host..example/"},
        {"url": f"http://{'a' * 64}/"},
        {"url": 5},
        {"name": None},
        {"position": -1},
        {"position": "1"},
        {"position": 2**63},
        {"position": 1},  # The feed is empty.
        {"secret": "file:/a\0b"},
        {"secret": "hunter2"},
        {"secret": "file:relative"},
        {"wanted": EventFilter(scopes=("a.b.c.d",))},
    ],
)
def test_a_subscription_that_cannot_work_is_refused(lake: Lake, wrong: dict[str, Any]) -> None:
    values = {
        "name": "hook",
        "url": "https://host/",
        "secret": "env:A",
        "wanted": EventFilter(),
        "position": 0,
        **wrong,
    }
    with pytest.raises(InvalidArgumentError):
        lake.catalog.put_webhook(Webhook(**values))
    assert lake.catalog.webhooks() == ()


@pytest.mark.parametrize("secret", ["whsec_ü", "whsec_a", "whsec_"])
def test_a_secret_that_cannot_be_decoded_is_reported(
    lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    lake.new_table()
    subscribe(lake, receiver)
    monkeypatch.setenv("HOOK_SECRET", secret)
    (report,) = deliver_webhooks(lake.client, settings=QUICK)
    assert "secret at env:HOOK_SECRET" in str(report.error) and secret not in str(report.error)
    assert position(lake) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"timeout_s": 0},
        {"timeout_s": "1"},
        *({name: value} for name in ("timeout_s", "max_wait_s") for value in (float("nan"), float("inf"), -1, 86_401)),
    ],
)
def test_settings_that_cannot_be_used_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="at least one attempt, waits of at least 0 seconds"):
        DeliverySettings(**wrong)


def test_a_changed_subscription_is_used_from_the_next_page_on(lake: Lake, receiver: Receiver) -> None:
    lake.new_table()
    subscribe(lake, receiver)
    moved = Receiver()
    with receiver.serving(), moved.serving():

        def move(number: int) -> int:
            if number == 1:  # Events go on to come while the subscription is changed.
                subscribe(lake, moved, kinds=frozenset({FeedKind.TABLE_CREATED}))
                lake.new_table("other")
            return 204

        receiver.answer = move
        (report,) = deliver_webhooks(lake.client, settings=QUICK)
    assert (report.num_delivered, report.error) == (3, None)
    assert [event["kind"] for event in receiver.events] == ["TABLE_CREATED", "POLICY_CHANGED"]
    assert [event["table"] for event in moved.events] == ["main.test.other"]


def test_a_process_that_wakes_up_after_its_lease_repeats_one_event(lake: Lake, receiver: Receiver) -> None:
    table = lake.new_table()
    for _ in range(3):
        lake.append(table)
    subscribe(lake, receiver)

    def take_over(number: int) -> int:
        if number == 1:  # The first process stands still, for longer than its lease.
            lake.clock.pass_days(1)
            (other,) = deliver_webhooks(lake.client, settings=QUICK)
            assert other.num_delivered == len(lake.catalog.events(after=0, limit=100).events)
        return 204

    receiver.answer = take_over
    with receiver.serving():
        (late,) = deliver_webhooks(lake.client, settings=QUICK)
    assert "Another process delivers the webhook hook" in str(late.error)
    positions = [event["position"] for event in receiver.events]
    assert positions == [1, *range(1, len(positions))]


def test_a_subscription_is_changed_and_removed(lake: Lake, receiver: Receiver) -> None:
    lake.new_table()
    subscribe(lake, receiver)
    with receiver.serving():
        deliver_webhooks(lake.client, settings=QUICK)
    before = position(lake)
    subscribe(lake, receiver, scopes=("main",))
    (webhook,) = lake.catalog.webhooks()
    assert webhook.wanted.scopes == ("main",) and webhook.position == before
    lake.catalog.remove_webhook("hook")
    with pytest.raises(WebhookNotFoundError, match="no webhook 'hook'"):
        lake.catalog.remove_webhook("hook")
    with pytest.raises(WebhookNotFoundError, match="no webhook 'hook'"):
        redeliver_failures(lake.client, "hook")
