"""Memory of the driver over many DataFrames of one table, to which commits add files meanwhile.

Each DataFrame has a late condition that one file satisfies, is planned and is then dropped. Every tenth one is read, after a commit
of one more file. The growth is that from the first tenth of the frames, when caches are filled, to the last one.
"""

import gc
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.row_tables import logged_adds
from benchmarks.shared import Shared
from cm_delta_dagster.protocol.actions.actions import AddFile
from cm_delta_dagster.storage.local_store import local_path

Query = Callable[[Any], dict[str, Any]]

_COMMIT_EVERY = 10
_MB = 1 << 20


def frame_memory(table: Any, session: Any, shared: Shared, *, where: str, plan: Query, read: Query) -> dict[str, Any]:
    """Make ``shared.frames`` frames of ``table``, which has the files of ``many``.

    Args:
        where: the condition. The file that is added again and again has no row for which it is true.
        plan, read: plan a frame, and read it.

    Returns:
        The growth of the Python process and of the JVM's heap in megabytes, and their sizes after the first tenth.
    """
    added = logged_adds(shared.place("many"))[0]
    answers = set()
    early = (0.0, 0.0)
    for number in range(1, shared.frames + 1):
        if number % _COMMIT_EVERY:
            plan(table.to_df().where(where))
        else:
            _add_file(table, added)
            answers.add(read(table.to_df().where(where))["answer"])
        if number == max(1, shared.frames // 10):
            early = (_resident_mb(), _heap_mb(session))
    late = (_resident_mb(), _heap_mb(session))
    return {
        "answer": sorted(answers),
        "python_growth": late[0] - early[0],
        "heap_growth": late[1] - early[1],
        "python": early[0],
        "heap": early[1],
    }


def _add_file(table: Any, add: Mapping[str, object]) -> None:
    """Commit a link to a file of ``table`` whose rows the condition does not choose."""
    path, root = f"more-{time.monotonic_ns()}.parquet", Path(local_path(table.location))
    os.link(root / str(add["path"]), root / path)
    transaction = table.table.start_transaction(table.table.snapshot(), operation="WRITE")
    size, stats = int(str(add["size"])), str(add["stats"])
    transaction.add_files([AddFile(path=path, partition_values={}, size=size, modification_time=1, stats=stats)])
    transaction.commit()


def _resident_mb() -> float:
    """Resident memory of this process after a garbage collection."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / _MB


def _heap_mb(session: Any) -> float:
    """The heap that the JVM of the session uses after garbage collections.

    Spark's cleaner drops broadcasts only after a collection has found them unused, so a second one follows.
    """
    gc.collect()
    runtime = session._jvm.java.lang.Runtime.getRuntime()
    for _ in range(2):
        session._jvm.java.lang.System.gc()
        time.sleep(1)
    return float(runtime.totalMemory() - runtime.freeMemory()) / _MB
