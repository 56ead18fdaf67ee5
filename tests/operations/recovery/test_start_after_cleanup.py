"""A catalog that was restored from a backup older than the last log cleanup records the commits that the log holds."""

from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import RecoveryError
from cm_delta_dagster.operations.doctor import Problem, doctor, repair_table
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log
from cm_delta_dagster.operations.recovery.plan import KeptHistory, TableRecoveryPlan, explain
from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.recovery.set_aside import files_set_aside
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy
from cm_delta_dagster.remedies import RecoverTable
from tests.support.forced_commit import ratify_append
from tests.support.lake import Lake
from tests.support.old_catalog import back_up, restore

NAME = "main.test.t"
PROPERTIES = {"delta.logRetentionDuration": "interval 1 days", "delta.checkpointInterval": "1000"}


def plan_of(lake: Lake, **arguments: Any) -> TableRecoveryPlan:
    (plan,) = plan_recovery(lake.client, tables=[NAME], **arguments).tables
    return plan


def apply(lake: Lake, **arguments: Any) -> Any:
    (result,) = recover(lake.client, plan_recovery(lake.client, tables=[NAME], **arguments)).tables
    return result


def log(table: Table, version: int) -> str:
    return f"{table.location}/_delta_log/{version:020d}.json"


def cleaned(lake: Lake, tmp_path: Path, kind: CommitPolicyKind = CommitPolicyKind.STAGED) -> Table:
    """The catalog knows versions 0 to 3; the log holds the commits 23 to 25 and a checkpoint of 23."""
    lake.new_table(properties=PROPERTIES)
    choose_commit_policy(lake.client, scope=NAME, policy=CommitPolicy(kind=kind))
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    table = lake.client.table(NAME)
    for number in range(3):
        lake.append(table, f"a-{number}.parquet")
    back_up(tmp_path)
    for number in range(20):
        lake.append(table, f"b-{number:02d}.parquet")
    lake.client.wait_for_background()
    checkpoint(table)
    lake.clock.pass_days(3)
    for number in range(2):
        lake.append(table, f"c-{number}.parquet")
    lake.client.wait_for_background()
    clean_log(table)
    names = {name for name in lake.files(table, "_delta_log") if name.endswith(".json") and "/" not in name}
    assert names == {f"{version:020d}.json" for version in (23, 24, 25)}
    restore(lake, tmp_path)
    return lake.client.table(NAME)


@pytest.mark.parametrize("kind", [CommitPolicyKind.STAGED, CommitPolicyKind.INLINE])
def test_a_backup_from_before_the_last_cleanup_is_recovered(lake: Lake, tmp_path: Path, kind: CommitPolicyKind) -> None:
    table = cleaned(lake, tmp_path, kind)
    plan = plan_of(lake)
    assert plan.problem is None
    assert (plan.common_version, plan.removed, plan.is_forked) == (3, range(4, 23), False)
    assert [commit.version for commit in plan.in_storage] == [23, 24, 25]
    assert plan.rejected == plan.lost == plan.missing_files == ()
    assert "The versions 4 to 22 cannot be read" in explain(plan)[0]
    result = apply(lake)
    assert (result.taken, result.latest_version) == ((23, 24, 25), 25)
    found = lake.client.table(NAME)
    assert found.snapshot().num_files == 25
    assert lake.append(found, "d.parquet").version == 26
    lake.client.wait_for_background()
    assert lake.reopened().table(NAME).snapshot().num_files == 26
    assert doctor(lake.reopened().table(NAME)).findings == ()
    assert plan_of(lake).is_sound and apply(lake).taken == ()
    assert lake.data_files(table) >= {"a-0.parquet", "b-00.parquet", "d.parquet"}


