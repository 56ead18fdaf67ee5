"""A POST request over HTTP that follows no redirect and ends within a deadline, also if the receiver answers slowly.

It connects only to addresses that ``receiver_addresses`` permits. If the environment of the process names a proxy, the connection
goes to the proxy, which resolves names itself; what this machine resolves is checked before.
"""

import io
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any

from cm_delta_dagster.operations.events.receiver_addresses import Network, check_receiver, checked_addresses

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FAILURES = (OSError, HTTPException, ValueError)
"""What :func:`post` raises if it receives no HTTP answer."""


def post(
    url: str, body: bytes, *, headers: Mapping[str, str], timeout_s: float, networks: Sequence[Network] = ()
) -> int:
    """Post ``body``, and return the status of the answer. The body of the answer is not read.

    Args:
        timeout_s: seconds for each of: connect, send, and receive the head of the answer.
        networks: networks that are not public and may have the receiver.

    Raises:
        InvalidArgumentError: the receiver has an address that is not permitted; nothing was sent.
    """
    # The catalog checked the URL.
    request = _PostRequest(url, data=body, headers=dict(headers), method="POST")
    request.networks = networks
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until the deadline. The timeout of the socket itself starts again with every byte."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw, self._sock = raw, sock
        self._deadline = time.monotonic() + (sock.gettimeout() or 0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was not complete in time")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_DeadlineReader(self.fp.detach(), sock))


class _PostRequest(urllib.request.Request):
    networks: Sequence[Network] = ()


class _Connector:
    """Connects to the addresses that were checked, so that the name is not resolved a second time."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks

    def __call__(self, place: tuple[str, int], timeout: float, source: Any = None) -> socket.socket:
        failure: OSError = OSError("the name has no address")
        for family, address in checked_addresses(*place, self._networks):
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                connection.settimeout(timeout)
                connection.connect(address)
            except OSError as error:
                connection.close()
                failure = error
            else:
                return connection
        raise failure


class _Connection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


def _connection(kind: type[HTTPConnection], request: urllib.request.Request) -> Any:
    """How urllib makes the connection of a request."""
    networks = getattr(request, "networks", ())
    is_proxied = request.has_proxy() or getattr(request, "_tunnel_host", None) is not None
    if is_proxied:
        check_receiver(request.full_url, networks)

    def connect(host: str, **named: Any) -> HTTPConnection:
        connection = kind(host, **named)
        if not is_proxied:
            connection._create_connection = _Connector(networks)  # type: ignore[attr-defined]  # As urllib3 replaces it.
        return connection

    return connect


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_connection(_Connection, request), request)


class _SecureHandler(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_connection(_SecureConnection, request), request)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is not followed: the signed event goes only to the URL of the subscription."""

    def redirect_request(self, *_: Any) -> None:
        return None


def opener() -> urllib.request.OpenerDirector:
    """What makes requests, with the proxies of the environment."""
    return urllib.request.build_opener(_Handler, _SecureHandler, _NoRedirects)


_OPENER = opener()
