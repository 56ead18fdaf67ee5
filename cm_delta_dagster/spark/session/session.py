"""The user's Spark session: temporary settings, and detection of stopped sessions. For Spark classic and Connect."""

import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from cm_delta_dagster.errors import EngineStoppedError, InvalidArgumentError
from cm_delta_dagster.protocol.predicates.timestamps import DeferredZone, zone_of
from cm_delta_dagster.spark.library import DataFrame, SparkSession, is_frame, is_imported, py4j_errors, pyspark

LISTING_SETTINGS: Mapping[str, str] = {"spark.sql.sources.parallelPartitionDiscovery.threshold": str(2**31 - 1)}
"""Make Spark list input files on the driver instead of in a job."""

REDACTION = "spark.redaction.regex"
REDACTED_NAMES = (
    r"(?i)secret|passw|token|credential|signature|(access|account|api)[._]?key|connection[._]?string|[._]sas[._]"
)
"""Names of settings and variables whose values the web pages and event logs of Spark leave out. The default of Spark does not
have the keys of Azure accounts, among others."""


@dataclass(slots=True)
class _SettingInUse:
    """A setting in use: the number of blocks that use it, and its value before the first block (None: not set)."""

    holders: int
    original: str | None


_lock = threading.Lock()
# Settings belong to a session that several threads may share: the first block sets, the last one restores.
_settings_in_use: dict[tuple[str, str], _SettingInUse] = {}


_ENDING_SECONDS = 5.0


def network_errors() -> tuple[type[Exception], ...]:
    """Errors of calls to a classic session whose Java process has ended."""
    return py4j_errors.Py4JNetworkError, ConnectionError


def is_gone(session: SparkSession) -> bool:
    """Whether the session was stopped or its Java process has ended, as far as known without a request."""
    if is_connect(session):
        return bool(session.is_stopped)  # type: ignore[attr-defined]  # Only Connect's sessions have it.
    context = session._sc
    if context._jsc is None:
        return True
    process = getattr(context._gateway, "proc", None)
    return process is not None and process.poll() is not None


def stopped_error(doing: str) -> EngineStoppedError:
    """The error for a session that has ended; also clears it, so that a new session can be started."""
    forget_gone_session()
    return EngineStoppedError(
        f"The Spark session is gone while {doing}: it was stopped, or its Java process was killed, ran out of memory or "
        "crashed. Nothing was committed. DataFrames of that session are gone too. Go on with a new session: a connection "
        "that started the old one starts another; otherwise make one with SparkSession.builder.getOrCreate() and connect with it."
    )


def wait_for_end() -> None:
    """Wait until the Java process of this process has ended, after its connections were lost."""
    process = getattr(pyspark.SparkContext._gateway, "proc", None) if is_imported() else None
    if process is not None:
        with suppress(subprocess.TimeoutExpired):  # Connections end shortly before the process.
            process.wait(_ENDING_SECONDS)


def running_session() -> SparkSession | None:
    """The active session of this process; None if there is none, or it has ended."""
    if not is_imported():
        return None
    forget_gone_session()
    return pyspark.sql.SparkSession.getActiveSession()


def forget_gone_session() -> None:
    """Clear pyspark's references to a session whose Java process has ended; otherwise it cannot start another one."""
    if not is_imported():
        return
    context = pyspark.SparkContext._active_spark_context
    process = getattr(pyspark.SparkContext._gateway, "proc", None)
    if context is None or process is None or process.poll() is None:
        return
    for _ in range(2):
        with suppress(
            Exception
        ):  # The first call fails to reach Java, the second one stops the threads of this process.
            context.stop()
    with pyspark.SparkContext._lock:
        pyspark.SparkContext._active_spark_context = None
        pyspark.SparkContext._gateway = None
        pyspark.SparkContext._jvm = None
        pyspark.sql.SparkSession._instantiatedSession = None
        pyspark.sql.SparkSession._activeSession = None


def check_frame(frame: Any) -> DataFrame:
    """``frame`` if it is a Spark DataFrame, classic or Connect.

    Raises:
        InvalidArgumentError: it is something else; the message says what.
        EngineStoppedError: its session has ended.
    """
    if is_frame(frame):
        if is_gone(frame.sparkSession):
            raise stopped_error("looking at the rows")
        return frame
    kind = f"{type(frame).__module__}.{type(frame).__qualname__}"
    raise InvalidArgumentError(
        f"Rows must come as a pyspark.sql.DataFrame; a {kind} was given. Convert it first, e.g. "
        f"spark.createDataFrame(...)."
    )


def is_connect(session: SparkSession) -> bool:
    """Whether the session talks to a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def session_time_zone(session: SparkSession) -> tzinfo:
    """The time zone for times that state none. Raises InvalidArgumentError for a zone that Python does not know."""
    name = session.conf.get("spark.sql.session.timeZone") or "UTC"
    zone = zone_of(name)
    if zone is None:
        raise InvalidArgumentError(
            f"The session's time zone is {name!r}, which Python does not know; times that name no zone cannot be read. Set "
            "spark.sql.session.timeZone to the name of a region, such as Europe/Berlin."
        )
    return zone


def default_zone(zone: tzinfo | None, session: SparkSession) -> tzinfo:
    """``zone``, or the time zone of the session, which is looked up when a time is converted."""
    return DeferredZone(lambda: session_time_zone(session)) if zone is None else zone


@contextmanager
def temporary_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply ``settings`` within the block and restore the previous values afterwards, also on failure.

    A setting that already has the value is not changed. Concurrent blocks on one session share their settings.
    """
    taken: list[str] = []
    identity = session_identity(session) if settings else ""
    try:
        for key, value in settings.items():
            _take(session, identity, key, value)
            taken.append(key)
        yield
    finally:
        for key in reversed(taken):
            with suppress(*network_errors()):  # A session that has ended has no settings to restore.
                _give_back(session, identity, key)


def session_identity(session: SparkSession) -> str:
    """A text that is equal for all Python objects of the same session."""
    if is_connect(session):
        return str(session.session_id)  # type: ignore[attr-defined]  # Only Connect's sessions have it.
    return str(session._jsparkSession.hashCode())


def _take(session: SparkSession, identity: str, key: str, value: str) -> None:
    with _lock:
        setting = _settings_in_use.get((identity, key))
        if setting is not None:
            setting.holders += 1
            return
        original = session.conf.get(key, None)
        if original != value:
            session.conf.set(key, value)
        _settings_in_use[identity, key] = _SettingInUse(holders=1, original=original)


def _give_back(session: SparkSession, identity: str, key: str) -> None:
    with _lock:
        setting = _settings_in_use[identity, key]
        setting.holders -= 1
        if setting.holders:
            return
        del _settings_in_use[identity, key]
        if setting.original is None:
            session.conf.unset(key)
        elif session.conf.get(key, None) != setting.original:
            session.conf.set(key, setting.original)
