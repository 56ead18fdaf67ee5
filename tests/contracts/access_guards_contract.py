"""Contract of what a caller with a valid token and no grant is refused, beside what ``access_control_contract`` has."""

from dataclasses import replace

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.audit import AuditOutcome
from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.maintenance import LeaseGranted, LeaseLost, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql.access.audit import MAX_REFUSALS, REFUSALS_WITHIN_MS
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.errors import (
    CommitRefusedError,
    CommitRejectedError,
    InvalidArgumentError,
    MaintenanceNotPermittedError,
    PermissionDeniedError,
    TableNotFoundError,
)
from tests.contracts.access_control_contract import principal_of
from tests.contracts.catalog_bench import NAME, OTHER, Bench, Rule, create, inline, proposal, summary
from tests.support.commit_builder import ADD, REMOVE, commit_of
from tests.support.holds import hold_one

_SOURCE = TableIdentifier("main", "sales", "source")
_REFUSED = (PermissionDeniedError, TableNotFoundError)


def the_feed_is_cleaned_by_maintainers_alone(bench: Bench) -> None:
    """The catalog itself asks the rules and the grants, and the audit has its answer."""
    with bench.client_of("owner") as owner, bench.client_of("stranger") as stranger:
        create(owner)
        rule = MaintenanceRule(scope="main", kind=MaintenanceKind.FEED_CLEANUP, allowed=True)
        owner.maintenance_policies.set_maintenance_rule(rule)
        owner.access.enable_grants()
        oldest = owner.events.events(after=0, limit=1)
        bench.clock.now += 1
        with pytest.raises((MaintenanceNotPermittedError, PermissionDeniedError)):
            stranger.events.delete_old_entries(before_ms=bench.clock.now)
        denied = [entry for entry in owner.audit_log.audit() if entry.action == "maintenance"]
        assert {(entry.principal, entry.scope) for entry in denied} <= {(principal_of(stranger), "main")}
        assert owner.events.events(after=0, limit=1).events == oldest.events
        assert owner.events.delete_old_entries(before_ms=bench.clock.now)
        assert owner.events.events(after=0, limit=1).deleted_up_to > 0
        done = [entry.after for entry in owner.audit_log.audit() if entry.principal == principal_of(owner)]
        assert "FEED_CLEANUP: allowed by main" in done


def sources_are_recorded_by_those_who_may_write_and_read_them(bench: Bench) -> None:
    """A recorded source cannot be purged."""
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        table, source = create(owner), create(owner, OTHER)
        owner.access.enable_grants()

        def record() -> None:
            writer.recovery.record_sources(table.table_id, [source.location])

        with pytest.raises(_REFUSED):
            record()
        owner.access.grant([Privilege.APPEND], str(NAME), principal_of(writer))
        with pytest.raises(_REFUSED):
            record()
        owner.access.revoke([Privilege.APPEND], str(NAME), principal_of(writer))
        owner.access.grant([Privilege.READ], str(OTHER), principal_of(writer))
        with pytest.raises(_REFUSED):
            record()
        assert owner.registry.clones_of(source.table_id) == ()
        owner.access.grant([Privilege.APPEND], str(NAME), principal_of(writer))
        record()
        assert [clone.table_id for clone in owner.registry.clones_of(source.table_id)] == [table.table_id]


