"""A staged file is deleted if its version is published, the catalog does not return it, and it is old enough."""

import uuid
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.ratification import RatifiedCommit
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits, plan_clean_staged_commits
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.protocol.actions.actions import AddFile
from tests.support.lake import Lake, broken_storage

STAGED = "_delta_log/_staged_commits"


@pytest.fixture
def table(lake: Lake) -> Table:
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    return lake.new_table()


def orphan(lake: Lake, table: Table, version: int) -> str:
    """A staged file of a lost commit attempt, or of a commit that was never proposed."""
    name = f"{version:020d}.{uuid.uuid4()}.json"
    lake.put(table, f"{STAGED}/{name}")
    return name


@pytest.mark.requirements("CM-P7", "CM-W5")
def test_old_staged_files_of_published_versions_are_deleted(lake: Lake, table: Table) -> None:
    lake.append(table)
    orphan(lake, table, 1)
    lake.clock.pass_days(2)
    result = clean_staged_commits(table)
    assert (result.num_files, lake.files(table, STAGED)) == (2, set())
    assert lake.reopened().table("main.test.t").snapshot().num_files == 1


@pytest.mark.requirements("CM-W3", "CM-W5", "CM-C7")
def test_the_file_of_a_lost_attempt_stays_until_its_version_is_published(lake: Lake, table: Table) -> None:
    loser = table.start_transaction(table.snapshot(), operation="WRITE")
    loser.add_files(
        [
            AddFile(
                path="day=2026-01-01/late.parquet", partition_values={"day": "2026-01-01"}, size=1, modification_time=1
            )
        ]
    )
    lake.store.fails = broken_storage("write_if_absent", f"_delta_log/{1:020d}.json")
    lake.append(table)
    assert loser.commit().version == 2
    lost = [name for name in lake.files(table, STAGED) if name.startswith(f"{1:020d}")]
    assert len(lost) == 2
    lake.clock.pass_days(2)
    assert clean_staged_commits(table).num_files == 0
    lake.store.fails = lambda method, argument: None
    publish(table)
    assert clean_staged_commits(table).num_files == 3
    assert lake.reopened().table("main.test.t").snapshot().num_files == 2


def test_the_plan_names_the_files_and_deletes_nothing(lake: Lake, table: Table) -> None:
    lake.append(table)
    lake.clock.pass_days(2)
    plan = plan_clean_staged_commits(table)
    assert set(plan.names) == lake.files(table, STAGED)
    assert plan.num_files == 1
    assert plan.num_bytes == lake.memory.stat(f"{table.location}/{STAGED}/{plan.names[0]}").size


def test_young_files_are_kept(lake: Lake, table: Table) -> None:
    lake.append(table)
    lake.clock.pass_days(0.9)
    assert clean_staged_commits(table).num_files == 0
    assert clean_staged_commits(table, safety_age_ms=0).num_files == 1


@pytest.mark.requirements("CM-C7")
def test_files_of_unpublished_versions_are_kept_regardless_of_age(lake: Lake, table: Table) -> None:
    lake.store.fails = broken_storage("write_if_absent", f"_delta_log/{1:020d}.json")
    lake.append(table)
    orphan(lake, table, 1)
    orphan(lake, table, 2)
    lake.clock.pass_days(100)
    before = lake.files(table, STAGED)
    assert clean_staged_commits(table).num_files == 0
    assert lake.files(table, STAGED) == before


@pytest.mark.requirements("CM-C9", "CM-R4")
def test_a_file_that_the_catalog_still_returns_is_kept(lake: Lake, table: Table) -> None:
    """Commits that the catalog returns may be published already."""
    lake.append(table)
    (name,) = lake.files(table, STAGED)
    lost = orphan(lake, table, 1)
    lake.clock.pass_days(2)
    serve(lake, table, name)
    clean_staged_commits(table)
    assert name in lake.files(table, STAGED)
    assert lost not in lake.files(table, STAGED)


def test_a_file_whose_published_copy_is_missing_is_kept(lake: Lake, table: Table) -> None:
    lake.append(table)
    lake.append(table)
    lake.clock.pass_days(2)
    lake.memory.delete(f"{table.location}/_delta_log/{1:020d}.json")
    clean_staged_commits(table)
    assert [name[:20] for name in lake.files(table, STAGED)] == [f"{1:020d}"]


@pytest.mark.requirements("CM-P7")
def test_a_staged_file_whose_published_copy_differs_is_kept(lake: Lake, table: Table) -> None:
    """It is the last copy of its commit."""
    lake.append(table)
    lake.append(table)
    orphan(lake, table, 1)
    lake.clock.pass_days(2)
    lake.memory.write(f"{table.location}/_delta_log/{1:020d}.json", b"{}\n")
    (accepted,) = lake.catalog.coordinator.commit_records(table.table_id, start=1, end=1)
    clean_staged_commits(table)
    assert lake.files(table, STAGED) == {accepted.file_name}


def test_a_file_whose_published_copy_was_altered_at_equal_size_is_kept(lake: Lake, table: Table) -> None:
    lake.append(table)
    lake.append(table)
    lake.clock.pass_days(2)
    published = f"{table.location}/_delta_log/{1:020d}.json"
    lake.memory.write(published, lake.memory.read(published).replace(b'"add"', b'"adf"'))
    clean_staged_commits(table)
    assert [name[:20] for name in lake.files(table, STAGED)] == [f"{1:020d}"]
    assert lake.reopened().table("main.test.t").snapshot().num_files == 2


def test_a_negative_age_is_refused(lake: Lake, table: Table) -> None:
    with pytest.raises(InvalidArgumentError):
        plan_clean_staged_commits(table, safety_age_ms=-1)


def serve(lake: Lake, table: Table, file_name: str) -> None:
    """Let the catalog return a staged file of a published version, as a catalog may."""
    commit = RatifiedCommit(
        version=int(file_name[:20]),
        file_name=file_name,
        file_size=1,
        file_modification_time=1,
        txn_id="t",
        in_commit_timestamp=1,
    )
    lake.catalog.changes = lambda method, answer: (
        replace(answer, commits=(commit,)) if method == "get_ratified_commits" else answer
    )
