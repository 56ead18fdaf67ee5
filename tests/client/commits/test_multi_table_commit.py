"""Commits to several tables: all or none, each rebased on its own conflicts, with every kind of failure of the catalog."""

import functools
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.access import Privilege
from cm_delta_dagster.catalog.commit_policy import CommitPolicy, CommitPolicyKind
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.multi_table_commit import MultiTableCommit, TableCommit
from cm_delta_dagster.client.commits.transaction import Committed, Transaction
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogError,
    CatalogUnavailableError,
    CatalogVersionError,
    CmDeltaError,
    CommitConflictError,
    CommitRefusedError,
    CommitRejectedError,
    CommitRetriesExceededError,
    CommitStateUnknownError,
    IllegalCommitError,
    InvalidArgumentError,
    OperationRefusedError,
    PermissionDeniedError,
    StorageError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.reading.consistent_snapshots import load_snapshots
from cm_delta_dagster.operations.tables.set_commit_mode import set_commit_policy
from cm_delta_dagster.operations.writing.deferred_writes import DeferredWrites
from cm_delta_dagster.operations.writing.write_result import WriteOutcome
from cm_delta_dagster.operations.writing.write_transaction import DEFAULT_OPTIONS, TargetShape, start_write
from cm_delta_dagster.protocol.actions.file_columns import removes_of
from cm_delta_dagster.protocol.statistics.data_file_writes import WriteEngine, WrittenFiles
from cm_delta_dagster.storage.stores import Stores
from tests.support.actions import add_file
from tests.support.lake import Lake, Unreliable, broken_storage

Two = tuple[Table, Table]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def tables(lake: Lake) -> Two:
    return lake.new_table("one"), lake.new_table("two")


def append_to(table: Table, path: str = "new.parquet") -> Transaction:
    transaction = table.start_transaction(table.snapshot(), operation="WRITE")
    transaction.add_files([add_file(path, partition_values={"day": "2026-01-01"}, size=100)])
    return transaction


def overwrite(table: Table, path: str = "new.parquet") -> Transaction:
    transaction = append_to(table, path)
    transaction.read_whole_table()
    files = transaction.snapshot.files
    transaction.remove_files(removes_of(files, data_change=True))
    return transaction


def multi(
    client: DeltaClient, tables: Sequence[Table], begin: Callable[[Table], Transaction] = append_to
) -> MultiTableCommit:
    parts = [TableCommit(committer=table.committer, transaction=begin(table)) for table in tables]
    return MultiTableCommit(parts, coordinator=client.coordinator, settings=client.settings)


def commit(
    client: DeltaClient, tables: Two, begin: Callable[[Table], Transaction] = append_to
) -> tuple[Committed, ...]:
    one = multi(client, tables, begin)
    return one.finish(one.ratify())


def versions(lake: Lake, tables: Sequence[Table]) -> list[int]:
    client = lake.reopened()
    return [client.table(table.identifier).snapshot().version for table in tables]


def files(lake: Lake, table: Table) -> set[str]:
    return set(lake.reopened().table(table.identifier).snapshot().files["path"].to_pylist())


@pytest.mark.requirements("CM-C1", "CM-P1")
@pytest.mark.parametrize("mode", ["staged", "inline"])
def test_all_tables_get_their_commit_and_it_is_published(lake: Lake, tables: Two, mode: str) -> None:
    set_commit_policy(tables[1], CommitPolicy.parse(mode))
    committed = commit(lake.client, tables)
    assert [one.version for one in committed] == [1, 1]
    assert {one.snapshot.table_id for one in committed} == {table.table_id for table in tables}
    assert [one.snapshot.table_id for one in committed] == sorted(one.snapshot.table_id for one in committed)
    for table in tables:
        assert files(lake, table) == {"new.parquet"}
        assert f"_delta_log/{1:020d}.json" in lake.files(table)


@pytest.mark.requirements("CM-C3", "OCC-12")
def test_a_taken_version_of_one_table_rebases_that_table_and_proposes_all_again(lake: Lake, tables: Two) -> None:
    one = multi(lake.client, tables)
    for _ in range(2):
        lake.append(lake.reopened().table(tables[1].identifier))
    committed = {done.snapshot.table_id: done for done in one.finish(one.ratify())}
    assert (committed[tables[0].table_id].version, committed[tables[1].table_id].version) == (1, 3)
    assert versions(lake, tables) == [1, 3]
    assert "new.parquet" in files(lake, tables[1])


