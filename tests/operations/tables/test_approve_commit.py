"""Commits that violate a rule are refused, or wait for an approval and become a version exactly once."""

from collections.abc import Callable
from typing import Any

import pytest

from cm_delta_dagster.catalog.approvals import Approval, ApprovalState
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import CommitContext
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.history import iterate_history
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    ApprovalClosedError,
    ApprovalRequiredError,
    CatalogUnavailableError,
    CommitConflictError,
    CommitRefusedError,
    CommitStateUnknownError,
    InvalidArgumentError,
    StorageError,
)
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.operations.tables.approve_commit import ApprovedCommit, approve_commit
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


def parked(lake: Lake, table: Table, *paths: str, adds: str | None = None) -> Approval:
    """The request of a removal that waits."""
    with pytest.raises(ApprovalRequiredError) as caught:
        removal(lake, table, *paths, adds=adds).commit()
    assert caught.value.approval_id is not None
    return lake.sql_catalog.approvals.parked_commit(caught.value.approval_id).approval


def test_a_small_removal_is_committed_and_a_large_one_waits(lake: Lake, table: Table) -> None:
    removal(lake, table, "a.parquet").commit()
    before = table.snapshot().version
    with pytest.raises(ApprovalRequiredError, match="removes 20 of 20 rows") as caught:
        removal(lake, table, "b.parquet", "c.parquet").commit()
    assert caught.value.ask == ("data-team",) and "ask first" in str(caught.value)
    assert table.snapshot().version == before
    (waiting,) = lake.sql_catalog.approvals.approvals("main.test")
    assert (waiting.approval_id, waiting.state) == (caught.value.approval_id, ApprovalState.PENDING)
    assert lake.sql_catalog.approvals.approvals("main.other") == ()


@pytest.mark.parametrize("mode", [None, INLINE])
def test_an_approved_commit_is_rebased_and_ratified_once(lake: Lake, table: Table, mode: CommitPolicy | None) -> None:
    lake.catalog.commit_policies.change_commit_policy(table.table_id, mode)
    waiting = parked(lake, table, "a.parquet", "b.parquet", adds="new.parquet")
    lake.append(table, "later.parquet")
    done = approve_commit(lake.reopened(), waiting.approval_id)
    assert (done.repeated, done.version) == (False, 5)
    assert done.approval.state is ApprovalState.COMMITTED
    live = {"c.parquet", "later.parquet", "new.parquet"}
    assert set(table.snapshot().files["path"].to_pylist()) == live
    again = approve_commit(lake.client, waiting.approval_id)
    assert (again.repeated, again.version) == (True, 5) and table.snapshot().version == 5
    with pytest.raises(ApprovalClosedError, match=r"was approved.*Do not run the write again"):
        lake.catalog.approvals.reject_approval(waiting.approval_id, reason="too late")


@pytest.mark.parametrize("removed", [(), ("a.parquet", "b.parquet")])
def test_concurrent_approvals_of_one_request_all_answer(lake: Lake, table: Table, removed: tuple[str, ...]) -> None:
    set_rule(lake, CommitRuleKind.REQUIRED_TAGS, tags=("ticket",))
    waiting = parked(lake, table, *removed, adds="new.parquet")
    others: list[ApprovedCommit] = []

    def approve_first(method: str, argument: Any) -> None:
        if method == "commit" and not others:
            lake.catalog.fails = lambda method, argument: None
            others.append(approve_commit(lake.reopened(), waiting.approval_id))

    lake.catalog.fails = approve_first
    done = approve_commit(lake.client, waiting.approval_id)
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
    approve_commit(lake.reopened(), str(caught.value.approval_id))
    files = tracked.snapshot().files.select(["path", "baseRowId", "defaultRowCommitVersion"]).to_pylist()
    assert sorted(tuple(file.values()) for file in files) == [
        ("fresh.parquet", 100, 2),
        ("later.parquet", 0, 1),
        ("own.parquet", 90, 1),
    ]


