"""The rows of application ids, which end with their table."""

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.ratification import Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.sql.database.schema import APPLICATION_IDS
from tests.contracts.application_ids_contract import txn
from tests.contracts.catalog_bench import NAME, OTHER, allow_purge, create
from tests.support.commit_builder import commit_of


def _rows(catalog: SqlCatalog) -> set[tuple[str, str]]:
    rows = catalog._database.read(lambda connection: connection.execute(APPLICATION_IDS.select()).all())
    return {(row.table_id, row.app_id) for row in rows}


def test_a_dropped_table_keeps_its_application_ids_until_it_is_purged(catalog_url: str) -> None:
    with SqlCatalog(catalog_url, warehouse="memory://w") as catalog:
        table_id, other_id = create(catalog).table_id, create(catalog, OTHER).table_id
        for table in (table_id, other_id):
            assert isinstance(catalog.coordinator.commit(table, commit_of(1, txn("job"))), Ratified)
        catalog.registry.drop_table(NAME)
        assert _rows(catalog) == {(table_id, "job"), (other_id, "job")}
        allow_purge(catalog)
        catalog.registry.begin_purge(table_id, min_age_ms=0)
        catalog.registry.finish_purge(table_id)
        assert _rows(catalog) == {(other_id, "job")}
        catalog.recovery.release_table(other_id)
        assert _rows(catalog) == set()


@pytest.mark.parametrize("app_id", ["-job", "it's"])
def test_an_application_id_that_no_principal_set_is_everybodys(sqlite_url: str, app_id: str) -> None:
    """Of a client that stated no principal; on PostgreSQL there is none, because the role that logs in is its principal."""
    with SqlCatalog(sqlite_url, warehouse="memory://w") as catalog:
        table_id = create(catalog).table_id
        for version, principal in ((1, None), (2, "ana"), (3, None), (4, "bob")):
            client = catalog.acting_as(principal)
            if version == 4:
                catalog.acting_as("owner").access.enable_grants()
                catalog.acting_as("owner").access.grant([Privilege.APPEND], "main", "public")
            assert isinstance(client.coordinator.commit(table_id, commit_of(version, txn(app_id))), Ratified)
            (entry,) = catalog.application_ids.application_ids(table_id)
            assert (entry.app_id, entry.principal) == (app_id, principal)
