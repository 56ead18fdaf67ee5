"""The processes of a chaos run, which write, read, publish or maintain until they are killed. Without Spark.

Each process writes a journal with one line for each event. A line is written by one call before the next step, so that it
survives the end of the process.
"""

import hashlib
import io
import logging
import os
import random
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.commit_rules import CommitRule, CommitRuleKind, OnViolation
from cm_delta_dagster.catalog.holds import Hold
from cm_delta_dagster.catalog.opening import open_catalog
from cm_delta_dagster.catalog.ratification import CACHED_CONTENT_BYTES
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import ApprovalRequiredError, CmDeltaError, CommitStateUnknownError
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.maintenance.compact_log import compact_log
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.maintenance.vacuum import vacuum
from cm_delta_dagster.operations.reading.consistent_snapshots import load_snapshots
from cm_delta_dagster.operations.tables.ratify_hold import approve_hold, held_tables, ratify_hold
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.protocol.actions.actions import AddFile, SetTransaction
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.storage.storage_options import StorageOptions
from cm_delta_dagster.storage.stores import Stores
from tests.faults.chaos_storage import object_url, options_of

TABLE = "main.chaos.t"
TWIN = "main.chaos.twin"
"""Gets the files whose names begin with :data:`PAIR` together with ``TABLE``."""

PAIR = "pair-"
HELD = f"{PAIR}held-"
"""Begins the names of the files of both tables whose commits are held first. Their ``app_id`` is the name of the file."""

ROWS_PER_FILE = 3
ROLES = ("writer", "reader", "publisher", "maintainer")
MODES = ("staged", "inline", "auto:2000", "put_if_absent")
_DELETES = 0.2
"""Share of the writers' commits that delete a file."""
_TO_REARRANGE = 20
_REARRANGED = "rearranged-"
_STAGED_SAFETY_MS = 5_000
_ANY_KEY = "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""The server answers 403 and not 404 without a key, and accepts each key."""
_HOLD_MS = 60 * 60 * 1000
"""Longer than a run."""
_RETENTION_MS = 30 * 60 * 1000
"""Longer than a run, so that no commit takes as long on any machine. VACUUM would delete the new files of a slower writer."""


@dataclass(frozen=True, slots=True)
class Place:
    """The locations of a run, and whether the maintainer switches the commit mode.

    With ``pairs`` half of the writes go to two tables in one transaction; with ``holds`` half of those are held, and the writers
    ratify and discard them. With ``rules`` the maintainer sets and removes commit
    rules, and approves and rejects commits. ``server`` is the address of the server of an object
    store, ``proxy`` the address under which this package reaches it. With a ``token`` the URL is that of a server of the catalog.
    """

    url: str
    warehouse: str
    journals: str
    switches: bool = False
    pairs: bool = False
    holds: bool = False
    rules: bool = False
    server: str = ""
    proxy: str = ""
    token: str = field(default="", repr=False)

    def client(self) -> DeltaClient:
        """Open a client. Some clients store no commit content in the catalog, so that readers need the files."""
        settings = ClientSettings(copied_content_bytes=random.choice((0, CACHED_CONTENT_BYTES)))
        options = options_of(self.warehouse, self.proxy) if self.proxy else {}
        stores = Stores(storage_options=StorageOptions.of(options, warehouse=self.warehouse))
        catalog = open_catalog(self.url, warehouse=None if self.token else self.warehouse, token=self.token or None)
        return DeltaClient(catalog, stores=stores, settings=settings)

    def read(self, location: str) -> bytes | None:
        """The content of a file or object without this package, and without the proxy; None if there is none."""
        if not self.server:
            path = Path(location.removeprefix("file://"))
            return path.read_bytes() if path.is_file() else None
        headers = {"Authorization": _ANY_KEY} if location.startswith("s3://") else {}
        request = urllib.request.Request(object_url(location, self.server), headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None


class Journal:
    """The journal file of one process."""

    def __init__(self, place: Place, tag: str) -> None:
        self._file = os.open(Path(place.journals) / f"{tag}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def notes(place: Place) -> Iterator[list[str]]:
    """Yield the complete lines of all journals, as words."""
    for path in sorted(Path(place.journals).glob("*.log")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield line.split()


def work(role: str, place: Place, tag: str) -> None:
    """Run a role until the process is killed. An error that is not a CmDeltaError is noted and ends the process."""
    logging.disable()  # Each of the many retries is logged.
    journal = Journal(place, tag)
    client = place.client()
    steps = {"writer": _write, "reader": _read, "publisher": _publish, "maintainer": _maintain}
    number = 0
    while True:
        number += 1
        try:
            steps[role](client, place, journal, f"{tag}-{number}")
        except CmDeltaError as error:
            journal.note("error", role, type(error).__name__, str(error).replace("\n", " "))
            time.sleep(0.05)
        except BaseException as error:
            journal.note("crash", role, type(error).__name__, str(error).replace("\n", " "))
            raise


def row_ids(path: str) -> list[str]:
    """Return the rows that a writer writes to its file of that name."""
    return [f"{path}#{number}" for number in range(ROWS_PER_FILE)]


def digest(snapshot: Snapshot) -> str:
    """Return a digest of the live files."""
    return hashlib.sha256("\n".join(sorted(snapshot.files["path"].to_pylist())).encode()).hexdigest()[:16]


def rows_of(place: Place, table: Table, paths: Iterable[str]) -> Counter[str]:
    """Return the rows of data files, read without this package. Raises FileNotFoundError."""
    rows: Counter[str] = Counter()
    for path in paths:
        data = place.read(f"{table.location}/{path}")
        if data is None:
            raise FileNotFoundError(path)
        rows.update(pq.read_table(io.BytesIO(data))["id"].to_pylist())
    return rows


def _put(table: Table, path: str, rows: list[str]) -> AddFile:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(rows, pa.string())}), buffer)
    table.store.write_if_absent(f"{table.location}/{path}", buffer.getvalue())
    return AddFile(
        path=path,
        partition_values={},
        size=buffer.tell(),
        modification_time=time.time_ns() // 1_000_000,
        stats=f'{{"numRecords":{len(rows)}}}',
    )


