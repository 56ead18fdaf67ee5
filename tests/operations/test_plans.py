"""A plan of a table does what it says and nothing else, also if the table has changed since it was made."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from cm_delta_dagster import Connection, connect
from cm_delta_dagster.api.table.delta_table import DeltaTable
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.errors import (
    CommitConflictError,
    InvalidArgumentError,
    MaintenanceNotPermittedError,
    ObjectNotFoundError,
    RecoveryError,
    RetentionTooShortError,
)
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum
from cm_delta_dagster.operations.tables.restore import RestoreOutcome
from tests.support.lake import Lake

ROW = pa.table({"id": [1]})
KINDS = (MaintenanceKind.DATA_CLEANUP, MaintenanceKind.METADATA_CLEANUP, MaintenanceKind.DATA_REORGANIZATION)


@pytest.fixture
def table(lake: Lake) -> DeltaTable:
    for kind in KINDS:
        lake.allow(kind)
    lake.new_table(properties={"delta.checkpointInterval": "100"})
    return Connection(lake.client).table("main.test.t")


@pytest.fixture
def rows(tmp_path: Path, spark: SparkSession) -> DeltaTable:
    """A table with two small files."""
    lake = connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"), spark=spark)
    lake.client.maintenance_policies.set_maintenance_rule(
        _allowed("main", MaintenanceKind.DATA_REORGANIZATION),
    )
    created = lake.create_table("main.test.rows", spark.range(0).schema)
    for start in (0, 10):
        created.append(spark.range(start, start + 10).coalesce(1))
    return created


def _allowed(scope: str, kind: MaintenanceKind) -> MaintenanceRule:
    return MaintenanceRule(scope=scope, kind=kind, allowed=True)


def orphan(lake: Lake, table: DeltaTable, *names: str) -> None:
    for name in names:
        lake.put(table.table, name)
    lake.clock.pass_days(8)


def test_a_plan_of_vacuum_deletes_the_files_that_it_names_and_no_others(lake: Lake, table: DeltaTable) -> None:
    orphan(lake, table, "a.parquet", "b.parquet")
    plan = table.plan_vacuum()
    orphan(lake, table, "later.parquet")
    assert plan.paths == ("a.parquet", "b.parquet")
    assert plan.apply().num_files == 2
    assert lake.data_files(table.table) == {"later.parquet"}
    assert plan.apply().num_files == 0
    assert table.vacuum().num_files == 1


def test_a_plan_of_vacuum_keeps_a_file_that_a_later_commit_has_added_or_removed(lake: Lake, table: DeltaTable) -> None:
    """A reader of the version in between needs it, for the retention."""
    orphan(lake, table, "a.parquet", "b.parquet", "c.parquet")
    plan = table.plan_vacuum()
    for name in ("a.parquet", "b.parquet"):
        lake.append(table.table, name)
    lake.remove(table.table, "b.parquet")
    assert plan.paths == ("a.parquet", "b.parquet", "c.parquet")
    assert plan.apply().num_files == 1
    assert lake.data_files(table.table) == {"a.parquet", "b.parquet"}


def test_a_plan_of_vacuum_keeps_a_file_that_a_later_clone_names(lake: Lake, table: DeltaTable) -> None:
    lake.append(table.table, "a.parquet")
    old = table.version()
    lake.remove(table.table, "a.parquet")
    lake.clock.pass_days(8)
    plan = table.plan_vacuum()
    assert plan.paths == ("a.parquet",)
    table.clone("main.test.copy", version=old)
    assert plan.apply().num_files == 0
    assert lake.data_files(table.table) == {"a.parquet"}


def test_a_plan_of_vacuum_is_refused_once_the_table_keeps_files_for_longer(lake: Lake, table: DeltaTable) -> None:
    orphan(lake, table, "a.parquet")
    plan, forced = table.plan_vacuum(), table.plan_vacuum(timedelta(days=1), force=True)
    table.alter.set_properties({"delta.deletedFileRetentionDuration": "interval 30 days"})
    with pytest.raises(RetentionTooShortError, match="force=True"):
        plan.apply()
    assert lake.data_files(table.table) == {"a.parquet"}
    assert forced.apply().num_files == 1


def test_a_plan_is_refused_once_the_policy_denies_it(lake: Lake, table: DeltaTable) -> None:
    orphan(lake, table, "a.parquet")
    plans = (table.plan_vacuum(), table.maintenance.plan_clean_log(), table.maintenance.plan_clean_staged_commits())
    for kind in KINDS:
        lake.deny(kind)
    for plan in plans:
        with pytest.raises(MaintenanceNotPermittedError):
            plan.apply()
    assert lake.data_files(table.table) == {"a.parquet"}


def test_a_plan_to_clean_the_log_deletes_the_files_that_it_names(lake: Lake, table: DeltaTable) -> None:
    grow(lake, table)
    plan = table.maintenance.plan_clean_log()
    names = plan.log_names
    grow(lake, table)
    now = table.maintenance.plan_clean_log()
    assert set(names) < set(now.log_names)
    result = plan.apply()
    assert (result.oldest_version, result.num_log_files) == (plan.oldest_version, len(names))
    assert set(now.log_names) - lake.files(table.table, "_delta_log") == set(names)
    assert lake.client.table("main.test.t").snapshot(version=plan.oldest_version).num_files == plan.oldest_version


def test_a_plan_to_clean_the_log_keeps_what_a_longer_retention_keeps(lake: Lake, table: DeltaTable) -> None:
    grow(lake, table)
    plan = table.maintenance.plan_clean_log()
    table.alter.set_properties({"delta.logRetentionDuration": "interval 300 days"})
    before = lake.files(table.table, "_delta_log")
    assert plan.num_files > 0
    result = plan.apply()
    assert (result.num_files, result.oldest_version) == (0, None)
    assert before <= lake.files(table.table, "_delta_log")


def grow(lake: Lake, table: DeltaTable) -> None:
    """Two commits and a checkpoint, which all expire."""
    for _ in range(2):
        lake.append(table.table)
    table.maintenance.checkpoint()
    lake.append(table.table)
    lake.client.wait_for_background()
    lake.clock.pass_days(40)


def test_a_plan_to_clean_staged_commits_deletes_the_files_that_it_names(lake: Lake, table: DeltaTable) -> None:
    lake.append(table.table)
    lake.client.wait_for_background()
    lake.clock.pass_days(2)
    plan = table.maintenance.plan_clean_staged_commits()
    lake.append(table.table)
    lake.client.wait_for_background()
    lake.clock.pass_days(2)
    assert 0 < plan.num_files < table.maintenance.plan_clean_staged_commits().num_files
    assert plan.apply().num_files == plan.num_files
    assert plan.apply().num_files == 0


def test_a_plan_of_restore_commits_the_version_that_it_names(lake: Lake, table: DeltaTable) -> None:
    lake.append(table.table, "a.parquet")
    lake.append(table.table, "b.parquet")
    plan = table.plan_restore(1)
    result = plan.apply()
    assert (result.outcome, result.version, result.restored_version) == (RestoreOutcome.COMMITTED, 3, 1)
    (entry,) = table.history(1)
    assert entry.commit_info is not None and entry.commit_info.operation_parameters == {"version": "1"}


@pytest.mark.parametrize("version", [1, 2])
def test_a_plan_of_restore_conflicts_with_a_later_commit(lake: Lake, table: DeltaTable, version: int) -> None:
    """Also that of the version which was the latest, and which had nothing to restore."""
    lake.append(table.table, "a.parquet")
    lake.append(table.table, "b.parquet")
    plan = table.plan_restore(version)
    lake.append(table.table, "c.parquet")
    with pytest.raises(CommitConflictError, match="Make a new plan"):
        plan.apply()
    assert table.version() == 3


@pytest.mark.parametrize("force", [False, True])
def test_a_plan_of_restore_is_refused_if_storage_has_lost_a_file_since(
    lake: Lake, table: DeltaTable, force: bool
) -> None:
    """The plan named the rows that would be lost, and these were not among them."""
    lake.append(table.table, "a.parquet")
    lake.remove(table.table, "a.parquet")
    plan = table.plan_restore(1, force=force)
    lake.memory.delete(f"{table.location}/a.parquet")
    with pytest.raises(ObjectNotFoundError, match=r"a\.parquet"):
        plan.apply()
    assert table.version() == 2
    assert table.plan_restore(1, force=True).apply().num_missing_files == 1


def test_a_plan_of_repair_carries_out_its_steps_and_no_others(lake: Lake, table: DeltaTable) -> None:
    lake.append(table.table)
    lake.append(table.table)
    lake.client.wait_for_background()
    damage(lake, table, 1)
    plan = table.maintenance.plan_repair()
    reported = table.doctor().plan
    damage(lake, table, 2)
    assert len(plan.steps) == 1 and reported.steps == plan.steps
    report = plan.apply()
    assert [finding.version for finding in report.repaired] == [1]
    assert [step.finding.version for step in report.plan.steps] == [2]
    assert reported.apply().repaired == ()
    assert table.maintenance.repair().healthy


def damage(lake: Lake, table: DeltaTable, version: int) -> None:
    """Overwrite the checksum of a version."""
    lake.put(table.table, f"_delta_log/{version:020d}.crc", b"{}")


def test_a_plan_of_optimize_rewrites_the_files_that_it_names(rows: DeltaTable, spark: SparkSession) -> None:
    plan = rows.plan_optimize()
    rows.append(spark.range(20, 30).coalesce(1))
    result = plan.apply()
    assert (result.num_removed_files, result.num_added_files) == (plan.num_files, 1) == (2, 1)
    assert rows.snapshot().num_files == 2
    assert sorted(row.id for row in rows.to_df().collect()) == list(range(30))


CHANGES: dict[str, Callable[[DeltaTable], object]] = {
    "deletion vector": lambda table: table.delete("id = 3"),
    "removal": lambda table: table.delete("id < 10"),
    "rewrite": lambda table: table.optimize(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_of_optimize_or_reorg_conflicts_with_a_change_of_its_files(rows: DeltaTable, change: str) -> None:
    rows.alter.set_properties({"delta.enableDeletionVectors": "true"})
    rows.delete("id = 5")
    plans = rows.plan_optimize(), rows.maintenance.plan_reorg()
    assert [plan.num_files for plan in plans] == [2, 1]
    CHANGES[change](rows)
    before = rows.version()
    for plan in plans:
        with pytest.raises(CommitConflictError, match=r"Nothing was changed\. Make a new plan"):
            plan.apply()
    assert rows.version() == before


def test_a_plan_of_reorg_rewrites_the_files_that_it_names(rows: DeltaTable) -> None:
    rows.alter.set_properties({"delta.enableDeletionVectors": "true"})
    rows.delete("id = 5")
    assert rows.maintenance.plan_reorg().apply().num_removed_files == 1
    assert rows.maintenance.plan_reorg().num_files == 0
    (entry,) = rows.history(1)
    assert entry.commit_info is not None and entry.commit_info.operation == "REORG"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A Delta table of another writer, with one row."""
    write_deltalake(str(tmp_path / "theirs"), ROW)
    return str(tmp_path / "theirs")