@pytest.mark.requirements("OCC-9")
def test_a_conflict_in_one_table_commits_nothing_in_any(lake: Lake, tables: Two) -> None:
    lake.append(tables[1])
    one = multi(lake.client, tables, overwrite)
    other = lake.reopened().table(tables[1].identifier)
    overwrite(other, "other.parquet").commit()
    with pytest.raises(CommitConflictError, match=r"main\.test\.two.*Nothing was committed"):
        one.ratify()
    assert versions(lake, tables) == [0, 2]


@pytest.mark.requirements("CM-W4")
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("losses", [1, 2])
def test_an_unanswered_proposal_is_resolved_for_the_whole(lake: Lake, tables: Two, is_done: bool, losses: int) -> None:
    lost = iter(range(losses))

    def fail(method: str, argument: object) -> Exception | None:
        if method == "commit_together" and next(lost, None) is not None:
            return CatalogUnavailableError("No answer, for the test.")
        return None

    if is_done:
        lake.catalog.fails_after = fail
    else:
        lake.catalog.fails = fail
    commit(lake.client, tables)
    assert versions(lake, tables) == [1, 1]
    entries = lake.sql_catalog.feed.feed(after=2, limit=9)
    assert len(entries) == 2


@pytest.mark.requirements("CM-W4")
def test_an_outcome_that_stays_unknown_is_an_error_that_names_every_commit(lake: Lake, tables: Two) -> None:
    proposed = list[str]()

    def fail(method: str, _: object) -> Exception | None:
        if method == "commit_together" or proposed:
            proposed.append(method)
            return CatalogUnavailableError("No answer, for the test.")
        return None

    lake.catalog.fails_after = fail
    one = multi(lake.client, tables)
    with pytest.raises(CommitStateUnknownError, match=r"main\.test\.\w+ \(txnId .*main\.test\.\w+ \(txnId"):
        one.ratify()
    lake.catalog.fails_after = lambda *_: None
    assert versions(lake, tables) == [1, 1], "it was ratified, and nothing was deleted"


def test_a_table_that_is_dropped_while_the_catalog_does_not_answer_leaves_the_outcome_unknown(
    lake: Lake, tables: Two
) -> None:
    def fail(method: str, argument: object) -> Exception | None:
        if method != "commit_together":
            return None
        lake.catalog.fails_after = lambda *_: None
        lake.sql_catalog.registry.drop_table(tables[1].identifier)
        return CatalogUnavailableError("No answer, for the test.")

    lake.catalog.fails_after = fail
    with pytest.raises(CommitStateUnknownError, match="dropped"):
        multi(lake.client, tables).ratify()


ERRORS_OF_THE_CATALOG = [
    OperationRefusedError("The operation read was refused, for the test."),
    PermissionDeniedError("A right is missing, for the test."),
    CatalogVersionError("The catalog is newer, for the test."),
    CatalogError("The catalog failed, for the test."),
    CommitRefusedError("The commit was refused, for the test."),
    IllegalCommitError("The commit is illegal, for the test."),
]


