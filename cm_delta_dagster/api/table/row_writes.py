"""Methods that change the rows of one table: of a table of the catalog, or of a table in a transaction over several tables."""

import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.api.table.held_commit import HeldCommit
from cm_delta_dagster.api.table.merge_builder import MergeBuilder
from cm_delta_dagster.api.table.merge_keys import key_columns, merge_condition
from cm_delta_dagster.api.table.write_options import (
    AppendOptions,
    Holds,
    OverwriteOptions,
    RowChangeOptions,
    UpsertOptions,
    write_engine,
)
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties, Idempotency
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.operations.arguments import one_of
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.delete import delete
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.row_change import Expression, RowChange
from cm_delta_dagster.operations.writing.rows import AnyRows, WriteRows
from cm_delta_dagster.operations.writing.update import update
from cm_delta_dagster.operations.writing.write import PartitionOverwrite, append, overwrite
from cm_delta_dagster.operations.writing.write_result import WriteResult
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.spark.library import Column


class RowWrites(ABC):
    """A base of the classes of tables. Each method calls one operation of ``operations``.

    With ``hold`` a write is not committed: the catalog holds it until it is ratified or discarded, and the result is a
    :class:`~cm_delta_dagster.api.table.held_commit.HeldCommit`. It expires after seven days, or after the timedelta that is given.
    """

    _connection: ClientSession

    @property
    @abstractmethod
    def _target(self) -> WriteTarget:
        """What the operations write to."""

    @abstractmethod
    def _hold(self, write: Callable[[WriteTarget], WriteResult], *, hold: bool | timedelta) -> HeldCommit:
        """Hold the write that ``write`` makes."""

    def _perform(
        self, write: Callable[[WriteTarget], WriteResult], *, hold: bool | timedelta
    ) -> WriteResult | HeldCommit:
        """Commit the write that ``write`` makes, or hold it."""
        return write(self._target) if hold is False else self._hold(write, hold=hold)

    def _begin_merge(self) -> Callable[[], None]:
        """Called when a merge with clauses is begun; the result is called when it is executed."""
        return lambda: None

    @typing.overload
    def append(
        self, frame: AnyRows, *, hold: typing.Literal[False] = False, **options: typing.Unpack[AppendOptions]
    ) -> WriteResult: ...

    @typing.overload
    def append(self, frame: AnyRows, *, hold: Holds, **options: typing.Unpack[AppendOptions]) -> HeldCommit: ...

    def append(
        self,
        frame: AnyRows,
        *,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        partition_by: str | Sequence[str] | None = None,
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
        engine: str | None = None,
        hold: bool | timedelta = False,
    ) -> WriteResult | HeldCommit:
        """Append the rows of ``frame`` in one commit.

        Args:
            frame: a DataFrame of Spark, or Arrow data, which is written without Spark: of pyarrow, polars, pandas or DuckDB, or a
                list of dictionaries. A table with a generated column, constraint or default that Arrow cannot evaluate needs a
                Spark session that runs.
            schema_mode: whether the write may add columns to the table.
            partition_by: the partition columns that the table has, to be checked; an append does not change them.
            idempotency: a value that is committed at most once; a repetition is skipped.
            commit_properties: provenance, recorded in the table history.
            engine: ``"arrow"`` or ``"spark"``, which writes the rows; None to let their type decide. Arrow collects a DataFrame of
                Spark in this process. The history has it in ``engineInfo``.
            hold: hold the commit, for seven days or this long; the result is a HeldCommit, and readers do not see the rows.

        Raises:
            SchemaMismatchError: the columns do not fit the table.
            InvalidDataError: a row violates a constraint of the table.
            InvalidArgumentError: the table has other partition columns than ``partition_by``; or there is nothing to hold.
        """
        rows = WriteRows.of(frame, self._connection.available, engine=write_engine(engine))
        return self._perform(
            lambda target: append(
                target,
                frame=rows,
                schema_mode=schema_mode,
                partition_by=(partition_by,) if isinstance(partition_by, str) else partition_by,
                options=CommitOptions(idempotency=idempotency, context=commit_properties),
            ),
            hold=hold,
        )

    @typing.overload
    def overwrite(
        self, frame: AnyRows, *, hold: typing.Literal[False] = False, **options: typing.Unpack[OverwriteOptions]
    ) -> WriteResult: ...

    @typing.overload
    def overwrite(self, frame: AnyRows, *, hold: Holds, **options: typing.Unpack[OverwriteOptions]) -> HeldCommit: ...

    def overwrite(
        self,
        frame: AnyRows,
        *,
        where: Condition | None = None,
        partitions: PartitionOverwrite | str = PartitionOverwrite.STATIC,
        keys: str | Sequence[str] = (),
        schema_mode: SchemaMode = SchemaMode.STRICT,
        partition_by: str | Sequence[str] | None = None,
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
        engine: str | None = None,
        hold: bool | timedelta = False,
    ) -> WriteResult | HeldCommit:
        """Replace all rows by the rows of ``frame``, in one commit; or the rows of a condition, of partitions or of keys.

        Args:
            frame: as for :meth:`append`.
            where: replace only the rows that satisfy it; every row of ``frame`` must.
            partitions: ``"dynamic"`` replaces only the partitions in which ``frame`` has rows.
            keys: key column or columns; replace the rows with the keys of a row of ``frame``, none of which may be NULL.
            schema_mode: ``SchemaMode.OVERWRITE`` also replaces the columns of the table.
            partition_by: together with that, the new partition columns, ``()`` for none; None keeps those of the table.

        Raises:
            PartitionMismatchError: a row of ``frame`` does not satisfy ``where``.
            CommitConflictError: a concurrent commit changed the rows that are replaced.
        """
        rows = WriteRows.of(frame, self._connection.available, engine=write_engine(engine))
        return self._perform(
            lambda target: overwrite(
                target,
                frame=rows,
                where=where,
                partitions=partitions,
                keys=(keys,) if isinstance(keys, str) else tuple(keys),
                schema_mode=schema_mode,
                partition_by=(partition_by,) if isinstance(partition_by, str) else partition_by,
                options=CommitOptions(idempotency=idempotency, context=commit_properties),
            ),
            hold=hold,
        )

    def merge(
        self,
        source: AnyRows,
        on: str | Sequence[str] | Column,
        *,
        source_alias: str = "source",
        target_alias: str = "target",
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
        engine: str | None = None,
    ) -> MergeBuilder:
        """Begin a merge with clauses: add them to the result, then call its ``execute``. :meth:`upsert` needs no clauses.

        Args:
            on: which rows of source and table match: a condition as SQL text or Column, or the key column or columns.
            source_alias: name of ``source`` in conditions and values.
            target_alias: name of the table in conditions and values.
            engine: as for :meth:`append`. Arrow data is in memory; rows of the table are read and written in streams.
        """
        condition = merge_condition(on, source_alias=source_alias, target_alias=target_alias)
        rows = WriteRows.of(source, self._connection.available, what="The source", engine=write_engine(engine))
        change = RowChange(source=rows, on=condition, source_alias=source_alias, target_alias=target_alias)
        return MergeBuilder(
            self._target,
            change=change,
            options=CommitOptions(idempotency=idempotency, context=commit_properties),
            on_execute=self._begin_merge(),
            hold=self._hold,
        )

    @typing.overload
    def upsert(
        self,
        frame: AnyRows,
        on: str | Sequence[str],
        *,
        hold: typing.Literal[False] = False,
        **options: typing.Unpack[UpsertOptions],
    ) -> WriteResult: ...

    @typing.overload
    def upsert(
        self, frame: AnyRows, on: str | Sequence[str], *, hold: Holds, **options: typing.Unpack[UpsertOptions]
    ) -> HeldCommit: ...

    def upsert(
        self,
        frame: AnyRows,
        on: str | Sequence[str],
        *,
        mode: MergeMode | str = MergeMode.UPSERT,
        where: Condition | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
        engine: str | None = None,
        hold: bool | timedelta = False,
    ) -> WriteResult | HeldCommit:
        """Update the rows of the table that have the key of a row of ``frame``, and insert the others, in one commit.

        Args:
            on: key column or columns; unique among the rows of ``frame``.
            mode: to insert only, update only, or also delete rows of the table that ``frame`` lacks.
            where: condition on the rows of the table; other rows are neither read nor changed.
            engine: as for :meth:`append`. The rows of Arrow data are in memory; those of the table are read and written in streams.

        Raises:
            InvalidDataError: several rows of ``frame`` have the same key.
            CommitConflictError: a concurrent commit changed the matched rows.
        """
        rows = WriteRows.of(frame, self._connection.available, engine=write_engine(engine))
        return self._perform(
            lambda target: merge(
                target,
                frame=rows,
                keys=key_columns(on),
                mode=one_of(MergeMode, mode, name="mode"),
                where=where,
                schema_mode=schema_mode,
                options=CommitOptions(idempotency=idempotency, context=commit_properties),
            ),
            hold=hold,
        )

    @typing.overload
    def delete(
        self, where: Condition, *, hold: typing.Literal[False] = False, **options: typing.Unpack[RowChangeOptions]
    ) -> WriteResult: ...

    @typing.overload
    def delete(self, where: Condition, *, hold: Holds, **options: typing.Unpack[RowChangeOptions]) -> HeldCommit: ...

    def delete(
        self,
        where: Condition,
        *,
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
        engine: str | None = None,
        hold: bool | timedelta = False,
    ) -> WriteResult | HeldCommit:
        """Delete the rows that satisfy ``where``, in one commit, which ``hold`` holds as in :meth:`append`.

        Args:
            engine: ``"arrow"`` or ``"spark"``, which finds the rows and writes files; None for Arrow, unless it cannot evaluate the
                condition, or the files are larger than 1 GiB and a Spark session runs.

        Raises:
            CommitConflictError: a concurrent commit changed the rows that are deleted.
            InvalidArgumentError: the condition is not valid, or there is nothing to hold.
        """
        return self._perform(
            lambda target: delete(
                target,
                spark=self._connection.available,
                engine=write_engine(engine),
                where=where,
                options=CommitOptions(idempotency=idempotency, context=commit_properties),
            ),
            hold=hold,
        )

    @typing.overload
    def update(
        self,
        assignments: Mapping[str, Expression],
        where: Condition | None = None,
        *,
        hold: typing.Literal[False] = False,
        **options: typing.Unpack[RowChangeOptions],
    ) -> WriteResult: ...

    @typing.overload
    def update(
        self,
        assignments: Mapping[str, Expression],
        where: Condition | None = None,
        *,
        hold: Holds,
        **options: typing.Unpack[RowChangeOptions],
    ) -> HeldCommit: ...

    def update(
        self,
        assignments: Mapping[str, Expression],
        where: Condition | None = None,
        *,
        idempotency: Idempotency | None = None,
        commit_properties: CommitProperties = NO_PROPERTIES,
        engine: str | None = None,
        hold: bool | timedelta = False,
    ) -> WriteResult | HeldCommit:
        """Set columns of the rows that satisfy ``where``, or of all rows, in one commit.

        Args:
            assignments: values by column, as SQL text or Columns; ``a.b`` names the field of a struct.
            engine: as for :meth:`delete`.

        Raises:
            InvalidArgumentError: a condition or value is not valid, or the table has no such column.
            CommitConflictError: a concurrent commit changed the rows that are read.
        """
        return self._perform(
            lambda target: update(
                target,
                spark=self._connection.available,
                engine=write_engine(engine),
                assignments=assignments,
                where=where,
                options=CommitOptions(idempotency=idempotency, context=commit_properties),
            ),
            hold=hold,
        )
