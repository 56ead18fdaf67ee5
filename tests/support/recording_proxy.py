"""An HTTP proxy before an S3 server that records each request and can delay it. It adds no requests."""

import enum
import http.client
import socket
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_PIECE = 1 << 20


class Kind(enum.StrEnum):
    """What a request does in S3."""

    GET = "GET"
    RANGED_GET = "ranged GET"
    HEAD = "HEAD"
    PUT = "PUT"
    CONDITIONAL_PUT = "conditional PUT"
    COPY = "copy"
    LIST = "LIST"
    DELETE = "DELETE"
    DELETE_MANY = "POST delete"
    CREATE_UPLOAD = "create upload"
    UPLOAD_PART = "upload part"
    COMPLETE_UPLOAD = "complete upload"
    ABORT_UPLOAD = "abort upload"
    LIST_UPLOADS = "list uploads"
    BUCKET = "bucket"
    OTHER = "other"


class Caller(enum.StrEnum):
    """The library that sent a request, from its User-Agent."""

    LOG_CLIENT = "log client"
    """botocore and aiobotocore: the file system s3fs."""
    S3A = "S3A"
    """The AWS SDK for Java: Hadoop in Spark."""
    OBJECT_STORE = "object_store"
    """The Rust library of deltalake."""
    ARROW = "Arrow"
    """The AWS SDK for C++: file systems of pyarrow."""
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One request.

    Attributes:
        key: Bucket and key without the leading slash, not percent-encoded; for a listing, bucket and prefix.
        begin_s: Time of arrival, in seconds of ``time.perf_counter``.
        end_s: Time just before the answer was sent, so that a request that waits for this answer begins later.
            ``None`` while the request is not answered.
        status: HTTP status of the answer; 0 while there is none.
        sent_bytes: Length of the body of the request.
        received_bytes: Length of the body of the answer.
    """

    kind: Kind
    caller: Caller
    key: str
    begin_s: float
    end_s: float | None
    status: int
    sent_bytes: int
    received_bytes: int


@dataclass(slots=True, kw_only=True)
class _Exchange:
    kind: Kind
    caller: Caller
    key: str
    begin_s: float
    end_s: float | None = None
    status: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def recorded(self) -> RecordedRequest:
        return RecordedRequest(
            kind=self.kind,
            caller=self.caller,
            key=self.key,
            begin_s=self.begin_s,
            end_s=self.end_s,
            status=self.status,
            sent_bytes=self.sent_bytes,
            received_bytes=self.received_bytes,
        )


class RecordingProxy:
    """A proxy on a free port of this machine, running between ``__enter__`` and ``__exit__``.

    Attributes:
        latency_s: Delay of each request before it is passed on, in seconds. Requests on several connections
            wait at the same time. It can be changed while the proxy runs.
    """

    def __init__(self, upstream_url: str, latency_s: float = 0.0) -> None:
        parts = urlsplit(upstream_url)
        self.latency_s = latency_s
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._exchanges: list[_Exchange] = []
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()

        class Handler(_Handler):
            proxy = self

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def requests(self) -> tuple[RecordedRequest, ...]:
        """All requests since the last ``clear``, in the order of their arrival."""
        with self._lock:
            return tuple(exchange.recorded() for exchange in self._exchanges)

    def clear(self) -> None:
        with self._lock:
            self._exchanges.clear()

    def __enter__(self) -> "RecordingProxy":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # The client closed it.
                    pass

    def _opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def _closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)

    def _begin(self, exchange: _Exchange) -> None:
        with self._lock:
            self._exchanges.append(exchange)

    def _upstream(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=120)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    proxy: RecordingProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.proxy._opened(self.connection)

    def finish(self) -> None:
        self.proxy._closed(self.connection)
        try:
            super().finish()
        except (OSError, ValueError):  # The client reset the connection.
            pass

    def _pass_on(self) -> None:
        kind, key = classify(self.command, self.path, dict(self.headers.items()))
        exchange = _Exchange(kind=kind, caller=caller_of(self.headers.get("User-Agent", "")), key=key, begin_s=_now())
        self.proxy._begin(exchange)
        body = self._body()
        exchange.sent_bytes = len(body)
        if self.proxy.latency_s:
            time.sleep(self.proxy.latency_s)
        connection = self.proxy._upstream()
        try:
            self._forward(connection, body)
            self._answer(connection.getresponse(), exchange)
        finally:
            connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _forward(self, connection: http.client.HTTPConnection, body: bytes) -> None:
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("transfer-encoding", "content-length", "connection", "expect"):
                connection.putheader(name, value)
        if body or self.command in ("PUT", "POST"):
            connection.putheader("Content-Length", str(len(body)))
        connection.putheader("Connection", "close")
        connection.endheaders(body or None)

    def _answer(self, answer: http.client.HTTPResponse, exchange: _Exchange) -> None:
        data = answer.read()
        exchange.status = answer.status
        exchange.received_bytes = len(data)
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
        if answer.status not in (204, 304):
            self.send_header("Content-Length", length)
        exchange.end_s = _now()
        self.end_headers()
        for start in range(0, len(data), _PIECE):
            self.wfile.write(memoryview(data)[start : start + _PIECE])

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def classify(method: str, target: str, headers: dict[str, str]) -> tuple[Kind, str]:
    """What a request with path-style address does, and its bucket and key.

    Args:
        method: The HTTP method.
        target: Path and query as sent.
        headers: Headers of the request with their names in any case.
    """
    parts = urlsplit(target)
    path = unquote(parts.path).lstrip("/")
    query = parse_qs(parts.query, keep_blank_values=True)
    names = {name.lower() for name in headers}
    bucket, _, key = path.partition("/")
    if not key:
        return _kind_of_bucket_request(method, query), "/".join([bucket, *filter(None, query.get("prefix", []))])
    return _kind_of_object_request(method, query, names), path


def caller_of(user_agent: str) -> Caller:
    agent = user_agent.lower()
    for mark, caller in (
        ("botocore", Caller.LOG_CLIENT),
        ("aws-sdk-java", Caller.S3A),
        ("hadoop", Caller.S3A),
        ("aws-sdk-cpp", Caller.ARROW),
        ("object_store", Caller.OBJECT_STORE),
        ("delta", Caller.OBJECT_STORE),
    ):
        if mark in agent:
            return caller
    return Caller.OTHER


def longest_chain(requests: tuple[RecordedRequest, ...]) -> int:
    """Number of sequential round trips: the most requests of which each began after the one before was answered."""
    last_end, chain = float("-inf"), 0
    for request in sorted(requests, key=lambda request: request.end_s or float("inf")):
        if request.begin_s >= last_end and request.end_s is not None:
            chain, last_end = chain + 1, request.end_s
    return chain


def _kind_of_bucket_request(method: str, query: dict[str, list[str]]) -> Kind:
    if method == "POST" and "delete" in query:
        return Kind.DELETE_MANY
    if method == "HEAD":
        return Kind.HEAD
    if method != "GET":
        return Kind.BUCKET
    if "uploads" in query:
        return Kind.LIST_UPLOADS
    return Kind.OTHER if {"location", "versioning", "policy", "acl"} & query.keys() else Kind.LIST


def _kind_of_object_request(method: str, query: dict[str, list[str]], headers: set[str]) -> Kind:
    match method:
        case "GET":
            return Kind.RANGED_GET if "range" in headers else Kind.GET
        case "HEAD":
            return Kind.HEAD
        case "PUT" if "partNumber" in query:
            return Kind.UPLOAD_PART
        case "PUT" if "x-amz-copy-source" in headers:
            return Kind.COPY
        case "PUT" if "if-none-match" in headers:
            return Kind.CONDITIONAL_PUT
        case "PUT":
            return Kind.PUT
        case "POST" if "uploads" in query:
            return Kind.CREATE_UPLOAD
        case "POST" if "uploadId" in query:
            return Kind.COMPLETE_UPLOAD
        case "DELETE" if "uploadId" in query:
            return Kind.ABORT_UPLOAD
        case "DELETE":
            return Kind.DELETE
    return Kind.OTHER


def _now() -> float:
    return time.perf_counter()
