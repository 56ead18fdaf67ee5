"""DESCRIBE of tables of the catalog: columns, details, history."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.history import HistoryEntry
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.reading.consistent_snapshots import LatestVersion, ReadableVersion
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.operations.sql.answers import Answer
from cm_delta_dagster.operations.sql.names import Name, resolve_readable, unknown_name
from cm_delta_dagster.operations.sql.statements import Statement
from cm_delta_dagster.operations.sql.words import Words
from cm_delta_dagster.protocol.features.table_features import reader_features, writer_features
from cm_delta_dagster.protocol.predicates.timestamps import utc_text
from cm_delta_dagster.protocol.schema.char_types import CHAR_METADATA
from cm_delta_dagster.protocol.schema.column_paths import path_text
from cm_delta_dagster.protocol.schema.types import StructField, data_type_text, walk_fields

_COLUMNS = {"col_name": "string", "data_type": "string", "comment": "string"}
_HISTORY = {
    "version": "bigint",
    "timestamp": "timestamp",
    "userId": "string",
    "userName": "string",
    "operation": "string",
    "operationParameters": "map<string,string>",
    "readVersion": "bigint",
    "isolationLevel": "string",
    "isBlindAppend": "boolean",
    "operationMetrics": "map<string,string>",
    "userMetadata": "string",
    "engineInfo": "string",
}
_DETAIL = {
    "format": "string",
    "id": "string",
    "name": "string",
    "description": "string",
    "location": "string",
    "createdAt": "timestamp",
    "lastModified": "timestamp",
    "partitionColumns": "array<string>",
    "clusteringColumns": "array<string>",
    "numFiles": "bigint",
    "sizeInBytes": "bigint",
    "properties": "map<string,string>",
    "minReaderVersion": "int",
    "minWriterVersion": "int",
    "tableFeatures": "array<string>",
    "version": "bigint",
    "owner": "string",
}


class Detail(StrEnum):
    """What DESCRIBE shows."""

    COLUMNS = "columns"
    EXTENDED = "extended"
    DETAIL = "detail"
    HISTORY = "history"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A DESCRIBE of the table ``name``; ``limit`` of the history."""

    name: Name
    detail: Detail
    limit: int | None = None


_PARTS = 3
_NOT_TABLES = ("FUNCTION", "SCHEMA", "DATABASE", "NAMESPACE", "CATALOG", "PROCEDURE")


def read_description(statement: Statement) -> Description | None:
    """What the statement describes; None for what only Spark can describe, such as a function.

    Raises:
        InvalidArgumentError: the statement is malformed; the message has the place.
    """
    words = Words(statement, after=1)
    following = statement.lexemes[2:3]
    # Each of these words is the name of a table if nothing, or a dot, follows.
    if following and following[0].symbol != ".":
        if words.take(*_NOT_TABLES):
            return None
        if words.take("HISTORY"):
            return _history(words)
        if words.take("DETAIL"):
            return _rest(words, Detail.DETAIL)
        words.take("TABLE")
        if words.take("EXTENDED", "FORMATTED"):
            return _rest(words, Detail.EXTENDED)
    name = words.name()
    if len(name) < _PARTS and not words.is_done():
        return None  # A column of a view, for example.
    words.done()
    return Description(name=name, detail=Detail.COLUMNS)


def _history(words: Words) -> Description:
    name, limit = words.name(), None
    if words.take("LIMIT"):
        limit = words.number()
        if limit is None:
            raise words.fault("the number of commits")
    words.done()
    return Description(name=name, detail=Detail.HISTORY, limit=limit)


def _rest(words: Words, detail: Detail) -> Description:
    name = words.name()
    words.done()
    return Description(name=name, detail=detail)


def describe(client: DeltaClient, description: Description) -> Answer | None:
    """The answer for a table of the catalog; None if it has no such table and Spark may have a view of that name.

    Raises:
        TableNotFoundError: history or details of a name that the catalog does not have.
    """
    latest = resolve_readable(client, (description.name,)).get(description.name)
    if latest is None:
        if description.detail in (Detail.COLUMNS, Detail.EXTENDED):
            return None
        raise unknown_name(client, description.name)
    match description.detail:
        case Detail.HISTORY:
            entries = history(latest.table, limit=description.limit)
            return Answer(columns=_HISTORY, rows=tuple(map(_history_row, entries)))
        case Detail.DETAIL:
            return Answer(columns=_DETAIL, rows=((*_detail_row(latest.snapshot()), _owner(client, latest)),))
        case _:
            is_extended = description.detail is Detail.EXTENDED
            return Answer(columns=_COLUMNS, rows=tuple(_all_rows(client, latest, is_extended=is_extended)))


