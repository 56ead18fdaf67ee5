"""Metadata cleanup deletes expired log files and keeps what is needed to read the remaining versions."""

from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import CmDeltaError, StorageError
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log, plan_clean_log
from cm_delta_dagster.operations.maintenance.compact_log import compact_log
from cm_delta_dagster.operations.maintenance.log_obstacles import NOTHING_KEPT, LogObstacle
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.protocol.log.cleanup import next_cut_off
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from tests.support.lake import DAY_MS, Lake, broken_storage

LOG = "_delta_log"
STAGED = "_delta_log/_staged_commits"


@pytest.fixture
def table(lake: Lake) -> Table:
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    return lake.new_table(properties={"delta.checkpointInterval": "100"})


def commits(lake: Lake, table: Table) -> list[int]:
    """Versions of the published commits in the log."""
    return sorted(int(name[:20]) for name in lake.files(table, LOG) if len(name) == 25)


def grow(lake: Lake, table: Table, count: int) -> None:
    for _ in range(count):
        lake.append(table)
    lake.client.wait_for_background()


def paths(lake: Lake, version: int | None = None) -> list[str]:
    """Live files as a client with an empty cache reads them."""
    return sorted(lake.reopened().table("main.test.t").snapshot(version=version).files["path"].to_pylist())


@pytest.mark.requirements("CLEAN-2", "CLEAN-3", "CLEAN-5", "CLEAN-6", "CLEAN-8", "CLEAN-10")
def test_log_files_before_the_newest_expired_checkpoint_are_deleted(lake: Lake, table: Table) -> None:
    grow(lake, table, 3)
    first = checkpoint(table).file_name
    grow(lake, table, 2)
    second = checkpoint(table).file_name
    compact_log(table, start=1, end=4)
    lake.clock.pass_days(40)
    grow(lake, table, 2)
    before = {version: paths(lake, version) for version in (5, 6, 7)}
    plan = plan_clean_log(table)
    assert plan.oldest_version == 5
    size = sum(lake.memory.stat(f"{table.location}/{LOG}/{name}").size for name in plan.log_names)
    size += sum(lake.memory.stat(f"{table.location}/{STAGED}/{name}").size for name in plan.staged_names)
    assert plan.num_bytes == size

    result = clean_log(table)

    assert result.num_files == plan.num_files
    assert result.oldest_version == 5
    assert commits(lake, table) == [5, 6, 7]
    names = lake.files(table, LOG)
    assert first not in names
    assert second in names
    assert not any("compacted" in name for name in names)
    assert sorted(int(name[:20]) for name in names if name.endswith(".crc")) == [5, 6, 7]
    assert sorted(int(name[:20]) for name in lake.files(table, STAGED)) == [6, 7]
    assert {version: paths(lake, version) for version in (5, 6, 7)} == before
    with pytest.raises(CmDeltaError, match=r"\b4\b"):
        paths(lake, 4)


@pytest.mark.requirements("CKPT-V2-10", "CKPT-16", "CKPT-MP-3")
def test_a_checkpoint_with_a_classic_name_stays(lake: Lake, table: Table) -> None:
    """The copy is the oldest checkpoint, and who reads it alone sees the same. The next cleanup
    moves it; another writer of the copy, which may have been first, is no error. No checkpoint has parts."""
    for version in (3, 7):
        grow(lake, table, 3)
        copied = checkpoint(table).file_name
        lake.clock.pass_days(40)
        grow(lake, table, 1)
        before = paths(lake, version)
        assert plan_clean_log(table).copied_checkpoint == copied
        directory = f"{table.location}/{LOG}"
        if version == 7:
            first = lake.memory.read(f"{directory}/{copied}")
            lake.memory.write(f"{directory}/{version:020d}.checkpoint.parquet", first)
            assert plan_clean_log(table).copied_checkpoint is None
        clean_log(table)
        classic = f"{version:020d}.checkpoint.parquet"
        names = {name for name in lake.files(table, LOG) if "checkpoint" in name and name != "_last_checkpoint"}
        assert names == {copied, classic}
        assert lake.memory.read(f"{directory}/{classic}") == lake.memory.read(f"{directory}/{copied}")
        assert plan_clean_log(table).copied_checkpoint is None
        lake.memory.delete(f"{directory}/{copied}")
        assert paths(lake, version) == before


def test_the_plan_deletes_nothing(lake: Lake, table: Table) -> None:
    grow(lake, table, 3)
    checkpoint(table)
    lake.clock.pass_days(40)
    before = lake.files(table)
    assert plan_clean_log(table).num_files > 0
    assert lake.files(table) == before


