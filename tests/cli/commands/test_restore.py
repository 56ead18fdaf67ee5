"""``cm-delta restore`` on a real directory."""

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
    """A catalog with a table of three versions; the versions 1 and 2 add a file each."""
    url = f"sqlite:///{tmp_path}/catalog.db"
    client = DeltaClient(SqlCatalog(url, warehouse=str(tmp_path / "warehouse")), stores=Stores())
    table = create_table(client, identifier=NAME, schema=SCHEMA)
    for name in ("a.parquet", "b.parquet"):
        Path(table.location.removeprefix("file://"), name).write_bytes(b"PAR1")
        transaction = table.start_transaction(table.snapshot(), operation="WRITE")
        transaction.add_files([add_file(name, size=4)])
        transaction.commit()
    client.close()
    return url


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--catalog", url, "restore", NAME, *arguments])


def test_a_restore_is_shown_first_and_committed_with_apply(url: str) -> None:
    shown = run(url, "--version", "1")
    assert shown.exit_code == 0
    assert "Version 1 of main.test.t would become version 3: 0 files added, 1 file removed." in shown.output
    assert "Nothing was committed." in shown.output
    applied = run(url, "--version", "1", "--apply")
    assert applied.output == (
        "Version 3 of main.test.t restores version 1: 0 files added (0 bytes), 1 file removed (4 bytes).\n"
    )
    assert "is the latest version" in run(url, "--version", "3", "--apply").output


def test_missing_files_are_listed_and_left_out_only_on_request(url: str, tmp_path: Path) -> None:
    run(url, "--version", "0", "--apply")
    (lost,) = (tmp_path / "warehouse").rglob("a.parquet")
    lost.unlink()
    assert f"missing  file://{lost}" in run(url, "--version", "2").output
    refused = run(url, "--version", "2", "--apply")
    assert refused.exit_code == 1
    assert "cannot be restored" in refused.output
    assert "1 file added" in run(url, "--version", "2", "--apply", "--force").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Give one of --version and --timestamp"),
        (("--version", "1", "--timestamp", "2026-01-01"), "Give one of --version and --timestamp"),
        (("--timestamp", "yesterday"), "timestamp is 'yesterday'"),
        (("--timestamp", "1999-01-01"), "no version as of 1999-01-01T00:00:00.000Z"),
        (("--version", "9"), "Version 9 of main.test.t does not exist"),
    ],
)
def test_wrong_arguments_are_errors(url: str, arguments: tuple[str, ...], message: str) -> None:
    result = run(url, *arguments)
    assert result.exit_code != 0
    assert message in result.output
