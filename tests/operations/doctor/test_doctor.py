"""Doctor finds every kind of damage, carries out provably safe repairs, and has no findings for an intact table."""

import contextlib
from collections.abc import Callable

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CatalogUnavailableError, CmDeltaError, TableNotFoundError
from cm_delta_dagster.operations.doctor import DoctorReport, Problem, Severity, doctor, repair_table
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log
from cm_delta_dagster.operations.maintenance.compact_log import compact_log
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.rename import rename_table
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from tests.support.lake import Lake, broken_storage

LOG = "_delta_log"
STAGED = f"{LOG}/_staged_commits"


@pytest.fixture
def table(lake: Lake) -> Table:
    """Versions 0 to 6 with checksums, a checkpoint of 4, a compaction, a removed file."""
    table = lake.new_table()
    for number in range(4):
        lake.append(table, f"file-{number}.parquet")
    checkpoint(table)
    lake.append(table, "file-4.parquet")
    lake.remove(table, "file-0.parquet")
    compact_log(table, start=1, end=3)
    lake.client.wait_for_background()
    return table


def checked(lake: Lake, *, repair: bool = False) -> DoctorReport:
    """Run doctor in a new client; check that it writes nothing without ``repair``."""
    lake.client.wait_for_background()
    client = lake.reopened()
    table = client.table("main.test.t")
    before = {status: lake.memory.read(status.location) for status in lake.memory.list_recursive(table.location)}
    report = (repair_table if repair else doctor)(table)
    if not repair:
        after = {status: lake.memory.read(status.location) for status in lake.memory.list_recursive(table.location)}
        assert after == before
    return report


def problems(report: DoctorReport) -> set[Problem]:
    return {finding.problem for finding in report.findings if finding.severity is not Severity.NOTE}


def path(table: Table, name: str) -> str:
    return f"{table.location}/{name}"


def test_a_sound_table_has_no_findings(lake: Lake, table: Table) -> None:
    report = checked(lake)
    assert (report.findings, report.healthy, report.repairable) == ((), True, ())
    assert (report.version, report.published_version, report.num_commits, report.num_files) == (6, 6, 7, 4)
    assert (report.identifier, report.table_id, report.location) == ("main.test.t", table.table_id, table.location)


@pytest.mark.requirements("CLEAN-10")
def test_a_table_after_log_cleanup_is_sound(lake: Lake, table: Table) -> None:
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    lake.clock.pass_days(40)
    lake.append(table)
    lake.client.wait_for_background()
    clean_log(table)
    assert f"{LOG}/{0:020d}.json" not in lake.files(table)
    report = checked(lake)
    assert (problems(report), report.version) == (set(), 7)
    lake.memory.write(path(table, f"{LOG}/{7:020d}.crc"), b"{")
    assert [finding.problem for finding in checked(lake, repair=True).repaired] == [Problem.CHECKSUM_WRONG]


@pytest.mark.requirements("CM-P4")
def test_an_unpublished_tail_is_published(lake: Lake, table: Table) -> None:
    lake.store.fails = broken_storage("write_if_absent", f"{LOG}/{7:020d}.json")
    lake.append(table)
    lake.append(table)
    lake.store.fails = lambda method, argument: None
    report = checked(lake)
    assert (problems(report), report.healthy, report.published_version) == ({Problem.UNPUBLISHED}, True, 6)
    repaired = checked(lake, repair=True)
    assert ([finding.problem for finding in repaired.repaired], repaired.failed) == ([Problem.UNPUBLISHED], ())
    assert (problems(repaired), repaired.published_version) == (set(), 8)


@pytest.mark.requirements("CM-P5")
def test_a_published_version_unknown_to_the_catalog_is_recorded(lake: Lake, table: Table) -> None:
    """The outcome of the publication is unknown, and the staged file was deleted too early."""
    lake.catalog.fails = lambda method, _: CatalogUnavailableError("no") if method == "set_published_version" else None
    lake.append(table)
    lake.client.wait_for_background()
    lake.catalog.fails = lambda method, _: None
    (staged,) = [name for name in lake.files(table, STAGED) if name.startswith(f"{7:020d}")]
    lake.memory.delete(path(table, f"{STAGED}/{staged}"))
    report = checked(lake)
    assert not report.healthy and Problem.PUBLISHED_VERSION_BEHIND in problems(report)
    repaired = checked(lake, repair=True)
    assert (problems(repaired), repaired.published_version) == (set(), 7)
    assert lake.reopened().table("main.test.t").snapshot().version == 7


