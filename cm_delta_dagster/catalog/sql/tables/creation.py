"""Reservation and registration of tables.

Protocol heading "Creating and Dropping Catalog-managed Tables".
"""

import uuid

import sqlalchemy as sa

from cm_delta_dagster.catalog.ratification import CommitSummary, InitialCommit
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.grantees import of_user
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.callers import caller_of, now_of
from cm_delta_dagster.catalog.sql.database.parts import writes
from cm_delta_dagster.catalog.sql.database.schema import ACTIVE, STAGING, TABLES, identifier_of
from cm_delta_dagster.catalog.sql.policies import commit_policies
from cm_delta_dagster.catalog.sql.ratification import commits, order_check, validation
from cm_delta_dagster.catalog.sql.rows import locations, names
from cm_delta_dagster.catalog.sql.rows.errors import name_taken
from cm_delta_dagster.catalog.sql.rows.table_names import HOLDER, name_parameters
from cm_delta_dagster.catalog.sql.tables import clones, loading, namespaces, registered_paths
from cm_delta_dagster.catalog.sql.tables.warehouse_part import WarehousePart
from cm_delta_dagster.catalog.tables import StagingTable, TableEntry, TableIdentifier
from cm_delta_dagster.errors import InvalidArgumentError, TableAlreadyExistsError, TableNotFoundError
from cm_delta_dagster.protocol.actions.paths import normalise_location
from cm_delta_dagster.remedies import ConnectWithWarehouse

_ACTIVATE = (
    sa.update(TABLES)
    .where(TABLES.c.table_id == sa.bindparam("of_table"))
    .values(
        state=ACTIVE,
        published_version=0,
        catalog_name=sa.bindparam("of_catalog"),
        schema_name=sa.bindparam("of_schema"),
        table_name=sa.bindparam("of_name"),
        created_ms=sa.bindparam("now_ms"),
        owner=sa.bindparam("of_owner"),
    )
)


class TableCreation(WarehousePart):
    """The methods of the registry that create tables."""

    @writes
    def create_staging_table(
        self,
        connection: sa.Connection,
        identifier: TableIdentifier,
        *,
        clone_of: str | None = None,
        location: str | None = None,
    ) -> StagingTable:
        """Insert a row in state STAGING, to which no name resolves. Raises TableAlreadyExistsError, TableNotFoundError."""
        names.check_identifier(identifier)
        guard.require(connection, Operation.CREATE, identifier)
        if location is not None:
            return _reserve_at(connection, identifier, location=location)
        if self._warehouse is None:
            raise InvalidArgumentError(
                f"{identifier} was not created: this connection has no warehouse, so it has no place for new tables."
            ).with_remedy(ConnectWithWarehouse())
        if clone_of is not None:
            clones.lock_source(connection, clone_of)
        parent = f"{self._warehouse}/{identifier.catalog}/{identifier.schema}"
        free = f"{parent}/{identifier.table}-{uuid.uuid4().hex[:12]}"
        _refuse_taken(connection, identifier, location=free)
        staging = _reserve(connection, identifier, location=free, is_external=False)
        if clone_of is not None:
            clones.record_clone(connection, staging.table_id, source_id=clone_of)
        return staging

    def register_table(
        self,
        table_id: str,
        identifier: TableIdentifier,
        *,
        summary: CommitSummary,
        initial: InitialCommit | None = None,
    ) -> TableEntry:
        """Give the staging table its name. Raises TableAlreadyExistsError, TableNotFoundError, CommitRejectedError."""
        names.check_identifier(identifier)
        checked = validation.check_initial(self._database, table_id, identifier, initial, operation=summary.operation)
        return self._register(table_id, identifier, summary, checked)

    @writes
    def _register(
        self,
        connection: sa.Connection,
        table_id: str,
        identifier: TableIdentifier,
        summary: CommitSummary,
        initial: InitialCommit | None,
    ) -> TableEntry:
        """Name and version 0 in one transaction. The unique index over active names admits one of several concurrent calls."""
        order_check.check_clock(connection, table_id, 0, summary, previous=None)
        row = connection.execute(loading.LOCKED, {"of_table": table_id}).one_or_none()
        if row is None or row.state not in (STAGING, ACTIVE):
            raise TableNotFoundError(
                f"{identifier} was not registered: the table id {table_id} was never reserved here, or its table was "
                "dropped, or its reservation was purged. Create the table again."
            )
        if row.state == ACTIVE:
            guard.require_on_table(connection, Operation.READ, table_id)
            if identifier_of(row) != identifier:
                raise TableAlreadyExistsError(
                    f"The table id {table_id} is already registered as {identifier_of(row)} and cannot "
                    f"be registered as {identifier}. Rename the table instead."
                )
            return loading.load_table(connection, identifier)
        guard.require(connection, Operation.CREATE, identifier)
        registered_paths.refuse_registered(connection, identifier)
        namespaces.ensure_schema(connection, identifier)
        owner = of_user(caller_of(connection))
        active = {"of_table": table_id, "now_ms": now_of(connection), "of_owner": owner, **name_parameters(identifier)}
        try:
            connection.execute(_ACTIVATE, active)
        except sa.exc.IntegrityError as error:
            raise name_taken(identifier) from error
        commit_policies.adopt(connection, table_id)
        commits.insert_initial_commit(connection, table_id, identifier, summary=summary, initial=initial)
        return loading.load_table(connection, identifier)


def _reserve_at(connection: sa.Connection, identifier: TableIdentifier, *, location: str) -> StagingTable:
    """Reserve a location that the caller has chosen."""
    if normalise_location(location) != location or ".." in location.split("/"):
        raise InvalidArgumentError(
            f"{identifier} was not created: {location} is another spelling of a location, which the catalog could not compare with "
            f"those of other tables. Give it without '..' and as {normalise_location(location)}."
        )
    _refuse_taken(connection, identifier, location=location)
    try:
        return _reserve(connection, identifier, location=location, is_external=True)
    except sa.exc.IntegrityError as error:
        raise TableAlreadyExistsError(
            f"{identifier} was not created: another client has just reserved the location {location}. Choose another location."
        ) from error


def _refuse_taken(connection: sa.Connection, identifier: TableIdentifier, *, location: str) -> None:
    other = connection.execute(sa.select(TABLES).where(locations.taken(location))).first()
    if other is not None:
        raise TableAlreadyExistsError(
            f"{identifier} was not created: {identifier_of(other)} (table id {other.table_id}, {other.state}) is at "
            f"{other.location}, and the location {location} is not free for another table. Choose another location."
        )


def _reserve(
    connection: sa.Connection, identifier: TableIdentifier, *, location: str, is_external: bool
) -> StagingTable:
    if connection.execute(HOLDER, name_parameters(identifier)).first() is not None:
        raise name_taken(identifier)
    registered_paths.refuse_registered(connection, identifier)
    table_id = str(uuid.uuid4())
    connection.execute(
        sa.insert(TABLES).values(
            table_id=table_id,
            catalog_name=identifier.catalog,
            schema_name=identifier.schema,
            table_name=identifier.table,
            location=location,
            state=STAGING,
            latest_version=-1,
            published_version=-1,
            latest_data_version=-1,
            latest_in_commit_timestamp=-1,
            reserved_ms=now_of(connection),
            is_external=is_external,
        )
    )
    return StagingTable(table_id=table_id, location=location, is_external=is_external)
