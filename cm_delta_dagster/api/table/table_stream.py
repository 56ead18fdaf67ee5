"""The rows that are added to a table, as a stream of Spark or of Arrow batches."""

import typing
from collections.abc import Sequence

from cm_delta_dagster.api.absent_methods import AbsentMethods
from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.reading.streams.arrow_stream import StreamBatches, stream_arrow
from cm_delta_dagster.operations.reading.streams.spark_stream import stream
from cm_delta_dagster.operations.reading.streams.state import StreamOptions
from cm_delta_dagster.protocol.changes.stream_offset import StreamOffset
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.spark.library import DataFrame


class TableStream(AbsentMethods):
    """The rows of a table and those that later commits add: ``table.stream(...)``. Each call of a method begins a stream."""

    _absent: typing.ClassVar[str] = (
        "a stream is read by to_df(), as a DataFrame of Spark Structured Streaming, or by to_batches()"
    )

    def __init__(
        self,
        connection: ClientSession,
        table: ReadableTable,
        options: StreamOptions,
        *,
        offset: StreamOffset | None,
        columns: Sequence[str] | None,
        where: Predicate | str | None,
    ) -> None:
        options.check()
        self._connection = connection
        self._table = table
        self._options = options
        self._offset = offset
        self._columns = columns
        self._where = where

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._table.identifier)!r})"

    def to_df(self) -> DataFrame:
        """The rows as a DataFrame of Spark Structured Streaming, which stores the offset in the checkpoint of the query.

        Raises:
            InvalidArgumentError: an offset was given, invalid arguments, or a table that the executors of Spark cannot open.
            VersionNotFoundError: the version to start at does not exist.
        """
        if self._offset is not None:
            raise InvalidArgumentError(
                f"The stream of {self._table.identifier} has an offset, which only to_batches() takes: Spark continues at the "
                "offset in the checkpoint of its query. Leave the offset out, or give starting_version."
            )
        return stream(
            self._table,
            spark=self._connection.spark,
            options=self._options,
            columns=self._columns,
            where=self._where,
        )

    def to_batches(self) -> StreamBatches:
        """The rows as Arrow, without Spark: the consumer stores the offset of the last batch, and gives it to the next stream.

        ``for batch in stream.to_batches()`` reads up to the version that is the latest when the loop starts. A batch has
        ``to_arrow()``, ``to_batches()``, ``files``, ``versions`` and ``offset``, whose ``to_json()`` is the text to store. A batch
        counts as read when the next one is requested.

        Raises:
            InvalidArgumentError: an unknown column, a condition that only Spark can evaluate, or the offset of another table.
            VersionNotFoundError: the version to start at does not exist.
            StreamSourceChangedError, SchemaMismatchError: also while the stream is read: a commit changes rows, or columns.
        """
        zone = self._table.time_zone
        table = self._table if zone is not None else self._table.in_time_zone(self._connection.running_time_zone)
        return stream_arrow(table, offset=self._offset, options=self._options, columns=self._columns, where=self._where)
