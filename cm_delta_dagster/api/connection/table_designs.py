"""What new tables are to be, from the arguments of a connection: columns, partitioning, properties."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from cm_delta_dagster.api.session import ClientSession
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.sql.column_definitions import columns_of_text
from cm_delta_dagster.operations.tables.create import TableDesign, first_schema
from cm_delta_dagster.operations.tables.expression_types import check_expressions
from cm_delta_dagster.operations.writing.rows import AnyRows, WriteRows
from cm_delta_dagster.protocol.features.column_specs import Column, schema_of_columns
from cm_delta_dagster.protocol.schema.arrow_types import from_arrow_schema
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.spark.expressions.schema import from_spark
from cm_delta_dagster.spark.library import SparkStructType, T, is_data_type

AnySchema: TypeAlias = str | StructType | SparkStructType | pa.Schema | Sequence[Column]
"""Columns as a schema of this package, of pyspark or of pyarrow, or as a list of :class:`Column` values."""


def empty_design(
    session: ClientSession,
    schema: AnySchema,
    partition_by: str | Sequence[str],
    properties: Mapping[str, str] | None,
    description: str | None,
    cluster_by: str | Sequence[str],
    location: str | None = None,
) -> TableDesign:
    """The design of a table that is created without rows."""
    parsed = _schema(schema)
    check_expressions(parsed, lambda: session.spark)
    return TableDesign(
        schema=parsed,
        partition_columns=_column_names(partition_by),
        properties=dict(properties or {}),
        description=description,
        clustering_columns=_column_names(cluster_by),
        location=location,
    )


def first_design(
    rows: WriteRows,
    partition_by: str | Sequence[str],
    properties: Mapping[str, str] | None,
    description: str | None,
    cluster_by: str | Sequence[str],
) -> TableDesign:
    """The design of a table whose first rows are ``rows``."""
    return TableDesign(
        schema=first_schema(rows.schema),
        partition_columns=_column_names(partition_by),
        properties=dict(properties or {}),
        description=description,
        clustering_columns=_column_names(cluster_by),
    )


def open_design(
    session: ClientSession,
    schema: AnySchema | None,
    like: AnyRows | None,
    partition_by: str | Sequence[str],
    properties: Mapping[str, str] | None,
    description: str | None,
    cluster_by: str | Sequence[str],
) -> TableDesign:
    """The design of a table that may exist. Raises InvalidArgumentError unless either ``schema`` or ``like`` is not None."""
    if like is not None and schema is None:
        return first_design(WriteRows.of(like), partition_by, properties, description, cluster_by)
    if schema is None or like is not None:
        raise InvalidArgumentError(
            "Give the columns that a new table is to have, either as schema=... or as like=frame, whose columns it gets."
        )
    return empty_design(session, schema, partition_by, properties, description, cluster_by)


def _column_names(names: str | Sequence[str]) -> tuple[str, ...]:
    columns = (names,) if isinstance(names, str) else tuple(names)
    invalid = [name for name in columns if not isinstance(name, str)]
    if invalid:
        raise InvalidArgumentError(f"{invalid[0]!r} is not a column name; give names as text.")
    return columns


def _schema(schema: AnySchema) -> StructType:
    if isinstance(schema, StructType):
        return schema
    if is_data_type(schema) and isinstance(schema, T.StructType):
        return from_spark(schema)
    if isinstance(schema, pa.Schema):
        return from_arrow_schema(schema)
    if isinstance(schema, str):
        return schema_of_columns(columns_of_text(schema))
    if isinstance(schema, list | tuple):
        return schema_of_columns(schema)
    raise InvalidArgumentError(
        f"The schema is of type {type(schema).__name__}. Give a text such as 'id bigint, name string', a pyspark StructType "
        "(e.g. frame.schema), a pyarrow.Schema, a cm_delta_dagster.StructType, or a list of cm_delta_dagster.Column."
    )
