"""The ``cm-delta`` command."""

import sqlite3
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster import connect
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import CommitProposal, CommitSummary
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.cli.commands.doctor import explained
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.doctor import Finding, Problem, RepairPlan, Severity
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from cm_delta_dagster.storage.stores import Stores
from cm_delta_dagster.version import __version__
from tests.support.creation import create_table

NAME = TableIdentifier("main", "sales", "orders")


@pytest.fixture
def url(tmp_path: Path) -> str:
    text = f"sqlite:///{tmp_path}/catalog.db"
    with SqlCatalog(text, warehouse="memory://w", now_ms=lambda: 1_700_000_000_000) as catalog:
        staging = catalog.registry.create_staging_table(NAME)
        catalog.registry.register_table(staging.table_id, NAME, summary=summary("CREATE TABLE", 1))
        for version in (1, 2):
            catalog.coordinator.commit(
                staging.table_id,
                CommitProposal(
                    version=version,
                    file_name=f"{version:020d}.{uuid.uuid4()}.json",
                    file_size=1,
                    file_modification_time=1,
                    summary=summary("WRITE", version + 1),
                ),
            )
        catalog.coordinator.set_published_version(staging.table_id, 1)
    return text


def summary(operation: str, timestamp: int) -> CommitSummary:
    return CommitSummary(txn_id="t", in_commit_timestamp=timestamp, operation=operation, data_change=True)


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"CM_DELTA_CATALOG_URL": url})


def table_of(result: Result) -> str:
    """The output without the padding of columns."""
    return "\n".join(" ".join(line.split()) for line in result.output.splitlines())


def test_tables_are_listed(url: str) -> None:
    assert run(url, "tables").output == run(url, "tables", "main.sales").output == "main.sales.orders\n"
    assert run("", "--catalog", url, "tables", "main").output == "main.sales.orders\n"


RULES = [
    ("maintenance", "set-policy", "--deny", "{}", "CHECKPOINT"),
    ("maintenance", "set-policy", "{}", "CHECKPOINT"),
    ("rules", "set", "{}", "append_only"),
    ("access", "grant", "read", "{}", "bob"),
    ("settings", "set-commit-mode", "{}", "inline"),
]


def test_a_list_of_a_scope_that_does_not_exist_is_the_error_of_python(url: str) -> None:
    with connect(url) as lake:
        for scope, meant in (("mian", "main"), ("main.sale", "main.sales"), ("other.s", "")):
            with pytest.raises(InvalidArgumentError) as caught:
                lake.tables(scope)
            listed = run(url, "tables", scope)
            assert listed.exit_code == 1 and listed.output == f"Error: {caught.value}\n"
            assert f"Did you mean {meant}" in listed.output or not meant
        drop_table(lake.client, identifier=str(NAME))
        assert lake.tables("main.sales") == ()
    assert (run(url, "tables", "main.sales").output, run(url, "tables", "mian").exit_code) == ("", 1)


@pytest.mark.parametrize(
    "command",
    [
        ("rules", "list"),
        ("rules", "approvals"),
        ("rules", "held"),
        ("access", "list-grants", "--scope"),
        ("access", "audit", "--scope"),
    ],
    ids=" ".join,
)
def test_an_empty_list_of_a_scope_that_names_nothing_is_an_error(url: str, command: tuple[str, ...]) -> None:
    assert run(url, *command, "main.sales").exit_code == 0
    refused = run(url, *command, "main.sale")
    assert refused.exit_code == 1 and "no schema main.sale. Did you mean main.sales?" in refused.output


@pytest.mark.parametrize("words", RULES, ids=" ".join)
def test_a_rule_for_a_scope_that_does_not_exist_is_refused_unless_its_tables_are_still_to_come(
    url: str, words: tuple[str, ...]
) -> None:
    for scope in ("mian", "main.sale"):
        command = tuple(word.format(scope) for word in words)
        refused = run(url, *command)
        assert refused.exit_code == 1 and f" {scope}. Did you mean main" in refused.output
        assert "repeat the call with this argument: `--future`" in refused.output
        assert run(url, *command, "--future").exit_code == 0
    assert run(url, *(word.format("main.sales") for word in words)).exit_code == 0
    assert run(url, *(word.format("main.sales.ordres") for word in words)).exit_code == 1


