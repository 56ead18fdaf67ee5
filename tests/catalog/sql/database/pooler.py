"""A connection pooler for PostgreSQL that runs each transaction in any free session."""

import asyncio
import itertools
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import sqlalchemy as sa

_STARTUP, _REFUSED_REQUESTS = 196608, (80877103, 80877104)  # The latter ask for encryption.
_NUMBERS = itertools.count(1_000_000_000)
"""Backend process ids that the pooler reports to clients; no process of the machine has them."""


@dataclass
class _Session:
    """One connection to the server."""

    source: asyncio.StreamReader
    target: asyncio.StreamWriter


async def _message(source: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Kind and bytes of the next message."""
    head = await source.readexactly(5)
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head + await source.readexactly(length - 4)


class _Pooler:
    def __init__(self, socket: str, startup: bytes, sessions: int) -> None:
        self._socket, self._startup, self._count = socket, startup, sessions
        self._free: asyncio.Queue[_Session] = asyncio.Queue()
        self._parameters = b""
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self) -> int:
        """Connect the sessions and listen. Returns the port."""
        for _ in range(self._count):
            await self._connect()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Close every connection."""
        self._server.close()
        for target in tuple(self._open):
            target.close()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)

    async def _connect(self) -> None:
        session = _Session(*await asyncio.open_unix_connection(self._socket))
        self._open.add(session.target)
        session.target.write(self._startup)
        kind, parameters = b"", b""
        while kind != b"Z":
            kind, text = await _message(session.source)
            assert kind != b"E", text
            parameters += text if kind == b"S" else b""
        self._parameters = parameters
        self._free.put_nowait(session)

    async def _serve(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        self._open.add(target)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._start_up(source, target)
            while await self._transaction(source, target):
                pass
        self._open.discard(target)
        target.close()

    async def _start_up(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        code = 0
        while code != _STARTUP:
            length, code = struct.unpack("!ii", await source.readexactly(8))
            await source.readexactly(length - 8)
            if code in _REFUSED_REQUESTS:
                target.write(b"N")
        key = b"K" + struct.pack("!iii", 12, next(_NUMBERS), 0)
        target.write(b"R" + struct.pack("!ii", 8, 0) + self._parameters + key + b"Z" + struct.pack("!ic", 5, b"I"))

    async def _transaction(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> bool:
        """Forward one transaction. Returns False when the client has ended the connection."""
        kind, text = await _message(source)
        if kind == b"X":
            return False
        session = await self._free.get()
        try:
            state = b"T"
            while state != b"I":
                session.target.write(text)
                if kind in (b"Q", b"S"):
                    state = await self._answer(session, target)
                if state != b"I":
                    kind, text = await _message(source)
        except BaseException:
            self._open.discard(session.target)
            session.target.close()
            if self._server.is_serving():
                await self._connect()
            raise
        self._free.put_nowait(session)
        return True

    async def _answer(self, session: _Session, target: asyncio.StreamWriter) -> bytes:
        """Forward the answer. Returns the state of the session's transaction after it."""
        kind = b""
        while kind != b"Z":
            kind, text = await _message(session.source)
            target.write(text)
        await target.drain()
        return text[-1:]


@contextmanager
def pooled(url: str, *, sessions: int) -> Iterator[str]:
    """URL of the same database through a pooler with ``sessions`` sessions, which is closed at the end of the block.

    Args:
        url: of a server that listens on a Unix socket and uses trust authentication.
    """
    near = sa.make_url(url)
    words = ("user", near.username or "postgres", "database", near.database or "postgres")
    text = struct.pack("!i", _STARTUP) + b"".join(word.encode() + b"\0" for word in words) + b"\0"
    pooler = _Pooler(f"{near.query['host']}/.s.PGSQL.5432", struct.pack("!i", len(text) + 4) + text, sessions)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(pooler.open(), loop).result(300)
        yield near.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
    finally:
        asyncio.run_coroutine_threadsafe(pooler.close(), loop).result(300)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