def test_the_history_begins_after_a_checkpoint_whose_commit_is_gone(lake: Lake, tmp_path: Path) -> None:
    table = cleaned(lake, tmp_path)
    lake.memory.delete(log(table, 23))
    plan = plan_of(lake)
    assert (plan.removed, [commit.version for commit in plan.in_storage]) == (range(4, 24), [24, 25])
    assert apply(lake).taken == (24, 25)
    found = lake.client.table(NAME)
    assert found.snapshot().num_files == 25 and lake.append(found).version == 26
    assert doctor(lake.reopened().table(NAME)).findings == ()


def test_a_checkpoint_without_proof_or_of_another_table_is_not_used(lake: Lake, tmp_path: Path) -> None:
    table = cleaned(lake, tmp_path)
    location = f"{table.location}/_delta_log/{23:020d}.crc"
    data = lake.memory.read(location)
    lake.memory.delete(location)
    assert "no version checksum" in str(plan_of(lake).problem)
    lake.memory.write(location, data.replace(b'"numFiles":23', b'"numFiles":22'))
    assert "00000023.checkpoint" in str(plan_of(lake).problem)
    lake.memory.write(location, data)
    assert plan_of(lake).problem is None
    with pytest.raises(RecoveryError, match="Keep the history of storage"):
        apply(lake, keep=KeptHistory.CATALOG)
    assert lake.catalog.registry.load_table_by_id(table.table_id).ratified.latest_version == 3


@pytest.mark.parametrize("is_published", [True, False])
def test_commits_made_after_such_a_restore_are_the_other_history(
    lake: Lake, tmp_path: Path, *, is_published: bool
) -> None:
    table = cleaned(lake, tmp_path)
    ratify_append(lake, table, "fork.parquet")
    (own,) = lake.catalog.coordinator.commit_records(table.table_id, start=4, end=4)
    if is_published:
        staged = lake.memory.read(f"{table.location}/_delta_log/_staged_commits/{own.file_name}")
        lake.memory.write(log(table, 4), staged)
        lake.catalog.coordinator.set_published_version(table.table_id, 4)
    plan = plan_of(lake)
    assert plan.problem is None and plan.needs_decision
    assert (plan.common_version, [commit.txn_id for commit in plan.in_catalog]) == (3, [own.txn_id])
    with pytest.raises(RecoveryError, match="forked after version 3"):
        apply(lake)
    result = apply(lake, keep=KeptHistory.STORAGE)
    assert result.taken == (23, 24, 25)
    found = lake.client.table(NAME)
    assert found.snapshot().num_files == 25 and lake.append(found).version == 26
    assert files_set_aside(found) == {f"{table.location}/fork.parquet"}
    assert f"{4:020d}.json" not in lake.files(table, "_delta_log")
    assert doctor(lake.reopened().table(NAME)).findings == ()


def test_the_doctor_advises_recovery_and_removes_nothing_of_storage(lake: Lake, tmp_path: Path) -> None:
    table = cleaned(lake, tmp_path)
    log_before = {name: lake.memory.read(f"{table.location}/{name}") for name in lake.files(table, "")}
    report = repair_table(lake.reopened().table(NAME))
    (behind,) = [finding for finding in report.findings if finding.problem is Problem.CATALOG_BEHIND]
    assert f"{23:020d}.json" in behind.where and advice(RecoverTable(table="main.test.t")) in behind.message
    above = {finding.where for finding in report.findings if finding.problem is Problem.ABOVE_LATEST}
    assert not above & {f"{version:020d}.json" for version in (23, 24, 25)}
    assert not any("move it away" in finding.message for finding in report.findings)
    assert report.plan.steps == () and report.repaired == ()
    assert {name: lake.memory.read(f"{table.location}/{name}") for name in lake.files(table, "")} == log_before


def test_a_hint_to_a_newer_checkpoint_stays_even_without_commits(lake: Lake, tmp_path: Path) -> None:
    table = cleaned(lake, tmp_path)
    for version in (23, 24, 25):
        lake.memory.delete(log(table, version))
    report = repair_table(lake.reopened().table(NAME))
    assert f"{table.location}/_delta_log/_last_checkpoint" in {
        f.location for f in lake.memory.list_recursive(table.location)
    }
    assert report.repaired == ()
