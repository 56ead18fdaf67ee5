"""Clients of one catalog that share their state."""

from collections.abc import Callable

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table


def test_a_client_with_compaction_shares_caches_and_threads_and_leaves_the_first_one_as_it_is(
    client: DeltaClient, new_table: Callable[..., Table]
) -> None:
    compacted: list[TableIdentifier] = []
    compacting = client.with_compaction(compacted.append)
    assert client.compact is None
    table = new_table()
    snapshot = compacting.table(table.identifier).snapshot()
    assert client.cached_snapshot(table.table_id) is compacting.cached_snapshot(table.table_id) is snapshot
    assert client.background is compacting.background and compacted == []
    compacting.forget(table.table_id)
    assert client.cached_snapshot(table.table_id) is None
