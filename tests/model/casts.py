"""The members that are set on one table, and the casts that are explored. Members only use the package's own verbs."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from cm_delta_dagster.catalog.commit_policy import CommitPolicy
from cm_delta_dagster.catalog.maintenance import MaintenanceKind, MaintenanceRule
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    MaintenanceInProgressError,
    StorageError,
    TableAlreadyExistsError,
    VersionNotFoundError,
)
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_log import clean_log
from cm_delta_dagster.operations.maintenance.clean_staged_commits import clean_staged_commits
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.reading.consistent_snapshots import load_snapshots
from cm_delta_dagster.operations.tables.create import TableDesign, create_empty
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.operations.tables.write_attempts import open_or_create, write_attempts
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.schema.types import PrimitiveType, StructField, StructType
from tests.model.calls import Call
from tests.model.explorer import Cast
from tests.model.observation import Chosen, Cleaned, Created, Published, Read, ReadTogether, Wrote, WroteTogether
from tests.model.reference import require
from tests.model.runs import Member
from tests.model.services import START_MS
from tests.support.actions import add_file
from tests.support.creation import create_table, create_table_as

NAME = "main.model.t"
TWO = (NAME, "main.model.u")
SCHEMA = StructType(fields=(StructField(name="id", type=PrimitiveType(name="long")),))
HOUR_MS = 60 * 60 * 1000
YEAR_MS = 365 * 24 * HOUR_MS


@dataclasses.dataclass(frozen=True)
class Mode:
    """A way of committing. ``choose`` is called once, after the table was made, to put the table into it."""

    choose: Callable[[Table], None] | None = None


def _chosen(policy: str) -> Mode:
    return Mode(choose=lambda table: set_commit_policy(table, CommitPolicy.parse(policy)))


MODES: Mapping[str, Mode] = {
    "staged": Mode(),
    "inline": _chosen("inline"),
    "put-if-absent": _chosen("put_if_absent"),
}
"""Every commit mode, and mixtures of them, by name: each cast is explored in each."""


def row(name: str) -> str:
    """The path of the file that the writer of that name adds."""
    return f"{name}.parquet"


def rows_of(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(snapshot.files["path"].to_pylist())


def commit_row(table: Table, name: str, *, overwrite: bool = False) -> Wrote:
    return _wrote(name, transaction_of(table, name, overwrite=overwrite).commit())


def transaction_of(table: Table, name: str, *, overwrite: bool = False) -> Transaction:
    snapshot = table.snapshot()
    transaction = table.start_transaction(snapshot, operation="WRITE")
    if overwrite:
        transaction.read_whole_table()
        transaction.remove_files(removes_of(snapshot.files, data_change=True))
    transaction.add_files([add_file(row(name), stats='{"numRecords":1}')])
    return transaction


def _wrote(name: str, committed: Committed) -> Wrote:
    return Wrote(
        table_id=committed.snapshot.table_id,
        version=committed.version,
        txn_id=committed.txn_id,
        rows=frozenset([row(name)]),
        snapshot_rows=rows_of(committed.snapshot),
        timestamp=committed.in_commit_timestamp,
    )


def writer(name: str, **more: Any) -> Member:
    """Appends one file without having read anything."""
    return Member(name=name, act=lambda client: commit_row(client.table(NAME), name, overwrite=False), **more)


def writer_of_two(name: str, *, overwrite: bool = False, **more: Any) -> Member:
    """Appends a file to each of two tables, or replaces what each has by it; all in one commit."""

    def act(client: DeltaClient) -> WroteTogether:
        tables = [client.table(of) for of in TWO]
        parts = [
            TableCommit(committer=table.committer, transaction=transaction_of(table, name, overwrite=overwrite))
            for table in tables
        ]
        commit = MultiTableCommit(parts, coordinator=client.coordinator, settings=client.settings)
        return WroteTogether(tuple(_wrote(name, committed) for committed in commit.finish(commit.ratify())))

    return Member(name=name, act=act, may_fail=(CommitConflictError,) if overwrite else (), **more)


def reader_of_two(*names: str) -> Member:
    """Reads both tables at one moment. Rows of ``names`` were written to both."""

    def act(client: DeltaClient) -> ReadTogether:
        found = load_snapshots(client, [TableIdentifier.parse(name) for name in TWO])
        reads = tuple(Read(snapshot.table_id, (_read(snapshot),)) for snapshot in found.values())
        return ReadTogether(reads, frozenset(row(name) for name in names))

    return Member(name="observer", act=act)


def busy_writer(first: str, name: str, **more: Any) -> Member:
    """Appends two files, one commit right after the other."""

    def act(client: DeltaClient) -> Wrote:
        table = client.table(NAME)
        commit_row(table, first)
        return commit_row(table, name)

    return Member(name=name, act=act, **more)


def overwriter(name: str) -> Member:
    """Reads the whole table and replaces it by one file; it conflicts with any faster writer."""
    return Member(
        name=name,
        act=lambda client: commit_row(client.table(NAME), name, overwrite=True),
        may_fail=(CommitConflictError,),
    )


def publisher(name: str = "publisher", *, of: str = NAME) -> Member:
    def act(client: DeltaClient) -> Published:
        table = client.table(of)
        return Published(table.table_id, publish(table).published_version)

    return Member(name=name, act=act)


def mode_changer(policy: str, name: str = "mode_changer") -> Member:
    """Sets the commit mode."""

    def act(client: DeltaClient) -> Chosen:
        set_commit_policy(client.table(NAME), CommitPolicy.parse(policy))
        return Chosen(policy)

    return Member(name=name, act=act)


def _read(snapshot: Snapshot) -> tuple[int, frozenset[str], int]:
    return snapshot.version, rows_of(snapshot), snapshot.timestamp_ms


def reader(name: str = "reader", *, reads: int = 2) -> Member:
    """Reads the latest version, again and again: first from the log, then from what it has in memory."""

    def act(client: DeltaClient) -> Read:
        table = client.table(NAME)
        found = [table.snapshot() for _ in range(reads)]
        versions = [snapshot.version for snapshot in found]
        require(versions == sorted(versions), f"a later read was of an older version: {versions}")
        return Read(table.table_id, tuple(_read(snapshot) for snapshot in found))

    return Member(name=name, act=act)


def history_reader(name: str = "observer", *, kept: int = 0) -> Member:
    """Reads the latest version, every earlier one down to ``kept`` and further if it is there, each again by its time, the feed."""

    def act(client: DeltaClient) -> Read:
        table = client.table(NAME)
        found = [table.snapshot()]
        feed = client.catalog.feed.feed(after=0, limit=1000)
        for version in range(found[0].version - 1, -1, -1):
            try:
                found.append(table.snapshot(version=version))
            except VersionNotFoundError:
                require(version < kept, f"version {version} is not readable any more")
                break
        for snapshot in found[:]:
            again = table.snapshot(timestamp_ms=snapshot.timestamp_ms)
            require(again.version == snapshot.version, f"{again.version} was read as of the time of {snapshot.version}")
            found.append(again)
        entries = tuple((entry.version, entry.summary.txn_id) for entry in feed if entry.table_id == table.table_id)
        return Read(table.table_id, tuple(_read(snapshot) for snapshot in found), entries)

    return Member(name=name, act=act)


def staged_cleaner(name: str = "cleaner") -> Member:
    """Deletes unneeded staged files of any age."""

    def act(client: DeltaClient) -> Cleaned:
        return Cleaned(clean_staged_commits(client.table(NAME), safety_age_ms=0).num_files)

    return Member(name=name, act=act, may_fail=(MaintenanceInProgressError,), skew_ms=1)


def log_cleaner(name: str = "cleaner") -> Member:
    """Deletes what of the log has outlived its retention: by its clock, everything that a checkpoint covers."""
    return Member(name=name, act=lambda client: Cleaned(clean_log(client.table(NAME)).num_files), skew_ms=YEAR_MS)


def creator(name: str, *, opens: bool = False) -> Member:
    """Creates the table; with ``opens`` it accepts a table that another member created."""
    make = open_or_create if opens else create_empty

    def act(client: DeltaClient) -> Created:
        return Created(NAME, make(client, identifier=NAME, design=TableDesign(schema=SCHEMA)).table_id)

    return Member(name=name, act=act, may_fail=() if opens else (TableAlreadyExistsError,))


def creator_with_rows(name: str, *, joins: bool = False) -> Member:
    """Creates the table with a first file in it; with ``joins`` it writes to a table that another member created."""

    def write(table: Table) -> Wrote:
        table.store.write_if_absent(f"{table.location}/{row(name)}", b"rows")
        return commit_row(table, name)

    def act(client: DeltaClient) -> Wrote:
        design = TableDesign(schema=SCHEMA)
        if joins:
            for attempt in write_attempts(client, identifier=NAME):
                with attempt.target(design) as target:
                    wrote = write(target)
            return wrote
        return create_table_as(client, identifier=NAME, design=design, write=write)[1]

    return Member(name=name, act=act, may_fail=() if joins else (TableAlreadyExistsError,))


def founder(mode: str, properties: Mapping[str, str], *, of: str = NAME) -> Member:
    """Makes the table in its commit mode and permits its cleaning."""

    def act(client: DeltaClient) -> Created:
        rule = MaintenanceRule(scope="main", kind=MaintenanceKind.METADATA_CLEANUP, allowed=True)
        client.catalog.maintenance_policies.set_maintenance_rule(rule)
        table = create_table(client, identifier=of, schema=SCHEMA, properties=properties)
        choose = MODES[mode].choose
        if choose is not None:
            choose(table)
        return Created(of, table.table_id)

    return Member(name="founder" if of == NAME else f"founder of {of}", act=act, skew_ms=-HOUR_MS)


def checkpointer(name: str) -> Member:
    """Appends a file and writes a checkpoint."""

    def act(client: DeltaClient) -> Wrote:
        table = client.table(NAME)
        wrote = commit_row(table, name, overwrite=False)
        checkpoint(table)
        return wrote

    return Member(name=name, act=act)


def rival(first: str, name: str) -> Member:
    """Appends two files, one after the other, writes a checkpoint, and cleans the log a year later."""

    def act(client: DeltaClient) -> Wrote:
        table = client.table(NAME)
        commit_row(table, first)
        wrote = commit_row(table, name)
        with contextlib.suppress(StorageError, CatalogUnavailableError):  # The file is there whatever happens here.
            checkpoint(table)
            client.now_ms = lambda: START_MS + YEAR_MS
            clean_log(table)
        return wrote

    return Member(name=name, act=act)


def _newcomer() -> Member:
    """Comes when all others have gone: opens or makes the table, and appends."""

    def act(client: DeltaClient) -> Wrote:
        return commit_row(
            open_or_create(client, identifier=NAME, design=TableDesign(schema=SCHEMA)), "newcomer", overwrite=False
        )

    return Member(name="newcomer", act=act)


def creates(call: Call) -> bool:
    """Whether a writer has asked the catalog and is about to create the file that is its commit."""
    return call.method == "write_if_absent" and "/_staged_commits/" not in call.argument(0, "location")


def stages(call: Call) -> bool:
    """Whether a writer has read its snapshot and begins to commit: such writers stand on one version."""
    return call.method in ("commit", "commit_together", "write", "write_if_absent")


def cast(
    name: str,
    *members: Member,
    mode: str,
    before: tuple[Member, ...] = (),
    properties: Mapping[str, str] | None = None,
    **limits: Any,
) -> Cast:
    """``members`` on a table of that commit mode, on which ``before`` have acted; ``limits`` as of :class:`Cast`."""
    setup = (founder(mode, properties or {}), *before)
    return Cast(
        name=f"{name}, {mode}",
        members=members,
        setup=setup,
        observer=history_reader(),
        recovery=(_newcomer(), publisher("late publisher"), staged_cleaner("late cleaner")),
        rows={member.name: frozenset([row(member.name)]) for member in (*setup, *members, _newcomer())},
        **limits,
    )


def cast_of_two(name: str, *members: Member, mode: str, single: tuple[str, ...] = (), **limits: Any) -> Cast:
    """``members`` on two tables of that commit mode, all but ``single`` writing to both; ``limits`` as of :class:`Cast`."""
    pairs = [member.name for member in members if member.name not in single]
    return Cast(
        name=f"{name}, {mode}",
        members=members,
        setup=tuple(founder(mode, {}, of=of) for of in TWO),
        observer=reader_of_two(*pairs),
        recovery=tuple(publisher(f"late publisher of {of}", of=of) for of in TWO),
        rows={member.name: frozenset([row(member.name)]) for member in members},
        **limits,
    )


def creation(name: str, *members: Member, **limits: Any) -> Cast:
    """``members`` that create tables of one unused name; ``limits`` as of :class:`Cast`."""
    allowed = MaintenanceRule(scope="main", kind=MaintenanceKind.METADATA_CLEANUP, allowed=True)
    owner = Member(name="owner", act=lambda client: client.catalog.maintenance_policies.set_maintenance_rule(allowed))
    return Cast(
        name=name,
        members=members,
        setup=(owner,),
        observer=history_reader(),
        recovery=(_newcomer(), publisher("late publisher"), staged_cleaner("late cleaner")),
        rows={member.name: frozenset([row(member.name)]) for member in (*members, _newcomer())},
        **limits,
    )
