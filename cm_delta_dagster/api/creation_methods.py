"""Methods of a connection that create tables: empty, with first rows, or by the first write to a name."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cm_delta_dagster.api.delta_table import DeltaTable
from cm_delta_dagster.api.path_delta_table import PathDeltaTable
from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.api.table_reads import TableReads
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.commits.context import NO_CONTEXT, CommitContext, Idempotency
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.arguments import Timestamp, one_of
from cm_delta_dagster.operations.tables.clone import CloneMode, CloneResult, open_source
from cm_delta_dagster.operations.tables.create import TableDesign, check_partitioning, first_schema
from cm_delta_dagster.operations.tables.replace import CreationMode, create_or_replace
from cm_delta_dagster.operations.tables.write_attempts import WriteAttempt, open_or_create, write_attempts
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.merge import MergeMode, merge
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.operations.writing.write_result import WriteResult
from cm_delta_dagster.operations.writing.write_transaction import CommitOptions
from cm_delta_dagster.protocol.features.column_specs import Column, schema_of_columns
from cm_delta_dagster.protocol.features.default_columns import has_defaults
from cm_delta_dagster.protocol.features.generated_columns import generated_columns
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.schema import from_spark, schema_of
from cm_delta_dagster.spark.rules.constraints import check_expression_types
from cm_delta_dagster.spark.session.session import check_frame

AnySchema: TypeAlias = StructType | T.StructType | pa.Schema | Sequence[Column]
"""Columns as a schema of this package, of pyspark or of pyarrow, or as a list of :class:`Column` values."""


class CreationMethods(ClientSession):
    """A base of :class:`~cm_delta_dagster.api.connection.Connection`; each method calls one operation."""

    def create_table(
        self,
        name: TableIdentifier | str,
        schema: AnySchema,
        partition_by: str | Sequence[str] = (),
        *,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        cluster_by: str | Sequence[str] = (),
        mode: CreationMode | str = CreationMode.CREATE,
        location: str | None = None,
    ) -> "DeltaTable":
        """Create an empty table, or replace a table by an empty one.

        Args:
            name: ``catalog.schema.table``.
            schema: columns, as a schema of pyspark, pyarrow or this package, or as a list of ``Column`` values, which can also
                have defaults, generation expressions and identities. Spark analyses such expressions.
            partition_by: column or columns of ``schema``, in partition order.
            properties: table properties such as ``{"delta.appendOnly": "true"}``.
            cluster_by: up to four columns or fields that ``optimize`` clusters rows by, in place of partition columns.
            mode: ``"replace"`` gives an existing table this definition and removes its rows; ``"create_or_replace"`` also creates
                it if there is none. The table keeps its id and its history.
            location: an empty directory, or URI with its scheme, outside of the warehouse. A purge never deletes files there. None:
                the catalog chooses a location in the warehouse.

        Raises:
            TableAlreadyExistsError: the name is taken, or another table is at, above or below ``location``.
            TableNotFoundError: the table to replace does not exist.
            InvalidArgumentError: an invalid name, partition or clustering column, property, default, generation expression or
                identity.
            SchemaMismatchError: a column name that Delta cannot store.
            UnsupportedFeatureError: schema or properties need a feature that this client does not have.
        """
        design = self._empty_design(schema, partition_by, properties, description, cluster_by, location)
        return DeltaTable(
            self,
            create_or_replace(
                self.client, identifier=name, design=design, mode=one_of(CreationMode, mode, name="mode")
            ),
        )

    def open_or_create(
        self,
        name: TableIdentifier | str,
        schema: AnySchema,
        partition_by: str | Sequence[str] = (),
        *,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        cluster_by: str | Sequence[str] = (),
    ) -> "DeltaTable":
        """Open the table of that name; create it if it does not exist. Arguments as in :meth:`create_table`.

        Raises:
            SchemaMismatchError: the table exists, and its columns or partition columns differ from the arguments.
        """
        design = self._empty_design(schema, partition_by, properties, description, cluster_by)
        table = open_or_create(self.client, identifier=name, design=design)
        return DeltaTable(self, table)

    def create_table_as(
        self,
        name: TableIdentifier | str,
        frame: DataFrame,
        partition_by: str | Sequence[str] = (),
        *,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        cluster_by: str | Sequence[str] = (),
        mode: CreationMode | str = CreationMode.CREATE,
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> "DeltaTable":
        """Create a table with the columns and the rows of ``frame``, or replace a table by them, in one commit.

        Args:
            partition_by: column or columns of ``frame``, in partition order.
            cluster_by: up to four columns or fields of ``frame``.
            mode: as in :meth:`create_table`. ``frame`` may be read from the table that is replaced.
            idempotency: recorded in the commit, so that an :meth:`append` with the same value is skipped.

        Raises:
            TableAlreadyExistsError: the name is taken. Rows that were written before this was found are deleted.
            InvalidArgumentError, SchemaMismatchError, UnsupportedFeatureError: as :meth:`create_table`.
            InvalidDataError: a row violates a constraint of the table; no table was created.
        """
        design = _Design(frame, partition_by, properties, description, cluster_by)
        options = CommitOptions(idempotency=idempotency, context=context)
        table = create_or_replace(
            self.client,
            identifier=name,
            design=design.of_table(),
            frame=frame,
            mode=one_of(CreationMode, mode, name="mode"),
            options=options,
        )
        return DeltaTable(self, table)

    def clone(
        self,
        source: DeltaTable | PathDeltaTable | TableIdentifier | str,
        name: TableIdentifier | str,
        mode: CloneMode | str = CloneMode.SHALLOW,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        properties: Mapping[str, str] | None = None,
        creation: CreationMode | str = CreationMode.CREATE,
        context: CommitContext = NO_CONTEXT,
    ) -> CloneResult:
        """Create the table ``name`` as a clone of ``source``: CREATE TABLE name SHALLOW CLONE source VERSION AS OF version.

        Args:
            source: an open table; the name of a table of this catalog; or the path or URI of a table of another writer.

        Other arguments, result and errors as in :meth:`DeltaTable.clone`.

        Raises:
            TableNotFoundError: the catalog has no table ``source``.
        """
        table = source if isinstance(source, DeltaTable | PathDeltaTable) else self._opened(source)
        return table.clone(
            name,
            mode,
            version=version,
            timestamp=timestamp,
            properties=properties,
            creation=creation,
            context=context,
        )

    def _opened(self, source: TableIdentifier | str) -> TableReads[ReadableTable]:
        return TableReads(self, open_source(self.client, source))

    def append(
        self,
        name: TableIdentifier | str,
        frame: DataFrame,
        partition_by: str | Sequence[str] | None = None,
        *,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        cluster_by: str | Sequence[str] = (),
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Append the rows of ``frame`` to the table of that name; the same commit creates the table if it does not exist.

        Args:
            partition_by: partition columns of a new table; an existing table must have the same ones, unless None.
            properties, description, cluster_by: of a new table.

        Raises:
            SchemaMismatchError: the table exists and has other partition columns.
            CmDeltaError: as :meth:`create_table_as` and :meth:`DeltaTable.append`.
        """
        design = _Design(frame, partition_by, properties, description, cluster_by)
        for attempt in self._attempts(name, design):
            with attempt as target:
                result = append(
                    target,
                    frame=frame,
                    schema_mode=schema_mode,
                    options=CommitOptions(idempotency=idempotency, context=context),
                )
        return result

    def overwrite(
        self,
        name: TableIdentifier | str,
        frame: DataFrame,
        partition_by: str | Sequence[str] | None = None,
        *,
        where: Condition | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        cluster_by: str | Sequence[str] = (),
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Replace the rows of the table of that name, or those that satisfy ``where``; create it if it does not exist.

        Arguments and errors as in :meth:`append` and :meth:`DeltaTable.overwrite`. With ``SchemaMode.OVERWRITE``, ``partition_by``
        replaces the partition columns of an existing table.
        """
        replaced = _columns(partition_by) if partition_by is not None and schema_mode == SchemaMode.OVERWRITE else None
        design = _Design(frame, partition_by, properties, description, cluster_by)
        for attempt in self._attempts(name, design, same_partitions=replaced is None):
            with attempt as target:
                result = overwrite(
                    target,
                    frame=frame,
                    where=where,
                    schema_mode=schema_mode,
                    partition_by=replaced,
                    options=CommitOptions(idempotency=idempotency, context=context),
                )
        return result

    def merge(
        self,
        name: TableIdentifier | str,
        frame: DataFrame,
        on: str | Sequence[str],
        partition_by: str | Sequence[str] | None = None,
        *,
        mode: MergeMode = MergeMode.UPSERT,
        within: Condition | None = None,
        schema_mode: SchemaMode = SchemaMode.STRICT,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        cluster_by: str | Sequence[str] = (),
        idempotency: Idempotency | None = None,
        context: CommitContext = NO_CONTEXT,
    ) -> WriteResult:
        """Merge ``frame`` by key into the table of that name; the same commit creates the table if it does not exist.

        Arguments and errors as in :meth:`append` and :meth:`DeltaTable.merge`.
        """
        design = _Design(frame, partition_by, properties, description, cluster_by)
        for attempt in self._attempts(name, design):
            with attempt as target:
                result = merge(
                    target,
                    frame=frame,
                    keys=_columns(on),
                    mode=mode,
                    within=within,
                    schema_mode=schema_mode,
                    options=CommitOptions(idempotency=idempotency, context=context),
                )
        return result

    def _empty_design(
        self,
        schema: AnySchema,
        partition_by: str | Sequence[str],
        properties: Mapping[str, str] | None,
        description: str | None,
        cluster_by: str | Sequence[str],
        location: str | None = None,
    ) -> TableDesign:
        """The design of a table that is created without rows; Spark analyses the expressions of its schema if it has some."""
        parsed = _schema(schema)
        if has_defaults(parsed) or generated_columns(parsed):
            check_expression_types(self.spark, parsed)
        return TableDesign(
            schema=parsed,
            partition_columns=_columns(partition_by),
            properties=dict(properties or {}),
            description=description,
            clustering_columns=_columns(cluster_by),
            location=location,
        )

    def _attempts(
        self, name: TableIdentifier | str, design: "_Design", *, same_partitions: bool = True
    ) -> Iterator[AbstractContextManager[WriteTarget]]:
        """The targets of the attempts to write to the table, which the write creates if it does not exist."""
        check_frame(design.frame)
        for attempt in write_attempts(self.client, identifier=name):
            yield _target(attempt, design, same_partitions=same_partitions)


@contextmanager
def _target(attempt: WriteAttempt, design: "_Design", *, same_partitions: bool) -> Iterator[WriteTarget]:
    with attempt.target(design.of_table() if attempt.creates else None) as target:
        if same_partitions and design.partition_by is not None:
            check_partitioning(target, _columns(design.partition_by))
        yield target


@dataclass(frozen=True, slots=True)
class _Design:
    """Columns, partitioning and properties of a table that a write may create."""

    frame: DataFrame
    partition_by: str | Sequence[str] | None
    properties: Mapping[str, str] | None
    description: str | None
    cluster_by: str | Sequence[str]

    def of_table(self) -> TableDesign:
        return TableDesign(
            schema=first_schema(schema_of(check_frame(self.frame))),
            partition_columns=_columns(self.partition_by or ()),
            properties=dict(self.properties or {}),
            description=self.description,
            clustering_columns=_columns(self.cluster_by),
        )


def _columns(names: str | Sequence[str]) -> tuple[str, ...]:
    columns = (names,) if isinstance(names, str) else tuple(names)
    invalid = [name for name in columns if not isinstance(name, str)]
    if invalid:
        raise InvalidArgumentError(f"{invalid[0]!r} is not a column name; give names as text.")
    return columns


def _schema(schema: AnySchema) -> StructType:
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, T.StructType):
        return from_spark(schema)
    if isinstance(schema, pa.Schema):
        return from_arrow_schema(schema)
    if isinstance(schema, list | tuple):
        return schema_of_columns(schema)
    raise InvalidArgumentError(
        f"The schema is of type {type(schema).__name__}. Give a pyspark StructType (e.g. frame.schema), a pyarrow.Schema, "
        "a cm_delta_dagster.StructType, or a list of cm_delta_dagster.Column."
    )