def test_a_reset_without_a_rule_is_a_warning(url: str) -> None:
    assert "no rule for CHECKPOINT at main" in run(url, "maintenance", "remove-policy", "main", "CHECKPOINT").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("tables",),
        ("commits", str(NAME)),
        ("maintenance", "list-policies"),
        ("maintenance", "set-policy", "main", "CHECKPOINT"),
        ("maintenance", "remove-policy", "main", "CHECKPOINT"),
        ("doctor", str(NAME)),
        ("drop", str(NAME)),
        ("undrop", str(NAME)),
        ("rename", str(NAME), "main.sales.other"),
        ("maintenance", "purge", "--warehouse", "memory://w", "--apply"),
        ("maintenance", "orphan-files", "--warehouse", "memory://w"),
    ],
)
def test_a_mistyped_url_creates_no_database(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = run(f"sqlite:///{tmp_path}/typo/catalog.db", *arguments)
    assert result.exit_code != 0 and f"There is no catalog at sqlite:///{tmp_path}/typo/catalog.db" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_another_program_is_not_changed(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    result = run(f"sqlite:///{tmp_path}/other.db", "tables")
    assert result.exit_code != 0 and "There is no catalog at" in result.output
    with sqlite3.connect(tmp_path / "other.db") as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    connection.close()


def test_the_version_is_shown() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"cm-delta, version {__version__}\n"


@pytest.mark.parametrize("command", ["set-policy", "remove-policy"])
def test_kinds_are_valid_in_any_case(url: str, command: str) -> None:
    text = " ".join(CliRunner().invoke(main, ["maintenance", command, "--help"]).output.split())
    assert all(kind.value in text and kind.value.lower() not in text for kind in MaintenanceKind)
    for kind in ("data_cleanup", "Data_Cleanup", "DATA_CLEANUP"):
        assert "DATA_CLEANUP" in run(url, "maintenance", command, "main", kind).stdout


def test_commits_are_listed_newest_first_with_their_state(url: str) -> None:
    lines = run(url, "commits", str(NAME), "--limit", "2").output.splitlines()
    assert [line.split() for line in lines[2:]] == [
        ["2", "2023-11-14T22:13:20Z", "ratified", "yes", "WRITE"],
        ["1", "2023-11-14T22:13:20Z", "published", "yes", "WRITE"],
    ]
    everything = run(url, "commits", str(NAME)).output.splitlines()
    assert [line.split()[0] for line in everything[2:]] == ["2", "1", "0"]


@pytest.mark.requirements("CM-M4", "CM-M5")
def test_policy_is_set_shown_and_reset(url: str) -> None:
    assert run(url, "maintenance", "set-policy", "main", "data_cleanup", "--reason", "nightly").exit_code == 0
    assert run(url, "maintenance", "set-policy", "--deny", "main.sales", "DATA_CLEANUP").exit_code == 0
    assert "allowed DATA_CLEANUP main - nightly" in table_of(run(url, "maintenance", "list-policies"))
    assert "denied DATA_CLEANUP main.sales " in table_of(run(url, "maintenance", "list-policies", str(NAME)))
    assert (
        run(
            url, "maintenance", "set-policy", "--deny", "other", "DATA_CLEANUP", "--reason", "elsewhere", "--future"
        ).exit_code
        == 0
    )
    for scope in ("main", "main.sales"):
        of_scope = run(url, "maintenance", "list-policies", scope)
        assert of_scope.exit_code == 0 and "Without a rule" in of_scope.output
        assert "DATA_CLEANUP main - nightly" in table_of(of_scope) and "elsewhere" not in of_scope.output
        assert "denied DATA_CLEANUP main.sales" in table_of(of_scope)
    assert "main.sales" not in run(url, "maintenance", "list-policies", "main.stock").output
    assert run(url, "maintenance", "remove-policy", "main.sales", "DATA_CLEANUP").exit_code == 0
    assert "allowed DATA_CLEANUP main nightly" in table_of(run(url, "maintenance", "list-policies", str(NAME)))
    with SqlCatalog(url) as catalog:
        assert catalog.maintenance_policies.maintenance_decision(NAME, MaintenanceKind.DATA_CLEANUP).allowed
        assert not catalog.maintenance_policies.maintenance_decision(NAME, MaintenanceKind.DATA_REORGANIZATION).allowed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("commits", "main.sales.none"), "no table main.sales.none"),
        (("commits", "orders"), "not a table name"),
        (("maintenance", "list-policies", "main.sales.none"), "no table main.sales.none"),
        (("maintenance", "set-policy", "a/b", "CHECKPOINT", "--future"), "cannot be part of a name"),
        (("maintenance", "set-policy", "main", "EVERYTHING"), "DATA_CLEANUP"),
    ],
)
def test_errors_are_messages_without_a_stack_trace(url: str, arguments: tuple[str, ...], message: str) -> None:
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


@pytest.fixture
def lake_url(tmp_path: Path) -> str:
    """A catalog with one real table below ``tmp_path``."""
    text = f"sqlite:///{tmp_path}/catalog.db"
    client = DeltaClient(SqlCatalog(text, warehouse=f"{tmp_path}/warehouse"), stores=Stores())
    create_table(client, identifier=str(NAME), schema=StructType((StructField("id", PrimitiveType("long")),)))
    client.close()
    return text


