"""The server of a chaos run: it is killed at random, and a proxy before it cuts connections and loses requests and answers."""

import multiprocessing
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.server.serving import listening_socket, serve
from cm_delta_dagster.server.settings import ServerSettings
from tests.support.fault_proxy import Effect, Fault, FaultProxy, fault_proxy
from tests.support.server_process import free_port, is_listening
from tests.support.waiting import until

FORKSERVER = multiprocessing.get_context("forkserver")
"""Forks from a process that has imported everything and has no threads: a start takes milliseconds."""

_CLIENT = "cm_delta_dagster.catalog.rest.http_catalog"
FORKSERVER.set_forkserver_preload(["tests.faults.chaos_worker", __name__, _CLIENT, "psycopg", "s3fs", "adlfs", "gcsfs"])

_FAULTS = (Effect.RESET_BEFORE, Effect.RESET_AFTER, Effect.ANSWER_BEFORE, Effect.ANSWER_AFTER, Effect.TRUNCATED)
_CHANCE = 0.03


class ChaosServer:
    """A server in a process of its own.

    Attributes:
        url: of the proxy, which the clients use; after :meth:`calm`, of the server itself.
        database: URL of the catalog's database.
        token: of the clients.
    """

    def __init__(self, database: str, warehouse: str, proxy: FaultProxy) -> None:
        self.url, self.database, self._proxy = proxy.url, database, proxy
        port = int(proxy.target.rpartition(":")[2])
        self._settings = ServerSettings(catalog=database, warehouse=warehouse, port=port)
        with SqlCatalog(database, warehouse=warehouse) as catalog:
            self.token = catalog.tokens.create_token("chaos").secret
        self._process = self._started()

    def cut(self) -> None:
        """Cut all connections of clients."""
        self._proxy.cut()

    def restart(self) -> None:
        """Kill the server, and start another one."""
        self.kill()
        self._process = self._started()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def calm(self) -> int:
        """Stop the faults, and end the requests of killed clients. Return how many requests and answers were lost.

        The proxy may still have requests of killed clients that it has not passed on. The server therefore continues on another
        port, where none of them arrives.
        """
        self.kill()
        wait_for_transactions(self.database)
        self._settings = self._settings.model_copy(update={"port": free_port()})
        self._process = self._started()
        self.url = f"http://127.0.0.1:{self._settings.port}"
        return sum(self._proxy.injected.values())

    def _started(self) -> BaseProcess:
        process = FORKSERVER.Process(target=_serve, args=(self._settings,), daemon=True)
        process.start()
        until(lambda: is_listening(self._settings.port) or process.exitcode is not None)
        assert process.exitcode is None, f"the server ended with exit code {process.exitcode}"
        return process


def wait_for_transactions(database: str) -> None:
    """Return when PostgreSQL has ended what a killed client has asked for. With SQLite it ends with the client."""
    if database.startswith("sqlite"):
        return
    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    engine = sa.create_engine(database, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        until(lambda: connection.execute(sa.text(others)).scalar_one() == 0)


def _serve(settings: ServerSettings) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):  # The logs.
        os.dup2(nowhere, output)
    serve(settings, listening_socket(settings))


@contextmanager
def chaos_server(database: str, warehouse: str, *, seed: int) -> Iterator[ChaosServer]:
    """A server over the database, behind a proxy."""
    chance = random.Random(seed)

    def fault_of(method: str, path: str) -> Fault | None:
        return Fault(effect=chance.choice(_FAULTS), status=502) if chance.random() < _CHANCE else None

    with fault_proxy(f"http://127.0.0.1:{free_port()}") as proxy:
        server = ChaosServer(database, warehouse, proxy)
        proxy.chance = fault_of
        try:
            yield server
        finally:
            server.kill()