def a_source_of_a_readable_clone_is_recorded_with_it(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        table, clone, source = create(owner), create(owner, OTHER), create(owner, _SOURCE)
        owner.recovery.record_sources(clone.table_id, [source.location])
        owner.access.enable_grants()
        owner.access.grant([Privilege.APPEND], str(NAME), principal_of(writer))
        owner.access.grant([Privilege.READ], str(OTHER), principal_of(writer))
        with pytest.raises(_REFUSED):
            writer.recovery.record_sources(table.table_id, [source.location])
        writer.recovery.record_sources(table.table_id, [clone.location, source.location])
        assert len(owner.registry.sources_of(table.table_id)) == 2


def a_repeated_registration_answers_to_readers_alone(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("stranger") as stranger:
        table = create(owner)
        owner.access.enable_grants()
        with pytest.raises(_REFUSED):
            stranger.registry.register_table(table.table_id, NAME, summary=summary(1000))
        assert owner.registry.register_table(table.table_id, NAME, summary=summary(1000)) == table


def the_clones_and_the_digests_of_a_table_are_shown_to_its_readers(bench: Bench) -> None:
    """The content of a clone's commits is that of another table, which the caller may read or not."""
    with bench.client_of("owner") as owner, bench.client_of("reader") as reader:
        source, clone = create(owner), create(owner, OTHER)
        owner.recovery.record_sources(clone.table_id, [source.location])
        content = inline(1)
        assert isinstance(owner.coordinator.commit(clone.table_id, content), Ratified)
        owner.access.enable_grants()

        def contents() -> list[bytes | None]:
            (shown,) = reader.registry.clones_of(source.table_id)
            assert shown.ratified is not None and shown.ratified.latest_version == 1
            return [commit.content for commit in shown.ratified.commits]

        for call in (
            lambda: reader.registry.clones_of(source.table_id),
            lambda: reader.registry.sources_of(clone.table_id),
            lambda: reader.coordinator.commit_digests(clone.table_id, start=0, end=1),
            lambda: reader.coordinator.commit_digests(clone.table_id, start=7, end=9),
        ):
            with pytest.raises(PermissionDeniedError, match="the privilege read"):
                call()
        owner.access.grant([Privilege.READ], str(NAME), principal_of(reader))
        assert contents() == [None]
        owner.access.grant([Privilege.READ], str(OTHER), principal_of(reader))
        assert contents() == [content.content]
        assert set(reader.coordinator.commit_digests(clone.table_id, start=0, end=1)) == {1}
        assert [table.table_id for table in reader.registry.sources_of(clone.table_id)] == [source.table_id]


def the_places_of_tables_are_shown_to_those_with_a_table(bench: Bench) -> None:
    """Who exports or purges must see each table that is in the way, also one that it may not read; a stranger sees none."""
    with bench.client_of("owner") as owner, bench.client_of("caller") as caller:
        create(owner)
        hidden = owner.registry.create_staging_table(OTHER, location="memory://elsewhere/hidden")
        owner.registry.register_table(hidden.table_id, OTHER, summary=summary(1000))
        content = inline(1)
        assert isinstance(owner.coordinator.commit(hidden.table_id, content), Ratified)
        owner.access.enable_grants()
        with pytest.raises(PermissionDeniedError, match="locate tables"):
            caller.recovery.overlapping_tables(hidden.location)
        with pytest.raises(PermissionDeniedError, match="privilege alter"):
            caller.recovery.tables_with_files_elsewhere()
        owner.access.grant([Privilege.READ], str(NAME), principal_of(caller))
        (table,) = caller.recovery.overlapping_tables(hidden.location)
        assert (table.table_id, table.ratified) == (hidden.table_id, None)
        with pytest.raises(PermissionDeniedError, match="privilege alter"):
            caller.recovery.tables_with_files_elsewhere()
        owner.access.grant([Privilege.ALTER], "main.new", principal_of(caller))
        (table,) = caller.recovery.tables_with_files_elsewhere()
        assert table.ratified is not None and [commit.content for commit in table.ratified.commits] == [None]
        (table,) = owner.recovery.tables_with_files_elsewhere()
        assert table.ratified is not None and table.ratified.commits[0].content == content.content
        with pytest.raises(PermissionDeniedError):
            caller.registry.create_staging_table(_SOURCE, location=hidden.location)


def who_owns_a_table_may_locate_tables(bench: Bench) -> None:
    with bench.client_of("owner") as owner, bench.client_of("caller") as caller:
        table = create(caller)
        owner.access.enable_grants(owner=principal_of(owner))
        assert [one.table_id for one in caller.recovery.overlapping_tables(table.location)] == [table.table_id]
        owner.access.transfer_table(table.table_id, principal_of(owner))
        with pytest.raises(PermissionDeniedError):
            caller.recovery.overlapping_tables(table.location)


def refusals_do_not_fill_the_audit_and_the_feed(bench: Bench) -> None:
    """The same refusal is recorded once in a while, and of each caller a number of them."""
    kind = MaintenanceKind.DATA_CLEANUP
    with bench.client_of("owner") as owner, bench.client_of("stranger") as stranger, bench.client_of("ana") as ana:
        table_id = create(owner).table_id
        owner.access.enable_grants()

        def refusals() -> int:
            entries = owner.audit_log.audit(after=0, limit=10_000)
            recorded = [entry for entry in entries if entry.outcome is AuditOutcome.REFUSED]
            events = owner.events.events(after=0, limit=10_000).events
            assert len(recorded) == len([one for one in events if one.kind is FeedKind.PROPOSAL_REFUSED])
            return len(recorded)

        def ask(client: Catalog, number: int) -> None:
            name = TableIdentifier("main", "sales", f"t{number}")
            assert not client.maintenance_policies.authorize_maintenance(name, kind).allowed

        for _ in range(3):
            assert not stranger.maintenance_policies.authorize_maintenance(NAME, kind, table_id=table_id).allowed
            with pytest.raises(PermissionDeniedError):
                stranger.registry.load_table(NAME)
        assert refusals() == 2
        bench.clock.now += REFUSALS_WITHIN_MS
        with pytest.raises(PermissionDeniedError):
            stranger.registry.load_table(NAME)
        assert refusals() == 3
        for number in range(MAX_REFUSALS + 5):
            ask(stranger, number)
        assert refusals() == 2 + MAX_REFUSALS
        ask(ana, 0)
        assert refusals() == 3 + MAX_REFUSALS
        bench.clock.now += REFUSALS_WITHIN_MS
        ask(stranger, MAX_REFUSALS + 5)
        assert refusals() == 4 + MAX_REFUSALS


def a_lease_is_not_renewed_by_who_may_not_write_any_more(bench: Bench) -> None:
    kind = MaintenanceKind.DATA_REORGANIZATION
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        table_id = create(owner).table_id
        owner.access.enable_grants()
        owner.access.grant([Privilege.MAINTAIN], str(NAME), principal_of(writer))
        lease = writer.leases.acquire_maintenance_lease(table_id, kind, owner="run", duration_ms=1000)
        assert isinstance(lease, LeaseGranted)
        owner.access.revoke([Privilege.MAINTAIN], str(NAME), principal_of(writer))
        assert isinstance(writer.leases.renew_lease(table_id, token=lease.token, duration_ms=2000), LeaseLost)
        assert owner.leases.check_lease(table_id, token=lease.token) == lease
        writer.leases.release_maintenance_lease(table_id, owner="run")
        assert owner.leases.leases() == ()


def requests_are_shown_by_one_rule(bench: Bench) -> None:
    waits = CommitRule(scope="main", name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=OnViolation.APPROVAL)
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        table_id = create(owner).table_id
        owner.commit_rules.set_commit_rule(waits)
        owner.access.enable_grants()
        request = hold_one(owner, table_id, commit_of(1, REMOVE), app_id="job", app_version=3)
        assert request is not None
        for privilege in (None, Privilege.READ, Privilege.MODIFY):
            if privilege is not None:
                owner.access.grant([privilege], str(NAME), principal_of(writer))
            assert writer.holds.holds() == ()
            assert writer.holds.find_hold(table_id, app_id="job", app_version=3) is None
            with pytest.raises(InvalidArgumentError, match="no hold"):
                writer.holds.held_proposals(request.hold_id)
            with pytest.raises(_REFUSED):
                writer.holds.protected_commits(table_id)
        owner.access.grant([Privilege.MAINTAIN], str(NAME), principal_of(writer))
        assert writer.holds.find_hold(table_id, app_id="job", app_version=3) == request
        assert [held.hold for held in writer.holds.protected_commits(table_id)] == [request]


def a_file_time_that_no_calendar_has_is_rejected(bench: Bench) -> None:
    with bench.client() as catalog:
        table_id = create(catalog).table_id
        for time in (-1, 253_402_300_800_000, 2**62):
            with pytest.raises(CommitRejectedError, match="between the years 1970 and 9999"):
                catalog.coordinator.commit(table_id, replace(proposal(1), file_modification_time=time))


def a_commit_names_no_files_of_a_table_that_its_principal_may_not_read(bench: Bench) -> None:
    """Who reads the table would read those files. A table at a chosen location, or a clone by path, may have files elsewhere."""
    with bench.client_of("owner") as owner, bench.client_of("writer") as writer:
        secret = create(owner)
        theirs = owner.registry.create_staging_table(OTHER, location="memory://elsewhere/orders")
        owner.registry.register_table(theirs.table_id, OTHER, summary=summary(1000))
        owner.access.enable_grants()
        principal = principal_of(writer)
        owner.access.grant([Privilege.APPEND, Privilege.READ], str(OTHER), principal)
        names_files = commit_of(1, {"add": {**ADD["add"], "path": f"{secret.location}/part-0.parquet"}})
        with pytest.raises(CommitRefusedError, match=f"read on {NAME}"):
            writer.coordinator.commit(theirs.table_id, names_files)
        owner.access.grant([Privilege.READ], str(NAME), principal)
        assert isinstance(writer.coordinator.commit(theirs.table_id, names_files), Ratified)


ACCESS_GUARDS_CONTRACT: tuple[Rule, ...] = (
    a_commit_names_no_files_of_a_table_that_its_principal_may_not_read,
    the_feed_is_cleaned_by_maintainers_alone,
    sources_are_recorded_by_those_who_may_write_and_read_them,
    a_source_of_a_readable_clone_is_recorded_with_it,
    a_repeated_registration_answers_to_readers_alone,
    the_clones_and_the_digests_of_a_table_are_shown_to_its_readers,
    the_places_of_tables_are_shown_to_those_with_a_table,
    who_owns_a_table_may_locate_tables,
    refusals_do_not_fill_the_audit_and_the_feed,
    a_lease_is_not_renewed_by_who_may_not_write_any_more,
    requests_are_shown_by_one_rule,
    a_file_time_that_no_calendar_has_is_rejected,
)
