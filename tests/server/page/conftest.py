"""A server over a new SQLite catalog with tables that Arrow has written, and browsers that look at its page."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from cm_delta_dagster.api.connection.connect import connect
from cm_delta_dagster.api.connection.connection import Connection
from cm_delta_dagster.server.settings import ServerSettings
from tests.support.browser import Browser, browser
from tests.support.live_server import LiveServer

ORDERS = "main.sales.orders"
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def server_settings(sqlite_url: str, tmp_path: Path) -> ServerSettings:
    return ServerSettings(catalog=sqlite_url, warehouse=f"file://{tmp_path}/warehouse")


@pytest.fixture
def as_principal(server: LiveServer) -> Iterator[Callable[[str], Connection]]:
    """Opens the server with a new token of a principal."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(connect(server.url, token=server.token_for(name, by="owner")))


@pytest.fixture
def owner(as_principal: Callable[[str], Connection]) -> Connection:
    """Owns ``main.sales.orders`` with three rows, in a catalog with grants."""
    lake = as_principal("owner")
    lake.create_table_as(ORDERS, ROWS)
    lake.access.enable_grants(owner="owner")
    return lake


@pytest.fixture
def open_browser(server: LiveServer) -> Iterator[Callable[..., Browser]]:
    """Opens a browser that is signed in with a new token of a principal."""
    with ExitStack() as stack:

        def opened(principal: str, *, read_only: bool = False, scope: str = "*") -> Browser:
            secret = server.token_for(principal, read_only=read_only, scope=scope, by="owner")
            return stack.enter_context(browser(server.url, secret=secret))

        yield opened
