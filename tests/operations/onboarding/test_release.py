"""Releasing tables: everything is published first, and the table is one of its path for every reader at once."""

from pathlib import Path

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.path_table import open_path_table
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.warehouse import read_table_marker
from cm_delta_dagster.errors import (
    CatalogManagedAccessError,
    CatalogUnavailableError,
    CommitConflictError,
    CommitStateUnknownError,
    MaintenanceNotPermittedError,
    NotCatalogManagedError,
    RecoveryError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.onboarding.adopt import adopt
from cm_delta_dagster.operations.onboarding.export import explain as explain_export
from cm_delta_dagster.operations.onboarding.export import export, plan_export
from cm_delta_dagster.operations.onboarding.release import explain, plan_release, release
from cm_delta_dagster.operations.tables.alter import alter_table
from cm_delta_dagster.operations.tables.alterations import EnableFeature
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneRequest, clone
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.storage.stores import Stores
from tests.operations.onboarding.worlds import NAME, objects, path_table, put_commit, put_file
from tests.support.lake import Lake, vector


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def paths(lake: Lake, location: str) -> set[str]:
    return set(open_path_table(lake.client.stores, location).snapshot().files["path"].to_pylist())


@pytest.mark.requirements("CM-8", "CM-P1")
@pytest.mark.parametrize("mode", ["staged", "inline", "put_if_absent"])
def test_a_released_table_is_one_of_its_path(lake: Lake, mode: str) -> None:
    table = lake.new_table("t")
    set_commit_policy(table, CommitPolicy.parse(mode))
    for _ in range(3):
        lake.append(table)
    files = set(table.snapshot().files["path"].to_pylist())
    before = {name: data for name, data in objects(lake).items() if "_delta_log" not in name}
    plan = plan_release(lake.client, identifier="main.test.t")
    assert not plan.is_interrupted and "catalogManaged" not in plan.features
    assert "would be released" in next(iter(explain(plan)))
    result = release(lake.client, identifier="main.test.t")
    snapshot = open_path_table(lake.client.stores, table.location).snapshot()
    assert snapshot.version == result.version > plan.version
    assert set(snapshot.files["path"].to_pylist()) == files
    assert "catalogManaged" not in (snapshot.protocol.writer_features or ())
    assert "io.unitycatalog.tableId" not in snapshot.metadata.configuration
    names = [name.rpartition("/")[2] for name in objects(lake)]
    assert any(".checkpoint." in name for name in names) and "_cm_delta_table" not in names
    assert {name: data for name, data in objects(lake).items() if "_delta_log" not in name} == before
    with pytest.raises(TableNotFoundError):
        lake.client.table("main.test.t")
    assert lake.client.registry.inactive_tables() == ()
    assert [entry.version for entry in lake.sql_catalog.feed.feed(after=0, limit=20)][-1] == result.version


@pytest.mark.requirements("MTX-5")
def test_a_released_table_does_not_list_a_feature_that_needs_a_catalog(lake: Lake) -> None:
    table = lake.new_table("t")
    alter_table(table, EnableFeature("multiTableTransaction-dev"))
    release(lake.client, identifier="main.test.t")
    protocol = open_path_table(lake.client.stores, table.location).snapshot().protocol
    assert {"catalogManaged", "multiTableTransaction-dev"}.isdisjoint(protocol.writer_features or ())


@pytest.mark.requirements("TT-1")
def test_versions_before_the_release_are_read_by_path(lake: Lake) -> None:
    """All of them are published. While a catalog manages the table, or again, none is."""
    table = lake.new_table("t")
    for _ in range(3):
        lake.append(table)
    by_path = open_path_table(lake.client.stores, table.location)
    with pytest.raises(CatalogManagedAccessError):
        by_path.snapshot(version=0)
    last = release(lake.client, identifier="main.test.t").version
    assert [by_path.snapshot(version=version).num_files for version in range(4)] == [0, 1, 2, 3]
    assert [commit.version for commit in by_path.commit_actions(0, last)] == list(range(last + 1))
    adopt(lake.client, location=table.location, identifier=NAME)
    for version in (1, None):
        with pytest.raises(CatalogManagedAccessError):
            by_path.snapshot(version=version)
    with pytest.raises(CatalogManagedAccessError):
        list(by_path.commit_actions(0, 2))


def test_a_released_table_is_written_by_path_and_adopted_again(lake: Lake) -> None:
    location = path_table(lake)
    first = adopt(lake.client, location=location, identifier=NAME)
    version = release(lake.client, identifier=NAME).version
    put_commit(lake, location, version + 1, put_file(lake, location, "c.parquet"))
    lake.memory.write(
        f"{location}/_delta_log/{version + 1:020d}.json",
        lake.memory.read(f"{location}/_delta_log/{version + 1:020d}.json").replace(
            b'"operation"', b'"inCommitTimestamp":%d,"operation"' % (lake.clock() + 5000)
        ),
    )
    again = adopt(lake.client, location=location, identifier=NAME)
    assert again.table_id != first.table_id
    assert (again.snapshot().version, again.snapshot().num_files) == (version + 2, 3)
    lake.append(again, partition_values={})
    assert release(lake.reopened(), identifier=NAME).location == location


@pytest.mark.requirements("OCC-9")
def test_a_release_that_loses_against_a_change_of_the_schema_keeps_the_commit_mode(lake: Lake) -> None:
    lake.new_table("t")
    other = lake.reopened().table("main.test.t")

    def interfere(method: str, argument: object) -> None:
        if method == "write_if_absent" and str(argument).endswith(f"{1:020d}.json"):
            lake.store.fails = lambda *_: None
            snapshot = other.snapshot()
            transaction = other.start_transaction(snapshot, operation="SET TBLPROPERTIES")
            transaction.set_metadata(snapshot.metadata)
            transaction.commit()

    lake.store.fails = interfere
    with pytest.raises(CommitConflictError):
        release(lake.client, identifier="main.test.t")
    assert lake.reopened().table("main.test.t").snapshot().commit_policy.through_catalog


def test_a_table_with_shallow_clones_is_not_released(lake: Lake) -> None:
    table = lake.new_table("t")
    lake.append(table)
    clone(lake.client, table, identifier="main.test.c", request=CloneRequest())
    lake.client.wait_for_background()  # Checksums of the last commits.
    before = objects(lake)
    with pytest.raises(RecoveryError, match=r"main\.test\.c"):
        release(lake.client, identifier="main.test.t")
    with pytest.raises(RecoveryError, match=r"main\.test\.c"):
        lake.client.recovery.release_table(table.table_id)
    assert objects(lake) == before


def test_a_clone_that_is_made_during_the_release_prevents_it(lake: Lake) -> None:
    table = lake.new_table("t")
    lake.append(table)

    def interfere(method: str, argument: object) -> None:
        if method == "write" and str(argument).endswith("_last_checkpoint"):
            lake.store.fails = lambda *_: None
            other = lake.reopened()
            clone(other, other.table("main.test.t"), identifier="main.test.c", request=CloneRequest())

    lake.store.fails = interfere
    with pytest.raises(RecoveryError, match=r"main\.test\.c"):
        release(lake.client, identifier="main.test.t")
    assert lake.reopened().table("main.test.t").snapshot().commit_policy.through_catalog


def test_the_release_of_a_shallow_clone_warns_of_the_vacuum_of_its_source(lake: Lake) -> None:
    table = lake.new_table("t")
    lake.append(table)
    clone(lake.client, table, identifier="main.test.c", request=CloneRequest())
    clone(lake.client, table, identifier="main.test.d", request=CloneRequest(mode=CloneMode.DEEP))
    plan = plan_release(lake.client, identifier="main.test.c")
    assert "may read files of main.test.t" in str(plan.warning) and str(plan.warning) in list(explain(plan))[-1]
    assert release(lake.client, identifier="main.test.c").warning == plan.warning
    assert release(lake.client, identifier="main.test.d").warning is None
    assert release(lake.client, identifier="main.test.t").warning is None


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_an_adopted_clone_keeps_the_files_of_its_source(lake: Lake, is_interrupted: bool) -> None:
    """A clone that was released reads files of a table of the catalog when it is adopted again."""
    table = lake.new_table("t")
    lake.append(table)
    clone(lake.client, table, identifier="main.test.c", request=CloneRequest())
    location = release(lake.client, identifier="main.test.c").location
    assert lake.client.registry.clones_of(table.table_id) == ()
    if is_interrupted:
        lake.catalog.fails = lambda method, _: (
            CatalogUnavailableError("No answer, for the test.") if method == "adopt_table" else None
        )
        with pytest.raises(CommitStateUnknownError):
            adopt(lake.client, location=location, identifier=NAME)
        lake.catalog.fails = lambda *_: None
    adopted = adopt(lake.reopened(), location=location, identifier=NAME)
    assert [one.table_id for one in lake.client.registry.clones_of(table.table_id)] == [adopted.table_id]
    with pytest.raises(RecoveryError, match=r"main\.test\.adopted"):
        release(lake.client, identifier="main.test.t")


def test_a_release_whose_checkpoint_is_denied_changes_no_commit(lake: Lake) -> None:
    table = lake.new_table("t")
    lake.deny(MaintenanceKind.CHECKPOINT)
    with pytest.raises(MaintenanceNotPermittedError):
        release(lake.client, identifier="main.test.t")
    assert lake.reopened().table("main.test.t").snapshot().commit_policy == table.snapshot().commit_policy


def test_a_release_that_the_catalog_does_not_answer_is_completed_by_another(lake: Lake) -> None:
    table = lake.new_table("t")
    lake.catalog.fails = lambda method, _: (
        CatalogUnavailableError("No answer, for the test.") if method == "release_table" else None
    )
    with pytest.raises(CommitStateUnknownError, match="release the table again"):
        release(lake.client, identifier="main.test.t")
    lake.catalog.fails = lambda *_: None
    with pytest.raises(NotCatalogManagedError):
        lake.reopened().table("main.test.t").snapshot()
    plan = plan_release(lake.reopened(), identifier="main.test.t")
    assert plan.is_interrupted and "remove its entry" in next(iter(explain(plan)))
    release(lake.reopened(), identifier="main.test.t")
    assert paths(lake, table.location) == set()
    lake.sql_catalog.recovery.release_table(table.table_id)  # A repetition.
    with pytest.raises(TableNotFoundError):
        lake.sql_catalog.recovery.release_table("another")


def test_commits_by_path_after_an_interrupted_release_are_not_those_of_the_catalog(lake: Lake) -> None:
    """Writers by path may commit from the release on, also before the catalog has removed its entry."""
    location = path_table(lake)
    adopt(lake.client, location=location, identifier="main.test.t")
    lake.catalog.fails = lambda method, _: (
        CatalogUnavailableError("No answer, for the test.") if method == "release_table" else None
    )
    with pytest.raises(CommitStateUnknownError):
        release(lake.client, identifier="main.test.t")
    lake.catalog.fails = lambda *_: None
    released = open_path_table(lake.client.stores, location).snapshot().version
    of_path = b'{"commitInfo":{"inCommitTimestamp":%d,"txnId":"of another engine"}}\n' % (lake.clock() + 5000)
    lake.memory.write(f"{location}/_delta_log/{released + 1:020d}.json", of_path)
    catalog = SqlCatalog(f"sqlite:///{lake.directory}/other.db", warehouse="memory://other", now_ms=lake.clock)
    client = DeltaClient(catalog, stores=Stores(stores={"memory": lake.memory}), now_ms=lake.clock)
    adopted = adopt(client, location=location, identifier=NAME)
    with pytest.raises(NotCatalogManagedError):
        lake.reopened().table("main.test.t").snapshot()
    assert release(lake.reopened(), identifier="main.test.t").version == released
    assert lake.client.registry.list_tables() == ()
    marker = read_table_marker(lake.memory, location)
    assert marker is not None and marker.table_id == adopted.table_id, "the marker of the other catalog stays"
    assert [entry.version for entry in lake.sql_catalog.feed.feed(after=0, limit=20)][-1] == released


# --- export -----------------------------------------------------------------------------------------------------------


def absolute(table: Table) -> set[str]:
    return {f"{table.location}/{path}" for path in table.snapshot().files["path"].to_pylist()}


def test_an_export_has_the_files_of_the_table_and_follows_it(lake: Lake) -> None:
    table, target = lake.new_table("t"), "memory://lake/exports/t"
    lake.append(table)
    second = lake.append(table)
    lake.client.wait_for_background()
    before = objects(lake)
    plan = plan_export(lake.client, table, target=target)
    assert objects(lake) == before and (plan.target_version, plan.num_added_files) == (0, 2)
    assert export(lake.client, table, target=target) == plan
    exported = open_path_table(lake.client.stores, target).snapshot()
    assert set(exported.files["path"].to_pylist()) == absolute(table)
    assert not {"catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp"} & set(
        exported.protocol.writer_features or ()
    )
    assert exported.schema == second.snapshot.schema
    assert export(lake.client, table, target=target).target_version is None
    assert "nothing to do" in explain_export(plan_export(lake.client, table, target=target))[0]
    lake.remove(table, table.snapshot().files["path"][0].as_py())
    lake.append(table, deletion_vector=vector())
    done = export(lake.client, table, target=f"{target}/")
    assert (done.target_version, done.num_added_files, done.num_removed_files) == (1, 1, 1)
    assert paths(lake, target) == absolute(table)
    marked = open_path_table(lake.client.stores, target).snapshot().files["deletionVector"].drop_null().to_pylist()
    assert [found["storageType"] for found in marked] == ["p"]


def test_an_export_is_not_written_over_another_table(lake: Lake) -> None:
    table, other = lake.new_table("t"), lake.new_table("other")
    for target in (other.location, f"{table.location}/export"):
        with pytest.raises(ValueError, match="location of its own"):
            export(lake.client, table, target=target)
    foreign = path_table(lake)
    with pytest.raises(RecoveryError, match="not an export"):
        export(lake.client, table, target=foreign)
    target = "memory://lake/exports/t"
    export(lake.client, table, target=target)
    with pytest.raises(RecoveryError, match="not an export"):
        export(lake.client, other, target=target)
    put_commit(lake, target, 1, put_file(lake, target, "c.parquet"))
    with pytest.raises(RecoveryError, match="not an export"):
        export(lake.client, table, target=target)
