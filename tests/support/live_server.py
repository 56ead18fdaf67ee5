"""A real server of ``cm_delta_dagster.server`` on a free port of this machine, in a thread."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI, Request

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.server.app import create_app
from cm_delta_dagster.server.auth import bearer_secret, caller_catalog
from cm_delta_dagster.server.http_protocol import HttpProtocol
from cm_delta_dagster.server.native.storage_checks import storage_checks
from cm_delta_dagster.server.settings import ServerSettings
from tests.support.waiting import until


@dataclass
class LiveServer:
    """A server that runs.

    Attributes:
        url: where it serves, such as ``http://127.0.0.1:50123``.
    """

    url: str
    settings: ServerSettings
    app: FastAPI

    def token_for(self, principal: str, *, read_only: bool = False, scope: str = "*", by: str | None = None) -> str:
        """The secret of a new token of ``principal``, created by ``by``."""
        with self.catalog(owner=by) as catalog:
            return catalog.tokens.create_token(principal, read_only=read_only, scope=scope).secret

    def headers_of(self, principal: str, *, read_only: bool = False, scope: str = "*") -> dict[str, str]:
        """The headers of requests with a new token of ``principal``."""
        return {"Authorization": f"Bearer {self.token_for(principal, read_only=read_only, scope=scope)}"}

    def catalog(self, *, owner: str | None = None) -> SqlCatalog:
        """The catalog by its database, to prepare and to compare."""
        return SqlCatalog(self.settings.catalog, warehouse=self.settings.warehouse, principal=owner)


@contextlib.contextmanager
def live_server(
    settings: ServerSettings,
    *,
    now_ms: Callable[[], int] | None = None,
    trusts_names: bool = False,
    reads_files: bool = True,
) -> Iterator[LiveServer]:
    """A server with these settings, but on a free port. It stops at the end of the block.

    Args:
        now_ms: clock of its catalog, by default that of the database.
        trusts_names: True to take the name of a principal for its token.
        reads_files: False to ratify proposals without files, such as those of the contracts.
    """
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        app = create_app(settings, now_ms=now_ms)
        live = LiveServer(url=f"http://127.0.0.1:{listening.getsockname()[1]}", settings=settings, app=app)
        if trusts_names:
            app.dependency_overrides[caller_catalog] = _catalog_of_name
        if not reads_files:
            app.dependency_overrides[storage_checks] = lambda: None
        config = uvicorn.Config(app, http=HttpProtocol, ws="none", log_config=None, access_log=False)
        server = _Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive())
            assert server.started
            yield live
        finally:
            server.stop()
            thread.join()


class _Server(uvicorn.Server):
    """A server that stops at once. Uvicorn looks every tenth of a second, and waits another tenth.

    Hundreds of tests have a server of their own.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = asyncio.Event()

    def stop(self) -> None:
        """Stop; requests that run end first. The thread of the server is to be joined then."""
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._ask(), self._loop)

    async def _ask(self) -> None:
        self._asked.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._asked.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(10):  # Idle connections are closed in the next rounds of the loop.
            await asyncio.sleep(0)
        await self._wait_tasks_to_complete()
        await self.lifespan.shutdown()


def _catalog_of_name(request: Request) -> SqlCatalog:
    catalog: SqlCatalog = request.app.state.catalog
    return catalog.acting_as(bearer_secret(request))
