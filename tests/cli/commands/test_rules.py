"""``cm-delta rules``, ``approvals``, ``approve`` and ``reject``, and the conditions of ``policy allow``."""

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster import connect
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.errors import ApprovalRequiredError
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from tests.support.lake import Lake


class Runner:
    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env={"CM_DELTA_CATALOG_URL": self._url})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def run(lake: Lake) -> Runner:
    lake.clock.now = time.time_ns() // 1_000_000  # The commands use the clock of the machine.
    lake.new_table()
    return Runner(f"sqlite:///{lake.directory}/catalog.db")


def waiting(lake: Lake) -> str:
    """The id of the request of a commit that removes every row."""
    table = lake.client.table("main.test.t")
    lake.append(table)
    snapshot = table.snapshot()
    transaction = table.start_transaction(snapshot, operation="DELETE")
    transaction.remove_files(removes_of(snapshot.files, data_change=True))
    with pytest.raises(ApprovalRequiredError) as caught:
        transaction.commit()
    return str(caught.value.approval_id)


def test_rules_are_added_listed_and_removed(run: Runner) -> None:
    added = run("rules", "set", "main.test", "protected_columns", "columns=id, day", "--reason", "keys")
    assert added.output == "The rule 'protected_columns' of main.test is set.\n"
    assert run("rules", "set", "main", "max_removed_rows", "fraction=0.4", "--approval").exit_code == 0
    shown = run("rules", "list", "main.test.t")
    assert "protected_columns  columns=id, day  refuse        keys" in shown.output
    assert "max_removed_rows   fraction=0.4     approval" in shown.output
    listed = json.loads(run("rules", "list", "--json").output)
    assert [(each["scope"], each["arguments"]) for each in listed] == [
        ("main", {"fraction": 0.4}),
        ("main.test", {"columns": ["id", "day"]}),
    ]
    assert run("rules", "remove", "main.test", "protected_columns").exit_code == 0
    assert "no commit rule" in run("rules", "remove", "main.test", "protected_columns").output
    assert run("rules", "remove", "main", "max_removed_rows").exit_code == 0
    assert "No commit rule applies to main.test." in run("rules", "list", "main.test").output


def test_a_rule_is_replaced_only_by_its_name(run: Runner) -> None:
    run("rules", "set", "main.test", "max_removed_rows", "rows=5")
    refused = run("rules", "set", "main.test", "max_removed_rows", "rows=6")
    assert refused.exit_code == 1 and "rows=5" in refused.output and "--name" in refused.output
    assert run("rules", "set", "main.test", "max_removed_rows", "rows=6", "--name", "max_removed_rows").exit_code == 0
    assert [each["arguments"] for each in json.loads(run("rules", "list", "--json").output)] == [{"rows": 6}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["columns"], "is not KEY=VALUE"),
        (["rows=many"], "takes a number"),
        (["fraction=2"], "a share of the table"),
        (["columns=id"], "does not take columns"),
    ],
)
def test_malformed_arguments_of_a_rule_are_named(run: Runner, arguments: list[str], message: str) -> None:
    refused = run("rules", "set", "main", "max_removed_rows", *arguments)
    assert refused.exit_code != 0 and message in refused.output


def test_the_commits_of_a_command_have_its_tags(tmp_path: Path) -> None:
    url, name = f"sqlite:///{tmp_path}/catalog.db", "main.test.t"
    run, command = Runner(url), ("alter", "add-column", name, "note", "string")
    with connect(url, warehouse=str(tmp_path)) as lake:
        table = lake.create_table(name, pa.schema([("id", pa.int64())]))
        run("rules", "set", "main.test", "required_tags", "tags=owner")
        assert "lacks the tag 'owner'" in run(*command).output
        done = run("--tag", "owner=etl", "--user-metadata", "T-1", *command)
        assert done.exit_code == 0, done.output
        info = table.history(limit=1)[0].commit_info
    assert info is not None and (dict(info.tags or {}), info.user_metadata) == ({"owner": "etl"}, "T-1")
    assert "KEY=VALUE" in run("--tag", "owner", *command).output


def test_commits_that_wait_are_listed_approved_and_rejected(lake: Lake, run: Runner) -> None:
    run("rules", "set", "main.test", "append_only", "--approval", "--contact", "ada")
    rejected, approved = waiting(lake), waiting(lake)
    listed = json.loads(run("rules", "approvals", "--json").output)
    assert [each["hold_id"] for each in listed] == [rejected, approved]
    shown = run("rules", "approvals", "main.test").output
    assert rejected in shown and "removes or changes rows" in shown
    assert run("rules", "reject", rejected, "--reason", "not today").exit_code == 0
    assert "was rejected" in run("rules", "approve", rejected).output
    closed = run("rules", "approvals", "--all").output
    assert "rejected" in closed and "not today" in closed
    missing = run("rules", "approve", "missing")
    assert missing.exit_code != 0 and "no hold 'missing'" in missing.output


def test_maintenance_is_allowed_under_conditions(run: Runner) -> None:
    done = run(
        "maintenance",
        "set-policy",
        "main.test",
        "data_cleanup",
        "--for",
        "ops",
        "--during",
        "Mon-Fri 22:00-06:00",
        "--max-files",
        "9",
    )
    assert done.exit_code == 0
    shown = run("maintenance", "list-policies").output
    assert "main.test  for ops, in the time Mon,Tue,Wed,Thu,Fri 22:00-06:00 UTC, at most 9 files" in shown
    assert "denied" in run("maintenance", "list-policies", "main.test.t").output
    wrong = run("maintenance", "set-policy", "main", "data_cleanup", "--during", "at night")
    assert wrong.exit_code != 0 and "is not a maintenance window" in wrong.output
