"""Held commits: no reader sees them, reading one gives what its ratification gives, and they become versions once or never."""

from collections.abc import Callable
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.holds import Hold, HoldState, WaitsFor
from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.client.snapshots.history import iterate_history
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    ApprovalRequiredError,
    CatalogUnavailableError,
    CommitConflictError,
    CommitRejectedError,
    CommitStateUnknownError,
    HoldClosedError,
    HoldOutdatedError,
    InvalidArgumentError,
    StorageError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.maintenance.vacuum import plan_vacuum, vacuum
from cm_delta_dagster.operations.tables.clone import CloneRequest, clone
from cm_delta_dagster.operations.tables.ratify_hold import HOLD_TAG, approve_hold, held_tables, ratify_hold
from cm_delta_dagster.protocol.actions.actions import SetTransaction
from tests.support.held_tables import change, filled, held, live, previewed
from tests.support.lake import Lake

INLINE = CommitPolicy(kind=CommitPolicyKind.INLINE)


@pytest.fixture
def table(lake: Lake) -> Table:
    """A table of three files."""
    return filled(lake, "t")


@pytest.mark.requirements("WAP-1")
@pytest.mark.parametrize("mode", [None, INLINE])
def test_a_held_commit_is_invisible_and_reads_as_its_ratification_gives(
    lake: Lake, table: Table, mode: CommitPolicy | None
) -> None:
    lake.catalog.commit_policies.change_commit_policy(table.table_id, mode)
    hold = held(lake, (table, change(lake, table, "a.parquet", adds="new.parquet")))
    assert table.snapshot().version == 3 and live(table) == {"a.parquet", "b.parquet", "c.parquet"}
    assert previewed(lake, hold) == {"main.test.t": {"b.parquet", "c.parquet", "new.parquet"}}
    lake.append(table, "later.parquet")
    written = lake.data_files(table), lake.files(table, "_delta_log/_staged_commits")
    expected = previewed(lake, hold)["main.test.t"]
    assert expected == {"b.parquet", "c.parquet", "later.parquet", "new.parquet"}
    assert (lake.data_files(table), lake.files(table, "_delta_log/_staged_commits")) == written
    for tags in ({HOLD_TAG: "hold-2"}, {"audited_by": 1}, "audited"):
        with pytest.raises(InvalidArgumentError, match="tags"):
            ratify_hold(lake.client, hold.hold_id, tags=tags)  # type: ignore[arg-type]
    done = ratify_hold(lake.reopened(), hold.hold_id, tags={"audited_by": "ana"})
    assert (done.version, done.repeated) == (5, False) and live(table) == expected
    again = ratify_hold(lake.client, hold.hold_id)
    assert (again.version, again.repeated) == (5, True) and table.snapshot().version == 5
    info = next(iter(iterate_history(table))).commit_info
    assert info is not None and {HOLD_TAG: hold.hold_id, "audited_by": "ana"}.items() <= dict(info.tags or {}).items()
    with pytest.raises(HoldClosedError, match="was ratified"):
        held_tables(lake.client, hold.hold_id)


@pytest.mark.requirements("WAP-2")
def test_holds_of_several_tables_are_ratified_or_discarded_as_one(lake: Lake, table: Table) -> None:
    other = filled(lake, "other")

    def hold_both(name: str) -> Hold:
        return held(lake, (table, change(lake, table, adds=name)), (other, change(lake, other, "a.parquet", adds=name)))

    hold = hold_both("new.parquet")
    lake.append(table, "later.parquet")
    expected = previewed(lake, hold)
    done = ratify_hold(lake.reopened(), hold.hold_id)
    assert dict(done.hold.versions) == {table.table_id: 5, other.table_id: 4}
    assert {"main.test.t": live(table), "main.test.other": live(other)} == expected
    groups = {
        (commit.commit_info.tags or {})["delta.multiTableTransaction.transactionId"]
        for commit in (next(iter(iterate_history(table))), next(iter(iterate_history(other))))
        if commit.commit_info is not None
    }
    assert len(groups) == 1
    unwanted = [(target, change(lake, target, adds="unwanted.parquet")) for target in (table, other)]
    discarded = held(lake, *unwanted)
    lake.catalog.holds.discard_hold(discarded.hold_id, reason="bad month")
    with pytest.raises(HoldClosedError, match=r"was discarded.*bad month"):
        ratify_hold(lake.client, discarded.hold_id)
    assert (table.snapshot().version, other.snapshot().version) == (5, 4)


