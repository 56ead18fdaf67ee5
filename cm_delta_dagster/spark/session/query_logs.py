"""PySpark's own log of exceptions, a JSON object with the Java stack trace, where this package catches or reports the exception."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cm_delta_dagster.spark.library import is_imported, pyspark

_is_caught: ContextVar[bool] = ContextVar("_is_caught", default=False)


class _Uncaught(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _is_caught.get()


_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_UNCAUGHT = _Uncaught()


@contextmanager
def without_query_logs() -> Iterator[None]:
    """PySpark logs no exceptions within the block, in this thread."""
    for name in _LOGGERS if is_imported() else ():
        # A filter that a logger has is not added again.
        pyspark.logger.PySparkLogger.getLogger(name).addFilter(_UNCAUGHT)
    before = _is_caught.get()
    _is_caught.set(True)
    try:
        yield
    finally:
        _is_caught.set(before)
