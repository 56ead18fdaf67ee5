"""Commits that violate a rule are refused, or wait for an approval and become a version exactly once."""

from collections.abc import Callable
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.holds import Hold, HoldState
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.history import iterate_history
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    ApprovalRequiredError,
    CatalogUnavailableError,
    CommitConflictError,
    CommitRefusedError,
    CommitStateUnknownError,
    HoldClosedError,
    InvalidArgumentError,
    StorageError,
    TableStorageMissingError,
)
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.operations.tables.ratify_hold import RatifiedHold, approve_hold
from cm_delta_dagster.protocol.actions.actions import SetTransaction
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from tests.support.actions import add_file
from tests.support.lake import Lake

INLINE = CommitPolicy(kind=CommitPolicyKind.INLINE)


@pytest.fixture
def table(lake: Lake) -> Table:
    """A table of three files with ten rows each, of which a commit may remove a third without an approval."""
    table = lake.new_table()
    for name in ("a", "b", "c"):
        lake.append(table, f"{name}.parquet")
    set_rule(lake, fraction=0.4)
    return table


def set_rule(
    lake: Lake,
    kind: CommitRuleKind = CommitRuleKind.MAX_REMOVED_ROWS,
    *,
    on_violation: OnViolation = OnViolation.APPROVAL,
    scope: str = "main.test",
    **arguments: Any,
) -> None:
    rule = CommitRule(
        scope=scope,
        name=kind.value,
        kind=kind,
        arguments=arguments,
        on_violation=on_violation,
        reason="ask first",
        contact="data-team",
    )
    lake.catalog.commit_rules.set_commit_rule(rule)


def removal(lake: Lake, table: Table, *paths: str, adds: str | None = None) -> Transaction:
    """A transaction that removes live files, and adds one."""
    snapshot = table.snapshot()
    transaction = table.start_transaction(snapshot, operation="DELETE")
    wanted = [path in paths for path in snapshot.files["path"].to_pylist()]
    transaction.remove_files(removes_of(snapshot.files.filter(wanted), data_change=True))
    if adds is not None:
        lake.put(table, adds)
        transaction.add_files([add_file(adds, partition_values={"day": "2026-01-01"}, stats='{"numRecords":1}')])
    return transaction


def request(lake: Lake, table: Table, *paths: str, adds: str | None = None) -> Hold:
    """The request of a removal that waits."""
    with pytest.raises(ApprovalRequiredError) as caught:
        removal(lake, table, *paths, adds=adds).commit()
    assert caught.value.approval_id is not None
    return lake.sql_catalog.holds.held_proposals(caught.value.approval_id)[0].hold


def test_a_small_removal_is_committed_and_a_large_one_waits(lake: Lake, table: Table) -> None:
    removal(lake, table, "a.parquet").commit()
    before = table.snapshot().version
    with pytest.raises(ApprovalRequiredError, match="removes 20 of 20 rows") as caught:
        removal(lake, table, "b.parquet", "c.parquet").commit()
    assert caught.value.ask == ("data-team",) and "ask first" in str(caught.value)
    assert table.snapshot().version == before
    (waiting,) = lake.sql_catalog.holds.holds("main.test")
    assert (waiting.hold_id, waiting.state) == (caught.value.approval_id, HoldState.PENDING)
    assert lake.sql_catalog.holds.holds("main.other") == ()


@pytest.mark.parametrize("mode", [None, INLINE])
def test_an_approved_commit_is_rebased_and_ratified_once(lake: Lake, table: Table, mode: CommitPolicy | None) -> None:
    lake.catalog.commit_policies.change_commit_policy(table.table_id, mode)
    waiting = request(lake, table, "a.parquet", "b.parquet", adds="new.parquet")
    lake.append(table, "later.parquet")
    done = approve_hold(lake.reopened(), waiting.hold_id)
    assert (done.repeated, done.version) == (False, 5)
    assert done.hold.state is HoldState.COMMITTED
    live = {"c.parquet", "later.parquet", "new.parquet"}
    assert set(table.snapshot().files["path"].to_pylist()) == live
    again = approve_hold(lake.client, waiting.hold_id)
    assert (again.repeated, again.version) == (True, 5) and table.snapshot().version == 5
    with pytest.raises(HoldClosedError, match=r"was approved.*Do not run the write again"):
        lake.catalog.holds.reject_hold(waiting.hold_id, reason="too late")


