"""The ``cm-delta`` command."""

import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster.catalog.catalog import CommitProposal, CommitSummary, MaintenanceKind, TableIdentifier
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.command_line import main

NAME = TableIdentifier("main", "sales", "orders")


@pytest.fixture
def url(tmp_path: Path) -> str:
    text = f"sqlite:///{tmp_path}/catalog.db"
    with SqlCatalog(text, warehouse="memory://w", now_ms=lambda: 1_700_000_000_000) as catalog:
        staging = catalog.create_staging_table(NAME)
        catalog.register_table(staging.table_id, NAME, summary=summary("CREATE TABLE", 1))
        for version in (1, 2):
            catalog.commit(
                staging.table_id,
                CommitProposal(
                    version=version,
                    file_name=f"{version:020d}.{uuid.uuid4()}.json",
                    file_size=1,
                    file_modification_time=1,
                    summary=summary("WRITE", version + 1),
                ),
            )
        catalog.set_published_version(staging.table_id, 1)
    return text


def summary(operation: str, timestamp: int) -> CommitSummary:
    return CommitSummary(txn_id="t", in_commit_timestamp=timestamp, operation=operation, data_change=True)


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"CM_DELTA_CATALOG_URL": url})


def test_tables_are_listed(url: str) -> None:
    assert run(url, "tables").output == run(url, "tables", "main.sales").output == "main.sales.orders\n"
    assert run("", "--catalog", url, "tables", "other").output == ""


def test_the_newest_commits_are_listed_with_their_state(url: str) -> None:
    lines = run(url, "commits", str(NAME), "--limit", "2").output.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["1", "2023-11-14T22:13:20Z", "published", "yes", "WRITE"],
        ["2", "2023-11-14T22:13:20Z", "ratified", "yes", "WRITE"],
    ]


def test_policy_is_set_shown_and_reset(url: str) -> None:
    """CM-M4, CM-M5"""
    assert run(url, "policy", "allow", "main", "data_cleanup", "--reason", "nightly").exit_code == 0
    assert run(url, "policy", "deny", "main.sales", "DATA_CLEANUP").exit_code == 0
    assert "allowed  DATA_CLEANUP         main: nightly" in run(url, "policy", "show").output
    assert "denied   DATA_CLEANUP         main.sales: " in run(url, "policy", "show", str(NAME)).output
    assert run(url, "policy", "reset", "main.sales", "DATA_CLEANUP").exit_code == 0
    assert "allowed  DATA_CLEANUP         main: nightly" in run(url, "policy", "show", str(NAME)).output
    with SqlCatalog(url) as catalog:
        assert catalog.maintenance_decision(NAME, MaintenanceKind.DATA_CLEANUP).allowed
        assert not catalog.maintenance_decision(NAME, MaintenanceKind.DATA_REORGANIZATION).allowed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("commits", "main.sales.none"), "no table main.sales.none"),
        (("commits", "orders"), "not a table name"),
        (("policy", "show", "main.sales.none"), "no table main.sales.none"),
        (("policy", "allow", "a/b", "CHECKPOINT"), "cannot be part of a name"),
        (("policy", "allow", "main", "EVERYTHING"), "data_cleanup"),
    ],
)
def test_mistakes_end_with_a_message_and_no_stack_trace(url: str, arguments: tuple[str, ...], message: str) -> None:
    result = run(url, *arguments)
    assert result.exit_code != 0 and isinstance(result.exception, SystemExit)
    assert message in result.output and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "CM_DELTA_CATALOG_URL"),
        ("nonsense", "cannot be parsed"),
        ("postgresql://me:hunter2@127.0.0.1:1/x", "could not be used"),
    ],
)
def test_a_catalog_that_cannot_be_opened_is_explained(url: str, message: str) -> None:
    result = run(url, "tables")
    assert result.exit_code != 0 and message in result.output and "hunter2" not in result.output
