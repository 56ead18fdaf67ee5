"""``cm-delta schemas``, and the catalogs of ``cm-delta settings``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli.main import main
from tests.contracts.catalog_bench import create


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/catalog.db"
    with SqlCatalog(url, warehouse="memory://w", now_ms=lambda: 1_700_000_000_000, principal="ana") as catalog:
        create(catalog)
    return url


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--catalog", url, "--principal", "ana", *arguments])


def test_schemas_are_created_listed_and_dropped(url: str) -> None:
    assert (
        run(url, "schemas", "create", "lake.raw", "--comment", "as it came").output == "The schema lake.raw exists.\n"
    )
    listed = run(url, "schemas", "--in", "main")
    assert listed.output.splitlines() == [
        "name                     created  created_by  comment",
        "----------  --------------------  ----------  -------",
        "main.sales  2023-11-14T22:13:20Z  ana         -",
    ]
    described = [
        (row["name"], row["comment"], row["created_by"]) for row in json.loads(run(url, "schemas", "--json").output)
    ]
    assert described == [("lake.raw", "as it came", "ana"), ("main.sales", "", "ana")]
    assert run(url, "tables", "lake.raw").output == ""
    assert run(url, "schemas", "create", "lake.raw", "--if-not-exists").exit_code == 0
    assert run(url, "schemas", "drop", "lake.raw").output == "The schema lake.raw does not exist any more.\n"
    assert run(url, "schemas", "drop", "lake.raw", "--if-exists").exit_code == 0


def test_catalogs_are_created_listed_and_dropped(url: str) -> None:
    assert run(url, "settings", "create-catalog", "lake").output == "The catalog lake exists.\n"
    assert [row["name"] for row in json.loads(run(url, "settings", "list-catalogs", "--json").output)] == [
        "lake",
        "main",
    ]
    assert run(url, "settings", "drop-catalog", "lake").output == "The catalog lake does not exist any more.\n"
    assert [line.split()[0] for line in run(url, "settings", "list-catalogs").output.splitlines()[2:]] == ["main"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("schemas", "create", "main.sales"), "The schema main.sales exists already"),
        (("schemas", "create", "main"), "write catalog.schema"),
        (("schemas", "drop", "main.sales"), "it has main.sales.orders"),
        (("schemas", "drop", "main.sale"), "Did you mean main.sales?"),
        (("schemas", "--in", "lake"), "There is no catalog lake"),
        (("settings", "drop-catalog", "main"), "it has main.sales"),
        (("tables", "lake"), "The catalog has no catalog lake"),
    ],
)
def test_what_cannot_be_done_is_an_error_with_its_reason(url: str, arguments: tuple[str, ...], message: str) -> None:
    refused = run(url, *arguments)
    assert refused.exit_code == 1 and message in refused.output