def test_a_commit_that_conflicts_closes_its_request(lake: Lake, table: Table) -> None:
    waiting = parked(lake, table, "a.parquet", "b.parquet")
    removal(lake, table, "a.parquet").commit()
    version = table.snapshot().version
    with pytest.raises(CommitConflictError, match="conflicts with version 4"):
        approve_commit(lake.client, waiting.approval_id)
    closed = lake.sql_catalog.approvals.parked_commit(waiting.approval_id).approval
    assert closed.state is ApprovalState.CONFLICTING and "version 4" in closed.reason
    with pytest.raises(ApprovalClosedError, match="could no longer be made"):
        approve_commit(lake.client, waiting.approval_id)
    assert table.snapshot().version == version


def test_a_rejected_or_expired_request_cannot_be_approved(lake: Lake, table: Table) -> None:
    rejected = parked(lake, table, "a.parquet", "b.parquet")
    with pytest.raises(InvalidArgumentError, match="give a reason"):
        lake.catalog.approvals.reject_approval(rejected.approval_id, reason=" ")
    lake.catalog.approvals.reject_approval(rejected.approval_id, reason="wrong table")
    lake.catalog.approvals.reject_approval(rejected.approval_id, reason="wrong table")
    with pytest.raises(ApprovalClosedError, match=r"was rejected .*wrong table"):
        approve_commit(lake.client, rejected.approval_id)
    expiring = parked(lake, table, "a.parquet", "b.parquet")
    lake.clock.pass_days(7)
    assert lake.sql_catalog.approvals.approvals() == ()
    with pytest.raises(ApprovalClosedError, match="expired"):
        approve_commit(lake.client, expiring.approval_id)
    assert table.snapshot().version == 3
    with pytest.raises(InvalidArgumentError, match="no request 'missing'"):
        approve_commit(lake.client, "missing")


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
    found = lake.sql_catalog.approvals.find_approval(table.table_id, app_id="job", app_version=7)
    assert found is not None and found.approval_id == first.approval_id
    assert len(lake.sql_catalog.approvals.approvals()) == 1


def test_an_approved_commit_keeps_the_context_of_its_writer(lake: Lake, table: Table) -> None:
    lake.client.context = CommitContext(tags={"owner": "etl"}, user_metadata="T-1")
    waiting = parked(lake, table, "a.parquet", "b.parquet")
    approver = lake.reopened()
    approver.context = CommitContext(tags={"owner": "ana", "more": "1"}, user_metadata="T-2")
    approve_commit(approver, waiting.approval_id)
    info = next(iter(iterate_history(table))).commit_info
    assert info is not None and (dict(info.tags or {}), info.user_metadata) == ({"owner": "etl"}, "T-1")


def test_work_without_idempotency_makes_a_request_each_time(lake: Lake, table: Table) -> None:
    found = set()
    for _ in range(2):
        with pytest.raises(ApprovalRequiredError, match="without idempotency makes another request") as caught:
            removal(lake, table, "a.parquet", "b.parquet").commit()
        found.add(caught.value.approval_id)
    assert found == {one.approval_id for one in lake.sql_catalog.approvals.approvals()} and len(found) == 2


def test_maintenance_keeps_the_files_of_a_commit_that_waits(lake: Lake, table: Table) -> None:
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    waiting = parked(lake, table, "a.parquet", "b.parquet", adds="new.parquet")
    lake.put(table, "orphan.parquet")
    lake.clock.pass_days(6)
    lake.append(table, "later.parquet")
    lake.clock.pass_days(0.9)
    vacuum(table, retention_ms=1, retention_check="off")  # type: ignore[arg-type]
    clean_staged_commits(table, safety_age_ms=0)
    assert "new.parquet" in lake.data_files(table) and "orphan.parquet" not in lake.data_files(table)
    assert approve_commit(lake.client, waiting.approval_id).version == 5


def test_files_of_a_commit_that_waited_are_removed_when_it_is_made(lake: Lake, table: Table) -> None:
    """FILE-10: clients that go by the tombstones keep the files of the version before for the whole retention."""
    waiting = parked(lake, table, "a.parquet", "b.parquet")
    lake.clock.pass_days(6.9)
    approve_commit(lake.client, waiting.approval_id)
    assert table.snapshot().tombstones["deletionTimestamp"].to_pylist() == [lake.clock()] * 2


