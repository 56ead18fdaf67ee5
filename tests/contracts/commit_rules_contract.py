"""Contract of ``CommitRuleRegistry`` and ``HeldCommits`` for approvals.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy, CommitPolicyKind, CommitPolicyRule
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.holds import MAX_HOLD_DURATION_MS, HoldState
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.ratification import CommitProposal, Ratified, TableCounts, VersionTaken
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    ApprovalRequiredError,
    CommitRefusedError,
    HoldClosedError,
    InvalidArgumentError,
    OperationRefusedError,
)
from tests.contracts.access_control_contract import principal_of
from tests.contracts.catalog_bench import NAME, OTHER, Bench, Rule, create, proposal
from tests.support.holds import hold_one

PUT_IF_ABSENT = CommitPolicy(kind=CommitPolicyKind.PUT_IF_ABSENT)


def rule(
    kind: CommitRuleKind = CommitRuleKind.APPEND_ONLY,
    scope: str = "main.sales",
    on_violation: OnViolation = OnViolation.REFUSE,
    **arguments: object,
) -> CommitRule:
    return CommitRule(
        scope=scope,
        name=kind.value,
        kind=kind,
        arguments=arguments,  # type: ignore[arg-type]
        on_violation=on_violation,
        reason="kept for the auditors",
        contact="the data team",
    )


def with_actions(
    version: int, *, removes: int = 0, mode: CommitMode = CommitMode.INLINE, tags: dict[str, str] | None = None
) -> CommitProposal:
    """A proposal that adds one file and removes ``removes`` files."""
    one = proposal(version)
    info = {"txnId": one.summary.txn_id, "inCommitTimestamp": one.summary.in_commit_timestamp, "tags": tags or {}}
    add = {"path": f"{version}.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    gone = [{"path": f"gone-{number}.parquet", "dataChange": True} for number in range(removes)]
    lines = [{"commitInfo": info}, {"add": add}, *({"remove": each} for each in gone)]
    content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    return replace(
        one,
        mode=mode,
        content=content if mode is CommitMode.INLINE else None,
        content_to_check=content,
        file_size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def rebased_on(one: CommitProposal, version: int) -> CommitProposal:
    """The same commit as the version after ``version``."""
    assert one.content is not None
    timestamp = 1001 + version
    before = f'"inCommitTimestamp": {one.summary.in_commit_timestamp}'.encode()
    content = one.content.replace(before, f'"inCommitTimestamp": {timestamp}'.encode())
    return replace(
        one,
        version=version + 1,
        file_name=f"{version + 1:020d}.{one.file_name.partition('.')[2]}",
        summary=replace(one.summary, in_commit_timestamp=timestamp),
        content=content,
        content_to_check=content,
        file_size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def rules_of_all_three_scopes_apply_in_every_commit_mode(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.commit_rules.set_commit_rule(rule(scope="main"))
        catalog.commit_rules.set_commit_rule(rule(CommitRuleKind.REQUIRED_TAGS, scope=str(NAME), tags=("owner",)))
        for mode in (CommitMode.STAGED, CommitMode.INLINE):
            with pytest.raises(CommitRefusedError) as caught:
                catalog.coordinator.commit(table_id, with_actions(1, removes=1, mode=mode, tags={"owner": "etl"}))
            refusal = caught.value.refusal
            assert refusal is not None and (refusal.rule, refusal.scope) == ("append_only", "main")
            assert all(
                word in str(caught.value) for word in ("append_only", "main", "kept for the auditors", "data team")
            )
            with pytest.raises(CommitRefusedError, match="lacks the tag 'owner'"):
                catalog.coordinator.commit(table_id, with_actions(1, mode=mode))
            with pytest.raises(CommitRefusedError, match="append_only"):
                catalog.coordinator.commit_together(
                    {table_id: with_actions(1, removes=1, mode=mode, tags={"owner": "etl"})}
                )
        assert catalog.coordinator.get_ratified_commits(table_id).latest_version == 0
        assert isinstance(catalog.coordinator.commit(table_id, with_actions(1, tags={"owner": "etl"})), Ratified)
        assert {entry.action for entry in catalog.audit_log.audit() if entry.outcome.value == "refused"} == {"commit"}


def a_proposal_without_readable_content_violates_every_rule(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.commit_rules.set_commit_rule(rule())
        hidden = replace(with_actions(1, mode=CommitMode.STAGED), content_to_check=None)
        with pytest.raises(CommitRefusedError, match="content that the catalog cannot read"):
            catalog.coordinator.commit(table_id, hidden)


def rules_are_replaced_listed_removed_and_audited(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        limit = rule(CommitRuleKind.MAX_REMOVED_ROWS, fraction=0.4)
        for each in (limit, replace(limit, arguments={"rows": 5}), rule(scope=str(NAME)), rule(scope="main.other")):
            catalog.commit_rules.set_commit_rule(each)
        found = other.commit_rules.commit_rules(str(NAME))
        assert [(each.scope, each.name) for each in found] == [
            ("main.sales", "max_removed_rows"),
            (str(NAME), "append_only"),
        ]
        assert found[0].arguments == {"rows": 5}
        with pytest.raises(InvalidArgumentError, match="no commit rule 'append_only'"):
            other.commit_rules.remove_commit_rule("main", "append_only")
        other.commit_rules.remove_commit_rule(str(NAME), "append_only", reason="moved")
        assert len(catalog.commit_rules.commit_rules()) == 2
        entries = catalog.audit_log.audit(scope="main.sales")
        assert [entry.action for entry in entries] == ["set commit rule"] * 3 + ["remove commit rule"]
        assert entries[1].before != entries[1].after and entries[-1].reason == "moved"


def a_rule_holds_while_others_of_its_scope_are_set_and_removed(bench: Bench) -> None:
    removed, kept = rule(scope=str(NAME)), rule(CommitRuleKind.REQUIRED_TAGS, scope=str(NAME), tags=("owner",))
    together = threading.Barrier(3)
    with bench.client() as one, bench.client() as other, ThreadPoolExecutor(3) as threads:
        table_id = create(one).table_id
        for _ in range(10):
            one.commit_rules.set_commit_rule(removed)
            changes = (
                threads.submit(lambda: (together.wait(), one.commit_rules.remove_commit_rule(str(NAME), removed.name))),
                threads.submit(lambda: (together.wait(), other.commit_rules.set_commit_rule(kept))),
                threads.submit(
                    lambda: (together.wait(), one.commit_rules.set_commit_rule(replace(kept, reason="audit")))
                ),
            )
            for change in changes:
                change.result()
            with pytest.raises(CommitRefusedError, match="lacks the tag"):
                one.coordinator.commit(table_id, with_actions(1))
            one.commit_rules.remove_commit_rule(str(NAME), kept.name)


def malformed_rules_are_refused(bench: Bench) -> None:
    with bench.client() as catalog:
        for wrong in (
            rule(columns=("id",)),
            rule(CommitRuleKind.PROTECTED_COLUMNS),
            rule(CommitRuleKind.MAX_REMOVED_ROWS, rows=5, fraction=0.5),
            rule(CommitRuleKind.MAX_REMOVED_FILES, fraction=1.5),
            rule(CommitRuleKind.REQUIRED_USER_METADATA, pattern="("),
            replace(rule(), name=""),
            rule(scope="a.b.c.d"),
        ):
            with pytest.raises(InvalidArgumentError):
                catalog.commit_rules.set_commit_rule(wrong)
        assert catalog.commit_rules.commit_rules() == ()


def no_rule_covers_commits_that_are_made_put_if_absent(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.commit_policies.change_commit_policy(table_id, PUT_IF_ABSENT)
        for scope in (str(NAME), "main.sales", "main"):
            with pytest.raises(InvalidArgumentError, match="cannot refuse them"):
                catalog.commit_rules.set_commit_rule(rule(scope=scope))
        catalog.commit_rules.set_commit_rule(rule(scope="main.other"))
        with pytest.raises(InvalidArgumentError, match="commit rules apply"):
            catalog.commit_policies.set_commit_policy(CommitPolicyRule(scope="main", policy=PUT_IF_ABSENT))
        guarded = create(catalog, OTHER).table_id
        catalog.commit_rules.set_commit_rule(rule(scope=str(OTHER)))
        with pytest.raises(InvalidArgumentError, match="commit rules apply"):
            catalog.commit_policies.change_commit_policy(guarded, PUT_IF_ABSENT)


def only_an_owner_sets_and_removes_rules_and_policies(bench: Bench) -> None:
    """While grants are enforced; every other privilege is not enough, and the owner may."""
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        create(owner)
        owner.access.enable_grants()
        others = [privilege for privilege in Privilege if privilege is not Privilege.OWN]
        owner.access.grant(others, "*", principal_of(writer))

        def changes(catalog: Catalog) -> tuple[Callable[[], object], ...]:
            limit = MaintenanceRule(scope="main", kind=MaintenanceKind.CHECKPOINT, allowed=True)
            inline = CommitPolicyRule(scope="main", policy=CommitPolicy.parse("inline"))
            return (
                lambda: catalog.commit_rules.set_commit_rule(rule(scope="main")),
                lambda: catalog.commit_rules.set_commit_rule(rule(scope="main.sales")),
                lambda: catalog.commit_rules.set_commit_rule(rule(scope=str(NAME))),
                lambda: catalog.commit_rules.remove_commit_rule("main.sales", "append_only"),
                lambda: catalog.commit_policies.set_commit_policy(inline),
                lambda: catalog.commit_policies.remove_commit_policy("main"),
                lambda: catalog.maintenance_policies.set_maintenance_rule(limit),
                lambda: catalog.maintenance_policies.remove_maintenance_rule("main", MaintenanceKind.CHECKPOINT),
            )

        for refused, permitted in zip(changes(writer), changes(owner), strict=True):
            with pytest.raises(OperationRefusedError, match="does not have the privilege own"):
                refused()
            permitted()


def a_rename_carries_the_rules_of_the_name(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.commit_rules.set_commit_rule(rule(scope=str(NAME)))
        catalog.registry.rename_table(table_id, OTHER)
        with pytest.raises(CommitRefusedError, match=str(OTHER)):
            catalog.coordinator.commit(table_id, with_actions(1, removes=1))


def a_rename_out_of_a_schema_permits_nothing(bench: Bench) -> None:
    elsewhere = TableIdentifier("main", "scratch", "orders")
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.commit_rules.set_commit_rule(rule())
        catalog.commit_rules.set_commit_rule(replace(rule(CommitRuleKind.REQUIRED_TAGS, scope="main", tags=("owner",))))
        weak = rule(CommitRuleKind.REQUIRED_TAGS, scope=str(elsewhere), tags=("cost",))
        catalog.commit_rules.set_commit_rule(replace(weak, name="append_only"))
        catalog.registry.rename_table(table_id, elsewhere)
        with pytest.raises(CommitRefusedError, match="removes or changes rows"):
            catalog.coordinator.commit(table_id, with_actions(1, removes=1, tags={"owner": "etl", "cost": "1"}))
        own = {
            each.name: each.kind.value
            for each in catalog.commit_rules.commit_rules(str(elsewhere))
            if each.scope != "main"
        }
        assert own == {"append_only": "required_tags", "append_only of main.sales": "append_only"}
        entry = catalog.audit_log.audit(scope=str(elsewhere))[-2]
        assert (entry.action, entry.reason) == ("set commit rule", f"rename of {NAME}")
        rules = catalog.commit_rules.commit_rules()
        for name in (NAME, elsewhere):
            catalog.registry.rename_table(table_id, name)
        carried = [each for each in catalog.commit_rules.commit_rules() if each not in rules]
        assert [(each.scope, each.name) for each in carried] == [(str(NAME), "append_only")]


def a_rule_that_locks_everybody_out_is_asked_for_twice(bench: Bench) -> None:
    with bench.client() as catalog:
        create(catalog)
        catalog.access.add_to_role("stewards", ["ada"])
        catalog.access.remove_from_role("stewards", ["ada"])
        locked = rule(CommitRuleKind.SCHEMA_CHANGE, principals=("stewards",))
        misspelt = rule(CommitRuleKind.SCHEMA_CHANGE, principals=("stewarts", "adda"))
        for each in (locked, misspelt):
            with pytest.raises(InvalidArgumentError, match="none is a role with members"):
                catalog.commit_rules.set_commit_rule(each)
            assert catalog.commit_rules.set_commit_rule(each, confirmed=True).arguments == each.arguments
        catalog.access.grant([Privilege.READ], "main", "adda")
        assert catalog.commit_rules.set_commit_rule(misspelt).arguments == misspelt.arguments


def a_role_that_can_act_may_be_the_only_one_to_change_columns(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        table_id = create(owner).table_id
        owner.access.enable_grants()
        name = writer.access.whoami().principal
        assert name is not None
        owner.access.grant([Privilege.APPEND], str(NAME), name)
        writer.coordinator.commit(table_id, with_actions(1))
        owner.access.revoke([Privilege.APPEND], str(NAME), name)
        owner.access.add_to_role("stewards", ["ada"])
        for principals in ((name,), ("ghost", "stewards"), ("public",), ("ada",)):
            allowed = rule(CommitRuleKind.SCHEMA_CHANGE, principals=principals)
            assert owner.commit_rules.set_commit_rule(allowed).arguments == {"principals": principals}


def _request(
    catalog: Catalog,
    table_id: str,
    one: CommitProposal,
    *,
    app_id: str | None = None,
    app_version: int | None = None,
) -> str:
    with pytest.raises(ApprovalRequiredError):
        catalog.coordinator.commit(table_id, one)
    found = hold_one(catalog, table_id, one, app_id=app_id, app_version=app_version)
    assert found is not None
    return found.hold_id


def a_request_expires_after_at_most_366_days(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.commit_rules.set_commit_rule(rule(on_violation=OnViolation.APPROVAL))
        one = with_actions(1, removes=1)
        for duration_ms in (0, MAX_HOLD_DURATION_MS + 1, 10 * MAX_HOLD_DURATION_MS, 2**70):
            with pytest.raises(InvalidArgumentError, match="366 days"):
                hold_one(catalog, table_id, one, duration_ms=duration_ms)
        assert catalog.holds.holds() == ()
        assert hold_one(catalog, table_id, one, duration_ms=MAX_HOLD_DURATION_MS) is not None


def a_commit_waits_and_is_ratified_with_the_end_of_its_request(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        table_id = create(catalog).table_id
        catalog.commit_rules.set_commit_rule(rule(on_violation=OnViolation.APPROVAL))
        one = with_actions(1, removes=1)
        approval_id = _request(catalog, table_id, one, app_id="job", app_version=3)
        assert _request(catalog, table_id, with_actions(1, removes=1), app_id="job", app_version=3) == approval_id
        assert [each.hold_id for each in other.holds.holds("main.sales")] == [approval_id]
        assert [each.content for each in other.holds.protected_commits(table_id)] == [one.content]
        assert isinstance(other.coordinator.commit(table_id, with_actions(1)), Ratified)
        assert isinstance(other.coordinator.commit(table_id, replace(one, hold_id=approval_id)), VersionTaken)
        assert other.holds.held_proposals(approval_id)[0].hold.state is HoldState.PENDING
        with pytest.raises(HoldClosedError, match="another commit"):
            other.coordinator.commit(table_id, replace(with_actions(2, removes=2), hold_id=approval_id))
        rebased = replace(rebased_on(one, 1), hold_id=approval_id)
        assert isinstance(other.coordinator.commit(table_id, rebased), Ratified)
        assert other.coordinator.commit(table_id, rebased) == Ratified(
            version=2, latest_version=2, published_version=0, repeated=True
        )
        closed = catalog.holds.held_proposals(approval_id)[0].hold
        assert (closed.state, closed.tables[0].version) == (HoldState.COMMITTED, 2)
        assert catalog.holds.holds() == () and len(catalog.holds.holds(with_closed=True)) == 1
        with pytest.raises(HoldClosedError, match="was approved"):
            catalog.holds.reject_hold(approval_id, reason="no")


def _refuse_approved(catalog: Catalog, table_id: str, one: CommitProposal, approval_id: str, *, naming: str) -> None:
    """Propose the approved commit: it is refused, and nothing changes."""
    before = catalog.coordinator.get_ratified_commits(table_id).latest_version
    with pytest.raises(CommitRefusedError, match=r"Reject the request and run the write again") as caught:
        catalog.coordinator.commit(table_id, replace(one, hold_id=approval_id))
    assert caught.value.refusal is not None and caught.value.refusal.rule == naming
    assert approval_id in str(caught.value) and caught.value.refusal.scope in str(caught.value)
    assert catalog.coordinator.get_ratified_commits(table_id).latest_version == before
    waiting = catalog.holds.held_proposals(approval_id)[0]
    assert waiting.hold.state is HoldState.PENDING and waiting.content == one.content


def an_approval_holds_for_the_rules_of_its_request_alone(bench: Bench) -> None:
    added = rule(CommitRuleKind.REQUIRED_TAGS, scope=str(NAME), on_violation=OnViolation.APPROVAL, tags=("owner",))
    with bench.client() as catalog, bench.client() as other:
        table_id = create(catalog).table_id
        catalog.commit_rules.set_commit_rule(rule(on_violation=OnViolation.APPROVAL))
        one = with_actions(1, removes=1)
        approval_id = _request(catalog, table_id, one)
        catalog.commit_rules.set_commit_rule(added)
        _refuse_approved(other, table_id, one, approval_id, naming="required_tags")
        refused = [entry for entry in catalog.audit_log.audit() if entry.outcome.value == "refused"]
        assert [entry.scope for entry in refused][-1] == str(NAME)
        catalog.commit_rules.remove_commit_rule(str(NAME), "required_tags")
        catalog.commit_rules.set_commit_rule(
            replace(rule(on_violation=OnViolation.APPROVAL), reason="other words", contact="ana")
        )
        assert isinstance(other.coordinator.commit(table_id, replace(one, hold_id=approval_id)), Ratified)


def an_approval_ends_with_the_arguments_of_its_rules(bench: Bench) -> None:
    limit = rule(CommitRuleKind.MAX_REMOVED_FILES, on_violation=OnViolation.APPROVAL, files=2)
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.commit_rules.set_commit_rule(limit)
        one = with_actions(1, removes=3)
        approval_id = _request(catalog, table_id, one)
        catalog.commit_rules.set_commit_rule(replace(limit, arguments={"files": 1}))
        _refuse_approved(catalog, table_id, one, approval_id, naming="max_removed_files")
        catalog.commit_rules.set_commit_rule(replace(rule(on_violation=OnViolation.APPROVAL), name=limit.name))
        _refuse_approved(catalog, table_id, one, approval_id, naming="max_removed_files (append_only)")
        catalog.holds.reject_hold(approval_id, reason="ask again")
        again = _request(catalog, table_id, one)
        assert again != approval_id and isinstance(
            catalog.coordinator.commit(table_id, replace(one, hold_id=again)), Ratified
        )


def an_approval_does_not_hold_for_what_a_rebase_violates(bench: Bench) -> None:
    def counted(one: CommitProposal, files: int) -> CommitProposal:
        counts = TableCounts(num_rows=files, num_files=files, size_bytes=files)
        return replace(one, summary=replace(one.summary, counts=counts))

    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.coordinator.commit(table_id, counted(with_actions(1), 10))
        catalog.commit_rules.set_commit_rule(rule(on_violation=OnViolation.APPROVAL))
        half = rule(CommitRuleKind.MAX_REMOVED_FILES, scope="main", on_violation=OnViolation.APPROVAL, fraction=0.5)
        catalog.commit_rules.set_commit_rule(half)
        one = with_actions(2, removes=4)
        approval_id = _request(catalog, table_id, one)
        catalog.coordinator.commit(table_id, counted(with_actions(2), 6))
        rebased = rebased_on(one, 2)
        with pytest.raises(CommitRefusedError, match=r"removes 4 of 6 files.*was not made for this rule") as caught:
            catalog.coordinator.commit(table_id, replace(rebased, hold_id=approval_id))
        assert caught.value.refusal is not None and caught.value.refusal.scope == "main"
        assert catalog.coordinator.get_ratified_commits(table_id).latest_version == 2
        catalog.coordinator.commit(table_id, counted(with_actions(3), 20))
        rebased = rebased_on(one, 3)
        assert isinstance(catalog.coordinator.commit(table_id, replace(rebased, hold_id=approval_id)), Ratified)


def a_table_with_requests_does_not_become_put_if_absent(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        catalog.commit_rules.set_commit_rule(rule(on_violation=OnViolation.APPROVAL))
        approval_id = _request(catalog, table_id, with_actions(1, removes=1))
        catalog.commit_rules.remove_commit_rule("main.sales", "append_only")
        with pytest.raises(InvalidArgumentError, match="wait for a ratification or an approval"):
            catalog.commit_policies.change_commit_policy(table_id, PUT_IF_ABSENT)
        catalog.holds.reject_hold(approval_id, reason="no")
        catalog.commit_policies.change_commit_policy(table_id, PUT_IF_ABSENT)


COMMIT_RULES_CONTRACT: tuple[Rule, ...] = (
    rules_of_all_three_scopes_apply_in_every_commit_mode,
    a_proposal_without_readable_content_violates_every_rule,
    rules_are_replaced_listed_removed_and_audited,
    a_rule_holds_while_others_of_its_scope_are_set_and_removed,
    malformed_rules_are_refused,
    no_rule_covers_commits_that_are_made_put_if_absent,
    only_an_owner_sets_and_removes_rules_and_policies,
    a_rename_carries_the_rules_of_the_name,
    a_rename_out_of_a_schema_permits_nothing,
    a_rule_that_locks_everybody_out_is_asked_for_twice,
    a_role_that_can_act_may_be_the_only_one_to_change_columns,
    a_request_expires_after_at_most_366_days,
    a_commit_waits_and_is_ratified_with_the_end_of_its_request,
    an_approval_holds_for_the_rules_of_its_request_alone,
    an_approval_ends_with_the_arguments_of_its_rules,
    an_approval_does_not_hold_for_what_a_rebase_violates,
    a_table_with_requests_does_not_become_put_if_absent,
)