@pytest.mark.requirements("CLEAN-4")
def test_without_an_old_checkpoint_nothing_is_deleted(lake: Lake, table: Table) -> None:
    grow(lake, table, 3)
    lake.clock.pass_days(40)
    before = lake.files(table)
    assert clean_log(table).oldest_version is None
    grow(lake, table, 1)
    checkpoint(table)
    assert clean_log(table).num_files == 0
    assert before <= lake.files(table)


def test_a_cleanup_that_deletes_nothing_says_why(lake: Lake, table: Table) -> None:
    """In the plan, in the result, and in a text for people."""

    def why() -> tuple[LogObstacle | None, str]:
        plan, result = plan_clean_log(table), clean_log(table)
        assert plan.num_files == result.num_files == 0 and plan.kept == result.kept
        assert str(plan.kept) in repr(plan)
        return plan.kept.obstacle, str(plan.kept)

    grow(lake, table, 3)
    obstacle, text = why()
    assert obstacle is LogObstacle.RETENTION and "delta.logRetentionDuration is 30 days, and the oldest commit" in text
    oldest = commit_time(lake, table, 0)
    expiry = next_cut_off(oldest, retention_ms=30 * DAY_MS)
    assert f"version 0 of {utc_text(oldest)}, expires at {utc_text(expiry)}" in text
    lake.clock.now = expiry - 1
    assert why()[0] is LogObstacle.RETENTION
    lake.clock.now = expiry
    assert why()[0] is not LogObstacle.RETENTION
    lake.clock.pass_days(1)
    obstacle, text = why()
    assert obstacle is LogObstacle.NO_CHECKPOINT and "The commits up to version 3 have expired, and there is no" in text
    name = checkpoint(table).file_name
    content = lake.memory.read(f"{table.location}/{LOG}/{name}")
    lake.memory.write(f"{table.location}/{LOG}/{name}", b"PAR1 damaged PAR1")
    obstacle, text = why()
    assert obstacle is LogObstacle.UNREADABLE_CHECKPOINT and f"{name} cannot be used" in text
    lake.memory.write(f"{table.location}/{LOG}/{name}", content)
    cleaned = clean_log(table)
    assert cleaned.num_files > 0 and cleaned.kept == NOTHING_KEPT and not str(cleaned.kept)
    assert why()[0] is LogObstacle.ALREADY_CLEAN


def commit_time(lake: Lake, table: Table, version: int) -> int:
    (entry,) = [entry for entry in history(table) if entry.version == version]
    return entry.timestamp_ms


@pytest.mark.requirements("CLEAN-1", "CLEAN-2")
def test_a_young_log_is_kept(lake: Lake, table: Table) -> None:
    """The default is 30 days, counted from midnight."""
    grow(lake, table, 2)
    checkpoint(table)
    lake.clock.pass_days(30)
    assert clean_log(table).num_files == 0
    lake.clock.pass_days(1)
    assert clean_log(table).num_files > 0


@pytest.mark.requirements("CLEAN-1")
def test_the_retention_of_the_table_decides(lake: Lake) -> None:
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    table = lake.new_table(
        properties={"delta.logRetentionDuration": "interval 2 days", "delta.checkpointInterval": "100"}
    )
    grow(lake, table, 2)
    checkpoint(table)
    lake.clock.pass_days(4)
    assert clean_log(table).oldest_version == 2


@pytest.mark.requirements("CLEAN-3", "CLEAN-10")
def test_a_damaged_checkpoint_is_never_made_the_oldest(lake: Lake, table: Table) -> None:
    grow(lake, table, 2)
    checkpoint(table)
    grow(lake, table, 2)
    broken = checkpoint(table).file_name
    lake.memory.write(f"{table.location}/{LOG}/{broken}", b"PAR1 not any more")
    lake.clock.pass_days(40)
    grow(lake, table, 1)
    expected = paths(lake)
    assert clean_log(table).oldest_version == 2
    assert commits(lake, table) == [2, 3, 4, 5]
    assert paths(lake) == expected


def test_an_altered_time_of_a_commit_does_not_make_the_log_look_older(lake: Lake, table: Table) -> None:
    grow(lake, table, 2)
    checkpoint(table)
    where = f"{table.location}/{LOG}/{2:020d}.json"
    data = lake.memory.read(where)
    time = str(lake.clock()).encode()
    assert time in data
    lake.memory.write(where, data.replace(time, str(lake.clock() - 90 * DAY_MS).encode()))
    lake.clock.pass_days(2)
    assert clean_log(table).num_files == 0
    assert commits(lake, table) == [0, 1, 2]


