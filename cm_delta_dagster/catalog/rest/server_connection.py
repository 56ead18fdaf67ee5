"""Requests to ``cm-delta serve``, and what a missing answer means.

A request that did not reach the server is sent again. One that may have reached it is sent again if the operation permits that;
otherwise CatalogUnavailableError says that the outcome is unknown. An error that answers a repeated request is not the answer to
the first one: then the outcome is unknown too.
"""

import logging
import os
import ssl
import threading
import time
import weakref
from typing import Any

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from cm_delta_dagster.catalog.rest import wire_errors
from cm_delta_dagster.catalog.rest.operations import API_VERSION, API_VERSION_HEADER, NOW_HEADER, CatalogOperation
from cm_delta_dagster.catalog.rest.repetition import Repetition
from cm_delta_dagster.catalog.server_clock import ServerClock, seconds_since_boot
from cm_delta_dagster.catalog.server_urls import checked_url
from cm_delta_dagster.errors import (
    CatalogError,
    CatalogUnavailableError,
    CatalogVersionError,
    CmDeltaError,
    InvalidArgumentError,
    NotAuthenticatedError,
)

TOKEN_VARIABLE = "CM_DELTA_TOKEN"
"""The environment variable with the token of a client that is given none."""

_log = logging.getLogger(__name__)

