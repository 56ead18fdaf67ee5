"""A commit that was acknowledged and never published, and whose version a restored catalog ratified with another commit."""

from pathlib import Path
from typing import Any

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.doctor import DoctorReport, Problem, doctor, repair_table
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.operations.recovery.plan import TableRecoveryPlan, explain
from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.recovery.set_aside import files_set_aside
from cm_delta_dagster.protocol.log import version_checksum
from cm_delta_dagster.remedies import RecoverTable
from tests.support.forced_commit import ratify_append
from tests.support.lake import Lake, broken_storage
from tests.support.old_catalog import back_up, restore

NAME = "main.test.t"


def plan_of(lake: Lake) -> TableRecoveryPlan:
    (plan,) = plan_recovery(lake.client, tables=[NAME]).tables
    return plan


def checked(lake: Lake, *, repair: bool = False) -> DoctorReport:
    return (repair_table if repair else doctor)(lake.reopened().table(NAME))


def overtaken(lake: Lake, tmp_path: Path) -> tuple[Table, str]:
    """Version 3 was acknowledged and staged, with a checksum; the restored catalog has another version 3. And its staged file."""
    table = lake.new_table()
    for number in range(2):
        lake.append(table, f"old-{number}.parquet")
    lake.client.wait_for_background()
    back_up(tmp_path)
    lake.store.fails = broken_storage("write_if_absent", f"_delta_log/{3:020d}.json")
    assert lake.append(table, "lost.parquet").version == 3
    lake.client.wait_for_background()
    lake.store.fails = lambda method, argument: None
    (staged,) = [name for name in lake.files(table, "_delta_log/_staged_commits") if name.startswith(f"{3:020d}.")]
    (record,) = lake.catalog.coordinator.commit_records(table.table_id, start=3, end=3)
    location = f"{table.location}/_delta_log/{3:020d}.crc"
    if f"_delta_log/{3:020d}.crc" not in lake.files(table):
        value = version_checksum.build_checksum(
            table.snapshot().state, txn_id=record.txn_id, in_commit_timestamp=record.in_commit_timestamp
        )
        lake.memory.write(location, version_checksum.encode(value))
    restore(lake, tmp_path)
    ratify_append(lake, table, "new.parquet")
    table = lake.client.table(NAME)
    table.snapshot()
    lake.client.wait_for_background()
    return table, staged


def _swept(lake: Lake, table: Table) -> set[str]:
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    lake.put(table, "orphan.parquet")
    lake.clock.pass_days(30)
    vacuum(lake.client.table(NAME), retention_ms=0, force=True)
    return lake.data_files(table)


def _all(lake: Lake) -> dict[str, Any]:
    return {status.location: lake.memory.read(status.location) for status in lake.memory.list_recursive("memory://")}


def test_a_commit_that_another_one_has_overtaken_is_listed_and_set_aside(lake: Lake, tmp_path: Path) -> None:
    table, staged = overtaken(lake, tmp_path)
    before = _all(lake)
    plan = plan_of(lake)
    assert [(one.name, one.commit.version, one.known_from) for one in plan.overtaken] == [(staged, 3, f"{3:020d}.crc")]
    assert not plan.is_sound and any(line.startswith("Lost by a fork: version 3") for line in explain(plan))
    assert _all(lake) == before
    (done,) = recover(lake.client, plan_recovery(lake.client, tables=[NAME])).tables
    assert {status.name for status in lake.memory.list_from(done.set_aside)} == {staged, f"{3:020d}.crc"}
    assert files_set_aside(lake.client.table(NAME)) == {f"{table.location}/lost.parquet"}
    assert plan_of(lake).is_sound
    lake.client.wait_for_background()
    assert checked(lake).healthy
    assert _swept(lake, table) == {"old-0.parquet", "old-1.parquet", "new.parquet", "lost.parquet"}


def test_a_staged_file_of_a_failed_attempt_is_not_a_lost_commit(lake: Lake, tmp_path: Path) -> None:
    table, staged = overtaken(lake, tmp_path)
    location = f"{table.location}/_delta_log/{3:020d}.crc"
    lake.memory.delete(location)
    assert plan_of(lake).overtaken == () and plan_of(lake).is_sound
    assert staged in lake.files(table, "_delta_log/_staged_commits")


def test_the_doctor_keeps_the_proof_of_an_overtaken_commit(lake: Lake, tmp_path: Path) -> None:
    table, staged = overtaken(lake, tmp_path)
    proof = lake.memory.read(f"{table.location}/_delta_log/{3:020d}.crc")
    (finding,) = [one for one in checked(lake).findings if one.problem is Problem.SECOND_HISTORY]
    assert (
        advice(RecoverTable(table="main.test.t")) in finding.message
        and finding.version == 3
        and staged in finding.message
    )
    assert not checked(lake).healthy
    report = checked(lake, repair=True)
    assert Problem.SECOND_HISTORY in {one.problem for one in report.repaired}
    assert Problem.SECOND_HISTORY not in {one.problem for one in report.findings}
    kept = {
        s.name: lake.memory.read(s.location)
        for s in lake.memory.list_recursive(f"{table.location}/_delta_log/_set_aside")
    }
    assert kept[f"{3:020d}.crc.replaced"] == proof and staged in kept
    assert files_set_aside(lake.client.table(NAME)) == {f"{table.location}/lost.parquet"}
    assert plan_of(lake).is_sound
    assert "lost.parquet" in _swept(lake, table)


def test_the_doctor_says_where_no_copy_of_an_overtaken_commit_is_left(lake: Lake, tmp_path: Path) -> None:
    table, staged = overtaken(lake, tmp_path)
    lake.memory.delete(f"{table.location}/_delta_log/_staged_commits/{staged}")
    (finding,) = [one for one in checked(lake).findings if one.problem is Problem.SECOND_HISTORY]
    assert "no copy of it is left" in finding.message
