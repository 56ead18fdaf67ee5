"""Files that belong to no table are found; files of tables are not listed."""

import pytest

from cm_delta_dagster.catalog.maintenance import MaintenanceKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.operations.tables.drop import drop_table
from cm_delta_dagster.operations.tables.orphan_files import OrphanFiles, find_orphan_files
from cm_delta_dagster.operations.tables.purge import plan_purge, purge
from tests.support.lake import Lake

WAREHOUSE = "memory://lake/warehouse"


@pytest.mark.requirements("CM-D7", "CM-D8")
def test_files_written_after_the_purge_of_their_table_are_found(lake: Lake) -> None:
    lake.allow(MaintenanceKind.TABLE_PURGE)
    for name in ("kept", "dropped", "purged"):
        lake.append(lake.new_table(name))
    lake.client.wait_for_background()
    stale = lake.client.table("main.test.purged")
    staging = lake.catalog.registry.create_staging_table(TableIdentifier.parse("main.test.young"))
    lake.memory.write(f"{staging.location}/part.parquet", b"rows")
    drop_table(lake.client, identifier="main.test.purged")
    purge(lake.client, plan_purge(lake.client, retention_ms=0))
    drop_table(lake.client, identifier="main.test.dropped")
    lake.client.wait_for_background()
    assert find_orphan_files(lake.client, warehouse=WAREHOUSE) == ()

    lake.put(stale, "delta.txn=1/part.parquet")
    lake.put(stale, "delta.txn=1/other.parquet", b"")
    lake.memory.write(f"{WAREHOUSE}/note.txt", b"?")
    assert find_orphan_files(lake.client, warehouse=f"{WAREHOUSE}/") == (
        OrphanFiles(location=WAREHOUSE, num_files=1, num_bytes=1, last_written_ms=lake.clock()),
        OrphanFiles(location=stale.location, num_files=2, num_bytes=100, last_written_ms=lake.clock()),
    )
