"""Contract of the catalog's methods for tables that come and go: external tables, overlaps, releases, registered paths.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

import uuid
from collections.abc import Callable

import pytest

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.commit_policy import CommitMode
from cm_delta_dagster.catalog.maintenance import LeaseGranted, MaintenanceKind
from cm_delta_dagster.catalog.ratification import CommitProposal, Ratified
from cm_delta_dagster.catalog.recovery import AdoptedState, AdoptedTable, CommitHistory
from cm_delta_dagster.catalog.tables import RecordedDefinition, TableEntry, TableIdentifier
from cm_delta_dagster.errors import PurgeRefusedError, RecoveryError, TableAlreadyExistsError, TableNotFoundError
from tests.contracts.catalog_bench import (
    NAME,
    OTHER,
    PROTOCOL,
    Bench,
    Rule,
    allow_purge,
    create,
    metadata,
    proposal,
    summary,
)

NEW = TableIdentifier("main", "sales", "new")
DROPPED = TableIdentifier("main", "sales", "dropped")
LOCATION = "memory://elsewhere/orders"


def _adopted(catalog: Catalog, *, location: str = LOCATION, name: TableIdentifier = NAME) -> TableEntry:
    """A table that was adopted at version 7."""
    first = CommitProposal(
        version=7,
        file_name=f"{7:020d}.json",
        file_size=10,
        file_modification_time=1,
        summary=summary(5000),
        mode=CommitMode.PUT_IF_ABSENT,
    )
    definition = RecordedDefinition(metadata=metadata("id"), protocol=PROTOCOL, version=7, in_commit_timestamp=5000)
    entry = catalog.recovery.adopt_table(
        AdoptedTable(
            table_id=str(uuid.uuid4()),
            identifier=name,
            location=location,
            state=AdoptedState.ACTIVE,
            history=CommitHistory(proposals=(first,), published_version=7, definition=definition),
            is_external=True,
        )
    )
    assert entry is not None
    return entry


@pytest.mark.requirements("CM-C2", "CM-D8")
def an_adopted_table_begins_with_its_first_commit_and_is_never_purged(bench: Bench) -> None:
    with bench.client() as catalog:
        table = _adopted(catalog)
        assert (table.location, table.ratified.latest_version, table.ratified.published_version) == (LOCATION, 7, 7)
        assert isinstance(catalog.coordinator.commit(table.table_id, proposal(8, timestamp=6000)), Ratified)
        assert [record.version for record in catalog.coordinator.commit_records(table.table_id, start=0, end=9)] == [
            7,
            8,
        ]
        catalog.registry.drop_table(NAME)
        (dropped,) = catalog.registry.inactive_tables()
        assert dropped.is_external
        with pytest.raises(PurgeRefusedError, match="did not choose its location"):
            catalog.registry.begin_purge(table.table_id, min_age_ms=0)
        assert catalog.registry.undrop_table(table.table_id).location == LOCATION
        ours = create(catalog, OTHER)
        catalog.registry.drop_table(OTHER)
        assert [found.is_external for found in catalog.registry.inactive_tables()] == [False]
        allow_purge(catalog)
        assert catalog.registry.begin_purge(ours.table_id, min_age_ms=0).table_id == ours.table_id


@pytest.mark.requirements("CM-D5")
def tables_at_above_and_below_a_location_overlap_it(bench: Bench) -> None:
    with bench.client() as catalog:
        table = _adopted(catalog)
        for location, overlaps in (
            (LOCATION, True),
            ("memory://elsewhere", True),
            (f"{LOCATION}/deeper", True),
            (f"{LOCATION}2", False),
            ("memory://elsewhere/order", False),
        ):
            found = [(other.table_id, other.state) for other in catalog.recovery.overlapping_tables(location)]
            assert found == ([(table.table_id, None)] if overlaps else []), location
        for location in (LOCATION, f"{LOCATION}/deeper", "memory://elsewhere"):
            with pytest.raises(RecoveryError):
                _adopted(catalog, location=location, name=OTHER)


@pytest.mark.requirements("CM-D5")
def a_table_at_a_location_of_its_creators_choice_may_name_files_elsewhere(bench: Bench) -> None:
    with bench.client() as catalog:
        create(catalog, OTHER)
        assert catalog.recovery.tables_with_files_elsewhere() == ()
        table = _adopted(catalog)
        (found,) = catalog.recovery.tables_with_files_elsewhere()
        assert (found.table_id, found.location) == (table.table_id, LOCATION)
        assert (
            found.ratified is not None
            and found.ratified.latest_version == catalog.registry.load_table(NAME).ratified.latest_version
        )
        catalog.registry.drop_table(NAME)
        assert [one.table_id for one in catalog.recovery.tables_with_files_elsewhere()] == [table.table_id]


@pytest.mark.requirements("CM-D6")
def a_released_table_frees_name_and_location_and_keeps_its_commits(bench: Bench) -> None:
    with bench.client() as catalog:
        table = _adopted(catalog)
        lease = catalog.leases.acquire_maintenance_lease(
            table.table_id, MaintenanceKind.DATA_CLEANUP, owner="x", duration_ms=1000
        )
        assert isinstance(lease, LeaseGranted)
        catalog.pins.pin_version(table.table_id, 7, owner="x")
        position = catalog.feed.latest_feed_position()
        for _ in range(2):
            catalog.recovery.release_table(table.table_id)
        with pytest.raises(TableNotFoundError):
            catalog.registry.load_table(NAME)
        with pytest.raises(TableNotFoundError):
            catalog.coordinator.commit(table.table_id, proposal(8, timestamp=6000))
        with pytest.raises(TableNotFoundError):
            catalog.registry.undrop_table(table.table_id)
        assert catalog.registry.inactive_tables() == () and catalog.recovery.overlapping_tables(LOCATION) == ()
        assert [entry.table_id for entry in catalog.feed.feed(after=0, limit=9)] == [table.table_id]
        again = _adopted(catalog)
        assert again.table_id != table.table_id and catalog.feed.latest_feed_position() > position
        catalog.recovery.release_table(again.table_id)
        assert isinstance(_adopted(catalog), TableEntry)


@pytest.mark.requirements("CM-D6")
def a_table_that_others_need_is_not_released(bench: Bench) -> None:
    with bench.client() as catalog:
        table = create(catalog)
        catalog.registry.create_staging_table(OTHER, clone_of=table.table_id)
        with pytest.raises(RecoveryError, match="clones"):
            catalog.recovery.release_table(table.table_id)
        assert catalog.registry.load_table(NAME).table_id == table.table_id
        for unknown in (str(uuid.uuid4()),):
            with pytest.raises(TableNotFoundError):
                catalog.recovery.release_table(unknown)


def _is_refused_to_tables(catalog: Catalog) -> None:
    """``OTHER`` stands for a path, ``NAME`` is a table. No table gets the name ``OTHER``."""
    reserved = catalog.registry.create_staging_table(NEW)
    catalog.registry.register_path(NEW, f"{LOCATION}-new")
    catalog.registry.register_path(DROPPED, f"{LOCATION}-dropped")
    catalog.registry.unregister_path(DROPPED)
    dropped = create(catalog, DROPPED)
    catalog.registry.drop_table(DROPPED)
    catalog.registry.register_path(DROPPED, f"{LOCATION}-dropped")
    feed = catalog.feed.latest_feed_position()
    calls: tuple[Callable[[], object], ...] = (
        lambda: catalog.registry.create_staging_table(OTHER),
        lambda: catalog.registry.create_staging_table(OTHER, location="memory://given/orders"),
        lambda: catalog.registry.register_table(reserved.table_id, NEW, summary=summary(5000)),
        lambda: catalog.registry.rename_table(catalog.registry.load_table(NAME).table_id, OTHER),
        lambda: catalog.registry.undrop_table(dropped.table_id),
        lambda: _adopted(catalog, location="memory://elsewhere/others", name=OTHER),
    )
    for call in calls:
        with pytest.raises(TableAlreadyExistsError, match=r"registered for reading only.*Nothing was changed"):
            call()
    assert catalog.registry.list_tables() == (NAME,) and catalog.feed.latest_feed_position() == feed


@pytest.mark.requirements("CM-R1")
def a_registered_path_that_is_adopted_is_the_name_of_a_table(bench: Bench) -> None:
    with bench.client() as catalog:
        catalog.registry.register_path(NAME, LOCATION)
        assert _adopted(catalog).identifier == NAME
        assert catalog.registry.registered_paths() == {} and catalog.registry.list_tables() == (NAME,)


@pytest.mark.requirements("CM-R1")
def a_registered_path_is_a_name_for_reading(bench: Bench) -> None:
    with bench.client() as catalog:
        for _ in range(2):
            catalog.registry.register_path(OTHER, LOCATION)
        assert catalog.registry.registered_path(OTHER) == LOCATION and catalog.registry.registered_path(NAME) is None
        assert (
            dict(catalog.registry.registered_paths("main.sales"))
            == {OTHER: LOCATION}
            == dict(catalog.registry.registered_paths())
        )
        assert catalog.registry.registered_paths("else") == {} and catalog.registry.list_tables() == ()
        with pytest.raises(TableAlreadyExistsError, match="stands for"):
            catalog.registry.register_path(OTHER, f"{LOCATION}2")
        create(catalog)
        with pytest.raises(TableAlreadyExistsError):
            catalog.registry.register_path(NAME, LOCATION)
        _is_refused_to_tables(catalog)
        catalog.registry.unregister_path(OTHER)
        with pytest.raises(TableNotFoundError):
            catalog.registry.unregister_path(OTHER)


ONBOARDING_CONTRACT: tuple[Rule, ...] = (
    an_adopted_table_begins_with_its_first_commit_and_is_never_purged,
    a_table_at_a_location_of_its_creators_choice_may_name_files_elsewhere,
    tables_at_above_and_below_a_location_overlap_it,
    a_released_table_frees_name_and_location_and_keeps_its_commits,
    a_table_that_others_need_is_not_released,
    a_registered_path_is_a_name_for_reading,
    a_registered_path_that_is_adopted_is_the_name_of_a_table,
)
