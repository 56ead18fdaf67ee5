"""Writes and actions that Spark stops if the driver is interrupted, e.g. by Ctrl-C or by the end of a Dagster run.

Without this a job goes on after its caller has raised, and creates files after the caller has deleted those of the write; and the
connection to Java of the interrupted thread answers later calls with the results of earlier ones.
"""

import contextvars
import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa

from cm_delta_dagster.spark.library import DataFrame, Row, SparkSession, py4j_errors
from cm_delta_dagster.spark.session.session import is_connect, network_errors

_Result = TypeVar("_Result")

_END_SECONDS = 30.0
"""Longest wait for a cancelled action to return. Spark reports a cancelled job at once, before its tasks have ended."""
_POLL_SECONDS = 0.2
_CONNECT_SECONDS = 5.0


def run_cancellable(session: SparkSession, action: Callable[[], _Result]) -> _Result:
    """Call ``action`` and return its result. If the caller is interrupted meanwhile, its Spark jobs are cancelled first.

    A classic session runs ``action`` in another thread, because py4j cannot use a connection whose call was interrupted. The
    thread has the local properties (job group, description, scheduler pool) and the tags of this one. Without pinned threads
    (``PYSPARK_PIN_THREAD=false``) jobs have no tags, and none are cancelled. Jobs that other threads run in the session go on.
    """
    if is_connect(session):
        return _on_connect(session, action)
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        return action()
    return _on_classic(session, action)


def _on_classic(session: SparkSession, action: Callable[[], _Result]) -> _Result:
    context: Any = session.sparkContext
    tag = _new_tag()
    properties = context._jsc.sc().getLocalProperties().clone()
    session_tags = session.getTags()
    done: Future[_Result] = Future()

    def run() -> None:
        try:
            context._jsc.sc().setLocalProperties(properties)
            for session_tag in session_tags:
                session.addTag(session_tag)
            context.addJobTag(tag)
            context._jvm.SparkSession.setActiveSession(session._jsparkSession)
            result = action()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)

    try:
        threading.Thread(target=contextvars.copy_context().run, args=(run,), name=tag, daemon=True).start()
        return done.result()
    except BaseException:
        if not done.done():
            _cancel(context, tag, done)
        raise


def _cancel(context: Any, tag: str, done: Future[Any]) -> None:
    """Cancel the jobs, also those that the action starts meanwhile, until it has returned."""
    end = time.monotonic() + _END_SECONDS
    with suppress(py4j_errors.Py4JError, *network_errors()):  # A session that has ended runs no jobs.
        while not done.done() and time.monotonic() < end:
            context.cancelJobsWithTag(tag)
            wait([done], timeout=_POLL_SECONDS)


def _on_connect(session: Any, action: Callable[[], _Result]) -> _Result:
    tag = _new_tag()
    try:
        session.addTag(tag)
        return action()
    except Exception:
        with suppress(Exception):  # The server may be gone; the caller's error says what happened.
            session.interruptTag(tag)
        raise
    except BaseException:
        _interrupt(session, tag)
        raise
    finally:
        session.removeTag(tag)


def _interrupt(session: Any, tag: str) -> None:
    """Interrupt the operation of an action that Ctrl-C has ended, which the server may not know for a short time."""
    end = time.monotonic() + _CONNECT_SECONDS
    with suppress(Exception):  # The server may be gone.
        while not session.interruptTag(tag) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)


def collected_rows(frame: DataFrame) -> list[Row]:
    """The rows of ``frame``, computed as :func:`run_cancellable` does."""
    return run_cancellable(frame.sparkSession, frame.collect)


def collected_table(frame: DataFrame) -> pa.Table:
    """The rows of ``frame`` as an Arrow table, computed as :func:`run_cancellable` does."""
    return run_cancellable(frame.sparkSession, frame.toArrow)


def _new_tag() -> str:
    return f"cm-delta-{uuid.uuid4().hex}"