def test_a_commit_whose_files_are_gone_is_not_made(lake: Lake, table: Table) -> None:
    waiting = parked(lake, table, "a.parquet", "b.parquet", adds="new.parquet")
    lake.store.delete(f"{table.location}/new.parquet")
    with pytest.raises(CommitConflictError, match="do not exist any more"):
        approve_commit(lake.client, waiting.approval_id)
    assert lake.sql_catalog.approvals.parked_commit(waiting.approval_id).approval.state is ApprovalState.CONFLICTING
    assert table.snapshot().version == 3


def test_an_approval_does_not_lift_rules_that_refuse(lake: Lake, table: Table) -> None:
    waiting = parked(lake, table, "a.parquet", "b.parquet")
    set_rule(lake, CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.REFUSE)
    with pytest.raises(CommitRefusedError, match="append_only"):
        approve_commit(lake.client, waiting.approval_id)
    assert lake.sql_catalog.approvals.parked_commit(waiting.approval_id).approval.state is ApprovalState.PENDING
    lake.catalog.commit_rules.remove_commit_rule("main.test", "append_only")
    lake.catalog.commit_rules.remove_commit_rule("main.test", "max_removed_rows")
    assert approve_commit(lake.client, waiting.approval_id).version == 4


def test_an_approval_does_not_lift_rules_that_are_set_later(lake: Lake, table: Table) -> None:
    waiting = parked(lake, table, "a.parquet", "b.parquet", adds="new.parquet")
    set_rule(lake, CommitRuleKind.APPEND_ONLY)
    for _ in range(2):
        with pytest.raises(CommitRefusedError, match=r"append_only.*Reject the request and run the write again"):
            approve_commit(lake.client, waiting.approval_id)
    assert lake.sql_catalog.approvals.parked_commit(waiting.approval_id).approval == waiting
    assert table.snapshot().version == 3 and lake.store.read(f"{table.location}/new.parquet") is not None
    lake.catalog.approvals.reject_approval(waiting.approval_id, reason="a new rule")
    again = parked(lake, table, "a.parquet", "b.parquet")
    assert len(again.what) == 2 and approve_commit(lake.client, again.approval_id).version == 4


def test_an_approval_holds_for_its_own_commit_alone(lake: Lake, table: Table) -> None:
    waiting = parked(lake, table, "a.parquet", "b.parquet")
    forged = removal(lake, table, "a.parquet", "b.parquet", "c.parquet")
    forged.txn_id, forged.approval_id = waiting.txn_id, waiting.approval_id
    with pytest.raises(ApprovalClosedError, match="made for another commit"):
        forged.commit()
    assert table.snapshot().version == 3


def test_an_approval_that_fails_at_any_call_is_completed_by_the_next(lake: Lake, table: Table) -> None:
    """The request becomes a version exactly once, wherever the first call stops, before or after the effect of the call."""
    number = 0
    while True:
        waiting = parked(lake, table, "a.parquet", "b.parquet", adds=f"new-{number}.parquet")
        before = table.snapshot().version
        if _interrupted(lake, waiting, number):
            approve_commit(lake.reopened(), waiting.approval_id)
        table = lake.reopened().table(table.identifier)
        assert table.snapshot().version == before + 1
        approval = lake.sql_catalog.approvals.parked_commit(waiting.approval_id).approval
        assert (approval.state, approval.version) == (ApprovalState.COMMITTED, before + 1)
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


def _interrupted(lake: Lake, waiting: Approval, number: int) -> bool:
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
        approve_commit(_stubborn(lake), waiting.approval_id)
    except (CatalogUnavailableError, StorageError, CommitStateUnknownError, CommitConflictError):
        return True
    finally:
        lake.catalog.fails_after = lake.store.fails_after = lambda method, argument: None
    return False


def _stubborn(lake: Lake) -> DeltaClient:
    return lake.reopened()
