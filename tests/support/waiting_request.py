"""A request that a server is still carrying out while a test does other things."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx

from cm_delta_dagster.server.auth import CallerCatalog
from tests.support.live_server import LiveServer


@contextmanager
def waiting_request(server: LiveServer, path: str, headers: Mapping[str, str]) -> Iterator[list[httpx.Response]]:
    """Send a request whose handler waits until the block ends, and then lists the tables as the caller.

    Args:
        path: of the handler, which this adds to the server.

    Yields a list that has the answer after the block.
    """
    entered, released = threading.Event(), threading.Event()

    def wait(catalog: CallerCatalog) -> int:
        entered.set()
        assert released.wait(300)
        return len(catalog.registry.list_tables())

    server.app.add_api_route(path, wait)
    answers: list[httpx.Response] = []
    waiting = threading.Thread(
        target=lambda: answers.append(httpx.get(f"{server.url}{path}", headers=dict(headers), timeout=300))
    )
    waiting.start()
    try:
        assert entered.wait(300)
        yield answers
    finally:
        released.set()
        waiting.join()
