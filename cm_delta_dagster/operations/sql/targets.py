"""The table that a statement writes to, and the rows of the query that the statement contains."""

import typing
from collections.abc import Mapping

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.table_target import TableTarget
from cm_delta_dagster.errors import InvalidArgumentError, TableNotFoundError
from cm_delta_dagster.operations.reading.consistent_snapshots import LatestVersion, ReadableVersion
from cm_delta_dagster.operations.sql.names import (
    Name,
    registered,
    resolve,
    resolve_for_query,
    resolve_readable,
    unknown_name,
)
from cm_delta_dagster.operations.sql.queries import PreparedQuery, prepare_query, time_ms
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.operations.sql.time_travel import VersionText, read_time_travel
from cm_delta_dagster.operations.sql.words import Span, Words
from cm_delta_dagster.remedies import AdoptTable
from cm_delta_dagster.spark.library import SparkSession


class SqlSession(typing.Protocol):
    """What the functions of this package that write need of a connection."""

    @property
    def client(self) -> DeltaClient: ...

    @property
    def spark(self) -> SparkSession: ...


def identifier_of(name: Name) -> TableIdentifier:
    """The name of a table of the catalog. Raises InvalidArgumentError unless it has three parts."""
    if len(name) != 3:
        raise InvalidArgumentError(
            f"{'.'.join(name)} is not the name of a table of the catalog, which is catalog.schema.table. Nothing was changed. "
            "Write all three parts."
        )
    return TableIdentifier(*name)


def open_table(session: SqlSession, name: Name) -> Table:
    """The table of the catalog of that name, ignoring case if no table has the spelling.

    Raises:
        TableNotFoundError: the catalog has no such table.
    """
    tables = resolve(session.client, (name,))
    if name not in tables:
        raise no_target(session, name)
    return tables[name].table


def no_target(session: SqlSession, name: Name) -> TableNotFoundError:
    """The error for a statement that writes to a name that no table of the catalog has."""
    if registered(session.client, (name,)):
        text = ".".join(name)
        return TableNotFoundError(
            f"{text} is registered for reading only: no catalog manages the table. Nothing was changed. Adopt it to "
            f"write to it, or copy its rows: CREATE TABLE new_name AS SELECT * FROM {text}."
        ).with_remedy(AdoptTable())
    return unknown_name(session.client, name, engine=None)


def open_readable(session: SqlSession, name: Name) -> ReadableTable:
    """The table of the catalog or the registered table of that name. Raises TableNotFoundError."""
    tables = resolve_readable(session.client, (name,))
    if name not in tables:
        raise unknown_name(session.client, name, engine=None)
    return tables[name].table


def source_query(statement: Statement, span: Span, *, before: str = "") -> PreparedQuery:
    """The query of a part of a statement, at its place in the text, which messages name.

    Args:
        before: text to put before it.
    """
    common = statement.text[: statement.common_tables]
    blank = "".join(
        character if character == "\n" else " " for character in statement.text[statement.common_tables : span.start]
    )
    return prepare_query(common + blank[: len(blank) - len(before)] + before + span.text)


def open_together(
    session: SqlSession, name: Name, *queries: PreparedQuery
) -> tuple["PinnedTable", Mapping[Name, ReadableVersion]]:
    """The table to write to and the tables of the queries, at versions that were the latest ones at one moment.

    Raises:
        TableNotFoundError: the catalog has no table ``name``.
    """
    names = (name, *(other for query in queries for other in query.names))
    tables = resolve_for_query(session.client, names, target=name)
    latest = tables.get(name)
    if not isinstance(latest, LatestVersion):
        raise no_target(session, name)
    is_read = any(query.reads(tables, latest.table.location) for query in queries)
    return PinnedTable(latest.table, pinned=latest.snapshot(), is_read=is_read), tables


class PinnedTable(TableTarget):
    """A table whose write builds on the version that the query of the statement has read.

    Args:
        pinned: that version.
        is_read: the query reads the table, so that every concurrent change of its rows is a conflict.
    """

    def __init__(self, table: Table, *, pinned: Snapshot, is_read: bool) -> None:
        super().__init__(table)
        self.pinned = pinned
        self._is_read = is_read
        self._is_used = False

    def snapshot(self) -> Snapshot:
        """The pinned version; a repetition of a write that does not read the table builds on the latest version."""
        if self._is_used and not self._is_read:
            return super().snapshot()
        self._is_used = True
        return self.pinned

    def start_transaction(
        self,
        snapshot: Snapshot,
        *,
        operation: str,
        parameters: Mapping[str, str] | None = None,
        context: CommitProperties = NO_PROPERTIES,
    ) -> Transaction:
        """As that of the table; declares the rows that the query has read."""
        started = self.table.start_transaction(snapshot, operation=operation, parameters=parameters, context=context)
        if self._is_read:
            started.read_whole_table()
        return started


def time_travel(words: Words, statement: Statement) -> VersionText | None:
    """The clause VERSION AS OF or TIMESTAMP AS OF that comes next; None if there is none. Raises InvalidArgumentError."""
    version, words.at = read_time_travel(statement.text, statement.lexemes, words.at)
    if version is not None and version.hold_id is not None:
        raise InvalidArgumentError(
            f"{version.hold_id} is a hold, which only queries read: SELECT ... FROM the table VERSION AS OF {version.hold_id!r}. "
            "Nothing was changed. Ratify it first, or name a version."
        )
    return version


def time_of(session: SqlSession, version: VersionText | None, table: ReadableTable) -> int | None:
    """The time of a clause in epoch milliseconds; None if it names none."""
    if version is None or version.timestamp is None:
        return None
    return time_ms(version.timestamp, spark=session.spark, zone=table.time_zone)
