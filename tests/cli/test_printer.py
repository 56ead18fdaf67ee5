"""What other users wrote into the catalog reaches a terminal as text, which it does not obey."""

import io
import json
import logging
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cm_delta_dagster.cli
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.schema import MAINTENANCE_LEASES
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.cli.printer import csv_text, make_warnings_printable
from cm_delta_dagster.cli.values import Rows
from cm_delta_dagster.operations.recovery.display_text import printable, printable_json
from tests.contracts.catalog_bench import NAME, create, proposal

HOSTILE = "x\x1b[2J\x9b31m\u202e\u2066\r\nALLOWED  by root\t\x00\x7f\u2028"
SHOWN = r"x\x1b[2J\x9b31m\u202e\u2066\r\nALLOWED  by root\t\x00\x7f\u2028"

COLUMNS = {
    "cm_delta_tables": ("owner", "location"),
    "cm_delta_commits": ("operation", "engine_info", "user_metadata", "principal", "txn_id"),
    "cm_delta_feed": ("actor",),
    "cm_delta_maintenance_rules": ("reason", "set_by"),
    "cm_delta_commit_rules": ("reason", "contact", "set_by"),
    MAINTENANCE_LEASES.name: ("owner", "principal"),
    "cm_delta_grants": ("granted_by",),
    "cm_delta_audit": ("principal", "action", "state_before", "state_after", "reason"),
}
"""Columns that hold texts of users. They are set behind the back of the catalog, which refuses some of these texts today."""

COMMANDS = [
    ("tables",),
    ("commits", str(NAME)),
    ("doctor", str(NAME)),
    (
        "events",
        "feed",
    ),
    (
        "maintenance",
        "leases",
    ),
    ("rules", "list"),
    ("rules", "approvals", "--all"),
    (
        "access",
        "audit",
    ),
    (
        "access",
        "list-grants",
    ),
    (
        "access",
        "list-roles",
    ),
    (
        "access",
        "whoami",
    ),
    ("access", "owner", str(NAME)),
    ("access", "list-application-ids", str(NAME)),
    ("access", "reset-application-id", str(NAME), "\x1b[2J\nother"),
    ("maintenance", "list-policies"),
    ("maintenance", "list-policies", str(NAME)),
    ("settings", "list-commit-modes"),
    (
        "maintenance",
        "purge",
    ),
    ("sql", f"DESCRIBE HISTORY {NAME}"),
    ("head", "main.sales.\x1b[2J\u202e"),
    ("maintenance", "expire-lease", str(NAME), "--owner", "\x1b[2J\nother"),
    ("drop", "main.sales.nothing\nAllowed everything"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("hostile")
    url = f"sqlite:///{directory}/catalog.db"
    run = _runner(url)
    catalog = SqlCatalog(url, warehouse=f"file://{directory}/warehouse")
    table = create(catalog).table_id
    catalog.coordinator.commit(table, proposal(1))
    catalog.leases.acquire_maintenance_lease(table, MaintenanceKind.DATA_CLEANUP, owner="host", duration_ms=60_000)
    for command in (
        ("maintenance", "set-policy", "main", "FEED_CLEANUP", "--reason", "r"),
        ("rules", "set", "main", "protected_columns", "columns=id", "--reason", "r"),
        ("access", "grant", "read", "main", "bob"),
    ):
        assert run(*command).exit_code == 0, run(*command).output
    with sqlite3.connect(directory / "catalog.db") as connection:
        for name, columns in COLUMNS.items():
            assert connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0], name
            for column in columns:
                connection.execute(f"UPDATE {name} SET {column} = ?", (HOSTILE,))
        details = json.dumps({"reason": HOSTILE, HOSTILE: HOSTILE})
        connection.execute("UPDATE cm_delta_feed SET details = ? WHERE details IS NOT NULL", (details,))
    return url


def _runner(url: str) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env={"CM_DELTA_CATALOG_URL": url})

    return run


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: printable(" ".join(command)))
def test_no_command_prints_what_a_terminal_obeys(url: str, command: tuple[str, ...], form: tuple[str, ...]) -> None:
    result = _runner(url)(*command, *form)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    for line in result.output.split("\n"):
        assert line.isprintable(), line
        assert not line.startswith(("ALLOWED", "Allowed everything")), line
    if form and result.exit_code == 0:
        assert [json.loads(text) for text in (result.stdout.splitlines() if "feed" in command else [result.stdout])]


def test_json_has_the_texts_unchanged(url: str) -> None:
    (lease,) = json.loads(_runner(url)("maintenance", "leases", "--json").stdout)
    assert lease["owner"] == HOSTILE
    assert {entry["reason"] for entry in json.loads(_runner(url)("access", "audit", "--json").stdout)} == {HOSTILE}
    assert SHOWN in _runner(url)("maintenance", "leases").stdout


def test_texts_are_escaped_as_in_a_literal() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("Grüße, 你好 \\n 🙂") == "Grüße, 你好 \\n 🙂"
    assert printable("\ud800\U000e0001") == r"\ud800\U000e0001"


def test_escaped_json_has_the_same_value() -> None:
    value = {"a": [HOSTILE, "\ud800", "\U000e0001🙂é"], HOSTILE: 1}
    text = printable_json(json.dumps(value, indent=2, ensure_ascii=False))
    assert json.loads(text) == value
    assert all(line.isprintable() for line in text.split("\n"))
    assert "🙂é" in text


def test_warnings_in_the_log_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    target = io.StringIO()
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(target))
    make_warnings_printable()
    assert logging.lastResort is not None
    record = logging.makeLogRecord({"msg": "a %s", "args": (HOSTILE,), "levelno": logging.WARNING})
    logging.lastResort.handle(record)
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        details = (type(error), error, error.__traceback__)
    logging.lastResort.handle(logging.makeLogRecord({"msg": "b", "exc_info": details}))
    assert target.getvalue().startswith(f"a {SHOWN}\nb\n")
    assert all(line.isprintable() for line in target.getvalue().split("\n"))


def test_csv_is_escaped_for_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from cm_delta_dagster.cli import printer

    rows = Rows(columns=("a\x1b",), rows=(("b\nc",),))
    monkeypatch.setattr(printer, "is_terminal", lambda: True)
    assert csv_text(rows) == "a\\x1b\nb\\nc\n"
    monkeypatch.setattr(printer, "is_terminal", lambda: False)
    assert csv_text(rows) == 'a\x1b\n"b\nc"\n'


def test_one_module_writes_to_the_terminal() -> None:
    directory = Path(next(iter(cm_delta_dagster.cli.__path__)))
    writers = {
        path.name
        for path in directory.rglob("*.py")
        if re.search(r"click\.(secho|echo)\(|\bprint\(|std(out|err)\.write", path.read_text())
    }
    assert writers == {"printer.py"}
