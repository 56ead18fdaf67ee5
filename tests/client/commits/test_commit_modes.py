"""Commits made inline, by size, and by creating their published file: written, read, published, and mixed in one table."""

import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_policy import BARRIER_OPERATION, CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.snapshots.snapshot import Snapshot
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    CommitRejectedError,
    CommitRetriesExceededError,
    CommitStateUnknownError,
    CorruptLogError,
    InvalidArgumentError,
    StorageError,
    StoreNotSupportedError,
)
from cm_delta_dagster.operations.doctor import Problem, doctor
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.maintenance.clean_staged_commits import plan_clean_staged_commits
from cm_delta_dagster.operations.maintenance.publish import publish
from cm_delta_dagster.operations.reading.history import history
from cm_delta_dagster.operations.tables.set_commit_mode import choose_commit_policy, present_commits, set_commit_policy
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.catalog_parts import CatalogWith

NewTable = Callable[..., Table]
NAME = "main.test.t"
SETTINGS = ClientSettings(
    retry_initial_delay=timedelta(seconds=0.0001), max_resolve_attempts=2, max_commit_attempts=3, copied_content_bytes=0
)
_PUBLISHED = re.compile(r".*/_delta_log/\d{20}\.json")


class WillfulStore:
    """Passes calls on. ``fail`` says what happens to the creation of a published file: ``before`` or ``after`` it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.fail = ""
        self.reads: list[str] = []
        self.before_creation: list[Callable[[], object]] = []
        self.before_each_creation: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, location: str) -> bytes:
        self.reads.append(location)
        return self._store.read(location)

    def write_if_absent(self, location: str, data: bytes, **how: bool) -> None:
        published = _PUBLISHED.fullmatch(location) is not None
        if published and self.before_creation:
            self.before_creation.pop()()
        if published and self.before_each_creation is not None:
            self.before_each_creation()
        if published and self.fail == "before":
            raise StorageError("The disk is read-only.")
        self._store.write_if_absent(location, data, **how)
        if published and self.fail == "after":
            self.fail = ""
            raise StorageError("The connection broke.")


class WillfulCoordinator:
    """Passes calls on, or loses those of the methods named in ``lose``."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self.lose: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name in self.lose:
            raise CatalogUnavailableError("The catalog cannot be reached.")
        return getattr(self._coordinator, name)


@pytest.fixture
def willful(client: DeltaClient, store: MemoryStore) -> WillfulStore:
    return WillfulStore(store)


@pytest.fixture
def lossy(client: DeltaClient) -> WillfulCoordinator:
    return WillfulCoordinator(client.coordinator)


@pytest.fixture
def table(new_table: NewTable, client: DeltaClient, willful: WillfulStore, lossy: WillfulCoordinator) -> Table:
    """``main.test.t`` of version 0, opened through the willful store and catalog."""
    new_table()
    client.wait_for_background()
    return another(client, willful, lossy)


def another(client: DeltaClient, store: Any, coordinator: Any = None, settings: ClientSettings = SETTINGS) -> Table:
    """The table as a client sees it that has nothing in memory."""
    catalog: Any = CatalogWith(client.catalog, coordinator=coordinator or client.coordinator)
    fresh = DeltaClient(catalog, stores=Stores({"memory": store}), settings=settings, now_ms=client.now_ms)
    return fresh.table(NAME)


def append(table: Table, *, stats: str = '{"numRecords":1}', on: Snapshot | None = None) -> int:
    transaction = table.start_transaction(on or table.snapshot(), operation="WRITE")
    path = f"day=2024-01-01/{uuid.uuid4()}.parquet"
    file = add_file(path, partition_values={"day": "2024-01-01"}, stats=stats)
    transaction.add_files([file])
    return transaction.commit().version


def choose(table: Table, policy: str) -> None:
    set_commit_policy(table, CommitPolicy.parse(policy))


def files_of(store: MemoryStore, table: Table) -> tuple[list[str], list[str]]:
    """Names of published and of staged commits."""
    log = f"{table.location}/_delta_log"
    names = [status.name for status in store.list_from(log) if re.fullmatch(r"\d{20}\.json", status.name)]
    return names, [status.name for status in store.list_from(f"{log}/_staged_commits")]