@pytest.fixture
def open_lake(tmp_path: Path) -> Iterator[Connection]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse")) as lake:
        yield lake


def test_a_plan_to_adopt_brings_the_table_under_the_catalog_that_it_names(open_lake: Connection, path: str) -> None:
    plan = open_lake.onboarding.plan_adopt(path, "main.test.theirs")
    table = plan.apply()
    assert isinstance(table, DeltaTable) and table.table.table_id == plan.table_id
    assert (table.version(), table.to_arrow().num_rows) == (plan.adopted_version, 1)
    assert plan.apply().version() == plan.adopted_version


def test_a_plan_to_adopt_is_refused_once_the_table_has_another_version(open_lake: Connection, path: str) -> None:
    plan = open_lake.onboarding.plan_adopt(path, "main.test.theirs")
    write_deltalake(path, ROW, mode="append")
    with pytest.raises(RecoveryError, match=r"Nothing was changed\. .*make a new plan"):
        plan.apply()
    assert open_lake.tables() == ()
    assert open_lake.onboarding.adopt(path, "main.test.theirs").to_arrow().num_rows == 2


def test_a_plan_to_release_is_refused_once_the_table_has_another_version(open_lake: Connection, path: str) -> None:
    table = open_lake.onboarding.adopt(path, "main.test.theirs")
    plan = open_lake.onboarding.plan_release("main.test.theirs")
    table.alter.set_properties({"owner": "etl"})
    with pytest.raises(RecoveryError, match="Make a new plan"):
        plan.apply()
    assert open_lake.tables() == ("main.test.theirs",)
    assert open_lake.onboarding.plan_release("main.test.theirs").apply().version > plan.version + 1
    assert open_lake.tables() == ()


