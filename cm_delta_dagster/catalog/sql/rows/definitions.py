"""Metadata and protocol of each table, equal to those of its log, and the etag that changes with them.

Functions over an open connection. The caller opens the transaction and, for a write, holds the lock of the table's row.
"""

import logging
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.advice import advice
from cm_delta_dagster.catalog.sql.database.prepared import Prepared
from cm_delta_dagster.catalog.sql.database.schema import DEFINITIONS, TABLES
from cm_delta_dagster.catalog.tables import RecordedDefinition, TableIdentifier
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol
from cm_delta_dagster.remedies import RepairTable

_log = logging.getLogger(__name__)

COLUMNS = (
    DEFINITIONS.c.metadata,
    DEFINITIONS.c.protocol,
    DEFINITIONS.c.version.label("defined_version"),
    DEFINITIONS.c.in_commit_timestamp.label("defined_timestamp"),
)

_OF_TABLE = DEFINITIONS.c.table_id == sa.bindparam("of_table")
_KNOWN = sa.select(DEFINITIONS).where(_OF_TABLE)
_STORED = Prepared(sa.select(DEFINITIONS.c.metadata, DEFINITIONS.c.protocol, DEFINITIONS.c.version).where(_OF_TABLE))
_INSERT = sa.insert(DEFINITIONS)
_CHANGE = (
    sa.update(DEFINITIONS)
    .where(_OF_TABLE)
    .values(
        metadata=sa.bindparam("to_metadata"),
        protocol=sa.bindparam("to_protocol"),
        version=sa.bindparam("at_version"),
        in_commit_timestamp=sa.bindparam("at_timestamp"),
    )
)
_NEXT_ETAG = sa.update(TABLES).where(TABLES.c.table_id == sa.bindparam("of_table")).values(etag=TABLES.c.etag + 1)


def record(
    connection: sa.Connection,
    table_id: str,
    *,
    metadata: Metadata | None,
    protocol: Protocol | None,
    version: int,
    in_commit_timestamp: int,
    changed_by_commit: bool,
) -> None:
    """Store metadata and protocol as of ``version``; None keeps the stored one. A change changes the etag.

    Args:
        changed_by_commit: True if a commit after version 0 sets them. Then the etag changes even if nothing was stored before;
            otherwise a first report describes what the table had all along.
    """
    if metadata is None and protocol is None:
        return
    reported = {"metadata": line_of(metadata), "protocol": line_of(protocol)}
    known = connection.execute(_KNOWN, {"of_table": table_id}).one_or_none()
    since = {"version": version, "in_commit_timestamp": in_commit_timestamp}
    if known is None:
        connection.execute(_INSERT, {"table_id": table_id, **reported, **since})
        if changed_by_commit:
            change_etag(connection, table_id)
        return
    before = {"metadata": known.metadata, "protocol": known.protocol}
    after = {name: before[name] if line is None else line for name, line in reported.items()}
    if after == before:
        return
    parameters = {"to_metadata": after["metadata"], "to_protocol": after["protocol"]}
    connection.execute(
        _CHANGE, {"of_table": table_id, **parameters, "at_version": version, "at_timestamp": in_commit_timestamp}
    )
    if changed_by_commit or any(before[name] not in (None, after[name]) for name in before):
        change_etag(connection, table_id)


def forget(connection: sa.Connection, table_id: str) -> None:
    """Delete the definition: clients read it from the log."""
    connection.execute(sa.delete(DEFINITIONS).where(_OF_TABLE), {"of_table": table_id})
    change_etag(connection, table_id)


def change_etag(connection: sa.Connection, table_id: str) -> None:
    """Change the etag, under the lock of the table's row."""
    connection.execute(_NEXT_ETAG, {"of_table": table_id})


def etag(row: Any) -> str:
    """The etag of a row of ``TABLES``, unique over all tables."""
    return f"{row.table_id}/{row.etag}"


def definition(row: Any, identifier: TableIdentifier) -> RecordedDefinition | None:
    """The value of ``COLUMNS``; None if an action is missing or unreadable. Clients then read both from the log."""
    if row.metadata is None or row.protocol is None:
        return None
    try:
        metadata = commit_json.decode_metadata(row.metadata, version=row.defined_version)
        protocol = _protocol(row.protocol)
    except CorruptLogError:
        metadata = protocol = None
    if metadata is None or protocol is None:
        _log.warning(
            "The catalog's copy of metadata and protocol of %s is damaged; clients read them from the log. %s",
            identifier,
            advice(RepairTable(table=str(identifier))),
        )
        return None
    return RecordedDefinition(
        metadata=metadata,
        protocol=protocol,
        version=row.defined_version,
        in_commit_timestamp=row.defined_timestamp,
    )


@lru_cache(maxsize=256)
def _protocol(line: str) -> Protocol | None:
    """The protocol of a line. A catalog has few of them, and each of its tables has one."""
    return commit_json.decode_commit(line.encode(), version=0).protocol


def line_of(action: Metadata | Protocol | None) -> str | None:
    """The line of a commit that sets the action; None without one."""
    return None if action is None else commit_json.encode_action(action)


def metadata_of(connection: sa.Connection, table_id: str) -> Metadata | None:
    """The stored metadata of a table; None if it is missing or unreadable."""
    row = connection.execute(_KNOWN, {"of_table": table_id}).one_or_none()
    return None if row is None else _stored(row)[0]


def stored(connection: sa.Connection, table_id: str) -> tuple[Metadata | None, Protocol | None]:
    """The stored metadata and protocol of a table; None for what is not known."""
    rows = _STORED.rows(connection, {"of_table": table_id})
    return _stored(rows[0]) if rows else (None, None)


def _stored(row: Any) -> tuple[Metadata | None, Protocol | None]:
    lines = "".join(f"{line}\n" for line in (row.protocol, row.metadata) if line is not None)
    try:
        actions = commit_json.decode_commit(lines.encode(), version=row.version)
    except CorruptLogError:
        return None, None
    return actions.metadata, actions.protocol
