"""Writers that wake up long after they asked: what they create under an old version's name means nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.catalog import MaintenanceKind
from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.client.history import iterate_history
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    CommitStateUnknownError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.checkpoint import checkpoint
from cm_delta_dagster.operations.clean_log import clean_log
from cm_delta_dagster.operations.commit_mode import set_commit_policy
from cm_delta_dagster.operations.doctor import Problem, doctor
from cm_delta_dagster.storage.stores import Stores
from tests.operations.lake import Lake

FIRST_FILE = f"_delta_log/{1:020d}.json"


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    lake = Lake(tmp_path)
    yield lake
    lake.client.close()


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


def test_a_writer_that_wakes_up_after_cleanup_takes_its_file_back_and_has_lost(lake: Lake) -> None:
    """CM-C3, CM-C5, CLEAN-11"""
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


def test_without_an_answer_of_the_catalog_a_late_file_is_no_success_and_nobody_reads_it(lake: Lake) -> None:
    """CM-C3, CM-C5, CM-W4, CLEAN-10: the stray file is that of the version right below the oldest one that was kept."""
    table = put_if_absent_table(lake)
    lake.store.fails = asleep_before(lake, FIRST_FILE, others_go_on(lake))
    lake.catalog.fails = lambda method, _: CatalogUnavailableError("no") if method == "record_published" else None
    with pytest.raises(CommitStateUnknownError, match="another one's long ago"):
        lake.append(table, "late.parquet")
    lake.catalog.fails = lambda method, _: None
    assert FIRST_FILE in lake.files(table)
    fresh = lake.reopened().table("main.test.t")
    assert "late.parquet" not in fresh.snapshot().files["path"].to_pylist()
    assert [entry.version for entry in iterate_history(fresh)] == [3, 2]
    assert fresh.version_range() == (2, 3)
    with pytest.raises(VersionNotFoundError):
        fresh.snapshot(version=1)
    report = doctor(fresh)
    assert report.healthy, report.findings
    assert [finding.where for finding in report.findings if finding.problem is Problem.STRAY_COMMIT] == [
        f"{1:020d}.json"
    ]
    clean_log(fresh)
    assert FIRST_FILE not in lake.files(table)


def test_a_file_that_follows_the_latest_version_counts_although_the_catalog_cannot_be_told(lake: Lake) -> None:
    """CM-C5, CM-C6"""
    table = put_if_absent_table(lake)
    lake.catalog.fails = lambda method, _: CatalogUnavailableError("no") if method == "record_published" else None
    assert lake.append(table, "file.parquet").version == 1
    lake.catalog.fails = lambda method, _: None
    assert lake.reopened().table("main.test.t").snapshot().files["path"].to_pylist() == ["file.parquet"]


@pytest.mark.parametrize("mode", ["staged"])
def test_a_proposal_from_before_a_cleanup_is_a_conflict_that_says_so(lake: Lake, mode: str) -> None:
    """OCC-9, CLEAN-10: where the catalog has no content of those commits any more, as of small inline ones it has."""
    table = put_if_absent_table(lake)
    set_commit_policy(table, CommitPolicy.parse(mode))
    stale = table.start_transaction(table.snapshot(), operation="WRITE")
    lake.clock.pass_days(1)
    version = table.snapshot().version
    for number in range(3):
        lake.append(table, f"file-{number}.parquet")
    checkpoint(table)
    lake.clock.pass_days(40)
    lake.append(table, "last.parquet")
    clean_log(table)
    with pytest.raises(CommitConflictError, match=f"version {version + 1} after it is so old"):
        stale.commit()
