"""Methods that write to one table of the catalog. Each method calls one operation of ``operations``."""

from collections.abc import Callable, Mapping
from datetime import timedelta

from cm_delta_dagster.api.table.held_commit import HeldCommit
from cm_delta_dagster.api.table.row_writes import RowWrites
from cm_delta_dagster.api.table.table_alterer import TableAlterer
from cm_delta_dagster.api.table.table_reads import TableReads
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.operations.arguments import Timestamp, hold_duration_ms, one_of
from cm_delta_dagster.operations.tables.restore import RestorePlan, RestoreResult, apply_restore, plan_restore, restore
from cm_delta_dagster.operations.writing.deferred_writes import hold_write
from cm_delta_dagster.operations.writing.write_result import WriteResult
from cm_delta_dagster.operations.writing.write_stream import BatchWriter, OutputMode, StreamWrite, write_stream
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.spark.library import DataFrame, StreamingQuery


class TableWrites(RowWrites, TableReads[Table]):
    """A base of :class:`~cm_delta_dagster.api.table.delta_table.DeltaTable`: rows, older versions, columns and properties."""

    @property
    def _target(self) -> Table:
        return self.table

    def _hold(self, write: Callable[[WriteTarget], WriteResult], *, hold: bool | timedelta) -> HeldCommit:
        entry = hold_write(self._connection.client, self.table, write, duration_ms=hold_duration_ms(hold))
        return HeldCommit(self._connection, entry)

    @property
    def alter(self) -> TableAlterer:
        """ALTER TABLE: ``table.alter.add_columns(...)``, ``rename_column``, ``set_properties``, ``add_constraint`` and so on."""
        return TableAlterer(self.table, self._connection)

    def write_stream(
        self,
        frame: DataFrame,
        *,
        checkpoint: str,
        output_mode: OutputMode | str = OutputMode.APPEND,
        write_batch: BatchWriter | None = None,
        trigger: Mapping[str, str | bool] | None = None,
        query_name: str | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> StreamingQuery:
        """Start a query of Spark Structured Streaming that writes to this table, each batch exactly once.

        Args:
            frame: a streaming DataFrame.
            checkpoint: location where Spark stores the progress of the query, which continues from it.
            output_mode: ``append``, ``complete`` (each batch replaces all rows) or ``update``.
            write_batch: writes the rows of one batch; it takes the rows and the ``idempotency`` of its write.
            trigger: an argument of ``DataStreamWriter.trigger``, e.g. ``{"availableNow": True}``.
            query_name: name of the query in the UI of Spark.
            schema_mode: whether a batch may add columns to the table.
            commit_properties: provenance, recorded with each batch; not with ``write_batch``, which writes by itself.

        Raises:
            InvalidArgumentError: no stream, an invalid argument, or a session of Spark Connect.
            SchemaMismatchError: the columns do not fit the table.
        """
        mode = one_of(OutputMode, output_mode, name="output_mode")
        write = StreamWrite(
            checkpoint=checkpoint,
            output_mode=mode,
            write_batch=write_batch,
            trigger=dict(trigger or {}),
            query_name=query_name,
            schema_mode=schema_mode,
        )
        return write_stream(self.table, frame=frame, write=write, context=commit_properties)

    def plan_restore(
        self,
        version: int | None = None,
        *,
        timestamp: Timestamp | None = None,
        force: bool = False,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> RestorePlan:
        """Compare the latest version with an older one, and list the files that :meth:`restore` would miss; changes nothing."""
        plan = plan_restore(self.table, version=version, timestamp_ms=self._epoch_ms(timestamp), force=force)
        return plan.bound(lambda bound: apply_restore(self.table, bound, context=commit_properties))

    def restore(
        self,
        version: int | None = None,
        *,
        timestamp: Timestamp | None = None,
        force: bool = False,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> RestoreResult:
        """Commit the rows, schema and properties of an older version as the next version. The history stays.

        Args:
            version: the version to restore.
            timestamp: in its place, a time; the version of that time is restored.
            force: restore without the rows of files that were deleted.
            commit_properties: provenance, recorded in the table history.

        Raises:
            VersionNotFoundError: there is no such version, or its log was cleaned.
            ObjectNotFoundError: storage does not hold all files of the version; nothing was committed.
            MaintenanceInProgressError: a maintenance run holds the lease of the table.
            InvalidArgumentError: neither or both of ``version`` and ``timestamp``.
        """
        return restore(
            self.table,
            version=version,
            timestamp_ms=self._epoch_ms(timestamp),
            force=force,
            context=commit_properties,
        )
