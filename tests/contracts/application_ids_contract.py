"""Contract of ``ApplicationIds``: who may set the ``txn`` of an application after another principal.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.application_ids import ApplicationId
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode, CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.ratification import InitialCommit, Ratified, RatifiedTogether
from cm_delta_dagster.errors import (
    CommitRefusedError,
    InvalidArgumentError,
    PermissionDeniedError,
    TableNotFoundError,
)
from cm_delta_dagster.remedies import ListApplicationIds, ResetApplicationId
from tests.contracts.access_control_contract import principal_of
from tests.contracts.catalog_bench import NAME, OTHER, PROTOCOL, Bench, Rule, create, created, metadata, summary
from tests.support.commit_builder import ADD, REMOVE, commit_of
from tests.support.holds import hold_one
from tests.support.stated_marks import numbered

LONG = "l" * 3000
ZERO = "with\0zero"
PROTOCOL_FIELDS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["catalogManaged"],
    "writerFeatures": ["catalogManaged", "inCommitTimestamp", "identityColumns"],
}


def txn(app_id: str, version: int = 1) -> Mapping[str, Any]:
    """A ``txn`` action."""
    return {"txn": {"appId": app_id, "version": version}}


def principals(catalog: Catalog, table_id: str) -> dict[str, str | None]:
    """Who set each application id of the table last."""
    return {entry.app_id: entry.principal for entry in catalog.application_ids.application_ids(table_id)}


def many_application_ids_of_a_commit_are_recorded(bench: Bench) -> None:
    many = tuple(f'job {number} \u00e9\U0001f600"\\' for number in range(2000))
    with bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id = create(ana).table_id
        for version, client in enumerate((ana, bob), 1):
            proposal = commit_of(version, *map(txn, many[version - 1 :]))
            assert isinstance(client.coordinator.commit(table_id, proposal), Ratified)
        owners = principals(ana, table_id)
        assert set(owners) == set(many)
        assert [owners[app_id] for app_id in many[:2]] == [principal_of(ana), principal_of(bob)]


def an_application_id_of_another_principal_requires_alter(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id = create(owner).table_id
        owner.access.enable_grants()
        for client in (ana, bob):
            owner.access.grant([Privilege.APPEND], str(NAME), principal_of(client))
        for version in (1, 2):
            assert isinstance(ana.coordinator.commit(table_id, commit_of(version, ADD, txn("job", version))), Ratified)
        with pytest.raises(CommitRefusedError, match="does not have the privilege alter") as caught:
            bob.coordinator.commit(table_id, commit_of(3, ADD, txn("own"), txn("job", 99)))
        refusal = caught.value.refusal
        assert refusal is not None and refusal.reason.endswith(
            f"; the principal {principal_of(ana)} set the application id 'job' of its txn last, which requires alter"
        )
        assert caught.value.remedy == ResetApplicationId(table=str(NAME), app_id="job")
        assert [(entry.action, entry.outcome.value) for entry in owner.audit_log.audit(limit=1)] == [
            ("commit", "refused")
        ]
        assert isinstance(bob.coordinator.commit(table_id, commit_of(3, ADD, txn("own"))), Ratified)
        owner.access.grant([Privilege.ALTER], str(NAME), principal_of(bob))
        assert isinstance(bob.coordinator.commit(table_id, commit_of(4, txn("job", 3))), Ratified)
        assert principals(owner, table_id) == {"job": principal_of(bob), "own": principal_of(bob)}
        with pytest.raises(CommitRefusedError, match=f"the principal {principal_of(bob)} set"):
            ana.coordinator.commit(table_id, commit_of(5, ADD, txn("job", 4)))
        assert owner.registry.load_table(NAME).ratified.latest_version == 4


def application_ids_are_recorded_while_grants_are_off(bench: Bench) -> None:
    """By commits to one table, with one application id and several, and by commits to several tables."""
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id, other_id = create(owner).table_id, create(owner, OTHER).table_id
        name = principal_of(ana)
        bench.clock.now = 1000
        assert isinstance(bob.coordinator.commit(table_id, commit_of(1, txn("a"))), Ratified)
        assert isinstance(ana.coordinator.commit(table_id, commit_of(2, ADD, txn("a", 2))), Ratified)
        bench.clock.now = 2000
        assert isinstance(ana.coordinator.commit(table_id, commit_of(3, txn("c"), txn("b"), txn("a", 3))), Ratified)
        together = {table_id: commit_of(4, txn("d")), other_id: commit_of(1, txn("d"), txn("e"))}
        assert isinstance(ana.coordinator.commit_together(together), RatifiedTogether)
        assert owner.application_ids.application_ids(table_id) == tuple(
            ApplicationId(app_id=app_id, principal=name, since_ms=since_ms)
            for app_id, since_ms in (("a", 1000), ("b", 2000), ("c", 2000), ("d", 2000))
        )
        assert principals(owner, other_id) == {"d": name, "e": name}
        owner.access.enable_grants()
        owner.access.grant([Privilege.APPEND], "main", principal_of(bob))
        for version, app_ids in ((5, "a"), (5, "d"), (5, "xb")):
            with pytest.raises(CommitRefusedError, match=f"the principal {name} set"):
                bob.coordinator.commit(table_id, commit_of(version, *map(txn, app_ids)))
        with pytest.raises(CommitRefusedError, match=f"the principal {name} set"):
            bob.coordinator.commit_together({table_id: commit_of(5, ADD), other_id: commit_of(2, txn("e"))})
        assert isinstance(bob.coordinator.commit(table_id, commit_of(5, txn("x"))), Ratified)


def a_reset_lets_the_next_principal_set_an_application_id(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id = create(owner).table_id
        for version, app_id in enumerate(("job", "other"), 1):
            assert isinstance(ana.coordinator.commit(table_id, commit_of(version, txn(app_id))), Ratified)
        owner.access.enable_grants()
        owner.access.grant([Privilege.MODIFY, Privilege.MAINTAIN], str(NAME), principal_of(bob))
        with pytest.raises(PermissionDeniedError, match="privilege alter"):
            bob.application_ids.reset_application_id(table_id, "job")
        with pytest.raises((PermissionDeniedError, TableNotFoundError)):
            ana.application_ids.application_ids(table_id)
        owner.access.grant([Privilege.ALTER], str(NAME), principal_of(ana))
        ana.application_ids.reset_application_id(table_id, "job", reason="moved to bob")
        (entry,) = owner.audit_log.audit(limit=1)
        assert (entry.action, entry.scope, entry.table_id, entry.before, entry.after, entry.reason) == (
            "reset application id",
            str(NAME),
            table_id,
            f"job, last set by {principal_of(ana)}",
            None,
            "moved to bob",
        )
        assert isinstance(bob.coordinator.commit(table_id, commit_of(3, txn("job", 2))), Ratified)
        assert principals(bob, table_id) == {"job": principal_of(bob), "other": principal_of(ana)}
        with pytest.raises(InvalidArgumentError, match=r"'none' of main\.sales\.orders was not reset") as unknown:
            owner.application_ids.reset_application_id(table_id, "none")
        assert unknown.value.remedy == ListApplicationIds(table=str(NAME))
        for call in (
            lambda: owner.application_ids.reset_application_id("none", "job"),
            lambda: owner.application_ids.application_ids("none"),
        ):
            with pytest.raises(TableNotFoundError):
                call()
        assert owner.audit_log.audit(limit=1)[0].action == "reset application id"


def application_ids_belong_to_the_id_of_the_table(bench: Bench) -> None:
    """Across a rename, and across a drop that is taken back; a new table of the name has none."""
    with bench.client_of("owner") as owner, bench.client_of("bob") as bob:
        table_id = create(owner).table_id
        assert isinstance(owner.coordinator.commit(table_id, commit_of(1, txn("job"))), Ratified)
        owner.access.enable_grants()
        owner.access.grant([Privilege.APPEND], "main", principal_of(bob))
        owner.registry.rename_table(table_id, OTHER)
        new_id = create(owner).table_id
        assert principals(owner, new_id) == {} != principals(owner, table_id)
        assert isinstance(bob.coordinator.commit(new_id, commit_of(1, txn("job"))), Ratified)
        owner.registry.drop_table(OTHER)
        owner.registry.undrop_table(table_id)
        with pytest.raises(CommitRefusedError, match="set the application id 'job'"):
            bob.coordinator.commit(table_id, commit_of(2, txn("job", 2)))


def the_application_id_of_an_approved_commit_is_that_of_its_requester(bench: Bench) -> None:
    waits = CommitRule(scope="main", name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.APPROVAL)
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id = create(owner).table_id
        owner.commit_rules.set_commit_rule(waits)
        owner.access.enable_grants()
        for client in (ana, bob):
            owner.access.grant([Privilege.MODIFY], str(NAME), principal_of(client))
        proposed = commit_of(1, REMOVE, txn("job"))
        request = hold_one(ana, table_id, proposed, app_id="job", app_version=1)
        assert request is not None
        assert isinstance(owner.coordinator.commit(table_id, replace(proposed, hold_id=request.hold_id)), Ratified)
        assert principals(owner, table_id) == {"job": principal_of(ana)}
        with pytest.raises(CommitRefusedError, match="set the application id 'job'"):
            hold_one(bob, table_id, commit_of(2, REMOVE, txn("job", 2)))
        assert isinstance(ana.coordinator.commit(table_id, commit_of(2, ADD, txn("job", 2))), Ratified)


def every_application_id_of_a_commit_can_be_recorded(bench: Bench) -> None:
    """Also one that a database cannot hold or index, and many."""
    with bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id = create(ana).table_id
        for version, app_id in enumerate((LONG, ZERO, "it's \\ 'quoted' 表"), 1):
            assert isinstance(ana.coordinator.commit(table_id, commit_of(version, txn(app_id))), Ratified)
        many = [txn(f"a{number}") for number in range(1200)]
        assert isinstance(ana.coordinator.commit(table_id, commit_of(4, *many)), Ratified)
        listed = principals(ana, table_id)
        assert len(listed) == 1203 and set(listed.values()) == {principal_of(ana)}
        digests = [app_id for app_id in listed if app_id.startswith("sha256:")]
        assert len(digests) == 2 and list(listed) == sorted(listed)
        ana.access.enable_grants()
        ana.access.grant([Privilege.APPEND], str(NAME), principal_of(bob))
        for app_id in (LONG, ZERO):
            with pytest.raises(CommitRefusedError, match="set the application id 'sha256:"):
                bob.coordinator.commit(table_id, commit_of(5, txn(app_id)))
        with pytest.raises(CommitRefusedError, match="set the application id 'a1199'"):
            bob.coordinator.commit(table_id, commit_of(5, *(txn(f"b{number}") for number in range(600)), txn("a1199")))
        ana.application_ids.reset_application_id(table_id, LONG)
        ana.application_ids.reset_application_id(
            table_id, next(app_id for app_id in digests if app_id in principals(ana, table_id))
        )
        assert isinstance(bob.coordinator.commit(table_id, commit_of(5, txn(LONG), txn(ZERO))), Ratified)


def a_commit_whose_content_is_not_known_changes_no_application_id(bench: Bench) -> None:
    with bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id = create(ana).table_id
        assert isinstance(ana.coordinator.commit(table_id, commit_of(1, txn("job"))), Ratified)
        unseen = replace(commit_of(2, txn("job"), mode=CommitMode.STAGED), content=None, content_to_check=None)
        assert isinstance(bob.coordinator.commit(table_id, unseen), Ratified)
        assert principals(ana, table_id) == {"job": principal_of(ana)}


def version_0_and_commits_made_put_if_absent_set_application_ids(bench: Bench) -> None:
    """The principal is the one that registers the table, and that reports the commit."""
    content = commit_of(0, {"protocol": PROTOCOL_FIELDS}, numbered(None), txn("first")).content_to_check
    assert content is not None
    initial = InitialCommit(
        file_size=len(content),
        file_modification_time=1,
        metadata=metadata("n"),
        protocol=PROTOCOL,
        content_to_check=content,
    )
    with bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id = ana.registry.create_staging_table(NAME).table_id
        ana.registry.register_table(table_id, NAME, summary=summary(1000), initial=initial)
        assert principals(ana, table_id) == {"first": principal_of(ana)}
        ana.commit_policies.change_commit_policy(table_id, CommitPolicy(kind=CommitPolicyKind.PUT_IF_ABSENT))
        made = replace(commit_of(1, txn("second")), file_name=created(1).file_name, mode=CommitMode.PUT_IF_ABSENT)
        assert isinstance(bob.coordinator.record_published(table_id, replace(made, content=None)), Ratified)
        assert principals(ana, table_id) == {"first": principal_of(ana), "second": principal_of(bob)}


APPLICATION_IDS_CONTRACT: tuple[Rule, ...] = (
    an_application_id_of_another_principal_requires_alter,
    application_ids_are_recorded_while_grants_are_off,
    a_reset_lets_the_next_principal_set_an_application_id,
    application_ids_belong_to_the_id_of_the_table,
    the_application_id_of_an_approved_commit_is_that_of_its_requester,
    every_application_id_of_a_commit_can_be_recorded,
    many_application_ids_of_a_commit_are_recorded,
    a_commit_whose_content_is_not_known_changes_no_application_id,
    version_0_and_commits_made_put_if_absent_set_application_ids,
)