@pytest.mark.parametrize("removed", [(), ("a.parquet", "b.parquet")])
def test_concurrent_approvals_of_one_request_all_answer(lake: Lake, table: Table, removed: tuple[str, ...]) -> None:
    set_rule(lake, CommitRuleKind.REQUIRED_TAGS, tags=("ticket",))
    waiting = request(lake, table, *removed, adds="new.parquet")
    others: list[RatifiedHold] = []

    def approve_first(method: str, argument: Any) -> None:
        if method == "commit" and not others:
            lake.catalog.fails = lambda method, argument: None
            others.append(approve_hold(lake.reopened(), waiting.hold_id))

    lake.catalog.fails = approve_first
    done = approve_hold(lake.client, waiting.hold_id)
    assert [(each.repeated, each.version) for each in (*others, done)] == [(False, 4), (True, 4)]
    assert table.snapshot().version == 4


def test_an_approved_commit_keeps_the_row_ids_that_its_files_bring(lake: Lake) -> None:
    tracked = lake.new_table(properties={"delta.feature.rowTracking": "supported"})
    set_rule(lake, CommitRuleKind.REQUIRED_TAGS, tags=("ticket",))
    transaction = tracked.start_transaction(tracked.snapshot(), operation="CLONE")
    fields = {"partition_values": {"day": "2026-01-01"}, "stats": '{"numRecords":10}'}
    own = add_file("own.parquet", base_row_id=90, default_row_commit_version=1, **fields)
    transaction.add_files([own, add_file("fresh.parquet", **fields)])
    transaction.used_row_ids = 99
    for path in ("own.parquet", "fresh.parquet"):
        lake.put(tracked, path)
    with pytest.raises(ApprovalRequiredError) as caught:
        transaction.commit()
    lake.catalog.commit_rules.remove_commit_rule("main.test", "required_tags")
    lake.append(tracked, "later.parquet")
    approve_hold(lake.reopened(), str(caught.value.approval_id))
    files = tracked.snapshot().files.select(["path", "baseRowId", "defaultRowCommitVersion"]).to_pylist()
    assert sorted(tuple(file.values()) for file in files) == [
        ("fresh.parquet", 100, 2),
        ("later.parquet", 0, 1),
        ("own.parquet", 90, 1),
    ]


def test_a_commit_that_conflicts_closes_its_request(lake: Lake, table: Table) -> None:
    waiting = request(lake, table, "a.parquet", "b.parquet")
    removal(lake, table, "a.parquet").commit()
    version = table.snapshot().version
    with pytest.raises(CommitConflictError, match="conflicts with version 4"):
        approve_hold(lake.client, waiting.hold_id)
    closed = lake.sql_catalog.holds.held_proposals(waiting.hold_id)[0].hold
    assert closed.state is HoldState.CONFLICTING and "version 4" in closed.reason
    with pytest.raises(HoldClosedError, match="could no longer be made"):
        approve_hold(lake.client, waiting.hold_id)
    assert table.snapshot().version == version


def test_a_rejected_or_expired_request_cannot_be_approved(lake: Lake, table: Table) -> None:
    rejected = request(lake, table, "a.parquet", "b.parquet")
    with pytest.raises(InvalidArgumentError, match="give a reason"):
        lake.catalog.holds.reject_hold(rejected.hold_id, reason=" ")
    lake.catalog.holds.reject_hold(rejected.hold_id, reason="wrong table")
    lake.catalog.holds.reject_hold(rejected.hold_id, reason="wrong table")
    with pytest.raises(HoldClosedError, match=r"was rejected .*wrong table"):
        approve_hold(lake.client, rejected.hold_id)
    expiring = request(lake, table, "a.parquet", "b.parquet")
    lake.clock.pass_days(7)
    assert lake.sql_catalog.holds.holds() == ()
    with pytest.raises(HoldClosedError, match="expired"):
        approve_hold(lake.client, expiring.hold_id)
    assert table.snapshot().version == 3
    with pytest.raises(InvalidArgumentError, match="no hold 'missing'"):
        approve_hold(lake.client, "missing")


