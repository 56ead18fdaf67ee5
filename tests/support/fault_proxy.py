"""An HTTP proxy before an object store's server that makes requests fail as real networks and stores do."""

import enum
import http.client
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Effect(enum.StrEnum):
    """When a request fails, and how."""

    ANSWER_BEFORE = "answer instead of the server"
    ANSWER_AFTER = "answer in place of the server's answer"
    RESET_BEFORE = "reset the connection before the effect"
    RESET_AFTER = "reset the connection after the effect"
    SILENT_AFTER = "answer too late after the effect"
    TRUNCATED = "send half of the body"
    SHORTENED = "send half of the body and its length"
    ALTERED = "send another body of the same length"
    OTHER_ETAG = "send another ETag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One failure of ``times`` requests with ``method`` whose path contains ``path``, after ``skip`` such requests.

    An empty ``method`` stands for every method.
    """

    effect: Effect
    method: str = ""
    path: str = ""
    times: int = 1
    skip: int = 0
    status: int = 503
    code: str = "SlowDown"


@dataclass(slots=True)
class FaultProxy:
    """A running proxy.

    Attributes:
        requests: method and path of each request that arrived.
        seconds: wait of ``SILENT_AFTER``.
        hides_missing: answers as S3 does without permission to list: 403 for listings and for missing objects.
        chance: returns the fault of a request by method and path; None for none. Injected faults come first.
        injected: number of faults by effect.
    """

    target: str
    url: str = ""
    seconds: float = 3.0
    hides_missing: bool = False
    chance: Callable[[str, str], Fault | None] | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    _connections: set[socket.socket] = field(default_factory=set)
    _faults: list[tuple[Fault, list[int]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def inject(self, *faults: Fault) -> None:
        with self._lock:
            self.requests.clear()
            self._faults = [(fault, [fault.skip, fault.times]) for fault in faults]

    def count(self, method: str, path: str = "") -> int:
        return sum(found == method and path in where for found, where in self.requests)

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.requests.append((method, path))
            found = self._injected(method, path)
            if found is None and self.chance is not None:
                found = self.chance(method, path)
            if found is not None:
                self.injected[found.effect.name] += 1
            return found

    def _injected(self, method: str, path: str) -> Fault | None:
        for fault, left in self._faults:
            if fault.method in ("", method) and fault.path in path:
                if left[0]:
                    left[0] -= 1
                elif left[1]:
                    left[1] -= 1
                    return fault
        return None

    def note_connection(self, connection: socket.socket, *, is_open: bool) -> None:
        with self._lock:
            (self._connections.add if is_open else self._connections.discard)(connection)

    def cut(self) -> int:
        """Cut all connections, also in the middle of requests; return how many there were."""
        with self._lock:
            open_ones = list(self._connections)
        number = 0
        for connection in open_ones:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
                number += 1
        return number


@contextmanager
def fault_proxy(target: str) -> Iterator[FaultProxy]:
    """A proxy to the server at the URL ``target``."""
    proxy = FaultProxy(target=target)

    class Handler(_Handler):
        owner = proxy

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_Headers = list[tuple[str, str]]


def _unchanged(headers: _Headers, data: bytes) -> tuple[_Headers, bytes]:
    return headers, data


def _shortened(headers: _Headers, data: bytes) -> tuple[_Headers, bytes]:
    return [pair for pair in headers if pair[0].lower() != "content-length"], data[: len(data) // 2]


def _altered(headers: _Headers, data: bytes) -> tuple[_Headers, bytes]:
    return headers, bytes(byte ^ 1 for byte in data)


def _other_etag(headers: _Headers, data: bytes) -> tuple[_Headers, bytes]:
    return [(name, f'"{"0" * 32}"' if name.lower() == "etag" else value) for name, value in headers], data


_CHANGES = {Effect.SHORTENED: _shortened, Effect.ALTERED: _altered, Effect.OTHER_ETAG: _other_etag}


class _Handler(BaseHTTPRequestHandler):
    owner: FaultProxy
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        try:
            self._pass_on()
        except (OSError, ValueError):  # The client has gone, or its connection was cut.
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815

    def _pass_on(self) -> None:
        body = self._body()
        fault = self.owner.next_fault(self.command, self.path)
        if fault is not None and fault.effect in (Effect.ANSWER_BEFORE, Effect.RESET_BEFORE):
            if fault.effect is Effect.ANSWER_BEFORE:
                self._refuse(fault)
            else:
                self._reset()
            return
        connection = http.client.HTTPConnection(self.owner.target.removeprefix("http://"), timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if self.owner.hides_missing and (answer.status == 404 or (self.command == "GET" and "list-type" in self.path)):
            self._refuse(Fault(effect=Effect.ANSWER_AFTER, status=403, code="AccessDenied"))
        elif fault is None or fault.effect in _CHANGES:
            change = _CHANGES[fault.effect] if fault is not None else _unchanged
            self._answer(answer.status, *change(answer.getheaders(), data))
        elif fault.effect is Effect.ANSWER_AFTER:
            self._refuse(fault)
        elif fault.effect is Effect.TRUNCATED:
            self._answer(answer.status, answer.getheaders(), data, send=len(data) // 2)
            self._reset(gracefully=True)
        else:
            if fault.effect is Effect.SILENT_AFTER:
                time.sleep(self.owner.seconds)
            self._reset()

    def setup(self) -> None:
        super().setup()
        self.owner.note_connection(self.connection, is_open=True)

    def _body(self) -> bytes | None:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            del self.headers["Transfer-Encoding"]
            return b"".join(parts)
        length = int(self.headers.get("Content-Length", 0))
        return self.rfile.read(length) if length else None

    def _refuse(self, fault: Fault) -> None:
        text = f"<Error><Code>{fault.code}</Code><Message>injected</Message></Error>".encode()
        self._answer(fault.status, [("Content-Type", "application/xml")], text)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, *, send: int | None = None) -> None:
        self.send_response_only(status)
        length = next((value for name, value in headers if name.lower() == "content-length"), str(len(data)))
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data if send is None else data[:send])

    def _reset(self, *, gracefully: bool = False) -> None:
        self.wfile.flush()
        if not gracefully:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        if gracefully:
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def finish(self) -> None:
        self.owner.note_connection(self.connection, is_open=False)
        try:
            super().finish()
        except (OSError, ValueError):  # The connection was reset.
            pass

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""
