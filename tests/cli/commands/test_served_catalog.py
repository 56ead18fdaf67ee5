"""Commands of ``cm-delta`` with the URL of a server, which names the warehouse."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.creation import create_table
from tests.support.lake import SCHEMA
from tests.support.live_server import LiveServer, live_server

NAME = "main.test.t"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    """The server of ``--catalog``, with a table of one data file."""
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as live:
        monkeypatch.setenv("CM_DELTA_CATALOG_URL", live.url)
        monkeypatch.setenv("CM_DELTA_TOKEN", live.token_for("etl"))
        client = client_of(live)
        table = create_table(client, identifier=NAME, schema=SCHEMA)
        Path(table.location.removeprefix("file://"), "a.parquet").write_bytes(b"PAR1")
        transaction = table.start_transaction(table.snapshot(), operation="WRITE")
        transaction.add_files([add_file("a.parquet", size=4)])
        transaction.commit()
        client.close()
        yield live


def client_of(server: LiveServer) -> DeltaClient:
    return DeltaClient(HttpCatalog(server.url), stores=Stores())


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_clones_get_their_location_in_the_warehouse_of_the_server(server: LiveServer, tmp_path: Path) -> None:
    assert "1 data file" in run("clone", NAME, "main.test.c").output
    assert "1 file copied" in run("clone", NAME, "main.test.d", "--deep").output
    assert len(list((tmp_path / "warehouse/main/test").rglob("a.parquet"))) == 2


def test_files_of_dropped_tables_are_purged_in_the_warehouse_of_the_server(server: LiveServer, tmp_path: Path) -> None:
    assert run("maintenance", "set-policy", "main", "table_purge").exit_code == 0
    assert run("drop", NAME).exit_code == 0
    assert "--apply purges." in run("maintenance", "purge", "--retention", "0 days").output
    assert (
        run("maintenance", "purge", "--retention", "0 days", "--apply").output.splitlines()[-1].startswith("Purged 1")
    )
    assert not list(tmp_path.rglob("a.parquet"))


def test_orphan_files_are_those_of_the_warehouse_of_the_server(server: LiveServer, tmp_path: Path) -> None:
    assert run("maintenance", "orphan-files").output == "0 locations without a table in this catalog.\n"
    (tmp_path / "warehouse/main/test/lost").mkdir()
    (tmp_path / "warehouse/main/test/lost/a.parquet").write_bytes(b"PAR1")
    (orphan,) = json.loads(run("maintenance", "orphan-files", "--json").output)
    assert orphan["location"] == f"file://{tmp_path}/warehouse/main/test/lost"


def test_a_lost_catalog_is_recovered_at_the_server(server: LiveServer, tmp_path: Path) -> None:
    result = run("recovery", "recover", "--warehouse", f"{tmp_path}/warehouse", "--apply")
    assert result.exit_code == 2 and "on the machine of the server" in result.output


def test_a_warehouse_beside_the_url_of_a_server_is_refused(server: LiveServer, tmp_path: Path) -> None:
    for command in (("clone", NAME, "main.test.c"), ("maintenance", "orphan-files"), ("maintenance", "purge")):
        assert "Leave out the warehouse" in run(*command, "--warehouse", str(tmp_path)).output


def test_a_server_without_a_warehouse_places_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live_server(ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db")) as live:
        monkeypatch.setenv("CM_DELTA_CATALOG_URL", live.url)
        monkeypatch.setenv("CM_DELTA_TOKEN", live.token_for("etl"))
        assert "no warehouse in its configuration" in run("maintenance", "orphan-files").output


def test_spark_creates_a_table_where_the_server_says(server: LiveServer, spark: SparkSession, tmp_path: Path) -> None:
    result = run("sql", "CREATE TABLE main.test.made (id BIGINT)")
    assert result.output == "Done.\n", result.output
    assert list((tmp_path / "warehouse/main/test").glob("*/_delta_log/00000000000000000000.json"))
    assert "main.test.made" in run("tables").output
