"""Build tables through the real write path."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.reading.read import read
from cm_delta_dagster.operations.reading.snapshot_scan import open_scan
from cm_delta_dagster.operations.writing.conditions import Condition
from cm_delta_dagster.operations.writing.write import WriteResult, append
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.spark.expressions.conditions import column_predicate
from cm_delta_dagster.spark.expressions.schema import from_spark
from tests.support.creation import create_table

_numbers = itertools.count()


class TableBuilder:
    """A table with shortcuts to write to it and to read it.

    Args:
        columns: schema as Spark's DDL text, e.g. ``id long, day date``.
    """

    def __init__(
        self,
        client: DeltaClient,
        spark: SparkSession,
        columns: str,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        cluster_by: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        self.client = client
        self.spark = spark
        self.columns = columns
        self.table: Table = create_table(
            client,
            identifier=name or f"main.test.t{next(_numbers)}",
            schema=from_spark(spark.createDataFrame([], columns).schema),
            partition_columns=tuple(partition_by),
            properties=dict(properties or {}),
            clustering_columns=tuple(cluster_by),
        )

    def with_properties(self, properties: Mapping[str, str], *features: str) -> "TableBuilder":
        """Set properties that cannot be chosen at creation, and list the features that they need; returns the builder."""
        snapshot = self.table.snapshot()
        transaction = self.table.start_transaction(snapshot, operation="SET TBLPROPERTIES")
        configuration = {**snapshot.metadata.configuration, **properties}
        transaction.set_metadata(replace(snapshot.metadata, configuration=configuration))
        transaction.set_protocol(with_features(snapshot.protocol, features))
        transaction.commit()
        return self

    def frame(self, *rows: Sequence[Any], columns: str | None = None) -> DataFrame:
        """Rows as a DataFrame of one partition, so that an append makes one file for each table partition."""
        return self.spark.createDataFrame(list(rows), columns or self.columns).coalesce(1)

    def append(self, *rows: Sequence[Any], columns: str | None = None) -> WriteResult:
        return append(self.table, frame=self.frame(*rows, columns=columns))

    def rows(self, **arguments: Any) -> list[tuple[Any, ...]]:
        """Every row of the table, sorted; arguments as of ``open_scan``."""
        return rows_of(self.table_frame(**arguments))

    def table_frame(self, where: Condition | None = None, **arguments: Any) -> DataFrame:
        """The table as a DataFrame; arguments as of ``open_scan``."""
        scan = open_scan(self.table, **arguments)
        where = column_predicate(where, scan.snapshot.schema) if isinstance(where, Column) else where
        return read(replace(scan, where=where), spark=self.spark)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows as tuples, sorted with NULL first in each column."""
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: [(v is not None, v) for v in row])
