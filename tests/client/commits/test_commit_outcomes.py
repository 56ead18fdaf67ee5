"""Outcomes of a commit, what a rebase computes again, and what a transaction may not write."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.ratification import CommitOutcome, CommitProposal, CommitSummary, Ratified, VersionTaken
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.client.backoff import max_backoff_seconds
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.transaction import Transaction
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    ApprovalRequiredError,
    CatalogUnavailableError,
    CmDeltaError,
    CommitConflictError,
    CommitError,
    CommitRejectedError,
    CommitRetriesExceededError,
    CommitStateUnknownError,
    IllegalCommitError,
    NotCatalogManagedError,
    UnsupportedFeatureError,
)
from cm_delta_dagster.protocol.actions.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    SetTransaction,
)
from cm_delta_dagster.protocol.actions.commit_json import encode_commit
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.features.in_commit_timestamps import next_in_commit_timestamp
from cm_delta_dagster.protocol.features.protocol_evolution import with_features
from cm_delta_dagster.protocol.features.row_tracking import DOMAIN, PRESERVED_TAG, SUSPENDED, high_water_mark
from cm_delta_dagster.protocol.log import log_files
from cm_delta_dagster.protocol.predicates.sql_parser import parse_predicate
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.stores import Stores
from tests.client.conftest import SCHEMA
from tests.support.actions import add_file
from tests.support.catalog_parts import CatalogWith
from tests.support.creation import create_table
from tests.support.foreign_log import ForeignLog, add, info

NewTable = Callable[..., Table]


def _file(name: str, rows: int = 10, day: str = "2024-01-01") -> AddFile:
    stats = json.dumps({"numRecords": rows})
    return add_file(f"{name}.parquet", partition_values={"day": day}, size=100, stats=stats)


def _start(table: Table, *files: AddFile, operation: str = "WRITE") -> Transaction:
    transaction = table.start_transaction(table.snapshot(), operation=operation)
    transaction.add_files(files)
    return transaction


def _actions(store: MemoryStore, table: Table, version: int) -> list[dict[str, Any]]:
    data = store.read(f"{table.location}/_delta_log/{version:020d}.json")
    return [json.loads(line) for line in data.splitlines()]


def _of(actions: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [action[name] for action in actions if name in action]


# --- the outcomes -----------------------------------------------------------------------------------------------------


@pytest.mark.requirements("CM-C12", "CM-W4", "OCC-5", "OCC-15")
def test_the_outcomes_of_a_commit_are_errors_of_one_base_which_documents_them() -> None:
    outcomes = {
        ApprovalRequiredError,
        CommitConflictError,
        CommitRejectedError,
        CommitRetriesExceededError,
        CommitStateUnknownError,
    }
    assert set(CommitError.__subclasses__()) == outcomes
    assert all(outcome.__name__ in str(CommitError.__doc__) for outcome in outcomes)
    assert issubclass(CommitError, CmDeltaError)


class ChoosyCoordinator:
    """The real coordinator, which does not take commits of one operation."""

    def __init__(self, coordinator: CommitCoordinator, operation: str) -> None:
        self._coordinator, self._operation = coordinator, operation
        self.proposals: list[CommitProposal] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coordinator, name)

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        self.proposals.append(proposal)
        if proposal.summary.operation == self._operation:
            raise CommitRejectedError(f"{self._operation} needs an owner of the table.")
        return self._coordinator.commit(table_id, proposal)


@pytest.fixture
def choosy(client: DeltaClient, catalog: SqlCatalog, store: MemoryStore) -> Iterator[DeltaClient]:
    wrapped: Any = CatalogWith(catalog, coordinator=ChoosyCoordinator(catalog.coordinator, "SET TBLPROPERTIES"))
    choosy = DeltaClient(wrapped, stores=Stores({"memory": store}), now_ms=client.now_ms)
    yield choosy
    choosy.close()


@pytest.mark.requirements("CM-C12", "CM-7")
def test_what_the_catalog_does_not_want_is_proposed_once_and_is_no_conflict(
    new_table: NewTable, choosy: DeltaClient
) -> None:
    new_table()
    table = choosy.table("main.test.t")
    transaction = _start(table, operation="SET TBLPROPERTIES")
    transaction.set_metadata(replace(transaction.snapshot.metadata, description="theirs"))
    with pytest.raises(CommitRejectedError, match="needs an owner") as caught:
        transaction.commit()
    assert not isinstance(caught.value, CommitConflictError)
    assert len(choosy.coordinator.proposals) == 1
    assert table.snapshot().version == 0
    assert _start(table, _file("a")).commit().version == 1
    assert table.snapshot().metadata.description is None


@pytest.mark.requirements("CM-7")
def test_a_proposal_is_ratified_or_rejected_for_good(
    new_table: NewTable, client: DeltaClient, store: MemoryStore
) -> None:
    """Asked again, the catalog gives the same answer, and neither content nor version ever change."""
    table = new_table()
    late = _start(table, _file("late"))
    won = _start(table, _file("won")).commit()
    before = store.read(f"{table.location}/_delta_log/{won.version:020d}.json")
    committed = late.commit()
    staged = [
        status.location for status in store.list_from(f"{table.location}/_delta_log/_staged_commits") if status.size
    ]
    lost, ratified = sorted(
        (location for location in staged if f"/{won.version:020d}." in location),
        key=lambda location: store.read(location) == before,
    )
    assert store.read(ratified) == before != store.read(lost)
    summaries = {entry.version: entry.summary for entry in client.catalog.feed.feed(after=0, limit=10)}
    proposal = CommitProposal(
        version=won.version,
        file_name=lost.rpartition("/")[2],
        file_size=len(store.read(lost)),
        file_modification_time=1,
        summary=summaries[committed.version],
    )
    for _ in range(2):
        assert isinstance(client.coordinator.commit(table.table_id, proposal), VersionTaken)
    again = replace(
        proposal,
        file_name=ratified.rpartition("/")[2],
        file_size=len(before),
        summary=summaries[won.version],
    )
    answer = client.coordinator.commit(table.table_id, again)
    assert (answer.version, answer.repeated) == (won.version, True)
    assert store.read(f"{table.location}/_delta_log/{won.version:020d}.json") == before
    assert table.snapshot().version == committed.version


@pytest.mark.requirements("OCC-4")
def test_a_transaction_is_of_one_table_and_what_it_did_stays_if_another_fails(new_table: NewTable) -> None:
    orders, lines = new_table("orders"), new_table("lines")
    first, second = _start(orders, _file("o")), _start(lines, _file("l"))
    second.read_whole_table()
    winner = _start(lines, _file("w"))
    winner.read_whole_table()
    winner.commit()
    first.commit()
    with pytest.raises(CommitConflictError):
        second.commit()
    assert (orders.snapshot().num_files, lines.snapshot().num_files) == (1, 1)


@pytest.mark.requirements("OCC-15")
def test_the_backoff_grows_to_a_bound_for_any_number_of_retries() -> None:
    settings = ClientSettings(retry_initial_delay=timedelta(seconds=0.5), retry_max_delay=timedelta(seconds=3))
    bounds = [max_backoff_seconds(settings, retry) for retry in (1, 2, 3, 4, 5, 10_000)]
    assert bounds == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]


class BusyCoordinator:
    """The real coordinator; before each proposal of the test's client another client commits."""

    def __init__(self, coordinator: CommitCoordinator, meanwhile: Callable[[], object]) -> None:
        self._coordinator, self._meanwhile = coordinator, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coordinator, name)

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        self._meanwhile()
        return self._coordinator.commit(table_id, proposal)