@pytest.mark.parametrize("num_tables", [1, 2])
@pytest.mark.parametrize("error", ERRORS_OF_THE_CATALOG, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_ratified", [True, False])
def test_an_error_of_the_catalog_after_an_unanswered_proposal_leaves_the_outcome_unknown(
    lake: Lake, tables: Two, num_tables: int, error: CmDeltaError, is_ratified: bool
) -> None:
    proposals = list[str]()

    def lose(method: str, _: object) -> Exception | None:
        if method in ("commit", "commit_together"):
            proposals.append(method)
            return CatalogUnavailableError("No answer, for the test.")
        return error if proposals and method == "get_ratified_commits" else None

    one = multi(lake.client, tables[:num_tables])
    if is_ratified:
        lake.catalog.fails_after = lose
    else:
        lake.catalog.fails = lose
    with pytest.raises(CommitStateUnknownError, match=re.escape(str(error))) as caught:
        one.ratify()
    assert caught.value.__cause__ is error and len(proposals) == 1
    lake.catalog.fails = lake.catalog.fails_after = lambda *_: None
    assert versions(lake, tables[:num_tables]) == [int(is_ratified)] * num_tables


@pytest.mark.parametrize("num_tables", [1, 2])
@pytest.mark.parametrize("error", ERRORS_OF_THE_CATALOG, ids=lambda error: type(error).__name__)
def test_only_the_refusal_of_a_repeated_proposal_proves_that_nothing_was_committed(
    lake: Lake, tables: Two, num_tables: int, error: CmDeltaError
) -> None:
    answers = iter([CatalogUnavailableError("No answer, for the test."), error])

    def fail(method: str, _: object) -> Exception | None:
        return next(answers) if method in ("commit", "commit_together") else None

    one = multi(lake.client, tables[:num_tables])
    lake.catalog.fails = fail
    is_proof = isinstance(error, CommitRefusedError | IllegalCommitError)
    with pytest.raises(type(error) if is_proof else CommitStateUnknownError, match=re.escape(str(error))):
        one.ratify()
    lake.catalog.fails = lambda *_: None
    assert versions(lake, tables) == [0, 0]


def test_a_refusal_proves_nothing_if_the_catalog_has_ratified_meanwhile(lake: Lake, tables: Two) -> None:
    """The unanswered proposal arrives between the questions for the first and the second table."""
    first, second = sorted(table.table_id for table in tables)
    proposed = list[Any]()

    def lose(method: str, argument: Any) -> Exception | None:
        if method == "commit_together":
            proposed.append(argument)
            error = CommitRefusedError("The commit was refused, for the test.")
            return error if len(proposed) > 1 else CatalogUnavailableError("No answer, for the test.")
        return None

    def arrive(method: str, argument: object) -> None:
        if proposed and (method, argument) == ("get_ratified_commits", first):
            lake.sql_catalog.coordinator.commit_together(proposed[0])

    lake.catalog.fails, lake.catalog.fails_after = lose, arrive
    with pytest.raises(CommitStateUnknownError, match="was refused, for the test"):
        multi(lake.client, tables).ratify()
    lake.catalog.fails = lake.catalog.fails_after = lambda *_: None
    assert versions(lake, tables) == [1, 1]
    assert [set(proposals) for proposals in proposed] == [{first, second}] * 2


def test_a_writer_whose_grant_is_revoked_while_the_catalog_does_not_answer_does_not_know_the_outcome(
    lake: Lake, tables: Two
) -> None:
    owner = lake.sql_catalog.acting_as("owner")
    owner.access.enable_grants()
    owner.access.grant([Privilege.APPEND], "main", "writer")
    catalog: Any = Unreliable(lake.sql_catalog.acting_as("writer"))

    def revoke(method: str, _: object) -> Exception | None:
        if method != "commit":
            return None
        owner.access.revoke([Privilege.APPEND], "main", "writer")
        return CatalogUnavailableError("No answer, for the test.")

    catalog.fails_after = revoke
    client = DeltaClient(
        catalog, stores=Stores(stores={"memory": lake.store}), settings=lake.client.settings, now_ms=lake.clock
    )
    with pytest.raises(CommitStateUnknownError, match="writer"):
        append_to(client.table(tables[0].identifier)).commit()
    assert owner.coordinator.get_ratified_commits(tables[0].table_id).latest_version == 1


def test_nothing_is_committed_with_a_dropped_table(lake: Lake, tables: Two) -> None:
    one = multi(lake.client, tables)
    lake.sql_catalog.registry.drop_table(tables[1].identifier)
    with pytest.raises(TableNotFoundError):
        one.ratify()
    assert lake.reopened().table(tables[0].identifier).snapshot().version == 0


@pytest.mark.requirements("CM-C5")
def test_a_table_that_changes_to_put_if_absent_refuses_the_whole(lake: Lake, tables: Two) -> None:
    one = multi(lake.client, tables)
    set_commit_policy(lake.reopened().table(tables[0].identifier), CommitPolicy(kind=CommitPolicyKind.PUT_IF_ABSENT))
    with pytest.raises(CommitRejectedError, match=r"main\.test\.one cannot be held, or be part"):
        one.ratify()
    assert versions(lake, tables) == [0, 0]


def test_a_staged_file_that_cannot_be_written_commits_nothing(lake: Lake, tables: Two) -> None:
    lake.store.fails = broken_storage("write_if_absent", f"{tables[1].location}/_delta_log/_staged_commits")
    with pytest.raises(StorageError):
        multi(lake.client, tables).ratify()
    lake.store.fails = lambda *_: None
    assert versions(lake, tables) == [0, 0]


@pytest.mark.requirements("CM-P2")
def test_a_publication_that_fails_does_not_fail_the_commit(lake: Lake, tables: Two) -> None:
    lake.store.fails = broken_storage("write_if_absent", f"_delta_log/{1:020d}.json")
    assert [one.version for one in commit(lake.client, tables)] == [1, 1]
    lake.store.fails = lambda *_: None
    assert versions(lake, tables) == [1, 1]


def test_attempts_are_bounded(lake: Lake, tables: Two) -> None:
    other = lake.reopened().table(tables[1].identifier)

    def interfere(method: str, argument: object) -> None:
        if method == "commit_together":
            append_to(other, f"other-{len(lake.catalog.calls)}.parquet").commit()

    one = multi(lake.client, tables)
    lake.catalog.fails = interfere
    with pytest.raises(CommitRetriesExceededError, match=r"main\.test\.two"):
        one.ratify()
    assert lake.reopened().table(tables[0].identifier).snapshot().version == 0


@pytest.mark.requirements("CM-R1")
def test_readers_of_several_tables_see_each_commit_whole(lake: Lake, tables: Two) -> None:
    names = [TableIdentifier.of(table.identifier) for table in tables]
    stopped = threading.Event()

    def read() -> int:
        reader, readings = lake.reopened(), 0
        while not stopped.is_set():
            found = load_snapshots(reader, names)
            counts = [set(snapshot.files["path"].to_pylist()) for snapshot in found.values()]
            assert counts[0] == counts[1]
            readings += 1
        return readings

    def write(name: str) -> None:
        client = lake.reopened()
        mine = (client.table(names[0]), client.table(names[1]))
        for number in range(8):
            commit(client, mine, functools.partial(append_to, path=f"{name}-{number}.parquet"))

    with ThreadPoolExecutor(3) as threads:
        reading = threads.submit(read)
        try:
            for writing in [threads.submit(write, name) for name in ("a", "b")]:
                writing.result()
        finally:
            stopped.set()
        assert reading.result()
    assert versions(lake, tables) == [16, 16]
    with pytest.raises(TableNotFoundError, match="absent"):
        load_snapshots(lake.client, [*names, TableIdentifier("main", "test", "absent")])


@pytest.mark.parametrize("is_ended", [False, True])
def test_of_two_threads_that_write_to_one_table_the_second_is_refused(lake: Lake, tables: Two, is_ended: bool) -> None:
    """Both have read the table before one of them stages its write; the files of the other one are deleted."""
    owner = DeferredWrites(lake.client)
    writes = []
    for name in ("first", "second"):
        target = owner.table(tables[0].identifier)
        snapshot = target.snapshot()
        shape = TargetShape(schema=snapshot.schema, metadata=snapshot.metadata, protocol=snapshot.protocol)
        write = start_write(target, snapshot, shape=shape, operation="WRITE", parameters={}, options=DEFAULT_OPTIONS)
        add = add_file(f"{name}/a.parquet", partition_values={"day": "2026-01-01"}, size=100)
        lake.put(tables[0], f"{name}/a.parquet")
        directory = f"{tables[0].location}/{name}"
        write.written.append(
            WrittenFiles(engine=WriteEngine.SPARK, adds=(add,), num_rows=1, size_bytes=100, directory=directory)
        )
        writes.append(write)
    none = writes[0].transaction.snapshot.files.slice(0, 0)
    with writes[0] as first:
        assert first.commit(none, {}).outcome is WriteOutcome.STAGED
    if is_ended:
        owner.commit()
    with (
        pytest.raises(InvalidArgumentError, match="has ended" if is_ended else "one for each table"),
        writes[1] as second,
    ):
        second.commit(none, {})
    if not is_ended:
        owner.commit()
    assert versions(lake, tables) == [1, 0]
    assert files(lake, tables[0]) == {"first/a.parquet"}
    assert not any(name.startswith("second") for name in lake.files(tables[0]))
    with pytest.raises(InvalidArgumentError, match="has ended"):
        owner.commit()
