"""A hold that is checked: ratified if the check says so about exactly what the tables become, discarded otherwise."""

from collections.abc import Mapping

import pytest

from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.holds import Hold, HoldState
from cm_delta_dagster.client.snapshots.history import iterate_history
from cm_delta_dagster.client.snapshots.table_with_hold import TableWithHold
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    ApprovalRequiredError,
    CommitConflictError,
    CommitRefusedError,
    HoldOutdatedError,
    InvalidArgumentError,
)
from cm_delta_dagster.operations.tables.audit_hold import MAX_AUDITS, Verdict, audit_hold
from cm_delta_dagster.operations.tables.ratify_hold import HOLD_TAG, RatifiedHold, approve_hold, ratify_hold
from tests.support.held_tables import change, filled, held, live
from tests.support.lake import Lake

BEFORE = {"a.parquet", "b.parquet", "c.parquet"}


@pytest.fixture
def table(lake: Lake) -> Table:
    """A table of three files."""
    return filled(lake, "t")


def state_of(lake: Lake) -> tuple[HoldState, str]:
    (hold,) = lake.catalog.holds.holds(with_closed=True)
    return hold.state, hold.reason


@pytest.mark.requirements("WAP-4", "WAP-5", "WAP-8")
def test_the_check_runs_again_on_the_rebased_state_and_its_last_verdict_counts(lake: Lake, table: Table) -> None:
    hold = held(lake, (table, change(lake, table, adds="new.parquet")))
    seen: list[set[str]] = []

    def check(states: Mapping[str, TableWithHold]) -> Verdict:
        seen.append(set(states["main.test.t"].latest.files["path"].to_pylist()))
        if len(seen) == 1:
            lake.append(table, "later.parquet")
        return Verdict(tags={"round": str(len(seen))})

    done = audit_hold(lake.client, hold.hold_id, check=check)
    assert done is not None and done.version == 5
    assert seen == [{*BEFORE, "new.parquet"}, {*BEFORE, "new.parquet", "later.parquet"}]
    assert live(table) == seen[-1]
    info = next(iter(iterate_history(table))).commit_info
    assert info is not None and dict(info.tags or {})["round"] == "2"


@pytest.mark.requirements("WAP-4")
def test_a_verdict_with_a_reason_discards_the_hold(lake: Lake, table: Table) -> None:
    hold = held(lake, (table, change(lake, table, adds="new.parquet")))
    reason = "x" * 5_000
    assert audit_hold(lake.client, hold.hold_id, check=lambda _: Verdict(reason=reason)) is None
    assert state_of(lake) == (HoldState.DISCARDED, reason[:500])
    assert live(table) == BEFORE


def test_a_check_that_raises_discards_the_hold(lake: Lake, table: Table) -> None:
    hold = held(lake, (table, change(lake, table, adds="new.parquet")))

    def check(states: Mapping[str, TableWithHold]) -> Verdict:
        raise ZeroDivisionError("no rows")

    with pytest.raises(ZeroDivisionError):
        audit_hold(lake.client, hold.hold_id, check=check)
    assert state_of(lake) == (HoldState.DISCARDED, "The check failed: ZeroDivisionError: no rows")


@pytest.mark.requirements("WAP-5")
@pytest.mark.parametrize("rechecks", [True, False])
def test_a_hold_that_other_rows_always_overtake_is_discarded_unless_they_do_not_matter(
    lake: Lake, table: Table, rechecks: bool
) -> None:
    hold = held(lake, (table, change(lake, table, adds="new.parquet")))
    calls: list[int] = []

    def check(states: Mapping[str, TableWithHold]) -> Verdict:
        calls.append(lake.append(table, f"later-{len(calls)}.parquet").version)
        return Verdict()

    if rechecks:
        with pytest.raises(HoldOutdatedError, match="checked 3 times"):
            audit_hold(lake.client, hold.hold_id, check=check, rechecks=rechecks)
        assert len(calls) == MAX_AUDITS and state_of(lake)[0] is HoldState.DISCARDED
    else:
        assert audit_hold(lake.client, hold.hold_id, check=check, rechecks=rechecks) is not None
        assert len(calls) == 1 and "new.parquet" in live(table)


@pytest.mark.requirements("WAP-5")
@pytest.mark.parametrize("before_check", [True, False])
def test_a_conflict_closes_the_hold_whenever_it_is_noticed(lake: Lake, table: Table, before_check: bool) -> None:
    hold = held(lake, (table, change(lake, table, "a.parquet")))
    calls: list[int] = []

    def check(states: Mapping[str, TableWithHold]) -> Verdict:
        calls.append(1)
        if not before_check:
            change(lake, table, "a.parquet").commit()
        return Verdict()

    if before_check:
        change(lake, table, "a.parquet").commit()
    with pytest.raises(CommitConflictError):
        audit_hold(lake.client, hold.hold_id, check=check)
    assert len(calls) == (0 if before_check else 1)
    assert state_of(lake)[0] is HoldState.CONFLICTING


