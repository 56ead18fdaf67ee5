"""A server for the tests of one module, which use tables of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.storage.stores import Stores
from tests.support.live_server import LiveServer, live_server
from tests.support.unity_wire import UnityWire


@pytest.fixture(scope="module")
def unity_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server over a catalog in SQLite."""
    folder = tmp_path_factory.mktemp("unity")
    settings = ServerSettings(catalog=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    with live_server(settings) as server:
        yield server


@pytest.fixture
def wire(unity_server: LiveServer) -> Iterator[UnityWire]:
    """Requests by hand."""
    wire = UnityWire(unity_server)
    yield wire
    wire.http.close()


@pytest.fixture
def owner(unity_server: LiveServer) -> Iterator[DeltaClient]:
    """A client of this package beside the server, over the same database."""
    with direct_client(unity_server) as client:
        yield client


@contextmanager
def direct_client(server: LiveServer) -> Iterator[DeltaClient]:
    """A client of the database of a server."""
    settings = server.settings
    client = DeltaClient(
        SqlCatalog(settings.catalog, warehouse=settings.warehouse),
        stores=Stores(),
        settings=ClientSettings(retry_initial_delay=timedelta(milliseconds=1), copied_content_bytes=0),
    )
    yield client
    client.close()


def files_below(location: str) -> set[Path]:
    """The files of a table, for tests that nothing was written."""
    return {path for path in Path(location.removeprefix("file://")).rglob("*") if path.is_file()}
