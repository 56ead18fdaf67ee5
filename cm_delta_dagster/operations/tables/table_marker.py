"""Keep the marker in a table's log in step with the table's name and state in the catalog."""

import logging

from cm_delta_dagster.catalog.tables import TableEntry
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.warehouse import rewrite_table_marker
from cm_delta_dagster.errors import CmDeltaError
from cm_delta_dagster.protocol.log.markers import MarkedState

_log = logging.getLogger(__name__)


def mark_table(client: DeltaClient, entry: TableEntry, *, state: MarkedState) -> None:
    """Rewrite the marker after a change in the catalog. A failure is logged and does not undo the change."""
    try:
        catalog_id = client.registry.identity().catalog_id
        store = client.stores.store_for(entry.location)
    except CmDeltaError as error:
        _log.warning("The marker of %s at %s was not written: %s", entry.identifier, entry.location, error)
        return
    rewrite_table_marker(
        store,
        entry.location,
        table_id=entry.table_id,
        identifier=entry.identifier,
        catalog_id=catalog_id,
        state=state,
    )
