"""Leaving the user's Spark session as it was found. Room: spark. Works on Spark classic and Spark Connect."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cm_delta_dagster.errors import InvalidArgumentError
from cm_delta_dagster.protocol.timestamp_text import zone_of

LISTING_SETTINGS: Mapping[str, str] = {"spark.sql.sources.parallelPartitionDiscovery.threshold": str(2**31 - 1)}
"""Makes Spark list its input on the driver instead of in a job of its own."""


@dataclass(slots=True)
class _Held:
    """One setting in use: by how many blocks, and what it was before the first of them (None: not set)."""

    holders: int
    original: str | None


_lock = threading.Lock()
# Settings belong to a session that several threads may share: the first block sets, the last one restores.
_held: dict[tuple[str, str], _Held] = {}


def file_relation(frame: DataFrame) -> Any:
    """The JVM's relation of a frame just loaded from files.

    Raises:
        Py4JError, AttributeError, TypeError: there is none, as on Spark Connect and for other sources.
    """
    return frame._jdf.queryExecution().analyzed().relation()  # type: ignore[operator]  # py4j has no types.


def check_frame(frame: Any) -> DataFrame:
    """``frame`` if it is a Spark DataFrame, classic or Connect. Raises InvalidArgumentError saying what was given."""
    if isinstance(frame, DataFrame):
        return frame
    given = f"{type(frame).__module__}.{type(frame).__qualname__}"
    raise InvalidArgumentError(
        f"Rows must come as a pyspark.sql.DataFrame; a {given} was given. Convert it first, e.g. "
        f"spark.createDataFrame(...)."
    )


def is_connect(session: SparkSession) -> bool:
    """Whether the session talks to a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def session_time_zone(session: SparkSession) -> tzinfo:
    """The zone in which the session reads times that name none. Raises InvalidArgumentError for one that Python does not know."""
    name = session.conf.get("spark.sql.session.timeZone") or "UTC"
    zone = zone_of(name)
    if zone is None:
        raise InvalidArgumentError(
            f"The session's time zone is {name!r}, which Python does not know; times that name no zone cannot be read. Set "
            "spark.sql.session.timeZone to the name of a region, such as Europe/Berlin."
        )
    return zone


@contextmanager
def temporary_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Have ``settings`` in force within the block and what was there before afterwards, also on failure.

    A setting that already has its value is not touched. Concurrent blocks on one session share what they set.
    """
    taken: list[str] = []
    try:
        for key, value in settings.items():
            _take(session, key, value)
            taken.append(key)
        yield
    finally:
        for key in reversed(taken):
            _give_back(session, key)


def _identity(session: SparkSession) -> str:
    """The same text for every Python object that stands for one session."""
    if is_connect(session):
        return str(session.session_id)  # type: ignore[attr-defined]  # Only Connect's sessions have it.
    return str(session._jsparkSession.hashCode())


def _take(session: SparkSession, key: str, value: str) -> None:
    identity = _identity(session)
    with _lock:
        held = _held.get((identity, key))
        if held is not None:
            held.holders += 1
            return
        original = session.conf.get(key, None)
        if original != value:
            session.conf.set(key, value)
        _held[identity, key] = _Held(holders=1, original=original)


def _give_back(session: SparkSession, key: str) -> None:
    identity = _identity(session)
    with _lock:
        held = _held[identity, key]
        held.holders -= 1
        if held.holders:
            return
        del _held[identity, key]
        if held.original is None:
            session.conf.unset(key)
        elif session.conf.get(key, None) != held.original:
            session.conf.set(key, held.original)
