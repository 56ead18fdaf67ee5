"""Adds network latency to a PostgreSQL server: a proxy in front of its Unix socket delays both directions."""

import asyncio
import glob
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

ONE_WAY_SECONDS = 0.005
"""Latency of one direction, as between two regions."""
_CHUNK = 65536


@contextmanager
def from_afar(url: str) -> Iterator[str]:
    """URL of the same PostgreSQL database at a distance of :data:`ONE_WAY_SECONDS`, by a process that ends with the block.

    Args:
        url: of a server that listens on a Unix socket.
    """
    near = sa.make_url(url)
    directory = near.query["host"]
    (socket,) = (name for name in glob.glob(f"{directory}/.s.PGSQL.*") if not name.endswith(".lock"))
    proxy = subprocess.Popen([sys.executable, "-m", "benchmarks.distance", socket], stdout=subprocess.PIPE, text=True)
    try:
        assert proxy.stdout is not None
        port = int(proxy.stdout.readline())
        yield near.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
    finally:
        proxy.terminate()
        proxy.wait()


async def _deliver(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        while True:
            due, data = await on_the_way.get()
            await asyncio.sleep(due - time.monotonic())
            if not data:
                target.close()
                return
            target.write(data)
            await target.drain()

    arriving = asyncio.create_task(arrive())
    data = b"-"
    while data:
        data = await source.read(_CHUNK)
        on_the_way.put_nowait((time.monotonic() + ONE_WAY_SECONDS, data))
    await arriving


async def _serve(socket: str) -> None:
    async def meet(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(socket)
        await asyncio.gather(_deliver(source, back), _deliver(there, target), return_exceptions=True)

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