def _write(client: DeltaClient, place: Place, journal: Journal, tag: str) -> None:
    waiting = client.holds.holds() if place.holds and random.random() < 0.3 else ()
    if waiting:
        _decide(client, random.choice(waiting), journal)
        return
    table = client.table(TABLE)
    snapshot = table.snapshot()
    if random.random() < _DELETES:
        live = snapshot.files["path"].to_pylist()
        written = [path for path in live if not path.startswith((_REARRANGED, PAIR))]
        if written:
            _delete(table, snapshot, random.choice(written), journal, tag)
            return
    if place.pairs and random.random() < 0.5:
        if place.holds and random.random() < 0.5:
            _hold_pair(client, journal, f"{HELD}{tag}.parquet")
        else:
            _write_pair(client, journal, f"{PAIR}{tag}.parquet")
        return
    path = f"{tag}.parquet"
    journal.note("try", path)
    with _outcome_of(journal, "", path) as acknowledge:
        file = _put(table, path, row_ids(path))
        transaction = table.start_transaction(snapshot, operation="WRITE")
        transaction.add_files([file])
        begun = time.monotonic()
        committed = transaction.commit()
        took_ms = int((time.monotonic() - begun) * 1000)
        acknowledge(committed.version, committed.in_commit_timestamp, committed.retries, took_ms)


def _write_pair(client: DeltaClient, journal: Journal, path: str) -> None:
    """Append the same rows to both tables, in one transaction."""
    journal.note("try", path)
    with _outcome_of(journal, "", path) as acknowledge:
        commit = _pair_commit(client, path)
        begun = time.monotonic()
        done = {str(one.snapshot.identifier): one for one in commit.finish(commit.ratify())}[TABLE]
        acknowledge(done.version, done.in_commit_timestamp, done.retries, int((time.monotonic() - begun) * 1000))
        journal.note("pair", path)


def _pair_commit(client: DeltaClient, path: str, *, application: str | None = None) -> MultiTableCommit:
    """The commit of the same rows to both tables, which are written; with the id of an application it happens once."""
    parts = []
    for name in (TABLE, TWIN):
        table = client.table(name)
        transaction = table.start_transaction(table.snapshot(), operation="WRITE")
        transaction.add_files([_put(table, path, row_ids(path))])
        if application is not None:
            transaction.note_transaction(SetTransaction(app_id=application, version=1))
        parts.append(TableCommit(committer=table.committer, transaction=transaction))
    return MultiTableCommit(parts, coordinator=client.coordinator, settings=client.settings)