@pytest.mark.requirements("WAP-1")
@pytest.mark.parametrize("removed", [(), ("a.parquet",)])
def test_a_hold_that_is_ratified_while_it_is_opened_is_not_read_on_top_of_itself(
    lake: Lake, table: Table, removed: tuple[str, ...]
) -> None:
    hold = held(lake, (table, change(lake, table, *removed, adds="new.parquet")))
    other = lake.reopened()
    ratified: list[int] = []

    def ratify_meanwhile(method: str, answer: Any) -> Any:
        if method == "held_proposals" and not ratified:
            ratified.append(0)
            ratified[0] = ratify_hold(other, hold.hold_id).version
        return answer

    lake.catalog.changes = ratify_meanwhile
    with pytest.raises(HoldClosedError, match="was ratified"):
        held_tables(lake.client, hold.hold_id)
    assert ratified == [4] and table.snapshot().version == 4


@pytest.mark.requirements("WAP-2")
def test_a_conflict_in_one_table_commits_nothing_and_closes_the_hold(lake: Lake, table: Table) -> None:
    other = filled(lake, "other")
    hold = held(lake, (table, change(lake, table, adds="new.parquet")), (other, change(lake, other, "a.parquet")))
    change(lake, other, "a.parquet").commit()
    with pytest.raises(CommitConflictError, match="conflicts with version 4"):
        held_tables(lake.client, hold.hold_id)
    assert lake.catalog.holds.holds() == (hold,)
    with pytest.raises(CommitConflictError, match="conflicts with version 4"):
        ratify_hold(lake.client, hold.hold_id)
    (closed,) = lake.catalog.holds.holds(with_closed=True)
    assert closed.state is HoldState.CONFLICTING and (table.snapshot().version, other.snapshot().version) == (3, 4)


@pytest.mark.requirements("WAP-2")
def test_a_rule_turns_a_hold_into_a_request_that_its_writer_cannot_ratify(lake: Lake, table: Table) -> None:
    hold = held(lake, (table, change(lake, table, "a.parquet")))
    rule = CommitRule(
        scope="main.test",
        name="keep",
        kind=CommitRuleKind.APPEND_ONLY,
        on_violation=OnViolation.APPROVAL,
        contact="data-team",
    )
    lake.catalog.commit_rules.set_commit_rule(rule)
    for _ in range(2):
        with pytest.raises(ApprovalRequiredError, match="data-team") as caught:
            ratify_hold(lake.client, hold.hold_id)
        assert caught.value.approval_id == hold.hold_id
    (waiting,) = lake.catalog.holds.holds()
    assert (waiting.hold_id, waiting.waits_for) == (hold.hold_id, WaitsFor.APPROVAL) and len(waiting.what) == 1
    assert previewed(lake, waiting) == {"main.test.t": {"b.parquet", "c.parquet"}} and table.snapshot().version == 3
    assert approve_hold(lake.reopened(), hold.hold_id).version == 4


@pytest.mark.requirements("WAP-1")
def test_a_hold_that_was_checked_before_other_rows_came_is_checked_again(lake: Lake, table: Table) -> None:
    hold = held(lake, (table, change(lake, table, adds="new.parquet")))

    def checked() -> dict[str, int]:
        return {opened.table_id: opened.latest.version for opened in held_tables(lake.client, hold.hold_id).values()}

    audited = checked()
    maintenance = table.start_transaction(table.snapshot(), operation="SET TBLPROPERTIES")
    maintenance.note_transaction(SetTransaction(app_id="position", version=1))
    maintenance.commit()
    lake.append(table, "later.parquet")
    with pytest.raises(HoldOutdatedError, match="checked as version 4, and version 5"):
        ratify_hold(lake.client, hold.hold_id, audited=audited)
    assert lake.catalog.holds.holds() == (hold,) and table.snapshot().version == 5
    audited = checked()
    maintenance = table.start_transaction(table.snapshot(), operation="SET TBLPROPERTIES")
    maintenance.note_transaction(SetTransaction(app_id="position", version=2))
    maintenance.commit()
    assert ratify_hold(lake.client, hold.hold_id, audited=audited).version == 7


