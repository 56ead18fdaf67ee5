"""Contract of ``TableRegistry``: names, drop, rename, purge.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceConditions, MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.ratification import (
    Ratified,
)
from cm_delta_dagster.catalog.tables import InactiveState, TableEntry, TableIdentifier
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    MaintenanceNotPermittedError,
    PurgeRefusedError,
    RetentionTooShortError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from tests.contracts.catalog_bench import NAME, OTHER, Bench, Rule, allow_purge, create, proposal, summary


@pytest.mark.requirements("CM-D1", "CM-D3", "CM-D5")
def a_reserved_table_cannot_be_resolved_until_it_is_registered(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as other:
        staging = catalog.registry.create_staging_table(NAME)
        assert not staging.location.endswith("/") and "%" not in staging.location
        with pytest.raises(TableNotFoundError):
            other.registry.load_table(NAME)
        with pytest.raises(TableNotFoundError):
            other.coordinator.commit(staging.table_id, proposal(1))
        with pytest.raises(TableNotFoundError):
            other.coordinator.get_ratified_commits(staging.table_id)
        assert other.registry.list_tables() == ()
        entry = catalog.registry.register_table(staging.table_id, NAME, summary=summary(1000))
        assert other.registry.load_table(NAME) == entry
        assert (entry.table_id, entry.location) == (staging.table_id, staging.location)
        assert (entry.ratified.latest_version, entry.ratified.published_version, entry.ratified.commits) == (0, 0, ())
        assert entry.created_ms == bench.clock.now


@pytest.mark.requirements("CM-D1")
def reservations_have_unique_ids_and_locations(bench: Bench) -> None:
    with bench.client() as catalog, ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: catalog.registry.create_staging_table(NAME), range(40)))
    assert len({staging.location for staging in made}) == len({staging.table_id for staging in made}) == 40


@pytest.mark.requirements("CM-D3")
def one_of_concurrent_registrations_gets_the_name(bench: Bench) -> None:
    with bench.client() as catalog:
        made = [catalog.registry.create_staging_table(NAME) for _ in range(8)]

        def register(table_id: str) -> TableEntry | None:
            try:
                return catalog.registry.register_table(table_id, NAME, summary=summary(1000))
            except TableAlreadyExistsError:
                return None

        with ThreadPoolExecutor(8) as threads:
            entries = [entry for entry in threads.map(register, [staging.table_id for staging in made]) if entry]
        assert len(entries) == 1 and catalog.registry.load_table(NAME) == entries[0]
        assert catalog.feed.latest_feed_position() == 1
        with pytest.raises(TableAlreadyExistsError, match=r"main\.sales\.orders"):
            catalog.registry.create_staging_table(NAME)


@pytest.mark.requirements("CM-D3")
def a_repeated_registration_returns_the_entry(bench: Bench) -> None:
    with bench.client() as catalog:
        entry = create(catalog)
        assert catalog.registry.register_table(entry.table_id, NAME, summary=summary(9)) == entry
        assert len(catalog.feed.feed(after=0, limit=10)) == 1
        with pytest.raises(TableAlreadyExistsError):
            catalog.registry.register_table(
                entry.table_id, TableIdentifier("main", "sales", "other"), summary=summary(9)
            )
        with pytest.raises(TableNotFoundError):
            catalog.registry.register_table(str(uuid.uuid4()), NAME, summary=summary(9))


@pytest.mark.requirements("CM-D6", "CM-D8")
def clients_of_a_dropped_table_do_not_reach_its_successor(bench: Bench) -> None:
    with bench.client() as catalog:
        old = create(catalog)
        assert isinstance(catalog.coordinator.commit(old.table_id, proposal(1)), Ratified)
        catalog.registry.drop_table(NAME)
        with pytest.raises(TableNotFoundError):
            catalog.registry.load_table(NAME)
        with pytest.raises(TableNotFoundError):
            catalog.registry.drop_table(NAME)
        new = create(catalog)
        assert new.table_id != old.table_id and new.location != old.location
        for stale in (
            lambda: catalog.coordinator.commit(old.table_id, proposal(2)),
            lambda: catalog.coordinator.get_ratified_commits(old.table_id),
            lambda: catalog.coordinator.set_published_version(old.table_id, 1),
            lambda: catalog.leases.acquire_maintenance_lease(
                old.table_id, MaintenanceKind.CHECKPOINT, owner="a", duration_ms=1
            ),
            lambda: catalog.registry.register_table(old.table_id, NAME, summary=summary(1)),
        ):
            with pytest.raises(TableNotFoundError):
                stale()
        assert catalog.registry.load_table(NAME) == new


@pytest.mark.requirements("CM-D8")
def a_drop_by_id_does_not_drop_another_table_of_that_name(bench: Bench) -> None:
    with bench.client() as catalog:
        old = create(catalog)
        catalog.registry.drop_table(NAME, table_id=old.table_id)
        catalog.registry.drop_table(NAME, table_id=old.table_id)
        new = create(catalog)
        catalog.registry.drop_table(NAME, table_id=old.table_id)
        with pytest.raises(TableNotFoundError):
            catalog.registry.drop_table(NAME, table_id=str(uuid.uuid4()))
        assert catalog.registry.load_table(NAME) == new


@pytest.mark.requirements("CM-D6", "CM-D8")
def undrop_restores_all_commits_and_requires_a_free_name(bench: Bench) -> None:
    with bench.client() as catalog:
        catalog.coordinator.set_published_version(create(catalog).table_id, 0)
        old = catalog.registry.load_table(NAME)
        assert isinstance(catalog.coordinator.commit(old.table_id, proposal(1)), Ratified)
        before = catalog.registry.load_table(NAME)
        catalog.registry.drop_table(NAME)
        (dropped,) = catalog.registry.inactive_tables()
        assert (dropped.identifier, dropped.table_id, dropped.location) == (NAME, old.table_id, old.location)
        assert (dropped.state, dropped.since_ms) == (InactiveState.DROPPED, bench.clock.now)
        new = create(catalog)
        with pytest.raises(TableAlreadyExistsError):
            catalog.registry.undrop_table(old.table_id)
        catalog.registry.drop_table(NAME, table_id=new.table_id)
        assert catalog.registry.undrop_table(old.table_id) == before == catalog.registry.undrop_table(old.table_id)
        assert catalog.registry.load_table(NAME) == before
        assert isinstance(catalog.coordinator.commit(old.table_id, proposal(2)), Ratified)
        assert [table.table_id for table in catalog.registry.inactive_tables("main.sales")] == [new.table_id]
        assert catalog.registry.inactive_tables("main.other") == ()
        with pytest.raises(TableNotFoundError):
            catalog.registry.undrop_table(str(uuid.uuid4()))
        with pytest.raises(TableNotFoundError):
            catalog.registry.undrop_table(catalog.registry.create_staging_table(OTHER).table_id)


@pytest.mark.requirements("CM-D8")
def a_renamed_table_keeps_id_location_and_commits(bench: Bench) -> None:
    with bench.client() as catalog, bench.client() as stale:
        old = create(catalog)
        stale.registry.load_table(NAME)
        renamed = catalog.registry.rename_table(old.table_id, OTHER)
        assert renamed == catalog.registry.rename_table(old.table_id, OTHER) == catalog.registry.load_table(OTHER)
        assert (renamed.table_id, renamed.location) == (old.table_id, old.location)
        with pytest.raises(TableNotFoundError):
            catalog.registry.load_table(NAME)
        assert isinstance(stale.coordinator.commit(old.table_id, proposal(1)), Ratified)
        stale.coordinator.set_published_version(old.table_id, 1)
        new = create(catalog)
        with pytest.raises(TableAlreadyExistsError):
            catalog.registry.rename_table(old.table_id, NAME)
        with pytest.raises(TableAlreadyExistsError):
            catalog.registry.rename_table(new.table_id, OTHER)
        with pytest.raises(TableNotFoundError):
            stale.registry.drop_table(NAME, table_id=old.table_id)
        assert (catalog.registry.load_table(OTHER).ratified.latest_version, catalog.registry.load_table(NAME)) == (
            1,
            new,
        )
        with pytest.raises(InvalidArgumentError):
            catalog.registry.rename_table(old.table_id, TableIdentifier("main", "sales", "a/b"))
        catalog.registry.drop_table(OTHER)
        with pytest.raises(TableNotFoundError):
            catalog.registry.rename_table(old.table_id, TableIdentifier("main", "sales", "third"))


@pytest.mark.requirements("CM-D7", "CM-D8")
def only_tables_dropped_long_enough_ago_are_purged(bench: Bench) -> None:
    with bench.client() as catalog:
        allow_purge(catalog)
        entry = create(catalog)
        with pytest.raises(PurgeRefusedError):
            catalog.registry.begin_purge(entry.table_id, min_age_ms=0)
        catalog.registry.drop_table(NAME)
        bench.clock.now += 999
        with pytest.raises(PurgeRefusedError):
            catalog.registry.begin_purge(entry.table_id, min_age_ms=1000)
        with pytest.raises(PurgeRefusedError):
            catalog.registry.finish_purge(entry.table_id)
        bench.clock.now += 1
        purging = catalog.registry.begin_purge(entry.table_id, min_age_ms=1000)
        assert (
            purging
            == catalog.registry.begin_purge(entry.table_id, min_age_ms=1000)
            == catalog.registry.inactive_tables()[0]
        )
        assert (purging.state, purging.location, purging.registered) == (InactiveState.PURGING, entry.location, True)
        for late in (
            lambda: catalog.registry.undrop_table(entry.table_id),
            lambda: catalog.registry.register_table(entry.table_id, NAME, summary=summary(1)),
            lambda: catalog.coordinator.commit(entry.table_id, proposal(1)),
            lambda: catalog.registry.rename_table(entry.table_id, OTHER),
        ):
            with pytest.raises(TableNotFoundError):
                late()
        catalog.registry.finish_purge(entry.table_id)
        catalog.registry.finish_purge(entry.table_id)
        assert catalog.registry.inactive_tables() == ()
        with pytest.raises(TableNotFoundError):
            catalog.registry.begin_purge(entry.table_id, min_age_ms=0)
        with pytest.raises(TableNotFoundError):
            catalog.registry.undrop_table(entry.table_id)
        assert [one.table_id for one in catalog.feed.feed(after=0, limit=9)] == [entry.table_id]


def a_purge_needs_the_permission_of_the_rules(bench: Bench) -> None:
    with bench.client() as catalog:
        dropped = create(catalog)
        catalog.registry.drop_table(NAME)
        reserved = catalog.registry.create_staging_table(OTHER)
        kinds = {dropped.table_id: MaintenanceKind.TABLE_PURGE, reserved.table_id: MaintenanceKind.CREATION_PURGE}
        denied = MaintenanceRule(scope="main", kind=MaintenanceKind.CREATION_PURGE, allowed=False)
        catalog.maintenance_policies.set_maintenance_rule(denied)
        for table_id, kind in kinds.items():
            with pytest.raises(MaintenanceNotPermittedError, match=kind.value):
                catalog.registry.begin_purge(table_id, min_age_ms=0)
        aged = MaintenanceConditions(min_retention=timedelta(seconds=2))
        for kind in kinds.values():
            rule = MaintenanceRule(scope="main", kind=kind, allowed=True, conditions=aged)
            catalog.maintenance_policies.set_maintenance_rule(rule)
        bench.clock.now += 3000
        for table_id in kinds:
            with pytest.raises(RetentionTooShortError, match="2 s"):
                catalog.registry.begin_purge(table_id, min_age_ms=1999)
        states = {table.table_id: table.state for table in catalog.registry.inactive_tables()}
        assert states == {dropped.table_id: InactiveState.DROPPED, reserved.table_id: InactiveState.STAGING}
        for table_id in kinds:
            catalog.registry.begin_purge(table_id, min_age_ms=2000)
        for table_id, kind in kinds.items():  # What has begun ends, also if the rules change.
            catalog.maintenance_policies.set_maintenance_rule(replace(denied, kind=kind))
            catalog.registry.begin_purge(table_id, min_age_ms=0)
            catalog.registry.finish_purge(table_id)
        assert catalog.registry.inactive_tables() == ()


@pytest.mark.requirements("CM-D5")
def a_purged_reservation_cannot_be_registered(bench: Bench) -> None:
    with bench.client() as catalog:
        staging = catalog.registry.create_staging_table(NAME)
        (found,) = catalog.registry.inactive_tables()
        assert (found.state, found.table_id, found.registered) == (InactiveState.STAGING, staging.table_id, False)
        with pytest.raises(PurgeRefusedError):
            catalog.registry.begin_purge(staging.table_id, min_age_ms=1)
        purging = catalog.registry.begin_purge(staging.table_id, min_age_ms=0)
        assert (purging, purging.registered) == (catalog.registry.inactive_tables()[0], False)
        with pytest.raises(TableNotFoundError):
            catalog.registry.register_table(staging.table_id, NAME, summary=summary(1))
        catalog.registry.finish_purge(staging.table_id)
        assert catalog.registry.inactive_tables() == ()
        assert create(catalog).table_id != staging.table_id


@pytest.mark.requirements("CM-D7")
def one_of_concurrent_undrop_and_purge_succeeds(bench: Bench) -> None:
    with bench.client() as one, bench.client() as two:
        allow_purge(one)
        table_ids = []
        for number in range(8):
            name = TableIdentifier("main", "sales", f"t{number}")
            table_ids.append(create(one, name).table_id)
            one.registry.drop_table(name)

        def purge(table_id: str) -> bool:
            try:
                two.registry.begin_purge(table_id, min_age_ms=0)
            except PurgeRefusedError:
                return False
            return True

        def undrop(table_id: str) -> bool:
            try:
                one.registry.undrop_table(table_id)
            except TableNotFoundError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            outcomes = [(pool.submit(purge, table), pool.submit(undrop, table)) for table in table_ids]
            assert all(purged.result() != undropped.result() for purged, undropped in outcomes)


def names_that_are_not_safe_in_paths_are_refused(bench: Bench) -> None:
    with bench.client() as catalog:
        for part in ("a/b", "a b", "a%b", "..", "", "a'b", "a.b", "u\u0308", "x" * 300, "a\x00"):
            with pytest.raises(InvalidArgumentError):
                catalog.registry.create_staging_table(TableIdentifier("main", "sales", part))


def several_tables_are_loaded_with_the_versions_of_one_moment(bench: Bench) -> None:
    """Without the names that no table has; each entry is the one that ``load_table`` returns."""
    with bench.client() as catalog, bench.client() as writer:
        first, second = create(catalog), create(catalog, OTHER)
        create(catalog, TableIdentifier("main", "sales", "third"))
        writer.coordinator.commit(first.table_id, proposal(1))
        absent = TableIdentifier("main", "sales", "absent")
        entries = {entry.identifier: entry for entry in catalog.registry.load_tables((OTHER, NAME, absent, NAME))}
        assert entries == {NAME: catalog.registry.load_table(NAME), OTHER: catalog.registry.load_table(OTHER)}
        assert [entries[name].ratified.latest_version for name in (NAME, OTHER)] == [1, 0]
        assert entries[OTHER].table_id == second.table_id
        assert catalog.registry.load_tables(()) == catalog.registry.load_tables((absent,)) == ()
        rounds = 25

        def write() -> None:
            for version in range(1, rounds + 1):  # The second table is never ahead of the first one.
                writer.coordinator.commit(first.table_id, proposal(version + 1))
                writer.coordinator.commit(second.table_id, proposal(version))

        with ThreadPoolExecutor(1) as threads:
            writing = threads.submit(write)
            seen = []
            while not writing.done():
                found = {
                    entry.identifier: entry.ratified.latest_version
                    for entry in catalog.registry.load_tables((NAME, OTHER))
                }
                seen.append(found[NAME] - found[OTHER])
            writing.result()
        assert set(seen) <= {1, 2}


def a_given_location_is_reserved_once(bench: Bench) -> None:
    location = "memory://elsewhere/orders"
    with bench.client() as catalog:
        staging = catalog.registry.create_staging_table(NAME, location=location)
        assert (staging.location, staging.is_external) == (location, True)
        for other in (location, f"{location}/below", "memory://elsewhere"):
            with pytest.raises(TableAlreadyExistsError, match="is not free for another table"):
                catalog.registry.create_staging_table(OTHER, location=other)
        catalog.registry.register_table(staging.table_id, NAME, summary=summary(1000))
        catalog.registry.drop_table(NAME)
        with pytest.raises(PurgeRefusedError, match="did not choose its location"):
            catalog.registry.begin_purge(staging.table_id, min_age_ms=0)
        with pytest.raises(TableAlreadyExistsError, match="dropped"):
            catalog.registry.create_staging_table(OTHER, location=location)


def a_table_of_the_warehouse_is_not_put_below_one_at_a_given_location(bench: Bench) -> None:
    with bench.client() as catalog:
        of_catalog = catalog.registry.create_staging_table(NAME).location.rsplit("/", 2)[0]
        catalog.registry.create_staging_table(OTHER, location=f"{of_catalog}/raw")
        with pytest.raises(TableAlreadyExistsError, match="is not free for another table"):
            catalog.registry.create_staging_table(TableIdentifier("main", "raw", "t"))


def a_given_location_has_one_spelling(bench: Bench) -> None:
    with bench.client() as catalog:
        for spelling in (
            "memory://b//x",
            "memory://b/y/../x",
            "memory://b/x/",
            "memory://b/./x",
            "s3a://b/x",
            "MEMORY://b/x",
        ):
            with pytest.raises(InvalidArgumentError, match="another spelling of a location"):
                catalog.registry.create_staging_table(NAME, location=spelling)
        assert catalog.registry.inactive_tables() == ()


def one_of_concurrent_reservations_gets_a_given_location(bench: Bench) -> None:
    with bench.client() as catalog:

        def reserve(_: int) -> bool:
            try:
                catalog.registry.create_staging_table(NAME, location="memory://elsewhere/orders")
            except TableAlreadyExistsError:
                return False
            return True

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(reserve, range(8))).count(True) == 1


def an_abandoned_reservation_of_a_given_location_is_deleted_without_files(bench: Bench) -> None:
    with bench.client() as catalog:
        staging = catalog.registry.create_staging_table(NAME, location="memory://elsewhere/orders")
        assert catalog.registry.begin_purge(staging.table_id, min_age_ms=0).is_external
        catalog.registry.finish_purge(staging.table_id)
        assert catalog.registry.inactive_tables() == ()
        assert (
            catalog.registry.create_staging_table(OTHER, location="memory://elsewhere/orders").location
            == staging.location
        )


TABLE_REGISTRY_CONTRACT: tuple[Rule, ...] = (
    several_tables_are_loaded_with_the_versions_of_one_moment,
    a_reserved_table_cannot_be_resolved_until_it_is_registered,
    reservations_have_unique_ids_and_locations,
    one_of_concurrent_registrations_gets_the_name,
    a_given_location_is_reserved_once,
    a_given_location_has_one_spelling,
    a_table_of_the_warehouse_is_not_put_below_one_at_a_given_location,
    one_of_concurrent_reservations_gets_a_given_location,
    an_abandoned_reservation_of_a_given_location_is_deleted_without_files,
    a_repeated_registration_returns_the_entry,
    clients_of_a_dropped_table_do_not_reach_its_successor,
    a_drop_by_id_does_not_drop_another_table_of_that_name,
    undrop_restores_all_commits_and_requires_a_free_name,
    a_renamed_table_keeps_id_location_and_commits,
    only_tables_dropped_long_enough_ago_are_purged,
    a_purge_needs_the_permission_of_the_rules,
    a_purged_reservation_cannot_be_registered,
    one_of_concurrent_undrop_and_purge_succeeds,
    names_that_are_not_safe_in_paths_are_refused,
)