def published(store: MemoryStore, table: Table, version: int) -> bytes:
    return store.read(f"{table.location}/_delta_log/{version:020d}.json")


@pytest.mark.requirements("CM-6", "CM-C4", "CM-C7", "CM-P1", "CM-P4")
def test_an_inline_commit_is_in_the_catalog_alone_until_it_is_published(
    table: Table, client: DeltaClient, store: MemoryStore, willful: WillfulStore
) -> None:
    choose(table, "inline")
    willful.fail = "before"
    assert append(table) == 1
    assert files_of(store, table) == ([f"{0:020d}.json"], [])
    (commit,) = client.coordinator.get_ratified_commits(table.table_id).commits
    assert commit.content is not None and len(commit.content) == commit.file_size
    fresh = another(client, willful)
    willful.reads.clear()
    assert (fresh.snapshot().version, fresh.snapshot().num_files, fresh.snapshot().published_version) == (1, 1, 0)
    assert not any("_staged_commits" in location for location in willful.reads)
    willful.fail = ""
    assert publish(fresh).published == (1,)
    assert published(store, table, 1) == commit.content
    assert client.coordinator.get_ratified_commits(table.table_id).commits == ()
    assert another(client, store).snapshot().num_files == 1 and files_of(store, table)[1] == []


@pytest.mark.requirements("CM-6")
def test_auto_is_inline_up_to_its_size_and_staged_above(
    table: Table, client: DeltaClient, willful: WillfulStore
) -> None:
    choose(table, "auto:2000")
    willful.fail = "before"
    append(table)
    append(table, stats=json.dumps({"numRecords": 1, "padding": "x" * 2000}))
    small, large = client.coordinator.get_ratified_commits(table.table_id).commits
    assert small.content is not None and large.content is None and large.file_size > 2000
    assert another(client, willful).snapshot().num_files == 2


@pytest.mark.requirements("CM-R3", "CM-R4", "CM-R9", "ICT-4", "TT-2", "CM-P2", "HIST-3")
def test_readers_take_staged_inline_and_created_commits_of_one_table(
    table: Table, client: DeltaClient, store: MemoryStore, willful: WillfulStore, clock: Any
) -> None:
    times = [table.snapshot().timestamp_ms]
    for policy in ("put_if_absent", "staged", "inline", "staged", "inline"):
        willful.fail = ""
        choose(table, policy)
        willful.fail = "" if policy == "put_if_absent" else "before"
        clock.now += 1000
        version = append(table)
        times += [table.snapshot(version=known).timestamp_ms for known in range(len(times), version + 1)]
    latest = client.coordinator.get_ratified_commits(table.table_id)
    assert [commit.content is None for commit in latest.commits] == [True, False, True, False]
    fresh = another(client, store)
    assert fresh.snapshot().version == latest.latest_version == 6 and fresh.snapshot().num_files == 5
    assert times == sorted(set(times)) and len(times) == 7
    for version, time in enumerate(times):
        assert fresh.snapshot(timestamp_ms=time).version == version
        assert fresh.snapshot(version=version).num_files == max(0, version - (version > 1))
    assert [entry.version for entry in history(fresh)] == [6, 5, 4, 3, 2, 1, 0]
    assert [commit.actions.adds.num_rows for commit in fresh.commits(0, 6)] == [0, 1, 0, 1, 1, 1, 1]
    contents = [fresh.commit_log().read(version) for version in range(7)]
    assert checkpoint(fresh).version == 6
    assert [published(store, fresh, version) for version in range(7)] == contents
    assert another(client, store).snapshot().num_files == 5


@pytest.mark.requirements("CM-C11", "CM-W3", "OCC-5", "OCC-9")
def test_a_writer_reads_inline_winners_from_the_catalog(
    table: Table, client: DeltaClient, store: MemoryStore, willful: WillfulStore
) -> None:
    choose(table, "inline")
    append(table)
    reading = table.start_transaction(table.snapshot(), operation="DELETE")
    reading.read_whole_table()
    reading.remove_files(removes_of(reading.snapshot.files, data_change=True))
    adding = table.start_transaction(table.snapshot(), operation="WRITE")
    adding.add_files([add_file("p", partition_values={"day": None})])
    assert table.ratified().commits == ()
    willful.fail = "before"
    deleting = table.start_transaction(table.snapshot(), operation="DELETE")
    deleting.remove_files(removes_of(deleting.snapshot.files, data_change=True))
    assert deleting.commit().version == 2
    assert adding.commit().version == 3
    with pytest.raises(CommitConflictError, match=r"version 2 \(DELETE"):
        reading.commit()
    assert files_of(store, table) == ([f"{0:020d}.json", f"{1:020d}.json"], [])