def test_the_same_work_finds_the_request_that_waits(lake: Lake, table: Table) -> None:
    def attempt() -> ApprovalRequiredError:
        transaction = removal(lake, table, "a.parquet", "b.parquet")
        transaction.note_transaction(SetTransaction(app_id="job", version=7))
        with pytest.raises(ApprovalRequiredError) as caught:
            transaction.commit()
        return caught.value

    first, second = attempt(), attempt()
    assert (first.approval_id, first.is_repeated) == (second.approval_id, False) and second.is_repeated
    assert "a retry finds the same request" in str(first)
    found = lake.sql_catalog.holds.find_hold(table.table_id, app_id="job", app_version=7)
    assert found is not None and found.hold_id == first.approval_id
    assert len(lake.sql_catalog.holds.holds()) == 1


def test_an_approved_commit_keeps_the_context_of_its_writer(lake: Lake, table: Table) -> None:
    lake.client.context = CommitProperties(tags={"owner": "etl"}, user_metadata="T-1")
    waiting = request(lake, table, "a.parquet", "b.parquet")
    approver = lake.reopened()
    approver.context = CommitProperties(tags={"owner": "ana", "more": "1"}, user_metadata="T-2")
    approve_hold(approver, waiting.hold_id)
    info = next(iter(iterate_history(table))).commit_info
    assert info is not None and (dict(info.tags or {}), info.user_metadata) == ({"owner": "etl"}, "T-1")


def test_work_without_idempotency_makes_a_request_each_time(lake: Lake, table: Table) -> None:
    found = set()
    for _ in range(2):
        with pytest.raises(ApprovalRequiredError, match="without idempotency makes another request") as caught:
            removal(lake, table, "a.parquet", "b.parquet").commit()
        found.add(caught.value.approval_id)
    assert found == {one.hold_id for one in lake.sql_catalog.holds.holds()} and len(found) == 2


def test_maintenance_keeps_the_files_of_a_commit_that_waits(lake: Lake, table: Table) -> None:
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    waiting = request(lake, table, "a.parquet", "b.parquet", adds="new.parquet")
    lake.put(table, "orphan.parquet")
    lake.clock.pass_days(6)
    lake.append(table, "later.parquet")
    lake.clock.pass_days(0.9)
    vacuum(table, retention_ms=1, force=True)
    clean_staged_commits(table, safety_age_ms=0)
    assert "new.parquet" in lake.data_files(table) and "orphan.parquet" not in lake.data_files(table)
    assert approve_hold(lake.client, waiting.hold_id).version == 5


@pytest.mark.requirements("FILE-10")
def test_files_of_a_commit_that_waited_are_removed_when_it_is_made(lake: Lake, table: Table) -> None:
    """Clients that go by the tombstones keep the files of the version before for the whole retention."""
    waiting = request(lake, table, "a.parquet", "b.parquet")
    lake.clock.pass_days(6.9)
    approve_hold(lake.client, waiting.hold_id)
    assert table.snapshot().tombstones["deletionTimestamp"].to_pylist() == [lake.clock()] * 2


def test_a_commit_whose_files_are_gone_is_not_made(lake: Lake, table: Table) -> None:
    waiting = request(lake, table, "a.parquet", "b.parquet", adds="new.parquet")
    lake.store.delete(f"{table.location}/new.parquet")
    with pytest.raises(TableStorageMissingError, match=r"1 of its files do not exist, .* the hold stays"):
        approve_hold(lake.client, waiting.hold_id)
    assert lake.sql_catalog.holds.held_proposals(waiting.hold_id)[0].hold.state is HoldState.PENDING
    assert table.snapshot().version == 3