@pytest.mark.requirements("CLEAN-4")
def test_when_no_checkpoint_can_be_read_nothing_is_deleted(lake: Lake, table: Table) -> None:
    grow(lake, table, 2)
    broken = checkpoint(table).file_name
    lake.memory.write(f"{table.location}/{LOG}/{broken}", b"")
    lake.clock.pass_days(40)
    before = lake.files(table)
    assert clean_log(table).num_files == 0
    assert lake.files(table) == before


@pytest.mark.requirements("CLEAN-12", "CM-C7")
def test_unpublished_commits_are_never_deleted(lake: Lake, table: Table) -> None:
    grow(lake, table, 2)
    checkpoint(table)
    lake.store.fails = broken_storage("write_if_absent", f"{LOG}/0000")
    lake.append(table)
    lake.append(table)
    lake.store.fails = lambda method, location: None
    lake.clock.pass_days(40)
    expected = paths(lake)
    assert clean_log(table).oldest_version == 2
    assert sorted(int(name[:20]) for name in lake.files(table, STAGED)) == [3, 4]
    assert paths(lake) == expected


@pytest.mark.requirements("CM-R4")
def test_a_staged_file_that_the_catalog_still_returns_is_kept(lake: Lake, table: Table) -> None:
    """A catalog may return commits that are published already. Readers then read the staged file."""
    grow(lake, table, 2)
    (name,) = (name for name in lake.files(table, STAGED) if name.startswith(f"{2:020d}"))
    checkpoint(table)
    lake.clock.pass_days(40)
    commit = RatifiedCommit(
        version=2, file_name=name, file_size=1, file_modification_time=1, txn_id="t", in_commit_timestamp=1
    )
    lake.catalog.changes = lambda method, answer: (
        replace(answer, commits=(commit,)) if method == "get_ratified_commits" else answer
    )
    assert clean_log(table).oldest_version == 2
    assert lake.files(table, STAGED) == {name}


@pytest.mark.requirements("CLEAN-11")
def test_an_interrupted_run_leaves_a_readable_tail(lake: Lake, table: Table) -> None:
    """After each deletion every version from the cut-off on is readable."""
    grow(lake, table, 2)
    checkpoint(table)
    grow(lake, table, 2)
    checkpoint(table)
    lake.clock.pass_days(40)
    grow(lake, table, 1)
    expected = {version: paths(lake, version) for version in (4, 5)}
    total = plan_clean_log(table).num_files
    for _ in range(total):
        deletions: list[object] = []

        def one_only(method: str, location: object, done: list[object] = deletions) -> Exception | None:
            if method == "delete":
                done.append(location)
            return StorageError("interrupted") if len(done) > 1 else None

        lake.store.fails = one_only
        with pytest.raises(StorageError):
            clean_log(table)
        lake.store.fails = lambda method, location: None
        assert {version: paths(lake, version) for version in (4, 5)} == expected
        if plan_clean_log(table).num_files == 1:
            break
    clean_log(table)
    assert commits(lake, table) == [4, 5]


@pytest.mark.requirements("CLEAN-9")
def test_old_sidecars_that_no_checkpoint_needs_are_deleted(lake: Lake, table: Table) -> None:
    grow(lake, table, 2)
    checkpoint(table)
    lake.put(table, "_delta_log/_sidecars/old.parquet")
    lake.clock.pass_days(40)
    lake.put(table, "_delta_log/_sidecars/young.parquet")
    assert clean_log(table).num_sidecars == 1
    assert lake.files(table, "_delta_log/_sidecars") == {"young.parquet"}


@pytest.mark.requirements("CLEAN-11")
def test_sidecars_are_kept_while_some_checkpoint_cannot_be_read(lake: Lake, table: Table) -> None:
    grow(lake, table, 2)
    checkpoint(table)
    lake.put(table, "_delta_log/_sidecars/old.parquet")
    lake.clock.pass_days(40)
    grow(lake, table, 1)
    newest = checkpoint(table).file_name
    lake.memory.write(f"{table.location}/{LOG}/{newest}", b"damaged")
    assert clean_log(table).oldest_version == 2
    assert lake.files(table, "_delta_log/_sidecars") == {"old.parquet"}