@pytest.mark.requirements("CM-W4")
def test_the_unknown_outcome_of_an_inline_proposal_is_found_in_the_catalog(
    table: Table, lossy: WillfulCoordinator
) -> None:
    choose(table, "inline")
    real = lossy._coordinator.commit

    def lost(*arguments: Any) -> Any:
        real(*arguments)
        del lossy.__dict__["commit"]
        raise CatalogUnavailableError("The answer was lost.")

    lossy.__dict__["commit"] = lost
    assert append(table) == 1 and table.snapshot().num_files == 1


@pytest.mark.requirements("CM-C9", "CM-P7")
def test_inline_commits_are_staged_for_clients_that_know_file_names_only(
    table: Table, client: DeltaClient, store: MemoryStore, willful: WillfulStore
) -> None:
    choose(table, "inline")
    willful.fail = "before"
    append(table)
    choose(table, "staged")
    append(table)
    inline, _ = client.coordinator.get_ratified_commits(table.table_id).commits
    shown = present_commits(table)
    assert shown == present_commits(table) and [commit.content for commit in shown.commits] == [None, None]
    staged = store.read(f"{table.location}/_delta_log/_staged_commits/{shown.commits[0].file_name}")
    assert staged == inline.content and len(staged) == shown.commits[0].file_size
    assert plan_clean_staged_commits(table, safety_age_ms=0).names == ()
    willful.fail = ""
    assert publish(table).published == (1, 2)
    assert published(store, table, 1) == staged


@pytest.mark.parametrize("is_old", [False, True], ids=["newest snapshot", "old snapshot"])
def test_too_many_unpublished_commits_are_published_by_the_next_writer(
    table: Table, client: DeltaClient, willful: WillfulStore, is_old: bool
) -> None:
    settings = ClientSettings(retry_initial_delay=timedelta(seconds=0.0001), max_unpublished_commits=3)
    bounded = another(client, willful, settings=settings)
    choose(bounded, "inline")
    willful.fail = "before"
    on = bounded.snapshot() if is_old else None
    assert [append(bounded, on=on) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(CommitRejectedError, match=r"3 of its commits are not published.*read-only"):
        append(bounded, on=on)
    assert bounded.snapshot().version == 3
    willful.fail = "after"
    assert append(bounded, on=on) == 4
    assert bounded.ratified().published_version == 4


@pytest.mark.requirements("CM-C5")
def test_a_commit_made_by_creating_its_file_is_published_immediately(
    table: Table, client: DeltaClient, store: MemoryStore
) -> None:
    choose(table, "put_if_absent")
    assert [append(table), append(table)] == [1, 2]
    assert files_of(store, table) == ([f"{version:020d}.json" for version in range(3)], [])
    known = client.coordinator.get_ratified_commits(table.table_id)
    assert (known.latest_version, known.published_version, known.commits) == (2, 2, ())
    feed = client.catalog.feed.feed(after=0, limit=9)
    assert [(entry.version, entry.summary.operation) for entry in feed][1:] == [(1, "WRITE"), (2, "WRITE")]


@pytest.mark.requirements("CM-C5", "CM-C6")
def test_a_created_commit_unknown_to_the_catalog_is_found_by_the_next_client(
    table: Table, client: DeltaClient, store: MemoryStore, lossy: WillfulCoordinator
) -> None:
    choose(table, "put_if_absent")
    other = another(client, store)
    stale = other.start_transaction(other.snapshot(), operation="WRITE")
    stale.add_files([add_file("p", partition_values={"day": None})])
    lossy.lose = {"record_published"}
    assert append(table) == 1
    assert client.coordinator.get_ratified_commits(table.table_id).latest_version == 0
    assert stale.commit().version == 2
    assert client.coordinator.get_ratified_commits(table.table_id).latest_version == 2
    lossy.lose = set()
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file("q", partition_values={"day": None})])
    lossy.lose = {"record_published"}
    committed = transaction.commit()
    assert another(client, store).snapshot().version == committed.version == 3
    entry = client.catalog.feed.feed(after=0, limit=9)[-1]
    assert (entry.version, entry.summary.txn_id, entry.summary.data_change) == (3, committed.txn_id, True)


