"""The application ids of tables, and their reset."""

import sqlalchemy as sa

from cm_delta_dagster.catalog.application_ids import ApplicationId
from cm_delta_dagster.catalog.sql.access import audit, guard
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.parts import Part, reads, writes
from cm_delta_dagster.catalog.sql.database.schema import APPLICATION_IDS, IS_ACTIVE, NAME_COLUMNS, TABLES, identifier_of
from cm_delta_dagster.catalog.sql.rows.application_ids import stored_id
from cm_delta_dagster.catalog.sql.rows.errors import unknown_table
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.catalog.texts import checked_reason
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.remedies import ListApplicationIds

_NAMED = sa.select(*NAME_COLUMNS).where(TABLES.c.table_id == sa.bindparam("of_table"), IS_ACTIVE)
_OF_TABLE = (
    sa.select(APPLICATION_IDS)
    .where(APPLICATION_IDS.c.table_id == sa.bindparam("of_table"))
    .order_by(APPLICATION_IDS.c.app_id)
)
_DELETE = (
    sa.delete(APPLICATION_IDS)
    .where(
        APPLICATION_IDS.c.table_id == sa.bindparam("of_table"), APPLICATION_IDS.c.app_id == sa.bindparam("of_app_id")
    )
    .returning(APPLICATION_IDS.c.principal)
)


class SqlApplicationIds(Part):
    """Implements :class:`~cm_delta_dagster.catalog.application_ids.ApplicationIds`."""

    @reads
    def application_ids(self, connection: sa.Connection, table_id: str) -> tuple[ApplicationId, ...]:
        """The application ids of the table. Raises TableNotFoundError, OperationRefusedError."""
        _require(connection, Operation.READ, table_id)
        rows = connection.execute(_OF_TABLE, {"of_table": table_id}).all()
        ids = (ApplicationId(app_id=row.app_id, principal=row.principal, since_ms=row.since_ms) for row in rows)
        return tuple(
            sorted(ids, key=lambda entry: entry.app_id)
        )  # By code point, whatever the collation of the database.

    @writes
    def reset_application_id(self, connection: sa.Connection, table_id: str, app_id: str, *, reason: str = "") -> None:
        """Delete the row. Raises InvalidArgumentError, TableNotFoundError, OperationRefusedError."""
        reason = checked_reason(reason)
        identifier = _require(connection, Operation.RESET_APPLICATION_ID, table_id)
        key = stored_id(app_id)
        row = connection.execute(_DELETE, {"of_table": table_id, "of_app_id": key}).one_or_none()
        if row is None:
            raise InvalidArgumentError(
                f"The application id {key!r} of {identifier} was not reset: the catalog has no record of a commit that set it. "
                "Nothing was changed."
            ).with_remedy(ListApplicationIds(table=str(identifier)))
        set_by = "a client that stated no principal" if row.principal is None else row.principal
        change = audit.Change(
            action="reset application id",
            scope=str(identifier),
            before=f"{key}, last set by {set_by}",
            reason=reason,
            table_id=table_id,
        )
        audit.record(connection, change)


def _require(connection: sa.Connection, operation: Operation, table_id: str) -> TableIdentifier:
    """The name of the table, on which the caller has the privilege. Raises TableNotFoundError, OperationRefusedError."""
    row = connection.execute(_NAMED, {"of_table": table_id}).one_or_none()
    if row is None:
        raise unknown_table(table_id)
    identifier = identifier_of(row)
    guard.require(connection, operation, identifier, table_id=table_id)
    return identifier
