"""Transactions of one table, interleaved by hand: ratification, rebase, conflicts, unknown outcomes, publication."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_coordinator import CommitCoordinator
from cm_delta_dagster.catalog.ratification import CommitOutcome, CommitProposal
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.changed_partitions import CHANGED_PARTITIONS_TAG
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.settings import ClientSettings
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitConflictError,
    CommitRetriesExceededError,
    CommitStateUnknownError,
    IllegalCommitError,
    ObjectNotFoundError,
    StorageError,
)
from cm_delta_dagster.protocol.actions.actions import AddFile, SetTransaction
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.predicates.predicates import Comparison, ComparisonOperator
from cm_delta_dagster.storage.memory_store import MemoryStore
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.catalog_parts import CatalogWith
from tests.support.forced_commit import ratify_append
from tests.support.lake import Lake

NewTable = Callable[..., Table]
_numbers = itertools.count()


def new_file(day: str = "2024-01-01") -> AddFile:
    path = f"part-{next(_numbers)}.parquet"
    return add_file(path, partition_values={"day": day}, size=100, stats='{"numRecords":1}')


def day_is(day: str) -> Comparison:
    import datetime

    return Comparison(column="day", operator=ComparisonOperator.EQ, value=datetime.date.fromisoformat(day))


def start(table: Table, operation: str = "WRITE") -> Transaction:
    return table.start_transaction(table.snapshot(), operation=operation)


def append(table: Table, day: str = "2024-01-01") -> Committed:
    transaction = start(table)
    transaction.add_files([new_file(day)])
    return transaction.commit()


def overwrite_day(table: Table, day: str) -> Transaction:
    transaction = start(table)
    predicate = day_is(day)
    transaction.read(predicate)
    files = transaction.snapshot.matching_files(predicate)
    transaction.remove_files(removes_of(files, data_change=True))
    transaction.add_files([new_file(day)])
    return transaction


def published(store: MemoryStore, table: Table, version: int) -> list[dict[str, Any]]:
    data = store.read(f"{table.location}/_delta_log/{version:020d}.json")
    return [json.loads(line) for line in data.splitlines()]


def names(store: MemoryStore, directory: str) -> list[str]:
    return [status.name for status in store.list_from(directory)]


@pytest.mark.requirements("CM-3", "CM-W1", "CM-W2", "CM-P1", "CM-P4", "CINFO-2", "ICT-3")
def test_a_commit_is_staged_ratified_and_published_byte_for_byte(new_table: NewTable, store: MemoryStore) -> None:
    table = new_table()
    committed = append(table)
    assert committed.version == 1
    (staged,) = names(store, f"{table.location}/_delta_log/_staged_commits")
    assert staged.startswith(f"{1:020d}.")
    content = store.read(f"{table.location}/_delta_log/_staged_commits/{staged}")
    assert store.read(f"{table.location}/_delta_log/{1:020d}.json") == content
    info = json.loads(content.splitlines()[0])["commitInfo"]
    assert info["txnId"] == committed.txn_id
    assert info["inCommitTimestamp"] == committed.in_commit_timestamp
    assert committed.snapshot.published_version == 1
    assert committed.snapshot.num_rows == 1


def test_the_reported_counts_are_those_of_the_state(new_table: NewTable) -> None:
    """Also after a rebase, and after a file whose number of rows is unknown has come and gone. Appends reconcile nothing."""
    table = new_table()
    append(table)
    unknown = start(table)
    unknown.add_files([replace(new_file("2024-01-02"), stats=None)])
    other = start(table)
    other.add_files([new_file()])
    rows = []
    for commit in (other.commit, unknown.commit, lambda: append(table), lambda: overwrite_day(table, "2024-01-02").commit(),
                   lambda: append(table), lambda: overwrite_day(table, "2024-01-01").commit()):  # fmt: skip
        snapshot = commit().snapshot
        again = table.snapshot()
        assert again.reported_counts == snapshot.reported_counts
        counts, computed = snapshot.reported_counts, replace(snapshot, reported_counts=None)
        assert counts is not None
        assert (counts.num_files, counts.size_bytes) == (computed.num_files, computed.size_bytes)
        assert counts.num_rows in (None, computed.num_rows)
        rows.append(counts.num_rows)
    assert rows == [2, None, None, None, 5, 2]
    append(table)
    files = append(table).snapshot.state.files
    assert "_sets" not in vars(files)


@pytest.mark.requirements("OCC-5", "OCC-12", "OCC-13", "CM-4", "CM-W3", "ICT-5")
def test_two_blind_appends_on_one_version_both_become_versions(new_table: NewTable, store: MemoryStore) -> None:
    table = new_table()
    first, second = start(table), start(table)
    first.add_files([new_file()])
    second.add_files([new_file()])
    one, two = first.commit(), second.commit()
    assert (one.version, two.version, two.retries) == (1, 2, 1)
    assert two.in_commit_timestamp > one.in_commit_timestamp
    assert two.snapshot.num_files == 2
    staged = names(store, f"{table.location}/_delta_log/_staged_commits")
    assert [name[:20] for name in staged] == [f"{1:020d}", f"{1:020d}", f"{2:020d}"]
    assert published(store, table, 2)[0]["commitInfo"]["readVersion"] == 1


@pytest.mark.requirements("OCC-8", "OCC-9")
def test_overwrites_of_different_days_rebase(new_table: NewTable) -> None:
    """Read sets are predicates."""
    table = new_table()
    append(table, "2024-01-01")
    append(table, "2024-01-02")
    first, second = overwrite_day(table, "2024-01-01"), overwrite_day(table, "2024-01-02")
    first.commit()
    assert second.commit().retries == 1
    assert table.snapshot().num_files == 2


@pytest.mark.requirements("OCC-5", "OCC-9", "OCC-10")
def test_overwrites_of_one_day_conflict_and_the_error_names_the_winner(new_table: NewTable) -> None:
    table = new_table()
    append(table)
    first, second = overwrite_day(table, "2024-01-01"), overwrite_day(table, "2024-01-01")
    winner = first.commit()
    with pytest.raises(CommitConflictError, match=f"version {winner.version} .*{winner.txn_id}") as caught:
        second.commit()
    assert caught.value.winning_version == winner.version
    assert table.snapshot().version == winner.version


@pytest.mark.requirements("OCC-11", "TXN-4")
def test_a_txn_of_the_same_application_conflicts(new_table: NewTable) -> None:
    table = new_table()
    first, second = start(table), start(table)
    for transaction in (first, second):
        transaction.add_files([new_file()])
        transaction.set_transaction(SetTransaction(app_id="job", version=7))
    first.commit()
    with pytest.raises(CommitConflictError):
        second.commit()
    assert table.snapshot().transactions["job"].version == 7


def test_a_transaction_commits_once(new_table: NewTable) -> None:
    transaction = start(new_table())
    transaction.add_files([new_file()])
    transaction.commit()
    with pytest.raises(IllegalCommitError, match="already committed"):
        transaction.commit()


@pytest.mark.requirements("ICT-4", "ICT-5")
def test_commit_timestamps_grow_when_the_clock_runs_backwards(new_table: NewTable, clock: Any) -> None:
    table = new_table()
    first = append(table)
    clock.now -= 3_600_000
    second = append(table)
    third = append(table)
    assert [second.in_commit_timestamp, third.in_commit_timestamp] == [
        first.in_commit_timestamp + 1,
        first.in_commit_timestamp + 2,
    ]


class FlakyCoordinator:
    """The real coordinator behind a line that loses requests or answers of ``commit``."""

    def __init__(self, coordinator: CommitCoordinator) -> None:
        self._coordinator = coordinator
        self.lose: list[str] = []
        self.down = False

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise CatalogUnavailableError("the line is cut")
        return getattr(self._coordinator, name)

    def commit(self, table_id: str, proposal: CommitProposal) -> CommitOutcome:
        event = self.lose.pop(0) if self.lose else "deliver"
        if event == "request":
            raise CatalogUnavailableError("the request was lost")
        outcome = self._coordinator.commit(table_id, proposal)
        if event in ("answer", "answer and line"):
            self.down = event == "answer and line"
            raise CatalogUnavailableError("the answer was lost")
        return outcome


@pytest.fixture
def flaky(client: DeltaClient, store: MemoryStore, new_table: NewTable) -> tuple[FlakyCoordinator, Table]:
    new_table()
    coordinator = FlakyCoordinator(client.coordinator)
    catalog: Any = CatalogWith(client.catalog, coordinator=coordinator)
    settings = ClientSettings(retry_initial_delay=timedelta(seconds=0.0001), max_resolve_attempts=3)
    other = DeltaClient(catalog, stores=Stores({"memory": store}), settings=settings, now_ms=client.now_ms)
    return coordinator, other.table("main.test.t")


@pytest.mark.requirements("CM-W4")
def test_an_unknown_outcome_is_found_in_the_catalog(flaky: tuple[FlakyCoordinator, Table]) -> None:
    coordinator, table = flaky
    coordinator.lose = ["answer"]
    assert append(table).version == 1
    assert table.snapshot().num_files == 1


@pytest.mark.requirements("CM-W4")
def test_an_unknown_outcome_is_found_after_other_commits_were_published(
    flaky: tuple[FlakyCoordinator, Table], client: DeltaClient
) -> None:
    """The entry is gone from the catalog's list, the published file proves the outcome."""
    coordinator, table = flaky
    original = coordinator._coordinator.get_ratified_commits
    happened = []

    def others_first(*arguments: Any, **keywords: Any) -> Any:
        if not happened and "start" in keywords:
            happened.append(True)
            append(client.table("main.test.t"))
            client.wait_for_background()
        return original(*arguments, **keywords)

    coordinator.lose = ["answer"]
    coordinator.__dict__["get_ratified_commits"] = others_first
    committed = append(table)
    assert committed.version == 1
    assert happened
    assert client.table("main.test.t").snapshot().num_files == 2