@pytest.mark.requirements("CM-C5")
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("garbage\n", "not JSON"),
        ('{"commitInfo":{"inCommitTimestamp":99999999999999}}\n', "no commitInfo with txnId"),
        ('{"commitInfo":{"txnId":"x","inCommitTimestamp":1}}\n', "greater than the one before"),
        ('{"commitInfo":{"txnId":"x","inCommitTimestamp":99999999999999999999999}}\n', "63 bits"),
        ("", "no commitInfo"),
    ],
)
def test_a_file_that_no_client_can_have_created_stops_all_and_is_named(
    table: Table, client: DeltaClient, store: MemoryStore, content: str, why: str
) -> None:
    """It may be the commit of a dead writer, damaged; moved away, everything goes on."""
    choose(table, "put_if_absent")
    append(table)
    stray = f"{table.location}/_delta_log/{2:020d}.json"
    store.write(stray, content.encode())
    fresh = another(client, store)
    for act in (fresh.snapshot, lambda: append(fresh), lambda: choose(fresh, "staged")):
        with pytest.raises(
            CorruptLogError, match=f"{stray} is a commit file after the latest version.*{why}.*move it away"
        ):
            act()
    assert {Problem.UNREADABLE, Problem.ABOVE_LATEST} <= {found.problem for found in doctor(fresh).findings}
    assert client.coordinator.get_ratified_commits(table.table_id).latest_version == 1
    store.delete(stray)
    assert append(fresh) == 2
    assert {found.problem for found in doctor(another(client, store)).findings} == {Problem.FILE_MISSING}


@pytest.mark.requirements("CM-W4", "CM-C5")
def test_the_unknown_outcome_of_a_creation_is_found_in_the_file(table: Table, willful: WillfulStore) -> None:
    choose(table, "put_if_absent")
    willful.fail = "after"
    assert append(table) == 1 and table.snapshot().num_files == 1
    willful.fail = "before"
    with pytest.raises(CommitStateUnknownError, match=r"txnId .* may or may not be there"):
        append(table)


@pytest.mark.requirements("CM-C3", "OCC-5", "OCC-12")
def test_a_writer_who_loses_the_creation_rebases_or_conflicts(
    table: Table, client: DeltaClient, store: MemoryStore, willful: WillfulStore
) -> None:
    choose(table, "put_if_absent")
    other = another(client, store)
    append(other)
    willful.before_creation = [lambda: append(other)]
    assert append(table) == 3 and table.snapshot().num_files == 3
    reading = table.start_transaction(table.snapshot(), operation="DELETE")
    reading.read_whole_table()
    reading.remove_files(removes_of(reading.snapshot.files, data_change=True))
    deleting = other.start_transaction(other.snapshot(), operation="DELETE")
    deleting.remove_files(removes_of(deleting.snapshot.files, data_change=True))
    willful.before_creation = [deleting.commit]
    with pytest.raises(CommitConflictError, match="version 4"):
        reading.commit()


@pytest.mark.requirements("OCC-15")
def test_the_error_after_the_last_attempt_names_every_winner(
    table: Table, client: DeltaClient, store: MemoryStore, willful: WillfulStore
) -> None:
    choose(table, "put_if_absent")
    other = another(client, store)
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file("p", partition_values={"day": None})])

    willful.before_each_creation = lambda: append(other)
    with pytest.raises(
        CommitRetriesExceededError, match=r"version 1 \(WRITE.*version 2 \(WRITE.*version 3 \("
    ) as caught:
        transaction.commit()
    assert caught.value.winning_versions == (1, 2, 3)
    assert another(client, store).snapshot().num_files == 3


@pytest.mark.requirements("CM-D6", "CM-D8")
def test_a_dropped_table_leaves_a_created_commit_unknown(
    table: Table, client: DeltaClient, willful: WillfulStore
) -> None:
    choose(table, "put_if_absent")
    willful.before_creation = [lambda: client.registry.drop_table(TableIdentifier.parse(NAME))]
    with pytest.raises(CommitStateUnknownError, match="dropped"):
        append(table)


