"""Interface to the subscriptions to the feed by webhook. They are data; a process delivers the events."""

import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from cm_delta_dagster.catalog.event_feed import EventFilter
from cm_delta_dagster.errors import WebhookNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A subscription.

    Attributes:
        url: where events are posted. Its path and query can have a token: messages, the audit and the feed have ``shown_url``.
        secret: where the secret for signatures is, ``env:NAME`` or ``file:/path``, as the delivering process sees it.
        position: up to this position every event was delivered, or is among the failures.
    """

    name: str
    url: str = field(repr=False)
    secret: str
    wanted: EventFilter
    position: int

    @property
    def shown_url(self) -> str:
        """The URL with ``***`` in place of path and query."""
        return shown_url(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookFailure:
    """An event that the subscriber did not accept after all attempts. ``body`` is what was sent."""

    name: str
    position: int
    body: str
    error: str
    failed_ms: int


def shown_url(url: str) -> str:
    """A URL to show, with ``***`` in place of a path and a query."""
    parts = urlsplit(url)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return f"{place}/***" if _path_of(url) != "/" or parts.fragment else f"{place}{parts.path}"


def without_path(text: str, url: str) -> str:
    """A text that may quote ``url``, without its path and query."""
    path = _path_of(url)
    return text if path == "/" else text.replace(path, "/***")


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(("", "", parts.path or "/", parts.query, ""))


def is_deliverable(url: str) -> bool:
    """Whether events can be posted to ``url``."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna"), parts.port
    except ValueError:  # Also of an invalid port, or an empty or long part of the host.
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url
    return is_plain and parts.scheme in ("http", "https") and bool(host) and port != 0 and parts.username is None


def webhook_not_found(name: object) -> WebhookNotFoundError:
    """The error if the catalog has no subscription of that name."""
    return WebhookNotFoundError(f"The catalog has no webhook {name!r}; `cm-delta webhooks list` shows them.")


class Webhooks(typing.Protocol):
    """Subscriptions, how far each was delivered, and what could not be delivered."""

    def put_webhook(self, webhook: Webhook) -> None:
        """Create the subscription, or replace URL, secret and filter of the one with this name, which keeps its position.

        Raises InvalidArgumentError for a malformed name, URL, secret, position or scope, OperationRefusedError.
        """
        ...

    def remove_webhook(self, name: str) -> None:
        """Delete a subscription with its failures. Raises WebhookNotFoundError, OperationRefusedError."""
        ...

    def webhooks(self) -> Sequence[Webhook]:
        """Every subscription, by name."""
        ...

    def lease_webhook(self, name: str, *, owner: str, duration_ms: int) -> bool:
        """Whether ``owner`` is the process that delivers this subscription for ``duration_ms`` from now on."""
        ...

    def advance_webhook(self, name: str, *, owner: str, position: int, failure: WebhookFailure | None = None) -> bool:
        """Record that everything up to ``position`` was delivered, or the ``failure`` at it. False if ``owner`` lost its lease."""
        ...

    def release_webhook(self, name: str, *, owner: str) -> None:
        """End a lease; no error without one."""
        ...

    def webhook_failures(self, name: str) -> Sequence[WebhookFailure]:
        """The failures of a subscription, by position."""
        ...

    def forget_webhook_failure(self, name: str, position: int) -> None:
        """Delete a failure, e.g. because it was delivered after all."""
        ...
