"""Metadata and protocol of each table, in step with its log (CM-C13), and the etag that changes with them.

Functions over an open connection; the transaction around them is the caller's, who holds the lock of the
table's row where something is written. What a table property means is not known here.
"""

import logging
from typing import Any

import sqlalchemy as sa

from cm_delta_dagster.catalog.sql.schema import DEFINITIONS, TABLES
from cm_delta_dagster.catalog.tables import TableDefinition
from cm_delta_dagster.errors import CorruptLogError
from cm_delta_dagster.protocol.actions import commit_json
from cm_delta_dagster.protocol.actions.actions import Metadata, Protocol

_log = logging.getLogger(__name__)

COLUMNS = (
    DEFINITIONS.c.metadata,
    DEFINITIONS.c.protocol,
    DEFINITIONS.c.version.label("defined_version"),
    DEFINITIONS.c.in_commit_timestamp.label("defined_timestamp"),
)

_OF_TABLE = DEFINITIONS.c.table_id == sa.bindparam("of_table")
_KNOWN = sa.select(DEFINITIONS).where(_OF_TABLE)
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
    """Keep what holds from ``version`` on; None leaves what is there. The etag changes with it.

    Args:
        changed_by_commit: whether a commit after version 0 sets this, which then differs from what was not known before;
            otherwise that is what has held all the time.
    """
    if metadata is None and protocol is None:
        return
    told = {"metadata": _line(metadata), "protocol": _line(protocol)}
    known = connection.execute(_KNOWN, {"of_table": table_id}).one_or_none()
    since = {"version": version, "in_commit_timestamp": in_commit_timestamp}
    if known is None:
        connection.execute(_INSERT, {"table_id": table_id, **told, **since})
        if changed_by_commit:
            change_etag(connection, table_id)
        return
    before = {"metadata": known.metadata, "protocol": known.protocol}
    after = {name: before[name] if line is None else line for name, line in told.items()}
    if after == before:
        return
    parameters = {"to_metadata": after["metadata"], "to_protocol": after["protocol"]}
    connection.execute(
        _CHANGE, {"of_table": table_id, **parameters, "at_version": version, "at_timestamp": in_commit_timestamp}
    )
    if changed_by_commit or any(before[name] not in (None, after[name]) for name in before):
        change_etag(connection, table_id)


def change_etag(connection: sa.Connection, table_id: str) -> None:
    """Another etag, under the lock of the table's row."""
    connection.execute(_NEXT_ETAG, {"of_table": table_id})


def etag(row: Any) -> str:
    """The etag of a row of ``TABLES``; no two tables have the same."""
    return f"{row.table_id}/{row.etag}"


def definition(row: Any) -> TableDefinition | None:
    """The value of ``COLUMNS``; None unless both actions are known and can be read. Clients take them from the log then."""
    if row.metadata is None or row.protocol is None:
        return None
    lines = f"{row.protocol}\n{row.metadata}\n".encode()
    try:
        actions = commit_json.decode_commit(lines, version=row.defined_version)
    except CorruptLogError:
        actions = None
    if actions is None or actions.metadata is None or actions.protocol is None:
        _log.warning(
            "The catalog's copy of metadata and protocol of table %s is damaged; they are read from the log. "
            "`cm-delta doctor NAME --repair` writes it anew.",
            row.table_id,
        )
        return None
    return TableDefinition(
        metadata=actions.metadata,
        protocol=actions.protocol,
        version=row.defined_version,
        in_commit_timestamp=row.defined_timestamp,
    )


def _line(action: Metadata | Protocol | None) -> str | None:
    return None if action is None else commit_json.encode_action(action)
