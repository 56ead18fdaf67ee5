"""Types of the keyword arguments that the forms of a write share, committed or held: they are those of its one implementation."""

import typing
from collections.abc import Sequence
from datetime import timedelta

from cm_delta_dagster.client.commits.context import CommitProperties, Idempotency
from cm_delta_dagster.operations.arguments import one_of
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.merge import MergeMode
from cm_delta_dagster.operations.writing.write import PartitionOverwrite
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteEngine

Holds = typing.Literal[True] | timedelta
"""Values of ``hold`` with which a write is held."""


class RowChangeOptions(typing.TypedDict, total=False):
    """Of every write."""

    idempotency: Idempotency | None
    commit_properties: CommitProperties
    engine: str | None


class AppendOptions(RowChangeOptions, total=False):
    """Of ``append``."""

    schema_mode: SchemaMode
    partition_by: str | Sequence[str] | None


class OverwriteOptions(AppendOptions, total=False):
    """Of ``overwrite``."""

    where: Condition | None
    partitions: PartitionOverwrite | str
    keys: str | Sequence[str]


class UpsertOptions(RowChangeOptions, total=False):
    """Of ``upsert``."""

    mode: MergeMode | str
    where: Condition | None
    schema_mode: SchemaMode


def write_engine(engine: str | None) -> WriteEngine | None:
    """The engine of that name. Raises InvalidArgumentError for another name."""
    return None if engine is None else one_of(WriteEngine, engine, name="engine")
