"""The versions and files of a change feed, for the Spark and the Arrow reader (protocol heading "Change Data Files").

This module reads no rows; it reads the footer of a data file whose statistics have no row count. Importing it needs no
Spark.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from cm_delta_dagster.client.snapshots.readable_table import LoadedCommit, ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.arguments import as_predicate, names_table
from cm_delta_dagster.operations.reading.table_definitions import definition_of, partitions_of
from cm_delta_dagster.protocol.actions.paths import resolve_path
from cm_delta_dagster.protocol.changes.change_data_feed import (
    CHANGE_COLUMNS,
    ChangePart,
    ChangeType,
    VectorChange,
    change_schema,
    plan_changes,
    replaces_rows,
    resolve_vector_changes,
    without_empty,
)
from cm_delta_dagster.protocol.changes.schema_breaks import SchemaBreak
from cm_delta_dagster.protocol.changes.schema_compatibility import VersionDefinition
from cm_delta_dagster.protocol.features.row_tracking import ROW_COMMIT_VERSION, ROW_ID
from cm_delta_dagster.protocol.predicates.predicates import (
    Opaque,
    Predicate,
    column_path,
    columns_of,
    conjunction,
    conjuncts,
    leaves,
)
from cm_delta_dagster.protocol.schema.selection import select_fields
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.protocol.statistics.data_skipping import keep_mask
from cm_delta_dagster.protocol.statistics.statistics import num_records
from cm_delta_dagster.storage.deletion_vector_reader import read_deletion_vectors
from cm_delta_dagster.storage.parquet import count_rows
from cm_delta_dagster.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRange:
    """A range of versions, both ends included.

    Attributes:
        starting_version, starting_timestamp_ms: the first version, or the first commit at or after that time.
        ending_version, ending_timestamp_ms: the last version, or the last commit at or before that time; the latest for None.
            Times are epoch milliseconds.
    """

    starting_version: int | None = None
    starting_timestamp_ms: int | None = None
    ending_version: int | None = None
    ending_timestamp_ms: int | None = None

    def check(self) -> None:
        """Raise InvalidArgumentError unless there is one start and at most one end, and versions are whole numbers."""
        for name, value in (("starting_version", self.starting_version), ("ending_version", self.ending_version)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise InvalidArgumentError(f"{name} is {value!r}; give a whole number.")
        if self.starting_version is None and self.starting_timestamp_ms is None:
            raise InvalidArgumentError(
                "The changes have no start. Give the first version, or the time of the first commit."
            )
        if self.starting_version is not None and self.starting_timestamp_ms is not None:
            raise InvalidArgumentError("The changes start at a version and at a time. Give one of them, not both.")
        if self.ending_version is not None and self.ending_timestamp_ms is not None:
            raise InvalidArgumentError("The changes end at a version and at a time. Give one of them, not both.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFiles:
    """The files that hold the changes, oldest version first, and the table definition to read them by.

    Attributes:
        time_zone: of partition values and conditions that state none; None for the default of the reader.
        stopped_before: as in :class:`ChangePlan`.
    """

    definition: VersionDefinition
    parts: tuple[ChangePart, ...]
    time_zone: tzinfo | None = None
    stopped_before: SchemaBreak | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangeScan:
    """The rows and columns of a change feed to read.

    Attributes:
        table: the table, which is asked for its storage and location only.
        changes: the files of the versions to read.
        columns: columns to return, in this order, found ignoring case; all for None.
        where: condition on the rows, SQL text or a predicate value.
    """

    table: ReadableTable
    changes: ChangeFiles
    columns: Sequence[str] | None = None
    where: Predicate | str | None = None

    @property
    def identifier(self) -> object:
        """The name of the table, or its location; messages contain it."""
        return self.table.identifier

    @cached_property
    def query(self) -> "ChangeQuery":
        """Columns and condition, resolved. Raises InvalidArgumentError for an unknown column or an invalid condition."""
        return change_query(self.changes, self.columns, self.where)

    def in_time_zone(self, zone: tzinfo | None) -> "ChangeScan":
        """The same scan with another time zone for times that state none."""
        return self if zone is self.changes.time_zone else replace(self, changes=replace(self.changes, time_zone=zone))


@names_table
def open_changes(
    table: ReadableTable,
    versions: ChangeRange,
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> ChangeScan:
    """A scan of the changes of the requested versions, whose files are listed now; the rest as in :class:`ChangeScan`.

    Raises:
        VersionNotFoundError: the first version or time is after the latest version, or its commit has been removed.
        InvalidArgumentError: the range is empty or not given, change data feed was not enabled for all of it, an unknown
            column, or ``where`` is not a condition.
        SchemaMismatchError: the schema changed within the range so that no single schema can read all of it.
        CorruptLogError, ObjectNotFoundError: a commit or a deletion vector is damaged or missing.
    """
    scan = ChangeScan(table=table, changes=find_changes(table, versions), columns=columns, where=where)
    _ = scan.query  # So that what is wrong is an error of this call.
    return scan


def find_changes(table: ReadableTable, versions: ChangeRange) -> ChangeFiles:
    """The files that hold all changes of the requested versions.

    Raises:
        SchemaMismatchError: the schema changed within the range so that no single schema can read all of it.
        VersionNotFoundError, InvalidArgumentError, CorruptLogError, ObjectNotFoundError: as :func:`find_changes_of_one_schema`.
    """
    changes = find_changes_of_one_schema(table, versions)
    stopped_before = changes.stopped_before
    if stopped_before is not None:
        version = stopped_before.version
        raise SchemaMismatchError(
            f"The changes of {table.identifier} before version {version} cannot be read with a schema after it: "
            f"{stopped_before.reason}. Read the changes of the versions before version {version}, and those from it on, separately."
        )
    return changes


def find_changes_of_one_schema(table: ReadableTable, versions: ChangeRange) -> ChangeFiles:
    """The files that hold the changes of the requested versions, or of those before a schema that cannot represent their rows.

    Raises:
        VersionNotFoundError: the first version or time is after the latest version, or its commit has been removed.
        InvalidArgumentError: the range is invalid or ends before it begins, or change data feed was not enabled for all of it.
        SchemaMismatchError: the first of the versions deletes rows that its own schema cannot represent.
        CorruptLogError, ObjectNotFoundError: a commit or a deletion vector is damaged or missing.
    """
    versions.check()
    latest = _newest_readable(table, versions)
    resolved = _resolve(table, versions, latest)
    if resolved is None:
        return ChangeFiles(definition=definition_of(latest), parts=(), time_zone=table.time_zone)
    start, end = resolved
    commits = tuple(table.commits(start, end))
    plan = plan_changes(
        commits,
        before=_definition_before(table, commits[0]),
        start=_definition_at_start(table, commits, latest),
        latest=definition_of(latest),
        location=table.location,
        table=str(table.identifier),
    )
    parts: list[ChangePart] = []
    for part in plan.parts:
        parts += (part,) if isinstance(part, ChangePart) else _resolved(table, part)
    return ChangeFiles(
        definition=plan.definition,
        parts=without_empty(parts),
        time_zone=table.time_zone,
        stopped_before=plan.stopped_before,
    )


def _newest_readable(table: ReadableTable, versions: ChangeRange) -> Snapshot:
    """The latest version; the end of the range if that is an older one and this client cannot read the latest."""
    try:
        return table.snapshot()
    except UnsupportedFeatureError:
        end = versions.ending_version
        if versions.ending_timestamp_ms is not None:
            end = table.version_at_or_before(versions.ending_timestamp_ms)
        if end is None or end >= table.latest_version():
            raise
        return table.snapshot(version=end)


def _definition_at_start(table: ReadableTable, commits: Sequence[LoadedCommit], latest: Snapshot) -> VersionDefinition:
    """The definition at the first of ``commits``. The state of that version is built only if no commit has the definition."""
    first = commits[0].actions
    if first.protocol is not None and first.metadata is not None:
        return VersionDefinition(version=first.version, protocol=first.protocol, metadata=first.metadata)
    later = [commit.actions for commit in commits[1:]]
    if commits[-1].version == latest.version and not any(item.protocol or item.metadata for item in later):
        return replace(definition_of(latest), version=first.version)
    return definition_of(table.snapshot(version=first.version))


def _definition_before(table: ReadableTable, first: LoadedCommit) -> VersionDefinition | None:
    """The definition under which the rows that the first commit removes were stored; None if it is the current one, or unknown."""
    if not first.version or not replaces_rows(first.actions):
        return None
    try:
        return definition_of(table.snapshot(version=first.version - 1))
    except VersionNotFoundError:
        return None


def rows_as_inserts(snapshot: Snapshot) -> ChangeFiles:
    """All rows of a version as inserts by its commit."""
    part = ChangePart(
        version=snapshot.version,
        timestamp_ms=snapshot.timestamp_ms,
        change_type=ChangeType.INSERT,
        files=snapshot.files,
    )
    return ChangeFiles(definition=definition_of(snapshot), parts=without_empty([part]), time_zone=snapshot.time_zone)


def no_changes(snapshot: Snapshot) -> ChangeFiles:
    """No rows, with the columns of the change feed at that version."""
    return ChangeFiles(definition=definition_of(snapshot), parts=(), time_zone=snapshot.time_zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeQuery:
    """The rows and columns to return of a change feed.

    Attributes:
        schema: all columns of the change feed.
        output: the columns to return, in order.
        stored: columns of the table to read; at least one.
        on_rows: the conjuncts of the condition that use columns of the table only.
        on_changes: the other conjuncts.
    """

    schema: StructType
    output: StructType
    stored: tuple[str, ...]
    on_rows: Predicate | None
    on_changes: Predicate | None
    definition: VersionDefinition
    time_zone: tzinfo | None = None

    def files(self, part: ChangePart) -> pa.Table:
        """The files of ``part`` that may hold a row for which the condition is true."""
        mask = self.keep_mask(part.files, part.stored_partitions)
        return part.files if mask is None else part.files.filter(mask)

    def keep_mask(self, files: pa.Table, stored_partitions: Sequence[str] | None) -> pa.BooleanArray | None:
        """True for the files that may hold a row for which the condition is true; None for all of them.

        Args:
            stored_partitions: as in :class:`ChangePart`.
        """
        if self.on_rows is None:
            return None
        return keep_mask(
            files,
            self.on_rows,
            schema=self.definition.schema,
            partition_columns=partitions_of(self.definition, stored_partitions),
            mapping=self.definition.mapping,
            zone=self.time_zone,
        )


def change_query(changes: ChangeFiles, columns: Sequence[str] | None, where: Predicate | str | None) -> ChangeQuery:
    """Resolve ``columns`` and ``where``. Raises InvalidArgumentError for an unknown column or an invalid condition."""
    definition = changes.definition
    schema = change_schema(definition.schema)
    output = _output(schema, columns)
    predicate = as_predicate(where, schema, zone=changes.time_zone)
    parts = conjuncts(predicate) if predicate is not None else ()
    on_rows = [part for part in parts if not _uses_change_columns(part)]
    on_changes = [part for part in parts if _uses_change_columns(part)]
    needed = [item.name for item in output.fields]
    for column in sorted(columns_of(conjunction(on_changes))):
        item = schema.field(column_path(column)[0])
        needed += [] if item is None or item.name in needed else [item.name]
    stored = [name for name in needed if name not in CHANGE_COLUMNS]
    return ChangeQuery(
        schema=schema,
        output=output,
        # Without a column of the table, rows could not be counted.
        stored=tuple(stored or definition.schema.names[:1]),
        on_rows=conjunction(on_rows) if on_rows else None,
        on_changes=conjunction(on_changes) if on_changes else None,
        definition=definition,
        time_zone=changes.time_zone,
    )


def _output(schema: StructType, columns: Sequence[str] | None) -> StructType:
    def missing(name: str) -> str:
        hint = "; changes have no row ids" if name in (ROW_ID, ROW_COMMIT_VERSION) else ""
        return f"The change feed has no column {name!r}{hint}. Its columns are {', '.join(schema.names)}."

    return StructType(select_fields(schema, columns, missing=missing))


def _uses_change_columns(predicate: Predicate) -> bool:
    named = any(column_path(column)[0].lower() in CHANGE_COLUMNS for column in columns_of(predicate))
    return named or _has_unknown(predicate)


def _has_unknown(predicate: Predicate) -> bool:
    return any(isinstance(leaf, Opaque) and leaf.columns is None for leaf in leaves(predicate))


def _resolve(table: ReadableTable, versions: ChangeRange, latest: Snapshot) -> tuple[int, int] | None:
    """First and last version; None if there is no version between the two times."""
    start = versions.starting_version
    if start is None:
        assert versions.starting_timestamp_ms is not None
        start = table.version_at_or_after(versions.starting_timestamp_ms)
    if not 0 <= start <= latest.version:
        raise VersionNotFoundError(
            f"{table.identifier} has no changes from version {start} on: its versions are 0 to {latest.version}."
        )
    end = latest.version if versions.ending_version is None else versions.ending_version
    if versions.ending_timestamp_ms is not None:
        end = table.version_at_or_before(versions.ending_timestamp_ms)
        if (
            versions.starting_timestamp_ms is not None
            and versions.starting_timestamp_ms <= versions.ending_timestamp_ms
            and end < start
        ):
            return None
    if end < start:
        raise InvalidArgumentError(
            f"The requested changes of {table.identifier} end at version {end}, before they begin at version {start}. "
            "Swap the two, or omit the end for the latest version."
        )
    return start, min(end, latest.version)


def _resolved(table: ReadableTable, change: VectorChange) -> tuple[ChangePart, ...]:
    return resolve_vector_changes(
        change,
        before=_bitmaps(table.store, table.location, change.before),
        after=_bitmaps(table.store, table.location, change.after),
        num_rows=_row_counts(table.store, table.location, change.after),
    )


def _bitmaps(store: Store, location: str, files: pa.Table) -> list[BitMap64]:
    has_vector = pc.is_valid(files["deletionVector"])
    read = iter(read_deletion_vectors(store, location=location, files=files.filter(has_vector)))
    return [next(read) if present else BitMap64() for present in has_vector.to_pylist()]


def _row_counts(store: Store, location: str, files: pa.Table) -> Sequence[int]:
    counts = num_records(files["stats"]).to_pylist()
    return [
        count_rows(store, resolve_path(location, path)) if count is None else count
        for count, path in zip(counts, files["path"].to_pylist(), strict=True)
    ]
