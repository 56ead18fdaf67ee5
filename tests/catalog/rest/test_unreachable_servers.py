"""Servers that do not answer, and clients that cannot be answered: what is said, when, and what is not tried again."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from cm_delta_dagster.catalog.opening import open_catalog
from cm_delta_dagster.catalog.rest import server_connection
from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.errors import CatalogUnavailableError, InvalidArgumentError, NotAuthenticatedError
from cm_delta_dagster.server.settings import ServerSettings
from tests.support.live_server import LiveServer, live_server
from tests.support.log_records import messages_of
from tests.support.server_process import free_port

_CLIENT = """
import sys
from cm_delta_dagster.catalog.opening import open_catalog
for _ in range(2):
    open_catalog(sys.argv[1], token="x").close()
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    monkeypatch.delenv("CM_DELTA_TOKEN", raising=False)
    with live_server(ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db")) as live:
        yield live


def test_a_client_that_waits_for_a_server_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_connection, "_SAY_AFTER_S", 0)
    monkeypatch.setattr(server_connection, "_GIVE_UP_AFTER_S", 0.5)
    with HttpCatalog(f"http://127.0.0.1:{free_port()}", "x") as catalog, pytest.raises(CatalogUnavailableError):
        catalog.registry.list_tables()
    (notice,) = messages_of(caplog, server_connection)
    assert "could not be reached" in notice and "Check the URL" in notice


def test_an_answer_at_the_first_attempt_is_not_announced(server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    with HttpCatalog(server.url, server.token_for("etl")) as catalog:
        catalog.registry.list_tables()
    assert messages_of(caplog, server_connection) == []


def test_a_server_without_tls_is_not_asked_again(server: LiveServer) -> None:
    """The first attempt fails by WRONG_VERSION_NUMBER or the like; a repetition would give up after half a minute."""
    url = server.url.replace("http://", "https://")
    with (
        HttpCatalog(url, "x") as catalog,
        pytest.raises(CatalogUnavailableError, match="could not be reached") as raised,
    ):
        catalog.registry.list_tables()
    cause = raised.value.__cause__
    assert isinstance(cause, httpx.ConnectError)  # Not the error of the retries.


def test_the_refusal_of_a_client_without_a_token_says_where_it_belongs(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpCatalog(server.url) as catalog, pytest.raises(NotAuthenticatedError) as raised:
        catalog.registry.list_tables()
    assert "CM_DELTA_TOKEN" in raised.value.message and "the argument token" in raised.value.message
    shown = CliRunner().invoke(main, ["--catalog", server.url, "tables"]).output
    assert "CM_DELTA_TOKEN" in shown


@pytest.mark.parametrize("path", ["/api/cm/v1", "/catalog/"])
def test_a_url_with_a_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgumentError, match="has a path"):
        open_catalog(f"http://127.0.0.1:1{path}")
    open_catalog("http://127.0.0.1:1/").close()


def test_the_principal_of_the_environment_is_said_to_have_no_effect() -> None:
    environment = {"CM_DELTA_PRINCIPAL": "ana", "PYTHONPATH": ":".join(sys.path)}
    client = subprocess.run(
        [sys.executable, "-c", _CLIENT, "http://127.0.0.1:1"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert client.stderr.count("CM_DELTA_PRINCIPAL has no effect") == 1
