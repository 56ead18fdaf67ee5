"""The Python API, the command line, Dagster and other processes use the catalog over HTTP."""

import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from cm_delta_dagster import connect
from cm_delta_dagster.catalog.opening import open_catalog
from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import (
    CatalogError,
    CatalogVersionError,
    InvalidArgumentError,
    NotAuthenticatedError,
    TableNotFoundError,
)
from cm_delta_dagster.orchestration.runs.resources import CatalogResource
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.stores import Stores
from tests.support.creation import create_table
from tests.support.live_server import LiveServer

NAME = TableIdentifier("main", "sales", "orders")
SCHEMA = StructType((StructField("id", PrimitiveType("long")),))


@pytest.fixture
def token(server: LiveServer, tmp_path: Path) -> str:
    """The token of a principal, in a catalog that has a table."""
    token = server.token_for("etl")
    client = DeltaClient(HttpCatalog(server.url, token), stores=Stores())
    create_table(client, identifier=str(NAME), schema=SCHEMA)
    client.close()
    return token


def test_the_python_api_uses_the_server_and_its_warehouse(server: LiveServer, token: str, tmp_path: Path) -> None:
    with connect(server.url, token=token) as lake:
        assert [str(name) for name in lake.tables()] == [str(NAME)]
        assert str(lake.table(str(NAME)).location).startswith(f"file://{tmp_path}/warehouse/")
    with HttpCatalog(server.url, token) as catalog:
        assert catalog.access.whoami().principal == "etl"
        assert [entry.principal for entry in catalog.feed.feed(after=0, limit=9)] == ["etl"]


def test_commands_use_the_server_with_the_token_of_the_environment(
    server: LiveServer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CM_DELTA_TOKEN", token)
    listed = CliRunner().invoke(main, ["--catalog", server.url, "tables"])
    assert (listed.exit_code, str(NAME) in listed.output) == (0, True)
    asked = CliRunner().invoke(main, ["--catalog", server.url, "access", "whoami"])
    assert "etl" in asked.output
    copied = CliRunner().invoke(main, ["--catalog", server.url, "recovery", "backup", "copy.db"])
    assert copied.exit_code == 1 and "cm-delta --catalog URL recovery backup copy.db" in copied.output
    monkeypatch.delenv("CM_DELTA_TOKEN")
    refused = CliRunner().invoke(main, ["--catalog", server.url, "tables"])
    assert refused.exit_code == 1 and "token" in refused.output


def test_a_resource_uses_the_server_with_a_token_of_a_variable(
    server: LiveServer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_TOKEN", token)
    seen: list[Any] = []

    @dg.op
    def look(catalog: CatalogResource) -> None:
        seen.extend(catalog.lake.tables())

    @dg.job(resource_defs={"catalog": CatalogResource(url=server.url, token=dg.EnvVar("LAKE_TOKEN"))})
    def look_at_tables() -> None:
        look()

    assert look_at_tables.execute_in_process().success
    assert [str(name) for name in seen] == [str(NAME)]


def _tables(catalog: HttpCatalog, sender: Any) -> None:
    sender.send([str(name) for name in catalog.registry.list_tables()])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_process_opens_its_own_connections(method: str, server: LiveServer, token: str) -> None:
    with HttpCatalog(server.url, token) as catalog:
        assert catalog.registry.list_tables() == (NAME,)
        context = multiprocessing.get_context(method)
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_tables, args=(catalog, sender))  # type: ignore[attr-defined]  # Of each context.
        process.start()
        assert receiver.poll(300) and receiver.recv() == [str(NAME)]
        process.join()
        assert catalog.registry.list_tables() == (NAME,)


def test_a_token_of_the_environment_is_not_in_a_pickle(
    server: LiveServer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CM_DELTA_TOKEN", token)
    with HttpCatalog(server.url) as catalog:
        text = pickle.dumps(catalog)
        assert token.encode() not in text and token not in repr(catalog)
    with pickle.loads(text) as again:
        assert again.registry.list_tables() == (NAME,)


def test_a_reader_waits_for_the_next_event(server: LiveServer, token: str) -> None:
    with HttpCatalog(server.url, token) as catalog:
        latest = catalog.feed.latest_feed_position()
        assert catalog.events.wait_for_events(after=latest - 1, seconds=300)
        assert not catalog.events.wait_for_events(after=latest, seconds=0.05)
        with pytest.raises(InvalidArgumentError):
            catalog.events.wait_for_events(after=-1, seconds=0)


def test_the_clock_is_that_of_the_server(server: LiveServer, token: str) -> None:
    with HttpCatalog(server.url, token) as catalog, server.catalog() as direct:
        before = direct.coordinator.now_ms()
        assert before - 1000 <= catalog.coordinator.now_ms() <= direct.coordinator.now_ms() + 1000


def test_errors_arrive_with_class_message_and_remedy(server: LiveServer, token: str) -> None:
    with HttpCatalog(server.url, token) as catalog, server.catalog() as direct:
        errors = []
        for opened in (catalog, direct):
            with pytest.raises(TableNotFoundError) as raised:
                opened.registry.load_table(TableIdentifier("main", "sales", "none"))
            errors.append(raised.value)
        assert (errors[0].message, errors[0].remedy) == (errors[1].message, errors[1].remedy)


def test_a_caller_without_a_valid_token_is_refused(server: LiveServer) -> None:
    for token in (None, "wrong"):
        with HttpCatalog(server.url, token) as catalog, pytest.raises(NotAuthenticatedError):
            catalog.registry.list_tables()


def test_another_version_of_the_api_is_refused(server: LiveServer, token: str) -> None:
    with HttpCatalog(server.url, token) as catalog:
        connection = catalog._connection
        with pytest.raises(CatalogVersionError, match="version 1"):
            connection.get("/api/cm/v2/info")
        with pytest.raises(InvalidArgumentError, match="no such operation"):
            connection.get("/api/cm/v1/registry/nothing")
        assert b'"api_version":1' in connection.get("/api/cm/v1/info")


def test_a_closed_catalog_says_so() -> None:
    with HttpCatalog("http://127.0.0.1:1") as catalog:
        assert repr(catalog) == "HttpCatalog('http://127.0.0.1:1')"
        catalog.close()
        with pytest.raises(CatalogError, match="is closed"):
            catalog.registry.list_tables()


def test_arguments_that_do_not_fit_the_url_are_refused() -> None:
    for arguments in ({"warehouse": "/w"}, {"principal": "ana"}):
        with pytest.raises(InvalidArgumentError, match="Leave out"):
            open_catalog("http://127.0.0.1:1", **arguments)  # type: ignore[arg-type]  # By name.
    with pytest.raises(InvalidArgumentError, match="token"):
        open_catalog("sqlite:///c.db", token="x")
    for url in ("http://", "http://user:secret@host", "http://host:x", "http://host/?a=b", "https://host:99999"):
        with pytest.raises(InvalidArgumentError) as raised:
            open_catalog(url)
        assert "secret" not in str(raised.value)


def test_definitions_load_while_the_server_is_down() -> None:
    catalog = CatalogResource(url="http://127.0.0.1:1", token=dg.EnvVar("NOT_SET"))
    dg.Definitions(resources={"catalog": catalog}).get_repository_def()