_GIVE_UP_AFTER_S = 30
_SAY_AFTER_S = 3
"""Time without an answer after which the client says that it waits."""
_TIMEOUT = httpx.Timeout(60, connect=10)
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30)
"""The server keeps an idle connection for longer, so that it does not close one that a request is sent on."""

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_PASSING = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Faults of TLS when a server ends; others, such as a server without TLS or an unknown certificate, stay."""
_UNKNOWN = frozenset({408})
"""Statuses below 500 of a request whose outcome is unknown."""

_CLOCK_LIFETIME_S = 60.0


class _NoAnswerError(Exception):
    """The server did not answer; the request is sent again."""


class ServerConnection:
    """Connections to one server. Thread-safe; a forked process opens its own.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        token: what ``cm-delta token create`` printed.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self.url = checked_url(url)
        self.token = token
        self.clock = ServerClock()
        self._clock_read = float("-inf")
        self._closed = False
        self._reset()
        _OPEN.add(self)

    def _reset(self) -> None:
        """In a new process the connections belong to the parent."""
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None

    def close(self) -> None:
        """Close every connection; later calls fail."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def call(self, operation: CatalogOperation, body: bytes) -> bytes:
        """The answer to a call with these arguments.

        Raises:
            CatalogUnavailableError: the server did not answer. The message says whether the outcome is unknown.
            CmDeltaError: the error that the operation raised at the server.
        """
        pending = _PendingCall(operation)
        return self._retried(lambda: self._send_once("POST", operation.path, body, pending))

    def get(self, path: str) -> bytes:
        """The answer to a read of another resource. Errors as :meth:`call`."""
        return self._retried(lambda: self._send_once("GET", path, b"", _PendingCall(None)))

    def _retried(self, send: Any) -> bytes:
        notice = _WaitNotice()
        try:
            return bytes(send())
        except _NoAnswerError as error:
            notice.consider(error)
            retrying = Retrying(
                retry=retry_if_exception_type(_NoAnswerError),
                wait=wait_random_exponential(multiplier=0.02, max=1),
                stop=stop_after_delay(_GIVE_UP_AFTER_S),
                before_sleep=notice.before_sleep,
                retry_error_callback=self._give_up,
            )
            return bytes(retrying(send))

    def _give_up(self, state: RetryCallState) -> bytes:
        assert state.outcome is not None
        raise CatalogUnavailableError(str(state.outcome.exception())) from state.outcome.exception()

    def _send_once(self, verb: str, path: str, body: bytes, pending: "_PendingCall") -> bytes:
        try:
            response = self._opened().request(verb, path, content=body)
        except _NOT_SENT as error:
            if _is_lasting(error):
                raise CatalogUnavailableError(self._unreachable(error, pending)) from error
            raise _NoAnswerError(self._unreachable(error, pending)) from error
        except httpx.TransportError as error:
            raise self._unanswered(_cause(error), pending) from error
        self._read_clock(response)
        is_ours = API_VERSION_HEADER in response.headers
        if is_ours and response.status_code == 200:
            return response.content
        stated = wire_errors.from_json(response.content) if is_ours else None
        if isinstance(stated, NotAuthenticatedError) and not self.token:
            stated = NotAuthenticatedError(
                f"The server {self.url} requires a token, and this client has none. Set the environment variable {TOKEN_VARIABLE}, "
                "or give the argument token in Python. An owner of the catalog creates tokens."
            )
        if stated is not None:
            raise self._refused(stated, pending)
        raise self._without_operation(response, pending, is_ours=is_ours)

    def _without_operation(self, response: httpx.Response, pending: "_PendingCall", *, is_ours: bool) -> Exception:
        """What is raised for an answer that is neither that of the operation nor its error."""
        status = response.status_code
        cause = f"its answer has the status {status}"
        if status == 429 or (is_ours and status == 503):
            return _NoAnswerError(self._unreachable(cause, pending))  # It refused to handle the request.
        if status in _UNKNOWN or status >= 500:
            if is_ours and status == 500:
                cause = wire_errors.refusal(response.content) or cause
                pending.may_repeat = False  # A fault of the server; the same call would have it again.
            return self._unanswered(cause, pending)
        return self._refused(self._foreign(response), pending)

    def _opened(self) -> httpx.Client:
        client = self._client
        if client is not None:
            return client
        with self._lock:
            if self._closed:
                raise CatalogError(f"The catalog {self.url} is closed; open it again.")
            if self._client is None:
                headers = {"content-type": "application/json"}
                if self.token:
                    headers["authorization"] = f"Bearer {self.token}"
                self._client = httpx.Client(
                    base_url=self.url,
                    headers=headers,
                    timeout=_TIMEOUT,
                    limits=_LIMITS,
                    verify=self.url.startswith("https:"),
                    follow_redirects=False,
                )
            return self._client

    def _read_clock(self, response: httpx.Response) -> None:
        stated = response.headers.get(NOW_HEADER, "")
        if stated.isascii() and stated.isdigit() and seconds_since_boot() - self._clock_read > _CLOCK_LIFETIME_S:
            self._clock_read = seconds_since_boot()
            self.clock.set(int(stated), at_seconds=self._clock_read)

    def _unreachable(self, cause: object, pending: "_PendingCall") -> str:
        outcome = f"{pending.unknown} " if pending.is_unanswered else ""
        return f"The server {self.url} could not be reached: {cause}. {outcome}Check the URL, and whether the server is running."

    def _unanswered(self, cause: str, pending: "_PendingCall") -> Exception:
        """What is raised after a request that the server may have handled."""
        pending.is_unanswered = pending.changes_something
        message = f"The server {self.url} did not answer: {cause}. {pending.unknown}"
        return _NoAnswerError(message) if pending.may_repeat else CatalogUnavailableError(message)

    def _refused(self, error: CmDeltaError, pending: "_PendingCall") -> CmDeltaError:
        """What is raised for the error of a call: the unknown outcome of an earlier attempt is not decided by it."""
        if not pending.is_unanswered or isinstance(error, CatalogUnavailableError):
            return error
        return CatalogUnavailableError(
            f"The server {self.url} did not answer a request; when it was sent again, it was refused: {error} {pending.unknown}"
        )

    def _foreign(self, response: httpx.Response) -> CmDeltaError:
        """The error for an answer that does not come from an operation."""
        version = response.headers.get(API_VERSION_HEADER)
        if version is None:
            return CatalogError(
                f"{self.url} did not answer as a server of this package, but with the status {response.status_code}. Check the URL."
            )
        if version != str(API_VERSION):
            return CatalogVersionError(
                f"The server {self.url} has version {version} of the API, and this client has version {API_VERSION}. Nothing was "
                "changed. Install the same release at both ends."
            )
        message = wire_errors.refusal(response.content) or f"The status is {response.status_code}."
        return InvalidArgumentError(f"The server {self.url} refused the request: {message}")


class _PendingCall:
    """What is known of a call that has no answer yet.

    Attributes:
        is_unanswered: whether an attempt may have changed something.
    """

    def __init__(self, operation: CatalogOperation | None) -> None:
        repetition = Repetition.READ if operation is None else operation.repetition
        self.changes_something = repetition is not Repetition.READ
        self.may_repeat = repetition is not Repetition.ONCE
        self.is_unanswered = False

    @property
    def unknown(self) -> str:
        """What the caller must know if there is no answer."""
        if not self.changes_something:
            return "Nothing was changed."
        return "Whether the change took effect is unknown. Check the state of the catalog before you retry."


class _WaitNotice:
    """Says once that a call is repeated until the server answers, after some seconds."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._is_said = False

    def before_sleep(self, state: RetryCallState) -> None:
        assert state.outcome is not None
        self.consider(state.outcome.exception())

    def consider(self, error: BaseException | None) -> None:
        """Say it if the time has come; ``error`` is why the last attempt had no answer."""
        if not self._is_said and time.monotonic() - self._begun >= _SAY_AFTER_S:
            self._is_said = True
            _log.warning("The client tries for up to %d seconds to get an answer. %s", _GIVE_UP_AFTER_S, error)


def _is_lasting(error: httpx.TransportError) -> bool:
    """Whether the fault is one of TLS that another attempt would have too."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return not isinstance(cause, _PASSING)
        cause = cause.__cause__ or cause.__context__
    return False


def _cause(error: httpx.TransportError) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


_OPEN: "weakref.WeakSet[ServerConnection]" = weakref.WeakSet()


def _reset_after_fork() -> None:
    for connection in tuple(_OPEN):
        connection._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
