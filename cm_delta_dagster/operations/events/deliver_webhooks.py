"""Delivers the events of the feed to the subscribers by webhook.

At least once and in order: the position of a subscription advances after its receiver accepted the event. A receiver recognizes a
repeated event by its id. An event that is not accepted after all attempts is stored as a failure, and delivery continues with the
next one. One process delivers a subscription at a time.
"""

import json
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from cm_delta_dagster.catalog.event_feed import FeedEvent
from cm_delta_dagster.catalog.webhooks import Webhook, WebhookFailure, webhook_not_found, without_path
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import CmDeltaError, FeedGapError, InvalidArgumentError
from cm_delta_dagster.operations.events.event_reader import EventReader
from cm_delta_dagster.operations.events.http_post import FAILURES, post
from cm_delta_dagster.operations.events.receiver_addresses import Network, networks_of, permitted_networks
from cm_delta_dagster.operations.events.webhook_signature import ID, SIGNATURE, TIMESTAMP, secret_of, signature
from cm_delta_dagster.version import __version__

_log = logging.getLogger(__name__)

_PAGE = 100
_GAP_KIND = "FEED_GAP"
_MAX_ERROR = 500
_LEASE_MARGIN_MS = 60_000
_LOOK_FOR_NEW_S = 5.0
_MAX_S = 24 * 60 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """How events are delivered.

    Attributes:
        max_attempts: attempts for one event, after which it is a failure.
        first_wait_s, max_wait_s: the waits between attempts grow exponentially between these bounds, with jitter.
        timeout_s: seconds for each of: connect to a receiver, send an event, receive the head of the answer.
        private_networks: networks that are not public and may have receivers, e.g. ``10.1.0.0/16`` or ``127.0.0.1``; None for
            those of the environment variable CM_DELTA_WEBHOOK_NETWORKS, by default none.

    Raises:
        InvalidArgumentError: no attempt, a time that is not a number of seconds up to a day, or a malformed network.
    """

    max_attempts: int = 8
    first_wait_s: float = 1.0
    max_wait_s: float = 60.0
    timeout_s: float = 10.0
    private_networks: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self.networks()
        times = (self.first_wait_s, self.max_wait_s, self.timeout_s)
        are_numbers = isinstance(self.max_attempts, int) and all(isinstance(time, int | float) for time in times)
        # A comparison with NaN is false.
        if not (
            are_numbers and self.max_attempts >= 1 and all(0 <= time <= _MAX_S for time in times) and self.timeout_s > 0
        ):
            raise InvalidArgumentError(
                f"{self} cannot be used: give at least one attempt, waits of at least 0 seconds, and a positive timeout, each "
                "at most a day."
            )

    def networks(self) -> tuple[Network, ...]:
        """The networks that are not public and may have receivers. Raises InvalidArgumentError."""
        return permitted_networks() if self.private_networks is None else networks_of(self.private_networks)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport:
    """What was delivered to one subscriber. ``error`` is set if delivery could not begin or ended early."""

    name: str
    num_delivered: int
    num_failed: int
    error: str | None = None


class _RefusedError(Exception):
    """An attempt failed."""


class _StoppedError(Exception):
    """The process ends, or another one delivers the subscription now."""


