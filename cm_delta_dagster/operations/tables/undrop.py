"""UNDROP TABLE: register a dropped table under its name again (protocol heading "Creating and Dropping Catalog-managed Tables")."""

from cm_delta_dagster.catalog.tables import InactiveState, InactiveTable, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.operations.tables.table_marker import mark_table
from cm_delta_dagster.protocol.log.markers import MarkedState
from cm_delta_dagster.protocol.predicates.timestamps import utc_text


def undrop_table(client: DeltaClient, *, identifier: TableIdentifier | str, table_id: str | None = None) -> Table:
    """Restore the dropped table of that name, with all of its versions.

    A table can be restored until it is purged; it is not purged within
    :data:`~cm_delta_dagster.operations.tables.purge.DROPPED_RETENTION_MS`.

    Args:
        table_id: restore the table with this id; needed if several tables of that name were dropped.

    Raises:
        TableNotFoundError: no dropped table had that name, or it is being purged.
        TableAlreadyExistsError: another table has taken the name; rename or drop that table first.
        InvalidArgumentError: several dropped tables had that name and ``table_id`` is None.
    """
    name = TableIdentifier.of(identifier)
    dropped = [
        table
        for table in client.registry.inactive_tables(str(name))
        if table.state is InactiveState.DROPPED and table_id in (None, table.table_id)
    ]
    if not dropped and table_id is not None:
        current = client.table(name)
        if current.table_id == table_id:
            return current  # An earlier call restored it, and its outcome was unknown to the client.
    if not dropped:
        raise TableNotFoundError(
            f"No dropped table had the name {name}: it was never dropped, or it was purged. Names are case-sensitive."
        )
    if len(dropped) > 1:
        raise InvalidArgumentError(
            f"{len(dropped)} dropped tables had the name {name}. Choose one by its table id: "
            f"{', '.join(map(_text, dropped))}."
        )
    entry = client.registry.undrop_table(dropped[0].table_id)
    mark_table(client, entry, state=MarkedState.ACTIVE)
    return client.open(entry)


def _text(table: InactiveTable) -> str:
    return f"{table.table_id} (dropped {utc_text(table.since_ms)})"
