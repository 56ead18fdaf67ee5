"""Recovery and relocation: records of commits and tables that storage has and the catalog does not.

Functions over an open connection; the caller opens the transaction. They do not touch files.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.access import WHOLE_CATALOG
from cm_delta_dagster.catalog.feed_kinds import FeedKind
from cm_delta_dagster.catalog.ratification import CommitProposal
from cm_delta_dagster.catalog.recovery import FEED_GAP, AdoptedState, AdoptedTable, CommitHistory, HistoryStart
from cm_delta_dagster.catalog.sql.access import guard
from cm_delta_dagster.catalog.sql.access.grantees import of_user
from cm_delta_dagster.catalog.sql.access.guard import Operation
from cm_delta_dagster.catalog.sql.database.callers import caller_of
from cm_delta_dagster.catalog.sql.database.schema import (
    ACTIVE,
    APPLICATION_IDS,
    COMMITS,
    DEFINITIONS,
    DROPPED,
    FEED,
    IDENTITY,
    MAINTENANCE_LEASES,
    PURGED,
    TABLES,
    VERSION_PINS,
    identifier_of,
)
from cm_delta_dagster.catalog.sql.feed import entries
from cm_delta_dagster.catalog.sql.policies import commit_policies
from cm_delta_dagster.catalog.sql.rows import definitions, locations, locked_heads, marks
from cm_delta_dagster.catalog.sql.rows.commits import values_of
from cm_delta_dagster.catalog.sql.rows.errors import name_taken, unknown_table
from cm_delta_dagster.catalog.sql.tables import clones, namespaces, registered_paths, registry
from cm_delta_dagster.catalog.tables import RelatedTable, TableEntry, TableIdentifier
from cm_delta_dagster.errors import RecoveryError, TableNotFoundError
from cm_delta_dagster.protocol.predicates.timestamps import utc_text

_CATALOG_ID = sa.select(IDENTITY.c.catalog_id).where(IDENTITY.c.row_id == 1)
_OF_TABLE = COMMITS.c.table_id == sa.bindparam("of_table")
_ABOVE = sa.and_(_OF_TABLE, COMMITS.c.version > sa.bindparam("above"))
_TXN_IDS_ABOVE = sa.select(COMMITS.c.version, COMMITS.c.txn_id).where(_ABOVE).order_by(COMMITS.c.version)
_DATA_VERSION = sa.select(COMMITS.c.data_version, COMMITS.c.in_commit_timestamp).where(
    _OF_TABLE, COMMITS.c.version == sa.bindparam("at")
)
_DELETE_CONTENT = (
    sa.update(COMMITS)
    .where(_OF_TABLE, COMMITS.c.version <= sa.bindparam("up_to"), COMMITS.c.content.is_not(None))
    .values(content=None)
)


def catalog_id(connection: sa.Connection) -> str:
    """The id of the catalog."""
    return str(connection.execute(_CATALOG_ID).scalar_one())


def take_in_commits(
    connection: sa.Connection,
    table_id: str,
    history: CommitHistory,
    *,
    after: int,
    replaces: Sequence[str],
    now_ms: int,
) -> bool:
    """Under the lock of the table's row; see :meth:`RecoverableCatalog.take_in_commits`."""
    guard.require(connection, Operation.RECOVER, WHOLE_CATALOG)
    head = locked_heads.locked_head(connection, table_id)
    if head is None:
        raise unknown_table(table_id)
    known = connection.execute(_TXN_IDS_ABOVE, {"of_table": table_id, "above": after}).all()
    own = tuple(row.txn_id for row in known)
    wanted = tuple(proposal.summary.txn_id for proposal in history.proposals)
    if own and own == wanted:
        return False
    if own != tuple(replaces) or head.latest_version < after:
        raise RecoveryError(
            f"The commits of table {table_id} were not recorded: the catalog's latest version is {head.latest_version} now, "
            f"with {len(own)} commits above version {after} where {len(replaces)} were expected. Another client has committed "
            "since the plan was made. Make a new plan."
        )
    before = connection.execute(_DATA_VERSION, {"of_table": table_id, "at": after}).one_or_none()
    if before is None:
        raise RecoveryError(
            f"The commits of table {table_id} were not recorded: the catalog has no version {after}. Make a new plan."
        )
    first, data_version = after + 1, before.data_version
    if history.start is HistoryStart.AFTER_CLEANUP:
        # Any version without a record may have changed data: the first recorded version counts as data-changing for them.
        first = data_version = max(first, history.proposals[0].version)
    _check_order(history.proposals, first=first, follows_ms=before.in_commit_timestamp)
    if own:
        connection.execute(sa.delete(COMMITS).where(_ABOVE), {"of_table": table_id, "above": after})
        connection.execute(sa.delete(FEED).where(FEED.c.table_id == table_id, FEED.c.version > after))
        pins = sa.delete(VERSION_PINS).where(VERSION_PINS.c.table_id == table_id, VERSION_PINS.c.version > after)
        connection.execute(pins)
    _record(connection, table_id, history, data_version=data_version, now_ms=now_ms)
    return True