@pytest.mark.requirements("OCC-15")
def test_the_last_attempt_names_every_winner(
    new_table: NewTable, client: DeltaClient, catalog: SqlCatalog, store: MemoryStore
) -> None:
    table = new_table()
    winners = []

    def append() -> None:
        for _ in range(2):
            winners.append(_start(table, _file(f"w{len(winners)}")).commit())

    busy: Any = CatalogWith(catalog, coordinator=BusyCoordinator(catalog.coordinator, append))
    settings = ClientSettings(max_commit_attempts=3, retry_initial_delay=timedelta(seconds=0.0001))
    other = DeltaClient(busy, stores=Stores({"memory": store}), settings=settings, now_ms=client.now_ms)
    with pytest.raises(CommitRetriesExceededError, match="tried 3 times and nothing was committed") as caught:
        _start(other.table("main.test.t"), _file("mine")).commit()
    assert caught.value.winning_versions == (1, 2, 3, 4, 5, 6)
    assert all(f"version {won.version} (WRITE by" in str(caught.value) for won in winners)
    assert all(won.txn_id in str(caught.value) for won in winners)
    assert table.snapshot().num_files == 6
    other.close()


class RowOfWriters:
    """The real coordinator; records requests for the commit lock and proposals."""

    def __init__(self, coordinator: CommitCoordinator) -> None:
        self._coordinator = coordinator
        self.calls: list[str] = []
        self.grants_lock = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coordinator, name)

    @contextmanager
    def commit_lock(self, table_id: str, *, seconds: float) -> Iterator[bool]:
        self.calls.append("lock")
        yield self.grants_lock
        self.calls.append("end")

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        outcome = self._coordinator.commit(table_id, proposal)
        self.calls.append(type(outcome).__name__)
        return outcome