@pytest.mark.requirements("CM-W4")
def test_a_lost_request_is_proposed_again(flaky: tuple[FlakyCoordinator, Table]) -> None:
    coordinator, table = flaky
    coordinator.lose = ["request", "request"]
    assert append(table).version == 1
    assert table.snapshot().num_files == 1


@pytest.mark.requirements("CM-W4")
def test_a_conflict_with_an_unknown_outcome_is_rebased(
    flaky: tuple[FlakyCoordinator, Table], client: DeltaClient
) -> None:
    """Another txnId at the version means that another writer committed it."""
    coordinator, table = flaky
    transaction = start(table)
    append(client.table("main.test.t"))
    coordinator.lose = ["answer"]
    transaction.add_files([new_file()])
    committed = transaction.commit()
    assert (committed.version, committed.retries) == (2, 1)


@pytest.mark.requirements("CM-W4", "CM-W5")
def test_an_outcome_that_cannot_be_found_out_is_reported_and_nothing_deleted(
    flaky: tuple[FlakyCoordinator, Table], store: MemoryStore
) -> None:
    coordinator, table = flaky
    coordinator.lose = ["answer and line"]
    with pytest.raises(CommitStateUnknownError, match="may or may not"):
        append(table)
    assert len(names(store, f"{table.location}/_delta_log/_staged_commits")) == 1
    coordinator.down = False
    assert table.snapshot().num_files == 1


