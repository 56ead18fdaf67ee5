"""Every command of ``cm-delta`` with the URL of a server."""

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.rest.http_catalog import HttpCatalog
from cm_delta_dagster.cli.main import main
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import ApprovalRequiredError
from cm_delta_dagster.operations.tables.change_positions import ConsumerInput
from cm_delta_dagster.protocol.actions.actions import SetTransaction
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.server.settings import ServerSettings
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.creation import create_table
from tests.support.lake import SCHEMA
from tests.support.live_server import LiveServer, live_server

T, DOWN, RULED = "main.test.t", "main.test.down", "main.test.ruled"

INVOCATIONS = """
onboarding export main.test.t {root}/warehouse/exported
tables main.test
commits main.test.t
schema main.test.t
files main.test.t
history main.test.t
head main.test.t
sql "SELECT count(*) AS n FROM main.test.t" --engine duckdb
doctor main.test.t
position show main.test.down
position set main.test.down main.test.t 0
position skip main.test.down main.test.t
alter add-column main.test.t extra INT
alter comment main.test.t rows
alter set-property main.test.t a=1
alter unset-property main.test.t a
alter enable-feature main.test.t columnMapping
alter set-property main.test.t delta.columnMapping.mode=name
alter change-column main.test.t extra --comment more
alter rename-column main.test.t extra other
alter drop-column main.test.t other
alter enable-feature main.test.t typeWidening
alter drop-feature main.test.t typeWidening
clone main.test.t main.test.c
rename main.test.c main.test.c2
drop main.test.c2
undrop main.test.c2
drop main.test.c2
optimize main.test.t
restore main.test.t --version 1
schemas --in main
schemas create main.extra
schemas drop main.extra
settings create-catalog other
settings list-catalogs
settings drop-catalog other
settings set-commit-mode main.test.down inline
settings list-commit-modes
settings remove-commit-mode main.test.down
maintenance set-policy main table_purge
maintenance set-policy main feed_cleanup
maintenance list-policies main
maintenance purge --retention "0 days" --apply
maintenance remove-policy main table_purge
maintenance leases
maintenance expire-lease main.test.ruled --owner other
maintenance orphan-files
events feed
events clean-feed
recovery recover --all
clone main.test.t main.moving.m --deep
recovery relocate main.moving --from {root}/warehouse/main/moving --to {root}/warehouse/main/moved --apply
onboarding register {root}/warehouse/exported main.paths.exported
onboarding unregister main.paths.exported
onboarding adopt {root}/warehouse/parquet main.test.adopted
onboarding release main.test.adopted
rules set main.test append_only --name appends --contact ada
rules list
rules remove main.test appends
rules approvals
rules reject {rejected} --reason no
rules approve {approved}
rules held
rules discard {discarded} --reason no
rules ratify {ratified}
token create --principal reader --read-only
token list
token revoke {token}
access whoami
access add-to-role readers ana
access list-roles
access grant read main.test readers
access list-grants
access remove-from-role readers ana
access revoke read main.test readers
access drop-role readers
access owner main.test.t
access set-owner main.test.t etl
access list-application-ids main.test.down
access reset-application-id main.test.down {app_id}
access enable-grants --owner etl
access disable-grants
access audit
"""
"""In this order."""

REFUSED = {
    "serve": "serve",
    "recovery backup": "recovery backup {root}/copy.db",
    "recovery recover": "recovery recover --warehouse {root}/warehouse",
}
"""Commands that run at the server only, or do so with the option that is given."""

WITHOUT_CATALOG = {"spark-jars"}