@pytest.mark.requirements("OCC-15")
def test_contended_writers_wait_for_the_commit_lock_and_refresh_first(
    new_table: NewTable, client: DeltaClient, catalog: SqlCatalog, store: MemoryStore
) -> None:
    table = new_table()
    row = RowOfWriters(catalog.coordinator)
    shared: Any = CatalogWith(catalog, coordinator=row, close=lambda: None)
    stores = Stores({"memory": store})
    settings = ClientSettings(retry_initial_delay=timedelta(seconds=0.0001))
    with closing(DeltaClient(shared, stores=stores, settings=settings, now_ms=client.now_ms)) as other:
        mine = other.table("main.test.t")
        _start(mine, _file("alone")).commit()
        assert row.calls == ["Ratified"]
        late, later, last = (_start(mine, _file(name)) for name in ("late", "later", "last"))
        _start(table, _file("theirs-1")).commit()
        assert late.commit().retries == 1
        assert row.calls[1:] == ["VersionTaken", "lock", "Ratified", "end"]
        _start(table, _file("theirs-2")).commit()
        assert later.commit().retries == 1
        assert row.calls[5:] == ["lock", "Ratified", "end"]
        row.grants_lock = False
        assert last.commit().retries == 1
        assert row.calls[8:] == ["lock", "VersionTaken", "end", "lock", "Ratified", "end"]
    without_lock = replace(settings, commit_lock_timeout=timedelta(0))
    with closing(DeltaClient(shared, stores=stores, settings=without_lock, now_ms=client.now_ms)) as other:
        later_one = _start(other.table("main.test.t"), _file("later_one"))
        _start(table, _file("theirs-3")).commit()
        assert later_one.commit().retries == 1
        assert row.calls[14:] == ["VersionTaken", "Ratified"]
    assert table.snapshot().num_files == 8


class MuteCoordinator:
    """The real coordinator, whose answers are lost from the first proposal on that it takes."""

    def __init__(self, coordinator: CommitCoordinator) -> None:
        self._coordinator = coordinator
        self.mute = False

    def __getattr__(self, name: str) -> Any:
        if self.mute:
            raise CatalogUnavailableError("no answer")
        return getattr(self._coordinator, name)

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        self._coordinator.commit(table_id, proposal)
        self.mute = True
        raise CatalogUnavailableError("no answer")


