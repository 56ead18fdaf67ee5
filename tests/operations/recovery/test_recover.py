"""A catalog that was restored from an older copy records the commits in storage; forked histories need a decision."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, RecoveryError, StorageError, TableNotFoundError
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.operations.recovery.plan import KeptHistory, TableRecoveryPlan, explain
from cm_delta_dagster.operations.recovery.recover import plan_recovery, recover
from cm_delta_dagster.operations.recovery.set_aside import files_set_aside
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy
from cm_delta_dagster.protocol.log import version_checksum
from tests.support.actions import add_file
from tests.support.forced_commit import ratify_append
from tests.support.lake import Lake
from tests.support.old_catalog import back_up, restore

NAME = "main.test.t"


def paths(table: Table) -> list[str]:
    return sorted(table.snapshot().files["path"].to_pylist())


def plan_of(lake: Lake, **arguments: Any) -> TableRecoveryPlan:
    (plan,) = plan_recovery(lake.client, tables=[NAME], **arguments).tables
    return plan


def apply(lake: Lake, **arguments: Any) -> Any:
    (result,) = recover(lake.client, plan_recovery(lake.client, tables=[NAME], **arguments)).tables
    return result


def log(table: Table, version: int) -> str:
    return f"{table.location}/_delta_log/{version:020d}.json"


def ahead(lake: Lake, tmp_path: Path, *, before: int = 2, after: int = 3) -> Table:
    """A table with ``before + after`` appends, of which the restored catalog knows ``before``."""
    table = lake.new_table()
    for number in range(before):
        lake.append(table, f"old-{number}.parquet")
    back_up(tmp_path)
    for number in range(after):
        lake.append(table, f"new-{number}.parquet")
    restore(lake, tmp_path)
    return lake.client.table(NAME)


def forked(lake: Lake, tmp_path: Path) -> Table:
    """Versions 3 to 5 are in storage, other versions 3 and 4 in the catalog."""
    table = ahead(lake, tmp_path)
    ratify_append(lake, table, "fork-0.parquet")
    ratify_append(lake, table, "fork-1.parquet")
    return table


def test_published_commits_above_the_catalog_are_planned_and_taken_in(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    plan = plan_of(lake)
    assert (plan.catalog_version, plan.common_version, plan.is_forked) == (2, 2, False)
    assert [(commit.version, commit.operation, commit.num_rows) for commit in plan.in_storage] == [
        (3, "WRITE", 10),
        (4, "WRITE", 10),
        (5, "WRITE", 10),
    ]
    assert plan.rejected == plan.staged == plan.lost == plan.missing_files == ()
    assert lake.catalog.registry.load_table_by_id(table.table_id).ratified.latest_version == 2, "a plan changes nothing"
    assert "above it" in explain(plan)[0]
    result = apply(lake)
    assert (result.taken, result.latest_version, result.set_aside) == ((3, 4, 5), 5, None)
    assert paths(lake.client.table(NAME)) == [f"new-{n}.parquet" for n in range(3)] + [
        f"old-{n}.parquet" for n in range(2)
    ]
    records = lake.catalog.coordinator.commit_records(table.table_id, start=3, end=5)
    assert all(record.sha256 for record in records)
    assert plan_of(lake).is_sound and explain(plan_of(lake)) == (f"{NAME}: catalog and storage agree up to version 5.",)
    assert apply(lake).taken == ()
    assert lake.append(lake.client.table(NAME)).version == 6


def test_all_tables_are_recovered_by_one_plan(lake: Lake, tmp_path: Path) -> None:
    tables = [lake.new_table(name) for name in ("a", "b", "c")]
    back_up(tmp_path)
    for table in tables[:2]:
        lake.append(table)
    restore(lake, tmp_path)
    plan = plan_recovery(lake.client)
    assert [(str(table.identifier), len(table.taken)) for table in plan.tables] == [
        ("main.test.a", 1),
        ("main.test.b", 1),
        ("main.test.c", 0),
    ]
    assert recover(lake.client, plan).num_commits == plan.num_commits == 2
    assert lake.client.table("main.test.b").snapshot().version == 1


def test_a_changed_definition_is_taken_in_with_its_commit(lake: Lake, tmp_path: Path) -> None:
    table = lake.new_table()
    back_up(tmp_path)
    transaction = table.start_transaction(table.snapshot(), operation="SET TBLPROPERTIES")
    metadata = table.snapshot().metadata
    transaction.set_metadata(replace(metadata, configuration={**metadata.configuration, "delta.appendOnly": "true"}))
    transaction.commit()
    restore(lake, tmp_path)
    apply(lake)
    entry = lake.catalog.registry.load_table_by_id(table.table_id)
    assert entry.definition is not None and entry.definition.version == 1
    assert entry.definition.properties["delta.appendOnly"] == "true"


def test_recovered_commits_have_their_partitions_in_the_feed(lake: Lake, tmp_path: Path) -> None:
    table = lake.new_table()
    back_up(tmp_path)
    lake.append(table)
    (before,) = lake.catalog.feed.feed(after=1, limit=9)
    restore(lake, tmp_path)
    apply(lake)
    (after,) = lake.catalog.feed.feed(after=1, limit=9)
    assert before.summary.counts is not None  # Only the writer of a commit knows them.
    assert after.summary == replace(before.summary, counts=None)


def test_a_file_that_is_no_commit_of_the_table_ends_the_chain(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    lake.memory.write(log(table, 4), b'{"add":{"path":"x"}}\n')
    plan = plan_of(lake)
    assert [commit.version for commit in plan.in_storage] == [3]
    assert [(one.version, "commitInfo" in one.reason or "read" in one.reason) for one in plan.rejected] == [
        (4, True),
        (5, False),
    ]
    assert "does not follow version 3" in plan.rejected[1].reason
    result = apply(lake)
    assert result.taken == (3,) and result.set_aside is None
    assert lake.memory.read(log(table, 5))


def _edited(lake: Lake, table: Table, version: int, **changes: Any) -> None:
    """Change the commitInfo of a published commit."""
    lines = lake.memory.read(log(table, version)).decode().splitlines()
    info = json.loads(lines[0])
    info["commitInfo"].update(changes)
    lake.memory.write(log(table, version), "\n".join([json.dumps(info), *lines[1:], ""]).encode())


def test_what_does_not_continue_the_table_is_not_taken_in(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    lake.client.wait_for_background()
    good = lake.memory.read(log(table, 3))
    known = lake.catalog.coordinator.commit_records(table.table_id, start=1, end=1)[0].txn_id
    for changes, why in (
        ({"inCommitTimestamp": 1}, "not later"),
        ({"txnId": known}, "another commit of the table has the same txnId"),
        ({"txnId": None}, "txnId"),
    ):
        _edited(lake, table, 3, **changes)
        plan = plan_of(lake)
        assert plan.in_storage == () and why in plan.rejected[0].reason
        lake.memory.write(log(table, 3), good)
    for line, why in (
        ('{"remove":{"path":"nowhere.parquet","dataChange":true,"deletionTimestamp":1}}', "nowhere.parquet"),
        ('{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}', "catalogManaged"),
    ):
        lake.memory.write(log(table, 3), good + line.encode() + b"\n")
        plan = plan_of(lake)
        assert plan.in_storage == () and why in plan.rejected[0].reason
    lake.memory.write(log(table, 3), good)
    assert len(plan_of(lake).in_storage) == 3


def test_commits_of_another_table_are_not_taken_in(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    other = lake.memory.read(log(lake.new_table("other"), 0)).replace(
        b'"inCommitTimestamp":1', b'"inCommitTimestamp":9'
    )
    lake.memory.write(log(table, 3), other)
    plan = plan_of(lake)
    assert plan.in_storage == () and "table id" in plan.rejected[0].reason


def test_a_commit_that_contradicts_its_checksum_is_not_taken_in(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    before, location = (f"{table.location}/_delta_log/{version:020d}.crc" for version in (3, 4))
    older, stored = (
        version_checksum.decode(lake.memory.read(before)),
        version_checksum.decode(lake.memory.read(location)),
    )
    assert older is not None and stored is not None
    lake.memory.write(location, version_checksum.encode(replace(older, txn_id=stored.txn_id)))
    plan = plan_of(lake)
    assert [commit.version for commit in plan.in_storage] == [3]
    assert "contradicts it in" in plan.rejected[0].reason and "numFiles" in plan.rejected[0].reason
    lake.memory.write(location, version_checksum.encode(replace(older, txn_id="of another history")))
    assert len(plan_of(lake).in_storage) == 3


def test_data_files_that_are_gone_are_named(lake: Lake, tmp_path: Path) -> None:
    table = lake.new_table()
    back_up(tmp_path)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files(
        add_file(f"new-{n}.parquet", partition_values={"day": "2026-01-01"}, size=100) for n in range(2)
    )
    transaction.commit()
    restore(lake, tmp_path)
    lake.put(table, "new-0.parquet")
    plan = plan_of(lake)
    assert plan.missing_files == ("new-1.parquet",)
    assert any("new-1.parquet" in line for line in explain(plan))
    assert apply(lake).warnings


def test_a_commit_of_which_no_data_file_is_there_is_not_taken_in(lake: Lake, tmp_path: Path) -> None:
    """The commit file of another table was copied, and its version follows."""
    table = ahead(lake, tmp_path)
    lake.memory.delete(f"{table.location}/new-1.parquet")
    plan = plan_of(lake)
    assert [commit.version for commit in plan.in_storage] == [3]
    assert (
        "data files that it adds exists" in plan.rejected[0].reason
        and "does not follow version 3" in plan.rejected[1].reason
    )
    assert plan.missing_files == ()
    lake.put(table, "new-1.parquet")
    assert len(plan_of(lake).in_storage) == 3


def test_files_that_a_later_commit_removed_may_have_been_vacuumed(lake: Lake, tmp_path: Path) -> None:
    table = lake.new_table()
    back_up(tmp_path)
    lake.append(table, "short-lived.parquet")
    lake.remove(table, "short-lived.parquet")
    lake.append(table, "new.parquet")
    lake.memory.delete(f"{table.location}/short-lived.parquet")
    restore(lake, tmp_path)
    plan = plan_of(lake)
    assert ([commit.version for commit in plan.in_storage], plan.rejected) == ([1, 2, 3], ())


def _unpublish(lake: Lake, table: Table, version: int) -> str:
    """Delete the published file; return the name of the staged file, which remains."""
    lake.memory.delete(log(table, version))
    directory = f"{table.location}/_delta_log/_staged_commits"
    (name,) = [one.name for one in lake.memory.list_from(directory) if one.name.startswith(f"{version:020d}.")]
    return name


def test_staged_files_above_the_chain_need_a_decision(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    fourth, fifth = _unpublish(lake, table, 4), _unpublish(lake, table, 5)
    plan = plan_of(lake)
    assert [commit.version for commit in plan.taken] == [3]
    assert [(one.name, one.is_taken, one.problem is None) for one in plan.staged] == [
        (fourth, False, True),
        (fifth, False, False),
    ]
    assert f"{4:020d}.crc was written after" in plan.staged[0].evidence
    assert plan.lost == ()
    with pytest.raises(InvalidArgumentError, match="does not follow"):
        plan_of(lake, take_staged=[fifth])
    with pytest.raises(InvalidArgumentError, match=fourth):
        plan_of(lake, take_staged=["nothing.json"])
    result = apply(lake, take_staged=[fifth, fourth])
    assert (result.taken, result.latest_version) == ((3, 4, 5), 5)
    assert lake.memory.read(log(table, 5)) and plan_of(lake).is_sound
    assert len(paths(lake.client.table(NAME))) == 5


def test_versions_of_which_only_a_checksum_is_left_are_named_as_lost(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    txn_id = json.loads(lake.memory.read(log(table, 5)).splitlines()[0])["commitInfo"]["txnId"]
    lake.memory.delete(f"{table.location}/_delta_log/_staged_commits/{_unpublish(lake, table, 5)}")
    plan = plan_of(lake)
    assert [(one.version, one.txn_id) for one in plan.lost] == [(5, txn_id)]
    assert any(line.startswith("Lost: version 5") for line in explain(plan))


def test_forked_histories_are_explained_and_nothing_is_done(lake: Lake, tmp_path: Path) -> None:
    table = forked(lake, tmp_path)
    files = lake.files(table)
    plan = plan_recovery(lake.client, tables=[NAME])
    (one,) = plan.tables
    assert one.is_forked and one.needs_decision and (one.common_version, one.catalog_version) == (2, 4)
    assert [commit.version for commit in one.in_catalog] == [3, 4]
    assert [commit.version for commit in one.in_storage] == [3, 4, 5]
    assert {commit.txn_id for commit in one.in_catalog}.isdisjoint(commit.txn_id for commit in one.in_storage)
    with pytest.raises(RecoveryError, match=r"forked after version 2[\s\S]*10 rows[\s\S]*choose the history to keep"):
        recover(lake.client, plan)
    assert lake.files(table) == files
    assert lake.catalog.registry.load_table_by_id(table.table_id).ratified.latest_version == 4


def test_the_history_of_storage_is_kept_and_the_catalogs_is_set_aside(lake: Lake, tmp_path: Path) -> None:
    table = forked(lake, tmp_path)
    own = lake.catalog.coordinator.get_ratified_commits(table.table_id).commits
    result = apply(lake, keep=KeptHistory.STORAGE)
    assert (result.taken, result.latest_version) == ((3, 4, 5), 5)
    assert paths(lake.client.table(NAME)) == [f"new-{n}.parquet" for n in range(3)] + [
        f"old-{n}.parquet" for n in range(2)
    ]
    aside = {status.name for status in lake.memory.list_from(result.set_aside)}
    assert {commit.file_name for commit in own} <= aside
    assert files_set_aside(lake.client.table(NAME)) == {f"{table.location}/fork-{n}.parquet" for n in range(2)}
    assert plan_of(lake).is_sound and lake.append(lake.client.table(NAME)).version == 6


def test_the_history_of_the_catalog_is_kept_and_storages_is_set_aside(lake: Lake, tmp_path: Path) -> None:
    table = forked(lake, tmp_path)
    storage = {version: lake.memory.read(log(table, version)) for version in (3, 4, 5)}
    result = apply(lake, keep=KeptHistory.CATALOG)
    assert (result.taken, result.latest_version) == ((), 4)
    for version, data in storage.items():
        assert lake.memory.read(f"{result.set_aside}/{version:020d}.json") == data
    assert paths(lake.client.table(NAME)) == [f"fork-{n}.parquet" for n in range(2)] + [
        f"old-{n}.parquet" for n in range(2)
    ]
    assert lake.catalog.coordinator.get_ratified_commits(table.table_id).published_version == 4
    assert f"{5:020d}.json" not in lake.files(table, "_delta_log")
    assert plan_of(lake).is_sound and plan_of(lake).staged == ()
    assert lake.append(lake.client.table(NAME)).version == 5


def test_checkpoints_of_the_other_history_are_set_aside_with_it(lake: Lake, tmp_path: Path) -> None:
    table = lake.new_table()
    lake.append(table, "old-0.parquet")
    back_up(tmp_path)
    lake.append(table, "new-0.parquet")
    checkpoint(table)
    restore(lake, tmp_path)
    table = lake.client.table(NAME)
    ratify_append(lake, table, "fork-0.parquet")
    result = apply(lake, keep=KeptHistory.CATALOG)
    aside = {status.name for status in lake.memory.list_from(result.set_aside)}
    assert {f"{2:020d}.json", "_last_checkpoint"} <= aside
    assert any(name.startswith(f"{2:020d}.checkpoint.") for name in aside)
    assert not aside & {name for name in lake.files(table, "_delta_log") if "checkpoint" in name}
    assert paths(lake.client.table(NAME)) == ["fork-0.parquet", "old-0.parquet"]


def test_vacuum_keeps_the_files_of_a_history_that_was_set_aside(lake: Lake, tmp_path: Path) -> None:
    table = forked(lake, tmp_path)
    apply(lake, keep=KeptHistory.CATALOG)
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    lake.put(table, "orphan.parquet")
    lake.clock.pass_days(30)
    vacuum(lake.client.table(NAME), retention_ms=0, force=True)
    assert lake.data_files(table) == {
        *(f"old-{n}.parquet" for n in range(2)),
        *(f"fork-{n}.parquet" for n in range(2)),
        *(f"new-{n}.parquet" for n in range(3)),
    }


def test_files_that_are_no_commits_are_set_aside_only_when_asked(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    lake.memory.write(log(table, 4), b"nothing\n")
    apply(lake)
    assert plan_of(lake).rejected
    result = apply(lake, keep=KeptHistory.STORAGE)
    assert {status.name for status in lake.memory.list_from(result.set_aside)} == {
        f"{4:020d}.json",
        f"{5:020d}.json",
    }
    assert not plan_of(lake).rejected
    assert lake.append(lake.client.table(NAME)).version == 4


def test_an_old_backup_is_gone_back_to_without_losing_a_file(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    result = apply(lake, keep=KeptHistory.CATALOG)
    assert (result.taken, result.latest_version) == ((), 2)
    assert len(files_set_aside(lake.client.table(NAME))) == 3
    assert lake.append(lake.client.table(NAME), "next.parquet").version == 3
    assert paths(lake.client.table(NAME)) == ["next.parquet", "old-0.parquet", "old-1.parquet"]
    assert lake.data_files(table) >= {"new-0.parquet", "new-2.parquet"}


def test_a_plan_is_refused_after_the_table_has_changed(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    plan = plan_recovery(lake.client, tables=[NAME])
    lake.memory.delete(log(table, 5))
    with pytest.raises(RecoveryError, match="a new plan"):
        recover(lake.client, plan)
    assert lake.catalog.registry.load_table_by_id(table.table_id).ratified.latest_version == 2


def test_a_table_whose_storage_is_not_there_is_a_problem_of_its_own(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    lake.new_table("other")
    for status in list(lake.memory.list_recursive(table.location)):
        lake.memory.delete(status.location)
    plan = plan_recovery(lake.client)
    assert [table.problem is None for table in plan.tables] == [True, False]
    assert recover(lake.client, plan).num_commits == 0
    with pytest.raises(RecoveryError, match="mounted"):
        recover(lake.client, plan_recovery(lake.client, tables=[NAME]))
    with pytest.raises(TableNotFoundError):
        plan_recovery(lake.client, tables=["main.test.unknown"])


def test_a_damaged_published_commit_is_no_fork(lake: Lake, tmp_path: Path) -> None:
    table = ahead(lake, tmp_path)
    data = lake.memory.read(log(table, 2))
    lake.memory.write(log(table, 2), data.replace(b'"size":100', b'"size":101'))
    assert "maintenance.repair()" in str(plan_of(lake).problem)


@pytest.mark.parametrize("kind", [CommitPolicyKind.INLINE, CommitPolicyKind.PUT_IF_ABSENT])
def test_every_commit_mode_is_recovered(lake: Lake, tmp_path: Path, kind: CommitPolicyKind) -> None:
    lake.new_table()
    choose_commit_policy(lake.client, scope=NAME, policy=CommitPolicy(kind=kind))
    table = lake.client.table(NAME)
    lake.append(table, "old-0.parquet")
    lake.client.wait_for_background()
    back_up(tmp_path)
    lake.append(table, "new-0.parquet")
    lake.append(table, "new-1.parquet")
    table.ratified()
    restore(lake, tmp_path)
    result = apply(lake)
    assert paths(lake.client.table(NAME)) == ["new-0.parquet", "new-1.parquet", "old-0.parquet"]
    assert len(result.taken) == 2 and plan_of(lake).is_sound
    assert lake.append(lake.client.table(NAME), "last.parquet").version == result.latest_version + 1


def _all_set_aside(lake: Lake, table: Table) -> set[bytes]:
    root = f"{table.location}/_delta_log/_set_aside"
    return {lake.memory.read(status.location) for status in lake.memory.list_recursive(root)}


_CHANGES = frozenset({"write", "write_if_absent", "delete", "take_in_commits", "set_published_version"})


@pytest.mark.slow
@pytest.mark.parametrize("keep", list(KeptHistory))
@pytest.mark.parametrize("effect", ["before", "after"])
def test_a_recovery_that_was_interrupted_anywhere_is_ended_by_the_next(
    tmp_path: Path, keep: KeptHistory, effect: str
) -> None:
    """If any call fails, with or without effect, no commit of either history is lost."""
    number, finished = 0, False
    while not finished:
        directory = tmp_path / str(number)
        directory.mkdir()
        lake = Lake(directory)
        table = forked(lake, directory)
        own = lake.catalog.coordinator.get_ratified_commits(table.table_id).commits
        staged = f"{table.location}/_delta_log/_staged_commits"
        of_catalog = {lake.memory.read(f"{staged}/{commit.file_name}") for commit in own}
        of_storage = {lake.memory.read(log(table, version)) for version in (3, 4, 5)}
        plan = plan_recovery(lake.client, tables=[NAME], keep=keep)
        left = [number]

        def fails(method: str, argument: Any, left: list[int] = left) -> Exception | None:
            if method not in _CHANGES:
                return None
            left[0] -= 1
            return StorageError("stopped, as the test wants") if left[0] == -1 else None

        for broken in (lake.store, lake.catalog):
            setattr(broken, "fails" if effect == "before" else "fails_after", fails)
        try:
            recover(lake.client, plan)
            finished = True
        except StorageError:
            pass
        for repaired in (lake.store, lake.catalog):
            repaired.fails = repaired.fails_after = lambda method, argument: None
        recover(lake.client, plan_recovery(lake.client, tables=[NAME], keep=keep))
        storage = keep is KeptHistory.STORAGE
        kept = [f"new-{n}.parquet" for n in range(3)] if storage else [f"fork-{n}.parquet" for n in range(2)]
        found = lake.client.table(NAME)
        assert paths(found) == [*kept, "old-0.parquet", "old-1.parquet"]
        assert (of_catalog if storage else of_storage) <= _all_set_aside(lake, table)
        assert lake.append(found, "z.parquet").version == (6 if storage else 5)
        assert lake.reopened().table(NAME).snapshot().num_files == len(kept) + 3
        lake.client.close()
        number += 1
    assert number >= 4
