"""The process of one engine: reads a task name per line, runs the task, writes its seconds and extra figures as a JSON line."""

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.changes import Prepared
from benchmarks.engines import ENGINES
from benchmarks.shared import Shared

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """User and system time in seconds of this process and its descendants, including the JVM."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
    mine = {os.getpid()}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in mine} - mine
        mine |= more
        grown = bool(more)
    return sum(ticks.get(pid, 0) for pid in mine) / _TICKS


def main() -> None:
    """Protocol: one JSON line on the saved standard output for each line on standard input; an empty line ends the worker."""
    name, home, shared = sys.argv[1], Path(sys.argv[2]), Shared.load(Path(sys.argv[3]))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Whatever a library prints goes to standard error, never between the answers.
    engine = ENGINES[name]()
    engine.prepare(home, shared)
    tasks = {task: run for task, run in engine.tasks().items() if task in shared.tasks}
    print(json.dumps(sorted(tasks)), file=answers)
    for line in sys.stdin:
        task = line.strip()
        if not task:
            break
        run = tasks[task]
        if isinstance(run, Prepared):
            run.prepare()
        cpu, start = cpu_seconds(), time.perf_counter()
        extra = run() or {}
        wall, used = time.perf_counter() - start, cpu_seconds() - cpu
        if isinstance(run, Prepared):
            extra = {**extra, **run.finish()}
        print(json.dumps({"wall": wall, "cpu": used, **extra}), file=answers)
    engine.close()


if __name__ == "__main__":
    main()