def _check_order(proposals: Sequence[CommitProposal], *, first: int, follows_ms: int) -> None:
    """Refuse versions with a gap and in-commit timestamps that do not increase."""
    previous_ms = follows_ms
    for version, proposal in enumerate(proposals, start=first):
        if proposal.version != version or proposal.summary.in_commit_timestamp <= previous_ms:
            raise RecoveryError(
                f"Version {proposal.version} with the in-commit timestamp {utc_text(proposal.summary.in_commit_timestamp)} cannot "
                f"be recorded as version {version} after {utc_text(previous_ms)}: versions must have no gap and timestamps must "
                "increase. Nothing was changed."
            )
        previous_ms = proposal.summary.in_commit_timestamp


def _record(
    connection: sa.Connection, table_id: str, history: CommitHistory, *, data_version: int, now_ms: int
) -> None:
    """Insert the commits, advance the head of the table and set its definition. The caller holds the lock of its row."""
    proposals = history.proposals
    entries.skip_positions(connection, FEED_GAP)
    rows: list[dict[str, Any]] = []
    for proposal in proposals:
        if proposal.summary.data_change:
            data_version = proposal.version
        values = values_of(table_id, proposal, now_ms=now_ms)
        rows.append({**values, "data_version": data_version})
    connection.execute(sa.insert(COMMITS), rows)
    for proposal in proposals:
        entries.append(connection, entries.of_commit(table_id, proposal.version, now_ms=now_ms))
    last = proposals[-1]
    head = {
        "latest_version": last.version,
        "latest_data_version": data_version,
        "latest_in_commit_timestamp": last.summary.in_commit_timestamp,
        "published_version": history.published_version,
        # Clients read published commits from storage: the catalog keeps no content of them.
        "content_from": last.version + 1,
        **marks.after_history(history.definition.metadata, history.row_id_mark),
    }
    connection.execute(sa.update(TABLES).where(TABLES.c.table_id == table_id).values(**head))
    connection.execute(_DELETE_CONTENT, {"of_table": table_id, "up_to": history.published_version})
    definition = history.definition
    definitions.record(
        connection,
        table_id,
        metadata=definition.metadata,
        protocol=definition.protocol,
        version=definition.version,
        in_commit_timestamp=definition.in_commit_timestamp,
        changed_by_commit=True,
    )


def check_adoption(connection: sa.Connection, identifier: TableIdentifier) -> None:
    """Refuse a caller that may not insert the entry of an adopted table; inserts nothing."""
    guard.require(connection, Operation.ADOPT, identifier)
    # A database checks the right to insert, also if there is no row to insert.
    nothing = sa.select(*TABLES.c).where(sa.false())
    connection.execute(sa.insert(TABLES).from_select(list(TABLES.c), nothing, include_defaults=False))


def check_release(connection: sa.Connection, table_id: str) -> None:
    """Refuse a caller that may not remove the entry of the table; changes nothing."""
    guard.require_on_table(connection, Operation.RELEASE, table_id)
    connection.execute(sa.update(TABLES).where(sa.false()).values(state=PURGED))


def adopt_table(connection: sa.Connection, table: AdoptedTable, *, now_ms: int) -> TableEntry | None:
    """Insert the table with its commits; see :meth:`RecoverableCatalog.adopt_table`."""
    guard.require(connection, Operation.ADOPT, table.identifier)
    last = table.history.proposals[-1]
    row = connection.execute(registry.LOCKED, {"of_table": table.table_id}).one_or_none()
    if row is not None:
        if (row.location, row.latest_version) != (table.location, last.version) or row.state not in (ACTIVE, DROPPED):
            raise RecoveryError(
                f"{table.identifier} was not adopted: the catalog has table {table.table_id} already, {row.state} at "
                f"{row.location} with version {row.latest_version}, and not at {table.location} with version {last.version}. Make "
                "a new plan."
            )
        return registry.load_table_by_id(connection, table.table_id) if row.state == ACTIVE else None
    _refuse_shared(connection, table.location, table_id=table.table_id)
    _check_order(table.history.proposals, first=table.history.proposals[0].version, follows_ms=-1)
    name = table.identifier
    if table.state is AdoptedState.ACTIVE:
        _prepare_name(connection, name, location=table.location)
    values = {
        "table_id": table.table_id,
        "catalog_name": name.catalog,
        "schema_name": name.schema,
        "table_name": name.table,
        "location": table.location,
        "state": ACTIVE if table.state is AdoptedState.ACTIVE else DROPPED,
        "latest_version": last.version,
        "published_version": table.history.published_version,
        "latest_data_version": last.version,
        "latest_in_commit_timestamp": last.summary.in_commit_timestamp,
        "reserved_ms": now_ms,
        "created_ms": now_ms,
        "dropped_ms": None if table.state is AdoptedState.ACTIVE else now_ms,
        "is_external": table.is_external,
        "owner": of_user(caller_of(connection)),
    }
    try:
        connection.execute(sa.insert(TABLES), values)
    except sa.exc.IntegrityError as error:
        raise name_taken(name) from error
    commit_policies.adopt(connection, table.table_id)
    if table.sources:
        clones.record(connection, table.table_id, table.sources)
    _record(
        connection,
        table.table_id,
        table.history,
        data_version=table.history.proposals[0].version,
        now_ms=now_ms,
    )
    entries.append_event(connection, FeedKind.TABLE_ADOPTED, table.table_id, now_ms=now_ms)
    return registry.load_table_by_id(connection, table.table_id) if table.state is AdoptedState.ACTIVE else None


