"""Checking that the executors of a cluster, or a Connect server, see a table on disk before rows are written to it.

A disk of this machine that the executors do not share loses rows silently: each executor writes to its own disk, and this
process finds none of these files.
"""

import re
import threading
import uuid
from dataclasses import dataclass

from cm_delta_dagster.errors import StorageError
from cm_delta_dagster.spark.library import SparkSession, py4j_errors, pyspark_errors
from cm_delta_dagster.spark.session.session import is_connect, session_identity
from cm_delta_dagster.storage.discard import discard_below
from cm_delta_dagster.storage.store import Store

_LOCAL_MASTER = re.compile(r"local(\[|$)")
_MAX_FILES = 64
_TASKS_PER_CORE = 2
_PROBE = b"visible\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Executors:
    """What writes the rows of a session.

    Attributes:
        name: start of a sentence, with its verb.
        session: an identity of the session.
        num_files: files to read, so that each executor probably reads one.
    """

    name: str
    session: str
    num_files: int


_lock = threading.Lock()
_shared: set[tuple[str, str]] = set()


def check_shared_disk(session: SparkSession, store: Store, location: str) -> None:
    """Let the executors read small files beside the table's; one Spark job for each directory of tables and session.

    Args:
        location: of the table. Nothing is checked if it is not on disk, or all rows are written by this machine.

    Raises:
        StorageError: an executor does not see the files.
    """
    if not location.startswith(("file:", "/")):
        return
    executors = _executors_of_server(session) if is_connect(session) else _executors_of(session)
    if executors is None:
        return
    place = (executors.session, location.rstrip("/").rpartition("/")[0])
    with _lock:
        if place in _shared:
            return
    count = executors.num_files
    directory = f"{location.rstrip('/')}/cm-delta-probe-{uuid.uuid4().hex}"
    try:
        for number in range(count):
            store.write(f"{directory}/{number}", _PROBE)
        seen = session.read.option("ignoreMissingFiles", "false").text(directory).count()
    except (pyspark_errors.PySparkException, py4j_errors.Py4JError) as error:
        raise _not_shared(location, executors.name) from error
    finally:
        discard_below(store, directory)
    if seen != count:
        raise _not_shared(location, executors.name)
    with _lock:
        _shared.add(place)


def _executors_of(session: SparkSession) -> _Executors | None:
    """None if the rows are written by this process."""
    context = session.sparkContext
    master = str(context.master)
    if _LOCAL_MASTER.match(master):
        return None
    count = min(_MAX_FILES, _TASKS_PER_CORE * context.defaultParallelism)
    return _Executors(name=f"The executors of {master} do", session=context.applicationId, num_files=count)


def _executors_of_server(session: SparkSession) -> _Executors:
    """The server may be on this machine or on another one, and its number of executors is not known here."""
    master = session.conf.get("spark.master", None) or ""
    if _LOCAL_MASTER.match(master):
        return _Executors(name="The Spark Connect server does", session=session_identity(session), num_files=1)
    name = f"The executors of the Spark Connect server ({master}) do"
    return _Executors(name=name, session=session_identity(session), num_files=_MAX_FILES)


def _not_shared(location: str, who: str) -> StorageError:
    return StorageError(
        f"{who} not see the files of this machine at {location}, so the rows that they write would be "
        "lost. Nothing was written. Put the warehouse into an object store, or onto a disk that all machines mount at the same "
        "path."
    )
