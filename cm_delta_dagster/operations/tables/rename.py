"""RENAME TABLE: change the name of a table. No commit is made; of the table's files only the marker changes."""

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.tables.table_marker import mark_table
from cm_delta_dagster.protocol.log.markers import MarkedState


def rename_table(
    client: DeltaClient, *, identifier: TableIdentifier | str, to: TableIdentifier | str, table_id: str | None = None
) -> Table:
    """Change the name of a table. Its id, location and history stay, and open handles keep working.

    Maintenance rules belong to names: after the rename the rules of the new name, its schema and its catalog apply. Rules of
    the old name that allow an operation no longer apply. An operation that they deny stays denied: a rename never grants a
    permission. A commit mode set for the table moves with it; a mode set for its schema does not. A rename to the current
    name changes nothing.

    Args:
        table_id: rename only the table with this id.

    Raises:
        TableNotFoundError: no table has that name.
        TableAlreadyExistsError: another table has the name ``to``.
        InvalidArgumentError: a name is not ``catalog.schema.table``.
    """
    name = TableIdentifier.of(identifier)
    new_name = TableIdentifier.of(to)
    entry = client.registry.rename_table(table_id or client.registry.load_table(name).table_id, new_name)
    mark_table(client, entry, state=MarkedState.ACTIVE)
    return client.open(entry)
