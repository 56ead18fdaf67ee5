"""Methods that read one table: rows, changes, counts, history.

Catalog-managed tables (``delta_table``) and tables of other writers, opened by path, share them. Methods with ``arrow`` in
their name need neither Java nor a Spark session.
"""

import typing
from collections.abc import Mapping, Sequence
from datetime import tzinfo

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.api.engine_reads import EngineReads
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.arguments import Timestamp, as_predicate, epoch_milliseconds, one_of
from cm_delta_dagster.operations.reading.change_query import ChangeRange
from cm_delta_dagster.operations.reading.history import HistoryEntry, history
from cm_delta_dagster.operations.reading.metadata_query import aggregate
from cm_delta_dagster.operations.reading.read import ReadPlan, plan_read, read
from cm_delta_dagster.operations.reading.read_arrow import read_arrow, read_batches
from cm_delta_dagster.operations.reading.read_changes import read_changes
from cm_delta_dagster.operations.reading.read_changes_arrow import read_change_batches, read_changes_arrow
from cm_delta_dagster.operations.reading.read_stream import stream
from cm_delta_dagster.operations.reading.read_stream_arrow import TableStream, stream_arrow
from cm_delta_dagster.operations.reading.stream_state import StreamOptions
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneRequest, CloneResult
from cm_delta_dagster.operations.tables.replace import CreationMode
from cm_delta_dagster.operations.tables.replace_with_clone import clone_or_replace
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.protocol.changes.batch_planning import DEFAULT_MAX_FILES, ChangeHandling
from cm_delta_dagster.protocol.changes.stream_offset import StreamOffset
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.predicates.timestamps import as_zone
from cm_delta_dagster.protocol.schema.column_paths import path_text
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.protocol.statistics.metadata_aggregates import MetadataAggregates

TableT = typing.TypeVar("TableT", bound=ReadableTable)

TimeZone: typing.TypeAlias = tzinfo | str | None
"""A time zone or its name."""


class HasSession(typing.Protocol):
    """The connection of a table: its client, the Spark session, and the time zone."""

    @property
    def client(self) -> DeltaClient: ...

    @property
    def spark(self) -> SparkSession: ...

    @property
    def time_zone(self) -> tzinfo: ...

    @property
    def running_time_zone(self) -> tzinfo | None: ...


