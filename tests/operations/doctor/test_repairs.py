"""Repairs of doctor: what they restore and from which copies, and what they do not change without proof."""

import logging
import sqlite3
from pathlib import Path

import pytest

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.operations.doctor import (
    DoctorReport,
    Problem,
    Repair,
    Severity,
    doctor,
    plan_repair,
    repair_table,
)
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.compact_log import compact_log
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.remedies import CheckTable, RepairTable
from tests.support.lake import Lake, broken_storage

LOG = "_delta_log"
STAGED = f"{LOG}/_staged_commits"
ASIDE = f"{LOG}/_set_aside"


@pytest.fixture
def table(lake: Lake) -> Table:
    """Versions 0 to 6 with checksums, a checkpoint of 4, a compaction of 1 to 3, staged copies, a removed file."""
    table = lake.new_table()
    for number in range(4):
        lake.append(table, f"file-{number}.parquet")
    checkpoint(table)
    lake.append(table, "file-4.parquet")
    lake.remove(table, "file-0.parquet")
    compact_log(table, start=1, end=3)
    lake.client.wait_for_background()
    return table


def commit(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def checksum(version: int) -> str:
    return f"{LOG}/{version:020d}.crc"


def staged(lake: Lake, table: Table, version: int) -> str:
    (name,) = [name for name in lake.files(table, STAGED) if name.startswith(f"{version:020d}")]
    return f"{STAGED}/{name}"


def read(lake: Lake, table: Table, name: str) -> bytes:
    return lake.memory.read(f"{table.location}/{name}")


def write(lake: Lake, table: Table, name: str, data: bytes) -> None:
    lake.memory.write(f"{table.location}/{name}", data)


def delete(lake: Lake, table: Table, name: str) -> None:
    lake.memory.delete(f"{table.location}/{name}")


def alter(lake: Lake, table: Table, name: str, old: bytes = b'"add"', new: bytes = b'"adf"') -> bytes:
    """Write other bytes of the same length; return the previous bytes."""
    data = read(lake, table, name)
    assert old in data and len(old) == len(new)
    write(lake, table, name, data.replace(old, new, 1))
    return data


def log_of(lake: Lake, table: Table) -> dict[str, bytes]:
    return {name: read(lake, table, name) for name in lake.files(table) if not name.startswith(ASIDE)}


def set_aside(lake: Lake, table: Table) -> dict[str, bytes]:
    """The bytes of the files that were set aside, by file name."""
    names = lake.files(table, ASIDE)
    assert all(name.endswith(".replaced") for name in names)
    return {name.rpartition("/")[2].removesuffix(".replaced"): read(lake, table, f"{ASIDE}/{name}") for name in names}


def run(lake: Lake, *, repair: bool = False) -> DoctorReport:
    """Run doctor in a new client."""
    lake.client.wait_for_background()
    return (repair_table if repair else doctor)(lake.reopened().table("main.test.t"))


def errors(report: DoctorReport) -> list[Problem]:
    return [finding.problem for finding in report.findings if finding.severity is Severity.ERROR]


def rows(lake: Lake, *, versions: range = range(7)) -> dict[int, list[str]]:
    table = lake.reopened().table("main.test.t")
    return {version: sorted(table.snapshot(version=version).files["path"].to_pylist()) for version in versions}


def forget_digests(tmp_path: Path) -> None:
    """Remove the digests, as in a catalog of an older release."""
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        database.execute("UPDATE cm_delta_commits SET sha256 = NULL")


# Commits


@pytest.mark.parametrize("cut", [40, 4000])
def test_a_truncated_commit_is_put_back_from_its_staged_copy(lake: Lake, table: Table, cut: int) -> None:
    before, right = rows(lake), log_of(lake, table)
    data = read(lake, table, commit(5))
    write(lake, table, commit(5), data[: max(0, len(data) - cut)])
    report = run(lake)
    assert errors(report) == [Problem.COMMIT_DIFFERS]
    assert "backup" not in report.findings[0].message
    repaired = run(lake, repair=True)
    assert (repaired.findings, repaired.failed) == ((), ())
    assert log_of(lake, table) == right
    assert set_aside(lake, table) == {f"{5:020d}.json": data[: max(0, len(data) - cut)]}
    assert rows(lake) == before


def test_an_altered_commit_does_not_make_right_files_wrong(lake: Lake, table: Table) -> None:
    """The commit is restored from its staged copy; checksums and the checkpoint above it are correct and stay."""
    right = log_of(lake, table)
    alter(lake, table, commit(2))
    report = run(lake)
    assert [finding.problem for finding in report.findings] == [Problem.COMMIT_DIFFERS]
    assert run(lake, repair=True).findings == ()
    assert log_of(lake, table) == right


def test_without_a_copy_nothing_is_judged_by_an_altered_commit(lake: Lake, table: Table) -> None:
    delete(lake, table, staged(lake, table, 2))
    alter(lake, table, commit(2))
    harmed = log_of(lake, table)
    report = run(lake, repair=True)
    assert [finding.problem for finding in report.findings] == [Problem.COMMIT_DIFFERS]
    assert "backup" in report.findings[0].message
    assert (report.repaired, report.failed) == ((), ())
    assert log_of(lake, table) == harmed and set_aside(lake, table) == {}


def test_the_advice_of_an_error_about_a_gap_works(lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader refuses a gap and advises doctor, which finds copies that readers do not look for."""
    before = rows(lake)
    for name in [name for name in lake.files(table, LOG) if ".checkpoint." in name or "compacted" in name]:
        delete(lake, table, f"{LOG}/{name}")
    for version in (2, 3):
        delete(lake, table, commit(version))
    with monkeypatch.context() as patch:
        patch.setattr("cm_delta_dagster.client.snapshots.log_reader._MAX_PROBES", 1)
        with pytest.raises(CorruptLogError, match="are missing from _delta_log") as refused:
            lake.reopened().table("main.test.t").snapshot()
        assert refused.value.remedy == RepairTable(table="main.test.t")
        report = run(lake)
        assert {Problem.UNREADABLE, Problem.COMMIT_MISSING} <= set(errors(report))
        assert errors(run(lake, repair=True)) == []
    assert rows(lake) == before


@pytest.mark.parametrize("harm", ["altered", "missing", "cut"])
def test_the_advice_of_a_warning_about_a_copy_works(
    lake: Lake, table: Table, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The reader reads the copy and advises doctor; after the repair it logs no warning."""
    data = read(lake, table, commit(5))
    match harm:
        case "altered":
            alter(lake, table, commit(5))
        case "missing":
            delete(lake, table, commit(5))
        case "cut":
            write(lake, table, commit(5), data[:-5])
    with caplog.at_level(logging.WARNING):
        lake.reopened().table("main.test.t").snapshot()
    assert advice(RepairTable()) in caplog.text
    assert run(lake, repair=True).findings == ()
    assert read(lake, table, commit(5)) == data


def test_a_misplaced_commit_of_this_table_is_replaced(lake: Lake, table: Table) -> None:
    before, right = rows(lake), log_of(lake, table)
    two, three = (read(lake, table, commit(version)) for version in (2, 3))
    write(lake, table, commit(2), three)
    write(lake, table, commit(3), two)
    assert errors(run(lake)) == [Problem.COMMIT_DIFFERS, Problem.COMMIT_DIFFERS]
    assert run(lake, repair=True).findings == ()
    assert (log_of(lake, table), rows(lake)) == (right, before)


def test_a_repair_that_is_interrupted_loses_nothing(lake: Lake, table: Table) -> None:
    harmed = b"harmed"
    write(lake, table, commit(5), harmed)
    lake.store.fails = broken_storage("write", commit(5))
    report = run(lake, repair=True)
    assert len(report.failed) == 1 and errors(report) == [Problem.COMMIT_DIFFERS]
    assert read(lake, table, commit(5)) == harmed
    lake.store.fails = lambda method, argument: None
    assert run(lake, repair=True).findings == ()
    assert set(set_aside(lake, table).values()) == {harmed}


def test_another_commit_in_a_published_place_keeps_its_data_files(lake: Lake, table: Table) -> None:
    """A complete commit without a record in the catalog: its writer may need its rows."""
    other = lake.new_table("other")
    for number in range(5):
        lake.append(other, f"foreign-{number}.parquet")
    lake.client.wait_for_background()
    right, foreign = read(lake, table, commit(5)), read(lake, other, commit(5))
    write(lake, table, commit(5), foreign)
    lake.put(table, "foreign-4.parquet")
    repaired = run(lake, repair=True)
    assert [finding.problem for finding in repaired.repaired] == [Problem.COMMIT_DIFFERS]
    assert errors(repaired) == [] and read(lake, table, commit(5)) == right
    assert foreign in [read(lake, table, f"{ASIDE}/{name}") for name in lake.files(table, ASIDE)]
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    lake.clock.pass_days(10)
    vacuum(lake.reopened().table("main.test.t"))
    assert "foreign-4.parquet" in lake.data_files(table)


def test_what_a_repair_set_aside_does_not_stop_vacuum(lake: Lake, table: Table) -> None:
    write(lake, table, commit(5), b"harmed")
    lake.put(table, "never-committed.parquet")
    assert run(lake, repair=True).findings == ()
    assert set_aside(lake, table)
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    lake.clock.pass_days(10)
    assert vacuum(lake.reopened().table("main.test.t")).num_files == 2, "file-0, removed long ago, and the other one"


def test_the_advice_of_a_refused_checkpoint_works(lake: Lake, table: Table) -> None:
    """A wrong checksum stops checkpoints; doctor reports which of the two is wrong and rewrites it."""
    alter(lake, table, checksum(6), b'"createdTime":1', b'"createdTime":2')
    with pytest.raises(CorruptLogError, match="differs from its checksum") as refused:
        checkpoint(lake.reopened().table("main.test.t"))
    assert refused.value.remedy == CheckTable(table="main.test.t")
    assert [finding.problem for finding in run(lake).findings] == [Problem.CHECKSUM_WRONG]
    assert run(lake, repair=True).findings == ()
    assert checkpoint(lake.reopened().table("main.test.t")).version == 6


# Commits that are not published


def unpublished(lake: Lake, table: Table) -> str:
    """Version 7, ratified and not published; its staged file."""
    lake.store.fails = broken_storage("write_if_absent", commit(7))
    lake.append(table, "file-7.parquet")
    lake.client.wait_for_background()
    lake.store.fails = lambda method, argument: None
    return staged(lake, table, 7)


def keep_content(lake: Lake, table: Table, tmp_path: Path, version: int, data: bytes) -> None:
    """The catalog has a copy of the commit, as with default settings."""
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        database.execute("UPDATE cm_delta_commits SET content = ? WHERE version = ?", (data, version))


def test_a_foreign_file_in_the_place_of_the_next_publication_is_set_aside(lake: Lake, table: Table) -> None:
    unpublished(lake, table)
    write(lake, table, commit(7), b"garbage")
    assert Problem.COMMIT_DIFFERS in errors(run(lake))
    repaired = run(lake, repair=True)
    assert (repaired.findings, repaired.failed, repaired.published_version) == ((), (), 7)
    assert set_aside(lake, table) == {f"{7:020d}.json": b"garbage"}


@pytest.mark.parametrize("harm", ["altered", "missing"])
def test_a_staged_file_is_rewritten_from_the_catalogs_content(
    lake: Lake, table: Table, tmp_path: Path, harm: str
) -> None:
    name = unpublished(lake, table)
    data = read(lake, table, name)
    keep_content(lake, table, tmp_path, 7, data)
    delete(lake, table, name) if harm == "missing" else alter(lake, table, name)
    report = run(lake)
    assert [f.repair for f in report.findings if f.problem is Problem.STAGED_DAMAGED] == [Repair.REWRITE_STAGED]
    repaired = run(lake, repair=True)
    assert (repaired.findings, repaired.failed, repaired.published_version) == ((), (), 7)
    assert read(lake, table, name) == data and read(lake, table, commit(7)) == data


def test_a_damaged_staged_file_without_copy_is_a_lost_commit(lake: Lake, table: Table) -> None:
    name = unpublished(lake, table)
    alter(lake, table, name)
    report = run(lake, repair=True)
    assert {Problem.COMMIT_LOST, Problem.UNREADABLE} == set(errors(report))
    assert (report.repaired, report.failed) == ((), ())
    assert commit(7) not in lake.files(table)


def test_a_damaged_copy_in_the_catalog_is_harmless(lake: Lake, table: Table, tmp_path: Path) -> None:
    before = rows(lake)
    data = read(lake, table, commit(6))
    keep_content(lake, table, tmp_path, 6, data.replace(b"remove", b"remoVe"))
    report = run(lake, repair=True)
    assert [finding.problem for finding in report.findings] == [Problem.COPY_DIFFERS]
    assert report.healthy and "harmless" in report.findings[0].message
    assert rows(lake) == before


# Commits without a digest


def test_a_commit_without_digest_is_restored_where_one_copy_fits_its_record(
    lake: Lake, table: Table, tmp_path: Path
) -> None:
    data = read(lake, table, commit(3))
    write(lake, table, commit(3), data[:-3])
    forget_digests(tmp_path)
    assert run(lake, repair=True).findings == ()
    assert read(lake, table, commit(3)) == data


def test_two_copies_without_digest_that_differ_prove_nothing(lake: Lake, table: Table, tmp_path: Path) -> None:
    alter(lake, table, commit(3))
    forget_digests(tmp_path)
    harmed = log_of(lake, table)
    report = run(lake, repair=True)
    assert errors(report) == [Problem.COMMIT_DIFFERS]
    assert (report.repaired, report.failed) == ((), ()) and log_of(lake, table) == harmed


def test_a_commit_without_digest_that_its_checksum_contradicts_proves_nothing(
    lake: Lake, table: Table, tmp_path: Path
) -> None:
    delete(lake, table, staged(lake, table, 3))
    for name in [name for name in lake.files(table, LOG) if "compacted" in name]:
        delete(lake, table, f"{LOG}/{name}")
    alter(lake, table, commit(3))
    forget_digests(tmp_path)
    harmed = log_of(lake, table)
    with pytest.raises(CorruptLogError, match="differs from its checksum") as refused:
        lake.reopened().table("main.test.t").snapshot(version=3)
    assert isinstance(refused.value.remedy, CheckTable)
    report = run(lake, repair=True)
    assert errors(report) == [Problem.COMMIT_UNPROVEN]
    assert report.findings[0].version == 3 and log_of(lake, table) == harmed


# Derived files


def checkpoint_name(lake: Lake, table: Table) -> str:
    (name,) = [name for name in lake.files(table, LOG) if ".checkpoint." in name]
    return f"{LOG}/{name}"


@pytest.mark.parametrize("wrong", [b"PAR1", "another table's"])
def test_a_wrong_checkpoint_is_set_aside_and_a_new_one_written(lake: Lake, table: Table, wrong: bytes | str) -> None:
    before = rows(lake)
    name = checkpoint_name(lake, table)
    if isinstance(wrong, str):
        other = lake.new_table("other")
        for _ in range(4):
            lake.append(other)
        checkpoint(other)
        wrong = read(lake, other, checkpoint_name(lake, other))
    write(lake, table, name, wrong)
    found = {finding.problem for finding in run(lake).findings}
    assert found in ({Problem.CHECKPOINT_WRONG, Problem.STATE_DIFFERS}, {Problem.CHECKPOINT_UNREADABLE})
    repaired = run(lake, repair=True)
    assert (repaired.findings, repaired.failed) == ((), ())
    assert wrong in set_aside(lake, table).values()
    assert rows(lake) == before
    for version in range(4):
        delete(lake, table, commit(version))
    assert rows(lake, versions=range(4, 7)) == {version: before[version] for version in range(4, 7)}


def test_an_unreadable_checkpoint_that_nothing_replaces_stays(lake: Lake, table: Table) -> None:
    for version in range(4):
        delete(lake, table, commit(version))
    name = checkpoint_name(lake, table)
    write(lake, table, name, b"PAR1")
    harmed = log_of(lake, table)
    report = run(lake, repair=True)
    assert Problem.CHECKPOINT_UNREADABLE in errors(report)
    assert report.repaired == () and log_of(lake, table) == harmed


def test_a_checkpoint_and_its_checksum_that_contradict_are_both_left(lake: Lake, table: Table) -> None:
    """The commits below were removed, so it is not known which of the two is correct."""
    for version in range(4):
        delete(lake, table, commit(version))
    alter(lake, table, checksum(4), b'"createdTime":1', b'"createdTime":2')
    harmed = log_of(lake, table)
    report = run(lake, repair=True)
    assert Problem.CHECKPOINT_WRONG in errors(report)
    assert report.repaired == () and log_of(lake, table) == harmed


def test_a_checkpoint_that_its_checksum_confirms_carries_the_proof_on(lake: Lake, table: Table) -> None:
    for version in range(4):
        delete(lake, table, commit(version))
    right = alter(lake, table, checksum(6), b'"numFiles":4', b'"numFiles":7')
    assert run(lake, repair=True).findings == ()
    assert read(lake, table, checksum(6)) == right


@pytest.mark.parametrize("harm", ["other actions", "cut"])
def test_a_wrong_compaction_is_set_aside(lake: Lake, table: Table, harm: str) -> None:
    before = rows(lake)
    (name,) = [f"{LOG}/{name}" for name in lake.files(table, LOG) if "compacted" in name]
    if harm == "cut":
        write(lake, table, name, read(lake, table, name)[:-4])
    else:
        alter(lake, table, name)
    (finding,) = run(lake).findings
    assert finding.problem is Problem.COMPACTION_WRONG
    assert run(lake, repair=True).findings == ()
    assert name not in lake.files(table) and name.rpartition("/")[2] in set_aside(lake, table)
    assert rows(lake) == before


@pytest.mark.requirements("CM-M5")
def test_a_denied_checkpoint_is_not_replaced(lake: Lake, table: Table) -> None:
    write(lake, table, checkpoint_name(lake, table), b"PAR1")
    lake.deny(MaintenanceKind.CHECKPOINT)
    harmed = log_of(lake, table)
    report = run(lake, repair=True)
    assert len(report.failed) == 1 and "CHECKPOINT" in report.failed[0]
    assert log_of(lake, table) == harmed and set_aside(lake, table) == {}


# The plan


def test_a_plan_says_what_is_written_in_order_of_trust_and_changes_nothing(lake: Lake, table: Table) -> None:
    alter(lake, table, commit(2))
    write(lake, table, checkpoint_name(lake, table), b"PAR1")
    write(lake, table, checksum(5), b"{}")
    write(lake, table, f"{LOG}/_last_checkpoint", b"{")
    delete(lake, table, staged(lake, table, 6))
    alter(lake, table, commit(6), b'"remove"', b'"remova"')
    harmed = log_of(lake, table)
    plan = plan_repair(lake.reopened().table("main.test.t"))
    assert log_of(lake, table) == harmed
    assert [step.repair for step in plan.steps] == [
        Repair.RESTORE_COMMIT,
        Repair.REMOVE_HINT,
        Repair.REWRITE_CHECKSUM,
        Repair.REPLACE_CHECKPOINT,
    ]
    assert [name.rpartition("/")[2] for name in plan.steps[0].writes] == [f"{2:020d}.json"]
    assert [name.rpartition("/")[2] for name in plan.steps[0].sets_aside] == [f"{2:020d}.json"]
    assert [(f.problem, f.version) for f in plan.untouched if f.version] == [(Problem.COMMIT_DIFFERS, 6)]
    shown = []
    report = repair_table(lake.reopened().table("main.test.t"), on_plan=shown.append)
    assert [plan.steps for plan in shown] == [plan.steps]
    assert [finding.problem for finding in report.repaired] == [step.finding.problem for step in plan.steps]
    assert plan_repair(lake.reopened().table("main.test.t")).steps == ()