@pytest.mark.requirements("OCC-15")
def test_retries_are_bounded(client: DeltaClient, store: MemoryStore, new_table: NewTable) -> None:
    table = new_table()
    settings = ClientSettings(max_commit_attempts=1)
    other = DeltaClient(client.catalog, stores=Stores({"memory": store}), settings=settings, now_ms=client.now_ms)
    transaction = start(other.table("main.test.t"))
    append(table)
    transaction.add_files([new_file()])
    with pytest.raises(CommitRetriesExceededError, match="nothing was committed"):
        transaction.commit()
    assert table.snapshot().num_files == 1


class UnpublishingStore(MemoryStore):
    """A store that refuses published commits while a switch is set."""

    refuse = False

    def write_if_absent(self, location: str, data: bytes, **how: bool) -> None:
        if self.refuse and location.rpartition("/")[0].endswith("_delta_log") and location.endswith(".json"):
            raise StorageError("no space for published commits")
        super().write_if_absent(location, data, **how)


@pytest.mark.requirements("CM-P2", "CM-P4", "CM-P5", "CM-R3")
def test_a_failing_publication_does_not_fail_the_write_and_is_caught_up_in_order(
    catalog: Any, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.client.conftest import SCHEMA
    from tests.support.creation import create_table

    store = UnpublishingStore()
    client = DeltaClient(catalog, stores=Stores({"memory": store}), now_ms=clock)
    table = create_table(client, identifier="main.test.t", schema=SCHEMA, partition_columns=("day",))
    store.refuse = True
    assert append(table).snapshot.published_version == 0
    assert append(table).snapshot.num_files == 2
    assert f"{1:020d}.json" not in names(store, f"{table.location}/_delta_log")
    reader = DeltaClient(catalog, stores=Stores({"memory": store}), now_ms=clock)
    assert reader.table("main.test.t").snapshot().num_files == 2
    store.refuse = False
    assert append(table).snapshot.published_version == 3
    assert [published(store, table, version)[0]["commitInfo"]["readVersion"] for version in (1, 2, 3)] == [0, 1, 2]
    client.wait_for_background()
    reader.close()
    client.background.close()


@pytest.mark.requirements("CM-R7", "CM-R10")
def test_a_missing_staged_file_is_an_error_and_never_an_older_version(
    catalog: Any, clock: Any, client: DeltaClient
) -> None:
    from cm_delta_dagster.errors import CorruptLogError
    from tests.client.conftest import SCHEMA
    from tests.support.creation import create_table

    store = UnpublishingStore()
    settings = ClientSettings(copied_content_bytes=0)
    writer = DeltaClient(catalog, stores=Stores({"memory": store}), settings=settings, now_ms=clock)
    table = create_table(writer, identifier="main.test.t", schema=SCHEMA, partition_columns=("day",))
    store.refuse = True
    append(table)
    (staged,) = store.list_from(f"{table.location}/_delta_log/_staged_commits")
    store.delete(staged.location)
    reader = DeltaClient(catalog, stores=Stores({"memory": store}), now_ms=clock)
    with pytest.raises(CorruptLogError, match=staged.name):
        reader.table("main.test.t").snapshot()
    with pytest.raises(ObjectNotFoundError):
        store.read(staged.location)
    writer.background.close()


def test_the_feed_has_the_partitions_that_a_commit_changed(new_table: NewTable, client: DeltaClient) -> None:
    table = new_table()
    append(table, "2024-01-01")
    overwrite_day(table, "2024-01-01").commit()
    tags = [entry.summary.tags.get(CHANGED_PARTITIONS_TAG) for entry in client.catalog.feed.feed(after=0, limit=10)]
    assert tags == ["[]", '[{"day": "2024-01-01"}]', '[{"day": "2024-01-01"}]']


@pytest.mark.requirements("OCC-11", "TXN-3")
def test_unordered_transactions_of_one_application_rebase_unless_they_are_the_same(new_table: NewTable) -> None:
    """Ids without order, such as run ids, exclude only their own repetition."""
    table = new_table()
    first, second, repeated = start(table), start(table), start(table)
    for transaction, version in ((first, 7), (second, 8), (repeated, 7)):
        transaction.add_files([new_file()])
        transaction.note_transaction(SetTransaction(app_id="job", version=version))
    first.commit()
    assert second.commit().retries == 1
    with pytest.raises(CommitConflictError, match="same application"):
        repeated.commit()
    assert table.snapshot().transactions["job"].version == 8


@pytest.mark.requirements("CM-C16")
def test_a_closed_client_does_not_turn_a_ratified_commit_into_an_error(
    client: DeltaClient, new_table: NewTable
) -> None:
    """What follows ratification cannot fail the write."""
    table = new_table()
    transaction = start(table)
    transaction.add_files([new_file()])
    client.background.close()
    assert transaction.commit().version == 1


@pytest.mark.requirements("CKPT-15")
def test_an_unreadable_checkpoint_interval_does_not_fail_a_ratified_commit(tmp_path: Path) -> None:
    """The catalog ratified the interval without knowing the content of its commit."""
    lake = Lake(tmp_path)
    table = lake.new_table()
    metadata = table.snapshot().metadata
    configuration = {**metadata.configuration, "delta.checkpointInterval": "often"}
    version = ratify_append(lake, table, "first.parquet", replace(metadata, configuration=configuration))
    lake.append(table, "second.parquet")
    snapshot = table.snapshot()
    assert (snapshot.version, snapshot.num_files) == (version + 1, 2)
    assert snapshot.metadata.configuration == configuration
    lake.client.close()
