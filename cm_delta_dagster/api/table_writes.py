"""Methods that write to one table of the catalog. Each method calls one operation of ``operations``."""

from collections.abc import Mapping, Sequence
from typing import overload

from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from cm_delta_dagster.api.merge_builder import MergeBuilder, key_columns, merge_condition
from cm_delta_dagster.api.table_alterer import TableAlterer
from cm_delta_dagster.api.table_reads import TableReads
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext, Idempotency
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import Timestamp
from cm_delta_dagster.operations.tables.restore import MissingFiles, RestorePlan, RestoreResult, plan_restore, restore
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.row_change import Expression, RowChange
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import PartitionOverwrite, append, overwrite
from cm_delta_dagster.operations.writing.write_result import WriteResult
from cm_delta_dagster.operations.writing.write_stream import BatchWriter, OutputMode, StreamWrite, write_stream
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from cm_delta_dagster.protocol.schema.evolution import SchemaMode


class TableWrites(TableReads[Table]):
    """A base of :class:`~cm_delta_dagster.api.delta_table.DeltaTable`: rows, older versions, columns and properties."""

    @property
    def alter(self) -> TableAlterer:
        """ALTER TABLE: ``table.alter.add_columns(...)``, ``rename_column``, ``set_properties``, ``add_constraint`` and so on."""
        return TableAlterer(self.table, self._connection)

    def append(
        self,
        frame: DataFrame,
        *,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Append the rows of ``frame`` in one commit.

        Args:
            schema_mode: whether the write may add columns to the table.
            idempotency: a value that is committed at most once; a repetition is skipped.
            context: provenance, recorded in the table history.

        Raises:
            SchemaMismatchError: the columns do not fit the table.
            InvalidDataError: a row violates a constraint of the table.
        """
        return append(
            self.table,
            frame=frame,
            schema_mode=schema_mode,
            options=CommitOptions(idempotency=idempotency, context=context),
        )

    def overwrite(
        self,
        frame: DataFrame,
        *,
        where: Condition | None = None,
        partitions: PartitionOverwrite | str = PartitionOverwrite.STATIC,
        replace_using: str | Sequence[str] = (),
        schema_mode: SchemaMode = SchemaMode.STRICT,
        partition_by: str | Sequence[str] | None = None,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Replace all rows by the rows of ``frame``, in one commit; or the rows of a condition, of partitions or of keys.

        Args:
            where: replace only the rows that satisfy it; every row of ``frame`` must.
            partitions: ``"dynamic"`` replaces only the partitions in which ``frame`` has rows.
            replace_using: key column or columns; replace only the rows that have the keys of a row of ``frame``.
            schema_mode: ``SchemaMode.OVERWRITE`` also replaces the columns of the table.
            partition_by: together with that, the new partition columns, ``()`` for none; None keeps those of the table.

        Raises:
            PartitionMismatchError: a row of ``frame`` does not satisfy ``where``.
            CommitConflictError: a concurrent commit changed the rows that are replaced.
        """
        return overwrite(
            self.table,
            frame=frame,
            where=where,
            partitions=partitions,
            keys=(replace_using,) if isinstance(replace_using, str) else tuple(replace_using),
            schema_mode=schema_mode,
            partition_by=(partition_by,) if isinstance(partition_by, str) else partition_by,
            options=CommitOptions(idempotency=idempotency, context=context),
        )

    @overload
    def merge(
        self,
        frame: DataFrame,
        on: str | Sequence[str],
        *,
        mode: MergeMode = MergeMode.UPSERT,
        within: Condition | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult: ...

    @overload
    def merge(
        self,
        frame: DataFrame,
        on: str | Column,
        *,
        source_alias: str,
        target_alias: str = "target",
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> MergeBuilder: ...

    def merge(
        self,
        frame: DataFrame,
        on: str | Sequence[str] | Column,
        *,
        source_alias: str | None = None,
        target_alias: str = "target",
        mode: MergeMode = MergeMode.UPSERT,
        within: Condition | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult | MergeBuilder:
        """Update, insert or delete rows, in one commit: by key, or with clauses if ``source_alias`` is given.

        Args:
            on: key column or columns; unique among the rows of ``frame``. With ``source_alias``: a condition on source and table,
                as SQL text or Column.
            source_alias: name of ``frame`` in conditions and values. The result is then a builder: add clauses, then call
                ``execute``.
            target_alias: name of the table in conditions and values.
            mode: what to do with matched and unmatched rows.
            within: condition on the rows of the table; other rows are neither read nor changed.

        Raises:
            InvalidDataError: several rows of ``frame`` have the same key.
            CommitConflictError: a concurrent commit changed the matched rows.
        """
        if source_alias is not None:
            change = RowChange(
                source=frame, on=merge_condition(on), source_alias=source_alias, target_alias=target_alias
            )
            return MergeBuilder(
                self.table, change=change, options=CommitOptions(idempotency=idempotency, context=context)
            )
        return merge(
            self.table,
            frame=frame,
            keys=key_columns(on),
            mode=mode,
            within=within,
            schema_mode=schema_mode,
            options=CommitOptions(idempotency=idempotency, context=context),
        )

    def delete(self, where: Condition, *, context: CommitContext = NO_CONTEXT) -> WriteResult:
        """Delete the rows that satisfy ``where``, in one commit. Raises CommitConflictError."""
        return delete(self.table, spark=self._connection.spark, where=where, context=context)

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

        Raises:
            InvalidArgumentError: no stream, an invalid argument, or a session of Spark Connect.
            SchemaMismatchError: the columns do not fit the table.
        """
        try:
            mode = OutputMode(output_mode)
        except ValueError as error:
            raise InvalidArgumentError(
                f"output_mode is {output_mode!r}; give one of {', '.join(OutputMode)}."
            ) from error
        write = StreamWrite(
            checkpoint=checkpoint,
            output_mode=mode,
            write_batch=write_batch,
            trigger=dict(trigger or {}),
            query_name=query_name,
            schema_mode=schema_mode,
        )
        return write_stream(self.table, frame=frame, write=write)

    def plan_restore(self, version: int | None = None, *, timestamp: Timestamp | None = None) -> RestorePlan:
        """Compare the latest version with an older one, and list the files that :meth:`restore` would miss; changes nothing."""
        return plan_restore(self.table, version=version, timestamp_ms=self._epoch_ms(timestamp))

    def restore(
        self,
        version: int | None = None,
        *,
        timestamp: Timestamp | None = None,
        missing_files: MissingFiles | str = MissingFiles.REFUSE,
        context: CommitContext = NO_CONTEXT,
    ) -> RestoreResult:
        """Commit the rows, schema and properties of an older version as the next version. The history stays.

        Args:
            version: the version to restore.
            timestamp: in its place, a time; the version of that time is restored.
            missing_files: ``refuse``, or ``ignore`` to restore without the rows of files that were deleted.

        Raises:
            VersionNotFoundError: there is no such version, or its log was cleaned.
            ObjectNotFoundError: storage does not hold all files of the version; nothing was committed.
            MaintenanceInProgressError: a maintenance run holds the lease of the table.
            InvalidArgumentError: neither or both of ``version`` and ``timestamp``, or an unknown ``missing_files``.
        """
        try:
            missing = MissingFiles(missing_files)
        except ValueError as error:
            raise InvalidArgumentError(
                f"missing_files is {missing_files!r}; give one of {', '.join(MissingFiles)}."
            ) from error
        return restore(
            self.table,
            version=version,
            timestamp_ms=self._epoch_ms(timestamp),
            missing_files=missing,
            context=context,
        )

    def update(
        self,
        assignments: Mapping[str, Expression],
        where: Condition | None = None,
        *,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Set columns of the rows that satisfy ``where``, or of all rows, in one commit.

        Args:
            assignments: values by column, as SQL text or Columns; ``a.b`` names the field of a struct.

        Raises:
            InvalidArgumentError: a condition or value is not valid, or the table has no such column.
            CommitConflictError: a concurrent commit changed the rows that are read.
        """
        return update(
            self.table,
            spark=self._connection.spark,
            assignments=assignments,
            where=where,
            options=CommitOptions(idempotency=idempotency, context=context),
        )