@pytest.mark.requirements("CM-W4", "CM-W5")
def test_an_unknown_outcome_says_what_to_look_for(
    new_table: NewTable, client: DeltaClient, catalog: SqlCatalog, store: MemoryStore
) -> None:
    table = new_table()
    mute = MuteCoordinator(catalog.coordinator)
    muted: Any = CatalogWith(catalog, coordinator=mute)
    settings = ClientSettings(max_resolve_attempts=2, retry_initial_delay=timedelta(seconds=0.0001))
    other = DeltaClient(muted, stores=Stores({"memory": store}), settings=settings, now_ms=client.now_ms)
    transaction = _start(other.table("main.test.t"), _file("mine"))
    with pytest.raises(CommitStateUnknownError) as caught:
        transaction.commit()
    assert (caught.value.txn_id, caught.value.version) == (transaction.txn_id, 1)
    entry = [item for item in client.catalog.feed.feed(after=0, limit=10) if item.summary.txn_id == caught.value.txn_id]
    assert [item.version for item in entry] == [1]
    assert table.snapshot().num_files == 1
    mute.mute = False
    other.close()


# --- what a rebase computes again -------------------------------------------------------------------------------------


@pytest.fixture
def tracked(new_table: NewTable) -> Table:
    return new_table(delta__feature__rowTracking="supported")


@pytest.mark.requirements(
    "ROWTRK-2", "ROWTRK-3", "ROWTRK-4", "ROWTRK-6", "ROWTRK-7", "ROWTRK-11", "OCC-11", "OCC-12", "OCC-13", "DOM-7"
)
def test_a_rebase_assigns_new_row_ids(tracked: Table, store: MemoryStore) -> None:
    late = _start(tracked, _file("c", 5), _file("d", 1))
    _start(tracked, _file("a", 10), _file("b", 3)).commit()
    assert late.commit().retries == 1
    found = [
        [(add["path"], add["baseRowId"], add["defaultRowCommitVersion"]) for add in _of(actions, "add")]
        for actions in (_actions(store, tracked, 1), _actions(store, tracked, 2))
    ]
    assert found == [
        [("a.parquet", 0, 1), ("b.parquet", 10, 1)],
        [("c.parquet", 13, 2), ("d.parquet", 18, 2)],
    ]
    (domain,) = _of(_actions(store, tracked, 2), "domainMetadata")
    assert domain == {"domain": DOMAIN, "configuration": '{"rowIdHighWaterMark":18}', "removed": False}
    assert high_water_mark(tracked.snapshot().domains) == 18


@pytest.mark.requirements("UP-RT-1")
def test_no_row_ids_are_assigned_while_row_tracking_is_suspended(tracked: Table, store: MemoryStore) -> None:
    """Another writer set the property. Without it, the next file gets ids again."""
    for suspended in (True, False):
        snapshot = tracked.snapshot()
        configuration = {**snapshot.metadata.configuration, SUSPENDED: "true"}
        if not suspended:
            del configuration[SUSPENDED]
        transaction = tracked.start_transaction(snapshot, operation="SET TBLPROPERTIES")
        transaction.set_metadata(replace(snapshot.metadata, configuration=configuration))
        transaction.commit()
        name = f"suspended-{suspended}.parquet"
        transaction = tracked.start_transaction(tracked.snapshot(), operation="WRITE")
        transaction.add_files([add_file(name, size=1, stats='{"numRecords": 2}')])
        transaction.commit()
        files = {row["path"]: row["baseRowId"] for row in tracked.snapshot().files.to_pylist()}
        assert (files[name] is None) is suspended


@pytest.mark.requirements("ROWTRK-5", "ROWTRK-14", "ROWTRK-16")
def test_a_removed_file_repeats_its_ids_and_the_commit_says_that_rows_lost_theirs(
    tracked: Table, store: MemoryStore
) -> None:
    _start(tracked, _file("a", 10)).commit()
    rewriting = _start(tracked, _file("b", 10))
    files = rewriting.snapshot.files
    rewriting.remove_files(removes_of(files, data_change=False))
    rewriting.commit()
    appended, rewritten = _actions(store, tracked, 1), _actions(store, tracked, 2)
    (remove,) = _of(rewritten, "remove")
    assert (remove["baseRowId"], remove["defaultRowCommitVersion"]) == (0, 1)
    assert [add["baseRowId"] for add in _of(rewritten, "add")] == [10]
    tags = [_of(actions, "commitInfo")[0]["tags"][PRESERVED_TAG] for actions in (appended, rewritten)]
    assert tags == ["true", "false"]


