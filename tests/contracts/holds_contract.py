"""Contract of ``CommitCoordinator.hold`` and ``HeldCommits`` for holds of one table and of several.

Run for each database by ``tests/catalog/test_catalog_contract.py``; that of approvals is in ``commit_rules_contract``.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.commit_rules import OnViolation
from cm_delta_dagster.catalog.holds import HeldWrite, Hold, HoldRequest, HoldState, WaitsFor
from cm_delta_dagster.catalog.ratification import (
    CommitProposal,
    Ratified,
    RatifiedTogether,
    RefusedTogether,
    VersionTaken,
)
from cm_delta_dagster.errors import (
    ApprovalRequiredError,
    CommitRefusedError,
    CommitRejectedError,
    HoldClosedError,
    InvalidArgumentError,
    OperationRefusedError,
    TableNotFoundError,
)
from tests.contracts.access_control_contract import principal_of
from tests.contracts.catalog_bench import NAME, OTHER, Bench, Rule, create
from tests.contracts.commit_rules_contract import rebased_on, rule, with_actions
from tests.support.holds import hold_one, request_of

_RATIFICATION = WaitsFor.RATIFICATION


def _held(catalog: Catalog, proposals: Mapping[str, CommitProposal]) -> Hold:
    hold = catalog.coordinator.hold(proposals, request_of(*proposals, waits_for=_RATIFICATION))
    assert hold is not None
    return hold


def _named(proposals: Mapping[str, CommitProposal], hold: Hold) -> dict[str, CommitProposal]:
    return {table_id: replace(proposal, hold_id=hold.hold_id) for table_id, proposal in proposals.items()}


def a_held_commit_is_no_version_until_it_is_ratified_once(bench: Bench) -> None:
    for mode in (CommitMode.INLINE, CommitMode.STAGED):
        name = replace(NAME, table=mode.value)
        with bench.client() as catalog, bench.client() as other:
            table_id = create(catalog, name).table_id
            proposal = with_actions(1, mode=mode)
            hold = _held(catalog, {table_id: proposal})
            assert hold.hold_id.startswith("hold-") and hold.waits_for is _RATIFICATION
            assert hold.expires_ms == bench.clock.now + 7 * 86_400_000
            assert catalog.coordinator.get_ratified_commits(table_id).latest_version == 0
            assert other.holds.holds(str(name)) == (hold,) == other.holds.holds(table_id=table_id)
            (held,) = other.holds.held_proposals(hold.hold_id)
            assert (held.table_id, held.file_name, held.content) == (table_id, proposal.file_name, proposal.content)
            assert hold.tables[0].read_version == 0 and hold.what == hold.contacts == ()
            ratifying = replace(proposal, hold_id=hold.hold_id)
            assert isinstance(other.coordinator.commit(table_id, ratifying), Ratified)
            assert other.coordinator.commit(table_id, ratifying) == Ratified(
                version=1, latest_version=1, published_version=0, repeated=True
            )
            (closed,) = catalog.holds.holds(str(name), with_closed=True)
            assert (closed.state, dict(closed.versions)) == (HoldState.COMMITTED, {table_id: 1})
            with pytest.raises(HoldClosedError, match=r"was ratified.*version 1 of"):
                other.coordinator.commit(table_id, replace(with_actions(2), hold_id=hold.hold_id))
            with pytest.raises(HoldClosedError, match="Do not run the write again"):
                catalog.holds.discard_hold(hold.hold_id, reason="no")
            actions = [entry.action for entry in catalog.audit_log.audit(scope=str(name))]
            assert actions == ["hold", "ratify hold"]


def holds_of_several_tables_are_one_group(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        first, second = create(catalog).table_id, create(catalog, OTHER).table_id
        proposals = {first: with_actions(1), second: with_actions(1)}
        hold = _held(catalog, proposals)
        assert [table.table_id for table in hold.tables] == sorted(proposals)
        assert other.holds.holds(str(OTHER)) == (hold,) == other.holds.holds(table_id=first)
        assert [held.table_id for held in other.holds.held_proposals(hold.hold_id)] == sorted(proposals)
        for table_id in proposals:
            assert [held.file_name for held in other.holds.protected_commits(table_id)] == [
                proposals[table_id].file_name
            ]
        named = _named(proposals, hold)
        with pytest.raises(HoldClosedError, match="Ratify the hold as a whole"):
            other.coordinator.commit(first, named[first])
        with pytest.raises(HoldClosedError, match="Ratify the hold as a whole"):
            other.coordinator.commit_together({first: named[first], second: proposals[second]})
        with pytest.raises(HoldClosedError, match="made for another commit"):
            other.coordinator.commit_together(
                {first: named[first], second: replace(with_actions(1, removes=1), hold_id=hold.hold_id)}
            )
        for table_id in proposals:
            assert other.coordinator.get_ratified_commits(table_id).latest_version == 0
        assert other.holds.held_proposals(hold.hold_id)[0].hold == hold
        assert isinstance(other.coordinator.commit(first, with_actions(1)), Ratified)
        refused = other.coordinator.commit_together(named)
        assert isinstance(refused, RefusedTogether) and isinstance(refused.refusals[first], VersionTaken)
        rebased = {first: replace(rebased_on(proposals[first], 1), hold_id=hold.hold_id), second: named[second]}
        assert isinstance(other.coordinator.commit_together(rebased), RatifiedTogether)
        repeated = other.coordinator.commit_together(rebased)
        assert isinstance(repeated, RatifiedTogether) and all(part.repeated for part in repeated.commits.values())
        (closed,) = catalog.holds.holds(with_closed=True)
        assert (closed.state, dict(closed.versions)) == (HoldState.COMMITTED, {first: 2, second: 1})


def a_discarded_hold_ends_for_all_of_its_tables(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        first, second = create(catalog).table_id, create(catalog, OTHER).table_id
        proposals = {first: with_actions(1), second: with_actions(1)}
        hold = _held(catalog, proposals)
        with pytest.raises(InvalidArgumentError, match="give a reason"):
            other.holds.discard_hold(hold.hold_id, reason=" ")
        discarded = other.holds.discard_hold(hold.hold_id, reason="bad month")
        assert (discarded.state, discarded.reason) == (HoldState.DISCARDED, "bad month")
        assert other.holds.discard_hold(hold.hold_id, reason="bad month") == discarded
        assert catalog.holds.holds() == () == catalog.holds.protected_commits(second)
        with pytest.raises(HoldClosedError, match=r"was discarded.*bad month.*Nothing was changed"):
            catalog.coordinator.commit_together(_named(proposals, hold))
        with pytest.raises(HoldClosedError, match="was discarded"):
            catalog.holds.reject_hold(hold.hold_id, reason="no")
        with pytest.raises(InvalidArgumentError, match="no hold 'hold-none'"):
            catalog.holds.discard_hold("hold-none", reason="no")


def a_hold_expires_and_protects_its_files_an_hour_longer(bench: Bench) -> None:
    with bench.client() as catalog:
        first, second = create(catalog).table_id, create(catalog, OTHER).table_id
        proposals = {first: with_actions(1), second: with_actions(1)}
        request = request_of(first, second, waits_for=_RATIFICATION, duration_ms=1000)
        hold = catalog.coordinator.hold(proposals, request)
        assert hold is not None
        bench.clock.now += 1000
        assert catalog.holds.holds() == ()
        assert [one.state for one in catalog.holds.holds(with_closed=True)] == [HoldState.EXPIRED]
        assert len(catalog.holds.protected_commits(first)) == 1
        with pytest.raises(HoldClosedError, match="expired"):
            catalog.coordinator.commit_together(_named(proposals, hold))
        bench.clock.now += 3_600_000
        assert catalog.holds.protected_commits(first) == ()


def the_same_work_finds_its_hold(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        first, second = create(catalog).table_id, create(catalog, OTHER).table_id

        def held(**proposals: CommitProposal) -> Hold | None:
            by_id = {{"first": first, "second": second}[name]: entry for name, entry in proposals.items()}
            request = request_of(*by_id, waits_for=_RATIFICATION, app_id="job", app_version=3)
            return other.coordinator.hold(by_id, request)

        hold = held(first=with_actions(1), second=with_actions(1))
        assert hold is not None and held(first=with_actions(1), second=with_actions(1)) == hold
        assert catalog.holds.find_hold(second, app_id="job", app_version=3) == hold
        with pytest.raises(InvalidArgumentError, match="together with other tables"):
            held(first=with_actions(1))
        catalog.holds.discard_hold(hold.hold_id, reason="again")
        again = held(first=with_actions(1))
        assert again is not None and again.hold_id != hold.hold_id
        # Without an id a repeated request has the same names of files.
        proposal = with_actions(1)
        one = hold_one(catalog, second, proposal, waits_for=_RATIFICATION)
        assert one is not None and one == hold_one(other, second, proposal, waits_for=_RATIFICATION)


def holds_of_one_application_are_ratified_in_its_order(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        first, second = create(catalog).table_id, create(catalog, OTHER).table_id
        proposals: dict[str, CommitProposal] = {}

        def held(table_id: str, app_version: int, intent: str = "{}") -> str:
            proposal = with_actions(1)
            write = HeldWrite(intent=intent, app_id="job", app_version=app_version)
            request = HoldRequest(writes={table_id: write}, waits_for=_RATIFICATION)
            hold = catalog.coordinator.hold({table_id: proposal}, request)
            assert hold is not None
            proposals[hold.hold_id] = replace(proposal, hold_id=hold.hold_id)
            return hold.hold_id

        later, earlier = held(first, 2), held(first, 1)
        with pytest.raises(CommitRejectedError, match=f"Ratify or discard {earlier} first"):
            other.coordinator.commit(first, proposals[later])
        assert [hold.state for hold in catalog.holds.holds()] == [HoldState.PENDING] * 2
        catalog.holds.discard_hold(earlier, reason="bad month")
        assert isinstance(other.coordinator.commit(first, proposals[later]), Ratified)
        noted = '{"noted": ["job"]}'  # A version that is a hash has no order.
        later, _ = held(second, 2, noted), held(second, 1, noted)
        assert isinstance(other.coordinator.commit(second, proposals[later]), Ratified)


def what_a_commit_may_not_do_is_not_held(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id, other_id = create(catalog).table_id, create(catalog, OTHER).table_id
        catalog.commit_rules.set_commit_rule(rule(scope=str(OTHER)))
        with pytest.raises(CommitRefusedError, match="append_only"):
            _held(catalog, {table_id: with_actions(1), other_id: with_actions(1, removes=1)})
        with pytest.raises(CommitRejectedError, match="Propose 1 against"):
            _held(catalog, {table_id: with_actions(2)})
        with pytest.raises(CommitRejectedError, match="cannot read its content"):
            _held(catalog, {table_id: replace(with_actions(1, mode=CommitMode.STAGED), content_to_check=None)})
        with pytest.raises(InvalidArgumentError, match="at least one proposal"):
            _held(catalog, {})
        with pytest.raises(InvalidArgumentError, match="for each table what"):
            catalog.coordinator.hold({table_id: with_actions(1)}, request_of(other_id, waits_for=_RATIFICATION))
        with pytest.raises(TableNotFoundError):
            _held(catalog, {"unknown": with_actions(1)})
        assert catalog.holds.holds(with_closed=True) == ()


def a_table_that_is_committed_put_if_absent_holds_nothing(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        put_if_absent = CommitPolicy(kind=CommitPolicyKind.PUT_IF_ABSENT)
        hold = _held(catalog, {table_id: with_actions(1)})
        with pytest.raises(InvalidArgumentError, match=hold.hold_id):
            catalog.commit_policies.change_commit_policy(table_id, put_if_absent)
        catalog.holds.discard_hold(hold.hold_id, reason="switch")
        catalog.commit_policies.change_commit_policy(table_id, put_if_absent)
        with pytest.raises(CommitRejectedError, match="put-if-absent"):
            _held(catalog, {table_id: with_actions(1)})


def a_rule_turns_a_hold_of_several_tables_into_a_request(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        first, second = create(catalog).table_id, create(catalog, OTHER).table_id
        proposals = {first: with_actions(1), second: with_actions(1, removes=1)}
        hold = _held(catalog, proposals)
        catalog.commit_rules.set_commit_rule(rule(scope=str(OTHER), on_violation=OnViolation.APPROVAL))
        named = _named(proposals, hold)
        with pytest.raises(ApprovalRequiredError):
            catalog.coordinator.commit_together(named)
        assert catalog.holds.holds() == (hold,)
        request = request_of(first, second, waits_for=WaitsFor.APPROVAL)
        turned = catalog.coordinator.hold(named, request)
        assert turned is not None and turned == catalog.coordinator.hold(named, request)
        assert (turned.hold_id, turned.waits_for, turned.state) == (hold.hold_id, WaitsFor.APPROVAL, HoldState.PENDING)
        assert len(turned.what) == 1 and turned.contacts == ("the data team",)
        assert isinstance(other.coordinator.commit_together(named), RatifiedTogether)
        (closed,) = catalog.holds.holds(with_closed=True)
        assert (closed.state, len(closed.versions)) == (HoldState.COMMITTED, 2)


def commits_of_several_tables_wait_for_an_approval(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        first, second = create(catalog).table_id, create(catalog, OTHER).table_id
        proposals = {first: with_actions(1), second: with_actions(1, removes=1)}
        request = request_of(first, second)
        assert catalog.coordinator.hold(proposals, request) is None
        catalog.commit_rules.set_commit_rule(rule(scope=str(OTHER), on_violation=OnViolation.APPROVAL))
        with pytest.raises(ApprovalRequiredError):
            catalog.coordinator.commit_together(proposals)
        hold = catalog.coordinator.hold(proposals, request)
        assert hold is not None and hold.waits_for is WaitsFor.APPROVAL
        assert isinstance(other.coordinator.commit_together(_named(proposals, hold)), RatifiedTogether)
        assert catalog.coordinator.get_ratified_commits(first).latest_version == 1


def who_staged_ratifies_and_discards_and_no_other_but_owners(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id = create(owner).table_id
        owner.access.enable_grants()
        for writer in (ana, bob):
            owner.access.grant(
                [Privilege.READ, Privilege.APPEND, Privilege.MODIFY, Privilege.MAINTAIN],
                str(NAME),
                principal_of(writer),
            )
        proposal = with_actions(1)
        hold = _held(ana, {table_id: proposal})
        assert hold.requested_by == ana.access.whoami().principal
        ratifying = replace(proposal, hold_id=hold.hold_id)
        for refused in (
            lambda: bob.coordinator.commit(table_id, ratifying),
            lambda: bob.holds.discard_hold(hold.hold_id, reason="mine"),
            lambda: bob.holds.close_hold(hold.hold_id, reason="mine"),
            lambda: ana.holds.reject_hold(hold.hold_id, reason="mine"),
        ):
            with pytest.raises(OperationRefusedError, match="privilege own"):
                refused()
        assert owner.holds.holds() == (hold,) and owner.coordinator.get_ratified_commits(table_id).latest_version == 0
        assert isinstance(ana.coordinator.commit(table_id, ratifying), Ratified)
        second = _held(ana, {table_id: with_actions(2)})
        assert ana.holds.discard_hold(second.hold_id, reason="wrong").state is HoldState.DISCARDED
        proposal = with_actions(2)
        third = _held(ana, {table_id: proposal})
        assert isinstance(owner.coordinator.commit(table_id, replace(proposal, hold_id=third.hold_id)), Ratified)


def who_staged_does_not_approve_its_own_hold(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana:
        table_id = create(owner).table_id
        owner.access.enable_grants()
        owner.access.grant([Privilege.READ, Privilege.APPEND, Privilege.MODIFY], str(NAME), principal_of(ana))
        proposal = with_actions(1, removes=1)
        hold = _held(ana, {table_id: proposal})
        owner.commit_rules.set_commit_rule(rule(on_violation=OnViolation.APPROVAL))
        ratifying = replace(proposal, hold_id=hold.hold_id)
        with pytest.raises(ApprovalRequiredError):
            ana.coordinator.commit(table_id, ratifying)
        turned = ana.coordinator.hold({table_id: ratifying}, request_of(table_id))
        assert turned is not None and turned.waits_for is WaitsFor.APPROVAL
        with pytest.raises(OperationRefusedError, match="privilege own"):
            ana.coordinator.commit(table_id, ratifying)
        assert isinstance(owner.coordinator.commit(table_id, ratifying), Ratified)


def who_staged_says_what_the_checks_of_its_request_have_read(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id = create(owner).table_id
        owner.access.enable_grants()
        for writer in (ana, bob):
            privileges = [Privilege.READ, Privilege.APPEND, Privilege.MODIFY, Privilege.MAINTAIN]
            owner.access.grant(privileges, str(NAME), principal_of(writer))
        proposal = with_actions(1, removes=1)
        hold = _held(ana, {table_id: proposal})
        owner.commit_rules.set_commit_rule(rule(on_violation=OnViolation.APPROVAL))
        ratifying = {table_id: replace(proposal, hold_id=hold.hold_id)}

        def intend(catalog: Catalog, intent: str) -> Hold | None:
            return catalog.coordinator.hold(ratifying, HoldRequest(writes={table_id: HeldWrite(intent=intent)}))

        for intent in ('{"round": 1}', '{"round": 2}'):
            turned = intend(ana, intent)
            assert turned is not None and (turned.hold_id, turned.waits_for) == (hold.hold_id, WaitsFor.APPROVAL)
            assert owner.holds.held_proposals(hold.hold_id)[0].intent == intent
        with pytest.raises(OperationRefusedError, match="privilege own"):
            intend(bob, '{"round": 3}')
        assert owner.holds.held_proposals(hold.hold_id)[0].intent == '{"round": 2}'
        assert isinstance(owner.coordinator.commit_together(ratifying), RatifiedTogether)


def a_hold_follows_its_table_until_that_is_dropped(bench: Bench) -> None:
    elsewhere = replace(NAME, table="elsewhere")
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        proposal = with_actions(1)
        hold = _held(catalog, {table_id: proposal})
        catalog.registry.rename_table(table_id, elsewhere)
        assert [table.identifier for table in catalog.holds.holds()[0].tables] == [elsewhere]
        catalog.registry.drop_table(elsewhere)
        ratifying = replace(proposal, hold_id=hold.hold_id)
        with pytest.raises(TableNotFoundError):
            catalog.coordinator.commit(table_id, ratifying)
        catalog.registry.undrop_table(table_id)
        assert isinstance(catalog.coordinator.commit(table_id, ratifying), Ratified)


HOLDS_CONTRACT: tuple[Rule, ...] = (
    a_held_commit_is_no_version_until_it_is_ratified_once,
    holds_of_several_tables_are_one_group,
    a_discarded_hold_ends_for_all_of_its_tables,
    a_hold_expires_and_protects_its_files_an_hour_longer,
    the_same_work_finds_its_hold,
    holds_of_one_application_are_ratified_in_its_order,
    what_a_commit_may_not_do_is_not_held,
    a_table_that_is_committed_put_if_absent_holds_nothing,
    a_rule_turns_a_hold_of_several_tables_into_a_request,
    commits_of_several_tables_wait_for_an_approval,
    who_staged_ratifies_and_discards_and_no_other_but_owners,
    who_staged_does_not_approve_its_own_hold,
    who_staged_says_what_the_checks_of_its_request_have_read,
    a_hold_follows_its_table_until_that_is_dropped,
)
