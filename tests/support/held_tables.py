"""Held commits of tables without rows: to make them, and to see what their ratification would give."""

from cm_delta_dagster.catalog.holds import HOLD_DURATION_MS, Hold
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.commits.transaction_intent import HoldAudit
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.tables.ratify_hold import held_tables
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from tests.support.actions import add_file
from tests.support.lake import Lake


def filled(lake: Lake, name: str) -> Table:
    """A table of three files."""
    table = lake.new_table(name)
    for file in ("a", "b", "c"):
        lake.append(table, f"{file}.parquet")
    return table


def change(lake: Lake, table: Table, *removed: str, adds: str | None = None) -> Transaction:
    """A transaction that removes and adds files."""
    snapshot = table.snapshot()
    transaction = table.start_transaction(snapshot, operation="DELETE" if removed else "WRITE")
    if removed:
        is_removed = [path in removed for path in snapshot.files["path"].to_pylist()]
        transaction.remove_files(removes_of(snapshot.files.filter(is_removed), data_change=True))
    if adds is not None:
        lake.put(table, adds)
        transaction.add_files([add_file(adds, partition_values={"day": "2026-01-01"}, stats='{"numRecords":1}')])
    return transaction


def held(
    lake: Lake,
    *changes: tuple[Table, Transaction],
    duration_ms: int = HOLD_DURATION_MS,
    needs_audit: bool = False,
) -> Hold:
    """Hold transactions as one group."""
    for _, transaction in changes:
        transaction.audit = HoldAudit(has_passed=False) if needs_audit else None
    parts = [TableCommit(committer=table.committer, transaction=transaction) for table, transaction in changes]
    together = MultiTableCommit(parts, coordinator=lake.client.coordinator, settings=lake.client.settings)
    return together.hold(duration_ms=duration_ms)


def live(table: Table) -> set[str]:
    """The files of the latest version."""
    return set(table.snapshot().files["path"].to_pylist())


def previewed(lake: Lake, hold: Hold) -> dict[str, set[str]]:
    """By table, the files that another process reads of a hold."""
    return {
        name: set(opened.latest.files["path"].to_pylist())
        for name, opened in held_tables(lake.reopened(), hold.hold_id).items()
    }