def test_a_published_commit_that_went_is_restored_from_its_staged_copy(lake: Lake, table: Table) -> None:
    name = path(table, f"{LOG}/{5:020d}.json")
    before = lake.memory.read(name)
    lake.memory.delete(name)
    report = checked(lake)
    assert not report.healthy and Problem.COMMIT_MISSING in problems(report)
    repaired = checked(lake, repair=True)
    assert (problems(repaired), lake.memory.read(name)) == (set(), before)


@pytest.mark.requirements("CRC-11")
def test_a_wrong_or_damaged_checksum_is_rewritten(lake: Lake, table: Table) -> None:
    wrong, broken = (path(table, f"{LOG}/{version:020d}.crc") for version in (3, 5))
    right = {name: lake.memory.read(name) for name in (wrong, broken)}
    lake.memory.write(wrong, right[wrong].replace(b'"numFiles":3', b'"numFiles":4'))
    lake.memory.write(broken, right[broken][:-9])
    assert lake.memory.read(wrong) != right[wrong]
    report = checked(lake)
    assert [finding.version for finding in report.findings] == [3, 5]
    assert problems(report) == {Problem.CHECKSUM_WRONG}
    repaired = checked(lake, repair=True)
    assert (repaired.findings, len(repaired.repaired)) == ((), 2)
    assert {name: lake.memory.read(name) for name in right} == right


@pytest.mark.requirements("CM-M5")
def test_a_repair_that_the_policy_denies_is_reported(lake: Lake, table: Table) -> None:
    lake.memory.write(path(table, f"{LOG}/{3:020d}.crc"), b"{}")
    lake.deny(MaintenanceKind.VERSION_CHECKSUM)
    report = checked(lake, repair=True)
    assert (problems(report), report.repaired, len(report.failed)) == ({Problem.CHECKSUM_WRONG}, (), 1)
    assert "VERSION_CHECKSUM" in report.failed[0]


@pytest.mark.requirements("LASTCP-4")
@pytest.mark.parametrize("hint", [b"{", b'{"version":5,"size":1}', b'{"version":99,"size":1}'])
def test_a_wrong_hint_is_removed(lake: Lake, table: Table, hint: bytes) -> None:
    lake.memory.write(path(table, f"{LOG}/_last_checkpoint"), hint)
    assert problems(checked(lake)) == {Problem.HINT_WRONG}
    repaired = checked(lake, repair=True)
    assert (repaired.findings, len(repaired.repaired)) == ((), 1)
    assert f"{LOG}/_last_checkpoint" not in lake.files(table)


def put_foreign_commit(lake: Lake, table: Table) -> None:
    lake.memory.write(path(table, f"{LOG}/{7:020d}.json"), lake.memory.read(path(table, f"{LOG}/{6:020d}.json")))


def lose_staged(lake: Lake, table: Table) -> None:
    """Delete the other copies of published commits, as their cleanup does."""
    for name in lake.files(table, STAGED):
        lake.memory.delete(path(table, f"{STAGED}/{name}"))


def change_published(lake: Lake, table: Table) -> None:
    lose_staged(lake, table)
    name = path(table, f"{LOG}/{2:020d}.json")
    lake.memory.write(name, lake.memory.read(name).replace(b"file-1", b"file-x"))


def swap_commits(lake: Lake, table: Table) -> None:
    lose_staged(lake, table)
    one, other = (path(table, f"{LOG}/{version:020d}.json") for version in (2, 3))
    first, second = lake.memory.read(one), lake.memory.read(other)
    lake.memory.write(one, second)
    lake.memory.write(other, first)


def lose_data_file(lake: Lake, table: Table) -> None:
    lake.memory.delete(path(table, "file-2.parquet"))


def cut_data_file(lake: Lake, table: Table) -> None:
    lake.memory.write(path(table, "file-2.parquet"), b"x")