@pytest.mark.requirements("CM-C6", "ICT-12")
def test_a_file_above_the_latest_version_that_is_no_commit_is_refused(
    table: Table, client: DeltaClient, store: MemoryStore
) -> None:
    choose(table, "put_if_absent")
    store.write_if_absent(f"{table.location}/_delta_log/{1:020d}.json", b'{"commitInfo":{"operation":"X"}}\n')
    with pytest.raises(CorruptLogError, match=r"00001\.json .*txnId"):
        another(client, store).snapshot()


@pytest.mark.requirements("CM-C3", "CM-C6")
def test_the_commit_mode_goes_every_way_and_again(table: Table, client: DeltaClient, store: MemoryStore) -> None:
    ways = (
        "inline",
        "put_if_absent",
        "put_if_absent",
        "staged",
        "auto:10",
        "put_if_absent",
        "inline",
        "inline",
        "staged",
    )
    for policy in ways:
        choose(table, policy)
        assert str(client.coordinator.get_ratified_commits(table.table_id).commit_policy) == policy
        append(table)
    operations = [entry.commit_info.operation for entry in history(table) if entry.commit_info is not None]
    assert operations.count(BARRIER_OPERATION) == 2 and operations.count("WRITE") == len(ways)
    assert another(client, store).snapshot().num_files == len(ways)


@pytest.mark.requirements("CM-C6")
@pytest.mark.parametrize("policy", ["staged", "inline"])
def test_a_switch_that_crashed_lets_writers_wait_until_anybody_completes_it(
    table: Table, client: DeltaClient, store: MemoryStore, willful: WillfulStore, policy: str
) -> None:
    choose(table, "put_if_absent")
    append(table)
    willful.fail = "before"
    with pytest.raises(CommitStateUnknownError):
        choose(table, policy)
    writer = another(client, store)
    assert writer.snapshot().commit_policy.kind is CommitPolicyKind.SWITCHING and writer.snapshot().num_files == 1
    with pytest.raises(CommitRetriesExceededError, match="being switched"):
        append(writer)
    choose(another(client, store), policy)
    assert append(writer) == 3 and writer.snapshot().num_files == 2
    willful.fail = ""


