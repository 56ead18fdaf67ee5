"""``cm-delta events``, and the leases of ``cm-delta maintenance``."""

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
    text = run("events", "feed").output.splitlines()
    assert len(text) == 2 and "TABLE_CREATED" in text[0] and "main.sales.orders version 1 WRITE" in text[1]
    (event,) = map(
        json.loads,
        run("events", "feed", "--json", "--after", "1", "--kind", "commit", "--scope", "main").output.splitlines(),
    )
    assert (event["position"], event["kind"], event["table"], event["version"]) == (2, "COMMIT", str(NAME), 1)
    assert run("events", "feed", "--scope", "main.other").output == ""
    wrong = run("events", "feed", "--scope", "a..b")
    assert wrong.exit_code == 1 and "cannot be part of a name" in wrong.output


def test_old_events_are_deleted_if_the_catalog_permits_it(run: Runner, catalog: SqlCatalog) -> None:
    denied = run("events", "clean-feed", "--retention", "0 days")
    assert denied.exit_code == 1 and "cm-delta maintenance set-policy main FEED_CLEANUP" in denied.output
    assert run("maintenance", "set-policy", "main", "feed_cleanup").exit_code == 0
    catalog.coordinator.commit(catalog.registry.load_table(NAME).table_id, proposal(2))
    assert "Deleted" in run("events", "clean-feed", "--retention", "0 days").output
    behind = run("events", "feed", "--after", "1")
    assert behind.exit_code == 0 and "Warning: The events at the positions 2 to" in behind.output


@pytest.mark.parametrize("duration", ["nan", "inf", "-1", "7", "1e300 days", "-1 days", "36601 days", "P1Y"])
def test_a_duration_that_cannot_be_meant_is_refused(run: Runner, duration: str) -> None:
    for command in (
        ("events", "clean-feed", "--retention", duration),
        ("maintenance", "purge", "--retention", duration),
        ("maintenance", "set-policy", "main", "FEED_CLEANUP", "--min-retention", duration),
    ):
        wrong = run(*command)
        assert wrong.exit_code == 2 and "Error: Invalid value" in wrong.output


def test_an_old_option_of_a_duration_names_the_new_one(run: Runner) -> None:
    for command, option in (
        (("events", "clean-feed", "--days", "7"), "--retention"),
        (("maintenance", "purge", "--days", "7"), "--retention"),
        (("maintenance", "set-policy", "main", "FEED_CLEANUP", "--min-retention-days", "7"), "--min-retention"),
    ):
        refused = run(*command)
        assert refused.exit_code == 2 and f"is now {option}, e.g. {option} '7 days'" in refused.output


def test_leases_are_listed_and_ended(run: Runner, catalog: SqlCatalog) -> None:
    assert run("maintenance", "leases").output == "No lease is held.\n"
    table = catalog.registry.load_table(NAME).table_id
    catalog.leases.acquire_maintenance_lease(table, MaintenanceKind.DATA_CLEANUP, owner="host/7/x", duration_ms=60_000)
    assert "main.sales.orders  DATA_CLEANUP" in run("maintenance", "leases").output
    (lease,) = json.loads(run("maintenance", "leases", "--json").output)
    assert (lease["identifier"], lease["owner"], lease["token"]) == (str(NAME), "host/7/x", 1)
    refused = run("maintenance", "expire-lease", str(NAME), "--owner", "other")
    assert refused.exit_code == 1 and "host/7/x holds it" in refused.output
    assert run("maintenance", "expire-lease", str(NAME), "--owner", "host/7/x", "--reason", "gone").exit_code == 0
    assert run("maintenance", "leases").output == "No lease is held.\n"
