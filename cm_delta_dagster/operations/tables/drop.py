"""DROP TABLE: the name goes, log and data stay (protocol "Dropping catalog-managed tables").

Physical deletion is later business, of ``operations.purge``, and is not done here (CM-D7).
"""

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.errors import TableNotFoundError
from cm_delta_dagster.operations.tables.table_marker import mark_table
from cm_delta_dagster.protocol.log.markers import MarkedState


def drop_table(client: DeltaClient, *, identifier: TableIdentifier | str, table_id: str | None = None) -> None:
    """Remove the name of a table from the catalog; no Delta commit is made, log and data stay as they are (CM-D6).

    Args:
        table_id: the table that is meant: another one that has the name by now is left alone (CM-D8), and a repeated
            drop is no error.

    Raises:
        TableNotFoundError: no table has that name, or not that table.
        InvalidArgumentError: ``identifier`` is not ``catalog.schema.table``.
    """
    name = TableIdentifier.of(identifier)
    try:
        entry = client.catalog.load_table(name)
    except TableNotFoundError:
        entry = None
    client.catalog.drop_table(name, table_id=table_id)
    if entry is not None and table_id in (None, entry.table_id):
        mark_table(client, entry, state=MarkedState.DROPPED)