class _Delivery:
    """The delivery of one subscription by this process."""

    def __init__(
        self, client: DeltaClient, webhook: Webhook, settings: DeliverySettings, stop: threading.Event
    ) -> None:
        self._client = client
        self._webhook = webhook
        self._settings = settings
        self._stop = stop
        self._owner = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4()}"
        self._catalog_id = client.registry.identity().catalog_id
        self._delivered = self._failed = 0

    def run(self, next_events: Callable[[EventReader], tuple[FeedEvent, ...]]) -> DeliveryReport:
        """Deliver until ``next_events`` returns none, or the process stops."""
        error = None
        try:
            secret_of(self._webhook.secret)  # Before the lease: a process that has the secret may acquire it.
            self._lease()
            self._deliver_all(next_events)
        except _StoppedError as stopped:
            error = str(stopped) or None
        except CmDeltaError as failed:
            error = str(failed)
        finally:
            self._release()
        return DeliveryReport(
            name=self._webhook.name, num_delivered=self._delivered, num_failed=self._failed, error=error
        )

    def _deliver_all(self, next_events: Callable[[EventReader], tuple[FeedEvent, ...]]) -> None:
        reader = self._reader()
        while not self._stop.is_set():
            try:
                events = next_events(reader)
            except FeedGapError as gap:
                facts = {"kind": _GAP_KIND, "after": gap.after, "resume_after": gap.resume_after}
                self._deliver(position=gap.resume_after, facts=facts)
                reader = self._reader()
                continue
            for event in events:
                self._deliver(position=event.position, facts=event.as_json())
            self._advance(reader.position)
            if not events:
                return
            reader = self._reader()

    def _reader(self) -> EventReader:
        """A reader at the position of the subscription, which another process may have delivered or changed meanwhile."""
        webhook = _subscription(self._client, self._webhook.name)
        if webhook is None:
            raise _StoppedError(f"The webhook {self._webhook.name} was removed.")
        self._webhook = webhook
        return EventReader(self._client.events, after=webhook.position, event_filter=webhook.wanted)

    def _deliver(self, *, position: int, facts: dict[str, Any]) -> None:
        event_id = f"{self._catalog_id}:{position}"
        body = json.dumps({"id": event_id, **facts}, ensure_ascii=False).encode()
        failure, secret = None, secret_of(self._webhook.secret)
        try:
            self._with_retries(lambda: self._send(secret, event_id, body), event_id)
            self._delivered += 1
        except _RefusedError as error:
            _log.warning(
                "The webhook %s did not accept the event %s in the last of %d attempts: %s",
                self._webhook.name,
                event_id,
                self._settings.max_attempts,
                error,
            )
            failure = WebhookFailure(
                name=self._webhook.name,
                position=position,
                body=body.decode(),
                error=str(error)[:_MAX_ERROR],
                failed_ms=self._client.coordinator.now_ms(),
            )
            self._failed += 1
        if not self._advance(position, failure):
            # This process was stopped for longer than its lease: the event and later ones may have been delivered.
            raise _StoppedError(f"Another process delivers the webhook {self._webhook.name}, or it was removed.")

    def _with_retries(self, send: Callable[[], None], event_id: str) -> None:
        settings = self._settings

        def report(attempt: RetryCallState) -> None:
            assert attempt.outcome is not None and attempt.next_action is not None
            _log.warning(
                "The webhook %s did not accept the event %s in attempt %d of %d: %s. The next attempt is in %.1f s",
                self._webhook.name,
                event_id,
                attempt.attempt_number,
                settings.max_attempts,
                attempt.outcome.exception(),
                attempt.next_action.sleep,
            )

        Retrying(
            retry=retry_if_exception_type(_RefusedError),
            wait=wait_random_exponential(multiplier=settings.first_wait_s, max=settings.max_wait_s),
            stop=stop_after_attempt(settings.max_attempts),
            sleep=self._sleep,
            before=self._before_attempt,
            before_sleep=report,
            reraise=True,
        )(send)

    def _before_attempt(self, _: RetryCallState) -> None:
        if self._stop.is_set():
            raise _StoppedError
        self._lease()

    def _sleep(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def _lease(self) -> None:
        settings = self._settings
        attempt_s = 3 * settings.timeout_s  # See post().
        duration_ms = int((attempt_s + settings.max_wait_s) * 1000) + _LEASE_MARGIN_MS
        if not self._client.webhooks.lease_webhook(self._webhook.name, owner=self._owner, duration_ms=duration_ms):
            raise _StoppedError(f"Another process delivers the webhook {self._webhook.name}, or it was removed.")

    def _advance(self, position: int, failure: WebhookFailure | None = None) -> bool:
        return self._client.webhooks.advance_webhook(
            self._webhook.name, owner=self._owner, position=position, failure=failure
        )

    def _release(self) -> None:
        try:
            self._client.webhooks.release_webhook(self._webhook.name, owner=self._owner)
        except CmDeltaError:  # The lease expires.
            _log.debug("The lease of the webhook %s was not ended", self._webhook.name, exc_info=True)

    def _send(self, secret: bytes, event_id: str, body: bytes) -> None:
        send(
            self._webhook.url,
            secret,
            event_id=event_id,
            body=body,
            now_s=self._now_s(),
            settings=self._settings,
        )

    def _now_s(self) -> int:
        return self._client.coordinator.now_ms() // 1000


def _subscription(client: DeltaClient, name: str) -> Webhook | None:
    """The subscription of that name."""
    return next((webhook for webhook in client.webhooks.webhooks() if webhook.name == name), None)


def _known_subscription(client: DeltaClient, name: str) -> Webhook:
    webhook = _subscription(client, name)
    if webhook is None:
        raise webhook_not_found(name)
    return webhook


def failures_of(client: DeltaClient, name: str) -> tuple[WebhookFailure, ...]:
    """The stored failures of a subscription, by position. Raises WebhookNotFoundError."""
    _known_subscription(client, name)
    return tuple(client.webhooks.webhook_failures(name))


def send(url: str, secret: bytes, *, event_id: str, body: bytes, now_s: int, settings: DeliverySettings) -> None:
    """Post one signed event.

    Raises:
        _RefusedError: the receiver does not answer with a status of success.
        InvalidArgumentError: it has an address that is not permitted.
    """
    headers = {
        "content-type": "application/json",
        "user-agent": f"cm-delta-dagster/{__version__}",
        ID: event_id,
        TIMESTAMP: str(now_s),
        SIGNATURE: signature(secret, event_id=event_id, timestamp=now_s, body=body),
    }
    try:
        status = post(url, body, headers=headers, timeout_s=settings.timeout_s, networks=settings.networks())
    except CmDeltaError:
        raise
    except FAILURES as error:
        # The error may quote the path, which can have a token.
        raise _RefusedError(_printable(without_path(f"{type(error).__name__}: {error}", url))) from None
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise _RefusedError(f"the receiver answered {status}")


def _printable(text: str) -> str:
    """The text of an error, which can contain what the receiver sent; PostgreSQL stores no U+0000."""
    return "".join(character if character.isprintable() else "?" for character in text)


def deliver_webhooks(client: DeltaClient, *, settings: DeliverySettings | None = None) -> tuple[DeliveryReport, ...]:
    """Deliver to each subscriber what the feed has, and return. Subscribers do not wait for each other.

    Raises:
        CatalogError: the subscriptions could not be read.
    """
    webhooks = client.webhooks.webhooks()
    stop = threading.Event()
    if not webhooks:
        return ()
    with ThreadPoolExecutor(max_workers=min(len(webhooks), 32), thread_name_prefix="cm-delta-webhook") as pool:
        return tuple(
            pool.map(
                lambda webhook: _Delivery(client, webhook, settings or DeliverySettings(), stop).run(
                    lambda reader: reader.read(_PAGE)
                ),
                webhooks,
            )
        )


def run_webhooks(client: DeltaClient, *, settings: DeliverySettings | None = None, stop: threading.Event) -> None:
    """Deliver until ``stop`` is set. Subscriptions that are added, changed or removed meanwhile are noticed after a few seconds."""
    threads: dict[str, threading.Thread] = {}

    def serve(webhook: Webhook) -> None:
        report = _Delivery(client, webhook, settings or DeliverySettings(), stop).run(
            lambda reader: reader.wait(_LOOK_FOR_NEW_S, _PAGE)
        )
        if report.error is not None:
            _log.warning("Delivery of the webhook %s paused: %s", webhook.name, report.error)

    while not stop.is_set():
        try:
            webhooks = client.webhooks.webhooks()
        except CmDeltaError:
            _log.warning("The webhooks could not be listed; delivery continues later", exc_info=True)
            webhooks = ()
        for webhook in webhooks:
            running = threads.get(webhook.name)
            if running is None or not running.is_alive():
                thread = threading.Thread(
                    target=serve, args=(webhook,), name=f"cm-delta-webhook-{webhook.name}", daemon=True
                )
                threads[webhook.name] = thread
                thread.start()
        stop.wait(_LOOK_FOR_NEW_S)
    for thread in threads.values():
        thread.join()


def redeliver_failures(client: DeltaClient, name: str, *, settings: DeliverySettings | None = None) -> tuple[int, int]:
    """Send the stored failures of a subscription again, once each; those that are accepted are deleted.

    Returns:
        How many were accepted, and how many were not.

    Raises:
        WebhookNotFoundError: the catalog has no such subscription.
        InvalidArgumentError: its secret is missing, or its receiver has an address that is not permitted.
    """
    webhook = _known_subscription(client, name)
    secret, chosen = secret_of(webhook.secret), settings or DeliverySettings()
    accepted = refused = 0
    for failure in client.webhooks.webhook_failures(name):
        body = failure.body.encode()
        now_s = client.coordinator.now_ms() // 1000
        try:
            event_id = str(json.loads(body)["id"])
            send(webhook.url, secret, event_id=event_id, body=body, now_s=now_s, settings=chosen)
        except _RefusedError:
            refused += 1
            continue
        client.webhooks.forget_webhook_failure(name, failure.position)
        accepted += 1
    return accepted, refused
