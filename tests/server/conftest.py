"""Servers over a new catalog, on SQLite and on a real PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cm_delta_dagster.server.settings import ServerSettings
from tests.support.live_server import LiveServer, live_server


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def server_settings(request: pytest.FixtureRequest, tmp_path: Path) -> ServerSettings:
    """The settings of the server of a test, which may override this fixture."""
    url = str(request.getfixturevalue(f"{request.param}_url"))
    return ServerSettings(catalog=url, warehouse=f"file://{tmp_path}/warehouse")


@pytest.fixture
def server(server_settings: ServerSettings) -> Iterator[LiveServer]:
    """A server that runs over an empty catalog."""
    with live_server(server_settings) as live:
        yield live
