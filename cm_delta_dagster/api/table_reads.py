"""What can be read of a table, one method for each question: rows, changes, counts, history.

A top beside ``orchestration``, shared by tables of the catalog (``delta_table``) and tables of other writers that are
opened by their path. Methods with Arrow in their name need neither Java nor a Spark session.
"""

import typing
from collections.abc import Sequence
from datetime import tzinfo

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.client.snapshots.path_table import PathTable
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.operations.arguments import Timestamp, as_predicate, epoch_milliseconds
from cm_delta_dagster.operations.reading.history import HistoryEntry, history
from cm_delta_dagster.operations.reading.metadata_query import aggregate
from cm_delta_dagster.operations.reading.read import ReadPlan, plan_read, read
from cm_delta_dagster.operations.reading.read_arrow import read_arrow, read_batches
from cm_delta_dagster.operations.reading.read_changes import read_changes
from cm_delta_dagster.operations.reading.read_changes_arrow import read_change_batches, read_changes_arrow
from cm_delta_dagster.operations.reading.read_stream import stream
from cm_delta_dagster.operations.reading.read_stream_arrow import TableStream, stream_arrow
from cm_delta_dagster.operations.reading.stream_planning import StreamOptions
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.protocol.changes.stream_offset import StreamOffset
from cm_delta_dagster.protocol.changes.stream_planning import DEFAULT_MAX_FILES, ChangeHandling
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.protocol.statistics.metadata_aggregates import MetadataAggregates

TableT = typing.TypeVar("TableT", bound=ReadableTable)


class HasSession(typing.Protocol):
    """Where a table takes its Spark session from when rows are first needed."""

    @property
    def spark(self) -> SparkSession: ...

    @property
    def time_zone(self) -> tzinfo: ...


