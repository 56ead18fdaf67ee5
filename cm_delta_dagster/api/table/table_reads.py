"""Methods that read one table: rows, changes, counts, history.

Catalog-managed tables (``delta_table``) and tables of other writers, opened by path, share them. What is read without
Spark needs no Java.
"""

import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo

import pyarrow as pa

from cm_delta_dagster.api.absent_methods import refuses_paths
from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.api.table.table_changes import TableChanges
from cm_delta_dagster.api.table.table_scan import PandasDataFrame, TableScan
from cm_delta_dagster.api.table.table_stream import TableStream
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.arguments import Timestamp, epoch_milliseconds, one_of
from cm_delta_dagster.operations.reading.change_query import ChangeRange, open_changes
from cm_delta_dagster.operations.reading.history import HistoryEntry, history
from cm_delta_dagster.operations.reading.polars.lazy_frame import PolarsDataFrame
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.reading.streams.state import StreamOptions
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneRequest, CloneResult
from cm_delta_dagster.operations.tables.replace import CreationMode
from cm_delta_dagster.operations.tables.replace_with_clone import clone_or_replace
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.protocol.changes.batch_planning import DEFAULT_MAX_FILES, ChangeHandling
from cm_delta_dagster.protocol.changes.stream_offset import StreamOffset, parse_offset
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.predicates.timestamps import as_zone
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.conditions import column_predicate
from cm_delta_dagster.spark.library import DataFrame, is_column

TableT = typing.TypeVar("TableT", bound=ReadableTable)

TimeZone: typing.TypeAlias = tzinfo | str | None
"""A time zone or its name."""


class TableReads(typing.Generic[TableT]):
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

    @refuses_paths
    def __init__(self, connection: ClientSession, table: TableT) -> None:
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

    def _version_to_read(self, version: int | None, timestamp: Timestamp | None) -> int | None:
        """The version that a read sees: that of the call, else the one that the run of the connection has pinned."""
        pins = self._connection.client.read_pins
        if version is not None or timestamp is not None or pins is None or not isinstance(self.table, Table):
            return version
        return pins.version_to_read(self.table.table_id, self.table.latest_version)

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
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> CloneResult:
        """Create the table ``name`` with the rows, columns and properties of this table: CREATE TABLE ... CLONE.

        Args:
            name: ``catalog.schema.table`` of the new table.
            mode: ``shallow``: the clone names the data files of this table, and nothing is copied. ``deep``: they are copied.
            version, timestamp: what to clone; by default the latest version.
            properties: table properties in addition to those of this table, or in their place.
            creation: ``create``; ``replace`` makes the table of that name, which must be empty, the clone; ``create_or_replace``.
            commit_properties: provenance, recorded in the history of the clone.

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
        return clone_or_replace(
            client, self.table, identifier=name, request=request, mode=as_, context=commit_properties
        )

    def version(self) -> int:
        """Return the latest version."""
        return self.snapshot().version

    def schema(self) -> StructType:
        """Return the columns of the latest version."""
        return self.snapshot().schema

    def history(self, limit: int | None = None) -> tuple[HistoryEntry, ...]:
        """Return the commits, newest first, at most ``limit``."""
        return history(self.table, limit=limit)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: TimeZone = None,
    ) -> TableScan:
        """Select rows and columns of one version, to read them in one of the forms that :class:`TableScan` has.

        The scan is bound to the version that is the latest one now, unless ``version`` or ``timestamp`` names another.

        Args:
            columns: top-level columns to return; None for all. Tables with row tracking also have ``_row_id`` and
                ``_row_commit_version``.
            where: condition on rows: SQL text, a predicate value or a Column. Files that cannot match are skipped.
            time_zone: of times that state none: a region such as ``"Europe/Berlin"``, an offset or a ``tzinfo``.

        Raises:
            InvalidArgumentError: an unknown column, an invalid condition, or both ``version`` and ``timestamp``.
            VersionNotFoundError: there is no such version.
        """
        scan = open_scan(
            self.table,
            columns=columns,
            where=None if is_column(where) else where,
            version=self._version_to_read(version, timestamp),
            timestamp_ms=self._epoch_ms(timestamp, time_zone),
            time_zone=as_zone(time_zone),
        )
        if is_column(where):
            scan = replace(scan, where=column_predicate(where, scan.snapshot.schema))
        scan.check()  # So that what is wrong is an error of this call.
        return TableScan(self._connection, scan)

    def to_df(
        self,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: TimeZone = None,
    ) -> DataFrame:
        """Read rows as a Spark DataFrame: short for ``scan(...).to_df()``."""
        return self.scan(columns, where, version, timestamp, time_zone).to_df()

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: TimeZone = None,
    ) -> pa.Table:
        """Read rows as an Arrow table, without Java: short for ``scan(...).to_arrow()``."""
        return self.scan(columns, where, version, timestamp, time_zone).to_arrow()

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: TimeZone = None,
    ) -> PolarsDataFrame:
        """Read rows as a ``polars.DataFrame``, without Java: short for ``scan(...).to_polars()``."""
        return self.scan(columns, where, version, timestamp, time_zone).to_polars()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        time_zone: TimeZone = None,
    ) -> PandasDataFrame:
        """Read rows as a pandas DataFrame, without Java: short for ``scan(...).to_pandas()``."""
        return self.scan(columns, where, version, timestamp, time_zone).to_pandas()

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
    ) -> TableChanges:
        """Select the change data feed of a range of versions, both ends included, to read it in a form of :class:`TableChanges`.

        Rows have the table's columns, ``_change_type``, ``_commit_version`` and ``_commit_timestamp``. Without an end, the range
        ends at the version that is the latest one now.

        Raises:
            InvalidArgumentError: change data feed was not enabled in the whole range, the range is empty or not given, an unknown
                column, or an invalid condition.
            VersionNotFoundError: the range begins after the latest version.
            SchemaMismatchError: no single schema can represent all rows of the range.
        """
        versions = ChangeRange(
            starting_version=starting_version,
            starting_timestamp_ms=self._epoch_ms(starting_timestamp, time_zone),
            ending_version=ending_version,
            ending_timestamp_ms=self._epoch_ms(ending_timestamp, time_zone),
        )
        scan = open_changes(self._in_zone(time_zone), versions, columns=columns, where=where)
        return TableChanges(self._connection, scan)

    def stream(
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
        """Describe a stream of the rows of the table, and of rows that later commits add; :class:`TableStream` reads it.

        Args:
            offset: offset of the last batch of ``to_batches``, as a value or as its JSON, to continue after it; None to start.
            starting_version: emit the rows that this version and later ones added; ``"latest"`` for rows added after the start.
            starting_timestamp: the same for the first version committed at or after that time.
            max_files, max_bytes: limits of one batch; the latter is soft.
            changes: how to handle a commit that deletes or rewrites rows.
            fail_on_data_loss: False continues with the oldest commit in the log if log cleanup removed the next commits.
            columns, where: as in :meth:`to_arrow`.

        Raises:
            InvalidArgumentError: an invalid option or offset.
        """
        options = StreamOptions(
            starting_version=starting_version,
            starting_timestamp_ms=self._epoch_ms(starting_timestamp, time_zone),
            max_files=max_files,
            max_bytes=max_bytes,
            changes=changes,
            fail_on_data_loss=fail_on_data_loss,
        )
        return TableStream(
            self._connection,
            self._in_zone(time_zone),
            options,
            offset=parse_offset(offset) if isinstance(offset, str) else offset,
            columns=columns,
            where=where,
        )
