"""``cm-delta feed``, ``clean-feed``, ``leases`` and ``expire-lease``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.cli.main import main
from tests.contracts.catalog_bench import NAME, create, proposal


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    table = create(catalog).table_id
    catalog.coordinator.commit(table, proposal(1))
    return catalog


class Runner:
    def __init__(self, tmp_path: Path) -> None:
        self._url = f"sqlite:///{tmp_path}/catalog.db"

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env={"CM_DELTA_CATALOG_URL": self._url})


@pytest.fixture
def run(tmp_path: Path, catalog: SqlCatalog) -> Runner:
    return Runner(tmp_path)


def test_the_feed_is_printed_as_text_and_as_json(run: Runner) -> None:
    text = run("feed").output.splitlines()
    assert len(text) == 2 and "TABLE_CREATED" in text[0] and "main.sales.orders version 1 WRITE" in text[1]
    (event,) = map(
        json.loads, run("feed", "--json", "--after", "1", "--kind", "commit", "--scope", "main").output.splitlines()
    )
    assert (event["position"], event["kind"], event["table"], event["version"]) == (2, "COMMIT", str(NAME), 1)
    assert run("feed", "--scope", "main.other").output == ""
    wrong = run("feed", "--scope", "a..b")
    assert wrong.exit_code == 1 and "cannot be part of a name" in wrong.output


def test_old_events_are_deleted_if_the_catalog_permits_it(run: Runner, catalog: SqlCatalog) -> None:
    denied = run("clean-feed", "--days", "0")
    assert denied.exit_code == 1 and "cm-delta policy allow main FEED_CLEANUP" in denied.output
    assert run("policy", "allow", "main", "feed_cleanup").exit_code == 0
    catalog.coordinator.commit(catalog.registry.load_table(NAME).table_id, proposal(2))
    assert "Deleted" in run("clean-feed", "--days", "0").output
    behind = run("feed", "--after", "1")
    assert behind.exit_code == 0 and "Warning: The events at the positions 2 to" in behind.output


@pytest.mark.parametrize("days", ["nan", "inf", "-1", "1e300"])
def test_a_number_of_days_that_cannot_be_meant_is_refused(run: Runner, days: str) -> None:
    for command in (
        ("clean-feed", "--days", days),
        ("purge", "--days", days),
        ("policy", "allow", "main", "FEED_CLEANUP", "--min-retention-days", days),
    ):
        wrong = run(*command)
        assert wrong.exit_code == 2 and "Error: Invalid value" in wrong.output


def test_leases_are_listed_and_ended(run: Runner, catalog: SqlCatalog) -> None:
    assert run("leases").output == "No lease is held.\n"
    table = catalog.registry.load_table(NAME).table_id
    catalog.leases.acquire_maintenance_lease(table, MaintenanceKind.DATA_CLEANUP, owner="host/7/x", duration_ms=60_000)
    assert "main.sales.orders  DATA_CLEANUP" in run("leases").output
    (lease,) = json.loads(run("leases", "--json").output)
    assert (lease["identifier"], lease["owner"], lease["token"]) == (str(NAME), "host/7/x", 1)
    refused = run("expire-lease", str(NAME), "--owner", "other")
    assert refused.exit_code == 1 and "host/7/x holds it" in refused.output
    assert run("expire-lease", str(NAME), "--owner", "host/7/x", "--reason", "gone").exit_code == 0
    assert run("leases").output == "No lease is held.\n"