def commands(group: click.Group, path: str = "") -> Iterator[str]:
    """The words of each command that does something by itself."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        words = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from commands(command, words)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield words


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    """The server of ``--catalog``."""
    settings = ServerSettings(catalog=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    with live_server(settings) as live:
        monkeypatch.setenv("CM_DELTA_CATALOG_URL", live.url)
        monkeypatch.setenv("CM_DELTA_TOKEN", live.token_for("etl"))
        yield live


def prepared(server: LiveServer, root: Path) -> dict[str, str]:
    """Tables, a lease, a position and commits that wait for an approval; what the invocations say of them."""
    client = DeltaClient(HttpCatalog(server.url), stores=Stores())
    for name in (T, DOWN, RULED):
        create_table(client, identifier=name, schema=SCHEMA)
        _append_row(client, name)
    position = ConsumerInput(consumer="test/down", table_id=client.table(T).table_id)
    down = client.table(DOWN)
    transaction = down.start_transaction(down.snapshot(), operation="WRITE")
    transaction.set_transaction(SetTransaction(app_id=position.app_id, version=0))
    transaction.commit()
    client.leases.acquire_maintenance_lease(
        client.table(RULED).table_id, MaintenanceKind.CHECKPOINT, owner="other", duration_ms=3_600_000
    )
    rule = CommitRule(scope=RULED, name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.APPROVAL)
    client.commit_rules.set_commit_rule(rule)
    rejected, approved = (_held_commit(client) for _ in range(2))
    discarded, ratified = (_held_append(client, f"held{number}.parquet") for number in range(2))
    client.close()
    (root / "warehouse" / "parquet").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), root / "warehouse" / "parquet" / "a.parquet")
    requests = {"rejected": rejected, "approved": approved, "discarded": discarded, "ratified": ratified}
    return {"root": str(root), "app_id": position.app_id, **requests}


def _begun_append(table: Table, file_name: str) -> Transaction:
    path = Path(table.location.removeprefix("file://"), file_name)
    pq.write_table(pa.table({"id": [1], "day": pa.array([0], pa.date32())}), path)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file(file_name, size=path.stat().st_size, stats='{"numRecords":1}')])
    return transaction


def _append_row(client: DeltaClient, name: str) -> None:
    _begun_append(client.table(name), "a.parquet").commit()


def _held_append(client: DeltaClient, file_name: str) -> str:
    """The id of a held commit that appends a row."""
    table = client.table(DOWN)
    part = TableCommit(committer=table.committer, transaction=_begun_append(table, file_name))
    commit = MultiTableCommit([part], coordinator=client.coordinator, settings=client.settings)
    return commit.hold(duration_ms=3_600_000).hold_id


def _held_commit(client: DeltaClient) -> str:
    """The id of the request of a commit that removes every row."""
    table = client.table(RULED)
    transaction = table.start_transaction(table.snapshot(), operation="DELETE")
    transaction.remove_files(removes_of(table.snapshot().files, data_change=True))
    with pytest.raises(ApprovalRequiredError) as caught:
        transaction.commit()
    return str(caught.value.approval_id)


def run(line: str, *options: str) -> Result:
    return CliRunner().invoke(main, [*shlex.split(line), *options])


def test_every_command_works_with_a_server_or_says_why_not(server: LiveServer, tmp_path: Path) -> None:
    values = prepared(server, tmp_path)
    failures = []
    for line in INVOCATIONS.strip().splitlines():
        invocation = line.format(**values)
        if line.startswith("recovery relocate"):
            shutil.copytree(tmp_path / "warehouse/main/moving", tmp_path / "warehouse/main/moved")
        done = run(invocation, "--json")
        if done.exit_code != 0:
            failures.append(f"{invocation}: {done.output} {done.exception!r}")
            continue
        answer = [json.loads(text) for text in done.stdout.splitlines()] if "feed" in line else json.loads(done.stdout)
        if line.startswith("token create"):
            values["token"] = answer["token_id"]
    assert not failures, "\n".join(failures)


def test_the_page_of_the_server_lists_what_runs_at_the_server_only() -> None:
    text = (Path(__file__).parents[3] / "docs" / "server.md").read_text()
    table = text[text.index("| command | reason |") : text.index("## Settings")]
    rows = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) == len(REFUSED)
    assert all(any(row.startswith(words) for row in rows) for words in REFUSED)


@pytest.mark.parametrize("words", sorted(REFUSED))
def test_what_runs_at_the_server_only_says_so(words: str, server: LiveServer, tmp_path: Path) -> None:
    done = run(REFUSED[words].format(root=tmp_path))
    assert done.exit_code != 0 and done.exception.__class__ is SystemExit
    assert "server" in done.output and "database" in done.output, done.output


def test_no_command_is_forgotten() -> None:
    lines = INVOCATIONS.strip().splitlines()
    known = set(commands(main))
    missing = {words for words in known if not any(f"{line} ".startswith(f"{words} ") for line in lines)}
    assert missing == (REFUSED.keys() - {"recovery recover"}) | WITHOUT_CATALOG
    assert REFUSED.keys() <= known
