"""Methods that change the rows of one table: of a table of the catalog, or of a table in a transaction over several tables."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import overload

from pyspark.sql import Column, DataFrame

from cm_delta_dagster.api.merge_builder import MergeBuilder, key_columns, merge_condition
from cm_delta_dagster.api.table_reads import HasSession
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext, Idempotency
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.row_change import Expression, RowChange
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import PartitionOverwrite, append, overwrite
from cm_delta_dagster.operations.writing.write_result import WriteResult
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from cm_delta_dagster.protocol.schema.evolution import SchemaMode


class RowWrites(ABC):
    """A base of the classes of tables. Each method calls one operation of ``operations``."""

    _connection: HasSession

    @property
    @abstractmethod
    def _target(self) -> WriteTarget:
        """What the operations write to."""

    def _begin_merge(self) -> Callable[[], None]:
        """Called when a merge with clauses is begun; the result is called when it is executed."""
        return lambda: None

    def append(
        self,
        frame: DataFrame,
        *,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        partition_by: str | Sequence[str] | None = None,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Append the rows of ``frame`` in one commit.

        Args:
            schema_mode: whether the write may add columns to the table.
            partition_by: the partition columns that the table has, to be checked; an append does not change them.
            idempotency: a value that is committed at most once; a repetition is skipped.
            context: provenance, recorded in the table history.

        Raises:
            SchemaMismatchError: the columns do not fit the table.
            InvalidDataError: a row violates a constraint of the table.
            InvalidArgumentError: the table has other partition columns than ``partition_by``.
        """
        return append(
            self._target,
            frame=frame,
            schema_mode=schema_mode,
            partition_by=(partition_by,) if isinstance(partition_by, str) else partition_by,
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
            replace_using: key column or columns; replace the rows with the keys of a row of ``frame``, none of which may be NULL.
            schema_mode: ``SchemaMode.OVERWRITE`` also replaces the columns of the table.
            partition_by: together with that, the new partition columns, ``()`` for none; None keeps those of the table.

        Raises:
            PartitionMismatchError: a row of ``frame`` does not satisfy ``where``.
            CommitConflictError: a concurrent commit changed the rows that are replaced.
        """
        return overwrite(
            self._target,
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
                self._target,
                change=change,
                options=CommitOptions(idempotency=idempotency, context=context),
                on_execute=self._begin_merge(),
            )
        return merge(
            self._target,
            frame=frame,
            keys=key_columns(on),
            mode=mode,
            within=within,
            schema_mode=schema_mode,
            options=CommitOptions(idempotency=idempotency, context=context),
        )

    def delete(
        self, where: Condition, *, idempotency: Idempotency | None = None, context: CommitContext = NO_CONTEXT
    ) -> WriteResult:
        """Delete the rows that satisfy ``where``, in one commit. Raises CommitConflictError."""
        return delete(
            self._target,
            spark=self._connection.spark,
            where=where,
            options=CommitOptions(idempotency=idempotency, context=context),
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
            self._target,
            spark=self._connection.spark,
            assignments=assignments,
            where=where,
            options=CommitOptions(idempotency=idempotency, context=context),
        )