@pytest.mark.requirements("OCC-6", "ROWTRK-2")
def test_rows_get_ids_though_the_feature_came_while_they_were_written(new_table: NewTable, store: MemoryStore) -> None:
    """A winner that lists the feature asks something of the files, and the rebase does it."""
    table = new_table()
    late = _start(table, _file("late", 4))
    listing = _start(table, operation="UPGRADE PROTOCOL")
    listing.set_protocol(with_features(listing.snapshot.protocol, ["rowTracking"]))
    listing.commit()
    assert late.commit().version == 2
    assert [add["baseRowId"] for add in _of(_actions(store, table, 2), "add")] == [0]
    assert high_water_mark(table.snapshot().domains) == 3


@pytest.mark.requirements("OCC-9", "OCC-12")
def test_rows_that_were_moved_and_then_changed_are_still_rows_that_were_read(new_table: NewTable) -> None:
    """A rearrangement is no obstacle, but what happens to the moved rows afterwards is."""
    table = new_table()
    _start(table, _file("a"), _file("b")).commit()
    copying, unaffected = _start(table, _file("copy", day="2024-01-02")), _start(table, _file("more"))
    copying.read(parse_predicate("day = '2024-01-01'", SCHEMA))
    unaffected.read(parse_predicate("day = '2024-01-02'", SCHEMA))
    moving = _start(table, replace(_file("ab", 20), data_change=False), operation="OPTIMIZE")
    moved = moving.snapshot.files
    moving.remove_files(removes_of(moved, data_change=False))
    moving.commit()
    deleting = _start(table, operation="DELETE")
    gone = deleting.snapshot.files
    deleting.remove_files(removes_of(gone, data_change=True))
    version = deleting.commit().version
    with pytest.raises(CommitConflictError) as caught:
        copying.commit()
    assert (caught.value.kind, caught.value.winning_version) == ("ConcurrentDeleteRead", version)
    assert unaffected.commit().retries == 1


def _rewrite(table: Table, low: int, name: str) -> Transaction:
    """As a merge of the ten keys from ``low`` on does it, in a table without partitions."""
    transaction = table.start_transaction(table.snapshot(), operation="MERGE")
    keys = parse_predicate(f"id >= {low} AND id <= {low + 9}", SCHEMA)
    transaction.read(keys)
    files = transaction.snapshot.matching_files(keys)
    transaction.remove_files(removes_of(files, data_change=True))
    bounds = {"numRecords": 10, "minValues": {"id": low}, "maxValues": {"id": low + 9}, "nullCount": {"id": 0}}
    transaction.add_files([replace(_file(name), stats=json.dumps(bounds), partition_values={})])
    return transaction


@pytest.mark.requirements("OCC-8", "OCC-9")
def test_merges_of_keys_apart_stand_however_often_the_others_files_were_rewritten(client: DeltaClient) -> None:
    """The rows of a removed file are known from the commit that added it, also if that is a winner."""
    table = create_table(client, identifier="main.test.keys", schema=SCHEMA)
    _rewrite(table, 0, "k0").commit()
    _rewrite(table, 100, "k100").commit()
    apart, overlapping = _rewrite(table, 100, "mine"), _rewrite(table, 5, "other")
    for number in range(3):
        _rewrite(table, 0, f"again{number}").commit()
    assert apart.commit().snapshot.num_files == 2
    with pytest.raises(CommitConflictError):
        overlapping.commit()


def _foreign_commit(client: DeltaClient, store: MemoryStore, table: Table, *actions: Action) -> None:
    """The next version by another writer of the same catalog, with whatever it writes."""
    base = table.snapshot()
    version, time, txn_id = base.version + 1, base.timestamp_ms + 1, str(uuid.uuid4())
    name = log_files.staged_commit_file_name(version, txn_id)
    data = encode_commit([CommitInfo(in_commit_timestamp=time, txn_id=txn_id, operation="FOREIGN"), *actions])
    store.write_if_absent(f"{log_files.staged_commits_directory(table.location)}/{name}", data)
    summary = CommitSummary(txn_id=txn_id, in_commit_timestamp=time, operation="FOREIGN", data_change=True)
    proposal = CommitProposal(
        version=version, file_name=name, file_size=len(data), file_modification_time=time, summary=summary
    )
    assert isinstance(client.coordinator.commit(table.table_id, proposal), Ratified)


