"""``cm-delta clone`` on a real directory."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.creation import create_table
from tests.support.lake import SCHEMA

NAME = "main.test.t"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A catalog with a table of two versions; version 1 adds a file."""
    url = f"sqlite:///{tmp_path}/catalog.db"
    client = DeltaClient(SqlCatalog(url, warehouse=str(tmp_path / "warehouse")), stores=Stores())
    table = create_table(client, identifier=NAME, schema=SCHEMA)
    Path(table.location.removeprefix("file://"), "a.parquet").write_bytes(b"PAR1")
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file("a.parquet", size=4)])
    transaction.commit()
    client.close()
    return url


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--catalog", url, "clone", *arguments])


def test_a_table_of_the_catalog_is_cloned_into_its_warehouse(url: str, tmp_path: Path) -> None:
    assert run(url, NAME, "main.test.c", "--property", "owner=me").output == (
        "main.test.c is a shallow clone of version 1 of main.test.t: 1 data file (4 bytes).\n"
    )
    assert run(url, NAME, "main.test.d", "--deep").output == (
        "main.test.d is a deep clone of version 1 of main.test.t: 1 data file (4 bytes), 1 file copied.\n"
    )
    assert "0 data files" in run(url, NAME, "main.test.e", "--version", "0").output
    assert len(list((tmp_path / "warehouse/main/test").rglob("a.parquet"))) == 2


def test_what_cannot_be_cloned_is_refused(url: str) -> None:
    assert "cannot be cloned onto itself" in run(url, NAME, NAME).output
    assert "needs --warehouse" in run(url, "/no/table", "main.test.c").output
    assert (
        "one of --version and --timestamp" in run(url, NAME, "main.test.c", "--version", "0", "--timestamp", "x").output
    )
    assert "is not KEY=VALUE" in run(url, NAME, "main.test.c", "--property", "owner").output
    assert run(url, NAME, "main.test.c", "--version", "9").exit_code == 1
