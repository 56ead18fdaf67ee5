"""Checking that the executors of a cluster see a table on disk before rows are written to it.

A disk of the driver's machine that the executors do not share loses rows silently: each executor writes to its own disk, and the
driver finds none of these files.
"""

import re
import threading
import uuid

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.spark.session import is_connect
from cm_delta_dagster.storage.discard import discard_below
from cm_delta_dagster.storage.store import Store

_LOCAL_MASTER = re.compile(r"local(\[|$)")
_MAX_FILES = 64
_TASKS_PER_CORE = 2
_PROBE = b"visible\n"

_lock = threading.Lock()
_shared: set[tuple[str, str]] = set()


def check_shared_disk(session: SparkSession, store: Store, location: str) -> None:
    """Let the executors read small files beside the table's; one Spark job for each directory of tables and session.

    Args:
        location: of the table. Nothing is checked if it is not on disk, or the session has no executors of its own.

    Raises:
        StorageError: an executor does not see the files.
    """
    if not location.startswith(("file:", "/")) or is_connect(session):
        return
    context = session.sparkContext
    master = str(context.master)
    if _LOCAL_MASTER.match(master):
        return
    place = (context.applicationId, location.rstrip("/").rpartition("/")[0])
    with _lock:
        if place in _shared:
            return
    count = min(_MAX_FILES, _TASKS_PER_CORE * context.defaultParallelism)
    directory = f"{location.rstrip('/')}/cm-delta-probe-{uuid.uuid4().hex}"
    try:
        for number in range(count):
            store.write(f"{directory}/{number}", _PROBE)
        seen = session.read.option("ignoreMissingFiles", "false").text(directory).count()
    except (PySparkException, Py4JError) as error:
        raise _not_shared(location, master) from error
    finally:
        discard_below(store, directory)
    if seen != count:
        raise _not_shared(location, master)
    with _lock:
        _shared.add(place)


def _not_shared(location: str, master: str) -> StorageError:
    return StorageError(
        f"The executors of {master} do not see the files of the driver at {location}, so the rows that they write would be "
        "lost. Nothing was written. Put the warehouse into an object store, or onto a disk that all machines mount at the same "
        "path."
    )