@pytest.mark.requirements("OCC-6", "OCC-13")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_writer_version": 8}, "needs writer version 8"),
        ({"more": "neverHeardOf"}, "added the features neverHeardOf"),
    ],
)
def test_a_winner_whose_protocol_is_beyond_us_is_a_conflict_and_not_built_upon(
    new_table: NewTable, client: DeltaClient, store: MemoryStore, changes: dict[str, Any], message: str
) -> None:
    """Support is checked again, and the second run says what is missing."""
    table = new_table()
    late = _start(table, _file("late"))
    protocol = table.snapshot().protocol
    features = (*(protocol.writer_features or ()), *([changes["more"]] if "more" in changes else []))
    version = changes.get("min_writer_version", 7)
    _foreign_commit(client, store, table, replace(protocol, writer_features=features, min_writer_version=version))
    with pytest.raises(CommitConflictError, match=message) as caught:
        late.commit()
    assert (caught.value.kind, caught.value.winning_version) == ("ProtocolChanged", 1)
    with pytest.raises((UnsupportedFeatureError, NotCatalogManagedError)):
        _start(table, _file("again"))


@pytest.mark.requirements("ROWTRK-2")
def test_files_without_a_number_of_rows_get_no_ids_and_are_not_committed(tracked: Table) -> None:
    for stats in (None, "{}", "[]", "?", '{"numRecords":true}', '{"numRecords":-1}'):
        with pytest.raises(IllegalCommitError, match="how many rows"):
            _start(tracked, replace(_file("a"), stats=stats)).commit()
    assert tracked.snapshot().version == 0


@pytest.mark.requirements("OCC-14")
def test_the_level_that_was_used_is_recorded(new_table: NewTable, store: MemoryStore) -> None:
    """As delta-spark does, a mere rearrangement is said to be isolated from what it reads only."""
    for number, level in enumerate(("WriteSerializable", "Serializable")):
        table = new_table(f"t{number}", delta__isolationLevel=level)
        _start(table, _file("a"), _file("b")).commit()
        compacting = _start(table, replace(_file("ab", 20), data_change=False), operation="OPTIMIZE")
        files = compacting.snapshot.files
        compacting.remove_files(removes_of(files, data_change=False))
        compacting.commit()
        levels = [_of(_actions(store, table, version), "commitInfo")[0]["isolationLevel"] for version in (1, 2)]
        assert levels == [level, "SnapshotIsolation"]


@pytest.mark.requirements("CM-M8")
def test_no_layout_is_changed_behind_a_write(new_table: NewTable, store: MemoryStore) -> None:
    """Data reorganization is denied here, so what the property asks for is left, and the writes succeed."""
    table = new_table(delta__autoOptimize__autoCompact="true", delta__autoOptimize__optimizeWrite="true")
    versions = [_start(table, _file(f"f{number}")).commit().version for number in range(12)]
    assert versions == list(range(1, 13))
    assert table.snapshot().num_files == 12
    operations = {_of(_actions(store, table, version), "commitInfo")[0]["operation"] for version in versions}
    assert operations == {"WRITE"}


# --- metadata domains -------------------------------------------------------------------------------------------------


def _domain(name: str, configuration: str = "1") -> DomainMetadata:
    return DomainMetadata(domain=name, configuration=configuration)


@pytest.fixture
def with_domains(new_table: NewTable) -> Table:
    return new_table(delta__feature__domainMetadata="supported")


@pytest.mark.requirements("DOM-1")
def test_domains_need_the_feature(new_table: NewTable) -> None:
    transaction = _start(new_table())
    with pytest.raises(IllegalCommitError, match="does not list"):
        transaction.set_domain(_domain("mine"))
    transaction.set_protocol(with_features(transaction.snapshot.protocol, ["domainMetadata"]))
    transaction.set_domain(_domain("mine"))
    assert transaction.commit().snapshot.domains["mine"].configuration == "1"