def lose_commit(lake: Lake, table: Table) -> None:
    lake.store.fails = broken_storage("write_if_absent", f"{LOG}/{7:020d}.json")
    lake.append(table)
    lake.store.fails = lambda method, argument: None
    (staged,) = [name for name in lake.files(table, STAGED) if name.startswith(f"{7:020d}")]
    lake.memory.delete(path(table, f"{STAGED}/{staged}"))


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (put_foreign_commit, {Problem.ABOVE_LATEST}),
        (change_published, {Problem.COMMIT_DIFFERS}),
        (swap_commits, {Problem.COMMIT_DIFFERS}),
        (lose_data_file, {Problem.FILE_MISSING}),
        (cut_data_file, {Problem.FILE_SIZE}),
        (lose_commit, {Problem.COMMIT_LOST, Problem.UNREADABLE}),
    ],
)
def test_damage_without_an_intact_copy_is_found_and_not_changed(
    lake: Lake, table: Table, damage: Callable[[Lake, Table], None], found: set[Problem]
) -> None:
    damage(lake, table)
    report = checked(lake)
    assert not report.healthy
    errors = {finding.problem for finding in report.findings if finding.severity is Severity.ERROR}
    assert found <= errors, report.findings
    advice = [finding.message for finding in report.findings]
    assert not any(".doctor(" in text or ".repair()" in text for text in advice)
    before = {status.location: lake.memory.read(status.location) for status in lake.memory.list_recursive("memory://")}
    again = checked(lake, repair=True)
    assert found <= problems(again)
    after = {status.location: lake.memory.read(status.location) for status in lake.memory.list_recursive("memory://")}
    assert {name: data for name, data in after.items() if not name.endswith((".crc", "_last_checkpoint"))} == {
        name: data for name, data in before.items() if not name.endswith((".crc", "_last_checkpoint"))
    }


@pytest.mark.requirements("CM-6", "CM-C6", "CM-C9")
@pytest.mark.parametrize("mode", ["staged", "inline", "auto:100000", "put_if_absent"])
def test_a_table_is_sound_in_every_commit_mode(lake: Lake, table: Table, mode: str) -> None:
    set_commit_policy(table, CommitPolicy.parse(mode))
    lake.append(table)
    assert checked(lake).findings == ()
    lake.store.fails = broken_storage("write_if_absent", f"{LOG}/{8:020d}.json")
    unmade = mode == "put_if_absent"
    with pytest.raises(CmDeltaError) if unmade else contextlib.nullcontext():
        lake.append(table)
    lake.client.wait_for_background()
    lake.store.fails = lambda method, argument: None
    assert problems(checked(lake)) == (set() if unmade else {Problem.UNPUBLISHED})
    rename_table(lake.client, identifier="main.test.t", to="main.elsewhere.t")
    assert str(lake.append(table).snapshot.commit_policy) == mode
    rename_table(lake.client, identifier="main.elsewhere.t", to="main.test.t")
    report = checked(lake, repair=True)
    assert problems(report) == set() and report.version == report.published_version


@pytest.mark.requirements("CKPT-17")
def test_an_unreadable_checkpoint_is_a_warning(lake: Lake, table: Table) -> None:
    """Readers fall back to the commits."""
    (name,) = [name for name in lake.files(table, LOG) if ".checkpoint." in name]
    lake.memory.write(path(table, f"{LOG}/{name}"), b"PAR1")
    report = checked(lake)
    assert (problems(report), report.healthy) == ({Problem.CHECKPOINT_UNREADABLE}, True)


def test_what_may_be_cleaned_up_is_a_note(lake: Lake, table: Table) -> None:
    lake.put(table, "day=2026-01-01/never-committed.parquet")
    lake.clock.pass_days(10)
    report = checked(lake)
    assert {finding.problem for finding in report.findings} == {Problem.ORPHANED_FILES, Problem.STAGED_LEFTOVERS}
    assert report.healthy and report.repairable == ()


def test_a_dropped_table_is_an_error_and_not_a_finding(lake: Lake, table: Table) -> None:
    drop_table(lake.client, identifier="main.test.t")
    with pytest.raises(TableNotFoundError):
        doctor(table)