def test_a_plan_to_export_writes_the_version_that_it_names(open_lake: Connection, path: str, tmp_path: Path) -> None:
    """Also if the table has later versions; not if the export has."""
    table = open_lake.onboarding.adopt(path, "main.test.theirs")
    plan = open_lake.onboarding.plan_export("main.test.theirs", str(tmp_path / "export"))
    table.alter.set_properties({"owner": "etl"})
    assert plan.apply() == plan
    exported = open_lake.path_table(str(tmp_path / "export")).snapshot()
    assert exported.version == plan.target_version == 0 and "owner" not in exported.metadata.configuration
    with pytest.raises(RecoveryError, match="Make a new plan"):
        plan.apply()


def test_a_plan_to_purge_deletes_the_tables_that_it_names(open_lake: Connection) -> None:
    for name in ("main.test.a", "main.test.b"):
        open_lake.create_table(name, ROW.schema)
    open_lake.maintenance.set_policy("main", "TABLE_PURGE")
    open_lake.drop("main.test.a")
    plan = open_lake.maintenance.plan_purge(retention=timedelta(0))
    open_lake.drop("main.test.b")
    assert [str(table.identifier) for table in plan.apply().purged] == ["main.test.a"]
    assert open_lake.undrop("main.test.b").version() == 0


def test_a_plan_that_no_connection_made_cannot_be_applied(lake: Lake, table: DeltaTable) -> None:
    orphan(lake, table, "a.parquet")
    unbound, plan = plan_vacuum(table.table), table.plan_vacuum()
    assert unbound == plan and repr(unbound) == repr(plan)
    with pytest.raises(InvalidArgumentError, match="Make the plan again"):
        unbound.apply()