def _prepare_name(connection: sa.Connection, name: TableIdentifier, *, location: str) -> None:
    """Delete a registered path of that name and location, and create the schema. Raises TableAlreadyExistsError."""
    registered_paths.replace_registered(connection, name, location=location)
    namespaces.ensure_schema(connection, name)


def relocate_table(connection: sa.Connection, table_id: str, *, location: str, moved_from: str) -> None:
    """Set the location; see :meth:`RecoverableCatalog.relocate_table`."""
    guard.require(connection, Operation.RECOVER, WHOLE_CATALOG)
    row = connection.execute(registry.LOCKED, {"of_table": table_id}).one_or_none()
    if row is None or row.state == PURGED:
        raise TableNotFoundError(
            f"The catalog has no table with the id {table_id}; it may have been purged. Make a new plan."
        )
    if row.location == location:
        return
    if row.location != moved_from:
        raise RecoveryError(
            f"{identifier_of(row)} was not relocated from {moved_from} to {location}: the catalog has it at "
            f"{row.location} now. Make a new plan."
        )
    if clones.clones_of(connection, table_id):
        raise RecoveryError(
            f"{identifier_of(row)} was not relocated to {location}: shallow clones name its files at {row.location}. Drop and "
            "purge the clones first."
        )
    _refuse_shared(connection, location, table_id=table_id)
    connection.execute(sa.update(TABLES).where(TABLES.c.table_id == table_id).values(location=location))


def overlapping_tables(connection: sa.Connection, location: str) -> tuple[RelatedTable, ...]:
    """Tables at, above or below ``location``, except purged ones."""
    found = connection.execute(sa.select(TABLES).where(TABLES.c.state != PURGED, locations.taken(location))).all()
    return tuple(clones.related(row) for row in sorted(found, key=lambda row: str(row.table_id)))


def release_table(connection: sa.Connection, table_id: str, *, now_ms: int) -> None:
    """ACTIVE to PURGED, with another location, so that another table can get the location; no file is deleted."""
    guard.require_on_table(connection, Operation.RELEASE, table_id)
    row = connection.execute(registry.LOCKED, {"of_table": table_id}).one_or_none()
    if row is not None and row.state == PURGED:
        return
    if row is None or row.state != ACTIVE:
        raise unknown_table(table_id)
    names = [str(clone.identifier) for clone in clones.clones_of(connection, table_id)]
    if names:
        raise RecoveryError(
            f"The entry of {identifier_of(row)} was not removed: the shallow clones {', '.join(names)} may read its files, which "
            "other writers could delete. Drop and purge the clones, and release the table again."
        )
    clones.forget(connection, table_id)
    for dependent in (MAINTENANCE_LEASES, VERSION_PINS, DEFINITIONS, APPLICATION_IDS):
        connection.execute(sa.delete(dependent).where(dependent.c.table_id == table_id))
    former = {"state": PURGED, "location": f"{row.location}#{table_id}"}
    connection.execute(sa.update(TABLES).where(TABLES.c.table_id == table_id).values(**former))
    entries.append_event(connection, FeedKind.TABLE_RELEASED, table_id, now_ms=now_ms)


def _refuse_shared(connection: sa.Connection, location: str, *, table_id: str) -> None:
    """Refuse a location at, above or below that of another table."""
    others = sa.select(TABLES).where(TABLES.c.table_id != table_id, locations.taken(location))
    other = connection.execute(others).first()
    if other is not None:
        raise RecoveryError(
            f"Table {table_id} cannot have the location {location}: {identifier_of(other)} (table id {other.table_id}, "
            f"{other.state}) is at {other.location}. Nothing was changed. Choose another location."
        )
