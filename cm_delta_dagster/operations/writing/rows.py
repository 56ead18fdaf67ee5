"""The rows of a write: a DataFrame of Spark, or Arrow data, which is written without Spark where nothing needs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import cached_property
from typing import TypeAlias

from cm_delta_dagster.arrow.write.arrow_rows import UNCONVERTED, ArrowData, ArrowRows
from cm_delta_dagster.arrow.write.row_rules import guard_needs_spark
from cm_delta_dagster.arrow.write.stored_columns import needs_spark, type_for_spark
from cm_delta_dagster.errors import InvalidDataError
from cm_delta_dagster.operations.writing.engine_choice import EngineChoice, SessionSource, no_session
from cm_delta_dagster.protocol.features.table_layout import TableLayout
from cm_delta_dagster.protocol.predicates.predicates import Predicate, conjunction
from cm_delta_dagster.protocol.predicates.timestamps import DeferredZone
from cm_delta_dagster.protocol.schema.arrow_types import to_arrow_schema
from cm_delta_dagster.protocol.schema.types import StructType
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteEngine
from cm_delta_dagster.spark.expressions.schema import schema_of, to_spark
from cm_delta_dagster.spark.library import DataFrame, SparkSession, is_frame
from cm_delta_dagster.spark.session.errors import spark_errors
from cm_delta_dagster.spark.session.session import check_frame, running_session, session_time_zone
from cm_delta_dagster.spark.write.stored_values import guarded_source

AnyRows: TypeAlias = DataFrame | ArrowData
"""Rows as a caller hands them over."""


def zone_of_expressions(declared: tzinfo | None) -> tzinfo:
    """The time zone in which Arrow takes dates of timestamps for a table: that of the Spark session that runs, as Spark takes it,
    else ``declared``, else UTC. It is looked up when it is first used.
    """

    def zone() -> tzinfo:
        session = running_session()
        return declared or UTC if session is None else session_time_zone(session)

    return DeferredZone(zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guard:
    """A condition that the rows must satisfy with the values that the table stores; ``schema`` is that of the table."""

    where: Predicate
    schema: StructType
    partition_columns: Sequence[str]

    def guarded(self, frame: DataFrame) -> DataFrame:
        return guarded_source(frame, self.schema, self.where, partition_columns=self.partition_columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsForArrow:
    """Rows that Arrow writes, and the condition that they must satisfy."""

    rows: ArrowRows
    guard: Predicate | None = None


class WriteRows:
    """The rows of one write. A stream of Arrow is read once."""

    def __init__(
        self, rows: DataFrame | ArrowRows, session: SessionSource = no_session, engine: WriteEngine | None = None
    ) -> None:
        self._rows = rows
        self._choice = EngineChoice(session, engine)
        self._guard: _Guard | None = None
        self._unguarded: DataFrame | None = None

    @classmethod
    def of(
        cls,
        value: "AnyRows | WriteRows",
        session: SessionSource = no_session,
        *,
        what: str | None = None,
        engine: WriteEngine | None = None,
    ) -> "WriteRows":
        """The rows of a caller.

        Args:
            session: for Arrow data that only Spark can write to the table.
            what: the rows, for messages; None for their type.
            engine: that writes them. None for Arrow if they are Arrow data and nothing needs Spark. Arrow collects the rows of a
                DataFrame in this process.

        Raises:
            InvalidArgumentError: no rows, or a column that Arrow or Delta does not have.
            EngineStoppedError: the Spark session of a DataFrame has ended.
        """
        if isinstance(value, WriteRows):
            return value
        if is_frame(value) and engine is not WriteEngine.ARROW:
            return cls(check_frame(value), session, engine)
        if is_frame(value):
            frame, what = check_frame(value), what or "The DataFrame"
            kind = type_for_spark(schema_of(frame))
            if kind is not None:
                EngineChoice(session, engine).needed_session(f"they have a column of {kind}", "These rows need")
            with spark_errors("collecting the rows of a DataFrame"):
                return cls(ArrowRows.of(frame.toArrow(), what), lambda: frame.sparkSession, engine)
        return cls(ArrowRows.of(value, what), session, engine)

    @property
    def needs_no_spark(self) -> bool:
        """Whether they are Arrow data, which nothing has handed over to Spark yet."""
        return isinstance(self._rows, ArrowRows)

    def check(self, where: Predicate, schema: StructType, *, partition_columns: Sequence[str]) -> None:
        """Have the write fail for a row for which ``where`` is not true. A later call, of another attempt, replaces the condition.

        Args:
            schema: of the table after the write; ``where`` is evaluated over the values that the table will store.
        """
        self._guard = _Guard(where=where, schema=schema, partition_columns=partition_columns)
        if is_frame(self._rows):
            self._unguarded = self._rows if self._unguarded is None else self._unguarded
            self._rows = self._guard.guarded(self._unguarded)

    @property
    def guard(self) -> Predicate | None:
        """The condition of :meth:`check`, for rows that nothing has handed over to Spark."""
        return None if self._guard is None else self._guard.where

    def reason_for_spark(self, layout: TableLayout) -> str | None:
        """Why Spark writes the rows to the table, which is ``layout`` after the write, for a message; None if Arrow does."""
        return self.reason_for_engine or needs_spark(self.arrow_rows.schema, layout)

    @property
    def reason_for_engine(self) -> str | None:
        """Why Spark writes the rows to whatever table, for a message; None if Arrow may."""
        if is_frame(self._rows):
            return "they are rows of Spark"
        return "it was chosen" if self._choice.engine is WriteEngine.SPARK else None

    @property
    def arrow_rows(self) -> ArrowRows:
        """The rows, if nothing has handed them over to Spark."""
        assert isinstance(self._rows, ArrowRows), "they are rows of Spark"
        return self._rows

    def fit(self, schema: StructType) -> None:
        """Give numbers of Python the types of the columns of the table. Call it before the other methods."""
        if isinstance(self._rows, ArrowRows):
            self._rows = self._rows.fitted(schema)

    @cached_property
    def schema(self) -> StructType:
        """The offered columns, which Spark Connect analyses at the first use. Raises as ``schema_of``."""
        return self._rows.schema if isinstance(self._rows, ArrowRows) else schema_of(self._rows)

    @property
    def session(self) -> SparkSession | None:
        """The Spark session of the rows, or that runs or was configured; None if there is none."""
        return self._rows.sparkSession if is_frame(self._rows) else self._choice.session()

    def written_to(self, layout: TableLayout, guard: Predicate | None = None) -> DataFrame | RowsForArrow:
        """The rows for the engine that writes them to the table, which is ``layout`` after the write. Raises as :meth:`spark`.

        Args:
            guard: a condition that each row must satisfy. Rows for Spark are returned without it.
        """
        rows = self._rows
        if is_frame(rows):
            return rows
        reason = self.reason_for_spark(layout)
        guards = [part for part in (guard, self.guard) if part is not None]
        both = conjunction(guards) if guards else None
        if reason is None and both is not None:
            reason = guard_needs_spark(both, layout.schema)
        return RowsForArrow(rows=rows, guard=both) if reason is None else self.spark(reason)

    def needed_session(self, reason: str) -> SparkSession:
        """The Spark session of the rows, or that runs or was configured. Raises as :meth:`EngineChoice.needed_session`.

        Args:
            reason: why Spark is needed, for a message.
        """
        session = self._rows.sparkSession if is_frame(self._rows) else None
        if session is not None and self._choice.engine is not WriteEngine.ARROW:
            return session
        return self._choice.needed_session(reason, "These rows need")

    def spark(self, reason: str) -> DataFrame:
        """The rows as a DataFrame, the same one at each call.

        Args:
            reason: why Spark is needed, for a message.

        Raises:
            InvalidArgumentError: they are Arrow data, and no Spark session runs or was configured.
            InvalidDataError: the stream of the rows failed, or has values that Spark does not take.
        """
        rows = self._rows
        if is_frame(rows):
            return rows
        session = self.needed_session(reason)
        try:
            table = rows.reader().read_all().cast(to_arrow_schema(rows.schema))
        except (*UNCONVERTED, OSError, RuntimeError) as error:
            raise InvalidDataError(
                f"The rows cannot be read, or not be handed to Spark: {error}. Nothing was committed. Correct their source, and "
                "write again."
            ) from error
        frame = session.createDataFrame(table, to_spark(rows.schema))
        self._unguarded = frame
        self._rows = frame if self._guard is None else self._guard.guarded(frame)
        return self._rows
