"""Reading a table as a stream of Spark Structured Streaming (section STREAM).

The source is that of ``spark_stream_source``. One is registered for each call, since it carries the
table's definition at that moment, by which Spark has analysed the DataFrame.
"""

import datetime as dt
import re
import uuid
from collections.abc import Sequence

from pyspark import cloudpickle
from pyspark.errors import PySparkException, PySparkTypeError
from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.arrow.predicates import row_filter
from cm_delta_dagster.client.snapshots.readable_table import ReadableTable
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import EngineError, InvalidArgumentError
from cm_delta_dagster.operations.arguments import as_predicate, names_table
from cm_delta_dagster.operations.reading.spark_stream_source import (
    CatalogHandle,
    PathHandle,
    StreamSpec,
    TableSource,
    source_form,
)
from cm_delta_dagster.operations.reading.stream_planning import StreamOptions, change_handling, stream_columns
from cm_delta_dagster.protocol.changes.schema_compatibility import VersionDefinition
from cm_delta_dagster.protocol.changes.stream_planning import DEFAULT_MAX_FILES, ChangeHandling
from cm_delta_dagster.protocol.predicates.predicates import Predicate
from cm_delta_dagster.protocol.schema.types import TIMESTAMP, StructType, data_type_text
from cm_delta_dagster.spark.schema import to_spark
from cm_delta_dagster.spark.session import session_time_zone


@names_table
def stream(
    table: ReadableTable,
    *,
    spark: SparkSession,
    starting_version: int | str | None = None,
    starting_timestamp_ms: int | None = None,
    max_files: int | None = DEFAULT_MAX_FILES,
    max_bytes: int | None = None,
    changes: ChangeHandling | str = ChangeHandling.FAIL,
    fail_on_data_loss: bool = True,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> DataFrame:
    """A streaming DataFrame of the rows in the table and of those that are added to it (STREAM-1).

    The arguments are those of ``stream_arrow``; where the query has a checkpoint,
    it goes on from there. New columns of the table stop the query; started again, it has them.

    Raises:
        InvalidArgumentError: arguments that mean nothing, or a table that other processes cannot open.
        VersionNotFoundError: the place to start at does not exist.
        EngineError: the Python that Spark starts beside the driver cannot open the table, e.g. because it has no such package.
    """
    options = StreamOptions(
        starting_version=starting_version,
        starting_timestamp_ms=starting_timestamp_ms,
        max_files=max_files,
        max_bytes=max_bytes,
        changes=change_handling(changes),
        fail_on_data_loss=fail_on_data_loss,
    )
    spec = stream_spec(table, options, spark=spark, columns=columns, where=where)
    # Each needs a name of its own; what comes before is shown in the progress of a query.
    name = f"cm_delta_{re.sub(r'[^A-Za-z0-9]+', '_', str(table.identifier))}_{uuid.uuid4().hex[:12]}"
    spark.dataSource.register(type("CmDelta", (TableSource,), {"spec": spec, "format_name": name}))
    try:
        return spark.readStream.format(name).load()
    except PySparkException as error:
        raise EngineError(
            f"Spark cannot open {table.identifier} as a stream in a Python process of its own: {_last_error(str(error))} That "
            "Python needs this package, as the driver has it, and access to catalog and storage. Or read it with stream_arrow."
        ) from error


def _last_error(trace: str) -> str:
    """The line of a Python stack trace that says what happened."""
    lines = [line for line in trace.partition("JVM stacktrace")[0].splitlines() if re.match(r"[A-Za-z_][\w.]*: ", line)]
    return (lines or trace.splitlines() or [""])[-1].rstrip(".") + "."


def stream_spec(
    table: ReadableTable,
    options: StreamOptions,
    *,
    spark: SparkSession,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
) -> StreamSpec:
    """What the source of a stream has to be told. Raises InvalidArgumentError as :func:`stream`."""
    snapshot = table.snapshot()
    reading = VersionDefinition(version=snapshot.version, protocol=snapshot.protocol, metadata=snapshot.metadata)
    spec = StreamSpec(
        handle=_handle(table),
        options=options,
        reading=reading,
        columns=stream_columns(reading.schema, columns),
        where=as_predicate(where, reading.schema),
        zone=_zone(spark, reading),
    )
    if spec.where is not None:
        row_filter(spec.where, reading.schema)
    _check_types(spec)
    _check_portable(spec)
    return spec


def _handle(table: ReadableTable) -> CatalogHandle | PathHandle:
    if not isinstance(table, Table):
        return PathHandle(table=table)
    return CatalogHandle(
        catalog=table.catalog,
        settings=table.services.settings,
        store=table.store,
        identifier=table.identifier,
        table_id=table.table_id,
        location=table.location,
    )


def _zone(spark: SparkSession, reading: VersionDefinition) -> dt.tzinfo:
    """The session's time zone, in which Spark would read partition values that are moments without one."""
    partitions = (reading.schema.field(name) for name in reading.metadata.partition_columns)
    if all(item is None or item.type != TIMESTAMP for item in partitions):
        return dt.UTC
    return session_time_zone(spark)


def _check_types(spec: StreamSpec) -> None:
    for item in spec.schema.fields:
        try:
            source_form(to_spark(StructType((item,))))
        except PySparkTypeError as error:
            raise InvalidArgumentError(
                f"Column {item.name!r} is of the type {data_type_text(item.type)}, which Spark does not take from a source in "
                "Python. Leave it out (columns=...), or read the table with stream_arrow."
            ) from error


def _check_portable(spec: StreamSpec) -> None:
    try:
        cloudpickle.dumps(spec)  # type: ignore[no-untyped-call]  # pyspark's copy has no types.
    except Exception as error:  # Whatever an object of somebody else raises that cannot be sent.
        raise InvalidArgumentError(
            f"The table cannot be streamed by Spark, whose processes have to open it for themselves ({error}): that takes a "
            "catalog in a database and tables on storage outside of this process. Read it with stream_arrow instead."
        ) from error
