"""The Spark session of a connection: given by the caller, the one that runs, or one that the connection starts."""

import threading
from collections.abc import Callable
from copy import copy
from datetime import tzinfo
from enum import StrEnum

from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.context import NO_PROPERTIES, CommitProperties
from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.operations.maintenance.auto_compaction import compacting_client
from cm_delta_dagster.spark.library import SparkSession, check_installed, pyspark
from cm_delta_dagster.spark.session.java import ensure_java
from cm_delta_dagster.spark.session.python_interpreter import same_interpreter, settings_of_environment
from cm_delta_dagster.spark.session.session import (
    REDACTED_NAMES,
    REDACTION,
    default_zone,
    is_gone,
    running_session,
    session_time_zone,
    stopped_error,
)


class _Origin(StrEnum):
    """Origin of the session of a connection."""

    GIVEN = "given"
    FOUND = "found"
    STARTED = "started"


class ClientSession:
    """A Delta client and the Spark session that reads and writes rows for it, shared by a connection, its namespaces and tables.

    Attributes:
        client: the Delta client, for calls that the connection does not offer.
    """

    def __init__(self, client: DeltaClient, *, spark: SparkSession | Callable[[], SparkSession] | None = None) -> None:
        self._supply = spark if callable(spark) else None
        self._spark = None if callable(spark) else spark
        self._origin = None if self._spark is None else _Origin.GIVEN
        self._lock = threading.Lock()
        self._recorded: ClientSession | None = None
        self.client = compacting_client(client, self.available)

    @property
    def spark(self) -> SparkSession:
        """The session for rows: found or started on first use. ``close`` leaves it running.

        If the session has ended and this connection started it, a new session is started.

        Raises:
            JavaNotFoundError: no session runs and no Java was found to start one.
            EngineStoppedError: the session has ended, and this connection did not start it.
        """
        if self._recorded is not None:
            return self._recorded.spark
        if self._supply is not None:
            return self._supply()
        with self._lock:
            if self._spark is not None and not is_gone(self._spark):
                return self._spark
            running = None if self._origin is _Origin.GIVEN else running_session()
            if running is not None:
                self._origin = _Origin.FOUND
            elif self._origin in (None, _Origin.STARTED):
                check_installed()
                ensure_java()
                builder = pyspark.sql.SparkSession.builder.appName("cm_delta_dagster")
                if REDACTION not in settings_of_environment():
                    builder = builder.config(REDACTION, REDACTED_NAMES)
                with same_interpreter({}):
                    running = builder.getOrCreate()
                self._origin = _Origin.STARTED
            else:
                raise stopped_error("a session is needed")
            self._spark = running
            return running

    def available(self) -> SparkSession | None:
        """The session if one was configured, or runs; None if not. It starts none."""
        if self._recorded is not None:
            return self._recorded.available()
        if self._supply is not None:
            return self._supply()
        with self._lock:
            if self._spark is not None and not is_gone(self._spark):
                return self._spark
            return None if self._origin is _Origin.GIVEN else running_session()

    def recording(self, properties: CommitProperties) -> "ClientSession":
        """The same catalog and Spark session; commits record ``properties`` in addition to those of the client."""
        if properties == NO_PROPERTIES:
            return self
        session = copy(self)
        session._recorded = self
        session.client = self.client.recording(properties)
        return session

    @property
    def running_time_zone(self) -> tzinfo | None:
        """The time zone of the Spark session, looked up when a time is converted; None if no session runs."""
        with self._lock:
            running = self._spark or running_session()
        return None if running is None or is_gone(running) else default_zone(None, running)

    @property
    def time_zone(self) -> tzinfo:
        """The time zone of the Spark session, for timestamps that name no time zone.

        Raises:
            InvalidArgumentError: no session runs, or Python does not know its time zone. The property starts no
                session, since reading through Arrow needs no Java.
        """
        with self._lock:
            running = self._spark or running_session()
        if running is None or is_gone(running):
            raise InvalidArgumentError(
                "The timestamp names no time zone, and no Spark session runs whose time zone applies. Name a time zone, as in "
                "'2026-01-31T12:00:00Z' or datetime(2026, 1, 31, tzinfo=UTC), or connect with spark=... or time_zone=..."
            )
        return session_time_zone(running)