@pytest.mark.requirements("WAP-1")
def test_a_ratification_without_winners_asks_the_catalog_once_for_each_of_its_parts(lake: Lake, table: Table) -> None:
    hold = held(lake, (table, change(lake, table, adds="new.parquet")))
    calls: list[str] = []
    lake.catalog.fails = lambda method, argument: calls.append(method)
    assert ratify_hold(lake.client, hold.hold_id).version == 4
    lake.catalog.fails = lambda method, argument: None
    of_commit = ["held_proposals", "load_table_by_id", "commit", "held_proposals"]
    assert [call for call in calls if call in (*of_commit, "get_ratified_commits")] == of_commit


@pytest.mark.requirements("WAP-2")
def test_a_put_if_absent_table_holds_nothing(lake: Lake, table: Table) -> None:
    lake.catalog.commit_policies.change_commit_policy(table.table_id, CommitPolicy(kind=CommitPolicyKind.PUT_IF_ABSENT))
    with pytest.raises(CommitRejectedError, match="put-if-absent"):
        held(lake, (table, change(lake, table, adds="new.parquet")))
    assert lake.catalog.holds.holds() == ()


@pytest.mark.requirements("WAP-1")
def test_maintenance_keeps_what_a_hold_needs_until_it_is_discarded(lake: Lake, table: Table) -> None:
    """Forced vacuum and log clean-up keep the files and the log of the version that it was made on."""
    for kind in (MaintenanceKind.DATA_CLEANUP, MaintenanceKind.METADATA_CLEANUP):
        lake.allow(kind)
    hold = held(lake, (table, change(lake, table, adds="new.parquet")), duration_ms=100 * 86_400_000)
    change(lake, table, "a.parquet", "b.parquet", "c.parquet", adds="d.parquet").commit()
    publish(table)
    checkpoint(table)
    lake.clock.pass_days(60)
    lake.append(table, "e.parquet")
    publish(table)
    vacuum(table, retention_ms=0, force=True)
    clean_log(table)
    clean_staged_commits(table, safety_age_ms=0)
    assert {"a.parquet", "b.parquet", "c.parquet", "new.parquet"} <= lake.data_files(table)
    assert table.snapshot(version=3).version == 3
    assert previewed(lake, hold) == {"main.test.t": {"d.parquet", "e.parquet", "new.parquet"}}
    lake.catalog.holds.discard_hold(hold.hold_id, reason="bad month")
    vacuum(table, retention_ms=0, force=True)
    assert lake.data_files(table) == {"d.parquet", "e.parquet"}
    assert clean_log(table).oldest_version == 4


@pytest.mark.requirements("WAP-1")
def test_vacuum_keeps_the_files_of_a_hold_that_is_ratified_while_it_looks_for_holds(lake: Lake, table: Table) -> None:
    """Its staged file is gone, too, so that only the new version of the table names them."""
    lake.allow(MaintenanceKind.METADATA_CLEANUP)
    lake.put(table, "unneeded.parquet")
    hold = held(lake, (table, change(lake, table, adds="new.parquet")), duration_ms=100 * 86_400_000)
    staged = lake.catalog.holds.held_proposals(hold.hold_id)[0].file_name
    lake.clock.pass_days(60)
    other, asked = lake.reopened(), list[str]()

    def ratify_before(method: str, argument: Any) -> None:
        if method == "protected_commits":
            asked.append(method)
            if len(asked) == 1:
                ratify_hold(other, hold.hold_id)
                publish(other.table(table.identifier))
                clean_staged_commits(other.table(table.identifier), safety_age_ms=0)

    lake.catalog.fails = ratify_before
    assert plan_vacuum(table, retention_ms=0, force=True).paths == ("unneeded.parquet",)
    assert staged not in lake.files(table, "_delta_log/_staged_commits") and "new.parquet" in live(table)


@pytest.mark.requirements("WAP-1")
def test_a_vacuum_without_anything_to_delete_reads_no_held_commit(lake: Lake, table: Table) -> None:
    for number in range(3):
        held(lake, (table, change(lake, table, adds=f"new-{number}.parquet")))

    lake.clock.pass_days(3)
    lake.store.calls.clear()
    assert plan_vacuum(table).paths == ()
    assert [at for method, at in lake.store.calls if method == "read" and "_staged_commits" in str(at)] == []


