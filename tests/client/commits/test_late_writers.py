"""Writers that wake up long after they asked: what they create under an old version's name means nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import CACHED_COMMITS, CACHED_CONTENT_BYTES
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.history import iterate_history
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    CommitStateUnknownError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.doctor import Problem, doctor
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.lake import Lake

FIRST_FILE = f"_delta_log/{1:020d}.json"


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    lake = Lake(tmp_path)
    yield lake
    lake.close()


def put_if_absent_table(lake: Lake) -> Table:
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    table = lake.new_table()
    set_commit_policy(table, CommitPolicy.parse("put_if_absent"))
    return table


def asleep_before(lake: Lake, name: str, meanwhile: Callable[[], None]) -> Callable[[str, Any], None]:
    """For ``Unreliable.fails``: once, before that file is created, something else happens."""
    slept: list[bool] = []

    def fails(method: str, location: Any) -> None:
        if method == "write_if_absent" and str(location).endswith(name) and not slept:
            slept.append(True)
            meanwhile()

    return fails


def others_go_on(lake: Lake) -> Callable[[], None]:
    """Versions 1 to 3 by another client, a checkpoint of 2, and log cleanup a month later."""

    def go_on() -> None:
        other = type(lake.client)(
            lake.sql_catalog,
            stores=Stores(stores={"memory": lake.memory}),
            settings=lake.client.settings,
            now_ms=lake.clock,
        )
        table = other.table("main.test.t")
        lake.append(table, "one.parquet")
        lake.append(table, "two.parquet")
        checkpoint(table)
        other.wait_for_background()
        lake.clock.pass_days(40)
        lake.append(table, "three.parquet")
        assert clean_log(table).oldest_version == 2
        assert FIRST_FILE not in lake.files(table)

    return go_on


@pytest.mark.requirements("CM-C3", "CM-C5", "CLEAN-11")
def test_a_writer_that_wakes_up_after_cleanup_takes_its_file_back_and_has_lost(lake: Lake) -> None:
    table = put_if_absent_table(lake)
    lake.store.fails = asleep_before(lake, FIRST_FILE, others_go_on(lake))
    with pytest.raises(CommitConflictError, match="metadata cleanup has removed it") as caught:
        lake.append(table, "late.parquet")
    assert caught.value.winning_version == 1
    assert FIRST_FILE not in lake.files(table)
    snapshot = lake.reopened().table("main.test.t").snapshot()
    assert (snapshot.version, sorted(snapshot.files["path"].to_pylist())) == (
        3,
        ["one.parquet", "three.parquet", "two.parquet"],
    )
    report = doctor(table)
    assert report.healthy and Problem.STRAY_COMMIT not in {finding.problem for finding in report.findings}
    assert lake.append(table, "again.parquet").version == 4


@pytest.mark.requirements("CM-C3", "CM-C5", "CM-W4", "CLEAN-10")
def test_a_late_file_without_an_answer_of_the_catalog_is_not_read(lake: Lake) -> None:
    """The stray file is that of the version right below the oldest one that was kept."""
    table = put_if_absent_table(lake)
    lake.store.fails = asleep_before(lake, FIRST_FILE, others_go_on(lake))
    lake.catalog.fails = lambda method, _: CatalogUnavailableError("no") if method == "record_published" else None
    with pytest.raises(CommitStateUnknownError, match="another client may have committed"):
        lake.append(table, "late.parquet")
    lake.catalog.fails = lambda method, _: None
    assert FIRST_FILE in lake.files(table)
    fresh = lake.reopened().table("main.test.t")
    assert "late.parquet" not in fresh.snapshot().files["path"].to_pylist()
    assert [entry.version for entry in iterate_history(fresh)] == [3, 2]
    assert (fresh.commit_log().earliest_readable, fresh.commit_log().latest) == (2, 3)
    with pytest.raises(VersionNotFoundError):
        fresh.snapshot(version=1)
    report = doctor(fresh)
    assert report.healthy, report.findings
    assert [finding.where for finding in report.findings if finding.problem is Problem.STRAY_COMMIT] == [
        f"{1:020d}.json"
    ]
    clean_log(fresh)
    assert FIRST_FILE not in lake.files(table)


@pytest.mark.requirements("CM-C5", "CM-C6")
def test_a_file_after_the_latest_version_counts_if_the_catalog_is_unreachable(lake: Lake) -> None:
    table = put_if_absent_table(lake)
    lake.catalog.fails = lambda method, _: CatalogUnavailableError("no") if method == "record_published" else None
    assert lake.append(table, "file.parquet").version == 1
    lake.catalog.fails = lambda method, _: None
    assert lake.reopened().table("main.test.t").snapshot().files["path"].to_pylist() == ["file.parquet"]


def late_writers(lake: Lake, mode: str, copies: str, *, commits: int) -> tuple[Transaction, Transaction]:
    """A blind append, and an append by one who has read everything: from before ``commits`` others and log cleanup."""
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    copied = CACHED_CONTENT_BYTES if copies == "with copies" else 0
    lake.client.settings = replace(lake.client.settings, copied_content_bytes=copied)
    table = lake.new_table(properties={"delta.isolationLevel": "Serializable"})
    set_commit_policy(table, CommitPolicy.parse(mode))
    snapshot = table.snapshot()
    assert snapshot.version == 0
    blind = table.start_transaction(snapshot, operation="WRITE")
    reading = table.start_transaction(snapshot, operation="WRITE")
    reading.read_whole_table()
    for transaction, name in ((blind, "blind.parquet"), (reading, "reading.parquet")):
        lake.put(table, name)
        transaction.add_files([late_file(name)])
    lake.clock.pass_days(1)
    for number in range(commits):
        lake.append(table, f"file-{number:03d}.parquet")
    checkpoint(table)
    lake.clock.pass_days(40)
    lake.append(table, "last.parquet")
    assert clean_log(table).oldest_version == commits
    assert FIRST_FILE not in lake.files(table)
    assert not [path for path in lake.files(table) if f"_staged_commits/{1:020d}." in path]
    return blind, reading


def late_file(name: str) -> AddFile:
    return add_file(name, partition_values={"day": "2026-01-01"}, size=100)


@pytest.mark.requirements("OCC-9", "CLEAN-10")
def test_a_late_proposal_whose_winners_were_cleaned_up_is_a_conflict(lake: Lake) -> None:
    """Staged without copies, they were in the log alone."""
    for transaction in late_writers(lake, "staged", "without copies", commits=3):
        with pytest.raises(CommitConflictError, match="version 1 after it is gone") as caught:
            transaction.commit()
        assert caught.value.winning_version == 1
    assert lake.client.table("main.test.t").snapshot().version == 4


@pytest.mark.requirements("OCC-9", "CM-C13", "CLEAN-10")
@pytest.mark.parametrize(
    ("mode", "copies"), [("inline", "without copies"), ("inline", "with copies"), ("staged", "with copies")]
)
def test_a_late_proposal_is_rebased_on_winners_that_only_the_catalog_has(lake: Lake, mode: str, copies: str) -> None:
    """Small inline commits are kept whatever the settings, staged ones by their copies."""
    blind, reading = late_writers(lake, mode, copies, commits=3)
    with pytest.raises(CommitConflictError, match="version 1") as caught:
        reading.commit()
    assert caught.value.winning_version == 1 and "is gone" not in str(caught.value)
    committed = blind.commit()
    assert (committed.version, committed.retries) == (5, 1)
    fresh = lake.reopened()
    snapshot = fresh.table("main.test.t").snapshot()
    names = [*(f"file-{number:03d}.parquet" for number in range(3)), "last.parquet", "blind.parquet"]
    assert (snapshot.version, sorted(snapshot.files["path"].to_pylist())) == (5, sorted(names))
    assert committed.snapshot.files["path"].to_pylist() == snapshot.files["path"].to_pylist()
    lake.client.wait_for_background()
    assert doctor(fresh.table("main.test.t")).healthy


@pytest.mark.requirements("OCC-9", "CLEAN-10")
@pytest.mark.parametrize(("mode", "copies"), [("inline", "without copies"), ("staged", "with copies")])
def test_a_proposal_so_late_that_the_catalog_has_let_its_winners_go_is_a_conflict(
    lake: Lake, mode: str, copies: str
) -> None:
    """Rather than a rebase on those winners that are still there."""
    for transaction in late_writers(lake, mode, copies, commits=CACHED_COMMITS + 20):
        with pytest.raises(CommitConflictError, match="version 1 after it is gone"):
            transaction.commit()
    assert lake.client.table("main.test.t").snapshot().version == CACHED_COMMITS + 21
