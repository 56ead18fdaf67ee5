"""Contract of ``TableRegistry`` and ``RecoverableCatalog``: references of shallow clones to their sources.

Run for each database by ``tests/catalog/test_catalog_contract.py``.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from cm_delta_dagster.catalog.catalog import Catalog
from cm_delta_dagster.catalog.tables import InactiveState, RelatedTable, TableEntry, TableIdentifier
from cm_delta_dagster.errors import PurgeRefusedError, RecoveryError, TableAlreadyExistsError, TableNotFoundError
from tests.contracts.catalog_bench import NAME, OTHER, Bench, Rule, allow_purge, create, proposal, summary

CLONE, SECOND = TableIdentifier("main", "sales", "clone"), TableIdentifier("main", "sales", "second")


def clone_of(catalog: Catalog, source: TableEntry, name: TableIdentifier = CLONE) -> TableEntry:
    staging = catalog.registry.create_staging_table(name, clone_of=source.table_id)
    return catalog.registry.register_table(staging.table_id, name, summary=summary(1000))


def ids(tables: tuple[RelatedTable, ...]) -> set[str]:
    return {table.table_id for table in tables}


def purged(catalog: Catalog, table_id: str) -> None:
    catalog.registry.begin_purge(table_id, min_age_ms=0)
    catalog.registry.finish_purge(table_id)


def a_clone_is_known_from_its_reservation_to_its_purge(bench: Bench) -> None:
    with bench.client() as catalog:
        allow_purge(catalog)
        source = create(catalog)
        staging = catalog.registry.create_staging_table(CLONE, clone_of=source.table_id)
        (reserved,) = catalog.registry.clones_of(source.table_id)
        assert (reserved.table_id, reserved.identifier, reserved.location) == (
            staging.table_id,
            CLONE,
            staging.location,
        )
        assert (reserved.state, reserved.ratified) == (InactiveState.STAGING, None)
        entry = catalog.registry.register_table(staging.table_id, CLONE, summary=summary(1000))
        catalog.coordinator.commit(entry.table_id, proposal(1))
        (active,) = catalog.registry.clones_of(source.table_id)
        assert active.state is None and active.ratified == catalog.registry.load_table(CLONE).ratified
        (of_clone,) = catalog.registry.sources_of(entry.table_id)
        assert (of_clone.table_id, of_clone.identifier, of_clone.state) == (source.table_id, NAME, None)
        catalog.registry.drop_table(CLONE)
        (dropped,) = catalog.registry.clones_of(source.table_id)
        assert dropped.state is InactiveState.DROPPED and dropped.ratified == active.ratified
        catalog.registry.begin_purge(entry.table_id, min_age_ms=0)
        assert catalog.registry.clones_of(source.table_id) == ()
        catalog.registry.finish_purge(entry.table_id)
        assert catalog.registry.clones_of(source.table_id) == catalog.registry.sources_of(entry.table_id) == ()


def only_an_active_table_is_cloned(bench: Bench) -> None:
    with bench.client() as catalog:
        source, other = create(catalog), create(catalog, OTHER)
        with pytest.raises(TableAlreadyExistsError):
            catalog.registry.create_staging_table(OTHER, clone_of=source.table_id)
        catalog.registry.drop_table(NAME)
        for table_id in (source.table_id, "unknown"):
            with pytest.raises(TableNotFoundError):
                catalog.registry.create_staging_table(CLONE, clone_of=table_id)
        assert catalog.registry.clones_of(source.table_id) == catalog.registry.clones_of(other.table_id) == ()


def a_clone_of_a_clone_refers_to_all_sources(bench: Bench) -> None:
    with bench.client() as catalog:
        allow_purge(catalog)
        source = create(catalog)
        first = clone_of(catalog, source)
        second = clone_of(catalog, first, SECOND)
        assert ids(catalog.registry.sources_of(second.table_id)) == {source.table_id, first.table_id}
        catalog.registry.drop_table(CLONE)
        with pytest.raises(PurgeRefusedError, match=r"main\.sales\.second"):
            catalog.registry.begin_purge(first.table_id, min_age_ms=0)
        catalog.registry.drop_table(SECOND)
        purged(catalog, second.table_id)
        purged(catalog, first.table_id)
        assert catalog.registry.clones_of(source.table_id) == ()


def a_source_with_clones_is_not_purged(bench: Bench) -> None:
    with bench.client() as catalog:
        allow_purge(catalog)
        source = create(catalog)
        clone = clone_of(catalog, source)
        catalog.registry.drop_table(NAME)
        for drop in (False, True):
            if drop:
                catalog.registry.drop_table(CLONE)
            with pytest.raises(PurgeRefusedError, match=r"main\.sales\.clone \(table id"):
                catalog.registry.begin_purge(source.table_id, min_age_ms=0)
        assert catalog.registry.undrop_table(source.table_id).identifier == NAME
        catalog.registry.drop_table(NAME)
        purged(catalog, clone.table_id)
        purged(catalog, source.table_id)


def a_reserved_clone_can_be_abandoned(bench: Bench) -> None:
    with bench.client() as catalog:
        source = create(catalog)
        active = clone_of(catalog, source, SECOND)
        staging = catalog.registry.create_staging_table(CLONE, clone_of=source.table_id)
        unrelated = catalog.registry.create_staging_table(OTHER)
        catalog.registry.abandon_clones(source.table_id)
        assert ids(catalog.registry.clones_of(source.table_id)) == {active.table_id}
        with pytest.raises(TableNotFoundError):
            catalog.registry.register_table(staging.table_id, CLONE, summary=summary(1000))
        states = {table.table_id: table.state for table in catalog.registry.inactive_tables()}
        assert states == {staging.table_id: InactiveState.PURGING, unrelated.table_id: InactiveState.STAGING}
        purged(catalog, staging.table_id)


def one_of_concurrent_clone_and_purge_succeeds(bench: Bench) -> None:
    with bench.client() as catalog, ThreadPoolExecutor(2) as threads:
        allow_purge(catalog)
        for number in range(5):
            source = create(catalog)
            first = clone_of(catalog, source, TableIdentifier("main", "sales", f"c{number}"))
            catalog.registry.drop_table(first.identifier)

            def reserve(entry: TableEntry = first) -> bool:
                try:
                    catalog.registry.undrop_table(entry.table_id)
                    catalog.registry.create_staging_table(CLONE, clone_of=entry.table_id)
                except TableNotFoundError:
                    return False
                return True

            def purge(entry: TableEntry = first) -> bool:
                try:
                    catalog.registry.begin_purge(entry.table_id, min_age_ms=0)
                except PurgeRefusedError:
                    return False
                return True

            reserved, began = (future.result() for future in (threads.submit(reserve), threads.submit(purge)))
            assert reserved != began
            catalog.registry.drop_table(NAME)


def recovered_references_are_recorded_once(bench: Bench) -> None:
    with bench.client() as catalog:
        source, other = create(catalog), create(catalog, OTHER)
        for _ in range(2):
            found = catalog.recovery.record_sources(
                other.table_id, {source.location, other.location, "memory://elsewhere/t"}
            )
            assert ids(found) == {source.table_id}
        assert ids(catalog.registry.clones_of(source.table_id)) == {other.table_id}
        assert catalog.registry.clones_of(other.table_id) == ()


def a_source_with_clones_is_not_relocated(bench: Bench) -> None:
    with bench.client() as catalog:
        source = create(catalog)
        clone = clone_of(catalog, source)
        with pytest.raises(RecoveryError, match="shallow clones name its files"):
            catalog.recovery.relocate_table(source.table_id, location="memory://new/t", moved_from=source.location)
        catalog.recovery.relocate_table(clone.table_id, location="memory://new/c", moved_from=clone.location)


TABLE_REGISTRY_CLONES_CONTRACT: tuple[Rule, ...] = (
    a_clone_is_known_from_its_reservation_to_its_purge,
    only_an_active_table_is_cloned,
    a_clone_of_a_clone_refers_to_all_sources,
    a_source_with_clones_is_not_purged,
    a_reserved_clone_can_be_abandoned,
    one_of_concurrent_clone_and_purge_succeeds,
    recovered_references_are_recorded_once,
    a_source_with_clones_is_not_relocated,
)