@pytest.mark.requirements("DOM-3", "DOM-4")
@pytest.mark.parametrize("name", ["delta.rowTracking", "delta.clustering", "delta.unheardOf"])
def test_domains_of_delta_are_not_the_users(with_domains: Table, name: str) -> None:
    with pytest.raises(IllegalCommitError, match="belongs to Delta"):
        _start(with_domains).set_domain(_domain(name))


@pytest.mark.requirements("DOM-4", "DOM-5", "DOM-7")
def test_every_domain_survives_concurrent_commits(with_domains: Table, store: MemoryStore) -> None:
    """Who writes another domain is rebased, who writes the same one conflicts."""
    first, second = _start(with_domains), _start(with_domains)
    first.set_domain(_domain("a", "old"))
    second.set_domain(_domain("b"))
    first.commit()
    second.commit()
    removing, writing, other = _start(with_domains), _start(with_domains), _start(with_domains, _file("x"))
    removing.set_domain(replace(_domain("a", "old"), removed=True))
    writing.set_domain(_domain("a", "new"))
    version = removing.commit().version
    with pytest.raises(CommitConflictError, match="metadata domain 'a'"):
        writing.commit()
    other.commit()
    assert _of(_actions(store, with_domains, version), "domainMetadata") == [
        {"domain": "a", "configuration": "old", "removed": True}
    ]
    assert {name: domain.configuration for name, domain in with_domains.snapshot().domains.items()} == {"b": "1"}


@pytest.mark.requirements("TXN-4", "OCC-13")
def test_a_checked_txn_is_checked_again_after_a_rebase(new_table: NewTable) -> None:
    table = new_table()
    first, second = _start(table, _file("a")), _start(table, _file("b"))
    first.set_transaction(SetTransaction(app_id="job", version=1))
    second.set_transaction(SetTransaction(app_id="other", version=1))
    first.commit()
    assert second.commit().retries == 1
    assert table.snapshot().transactions.keys() == {"job", "other"}


# --- in-commit timestamps on a table that had none --------------------------------------------------------------------


class NoCommitter:
    """For transactions that are only asked for their actions."""

    def commit(self, transaction: Transaction) -> Any:
        raise AssertionError("not to be committed")


@pytest.mark.requirements("ICT-6", "ICT-7", "ICT-10", "ICT-11", "OCC-13")
def test_timestamps_that_are_turned_on_begin_after_the_file_before_also_if_that_came_in_between() -> None:
    log = ForeignLog()
    log.create("inCommitTimestamp")
    log.commit(1, info(), add("f1"))
    base = log.table.snapshot()
    enabling = Transaction(snapshot=base, committer=NoCommitter(), operation="SET TBLPROPERTIES")
    enabled = {**base.metadata.configuration, "delta.enableInCommitTimestamps": "true"}
    enabling.set_metadata(replace(base.metadata, configuration=enabled))
    clock = log.now
    log.now += 60_000  # The winner's file is ahead of the clock of the enabling writer.
    log.commit(2, info(), add("f2"))
    log.now -= 60_000
    for before in (base, log.table.snapshot()):
        time = next_in_commit_timestamp(clock, before.timestamp_ms)
        actions = enabling.actions(before, in_commit_timestamp=time)
        (metadata,) = (action for action in actions if isinstance(action, Metadata))
        assert time == before.timestamp_ms + 1
        assert metadata.configuration["delta.inCommitTimestampEnablementVersion"] == str(before.version + 1)
        assert metadata.configuration["delta.inCommitTimestampEnablementTimestamp"] == str(time)
    log.store.write_if_absent(f"{log.directory}/{3:020d}.json", encode_commit(actions))
    assert log.table.snapshot().timestamp_ms == time
    assert log.table.snapshot(timestamp_ms=time).version == 3
    assert log.table.snapshot(timestamp_ms=time - 1).version == 2
