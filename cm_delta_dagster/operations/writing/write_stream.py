"""A table as the sink of a query of Spark Structured Streaming.

Spark repeats a batch if it does not know whether the batch was written. Each batch is one commit with a ``txn`` action of the
query's id and the number of the batch (protocol heading "Transaction Identifiers"), so that a batch that was committed is skipped.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties, Idempotency
from cm_delta_dagster.client.write_target import WriteTarget
from cm_delta_dagster.errors import EngineError, InvalidArgumentError
from cm_delta_dagster.operations.arguments import names_table
from cm_delta_dagster.operations.writing.target_shape import target_shape
from cm_delta_dagster.operations.writing.write import append, overwrite
from cm_delta_dagster.operations.writing.write_result import WriteOutcome, WriteResult
from cm_delta_dagster.operations.writing.write_transaction import (
    CommitOptions,
    StreamingUpdate,
    check_not_append_only,
)
from cm_delta_dagster.protocol.schema.evolution import SchemaMode
from cm_delta_dagster.spark.expressions.schema import schema_of
from cm_delta_dagster.spark.library import DataFrame, StreamingQuery, pyspark_errors
from cm_delta_dagster.spark.session.session import check_frame, is_connect

_QUERY_ID = "sql.streaming.queryId"
"""Local property of the thread that runs a batch. The id is stored in the checkpoint, so a restarted query has the same one."""

_TRIGGERS = ("availableNow", "processingTime", "once", "continuous")

BatchWriter = Callable[[DataFrame, Idempotency], object]
"""Writes the rows of one batch; passes the second argument to the write as ``idempotency``."""


class OutputMode(StrEnum):
    """What a query hands to the table, as Spark names it."""

    APPEND = "append"
    """New rows; each batch is appended."""
    COMPLETE = "complete"
    """The whole result of an aggregation; each batch replaces all rows."""
    UPDATE = "update"
    """The rows of an aggregation that changed; needs a function that writes them, such as a merge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWrite:
    """How a query writes to a table.

    Attributes:
        checkpoint: location where Spark stores the progress of the query. A query continues from it.
        output_mode: what the query hands to the table.
        write_batch: writes the rows of a batch; by default they are appended, or with COMPLETE replace all rows.
        trigger: one argument of ``DataStreamWriter.trigger``, e.g. ``{"availableNow": True}``; Spark's default if empty.
        query_name: name of the query in the UI of Spark.
        schema_mode: whether an appended batch may add columns to the table.
    """

    checkpoint: str
    output_mode: OutputMode = OutputMode.APPEND
    write_batch: BatchWriter | None = None
    trigger: Mapping[str, str | bool] = field(default_factory=dict)
    query_name: str | None = None
    schema_mode: SchemaMode = SchemaMode.STRICT


@names_table
def write_stream(
    table: WriteTarget, *, frame: DataFrame, write: StreamWrite, context: CommitProperties = NO_PROPERTIES
) -> StreamingQuery:
    """Start a query that writes the rows of the streaming ``frame`` to the table, each batch exactly once.

    Raises:
        InvalidArgumentError: ``frame`` is no stream, a session of Spark Connect, or an argument of ``write`` is invalid.
        SchemaMismatchError: the columns do not fit the table.
        IllegalCommitError: the output mode replaces rows, and the table is append-only.
        EngineError: Spark does not start the query.
    """
    check_frame(frame)
    if not frame.isStreaming:
        raise InvalidArgumentError("The rows are no stream. Read them with spark.readStream, or append them instead.")
    if is_connect(frame.sparkSession):
        raise InvalidArgumentError(
            "A session of Spark Connect runs the function that writes a batch in the server's process, which cannot use this "
            "connection. Start the query in a classic session."
        )
    _check(table, frame, write)
    writer = frame.writeStream.outputMode(write.output_mode.value).option("checkpointLocation", write.checkpoint)
    if write.query_name is not None:
        writer = writer.queryName(write.query_name)
    if write.trigger:
        writer = writer.trigger(**write.trigger)  # type: ignore[arg-type]  # Each trigger has a type of its own.
    try:
        return writer.foreachBatch(_batch_function(table, write, context)).start()
    except pyspark_errors.PySparkException as error:
        raise EngineError(f"Spark did not start the query: {error}") from error


def _check(table: WriteTarget, frame: DataFrame, write: StreamWrite) -> None:
    if not write.checkpoint:
        raise InvalidArgumentError(
            "A query needs a checkpoint location, which stores its progress: without it, a restarted query writes its rows again."
        )
    unknown = [name for name in write.trigger if name not in _TRIGGERS]
    if unknown or len(write.trigger) > 1:
        raise InvalidArgumentError(
            f"The trigger is {dict(write.trigger)!r}; give one of {', '.join(_TRIGGERS)}, e.g. {{'availableNow': True}}."
        )
    snapshot = table.snapshot()
    if write.write_batch is not None:
        return
    if write.output_mode is OutputMode.UPDATE:
        raise InvalidArgumentError(
            "The output mode update needs a function that writes the changed rows of a batch, e.g. by a merge with the "
            "idempotency that it gets."
        )
    if write.output_mode is OutputMode.COMPLETE:
        check_not_append_only(snapshot, "a query with the output mode complete")
    target_shape(snapshot, schema_of(frame), write.schema_mode)


def _batch_function(
    table: WriteTarget, write: StreamWrite, context: CommitProperties
) -> Callable[[DataFrame, int], None]:
    def write_batch(rows: DataFrame, number: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if not query:
            raise EngineError(
                "Spark did not say which query the batch belongs to, so it cannot be written exactly once."
            )
        once = Idempotency(app_id=query, version=number)
        update = StreamingUpdate(output_mode=write.output_mode.value.capitalize(), query_id=query, batch=number)
        options = CommitOptions(idempotency=once, context=context, streaming=update)
        if write.write_batch is not None:
            result = write.write_batch(rows, once)
        elif write.output_mode is OutputMode.COMPLETE:
            result = overwrite(table, frame=rows, schema_mode=write.schema_mode, options=options)
        else:
            result = append(table, frame=rows, schema_mode=write.schema_mode, options=options)
        if isinstance(result, WriteResult) and result.outcome is WriteOutcome.ALREADY_COMMITTED:
            # Spark stops a query with state if the rows of a batch were not computed.
            rows.write.format("noop").mode("overwrite").save()

    return write_batch