def test_the_doctor_reports_and_repairs(lake_url: str, tmp_path: Path) -> None:
    assert run(lake_url, "doctor", str(NAME)).output.endswith("Healthy.\n")
    (crc,) = tmp_path.rglob("*.crc")
    right = crc.read_bytes()
    crc.write_bytes(b"{")
    sick = run(lake_url, "doctor", str(NAME))
    assert "checksum_wrong" in sick.output and "[repaired by --repair]" in sick.output and crc.read_bytes() == b"{"
    repaired = run(lake_url, "doctor", str(NAME), "--repair")
    assert (repaired.exit_code, crc.read_bytes()) == (0, right)
    assert "repaired checksum_wrong" in repaired.output
    assert repaired.output.index("copied to _set_aside first") < repaired.output.index("repaired checksum_wrong")
    (aside,) = tmp_path.rglob("_set_aside/*/*.crc.replaced")
    assert aside.read_bytes() == b"{"
    (commit,) = tmp_path.rglob("0*.json")
    commit.unlink()
    lost = run(lake_url, "doctor", str(NAME))
    assert lost.exit_code == 1 and "commit_missing" in lost.output and "1. restore_commit: write" in lost.output
    restored = run(lake_url, "doctor", str(NAME), "--repair", "--deep")
    assert restored.exit_code == 0 and "Read 0 data files" in restored.output and commit.is_file()


def test_a_plan_without_steps_does_not_repeat_the_findings() -> None:
    finding = Finding(severity=Severity.ERROR, problem=Problem.FILE_MISSING, where="a.parquet", message="missing")
    for untouched, text in (((finding,), "No finding can be repaired."), ((), "Nothing to repair.")):
        plan = RepairPlan(identifier=str(NAME), version=1, steps=(), untouched=untouched)
        assert list(explained(plan)) == [text]


def test_a_table_is_renamed_dropped_restored_and_purged(lake_url: str, tmp_path: Path) -> None:
    warehouse = f"{tmp_path}/warehouse"
    assert run(lake_url, "rename", str(NAME), "main.sales.old").exit_code == 0
    assert run(lake_url, "drop", str(NAME)).exit_code != 0
    assert run(lake_url, "drop", "main.sales.old").exit_code == 0
    assert run(lake_url, "tables").output == ""
    assert "is restored" in run(lake_url, "undrop", "main.sales.old").output
    assert run(lake_url, "drop", "main.sales.old").exit_code == 0
    purge = ("maintenance", "purge", "main", "--warehouse", warehouse)
    assert "0 tables would be purged; nothing was deleted.\n" in run(lake_url, *purge).output
    denied = run(lake_url, *purge, "--retention", "0 days", "--apply")
    assert "denied main.sales.old" in table_of(denied) and "Purged 0 tables" in denied.output
    assert run(lake_url, "maintenance", "set-policy", "main", "table_purge").exit_code == 0
    shown = run(lake_url, *purge, "--retention", "0 days")
    assert "delete main.sales.old" in table_of(shown) and list(tmp_path.rglob("*.json")) != []
    elsewhere = run(
        lake_url, "maintenance", "purge", "--warehouse", f"{tmp_path}/elsewhere", "--retention", "0 days", "--apply"
    )
    assert elsewhere.exit_code != 0 and "managed root" in elsewhere.output
    assert "Purged 1 table:" in run(lake_url, *purge, "--retention", "0 days", "--apply").output
    assert [path.name for path in Path(warehouse).rglob("*") if path.is_file()] == ["_cm_delta_warehouse.json"]
    assert run(lake_url, "undrop", "main.sales.old").exit_code != 0
    assert run(lake_url, "maintenance", "orphan-files", "--warehouse", warehouse).output.startswith("0 locations")
    late = Path(warehouse) / "main" / "sales" / "orders-1" / "part.parquet"
    late.parent.mkdir(parents=True)
    late.write_bytes(b"rows")
    shown = table_of(run(lake_url, "maintenance", "orphan-files", "--warehouse", warehouse))
    assert f"file://{late.parent} 1 4 bytes" in shown and "1 location " in shown


def test_the_commit_mode_is_set_shown_and_reset(lake_url: str) -> None:
    assert run(lake_url, "settings", "list-commit-modes", str(NAME)).output == "staged\n"
    chosen = run(lake_url, "settings", "set-commit-mode", "main", "auto", "--inline-max-bytes", "100")
    assert (chosen.exit_code, chosen.output) == (0, "The commit mode of main is auto:100.\n")
    assert run(lake_url, "settings", "list-commit-modes", str(NAME)).output == "auto:100\n"
    for mode in ("put_if_absent", "inline"):
        assert run(lake_url, "settings", "set-commit-mode", str(NAME), mode).exit_code == 0
        assert run(lake_url, "settings", "list-commit-modes", str(NAME)).output == f"{mode}\n"
    assert "main auto:100\nmain.sales.orders inline\n" in table_of(run(lake_url, "settings", "list-commit-modes"))
    for scope in (str(NAME), "main"):
        assert run(lake_url, "settings", "remove-commit-mode", scope).exit_code == 0
    assert run(lake_url, "settings", "list-commit-modes", str(NAME)).output == "staged\n"
    for wrong in (("main", "auto"), ("main", "inline", "--inline-max-bytes", "1"), ("main.sales.none", "inline")):
        refused = run(lake_url, "settings", "set-commit-mode", *wrong)
        assert refused.exit_code != 0 and "Error: " in refused.output
