"""Reading a table as a stream of Spark Structured Streaming.

Each call registers a source of its own (``spark_source``), because the source carries the definition of the table by
which Spark analyses the DataFrame.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.deferred_module import DeferredModule
from cm_delta_dagster.errors import EngineError, InvalidArgumentError
from cm_delta_dagster.operations.arguments import as_predicate, names_table
from cm_delta_dagster.operations.reading.streams.state import StreamOptions, stream_columns
from cm_delta_dagster.operations.reading.table_definitions import definition_of
from cm_delta_dagster.protocol.changes.schema_compatibility import VersionDefinition
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.predicates.timestamps import DeferredZone
from cm_delta_dagster.protocol.schema.types import TIMESTAMP, StructType, data_type_text
from cm_delta_dagster.remedies import StreamWithoutSpark
from cm_delta_dagster.spark.expressions.schema import to_spark
from cm_delta_dagster.spark.library import DataFrame, SparkSession, pyspark, pyspark_errors
from cm_delta_dagster.spark.session.session import default_zone

if TYPE_CHECKING:
    from cm_delta_dagster.operations.reading.streams import spark_source
else:
    # Its classes are derived from those of PySpark.
    spark_source = DeferredModule("cm_delta_dagster.operations.reading.streams.spark_source")


@names_table
def stream(
    table: ReadableTable,
    *,
    spark: SparkSession,
    options: StreamOptions | None = None,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> DataFrame:
    """A streaming DataFrame of the rows of the table and the rows that are added to it.

    The arguments are those of ``stream_arrow``. A query with a checkpoint continues from it. When the table gets new columns,
    the query stops; after a restart with a new DataFrame it returns them.

    Raises:
        InvalidArgumentError: an invalid option, or a table that other processes cannot open.
        VersionNotFoundError: the starting version or time does not exist.
        EngineError: the Python process that Spark starts cannot open the table, e.g. because this package is not installed.
    """
    spec = stream_spec(table, options or StreamOptions(), spark=spark, columns=columns, where=where)
    # Each source needs a name of its own; the progress of a query shows its first part.
    name = f"cm_delta_{re.sub(r'[^A-Za-z0-9]+', '_', str(table.identifier))}_{uuid.uuid4().hex[:12]}"
    spark.dataSource.register(type("CmDelta", (spark_source.TableSource,), {"spec": spec, "format_name": name}))
    try:
        return spark.readStream.format(name).load()
    except pyspark_errors.PySparkException as error:
        raise EngineError(
            f"Spark cannot open {table.identifier} as a stream in a Python process of its own: {_last_error(str(error))} That "
            "process needs the same version of this package as the driver, and access to catalog and storage."
        ).with_remedy(StreamWithoutSpark()) from error


def _last_error(trace: str) -> str:
    """The last line of a Python stack trace that names an exception."""
    lines = [line for line in trace.partition("JVM stacktrace")[0].splitlines() if re.match(r"[A-Za-z_][\w.]*: ", line)]
    return (lines or trace.splitlines() or [""])[-1].rstrip(".") + "."


def stream_spec(
    table: ReadableTable,
    options: StreamOptions,
    *,
    spark: SparkSession,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> spark_source.StreamSpec:
    """The specification of the source of a stream. Raises InvalidArgumentError as :func:`stream`."""
    options.check()
    reading = definition_of(table.snapshot())
    zone = default_zone(table.time_zone, spark)
    spec = spark_source.StreamSpec(
        handle=_handle(table),
        options=options,
        reading=reading,
        columns=stream_columns(reading.schema, columns),
        where=as_predicate(where, reading.schema, zone=zone),
        zone=_zone(zone, reading),
    )
    if spec.where is not None:
        row_filter(spec.where, reading.schema)
    _check_types(spec)
    _check_portable(spec)
    return spec


def _handle(table: ReadableTable) -> spark_source.CatalogHandle | spark_source.PathHandle:
    if not isinstance(table, Table):
        return spark_source.PathHandle(table=table.in_time_zone(None))
    client = table.services
    assert isinstance(client, DeltaClient)
    return spark_source.CatalogHandle(
        client=client.spec(),
        store=table.store,
        identifier=table.identifier,
        table_id=table.table_id,
        location=table.location,
    )


def _zone(zone: dt.tzinfo, reading: VersionDefinition) -> dt.tzinfo:
    """The time zone of ``timestamp`` partition values that state none, for other processes; UTC where no column needs it."""
    partitions = (reading.schema.field(name) for name in reading.metadata.partition_columns)
    if all(item is None or item.type != TIMESTAMP for item in partitions):
        return dt.UTC
    return zone.zone if isinstance(zone, DeferredZone) else zone


def _check_types(spec: spark_source.StreamSpec) -> None:
    for item in spec.schema.fields:
        try:
            spark_source.source_form(to_spark(StructType((item,))))
        except pyspark_errors.PySparkTypeError as error:
            raise InvalidArgumentError(
                f"Column {item.name!r} has the type {data_type_text(item.type)}, which Spark does not accept from a source in "
                "Python. Leave it out of the columns to read, or do without Spark."
            ).with_remedy(StreamWithoutSpark()) from error


def _check_portable(spec: spark_source.StreamSpec) -> None:
    try:
        pyspark.cloudpickle.dumps(spec)  # type: ignore[no-untyped-call]  # pyspark's copy has no types.
    except Exception as error:  # Objects that cannot be pickled may raise any error.
        raise InvalidArgumentError(
            f"Spark cannot stream the table, because its other processes have to open it ({error}): this needs a catalog in a "
            "database and tables on storage outside of this process."
        ).with_remedy(StreamWithoutSpark()) from error