def _hold_pair(client: DeltaClient, journal: Journal, path: str) -> None:
    """Hold the same rows for both tables. They may not be seen before a ratification, which is noted before it begins."""
    journal.note("try", path)
    hold = _pair_commit(client, path, application=path).hold(duration_ms=_HOLD_MS)
    journal.note("held", path, hold.hold_id)


def _decide(client: DeltaClient, hold: Hold, journal: Journal) -> None:
    """Ratify or discard a hold, of whichever writer; others may decide about the same one."""
    path = hold.tables[0].app_id
    if random.random() < 0.3:
        client.holds.discard_hold(hold.hold_id, reason="chaos")
        journal.note("discarded", path, hold.hold_id)
        return
    held_tables(client, hold.hold_id)
    journal.note("ratify-try", path, hold.hold_id)
    done = ratify_hold(client, hold.hold_id)
    journal.note("ratified", path, hold.hold_id, *sorted(done.hold.versions.values()))


def held_paths(rows: Iterable[str]) -> set[str]:
    """The files that were held first, of these rows."""
    return {row.rpartition("#")[0] for row in rows if row.startswith(HELD)}


def pair_rows(rows: Counter[str]) -> Counter[str]:
    """The rows that were written to both tables."""
    return Counter({row: number for row, number in rows.items() if row.startswith(PAIR)})


def _read_pair(client: DeltaClient, place: Place, journal: Journal) -> None:
    """Check that two tables of one moment have the same rows of the transactions over both."""
    found = load_snapshots(client, [TableIdentifier.parse(name) for name in (TABLE, TWIN)])
    first, second = (
        pair_rows(rows_of(place, client.table(name), found[name].files["path"].to_pylist())) for name in (TABLE, TWIN)
    )
    if first != second:
        journal.note("loss", "half of a transaction", *sorted((first - second) + (second - first))[:3])
    journal.note("pair-read", found[TABLE].version, found[TWIN].version)


def _delete(table: Table, snapshot: Snapshot, path: str, journal: Journal, tag: str) -> None:
    """Delete all rows of a file. Other processes may concurrently delete or rewrite the same file."""
    journal.note("delete-try", path, tag)
    with _outcome_of(journal, "delete-", path) as acknowledge:
        files = snapshot.files.filter([live == path for live in snapshot.files["path"].to_pylist()])
        transaction = table.start_transaction(snapshot, operation="DELETE")
        transaction.remove_files(removes_of(files, data_change=True))
        acknowledge(transaction.commit().version, tag)


@contextmanager
def _outcome_of(journal: Journal, what: str, path: str) -> Iterator[Callable[..., None]]:
    """Note the outcome of a write. The block calls the returned function when the commit is acknowledged."""
    try:
        yield lambda *words: journal.note(f"{what}ack", path, *words)
    except CommitStateUnknownError:
        journal.note(f"{what}unknown", path)
    except ApprovalRequiredError as error:  # The maintainer may approve it.
        journal.note(f"{what}unknown", path)
        journal.note("parked", error.approval_id, path)
    except CmDeltaError as error:
        journal.note(f"{what}refused", path, type(error).__name__)
        time.sleep(0.02)


def _noted(place: Place, *what: str) -> set[str]:
    return {words[1] for words in notes(place) if words[0] in what}