@pytest.mark.requirements("WAP-4")
def test_a_hold_that_a_rule_refuses_is_discarded(lake: Lake, table: Table) -> None:
    hold = held(lake, (table, change(lake, table, "a.parquet")))

    def check(states: Mapping[str, TableWithHold]) -> Verdict:
        rule = CommitRule(scope="main.test", name="keep", kind=CommitRuleKind.APPEND_ONLY, contact="ada")
        lake.catalog.commit_rules.set_commit_rule(rule)
        return Verdict()

    with pytest.raises(CommitRefusedError):
        audit_hold(lake.client, hold.hold_id, check=check)
    assert state_of(lake)[0] is HoldState.DISCARDED and live(table) == BEFORE


def must_be_approved(lake: Lake) -> None:
    rule = CommitRule(
        scope="main.test",
        name="keep",
        kind=CommitRuleKind.APPEND_ONLY,
        on_violation=OnViolation.APPROVAL,
        contact="ada",
    )
    lake.catalog.commit_rules.set_commit_rule(rule)


def audited_as(lake: Lake, hold: Hold, tag: str, *, rechecks: bool = True) -> RatifiedHold | None:
    """Audit a hold by a check that passes, and whose verdict has a tag."""
    return audit_hold(
        lake.reopened(), hold.hold_id, check=lambda _: Verdict(tags={"audited_by": tag}), rechecks=rechecks
    )


def last_tags(table: Table) -> dict[str, str]:
    info = next(iter(iterate_history(table))).commit_info
    assert info is not None
    return dict(info.tags or {})


@pytest.mark.requirements("WAP-2", "WAP-5", "WAP-8")
def test_an_approval_publishes_what_the_check_has_read_and_nothing_else(lake: Lake, table: Table) -> None:
    hold = held(lake, (table, change(lake, table, "a.parquet")))
    must_be_approved(lake)
    with pytest.raises(ApprovalRequiredError):
        audited_as(lake, hold, "first")
    later = lake.append(table, "later.parquet").version
    with pytest.raises(HoldOutdatedError, match=f"version {later}"):
        approve_hold(lake.reopened(), hold.hold_id)
    assert state_of(lake)[0] is HoldState.PENDING and table.snapshot().version == later
    with pytest.raises(ApprovalRequiredError):
        audited_as(lake, hold, "second")
    assert table.snapshot().version == later, "the second audit does not commit what waits for an approval"
    done = approve_hold(lake.reopened(), hold.hold_id)
    assert done.version == later + 1 and live(table) == {"b.parquet", "c.parquet", "later.parquet"}
    assert {"audited_by": "second", HOLD_TAG: hold.hold_id}.items() <= last_tags(table).items()


@pytest.mark.requirements("WAP-5")
def test_an_approval_is_not_stopped_by_rows_that_do_not_matter_to_the_check(lake: Lake, table: Table) -> None:
    hold = held(lake, (table, change(lake, table, "a.parquet")))
    must_be_approved(lake)
    for tag in ("first", "second"):
        with pytest.raises(ApprovalRequiredError):
            audited_as(lake, hold, tag, rechecks=tag == "first")
    lake.append(table, "later.parquet")
    assert approve_hold(lake.reopened(), hold.hold_id).version == 5 and last_tags(table)["audited_by"] == "second"


@pytest.mark.requirements("WAP-4")
def test_nothing_but_its_audit_publishes_a_hold_that_needs_one(lake: Lake, table: Table) -> None:
    hold = held(lake, (table, change(lake, table, "a.parquet")), needs_audit=True)
    for decide in (ratify_hold, approve_hold):
        with pytest.raises(HoldOutdatedError, match="waits for the checks of an audit"):
            decide(lake.reopened(), hold.hold_id)
    with pytest.raises(HoldOutdatedError, match="waits for the checks of an audit"):
        ratify_hold(lake.client, hold.hold_id, audited={table.table_id: 4})
    assert state_of(lake)[0] is HoldState.PENDING and live(table) == BEFORE
    must_be_approved(lake)
    with pytest.raises(ApprovalRequiredError):
        audited_as(lake, hold, "ana")
    with pytest.raises(InvalidArgumentError, match="tags sets"):
        ratify_hold(lake.client, hold.hold_id, audited={}, tags={HOLD_TAG: "hold-2"})
    assert approve_hold(lake.reopened(), hold.hold_id).version == 4 and last_tags(table)["audited_by"] == "ana"
