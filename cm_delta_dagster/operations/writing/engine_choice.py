"""Which engine finds and writes the rows of a write: Arrow, in this process, or Spark."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from cm_delta_dagster.errors import EngineError, InvalidArgumentError
from cm_delta_dagster.protocol.actions.file_columns import size_of
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteEngine
from cm_delta_dagster.spark.library import MISSING, SparkSession, is_installed

SessionSource: TypeAlias = Callable[[], SparkSession | None]
"""Returns the Spark session that runs, or that was configured; None if there is none. It does not start one by itself."""

_MOST_BYTES = 2**30
"""Bytes of the files in which a change looks for rows. More are left to Spark, if there is a session."""


def no_session() -> SparkSession | None:
    """For callers that have no session besides that of a DataFrame."""
    return None


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What a caller says about the engine of a write.

    Attributes:
        session: for what only Spark can do.
        engine: None for Arrow, unless something needs Spark.
    """

    session: SessionSource = no_session
    engine: WriteEngine | None = None

    @classmethod
    def of(
        cls, spark: "SparkSession | SessionSource | EngineChoice", engine: WriteEngine | None = None
    ) -> "EngineChoice":
        """The choice of a caller with a session, or with a source of one, who may have chosen an engine."""
        if isinstance(spark, EngineChoice):
            return spark
        return cls(spark if callable(spark) else lambda: spark, engine)

    def reason_for_spark(self, files: pa.Table) -> str | None:
        """Why Spark carries out a change, though Arrow could, for a message; None for Arrow.

        Args:
            files: that may have rows that change, as add actions.
        """
        if self.engine is not None:
            return "it was chosen" if self.engine is WriteEngine.SPARK else None
        if size_of(files) > _MOST_BYTES and self.session() is not None:
            return "the files are large"
        return None

    def needed_session(self, reason: str, what: str) -> SparkSession:
        """The Spark session that runs or was configured.

        Args:
            reason: why Spark is needed, for a message.
            what: what needs it, with the verb.

        Raises:
            InvalidArgumentError: no Spark session runs or was configured, or Arrow was chosen.
            EngineError: PySpark is not installed.
        """
        if self.engine is WriteEngine.ARROW:
            raise InvalidArgumentError(
                f"{what} Spark, because {reason}, and Arrow was chosen. Nothing was written. Leave the choice open, or choose "
                "Spark."
            )
        session = self.session()
        if session is None:
            if not is_installed():
                raise EngineError(f"{what} Spark, because {reason}. Nothing was written. {MISSING}")
            raise InvalidArgumentError(
                f"{what} Spark, because {reason}, and no Spark session runs or was configured. Nothing was written. Start a "
                "session before the write, or give the connection one."
            )
        return session