class TableReads(typing.Generic[TableT]):
    """Reading one table.

    Every call sees the latest version at that moment unless a version or timestamp is given. A timestamp is a datetime with
    a time zone, a date, which means its midnight, text as Spark takes it, or epoch milliseconds. Dates, and text that names
    no zone, are read in the time zone of the Spark session; where there is none yet they are refused (TT-9).

    Attributes:
        table: the handle of the Delta client below.
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

    def _epoch_ms(self, timestamp: Timestamp | None) -> int | None:
        return None if timestamp is None else epoch_milliseconds(timestamp, zone=lambda: self._connection.time_zone)

    def snapshot(self, *, version: int | None = None, timestamp: Timestamp | None = None) -> Snapshot:
        """The table at its latest version, at ``version``, or as of ``timestamp``.

        Raises:
            VersionNotFoundError: there is no such version or none that old.
        """
        return self.table.snapshot(version=version, timestamp_ms=self._epoch_ms(timestamp))

    def version(self) -> int:
        """The latest version."""
        return self.snapshot().version

    def schema(self) -> StructType:
        """Columns at the latest version."""
        return self.snapshot().schema

    def files(self, where: Predicate | str | None = None) -> pa.Table:
        """Live data files at the latest version, one row each; with ``where``, those that may hold a matching row."""
        snapshot = self.snapshot()
        return snapshot.matching_files(as_predicate(where, snapshot.schema))

    def history(self, limit: int | None = None) -> tuple[HistoryEntry, ...]:
        """Commits, newest first, at most ``limit``."""
        return history(self.table, limit=limit)

    def to_df(
        self,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> DataFrame:
        """Rows of one version as a Spark DataFrame, with the table's types, nullability and comments.

        Args:
            columns: top-level columns to return; all for None. A table with row tracking enabled also has ``_row_id`` and
                ``_row_commit_version``.
            where: condition on rows: SQL text, a predicate value or a Column; files that cannot match are not read.

        Raises:
            InvalidArgumentError: an unknown column, or both ``version`` and ``timestamp``.
            VersionNotFoundError: there is no such version.
        """
        return read(
            self.table,
            spark=self._connection.spark,
            columns=columns,
            where=where,
            version=version,
            timestamp_ms=self._epoch_ms(timestamp),
        )

    def plan_read(
        self,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> ReadPlan:
        """What :meth:`to_df` would open, and how many files and bytes it would skip."""
        return plan_read(
            self.table, columns=columns, where=where, version=version, timestamp_ms=self._epoch_ms(timestamp)
        )

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> pa.Table:
        """Rows of one version as an Arrow table; arguments as of :meth:`to_df`.

        Raises:
            InvalidArgumentError: as :meth:`to_df`, or ``where`` is SQL that only Spark can evaluate.
        """
        return read_arrow(
            self.table, columns=columns, where=where, version=version, timestamp_ms=self._epoch_ms(timestamp)
        )

    def to_arrow_batches(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> pa.RecordBatchReader:
        """:meth:`to_arrow` as a stream, for tables that do not fit into memory. Close it to stop early."""
        return read_batches(
            self.table, columns=columns, where=where, version=version, timestamp_ms=self._epoch_ms(timestamp)
        )

    def count_rows(self, where: Predicate | str | None = None) -> int:
        """Rows at the latest version, from the log alone where it tells them exactly, else by reading one column."""
        snapshot = self.snapshot()
        known = aggregate(self.table, where=where, version=snapshot.version).num_rows
        if known is not None:
            return known
        columns = snapshot.schema.names[:1]
        with read_batches(self.table, columns=columns, where=where, version=snapshot.version) as batches:
            return sum(batch.num_rows for batch in batches)

    def aggregates(self, columns: Sequence[str] = (), where: Predicate | str | None = None) -> MetadataAggregates:
        """Row count, least and greatest values as far as the log tells them exactly; no row is read."""
        return aggregate(self.table, columns=columns, where=where)

    def changes(
        self,
        *,
        start_version: int | None = None,
        end_version: int | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
    ) -> DataFrame:
        """The change data feed of a range of versions, both ends included, as a Spark DataFrame.

        Rows have the table's columns, ``_change_type``, ``_commit_version`` and ``_commit_timestamp``.

        Raises:
            InvalidArgumentError: change data feed was not active in all of the range, or the range is empty or not said.
            VersionNotFoundError: the range begins beyond the latest version.
        """
        return read_changes(
            self.table,
            spark=self._connection.spark,
            start_version=start_version,
            start_timestamp_ms=self._epoch_ms(start_timestamp),
            end_version=end_version,
            end_timestamp_ms=self._epoch_ms(end_timestamp),
            columns=columns,
            where=where,
        )

    def changes_arrow(
        self,
        *,
        start_version: int | None = None,
        end_version: int | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
    ) -> pa.Table:
        """:meth:`changes` as an Arrow table."""
        return read_changes_arrow(
            self.table,
            start_version=start_version,
            start_timestamp_ms=self._epoch_ms(start_timestamp),
            end_version=end_version,
            end_timestamp_ms=self._epoch_ms(end_timestamp),
            columns=columns,
            where=where,
        )

    def changes_arrow_batches(
        self,
        *,
        start_version: int | None = None,
        end_version: int | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
    ) -> pa.RecordBatchReader:
        """:meth:`changes` as a stream of Arrow record batches."""
        return read_change_batches(
            self.table,
            start_version=start_version,
            start_timestamp_ms=self._epoch_ms(start_timestamp),
            end_version=end_version,
            end_timestamp_ms=self._epoch_ms(end_timestamp),
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
    ) -> DataFrame:
        """The rows of the table, and those that are added to it later, as a DataFrame of Spark Structured Streaming.

        Args:
            starting_version: emit what this version and later ones added, or ``"latest"`` for what is added from now on.
            starting_timestamp: the same for the first version made at or after that time.
            max_files, max_bytes: bounds of one batch; the latter is soft.
            changes: what to do at a commit that deletes or rewrites rows.
            fail_on_data_loss: False goes on with the oldest commit there is where those that come next were cleaned up.
            columns, where: as of :meth:`to_arrow`.

        Raises:
            InvalidArgumentError: arguments that mean nothing, or a table that Spark's processes cannot open.
            VersionNotFoundError: the place to start at does not exist.
        """
        return stream(
            self.table,
            spark=self._connection.spark,
            options=StreamOptions(
                starting_version=starting_version,
                starting_timestamp_ms=self._epoch_ms(starting_timestamp),
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
    ) -> TableStream:
        """:meth:`stream` for a consumer without Spark, which keeps the offset of the last batch and gives it back.

        Args:
            offset: where the consumer had come to, as a value or as its JSON; None to begin.

        Raises:
            StreamSourceChangedError, SchemaMismatchError: also while the stream is read: a commit does more than add rows, or
                columns.
        """
        return stream_arrow(
            self.table,
            offset=offset,
            options=StreamOptions(
                starting_version=starting_version,
                starting_timestamp_ms=self._epoch_ms(starting_timestamp),
                max_files=max_files,
                max_bytes=max_bytes,
                changes=changes,
                fail_on_data_loss=fail_on_data_loss,
            ),
            columns=columns,
            where=where,
        )


class PathDeltaTable(TableReads[PathTable]):
    """A Delta table of another writer, opened by its path, to read, compare or import. It is never written.

    A table whose commits a catalog ratifies is refused: its files alone do not say which commits count (CM-R8).
    """
