"""DROP TABLE: remove the name; log and data stay (protocol heading "Creating and Dropping Catalog-managed Tables").

``operations.tables.purge`` deletes the files later.
"""

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import OperationRefusedError, TableNotFoundError
from cm_delta_dagster.operations.tables.table_marker import mark_table
from cm_delta_dagster.protocol.log.markers import MarkedState


def drop_table(client: DeltaClient, *, identifier: TableIdentifier | str, table_id: str | None = None) -> None:
    """Remove the name of a table from the catalog. No Delta commit is made; log and data stay as they are.

    Args:
        table_id: drop only the table with this id. Another table that has taken the name stays, and a repeated drop is not
            an error.

    Raises:
        TableNotFoundError: no table has that name, or the table that has it has another id.
        OperationRefusedError: the caller does not own the table.
        InvalidArgumentError: ``identifier`` is not ``catalog.schema.table``.
    """
    name = TableIdentifier.of(identifier)
    try:
        entry = client.registry.load_table(name)
    except (TableNotFoundError, OperationRefusedError):
        entry = None  # The drop finds the table again, and names the privilege that it requires.
    client.registry.drop_table(name, table_id=table_id)
    if entry is not None and table_id in (None, entry.table_id):
        mark_table(client, entry, state=MarkedState.DROPPED)