def test_an_approval_does_not_lift_rules_that_refuse(lake: Lake, table: Table) -> None:
    waiting = request(lake, table, "a.parquet", "b.parquet")
    set_rule(lake, CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.REFUSE)
    with pytest.raises(CommitRefusedError, match="append_only"):
        approve_hold(lake.client, waiting.hold_id)
    assert lake.sql_catalog.holds.held_proposals(waiting.hold_id)[0].hold.state is HoldState.PENDING
    lake.catalog.commit_rules.remove_commit_rule("main.test", "append_only")
    lake.catalog.commit_rules.remove_commit_rule("main.test", "max_removed_rows")
    assert approve_hold(lake.client, waiting.hold_id).version == 4


def test_an_approval_does_not_lift_rules_that_are_set_later(lake: Lake, table: Table) -> None:
    waiting = request(lake, table, "a.parquet", "b.parquet", adds="new.parquet")
    set_rule(lake, CommitRuleKind.APPEND_ONLY)
    for _ in range(2):
        with pytest.raises(CommitRefusedError, match=r"append_only.*Reject the request and run the write again"):
            approve_hold(lake.client, waiting.hold_id)
    assert lake.sql_catalog.holds.held_proposals(waiting.hold_id)[0].hold == waiting
    assert table.snapshot().version == 3 and lake.store.read(f"{table.location}/new.parquet") is not None
    lake.catalog.holds.reject_hold(waiting.hold_id, reason="a new rule")
    again = request(lake, table, "a.parquet", "b.parquet")
    assert len(again.what) == 2 and approve_hold(lake.client, again.hold_id).version == 4


def test_an_approval_holds_for_its_own_commit_alone(lake: Lake, table: Table) -> None:
    waiting = request(lake, table, "a.parquet", "b.parquet")
    forged = removal(lake, table, "a.parquet", "b.parquet", "c.parquet")
    forged.txn_id, forged.hold_id = waiting.tables[0].txn_id, waiting.hold_id
    with pytest.raises(HoldClosedError, match="made for another commit"):
        forged.commit()
    assert table.snapshot().version == 3


def test_an_approval_that_fails_at_any_call_is_completed_by_the_next(lake: Lake, table: Table) -> None:
    """The request becomes a version exactly once, wherever the first call stops, before or after the effect of the call."""
    number = 0
    while True:
        waiting = request(lake, table, "a.parquet", "b.parquet", adds=f"new-{number}.parquet")
        before = table.snapshot().version
        if _interrupted(lake, waiting, number):
            approve_hold(lake.reopened(), waiting.hold_id)
        table = lake.reopened().table(table.identifier)
        assert table.snapshot().version == before + 1
        hold = lake.sql_catalog.holds.held_proposals(waiting.hold_id)[0].hold
        assert (hold.state, hold.tables[0].version) == (HoldState.COMMITTED, before + 1)
        if number >= _CALLS:
            return
        for path in ("a.parquet", "b.parquet", "c.parquet"):
            if path not in table.snapshot().files["path"].to_pylist():
                lake.append(table, path)
        lake.catalog.commit_rules.remove_commit_rule("main.test", "max_removed_rows")
        removal(lake, table, f"new-{number}.parquet").commit()
        set_rule(lake, fraction=0.4)
        number += 1


_CALLS = 15
"""More calls than an approval makes of catalog and storage until its commit is ratified."""


def _interrupted(lake: Lake, waiting: Hold, number: int) -> bool:
    """Approve, and stop after call ``number``, whose answer is lost. Returns whether the approval failed."""
    calls = 0

    def fails(error: type[Exception]) -> Callable[[str, Any], Exception | None]:
        def fail(method: str, argument: Any) -> Exception | None:
            nonlocal calls
            calls += 1
            return error("stopped by the test") if calls > number else None

        return fail

    lake.catalog.fails_after, lake.store.fails_after = fails(CatalogUnavailableError), fails(StorageError)
    try:
        approve_hold(_stubborn(lake), waiting.hold_id)
    except (CatalogUnavailableError, StorageError, CommitStateUnknownError, CommitConflictError):
        return True
    finally:
        lake.catalog.fails_after = lake.store.fails_after = lambda method, argument: None
    return False


def _stubborn(lake: Lake) -> DeltaClient:
    return lake.reopened()
