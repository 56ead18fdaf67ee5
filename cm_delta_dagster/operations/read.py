"""Reading a table as a DataFrame (headings "Snapshot", "Data skipping"). Room: operations.

One snapshot serves the whole query (LOG-19); files that cannot hold a wanted row are not opened.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cm_delta_dagster.client.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.row_commit import as_predicate, names_table
from cm_delta_dagster.protocol.predicates import Predicate
from cm_delta_dagster.spark.errors import spark_errors
from cm_delta_dagster.spark.predicates import to_column
from cm_delta_dagster.spark.scan import scan
from cm_delta_dagster.spark.schema import quoted
from cm_delta_dagster.storage.store import Store


@names_table
def read(
    table: Table,
    *,
    spark: SparkSession,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
    version: int | None = None,
    timestamp_ms: int | None = None,
) -> DataFrame:
    """The rows of the table: at its latest version, at ``version``, or as of ``timestamp_ms`` (TT-1, TT-2).

    Args:
        columns: columns to return, in this order; all of them for None.
        where: condition on the rows, SQL text or a predicate value; also decides which files are opened.
        timestamp_ms: epoch milliseconds.

    Raises:
        VersionNotFoundError: no such version or time.
        InvalidArgumentError: an unknown column, or ``where`` is no condition.
        ObjectNotFoundError: a data file is missing; found here or when the rows are computed.
    """
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise InvalidArgumentError(f"version is {version!r}; give a whole number.")
    snapshot = table.snapshot(version=version, timestamp_ms=timestamp_ms)
    return read_snapshot(snapshot, spark=spark, store=table.store, columns=columns, where=where)


def read_snapshot(
    snapshot: Snapshot,
    *,
    spark: SparkSession,
    store: Store,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> DataFrame:
    """:func:`read` for a snapshot in hand, whatever the table has become since."""
    schema = snapshot.schema
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns is the text {columns!r}; give a list of names, e.g. [{columns!r}].")
    fields = [(name, schema.field(name)) for name in columns or ()]
    unknown = [name for name, found in fields if found is None]
    if unknown:
        raise InvalidArgumentError(
            f"{snapshot.identifier} has no column {unknown[0]!r}; its columns are {', '.join(schema.names)}."
        )
    predicate = as_predicate(where, schema)
    frame = scan(
        spark,
        store=store,
        location=snapshot.location,
        schema=schema,
        partition_columns=snapshot.partition_columns,
        files=snapshot.matching_files(predicate),
    )
    with spark_errors(f"reading {snapshot.identifier}"):
        if predicate is not None:
            frame = frame.where(to_column(predicate, schema))
        if columns is not None:
            frame = frame.select(*[F.col(quoted(found.name)) for _, found in fields if found is not None])
        return frame
