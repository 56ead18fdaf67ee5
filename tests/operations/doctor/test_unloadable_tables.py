"""Doctor reports findings where other operations raise: no log, no latest version, two histories, an old catalog."""

import sqlite3

import pytest

from cm_delta_dagster.advice import advice
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CmDeltaError,
    StorageError,
    TableNotFoundError,
    TableStorageMissingError,
)
from cm_delta_dagster.operations.doctor import DoctorReport, Problem, Severity, doctor, repair_table
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.remedies import ChooseHistory, RecoverTable, RepairTable
from tests.support.lake import Lake, broken_storage

LOG = "_delta_log"


@pytest.fixture
def table(lake: Lake) -> Table:
    """Versions 0 to 5 with checksums and a checkpoint of 3."""
    table = lake.new_table()
    for number in range(3):
        lake.append(table, f"file-{number}.parquet")
    checkpoint(table)
    for number in range(3, 5):
        lake.append(table, f"file-{number}.parquet")
    lake.client.wait_for_background()
    return table


def everything(lake: Lake) -> dict[str, bytes]:
    return {status.location: lake.memory.read(status.location) for status in lake.memory.list_recursive("memory://")}


def run(lake: Lake, *, repair: bool = False) -> DoctorReport:
    lake.client.wait_for_background()
    return (repair_table if repair else doctor)(lake.reopened().table("main.test.t"))


def found(report: DoctorReport) -> list[Problem]:
    return [finding.problem for finding in report.findings if finding.severity is not Severity.NOTE]


def commit(table: Table, version: int) -> str:
    return f"{table.location}/{LOG}/{version:020d}.json"


def copy_catalog(lake: Lake, to: str) -> None:
    with sqlite3.connect(lake.directory / "catalog.db") as source, sqlite3.connect(lake.directory / to) as target:
        source.backup(target)


def restore_catalog(lake: Lake, backup: str) -> None:
    with sqlite3.connect(lake.directory / backup) as source, sqlite3.connect(lake.directory / "catalog.db") as target:
        source.backup(target)


def test_a_log_that_is_gone_is_one_finding_and_nothing_is_repaired(lake: Lake, table: Table) -> None:
    for status in list(lake.memory.list_recursive(f"{table.location}/{LOG}")):
        lake.memory.delete(status.location)
    before = everything(lake)
    report = run(lake, repair=True)
    assert found(report) == [Problem.STORAGE_MISSING]
    for cause in ("not mounted", "moved", "deleted"):
        assert cause in report.findings[0].message
    assert (report.plan.steps, report.repaired, report.failed) == ((), (), ())
    assert [finding.problem for finding in report.plan.untouched] == [Problem.STORAGE_MISSING]
    assert everything(lake) == before


def test_a_log_without_its_commits_is_described_commit_by_commit(lake: Lake, table: Table) -> None:
    """Version 0 has no staged file: without it and without the checkpoint nothing can be read."""
    for status in lake.memory.list_from(f"{table.location}/{LOG}"):
        if not status.name.endswith(".crc"):
            lake.memory.delete(status.location)
    report = run(lake, repair=True)
    assert {finding.version for finding in report.repaired} == {1, 2, 3, 4, 5}
    assert found(report) == [Problem.COMMIT_MISSING, Problem.UNREADABLE]
    assert report.findings[0].version == 0 and "backup" in report.findings[0].message


def test_a_corrupt_latest_version_is_a_finding(lake: Lake, table: Table) -> None:
    for status in list(lake.memory.list_from(f"{table.location}/{LOG}/_staged_commits")):
        lake.memory.delete(status.location)
    lake.memory.write(commit(table, 5), b'{"add":')
    with pytest.raises(CmDeltaError):
        lake.reopened().table("main.test.t").snapshot()
    before = everything(lake)
    report = run(lake, repair=True)
    assert found(report) == [Problem.COMMIT_DIFFERS, Problem.UNREADABLE]
    assert everything(lake) == before


def test_an_older_catalog_is_found_and_nothing_of_its_newer_log_is_changed(lake: Lake, table: Table) -> None:
    copy_catalog(lake, "backup.db")
    for number in range(5, 8):
        lake.append(table, f"file-{number}.parquet")
    checkpoint(table)
    lake.client.wait_for_background()
    restore_catalog(lake, "backup.db")
    before = everything(lake)
    report = run(lake, repair=True)
    assert not report.healthy and Problem.CATALOG_BEHIND in found(report)
    (behind,) = [finding for finding in report.findings if finding.problem is Problem.CATALOG_BEHIND]
    assert behind.where == "versions 6 to 8" and advice(RecoverTable(table="main.test.t")) in behind.message
    assert report.plan.steps == () and everything(lake) == before
    client = lake.reopened()
    recover(client, plan_recovery(client, tables=["main.test.t"]))
    assert run(lake).findings == ()


