"""Methods that change the rows of one table: of a table of the catalog, or of a table in a transaction over several tables."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame

from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.api.table.merge_builder import MergeBuilder, key_columns, merge_condition
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties, Idempotency
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.operations.arguments import one_of
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

    _connection: ClientSession

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
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> WriteResult:
        """Append the rows of ``frame`` in one commit.

        Args:
            schema_mode: whether the write may add columns to the table.
            partition_by: the partition columns that the table has, to be checked; an append does not change them.
            idempotency: a value that is committed at most once; a repetition is skipped.
            commit_properties: provenance, recorded in the table history.

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
            options=CommitOptions(idempotency=idempotency, context=commit_properties),
        )

    def overwrite(
        self,
        frame: DataFrame,
        *,
        where: Condition | None = None,
        partitions: PartitionOverwrite | str = PartitionOverwrite.STATIC,
        keys: str | Sequence[str] = (),
        schema_mode: SchemaMode = SchemaMode.STRICT,
        partition_by: str | Sequence[str] | None = None,
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> WriteResult:
        """Replace all rows by the rows of ``frame``, in one commit; or the rows of a condition, of partitions or of keys.

        Args:
            where: replace only the rows that satisfy it; every row of ``frame`` must.
            partitions: ``"dynamic"`` replaces only the partitions in which ``frame`` has rows.
            keys: key column or columns; replace the rows with the keys of a row of ``frame``, none of which may be NULL.
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
            keys=(keys,) if isinstance(keys, str) else tuple(keys),
            schema_mode=schema_mode,
            partition_by=(partition_by,) if isinstance(partition_by, str) else partition_by,
            options=CommitOptions(idempotency=idempotency, context=commit_properties),
        )

    def merge(
        self,
        source: DataFrame,
        on: str | Sequence[str] | Column,
        *,
        source_alias: str = "source",
        target_alias: str = "target",
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> MergeBuilder:
        """Begin a merge with clauses: add them to the result, then call its ``execute``. :meth:`upsert` needs no clauses.

        Args:
            on: which rows of source and table match: a condition as SQL text or Column, or the key column or columns.
            source_alias: name of ``source`` in conditions and values.
            target_alias: name of the table in conditions and values.
        """
        condition = merge_condition(on, source_alias=source_alias, target_alias=target_alias)
        change = RowChange(source=source, on=condition, source_alias=source_alias, target_alias=target_alias)
        return MergeBuilder(
            self._target,
            change=change,
            options=CommitOptions(idempotency=idempotency, context=commit_properties),
            on_execute=self._begin_merge(),
        )

    def upsert(
        self,
        frame: DataFrame,
        on: str | Sequence[str],
        *,
        mode: MergeMode | str = MergeMode.UPSERT,
        where: Condition | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> WriteResult:
        """Update the rows of the table that have the key of a row of ``frame``, and insert the others, in one commit.

        Args:
            on: key column or columns; unique among the rows of ``frame``.
            mode: to insert only, update only, or also delete rows of the table that ``frame`` lacks.
            where: condition on the rows of the table; other rows are neither read nor changed.

        Raises:
            InvalidDataError: several rows of ``frame`` have the same key.
            CommitConflictError: a concurrent commit changed the matched rows.
        """
        return merge(
            self._target,
            frame=frame,
            keys=key_columns(on),
            mode=one_of(MergeMode, mode, name="mode"),
            where=where,
            schema_mode=schema_mode,
            options=CommitOptions(idempotency=idempotency, context=commit_properties),
        )

    def delete(
        self,
        where: Condition,
        *,
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
    ) -> WriteResult:
        """Delete the rows that satisfy ``where``, in one commit. Raises CommitConflictError."""
        return delete(
            self._target,
            spark=self._connection.spark,
            where=where,
            options=CommitOptions(idempotency=idempotency, context=commit_properties),
        )

    def update(
        self,
        assignments: Mapping[str, Expression],
        where: Condition | None = None,
        *,
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
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
            options=CommitOptions(idempotency=idempotency, context=commit_properties),
        )
