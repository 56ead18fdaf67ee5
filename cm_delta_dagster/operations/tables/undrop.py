"""UNDROP TABLE: a dropped table gets its name back (protocol "Dropping catalog-managed tables")."""

import datetime

from cm_delta_dagster.catalog.tables import InactiveState, InactiveTable, TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.operations.tables.table_marker import mark_table
from cm_delta_dagster.protocol.log.markers import MarkedState


def undrop_table(client: DeltaClient, *, identifier: TableIdentifier | str, table_id: str | None = None) -> Table:
    """Bring back the dropped table that had that name, with all of its versions.

    Possible until it is purged, which :data:`~cm_delta_dagster.operations.tables.purge.DROPPED_RETENTION_MS` delays.

    Args:
        table_id: which one, where several tables of that name were dropped.

    Raises:
        TableNotFoundError: no dropped table had that name, or it is being purged.
        TableAlreadyExistsError: another table has the name by now; rename or drop that one first.
        InvalidArgumentError: several dropped tables had that name and ``table_id`` does not tell which one is meant.
    """
    name = TableIdentifier.of(identifier)
    dropped = [
        table
        for table in client.catalog.inactive_tables(str(name))
        if table.state is InactiveState.DROPPED and table_id in (None, table.table_id)
    ]
    if not dropped and table_id is not None:
        current = client.table(name)
        if current.table_id == table_id:
            return current  # An earlier call brought it back and its answer was lost.
    if not dropped:
        raise TableNotFoundError(
            f"No dropped table had the name {name}: it was never dropped, or was purged since. Names are case-sensitive."
        )
    if len(dropped) > 1:
        raise InvalidArgumentError(
            f"{len(dropped)} dropped tables had the name {name}. Say which one by its table id: "
            f"{', '.join(map(_shown, dropped))}."
        )
    entry = client.catalog.undrop_table(dropped[0].table_id)
    mark_table(client, entry, state=MarkedState.ACTIVE)
    return client.open(entry)


def _shown(table: InactiveTable) -> str:
    time = datetime.datetime.fromtimestamp(table.since_ms / 1000, tz=datetime.UTC)
    return f"{table.table_id} (dropped {time:%Y-%m-%d %H:%M:%S} UTC)"