def test_a_damaged_commit_below_the_end_of_an_older_catalog_is_still_put_back(lake: Lake, table: Table) -> None:
    copy_catalog(lake, "backup.db")
    lake.append(table, "file-5.parquet")
    lake.client.wait_for_background()
    restore_catalog(lake, "backup.db")
    right = lake.memory.read(commit(table, 2))
    lake.memory.write(commit(table, 2), right[:-9])
    report = run(lake, repair=True)
    assert [finding.problem for finding in report.repaired] == [Problem.COMMIT_DIFFERS]
    assert (found(report), lake.memory.read(commit(table, 2))) == ([Problem.CATALOG_BEHIND], right)


def test_two_histories_are_named_and_neither_is_changed(lake: Lake, table: Table) -> None:
    """The catalog is restored and written to by a client that does not see the newer log."""
    copy_catalog(lake, "backup.db")
    for number in range(5, 8):
        lake.append(table, f"file-{number}.parquet")
    checkpoint(table)
    lake.client.wait_for_background()
    restore_catalog(lake, "backup.db")
    log = f"{table.location}/{LOG}"
    newer = {status.location: lake.memory.read(status.location) for status in lake.memory.list_from(log)}
    for location in newer:
        if location.rpartition("/")[2] > f"{6:020d}" or location.endswith("_last_checkpoint"):
            lake.memory.delete(location)
    lake.store.fails = broken_storage("write_if_absent", f"{LOG}/{6:020d}.")
    lake.append(lake.reopened().table("main.test.t"), "other.parquet")
    lake.client.wait_for_background()
    lake.store.fails = lambda method, argument: None
    for location, data in newer.items():
        lake.memory.write(location, data)
    before = everything(lake)
    report = run(lake, repair=True)
    assert Problem.COMMIT_FORKED in found(report) and Problem.CHECKSUM_WRONG not in found(report)
    (forked,) = [finding for finding in report.findings if finding.problem is Problem.COMMIT_FORKED]
    assert forked.version == 6 and advice(ChooseHistory(table="main.test.t")) in forked.message
    assert report.plan.steps == () and everything(lake) == before


def test_a_file_above_the_latest_version_that_continues_nothing_is_no_history(lake: Lake, table: Table) -> None:
    lake.memory.write(commit(table, 6), lake.memory.read(commit(table, 5)))
    report = run(lake, repair=True)
    assert Problem.ABOVE_LATEST in found(report) and Problem.CATALOG_BEHIND not in found(report)


@pytest.mark.parametrize("column", ["metadata", "protocol"])
def test_a_definition_in_the_catalog_that_cannot_be_read_is_replaced(
    lake: Lake, table: Table, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(lake.directory / "catalog.db") as database:
        database.execute(f"UPDATE cm_delta_definitions SET {column} = '{{'")
    assert [finding.problem for finding in run(lake).findings] == [Problem.DEFINITION_DIFFERS]
    assert advice(RepairTable(table="main.test.t")) in caplog.text
    assert run(lake, repair=True).findings == ()
    definition = lake.catalog.registry.load_table_by_id(table.table_id).definition
    assert definition is not None and definition.metadata == table.snapshot().metadata


def test_what_cannot_be_asked_is_an_error_and_no_finding(lake: Lake, table: Table) -> None:
    reader = lake.reopened().table("main.test.t")
    lake.catalog.fails = lambda method, _: CatalogUnavailableError("no")
    with pytest.raises(CatalogUnavailableError):
        doctor(reader)
    lake.catalog.fails = lambda method, _: None
    lake.store.fails = broken_storage("list_from", LOG)
    with pytest.raises(StorageError):
        doctor(reader)
    lake.store.fails = lambda method, argument: None
    drop_table(lake.client, identifier="main.test.t")
    with pytest.raises(TableNotFoundError):
        doctor(reader)


def test_a_missing_newest_commit_is_put_back_as_the_refusal_of_a_write_says(lake: Lake, table: Table) -> None:
    right = lake.memory.read(commit(table, 5))
    lake.memory.delete(commit(table, 5))
    with pytest.raises(TableStorageMissingError, match=r"Put back what has an intact copy.*maintenance\.repair\(\)"):
        lake.append(lake.reopened().table("main.test.t"), "after.parquet")
    assert run(lake, repair=True).findings == ()
    assert lake.memory.read(commit(table, 5)) == right
    lake.append(lake.reopened().table("main.test.t"), "after.parquet")