@pytest.mark.requirements("WAP-1")
def test_vacuum_of_a_source_keeps_what_the_hold_of_a_clone_was_made_on(lake: Lake, table: Table) -> None:
    lake.allow(MaintenanceKind.DATA_CLEANUP)
    clone(lake.client, table, identifier="main.test.c", request=CloneRequest())
    copy = lake.client.table("main.test.c")
    hold = held(lake, (copy, change(lake, copy, adds="new.parquet")), duration_ms=100 * 86_400_000)
    for target in (copy, table):
        change(lake, target, *live(target)).commit()
    lake.clock.pass_days(60)
    files = {"a.parquet", "b.parquet", "c.parquet"}
    assert vacuum(table).num_files == 0 and lake.data_files(table) == files
    assert ratify_hold(lake.client, hold.hold_id).repeated is False
    vacuum(table)
    assert lake.data_files(table) == set()


@pytest.mark.parametrize("ends", ["drop", "expiry"])
def test_a_hold_that_cannot_be_ratified_any_more_changes_nothing(lake: Lake, table: Table, ends: str) -> None:
    hold = held(lake, (table, change(lake, table, adds="new.parquet")), duration_ms=86_400_000)
    if ends == "drop":
        lake.catalog.registry.drop_table(table.identifier)
        with pytest.raises(TableNotFoundError):
            ratify_hold(lake.client, hold.hold_id)
        lake.catalog.registry.undrop_table(table.table_id)
        assert ratify_hold(lake.client, hold.hold_id).version == 4
        return
    lake.clock.pass_days(1)
    with pytest.raises(HoldClosedError, match="expired"):
        ratify_hold(lake.client, hold.hold_id)
    assert table.snapshot().version == 3


def test_an_unanswered_request_to_hold_is_repeated_and_finds_its_hold(lake: Lake, table: Table) -> None:
    lost: list[str] = []

    def lose_first(method: str, argument: Any) -> Exception | None:
        if method == "hold" and not lost:
            lost.append(method)
            return CatalogUnavailableError("lost by the test")
        return None

    lake.catalog.fails_after = lose_first
    hold = held(lake, (table, change(lake, table, adds="new.parquet")))
    assert lost and lake.catalog.holds.holds(with_closed=True) == (hold,)


def test_a_ratification_that_fails_at_any_call_is_completed_by_the_next(lake: Lake) -> None:
    """The commits of both tables become versions exactly once, wherever the first call stops."""
    first, second = lake.new_table("one"), lake.new_table("two")
    for number in range(_CALLS + 1):
        name = f"new-{number}.parquet"
        hold = held(lake, (first, change(lake, first, adds=name)), (second, change(lake, second, adds=name)))
        if _interrupted(lake, hold, number):
            versions = {table.snapshot().version for table in (first, second)}
            assert len(versions) == 1, "all of the group or none of it"
            ratify_hold(lake.reopened(), hold.hold_id)
        closed = lake.sql_catalog.holds.held_proposals(hold.hold_id)[0].hold
        assert dict(closed.versions) == {first.table_id: number + 1, second.table_id: number + 1}
        first, second = (lake.reopened().table(table.identifier) for table in (first, second))
        assert first.snapshot().version == second.snapshot().version == number + 1


_CALLS = 20
"""More calls than a ratification makes of catalog and storage until its commits are ratified."""


def _interrupted(lake: Lake, hold: Hold, number: int) -> bool:
    """Ratify, and stop after call ``number``, whose answer is lost. Returns whether the ratification failed."""
    calls = 0

    def fails(error: type[Exception]) -> Callable[[str, Any], Exception | None]:
        def fail(method: str, argument: Any) -> Exception | None:
            nonlocal calls
            calls += 1
            return error("stopped by the test") if calls > number else None

        return fail

    lake.catalog.fails_after, lake.store.fails_after = fails(CatalogUnavailableError), fails(StorageError)
    try:
        ratify_hold(lake.reopened(), hold.hold_id)
    except (CatalogUnavailableError, StorageError, CommitStateUnknownError, CommitConflictError):
        return True
    finally:
        lake.catalog.fails_after = lake.store.fails_after = lambda method, argument: None
    return False