def _owner(client: DeltaClient, latest: ReadableVersion) -> str | None:
    """The owner of a table of the catalog; None for a registered path, and if the creator stated no name."""
    return client.access.table_owner(latest.table.table_id) if isinstance(latest, LatestVersion) else None


def _all_rows(
    client: DeltaClient, latest: ReadableVersion, *, is_extended: bool
) -> Iterator[tuple[str, str, str | None]]:
    yield from _column_rows(latest.snapshot(), is_extended=is_extended)
    owner = _owner(client, latest) if is_extended else None
    if owner is not None:
        yield ("Owner", owner, "")


def column_type(item: StructField) -> str:
    """The type of a column as its declaration has it: ``char(3)`` for a column that is stored as a string."""
    declared = item.metadata.get(CHAR_METADATA)
    return declared if isinstance(declared, str) else data_type_text(item.type)


def comment_of(item: StructField) -> str | None:
    """The comment of a column."""
    comment = item.metadata.get("comment")
    return comment if isinstance(comment, str) else None


def _column_rows(snapshot: Snapshot, *, is_extended: bool) -> Iterator[tuple[str, str, str | None]]:
    by_name = {item.name: (item.name, column_type(item), comment_of(item)) for item in snapshot.schema.fields}
    yield from by_name.values()
    if snapshot.partition_columns:
        yield ("# Partition Information", "", "")
        yield ("# col_name", "data_type", "comment")
        for name in snapshot.partition_columns:
            item = snapshot.schema.field(name)
            yield by_name[name if item is None else item.name]
    if snapshot.clustering_columns:
        fields = dict(walk_fields(snapshot.schema))
        yield ("# Clustering Information", "", "")
        yield ("# col_name", "data_type", "comment")
        for path in snapshot.clustering_columns:
            leaf = fields[path]
            yield (path_text(path), column_type(leaf), comment_of(leaf))
    if not is_extended:
        return
    yield ("", "", "")
    yield ("# Detailed Table Information", "", "")
    created = snapshot.metadata.created_time
    properties = ",".join(f"{key}={value}" for key, value in sorted(snapshot.metadata.configuration.items()))
    details = {
        "Name": snapshot.identifier,
        "Type": "MANAGED",
        "Location": snapshot.location,
        "Provider": "delta",
        "Created Time": "" if created is None else _iso_text(created),
        "Comment": snapshot.metadata.description or "",
        "Version": str(snapshot.version),
        "Table Properties": f"[{properties}]",
    }
    for key, value in details.items():
        yield (key, value, "")


def _detail_row(snapshot: Snapshot) -> tuple[Any, ...]:
    metadata, protocol = snapshot.metadata, snapshot.protocol
    created = metadata.created_time
    return (
        "delta",
        metadata.id,
        snapshot.identifier,
        metadata.description,
        snapshot.location,
        None if created is None else _time(created),
        _time(snapshot.timestamp_ms),
        list(snapshot.partition_columns),
        [path_text(path) for path in snapshot.clustering_columns],
        snapshot.num_files,
        snapshot.size_bytes,
        dict(metadata.configuration),
        protocol.min_reader_version,
        protocol.min_writer_version,
        sorted(reader_features(protocol) | writer_features(protocol)),
        snapshot.version,
    )


def _history_row(entry: HistoryEntry) -> tuple[Any, ...]:
    info = entry.commit_info
    time = _time(entry.timestamp_ms)
    if info is None:
        return (entry.version, time, *[None] * (len(_HISTORY) - 2))
    metrics = info.operation_metrics
    return (
        entry.version,
        time,
        info.user_id,
        info.user_name,
        info.operation,
        {key: _text(value) for key, value in info.operation_parameters.items()},
        info.read_version,
        info.isolation_level,
        info.is_blind_append,
        None if metrics is None else {key: _text(value) for key, value in metrics.items()},
        info.user_metadata,
        info.engine_info,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _iso_text(epoch_ms: int) -> str:
    time = _time(epoch_ms)
    return utc_text(epoch_ms) if time is None else time.isoformat()


def _time(epoch_ms: int) -> datetime | None:
    """None for a time that the calendar does not have, as other writers can record it."""
    with suppress(OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)
    return None
