"""What one request, and all together, may take: size and depth of bodies, time, and requests at the same time.

A body is read whole before the application gets it, so that a handler in a thread never waits for a client.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import anyio
import numpy as np
import numpy.typing as npt
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cm_delta_dagster.server.errors import Failure, answer, failure_of_status
from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.server.wires import wire_of

_BUFFERED_BODIES = 16
"""How many bodies of the largest size all requests of a process together may hold."""
_SCANNED_HERE = 256 * 1024
"""Larger bodies are scanned in a thread, so that others do not wait."""
_CHUNK = 1024 * 1024


class RefusedRequestError(Exception):
    """The request is refused before a handler sees it."""

    def __init__(self, failure: Failure, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(failure.message)
        self.failure, self.headers = failure, dict(headers or {})


@dataclass
class _Load:
    """What the requests of the process hold now."""

    requests: int = 0
    buffered_bytes: int = 0


class RequestLimits:
    """Refuses requests above the limits of the settings with an answer in the form of their API."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app, self._settings, self._load = app, settings, _Load()
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith("/health/"):  # They answer at any load.
            await self._app(scope, receive, send)
            return
        try:
            await self._limited(scope, receive, send)
        except RefusedRequestError as refused:
            # The rest of the body is not read: the connection cannot serve another request.
            headers = {**refused.headers, "Connection": "close"}
            await answer(refused.failure, wire_of(scope["path"]), headers=headers)(scope, receive, send)

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._check_declared_size(scope)
        if self._load.requests >= self._settings.max_concurrent_requests:
            raise _busy("it works on as many requests as it may")
        self._load.requests += 1
        try:
            body = await self._body(receive)
        except BaseException:
            self._load.requests -= 1
            raise
        await self._run(scope, _Body(body, receive), send, size=len(body))

    def _check_declared_size(self, scope: Scope) -> None:
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not declared.isdigit() or int(declared) > self._settings.max_body_bytes:
            raise self._too_large()

    async def _body(self, receive: Receive) -> bytes:
        try:
            body = await asyncio.wait_for(self._received(receive), self._settings.request_seconds)
        except TimeoutError:
            message = f"The body of the request did not arrive within {self._settings.request_seconds:g} seconds."
            raise RefusedRequestError(failure_of_status(408, message)) from None
        if len(body) <= _SCANNED_HERE:
            is_deep = exceeds_depth(body, self._settings.max_json_depth)
        else:
            is_deep = await anyio.to_thread.run_sync(exceeds_depth, body, self._settings.max_json_depth)
        if is_deep:
            self._load.buffered_bytes -= len(body)
            message = f"The body has more than {self._settings.max_json_depth} levels of arrays and objects. Nothing was changed."
            raise RefusedRequestError(failure_of_status(400, message))
        return body

    async def _received(self, receive: Receive) -> bytes:
        """The whole body, whose bytes count for the process until the request ends."""
        chunks: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RefusedRequestError(failure_of_status(400, "The client closed the connection."))
                chunk = message.get("body", b"")
                size += len(chunk)
                self._load.buffered_bytes += len(chunk)
                if size > self._settings.max_body_bytes:
                    raise self._too_large()
                if self._load.buffered_bytes > _BUFFERED_BODIES * self._settings.max_body_bytes:
                    raise _busy("the bodies of its requests take as much memory as they may")
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks)
        except BaseException:
            self._load.buffered_bytes -= size
            raise

    async def _run(self, scope: Scope, receive: Receive, send: Send, *, size: int) -> None:
        """Run the application. After the time of a request, answer that its outcome is unknown, and let it end unheard."""
        sending = _Sending(send)
        task = asyncio.create_task(self._answered(scope, receive, sending))
        self._running.add(task)
        task.add_done_callback(lambda done: self._ended(done, size))
        finished, _ = await asyncio.wait({task}, timeout=self._settings.request_seconds)
        if finished or sending.has_started:
            await task
            return
        sending.is_abandoned = True
        task.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # It is not logged as never retrieved.
        seconds = self._settings.request_seconds
        message = f"The server did not finish within {seconds:g} seconds. Whether the request took effect is unknown."
        await answer(failure_of_status(504, message), wire_of(scope["path"]))(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def _ended(self, task: asyncio.Task[None], size: int) -> None:
        self._running.discard(task)
        self._load.requests -= 1
        self._load.buffered_bytes -= size

    def _too_large(self) -> RefusedRequestError:
        limit = self._settings.max_body_bytes
        return RefusedRequestError(
            failure_of_status(413, f"The body of the request is larger than {limit} bytes. Nothing was changed.")
        )


class _Body:
    """Receives the body that was read, and then what the client sends, which is that it leaves."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Sending:
    """Sends the answer of the application, unless another one was sent in its place."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_started = self.is_abandoned = False

    async def __call__(self, message: Message) -> None:
        if self.is_abandoned:
            return
        self.has_started = True
        await self._send(message)


def _busy(why: str) -> RefusedRequestError:
    failure = failure_of_status(503, f"The server is busy: {why}. Nothing was changed. Retry later.")
    return RefusedRequestError(failure, headers={"Retry-After": "1"})


def exceeds_depth(body: bytes, levels: int) -> bool:
    """Whether arrays and objects of a JSON text are nested deeper. A text that is not JSON gets some answer."""
    if body.count(b"[") + body.count(b"{") <= levels:
        return False
    depth, is_in_string, is_escaped = 0, False, False
    for start in range(0, len(body), _CHUNK):
        chunk = np.frombuffer(body, dtype=np.uint8, count=min(_CHUNK, len(body) - start), offset=start)
        escaped, is_escaped = _escaped(chunk, is_escaped)
        quotes = (chunk == ord('"')) & ~escaped
        outside = (np.cumsum(quotes) + is_in_string) % 2 == 0
        steps = np.where((chunk == ord("[")) | (chunk == ord("{")), 1, 0)
        steps -= np.where((chunk == ord("]")) | (chunk == ord("}")), 1, 0)
        depths = depth + np.cumsum(np.where(outside, steps, 0))
        if depths.max() > levels:
            return True
        depth, is_in_string = int(depths[-1]), not outside[-1]
    return False


def _escaped(chunk: npt.NDArray[np.uint8], is_first: bool) -> tuple[npt.NDArray[np.bool_], bool]:
    """Which bytes follow a backslash that is not escaped itself, and whether the byte after the chunk does."""
    escaped = np.zeros(len(chunk) + 1, dtype=np.bool_)
    escaped[0] = is_first
    for place in np.flatnonzero(chunk == ord("\\")):
        if not escaped[place]:
            escaped[place + 1] = True
    return escaped[:-1], bool(escaped[-1])