class LongRow:
    """Passes calls on; before a waiter gets the commit lock, another writer commits."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self.waiters = 0
        self.moves = True
        self.waits: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coordinator, name)

    @contextmanager
    def commit_lock(self, table_id: str, *, seconds: float) -> Iterator[bool]:
        self.waiters += 1
        self.waits.append(seconds)
        self.meanwhile()
        yield self.moves


@pytest.mark.requirements("OCC-15")
@pytest.mark.parametrize("policy", ["staged", "inline", "put_if_absent"])
def test_the_holder_of_the_commit_lock_commits_after_concurrent_commits(
    table: Table, client: DeltaClient, store: MemoryStore, policy: str
) -> None:
    """However many writers commit meanwhile, one wait for the lock is enough."""
    choose(table, policy)
    row = LongRow(client.coordinator)
    writer = another(client, store, row)
    append(writer)
    append(table)
    row.meanwhile = lambda: append(table)
    version = append(writer)
    assert (row.waiters, version) == (1, table.snapshot().version)
    assert table.snapshot().num_files == 4


@pytest.mark.requirements("OCC-15")
def test_writers_do_not_wait_long_for_a_commit_lock_that_is_not_released(
    table: Table, client: DeltaClient, store: MemoryStore
) -> None:
    """A holder that is suspended or unreachable does not delay every commit by the whole timeout."""
    row = LongRow(client.coordinator)
    writer = another(client, store, row)
    append(writer)
    row.moves = False
    for _ in range(5):
        append(table)
        append(writer)
    assert row.waits[:4] == [2.0, 1.0, 0.5, 0.25]
    row.moves = True
    append(table)
    append(writer)
    append(table)
    append(writer)
    assert row.waits[-1] == 2.0
    assert table.snapshot().num_files == 15


@pytest.mark.requirements("OCC-15", "CM-C6")
def test_writers_do_not_wait_for_the_commit_lock_during_a_switch(
    table: Table, client: DeltaClient, store: MemoryStore, willful: WillfulStore
) -> None:
    """A wait for the commit lock would replace the backoff that lets a switch finish."""
    choose(table, "put_if_absent")
    row = LongRow(client.coordinator)
    writer = another(client, store, row)
    append(writer)
    append(table)
    waiting = writer.start_transaction(writer.snapshot(), operation="WRITE")
    willful.fail = "before"
    with pytest.raises(CommitStateUnknownError):
        choose(table, "inline")
    with pytest.raises(CommitRetriesExceededError, match="being switched"):
        waiting.commit()
    assert row.waiters == 1
    willful.fail = ""
    choose(table, "inline")
    assert append(writer) == 4


@pytest.mark.requirements("CM-P2")
def test_a_switch_into_put_if_absent_publishes_first_and_completes_after_a_crash(
    table: Table, client: DeltaClient, store: MemoryStore, willful: WillfulStore
) -> None:
    choose(table, "inline")
    willful.fail = "before"
    append(table)
    with pytest.raises(StorageError, match="read-only"):
        choose(table, "put_if_absent")
    writer = another(client, store)
    with pytest.raises(CommitRetriesExceededError, match="being switched"):
        append(writer)
    choose(writer, "put_if_absent")
    assert client.coordinator.get_ratified_commits(table.table_id).published_version == 1
    assert append(writer) == 2


@pytest.mark.requirements("CM-C3")
def test_a_writer_with_an_outdated_answer_notices_the_switch(
    table: Table, client: DeltaClient, store: MemoryStore
) -> None:
    old = table.start_transaction(table.snapshot(), operation="WRITE")
    old.add_files([add_file("p", partition_values={"day": None})])
    other = another(client, store)
    choose(other, "put_if_absent")
    append(other)
    assert old.commit().version == 2
    older = table.start_transaction(table.snapshot(), operation="WRITE")
    older.add_files([add_file("q", partition_values={"day": None})])
    choose(other, "inline")
    assert older.commit().version == 4
    assert another(client, store).snapshot().num_files == 3


class StoreWithoutPrimitive(WillfulStore):
    """Creates files as configured, or reports that it cannot create exclusively."""

    overwrites = False

    def write_if_absent(self, location: str, data: bytes, **how: bool) -> None:
        if not self.overwrites:
            raise StoreNotSupportedError("There is no exclusive creation here.")
        self._store.write(location, data)


@pytest.mark.requirements("CM-C5", "LOG-5")
@pytest.mark.parametrize("overwrites", [False, True])
def test_a_store_that_cannot_create_exclusively_is_refused_and_nothing_changes(
    table: Table, client: DeltaClient, store: MemoryStore, overwrites: bool
) -> None:
    weak = StoreWithoutPrimitive(store)
    weak.overwrites = overwrites
    with pytest.raises(StoreNotSupportedError, match=r"put-if-absent.*not changed"):
        choose(another(client, weak), "put_if_absent")
    assert str(client.coordinator.get_ratified_commits(table.table_id).commit_policy) == "staged"
    assert files_of(store, table) == ([f"{0:020d}.json"], [])


def test_scopes_are_chosen_by_name_and_a_new_table_follows_its_schema(
    new_table: NewTable, client: DeltaClient, catalog: SqlCatalog, store: MemoryStore
) -> None:
    choose_commit_policy(client, scope="main", policy=CommitPolicy.parse("inline"))
    choose_commit_policy(client, scope="main.test", policy=CommitPolicy.parse("put_if_absent"))
    table = new_table()
    assert append(table) == 1 and files_of(store, table)[1] == []
    assert [str(rule.policy) for rule in catalog.commit_policies.commit_policies()] == [
        "inline",
        "put_if_absent",
        "put_if_absent",
    ]
    choose_commit_policy(client, scope=NAME, policy=None)
    choose_commit_policy(client, scope="main.test", policy=None)
    assert table.snapshot().commit_policy == CommitPolicy.parse("inline")
    assert append(table) == 3
    for text in ("auto", "staged:3", "auto:-1", "other", "auto:x"):
        with pytest.raises(InvalidArgumentError):
            CommitPolicy.parse(text)
