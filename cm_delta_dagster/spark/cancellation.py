"""Writes that Spark stops if the driver is interrupted, e.g. by Ctrl-C or by the end of a Dagster run.

Without this a job goes on after its caller has raised, and creates files after the caller has deleted those of the write.
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

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from cm_delta_dagster.spark.session import NETWORK_ERRORS, is_connect

_Result = TypeVar("_Result")

_END_SECONDS = 30.0
"""Longest wait for a cancelled write to return. Spark reports a cancelled job at once, before its tasks have ended."""
_POLL_SECONDS = 0.2


def run_cancellable(session: SparkSession, write: Callable[[], _Result]) -> _Result:
    """Call ``write`` and return its result. If the caller is interrupted meanwhile, its Spark jobs are cancelled first.

    A classic session runs ``write`` in another thread with the local properties of this one, because py4j cannot use a
    connection whose call was interrupted. Without pinned threads (``PYSPARK_PIN_THREAD=false``) jobs have no
    tags, and none are cancelled. Jobs that other threads run in the session go on.
    """
    if is_connect(session):
        return _on_connect(session, write)
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        return write()
    return _on_classic(session, write)


def _on_classic(session: SparkSession, write: Callable[[], _Result]) -> _Result:
    context: Any = session.sparkContext
    tag = _new_tag()
    properties = context._jsc.sc().getLocalProperties().clone()
    done: Future[_Result] = Future()

    def run() -> None:
        try:
            context._jsc.sc().setLocalProperties(properties)
            context.addJobTag(tag)
            context._jvm.SparkSession.setActiveSession(session._jsparkSession)
            result = write()
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
    """Cancel the jobs, also those that the write starts meanwhile, until the write has returned."""
    end = time.monotonic() + _END_SECONDS
    with suppress(Py4JError, *NETWORK_ERRORS):  # A session that has ended runs no jobs.
        while not done.done() and time.monotonic() < end:
            context.cancelJobsWithTag(tag)
            wait([done], timeout=_POLL_SECONDS)


def _on_connect(session: Any, write: Callable[[], _Result]) -> _Result:
    tag = _new_tag()
    session.addTag(tag)
    try:
        return write()
    except BaseException:
        with suppress(Exception):  # The server may be gone; the caller's error says what happened.
            session.interruptTag(tag)
        raise
    finally:
        session.removeTag(tag)


def _new_tag() -> str:
    return f"cm-delta-write-{uuid.uuid4().hex}"