def _read(client: DeltaClient, place: Place, journal: Journal, tag: str) -> None:
    """Check that a snapshot has each row acknowledged before it once, and no row deleted before it."""
    if place.pairs and random.random() < 0.5:
        _read_pair(client, place, journal)
        return
    acknowledged, deleted = _noted(place, "ack", "ratified"), _noted(place, "delete-ack")
    with_memory = random.random() < 0.5
    reader = client if with_memory else place.client()
    try:
        table = reader.table(TABLE)
        snapshot = table.snapshot()
        rows = rows_of(place, table, snapshot.files["path"].to_pylist())
        kept = acknowledged - _noted(place, "delete-try")
        due = dict.fromkeys((row for path in kept for row in row_ids(path)), 1)
        due |= dict.fromkeys((row for path in deleted for row in row_ids(path)), 0)
        for row, times in due.items():
            if rows[row] != times:
                journal.note("loss", row, rows[row], "at", snapshot.version, "memory" if with_memory else "fresh")
        for path in held_paths(rows) - _noted(place, "ratify-try"):
            journal.note("loss", "visible before its ratification", path, "at", snapshot.version)
        journal.note("read", snapshot.version, digest(snapshot), len(rows))
    finally:
        if not with_memory:
            reader.close()


def _publish(client: DeltaClient, place: Place, journal: Journal, tag: str) -> None:
    result = publish(client.table(TABLE))
    journal.note("published", result.published_version, result.num_commits)
    time.sleep(0.02)


def _maintain(client: DeltaClient, place: Place, journal: Journal, tag: str) -> None:
    table = client.table(TABLE)
    verbs = ("checkpoint", "compact", "clean", "rearrange", "vacuum")
    verb = random.choice((*verbs, *(("switch",) if place.switches else ()), *(_RULE_VERBS if place.rules else ())))
    if verb in _RULE_VERBS:
        _change_rules(client, journal, verb)
    elif verb == "checkpoint":
        checkpoint(table)
    elif verb == "compact":
        end = table.snapshot().published_version
        if end > 4:
            compact_log(table, start=max(1, end - random.randint(3, 30)), end=end - 1)
    elif verb == "clean":
        clean_staged_commits(table, safety_age_ms=_STAGED_SAFETY_MS)
    elif verb == "switch":
        mode = random.choice(MODES)
        set_commit_policy(table, CommitPolicy.parse(mode))
        journal.note("switched", mode)
    elif verb == "vacuum":
        deleted = vacuum(table, retention_ms=_RETENTION_MS, force=True).num_files
        if deleted:
            journal.note("vacuumed", deleted)
    elif _rearrange(place, table):
        journal.note("rearranged", table.snapshot().version)
    journal.note("maintained", verb)


_RULE_VERBS = ("rule", "decide")


def _change_rules(client: DeltaClient, journal: Journal, verb: str) -> None:
    """Set or remove a rule that concerns the deletes, or decide about one that waits."""
    if verb == "decide":
        waiting = client.holds.holds()
        if not waiting:
            return
        # The oldest request often conflicts with a later commit, the newest rarely does.
        request = random.choice((waiting[0], waiting[-1], waiting[-1])).hold_id
        if random.random() < 0.2:
            client.holds.reject_hold(request, reason="chaos")
            journal.note("rejected", request)
        else:
            done = approve_hold(client, request)
            journal.note("approved", request, done.version)
        return
    known = client.commit_rules.commit_rules()
    if known and random.random() < 0.4:
        client.commit_rules.remove_commit_rule(known[0].scope, known[0].name)
        return
    action = random.choice((OnViolation.REFUSE, OnViolation.APPROVAL, OnViolation.APPROVAL))
    scope = random.choice(("main", "main.chaos", TABLE))
    rule = CommitRule(scope=scope, name="keep", kind=CommitRuleKind.APPEND_ONLY, on_violation=action)
    client.commit_rules.set_commit_rule(rule)
    journal.note("rule", scope, action.value)


def _rearrange(place: Place, table: Table) -> bool:
    """Rewrite some files into one without changing rows. Returns False if there are too few files."""
    snapshot = table.snapshot()
    small = snapshot.files.slice(0, _TO_REARRANGE)
    if small.num_rows < _TO_REARRANGE:
        return False
    rows = sorted(rows_of(place, table, small["path"].to_pylist()).elements())
    added = _put(table, f"{_REARRANGED}{uuid.uuid4()}.parquet", rows)
    transaction = table.start_transaction(snapshot, operation="OPTIMIZE")
    transaction.remove_files(removes_of(small, data_change=False))
    transaction.add_files(
        [
            AddFile(
                path=added.path,
                partition_values={},
                size=added.size,
                modification_time=added.modification_time,
                stats=added.stats,
                data_change=False,
            )
        ]
    )
    transaction.commit()
    return True