class TableReads(EngineReads, typing.Generic[TableT]):
    """The methods that read one table.

    Each call reads the version that is the latest at the time of the call, unless a version or timestamp is given. A
    timestamp is a datetime with a time zone, a date (its midnight), text in Spark's format, or epoch milliseconds.

    Times that state no time zone are dates and text as timestamp, literals in ``where``, and ``timestamp`` partition values of
    some other writers. They are in ``time_zone`` of the call, else in that of the table (``path_table``) or the connection
    (``connect``), else in that of the running Spark session. Without any, partition values are in UTC, and the others are
    refused.

    Attributes:
        table: the table handle of the Delta client.
    """

    def __init__(self, connection: HasSession, table: TableT) -> None:
        self.table = table
        self._connection = connection

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, location={self.location!r})"

    @property
    def name(self) -> str:
        """``catalog.schema.table``, or the location of a table without a name."""
        return str(self.table.identifier)

    @property
    def location(self) -> str:
        """Absolute URI of the table root."""
        return self.table.location

    def _in_zone(self, zone: TimeZone) -> TableT:
        """The table with the time zone of a call."""
        own_zone = as_zone(zone)
        return self.table if own_zone is None else self.table.in_time_zone(own_zone)

    def _in_known_zone(self, zone: TimeZone) -> TableT:
        """As :meth:`_in_zone`, with the time zone of the running session by default, for reads without Spark."""
        table = self._in_zone(zone)
        return table if table.time_zone is not None else table.in_time_zone(self._connection.running_time_zone)

    def _epoch_ms(self, timestamp: Timestamp | None, zone: TimeZone = None) -> int | None:
        if timestamp is None:
            return None
        own_zone = as_zone(zone) or self.table.time_zone
        return epoch_milliseconds(timestamp, zone=lambda: own_zone or self._connection.time_zone)

    def snapshot(self, *, version: int | None = None, timestamp: Timestamp | None = None) -> Snapshot:
        """Return the snapshot of the latest version, of ``version``, or as of ``timestamp``.

        Raises:
            VersionNotFoundError: there is no such version, or no version at that time.
        """
        return self.table.snapshot(version=version, timestamp_ms=self._epoch_ms(timestamp))

    def clone(
        self,
        name: TableIdentifier | str,
        mode: CloneMode | str = CloneMode.SHALLOW,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        properties: Mapping[str, str] | None = None,
        creation: CreationMode | str = CreationMode.CREATE,
        context: CommitContext = NO_CONTEXT,
    ) -> CloneResult:
        """Create the table ``name`` with the rows, columns and properties of this table: CREATE TABLE ... CLONE.

        Args:
            name: ``catalog.schema.table`` of the new table.
            mode: ``shallow``: the clone names the data files of this table, and nothing is copied. ``deep``: they are copied.
            version, timestamp: what to clone; by default the latest version.
            properties: table properties in addition to those of this table, or in their place.
            creation: ``create``; ``replace`` makes the table of that name, which must be empty, the clone; ``create_or_replace``.
            context: provenance, recorded in the history of the clone.

        Returns:
            What was created. Its ``warning`` says so if the catalog cannot protect the files of a shallow clone: those of a table
            that was opened by path.

        Raises:
            TableAlreadyExistsError: the name is taken.
            InvalidArgumentError: an unknown mode, this table itself, a table with rows, or a property that does not fit.
            VersionNotFoundError: there is no such version.
            UnsupportedFeatureError: this table uses features that this client cannot write.
            MaintenanceInProgressError: a maintenance run holds the lease of this table.
            ObjectNotFoundError: storage does not hold all files of the version.
        """
        moment, more = self._epoch_ms(timestamp), dict(properties or {})
        request = CloneRequest(
            mode=one_of(CloneMode, mode, name="mode"), version=version, timestamp_ms=moment, properties=more
        )
        client, as_ = self._connection.client, one_of(CreationMode, creation, name="creation")
        return clone_or_replace(client, self.table, identifier=name, request=request, mode=as_, context=context)

    def version(self) -> int:
        """Return the latest version."""
        return self.snapshot().version

    def schema(self) -> StructType:
        """Return the columns of the latest version."""
        return self.snapshot().schema

    def clustering_columns(self) -> tuple[str, ...]:
        """Return the clustering columns of the latest version, in order; empty if there are none."""
        return tuple(map(path_text, self.snapshot().clustering_columns))

    def files(self, where: Predicate | str | None = None) -> pa.Table:
        """Return the data files of the latest version, one row each; with ``where``, those that may hold a matching row."""
        snapshot = self.snapshot()
        return snapshot.matching_files(as_predicate(where, snapshot.schema, zone=snapshot.time_zone))

    def history(self, limit: int | None = None) -> tuple[HistoryEntry, ...]:
        """Return the commits, newest first, at most ``limit``."""
        return history(self.table, limit=limit)

    def to_df(
        self,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: TimeZone = None,
    ) -> DataFrame:
        """Read the rows of one version as a Spark DataFrame, with the types, nullability and comments of the table.

        Args:
            columns: top-level columns to return; None for all. Tables with row tracking also have ``_row_id`` and
                ``_row_commit_version``.
            where: condition on rows: SQL text, a predicate value or a Column. Files that cannot match are skipped.
            time_zone: of times that state none: a region such as ``"Europe/Berlin"``, an offset or a ``tzinfo``.

        Raises:
            InvalidArgumentError: an unknown column, or both ``version`` and ``timestamp``.
            VersionNotFoundError: there is no such version.
        """
        return read(
            self._in_zone(time_zone),
            spark=self._connection.spark,
            columns=columns,
            where=where,
            version=version,
            timestamp_ms=self._epoch_ms(timestamp, time_zone),
        )

    def plan_read(
        self,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: TimeZone = None,
    ) -> ReadPlan:
        """Return the files that :meth:`to_df` would read, and how many files and bytes it would skip."""
        return self._read_version(plan_read, columns, where, version, timestamp, time_zone)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: TimeZone = None,
    ) -> pa.Table:
        """Read the rows of one version as an Arrow table; arguments as in :meth:`to_df`.

        Raises:
            InvalidArgumentError: as in :meth:`to_df`, or ``where`` is SQL that only Spark can evaluate.
        """
        return self._read_version(read_arrow, columns, where, version, timestamp, time_zone)

    def to_arrow_batches(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: TimeZone = None,
    ) -> pa.RecordBatchReader:
        """Like :meth:`to_arrow`, in batches, for tables larger than memory. Close the reader to stop early."""
        return self._read_version(read_batches, columns, where, version, timestamp, time_zone)

    def count_rows(self, where: Predicate | str | None = None, *, time_zone: TimeZone = None) -> int:
        """Count the rows of the latest version, from statistics in the log if they are exact, else by reading one column."""
        table = self._in_known_zone(time_zone)
        snapshot = table.snapshot()
        known = aggregate(table, where=where, version=snapshot.version).num_rows
        if known is not None:
            return known
        columns = snapshot.schema.names[:1]
        with read_batches(table, columns=columns, where=where, version=snapshot.version) as batches:
            return sum(batch.num_rows for batch in batches)

    def aggregates(
        self, columns: Sequence[str] = (), where: Predicate | str | None = None, *, time_zone: TimeZone = None
    ) -> MetadataAggregates:
        """Return row count, minima and maxima as far as statistics in the log give them exactly; reads no rows."""
        return aggregate(self._in_known_zone(time_zone), columns=columns, where=where)

    def _change_range(
        self,
        starting_version: int | None,
        ending_version: int | None,
        starting_timestamp: Timestamp | None,
        ending_timestamp: Timestamp | None,
        zone: TimeZone,
    ) -> ChangeRange:
        return ChangeRange(
            starting_version=starting_version,
            starting_timestamp_ms=self._epoch_ms(starting_timestamp, zone),
            ending_version=ending_version,
            ending_timestamp_ms=self._epoch_ms(ending_timestamp, zone),
        )

    def changes(
        self,
        *,
        starting_version: int | None = None,
        ending_version: int | None = None,
        starting_timestamp: Timestamp | None = None,
        ending_timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        time_zone: TimeZone = None,
    ) -> DataFrame:
        """Read the change data feed of a range of versions, both ends included, as a Spark DataFrame.

        Rows have the table's columns, ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

        Raises:
            InvalidArgumentError: change data feed was not enabled in the whole range, or the range is empty or not given.
            VersionNotFoundError: the range begins after the latest version.
        """
        return read_changes(
            self._in_zone(time_zone),
            self._change_range(starting_version, ending_version, starting_timestamp, ending_timestamp, time_zone),
            spark=self._connection.spark,
            columns=columns,
            where=where,
        )

    def changes_arrow(
        self,
        *,
        starting_version: int | None = None,
        ending_version: int | None = None,
        starting_timestamp: Timestamp | None = None,
        ending_timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        time_zone: TimeZone = None,
    ) -> pa.Table:
        """Like :meth:`changes`, as an Arrow table."""
        return read_changes_arrow(
            self._in_known_zone(time_zone),
            self._change_range(starting_version, ending_version, starting_timestamp, ending_timestamp, time_zone),
            columns=columns,
            where=where,
        )

    def changes_arrow_batches(
        self,
        *,
        starting_version: int | None = None,
        ending_version: int | None = None,
        starting_timestamp: Timestamp | None = None,
        ending_timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        time_zone: TimeZone = None,
    ) -> pa.RecordBatchReader:
        """Like :meth:`changes`, as a stream of Arrow record batches."""
        return read_change_batches(
            self._in_known_zone(time_zone),
            self._change_range(starting_version, ending_version, starting_timestamp, ending_timestamp, time_zone),
            columns=columns,
            where=where,
        )

    def stream(
        self,
        *,
        starting_version: int | str | None = None,
        starting_timestamp: Timestamp | None = None,
        max_files: int | None = DEFAULT_MAX_FILES,
        max_bytes: int | None = None,
        changes: ChangeHandling | str = ChangeHandling.FAIL,
        fail_on_data_loss: bool = True,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        time_zone: TimeZone = None,
    ) -> DataFrame:
        """Read the rows of the table, and rows that later commits add, as a DataFrame of Spark Structured Streaming.

        Args:
            starting_version: emit the rows that this version and later ones added; ``"latest"`` for rows added after the start.
            starting_timestamp: the same for the first version committed at or after that time.
            max_files, max_bytes: limits of one batch; the latter is soft.
            changes: how to handle a commit that deletes or rewrites rows.
            fail_on_data_loss: False continues with the oldest commit in the log if log cleanup removed the next commits.
            columns, where: as in :meth:`to_arrow`.

        Raises:
            InvalidArgumentError: invalid arguments, or a table that the executors of Spark cannot open.
            VersionNotFoundError: the version to start at does not exist.
        """
        return stream(
            self._in_zone(time_zone),
            spark=self._connection.spark,
            options=StreamOptions(
                starting_version=starting_version,
                starting_timestamp_ms=self._epoch_ms(starting_timestamp, time_zone),
                max_files=max_files,
                max_bytes=max_bytes,
                changes=changes,
                fail_on_data_loss=fail_on_data_loss,
            ),
            columns=columns,
            where=where,
        )

    def stream_arrow(
        self,
        offset: StreamOffset | str | None = None,
        *,
        starting_version: int | str | None = None,
        starting_timestamp: Timestamp | None = None,
        max_files: int | None = DEFAULT_MAX_FILES,
        max_bytes: int | None = None,
        changes: ChangeHandling | str = ChangeHandling.FAIL,
        fail_on_data_loss: bool = True,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        time_zone: TimeZone = None,
    ) -> TableStream:
        """Like :meth:`stream` without Spark: the consumer stores the offset of the last batch and passes it back.

        Args:
            offset: offset of the last batch, as a value or as its JSON; None to start.

        Raises:
            StreamSourceChangedError, SchemaMismatchError: also while the stream is read: a commit changes rows, or columns.
        """
        return stream_arrow(
            self._in_known_zone(time_zone),
            offset=offset,
            options=StreamOptions(
                starting_version=starting_version,
                starting_timestamp_ms=self._epoch_ms(starting_timestamp, time_zone),
                max_files=max_files,
                max_bytes=max_bytes,
                changes=changes,
                fail_on_data_loss=fail_on_data_loss,
            ),
            columns=columns,
            where=where,
        )
