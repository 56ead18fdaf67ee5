"""Creations of tables in one call."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.client.creation import CreateTransaction
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.tables.create import TableDesign, create_empty, creation_of
from cm_delta_dagster.protocol.schema.types import StructType

_Result = TypeVar("_Result")


def create_table(
    client: DeltaClient,
    *,
    identifier: TableIdentifier | str,
    schema: StructType,
    partition_columns: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    description: str | None = None,
    clustering_columns: Sequence[str] = (),
    context: CommitProperties = NO_PROPERTIES,
) -> Table:
    """An empty table."""
    design = TableDesign(
        schema=schema,
        partition_columns=partition_columns,
        properties=dict(properties or {}),
        description=description,
        clustering_columns=clustering_columns,
    )
    return create_empty(client, identifier=identifier, design=design, context=context)


def create_table_as(
    client: DeltaClient,
    *,
    identifier: TableIdentifier | str,
    design: TableDesign,
    write: Callable[[CreateTransaction], _Result],
) -> tuple[Table, _Result]:
    """A table whose version 0 holds the rows that ``write`` writes, and the result of ``write``."""
    with creation_of(client, identifier=identifier, design=design) as creation:
        result = write(creation)
    return creation.table(), result
