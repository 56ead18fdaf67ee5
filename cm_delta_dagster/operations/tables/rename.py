"""RENAME TABLE: another name for the same table. No commit is made; of the files only the marker changes."""

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.tables.table_marker import mark_table
from cm_delta_dagster.protocol.log.markers import MarkedState


def rename_table(
    client: DeltaClient, *, identifier: TableIdentifier | str, to: TableIdentifier | str, table_id: str | None = None
) -> Table:
    """Give a table another name; its id, location and history stay, and open handles go on writing to it.

    Rules of maintenance policy belong to names, so that those of the new name, its schema and its catalog hold from now on.
    What a rule for the old name allowed is not allowed by it any more. What one denied is denied under the new name too:
    a rename permits nothing. The commit mode of the table moves along; that of a schema does not. A rename to the name that
    the table has changes nothing.

    Args:
        table_id: the table that is meant, if the name may belong to another one by now.

    Raises:
        TableNotFoundError: no table has that name.
        TableAlreadyExistsError: another table has the name ``to``.
        InvalidArgumentError: a name is not ``catalog.schema.table``.
    """
    name = TableIdentifier.of(identifier)
    wanted = TableIdentifier.of(to)
    found = table_id or client.catalog.load_table(name).table_id
    entry = client.catalog.rename_table(found, wanted)
    mark_table(client, entry, state=MarkedState.ACTIVE)
    return client.open(entry)
