"""Contract of ``AccessControl`` and ``AuditLog``, and of what other interfaces refuse without a privilege."""

import json
from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.access import CallerSource, Privilege, Role
from cm_delta_dagster.catalog.audit import AuditOutcome
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import (
    CommitMode,
    CommitPolicy,
    CommitPolicyKind,
    CommitPolicyRule,
    PolicyChange,
)
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.maintenance import (
    LeaseGranted,
    LeaseHeldByAnother,
    LeaseLost,
    MaintenanceConditions,
    MaintenanceKind,
    MaintenanceRule,
)
from cm_delta_dagster.catalog.ratification import Ratified, RatifiedTogether
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    CommitRefusedError,
    CommitRejectedError,
    IllegalCommitError,
    InvalidArgumentError,
    PermissionDeniedError,
    TableNotFoundError,
)
from cm_delta_dagster.protocol.actions.commit_json import encode_action
from tests.contracts.catalog_bench import NAME, OTHER, PROTOCOL, Bench, Rule, create, defined, metadata, proposal
from tests.support.commit_builder import ADD, REMOVE, commit_of, of_bytes
from tests.support.commit_privileges import CASES, case_of, other_content
from tests.support.holds import hold_one

STAFF = TableIdentifier("main", "staff", "salaries")
DOMAIN = {"domainMetadata": {"domain": "team", "configuration": "{}", "removed": False}}
UNREADABLE = (PermissionDeniedError, TableNotFoundError)


def principal_of(catalog: Catalog) -> str:
    principal = catalog.access.whoami().principal
    assert principal is not None
    return principal


