"""``cm-delta feed``, ``clean-feed``, ``leases``, ``expire-lease`` and ``webhooks``."""

import json
import socket
import subprocess
import sys
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
    catalog.commit(table, proposal(1))
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
    catalog.commit(catalog.load_table(NAME).table_id, proposal(2))
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
    table = catalog.load_table(NAME).table_id
    catalog.acquire_maintenance_lease(table, MaintenanceKind.DATA_CLEANUP, owner="host/7/x", duration_ms=60_000)
    assert "main.sales.orders  DATA_CLEANUP" in run("leases").output
    (lease,) = json.loads(run("leases", "--json").output)
    assert (lease["identifier"], lease["owner"], lease["token"]) == (str(NAME), "host/7/x", 1)
    refused = run("expire-lease", str(NAME), "--owner", "other")
    assert refused.exit_code == 1 and "host/7/x holds it" in refused.output
    assert run("expire-lease", str(NAME), "--owner", "host/7/x", "--reason", "gone").exit_code == 0
    assert run("leases").output == "No lease is held.\n"


def test_webhooks_are_set_listed_run_and_removed(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CM_DELTA_WEBHOOK_NETWORKS", "127.0.0.1")
    assert run("webhooks", "list").output == "No webhook is set.\n"
    arguments = (
        "hook",
        "http://127.0.0.1:1/",
        "--secret",
        "env:CM_DELTA_TEST_SECRET",
        "--after",
        "0",
        "--kind",
        "COMMIT",
    )
    assert run("webhooks", "set", *arguments).exit_code == 0
    assert "hook  http://127.0.0.1:1/         0" in run("webhooks", "list").output
    (webhook,) = json.loads(run("webhooks", "list", "--json").output)
    assert (webhook["kinds"], webhook["failures"]) == (["COMMIT"], 0)
    without_secret = run("webhooks", "run", "--once")
    assert without_secret.exit_code == 1 and "There is no secret at env:CM_DELTA_TEST_SECRET" in without_secret.output
    assert run("webhooks", "failures", "hook").output == ""
    assert run("webhooks", "remove", "hook").exit_code == 0
    for gone in (("remove", "hook"), ("failures", "hook"), ("failures", "hook", "--json")):
        refused = run("webhooks", *gone)
        assert refused.exit_code == 1 and "no webhook 'hook'" in refused.output


def test_a_webhook_to_this_machine_needs_permission(run: Runner) -> None:
    refused = run("webhooks", "set", "hook", "http://127.0.0.1:1/", "--secret", "env:A")
    assert refused.exit_code == 1 and "CM_DELTA_WEBHOOK_NETWORKS" in refused.output
    assert run("webhooks", "list").output == "No webhook is set.\n"


def test_a_token_in_the_url_of_a_webhook_is_not_printed(run: Runner) -> None:
    assert run("webhooks", "set", "hook", "https://8.8.8.8/s3cr3t?t=s3cr3t", "--secret", "env:A").exit_code == 0
    for command in (("webhooks", "list"), ("webhooks", "list", "--json"), ("audit",), ("feed",), ("feed", "--json")):
        assert "https://8.8.8.8/***" in run(*command).output and "s3cr3t" not in run(*command).output


def test_each_failed_attempt_of_a_delivery_is_printed(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CM_DELTA_WEBHOOK_NETWORKS", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"  # Refused once the port is closed.
    secret = tmp_path / "secret"
    secret.write_text("whisper")
    run("webhooks", "set", "hook", url, "--secret", f"file:{secret}", "--after", "0", "--kind", "COMMIT")
    command = [sys.executable, "-m", "cm_delta_dagster.cli.main", "--catalog", f"sqlite:///{tmp_path}/catalog.db"]
    done = subprocess.run(
        [*command, "webhooks", "run", "--once", "--attempts", "2"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "hook: 0 delivered, 1 failed\n")
    first, last = done.stderr.splitlines()
    assert "in attempt 1 of 2: " in first and "Connection refused" in first and "The next attempt is in" in first
    assert "in the last of 2 attempts: " in last and "Connection refused" in last
