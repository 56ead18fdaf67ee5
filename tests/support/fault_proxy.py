"""An HTTP proxy before an object store's server that makes requests fail as real networks and stores do."""

import enum
import http.client
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Effect(enum.StrEnum):
    """When a request fails, and how."""

    ANSWER_BEFORE = "answer instead of the server"
    ANSWER_AFTER = "answer in place of the server's answer"
    RESET_AFTER = "reset the connection after the effect"
    SILENT_AFTER = "answer too late after the effect"
    TRUNCATED = "send half of the body"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One failure of the next ``times`` requests with ``method`` whose path contains ``path``."""

    effect: Effect
    method: str
    path: str = ""
    times: int = 1
    status: int = 503
    code: str = "SlowDown"


@dataclass(slots=True)
class FaultProxy:
    """Attributes: ``requests``: method and path of each request that arrived; ``seconds``: wait of ``SILENT_AFTER``."""

    target: str
    url: str = ""
    seconds: float = 3.0
    requests: list[tuple[str, str]] = field(default_factory=list)
    _faults: list[tuple[Fault, list[int]]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def inject(self, *faults: Fault) -> None:
        with self._lock:
            self.requests.clear()
            self._faults = [(fault, [fault.times]) for fault in faults]

    def count(self, method: str, path: str = "") -> int:
        return sum(found == method and path in where for found, where in self.requests)

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.requests.append((method, path))
            for fault, left in self._faults:
                if left[0] and fault.method == method and fault.path in path:
                    left[0] -= 1
                    return fault
        return None


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


class _Handler(BaseHTTPRequestHandler):
    owner: FaultProxy
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        body = self._body()
        fault = self.owner.next_fault(self.command, self.path)
        if fault is not None and fault.effect is Effect.ANSWER_BEFORE:
            self._refuse(fault)
            return
        connection = http.client.HTTPConnection(self.owner.target.removeprefix("http://"), timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if fault is None:
            self._answer(answer.status, answer.getheaders(), data)
        elif fault.effect is Effect.ANSWER_AFTER:
            self._refuse(fault)
        elif fault.effect is Effect.TRUNCATED:
            self._answer(answer.status, answer.getheaders(), data, send=len(data) // 2)
            self._reset(gracefully=True)
        else:
            if fault.effect is Effect.SILENT_AFTER:
                time.sleep(self.owner.seconds)
            self._reset()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

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
        try:
            super().finish()
        except (OSError, ValueError):  # The connection was reset.
            pass

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""