def grants_are_off_until_enabled(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        entry = create(owner)
        assert not owner.access.whoami().grants_enabled and owner.access.whoami().source is not CallerSource.NONE
        assert owner.access.table_owner(entry.table_id) == principal_of(owner)
        assert isinstance(owner.coordinator.commit(entry.table_id, proposal(1)), Ratified)
        owner.access.enable_grants()
        owner.access.enable_grants()
        assert writer.access.whoami().grants_enabled
        with pytest.raises(UNREADABLE):
            writer.registry.load_table(NAME)
        with pytest.raises((CommitRefusedError, TableNotFoundError)):
            writer.coordinator.commit(entry.table_id, commit_of(2, ADD))
        owner.access.disable_grants()
        assert isinstance(owner.coordinator.commit(entry.table_id, commit_of(2, REMOVE)), Ratified)
        assert [entry.principal for entry in owner.feed.feed(after=0, limit=9)] == [principal_of(owner)] * 3


def a_commit_requires_what_its_content_does(bench: Bench) -> None:
    """The table of cases, for each privilege alone, and for two pairs of them."""
    pairs = ((Privilege.MODIFY, Privilege.ALTER), (Privilege.APPEND, Privilege.MAINTAIN))
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        entry, name, version = create(owner), principal_of(writer), 0
        owner.access.enable_grants()
        for held in (*((privilege,) for privilege in Privilege), *pairs):
            owner.access.grant(held, str(NAME), name)
            included = frozenset[Privilege]().union(*(privilege.included for privilege in held))
            for case in CASES:
                if case.before:
                    assert isinstance(
                        owner.coordinator.commit(entry.table_id, commit_of(version + 1, *case.before)), Ratified
                    )
                    version += 1
                one = case.proposal(version + 1)
                lacking = case.requires - included
                if case.rejected:
                    with pytest.raises(CommitRejectedError, match=case.rejected):
                        writer.coordinator.commit(entry.table_id, one)
                elif case.illegal:
                    with pytest.raises((IllegalCommitError, CommitRefusedError)) as refused:
                        writer.coordinator.commit(entry.table_id, one)
                    may_commit = bool(
                        included & {Privilege.APPEND, Privilege.MODIFY, Privilege.ALTER, Privilege.MAINTAIN}
                    )
                    assert isinstance(refused.value, IllegalCommitError) == may_commit, (held, case.name)
                    assert (case.illegal in str(refused.value)) == may_commit, (held, case.name)
                elif lacking:
                    with pytest.raises(CommitRefusedError, match="does not have the privilege") as caught:
                        writer.coordinator.commit(entry.table_id, one)
                    refusal = caught.value.refusal
                    assert refusal is not None and refusal.ask == (principal_of(owner),), (held, case.name)
                    assert all(privilege.value in refusal.reason for privilege in lacking), (held, case.name)
                else:
                    assert isinstance(writer.coordinator.commit(entry.table_id, one), Ratified), (held, case.name)
                    version += 1
            owner.access.revoke(held, str(NAME), name)


def a_caller_without_read_gets_no_commit(bench: Bench) -> None:
    """Not by proposing a version that is taken, nor by recording a file or asking for an approval."""
    with bench.client_of("owner") as owner, bench.client_of("stranger") as stranger:
        table_id = create(owner).table_id
        assert isinstance(owner.coordinator.commit(table_id, commit_of(1, ADD)), Ratified)
        owner.access.enable_grants()
        published = replace(
            proposal(1), mode=CommitMode.PUT_IF_ABSENT, file_name="00000000000000000001.json", content=None
        )
        for attempt in (
            lambda: stranger.coordinator.commit(table_id, commit_of(1, ADD)),
            lambda: stranger.coordinator.commit_together({table_id: commit_of(1, ADD)}),
            lambda: stranger.coordinator.record_published(table_id, published),
            lambda: hold_one(stranger, table_id, commit_of(2, ADD)),
        ):
            with pytest.raises((PermissionDeniedError, CommitRefusedError), match="does not have the privilege"):
                attempt()
        assert owner.coordinator.get_ratified_commits(table_id).latest_version == 1


def content_that_is_not_that_of_the_proposal_is_rejected(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        entry = create(owner)
        owner.access.enable_grants()
        owner.access.grant([Privilege.OWN], str(NAME), principal_of(writer))
        for one in other_content(1):
            with pytest.raises(CommitRejectedError, match="and its content says"):
                writer.coordinator.commit(entry.table_id, one)
        assert owner.registry.load_table(NAME).ratified.latest_version == 0


def the_definition_is_that_of_the_content_or_is_forgotten(bench: Bench) -> None:
    """A principal that does not own the table cannot report another schema than the one that it commits."""
    writer_features = ("catalogManaged", "inCommitTimestamp", "appendOnly")
    features = {"readerFeatures": ["catalogManaged"], "writerFeatures": writer_features}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    forged = metadata("forged")
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        table_id = defined(owner).table_id
        owner.access.enable_grants()
        owner.access.grant([Privilege.MODIFY, Privilege.ALTER], str(NAME), principal_of(writer))
        beside = replace(commit_of(1, protocol), metadata=forged)
        beside = replace(beside, protocol=replace(PROTOCOL, writer_features=writer_features))
        assert isinstance(writer.coordinator.commit(table_id, beside), Ratified)
        stored = owner.registry.load_table(NAME).definition
        assert stored is not None and stored.metadata == metadata("id") and stored.protocol == beside.protocol
        unseen = replace(
            commit_of(2, ADD, mode=CommitMode.STAGED), content=None, content_to_check=None, metadata=forged
        )
        assert isinstance(writer.coordinator.commit(table_id, unseen), Ratified)
        assert owner.registry.load_table(NAME).definition is None
        stated = replace(commit_of(3, ADD, mode=CommitMode.STAGED), content=None, content_to_check=None)
        owner.coordinator.commit(table_id, replace(stated, metadata=metadata("id"), protocol=PROTOCOL))
        assert owner.registry.load_table(NAME).definition is not None, "an owner states it"


def a_report_of_publication_keeps_the_only_copy(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        table_id = create(owner).table_id
        owner.access.enable_grants()
        owner.access.grant([Privilege.APPEND], str(NAME), principal_of(writer))
        for version in (1, 2):
            assert isinstance(writer.coordinator.commit(table_id, commit_of(version, ADD)), Ratified)
        staged = replace(commit_of(3, ADD, mode=CommitMode.STAGED), content=None)
        assert isinstance(writer.coordinator.commit(table_id, replace(staged, published_version=1)), Ratified)
        writer.coordinator.set_published_version(table_id, 2)
        records = owner.coordinator.commit_records(table_id, start=1, end=2)
        assert [one.content is not None for one in records] == [True, True]
        owner.coordinator.set_published_version(table_id, 3)
        assert [one.content for one in owner.coordinator.commit_records(table_id, start=1, end=2)] == [None, None]


def a_lease_belongs_to_the_principal_that_acquired_it(bench: Bench) -> None:
    """Who knows the owner and the token of a lease neither extends nor ends it."""
    kind = MaintenanceKind.DATA_REORGANIZATION
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id = create(owner).table_id
        owner.access.enable_grants()
        for client in (ana, bob):
            owner.access.grant([Privilege.APPEND], str(NAME), principal_of(client))
        lease = ana.leases.acquire_maintenance_lease(table_id, kind, owner="run", duration_ms=1000)
        assert isinstance(lease, LeaseGranted)
        held = LeaseHeldByAnother(owner="run", kind=kind, expires_ms=lease.expires_ms)
        assert bob.leases.acquire_maintenance_lease(table_id, kind, owner="run", duration_ms=2000) == held
        assert bob.leases.renew_lease(table_id, token=lease.token, duration_ms=2000) == LeaseLost(
            token=lease.token, holder=held
        )
        bob.leases.release_maintenance_lease(table_id, owner="run")
        with pytest.raises(PermissionDeniedError, match="privilege maintain"):
            bob.leases.expire_lease(table_id, owner="run")
        assert ana.leases.check_lease(table_id, token=lease.token) == lease
        assert isinstance(ana.leases.renew_lease(table_id, token=lease.token, duration_ms=2000), LeaseGranted)
        ana.leases.release_maintenance_lease(table_id, owner="run")
        assert isinstance(
            bob.leases.acquire_maintenance_lease(table_id, kind, owner="run", duration_ms=1), LeaseGranted
        )


def a_reader_moves_its_own_pins_alone(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer, bench.client_of("reader") as reader:
        table_id = create(owner).table_id
        for version in (1, 2):
            owner.coordinator.commit(table_id, proposal(version))
        owner.access.enable_grants()
        owner.access.grant([Privilege.APPEND], str(NAME), principal_of(writer))
        owner.access.grant([Privilege.READ], str(NAME), principal_of(reader))
        for client in (writer, reader):
            assert client.pins.pin_version(table_id, 0, owner="run") == 0
        assert reader.pins.raise_pinned_version(table_id, 1, owner="run") == 1
        assert writer.pins.pinned_version(table_id, owner="run") == 0
        assert (
            writer.pins.raise_pinned_version(table_id, 2, owner="run")
            == 2
            == reader.pins.pinned_version(table_id, owner="run")
        )


def another_principal_gets_a_request_of_its_own(bench: Bench) -> None:
    waits = CommitRule(scope="main", name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.APPROVAL)
    with bench.client_of("owner") as owner, bench.client_of("ana") as ana, bench.client_of("bob") as bob:
        table_id = create(owner).table_id
        owner.commit_rules.set_commit_rule(waits)
        owner.access.enable_grants()
        found = []
        for client in (ana, bob, ana):
            owner.access.grant([Privilege.MODIFY], str(NAME), principal_of(client))
            found.append(hold_one(client, table_id, commit_of(1, REMOVE), app_id="job", app_version=1))
        assert found[0] is not None and found[0] == found[2] != found[1]
        assert ana.holds.holds() == (found[0],) and bob.holds.holds() == (found[1],)


def a_commit_without_its_content_requires_modify_and_alter(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        entry = create(owner)
        owner.access.enable_grants()
        name = principal_of(writer)
        owner.access.grant([Privilege.READ], str(NAME), name)
        with pytest.raises(CommitRefusedError, match="the privileges modify and alter on"):
            writer.coordinator.commit(entry.table_id, proposal(1))
        owner.access.grant([Privilege.MODIFY], str(NAME), name)
        with pytest.raises(CommitRefusedError, match="the privilege alter on"):
            writer.coordinator.commit(entry.table_id, proposal(1))
        false = replace(proposal(1), content_to_check=b"{}\n", sha256="0" * 64)
        with pytest.raises(CommitRejectedError):
            writer.coordinator.commit(entry.table_id, false)
        assert owner.registry.load_table(NAME).ratified.latest_version == 0
        owner.access.grant([Privilege.ALTER], str(NAME), name)
        assert isinstance(writer.coordinator.commit(entry.table_id, proposal(1)), Ratified)


def a_grant_on_a_wide_scope_applies_to_later_tables(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        owner.access.enable_grants()
        owner.access.grant([Privilege.APPEND], "main.sales", principal_of(writer))
        entry, hidden = create(owner), create(owner, STAFF)
        assert isinstance(writer.coordinator.commit(entry.table_id, commit_of(1, ADD)), Ratified)
        with pytest.raises(UNREADABLE):
            writer.registry.load_table_by_id(hidden.table_id)
        owner.access.grant([Privilege.READ], "*", principal_of(writer))
        assert writer.registry.load_table(STAFF).table_id == hidden.table_id
        with pytest.raises(CommitRefusedError):
            writer.coordinator.commit(hidden.table_id, commit_of(1, ADD))


def a_grant_on_a_table_belongs_to_its_id(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        entry = create(owner)
        owner.access.enable_grants()
        owner.access.grant([Privilege.APPEND], str(NAME), principal_of(writer))
        owner.registry.rename_table(entry.table_id, OTHER)
        create(owner, NAME)
        assert writer.registry.load_table(OTHER).table_id == entry.table_id
        with pytest.raises(UNREADABLE):
            writer.registry.load_table(NAME)
        assert [(one.scope, one.table_id) for one in owner.access.grants(str(OTHER)) if one.scope != "*"] == [
            (str(OTHER), entry.table_id)
        ]


def members_of_roles_of_roles_have_their_privileges(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        entry = create(owner)
        owner.access.enable_grants()
        name = principal_of(writer)
        owner.access.add_to_role("loaders", [name])
        owner.access.add_to_role("pipelines", ["loaders"])
        owner.access.grant([Privilege.APPEND], "main", "pipelines")
        assert writer.access.whoami().roles == ("loaders", "pipelines")
        assert isinstance(writer.coordinator.commit(entry.table_id, commit_of(1, ADD)), Ratified)
        for role in ("loaders", "pipelines"):
            with pytest.raises(InvalidArgumentError, match="member of itself"):
                owner.access.add_to_role("loaders", [role])
        owner.access.remove_from_role("loaders", [name])
        with pytest.raises((CommitRefusedError, TableNotFoundError)):
            writer.coordinator.commit(entry.table_id, commit_of(2, ADD))
        assert owner.access.roles() == (Role(name="loaders"), Role(name="pipelines", members=("loaders",)))
        owner.access.drop_role("pipelines")
        assert owner.access.grants("main.sales") == tuple(one for one in owner.access.grants() if one.scope == "*")


def a_user_named_like_a_role_gains_nothing(bench: Bench) -> None:
    """Principals and roles are two namespaces. A name alone is that of the role, and ``user:`` before it that of the user."""
    rule = CommitRule(
        scope="main", name="columns", kind=CommitRuleKind.SCHEMA_CHANGE, arguments={"principals": ("loaders",)}
    )
    kind, only = MaintenanceKind.DATA_CLEANUP, MaintenanceConditions(principals=("loaders",))
    with bench.client_of("owner") as owner, bench.client_of("loaders") as named_alike, bench.client_of("ana") as ana:
        table_id = create(owner).table_id
        owner.access.grant([Privilege.READ], str(NAME), "loaders")
        owner.access.add_to_role("loaders", ["ana"])
        owner.commit_rules.set_commit_rule(rule)
        owner.maintenance_policies.set_maintenance_rule(
            MaintenanceRule(scope="main", kind=kind, allowed=True, conditions=only)
        )
        owner.access.enable_grants()
        assert [(one.grantee, one.privilege) for one in owner.access.grants(str(NAME)) if one.scope != "*"] == [
            ("user:loaders", Privilege.READ)
        ], "it was granted to the user, before there was a role"
        owner.access.grant([Privilege.MODIFY, Privilege.ALTER, Privilege.MAINTAIN], str(NAME), "loaders")
        assert named_alike.access.whoami().roles == () and ana.access.whoami().roles == ("loaders",)
        assert named_alike.registry.load_table(NAME).table_id == table_id, "its own grant"
        with pytest.raises(CommitRefusedError, match="does not have the privilege append"):
            named_alike.coordinator.commit(table_id, commit_of(1, ADD))
        assert isinstance(ana.coordinator.commit(table_id, commit_of(1, ADD)), Ratified)
        owner.access.grant([Privilege.MODIFY, Privilege.ALTER, Privilege.MAINTAIN], str(NAME), "user:loaders")
        changed = case_of("metadata")
        with pytest.raises(CommitRefusedError, match="changes the schema as loaders"):
            named_alike.coordinator.commit(table_id, changed.proposal(2))
        assert isinstance(ana.coordinator.commit(table_id, changed.proposal(2)), Ratified)
        assert not named_alike.maintenance_policies.maintenance_decision(NAME, kind, table_id=table_id).allowed
        assert ana.maintenance_policies.maintenance_decision(NAME, kind, table_id=table_id).allowed
        assert owner.commit_rules.commit_rules()[0].arguments == rule.arguments
        assert owner.maintenance_policies.maintenance_rules()[0].conditions == only
        owner.access.transfer_table(table_id, "role:loaders")
        assert owner.access.table_owner(table_id) == "loaders"
        with pytest.raises(PermissionDeniedError):
            named_alike.registry.drop_table(NAME)
        owner.access.add_to_role("others", ["user:loaders"])
        assert owner.access.roles() == (
            Role(name="loaders", members=("ana",)),
            Role(name="others", members=("user:loaders",)),
        )
        assert ana.access.whoami().roles == ("loaders",) and named_alike.access.whoami().roles == ("others",)
        for unknown in ("role:", "user:"):
            with pytest.raises(InvalidArgumentError, match="names no principal and no role"):
                owner.access.grant([Privilege.READ], "main", unknown)
        owner.registry.drop_table(NAME)
        with pytest.raises(InvalidArgumentError, match="it owns the table"):
            owner.access.drop_role("loaders")  # A caller that states the role could bring the table back.
        owner.registry.undrop_table(table_id)
        owner.access.transfer_table(table_id, "ana")
        owner.access.drop_role("loaders")
        assert ana.access.whoami().roles == () and owner.access.grants(str(NAME)) != ()
        assert {one.grantee for one in owner.access.grants(str(NAME)) if one.scope != "*"} == {"loaders"}, "the user's"


def a_user_whose_name_looks_like_that_of_a_role_is_a_user(bench: Bench) -> None:
    with (
        bench.client_of("owner") as owner,
        bench.client_of("role:loaders") as posing,
        bench.client_of("user:ana") as ana,
    ):
        table_id = create(owner).table_id
        owner.access.add_to_role("loaders", ["ana"])
        owner.access.enable_grants()
        owner.access.grant([Privilege.OWN], "main", "loaders")
        for client in (posing, ana):
            assert client.access.whoami().roles == ()
            with pytest.raises(CommitRefusedError):
                client.coordinator.commit(table_id, commit_of(1, ADD))
        owner.access.grant([Privilege.APPEND], "main", "user:role:loaders")
        assert isinstance(posing.coordinator.commit(table_id, commit_of(1, ADD)), Ratified)
        assert {one.grantee for one in owner.access.grants("main")} == {"loaders", "owner", "user:role:loaders"}


def a_role_without_an_entry_gets_grants_by_its_prefix(bench: Bench) -> None:
    """An identity provider may name it. A principal of that name gains nothing, and members that it gets later have the grants."""
    with bench.client_of("owner") as owner, bench.client_of("analysts") as named_alike:
        create(owner)
        owner.access.grant([Privilege.READ], str(NAME), "role:analysts")
        owner.access.enable_grants()
        assert owner.access.roles() == ()
        assert [one.grantee for one in owner.access.grants(str(NAME))] == ["owner", "role:analysts"]
        with pytest.raises(UNREADABLE):
            named_alike.registry.load_table(NAME)
        owner.access.add_to_role("analysts", ["user:analysts"])
        assert [one.grantee for one in owner.access.grants(str(NAME))] == ["owner", "analysts"]
        assert named_alike.registry.load_table(NAME).identifier == NAME
        owner.access.revoke([Privilege.READ], str(NAME), "role:analysts")
        with pytest.raises(UNREADABLE):
            named_alike.registry.load_table(NAME)


def everybody_is_a_member_of_public(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        create(owner)
        owner.access.enable_grants()
        owner.access.grant([Privilege.READ], str(NAME), "public")
        assert writer.registry.load_table(NAME).identifier == NAME
        with pytest.raises(InvalidArgumentError, match="role of everybody"):
            owner.access.add_to_role("public", ["x"])


def a_table_that_public_owns_is_everybodys(bench: Bench) -> None:
    kind = MaintenanceKind.DATA_CLEANUP
    rule = CommitRule(
        scope="main", name="columns", kind=CommitRuleKind.SCHEMA_CHANGE, arguments={"principals": ("public",)}
    )
    for_public = MaintenanceConditions(principals=("public",))
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        table_id = create(owner).table_id
        owner.commit_rules.set_commit_rule(rule)
        owner.maintenance_policies.set_maintenance_rule(
            MaintenanceRule(scope="main", kind=kind, allowed=True, conditions=for_public)
        )
        owner.access.enable_grants()
        owner.access.transfer_table(table_id, "public")
        assert writer.access.whoami().roles == ()
        assert isinstance(writer.coordinator.commit(table_id, commit_of(1, REMOVE)), Ratified)
        line = encode_action(metadata("id", "name"))
        changed = commit_of(2, json.loads(line))
        assert changed.content is not None
        content = changed.content.replace(json.dumps(json.loads(line)).encode(), line.encode())
        one = replace(of_bytes(changed, content), metadata=metadata("id", "name"), protocol=PROTOCOL)
        assert isinstance(writer.coordinator.commit(table_id, one), Ratified)
        assert writer.maintenance_policies.maintenance_decision(NAME, kind, table_id=table_id).allowed


def the_owner_of_a_table_may_do_everything_with_it(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        entry = create(owner)
        owner.access.enable_grants()
        owner.access.transfer_table(entry.table_id, principal_of(writer), reason="handed over")
        assert writer.access.table_owner(entry.table_id) == principal_of(writer)
        assert isinstance(writer.coordinator.commit(entry.table_id, commit_of(1, REMOVE, DOMAIN)), Ratified)
        last = owner.audit_log.audit()[-1]
        assert (last.action, last.before, last.after, last.reason) == (
            "transfer ownership",
            principal_of(owner),
            principal_of(writer),
            "handed over",
        )


def without_a_privilege_nothing_but_reading_works(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("reader") as reader:
        entry = create(owner)
        owner.access.enable_grants()
        name = principal_of(reader)
        owner.access.grant([Privilege.READ], str(NAME), name)
        assert reader.registry.load_table(NAME) == reader.registry.load_table_by_id(entry.table_id)
        assert reader.pins.pin_version(entry.table_id, 0, owner="run") == 0
        before = owner.registry.load_table(NAME), owner.access.grants(), owner.registry.list_tables()
        rule = MaintenanceRule(scope=str(NAME), kind=MaintenanceKind.DATA_CLEANUP, allowed=True)
        for refused in (
            lambda: reader.registry.drop_table(NAME),
            lambda: reader.registry.rename_table(entry.table_id, OTHER),
            lambda: reader.registry.create_staging_table(OTHER),
            lambda: reader.commit_policies.set_commit_policy(CommitPolicyRule(scope="main", policy=CommitPolicy())),
            lambda: reader.commit_policies.change_commit_policy(entry.table_id, None),
            lambda: reader.maintenance_policies.set_maintenance_rule(rule),
            lambda: reader.coordinator.set_published_version(entry.table_id, 0),
            lambda: reader.registry.register_path(OTHER, "s3://b/x"),
            lambda: reader.recovery.check_adoption(OTHER, location="memory://warehouse/other"),
            lambda: reader.recovery.check_release(entry.table_id),
            lambda: reader.commit_policies.begin_release(entry.table_id),
            lambda: reader.recovery.release_table(entry.table_id),
            lambda: reader.recovery.relocate_table(entry.table_id, location="memory://x", moved_from=entry.location),
            lambda: reader.access.grant([Privilege.OWN], str(NAME), name),
            lambda: reader.access.revoke([Privilege.READ], str(NAME), name),
            lambda: reader.access.add_to_role("owners", [name]),
            lambda: reader.access.transfer_table(entry.table_id, name),
            lambda: reader.access.enable_grants(owner=name),
            lambda: reader.access.disable_grants(),
            lambda: reader.audit_log.audit(),
        ):
            with pytest.raises(PermissionDeniedError):
                refused()
        assert not reader.maintenance_policies.maintenance_decision(NAME, MaintenanceKind.DATA_CLEANUP).allowed
        assert reader.maintenance_policies.maintenance_decision(NAME, MaintenanceKind.CHECKPOINT).allowed
        assert (owner.registry.load_table(NAME), owner.access.grants(), owner.registry.list_tables()) == before
        refusals = [one for one in owner.audit_log.audit() if one.outcome is AuditOutcome.REFUSED]
        assert len(refusals) > 5 and {one.principal for one in refusals} == {name}


def tables_that_are_committed_together_are_refused_together(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        first, second = create(owner), create(owner, STAFF)
        owner.access.enable_grants()
        name = principal_of(writer)
        owner.access.grant([Privilege.APPEND], "main.sales", name)
        owner.access.grant([Privilege.READ], "main", name)
        both = {first.table_id: commit_of(1, ADD), second.table_id: commit_of(1, ADD)}
        with pytest.raises(CommitRefusedError, match=r"main\.staff\.salaries"):
            writer.coordinator.commit_together(both)
        assert owner.registry.load_table(NAME).ratified.latest_version == 0
        owner.access.grant([Privilege.APPEND], "main", name)
        assert isinstance(writer.coordinator.commit_together(both), RatifiedTogether)


def the_last_owner_is_removed_only_on_explicit_demand(bench: Bench) -> None:
    with bench.client_of("owner") as owner:
        name = principal_of(owner)
        owner.access.add_to_role("owners", [name])
        owner.access.grant([Privilege.OWN], "*", "owners")
        owner.access.enable_grants()
        owner.access.revoke([Privilege.OWN], "*", name)
        for locking_out in (
            lambda: owner.access.revoke([Privilege.OWN], "*", "owners"),
            lambda: owner.access.remove_from_role("owners", [name]),
            lambda: owner.access.drop_role("owners"),
        ):
            with pytest.raises(InvalidArgumentError, match="No principal would own"):
                locking_out()
        assert owner.access.roles() == (Role(name="owners", members=(name,)),)
        owner.access.revoke([Privilege.OWN], "*", "owners", force=True)
        with pytest.raises(PermissionDeniedError):
            owner.access.grant([Privilege.OWN], "*", name)


def impossible_grants_change_nothing(bench: Bench) -> None:
    with bench.client_of("owner") as owner:
        create(owner)
        owner.access.enable_grants()
        before = owner.access.grants(), owner.access.roles(), owner.audit_log.audit()
        for bad in (
            lambda: owner.access.grant([], "main", "ana"),
            lambda: owner.access.grant([Privilege.READ], "", "ana"),
            lambda: owner.access.grant([Privilege.READ], "main.sales.orders.x", "ana"),
            lambda: owner.access.grant([Privilege.READ], "main.a b", "ana"),
            lambda: owner.access.grant([Privilege.READ], "main", ""),
            lambda: owner.access.grant([Privilege.READ], "main", " ana"),
            lambda: owner.access.grant([Privilege.READ], "main", "a\nb"),
            lambda: owner.access.grant([Privilege.READ], "main", "x" * 500),
            lambda: owner.access.revoke([Privilege.READ], "main", "ana"),
            lambda: owner.access.revoke([Privilege.READ], str(NAME), "ana"),
            lambda: owner.access.add_to_role("", ["ana"]),
            lambda: owner.access.add_to_role("role", []),
            lambda: owner.access.add_to_role("role", ["role"]),
            lambda: owner.access.remove_from_role("role", ["ana"]),
            lambda: owner.access.drop_role("role"),
            lambda: owner.audit_log.audit(limit=0),
            lambda: owner.access.grants("a.b.c.d"),
        ):
            with pytest.raises(InvalidArgumentError):
                bad()
        for missing in (
            lambda: owner.access.grant([Privilege.READ], "main.sales.none", "ana"),
            lambda: owner.access.transfer_table("none", "ana"),
        ):
            with pytest.raises(TableNotFoundError):
                missing()
        assert (owner.access.grants(), owner.access.roles(), owner.audit_log.audit()) == before


def put_if_absent_and_grants_exclude_each_other(bench: Bench) -> None:
    by_creation = CommitPolicy(kind=CommitPolicyKind.PUT_IF_ABSENT)
    with bench.client_of("owner") as owner:
        entry = create(owner)
        owner.commit_policies.change_commit_policy(entry.table_id, by_creation)
        with pytest.raises(InvalidArgumentError, match="put-if-absent"):
            owner.access.enable_grants()
        assert not owner.access.whoami().grants_enabled
        owner.commit_policies.change_commit_policy(entry.table_id, None)
    with bench.client_of("owner") as owner:
        other = create(owner, OTHER)
        owner.registry.drop_table(NAME)
        owner.access.enable_grants()
        with pytest.raises(InvalidArgumentError, match="put_if_absent"):
            owner.commit_policies.change_commit_policy(other.table_id, by_creation)
        with pytest.raises(InvalidArgumentError, match="put_if_absent"):
            owner.commit_policies.set_commit_policy(CommitPolicyRule(scope="main", policy=by_creation))
        owner.recovery.check_adoption(NAME, location="memory://warehouse/orders")
        owner.recovery.check_release(other.table_id)
        assert owner.commit_policies.begin_release(other.table_id) is PolicyChange.DONE
        assert owner.registry.load_table(OTHER).ratified.commit_policy == by_creation
        with pytest.raises(InvalidArgumentError, match=r"put-if-absent.*enforces grants"):
            owner.registry.undrop_table(entry.table_id)
        assert owner.registry.list_tables("main.sales") == (OTHER,)


def a_request_is_seen_by_its_writer_and_by_maintainers(bench: Bench) -> None:
    waits = CommitRule(scope="main", name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.APPROVAL)
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        table_id = create(owner).table_id
        owner.commit_rules.set_commit_rule(waits)
        owner.access.enable_grants()
        owner.access.grant([Privilege.MODIFY], str(NAME), principal_of(writer))
        found = hold_one(owner, table_id, commit_of(1, REMOVE))
        assert found is not None and owner.holds.holds() == (found,)
        assert writer.holds.holds() == ()
        with pytest.raises(InvalidArgumentError, match="no hold"):
            writer.holds.held_proposals(found.hold_id)
        owner.access.grant([Privilege.MAINTAIN], str(NAME), principal_of(writer))
        assert writer.holds.holds("main.sales") == (found,)
        assert writer.holds.held_proposals(found.hold_id)[0].content is not None


def every_change_and_refusal_is_in_the_audit(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        entry = create(owner)
        owner.access.enable_grants()
        name = principal_of(writer)
        owner.access.grant([Privilege.APPEND], str(NAME), name, reason="nightly load")
        owner.access.grant([Privilege.APPEND], str(NAME), name)
        with pytest.raises(CommitRefusedError):
            writer.coordinator.commit(entry.table_id, commit_of(1, REMOVE))
        owner.access.revoke([Privilege.APPEND], str(NAME), name, reason="stopped")
        found = owner.audit_log.audit(scope="main")
        assert [(one.action, one.outcome, one.principal) for one in found] == [
            ("grant", AuditOutcome.DONE, principal_of(owner)),
            ("commit", AuditOutcome.REFUSED, name),
            ("revoke", AuditOutcome.DONE, principal_of(owner)),
        ]
        assert (found[0].before, found[0].after, found[0].reason) == (None, f"append to {name}", "nightly load")
        assert "does not have the privilege modify" in found[1].reason and found[1].table_id == entry.table_id
        assert (found[2].before, found[2].after) == (f"append to {name}", None)
        assert [one.entry_id for one in owner.audit_log.audit(after=found[0].entry_id)] == [
            one.entry_id for one in found[1:]
        ]
        assert owner.audit_log.audit(scope="main.staff") == ()
        everything = owner.audit_log.audit()
        assert (
            owner.audit_log.audit(limit=2) == everything[-2:]
            and owner.audit_log.audit(scope="main", limit=2) == found[-2:]
        )
        assert owner.audit_log.audit(outcome=AuditOutcome.REFUSED, limit=1) == found[1:2]
        assert owner.audit_log.audit(scope="main", before=found[2].entry_id, limit=1) == found[1:2]
        assert owner.audit_log.audit(outcome=AuditOutcome.REFUSED, before=found[1].entry_id) == ()
        assert owner.audit_log.audit(after=0, limit=2) == everything[:2]


ACCESS_CONTROL_CONTRACT: tuple[Rule, ...] = (
    grants_are_off_until_enabled,
    a_commit_requires_what_its_content_does,
    a_caller_without_read_gets_no_commit,
    content_that_is_not_that_of_the_proposal_is_rejected,
    the_definition_is_that_of_the_content_or_is_forgotten,
    a_report_of_publication_keeps_the_only_copy,
    a_lease_belongs_to_the_principal_that_acquired_it,
    a_reader_moves_its_own_pins_alone,
    another_principal_gets_a_request_of_its_own,
    a_commit_without_its_content_requires_modify_and_alter,
    a_grant_on_a_wide_scope_applies_to_later_tables,
    a_grant_on_a_table_belongs_to_its_id,
    members_of_roles_of_roles_have_their_privileges,
    a_user_named_like_a_role_gains_nothing,
    a_user_whose_name_looks_like_that_of_a_role_is_a_user,
    a_role_without_an_entry_gets_grants_by_its_prefix,
    everybody_is_a_member_of_public,
    a_table_that_public_owns_is_everybodys,
    the_owner_of_a_table_may_do_everything_with_it,
    without_a_privilege_nothing_but_reading_works,
    tables_that_are_committed_together_are_refused_together,
    the_last_owner_is_removed_only_on_explicit_demand,
    impossible_grants_change_nothing,
    put_if_absent_and_grants_exclude_each_other,
    a_request_is_seen_by_its_writer_and_by_maintainers,
    every_change_and_refusal_is_in_the_audit,
)
