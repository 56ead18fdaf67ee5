"""Interrupts of the main thread while Spark runs a job that notes each row that it has reached."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pyspark.sql import DataFrame, SparkSession

NUM_ROWS = 300
"""Rows of a job that is interrupted: half a minute."""


class Interrupted(BaseException):
    """Raised in the main thread by a signal, as Dagster ends a run."""


def slow_rows(spark: SparkSession, name: str, num_rows: int = NUM_ROWS) -> DataFrame:
    """Rows of one task that takes 0.1 s for each row; the JVM of the executors notes the rows as system properties."""
    note = f"java_method('java.lang.System', 'setProperty', concat('{name}', id), 'seen')"
    sleep = "java_method('java.lang.Thread', 'sleep', 100L)"
    noted = spark.range(0, num_rows, 1, 1).selectExpr("id", f"{note} AS noted", f"{sleep} AS slept")
    # A condition on the columns, so that the optimizer keeps them.
    return noted.where("concat_ws('-', 'row', noted, slept) <> ''").select("id")


def noted_rows(spark: SparkSession, name: str) -> int:
    """How many of the rows were reached; takes a job."""
    seen = f"java_method('java.lang.System', 'getProperty', concat('{name}', id)) AS seen"
    return sum(row.seen == "seen" for row in spark.range(0, NUM_ROWS, 1, 1).selectExpr(seen).collect())


@contextmanager
def interrupted_once(condition: Callable[[], bool]) -> Iterator[None]:
    """Raise Interrupted in the main thread once the condition holds, which another thread checks."""
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(0.1):
            if condition():
                os.kill(os.getpid(), signal.SIGUSR1)
                return

    def raise_interrupted(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    former = signal.signal(signal.SIGUSR1, raise_interrupted)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stopped.set()
        watcher.join()
        signal.signal(signal.SIGUSR1, former)
