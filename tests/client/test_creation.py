"""Version 0 with files: one commit, then the name; whatever fails before leaves nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cm_delta_dagster.catalog.commit_feed import FeedEntry
from cm_delta_dagster.catalog.sql import SqlCatalog
from cm_delta_dagster.catalog.tables import TableIdentifier
from cm_delta_dagster.client.client import DeltaClient
from cm_delta_dagster.client.commits.changed_partitions import CHANGED_PARTITIONS_TAG
from cm_delta_dagster.client.commits.context import CommitProperties
from cm_delta_dagster.client.commits.transaction import Committed
from cm_delta_dagster.client.creation import CREATE_TABLE_AS, CreateTransaction
from cm_delta_dagster.client.snapshots.history import find_transaction
from cm_delta_dagster.client.table import Table
from cm_delta_dagster.errors import (
    CatalogUnavailableError,
    CommitStateUnknownError,
    IllegalCommitError,
    InvalidArgumentError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from cm_delta_dagster.operations.maintenance.checkpoint import checkpoint
from cm_delta_dagster.operations.tables.create import TableDesign
from cm_delta_dagster.operations.tables.write_attempts import write_attempts
from cm_delta_dagster.protocol.actions.actions import AddFile, SetTransaction
from cm_delta_dagster.protocol.log.action_reconciliation import NO_VERSION
from cm_delta_dagster.protocol.log.markers import WAREHOUSE_MARKER_NAME
from cm_delta_dagster.storage.stores import Stores
from tests.support.creation import create_table_as
from tests.support.lake import SCHEMA, Lake, broken_storage

NAME = TableIdentifier("main", "test", "t")
DESIGN = TableDesign(schema=SCHEMA, partition_columns=("day",))
ROOT = "memory://lake/warehouse"


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    lake = Lake(tmp_path)
    yield lake
    lake.close()


def writing(lake: Lake, *days: str, app_id: str | None = None, **context: Any) -> Callable[[Table], Committed]:
    """A verb that puts one file for each day, of 10 rows, and commits them."""

    def write(table: Table) -> Committed:
        transaction = table.start_transaction(
            table.snapshot(), operation="WRITE", context=CommitProperties(**context) if context else CommitProperties()
        )
        for day in days:
            path = f"delta.txn=1/day={day}/part.parquet"
            lake.put(table, path)
            transaction.add_files(
                [
                    AddFile(
                        path=path,
                        partition_values={"day": day},
                        size=100,
                        modification_time=1,
                        stats='{"numRecords":10}',
                    )
                ]
            )
        if app_id is not None:
            transaction.set_transaction(SetTransaction(app_id=app_id, version=7, last_updated=1))
        transaction.metrics["numOutputRows"] = str(10 * len(days))
        return transaction.commit()

    return write


def created(lake: Lake, *days: str, **more: Any) -> tuple[Table, Committed]:
    return create_table_as(lake.client, identifier=NAME, design=DESIGN, write=writing(lake, *days, **more))


def version_0(lake: Lake, table: Table) -> list[dict[str, Any]]:
    data = lake.memory.read(f"{table.location}/_delta_log/00000000000000000000.json")
    return [json.loads(line) for line in data.decode().splitlines()]


def feed(lake: Lake) -> list[FeedEntry]:
    return list(lake.catalog.feed.feed(after=0, limit=10))


@pytest.mark.requirements("CM-D2", "LOG-7", "TXN-1", "ICT-3")
def test_version_0_holds_the_files_and_the_transaction_id_beside_metadata_and_protocol(lake: Lake) -> None:
    table, committed = created(lake, "2026-01-01", "2026-01-02", app_id="job", user_metadata="first")
    names = [next(iter(action)) for action in version_0(lake, table)]
    assert names == ["commitInfo", "protocol", "metaData", "txn", "add", "add"]
    info = version_0(lake, table)[0]["commitInfo"]
    assert info["operation"] == "CREATE TABLE AS SELECT"
    assert info["operationParameters"]["partitionBy"] == '["day"]'
    assert info["operationMetrics"] == {"numOutputRows": "20"}
    assert info["userMetadata"] == "first" and info["isBlindAppend"] is True and "readVersion" not in info
    assert committed.version == 0
    assert committed.snapshot.num_rows == table.snapshot().num_rows == 20
    assert lake.reopened().table(NAME).snapshot().num_files == 2
    assert find_transaction(table, app_id="job", version=7) == 0


@pytest.mark.requirements("CM-D3")
def test_the_feed_has_whether_version_0_changed_data_and_where(lake: Lake) -> None:
    created(lake, "2026-01-01", "2026-01-02", tags={"dagster/run_id": "r"})
    lake.new_table("empty")
    full, empty = feed(lake)
    assert (full.version, full.data_version, full.summary.data_change) == (0, 0, True)
    assert full.summary.tags["dagster/run_id"] == "r"
    assert json.loads(full.summary.tags[CHANGED_PARTITIONS_TAG]) == [{"day": "2026-01-01"}, {"day": "2026-01-02"}]
    assert (empty.version, empty.data_version, empty.summary.data_change) == (0, 0, False)


@pytest.mark.requirements("CM-P1", "CRC-1")
def test_a_table_created_with_files_is_published_with_checksum_and_checkpoint(lake: Lake) -> None:
    table, _ = created(lake, "2026-01-01")
    lake.client.wait_for_background()
    assert "_delta_log/00000000000000000000.crc" in lake.files(table)
    checkpoint(table)
    lake.append(table)
    lake.client.wait_for_background()
    snapshot = lake.reopened().table(NAME).snapshot()
    assert (snapshot.version, snapshot.num_files, snapshot.published_version) == (1, 2, 1)


def objects(lake: Lake) -> set[str]:
    """Everything below the warehouse but for its marker."""
    found = {status.location for status in lake.memory.list_recursive(ROOT)}
    return found - {f"{ROOT}/{WAREHOUSE_MARKER_NAME}"}


@pytest.mark.requirements("CM-D1", "CM-D4")
def test_nothing_is_visible_before_the_name_is_registered(lake: Lake) -> None:
    seen: list[Any] = []

    def look(method: str, _: Any) -> None:
        if method == "register_table":
            seen.append(lake.sql_catalog.registry.list_tables())
            seen.append(len(objects(lake)))

    lake.catalog.fails = look
    created(lake, "2026-01-01")
    assert seen == [(), 2]


@pytest.mark.requirements("CM-D5")
@pytest.mark.parametrize("point", ["reserve", "log", "verb"])
def test_a_creation_that_fails_leaves_no_table(lake: Lake, point: str) -> None:
    if point == "reserve":
        lake.catalog.fails = lambda m, _: CatalogUnavailableError("gone") if m == "create_staging_table" else None
    elif point == "log":
        lake.store.fails = broken_storage("write_if_absent", "_delta_log")

    def write(table: Table) -> Committed:
        if point == "verb":
            raise ArithmeticError("the user's")
        return writing(lake, "2026-01-01")(table)

    with pytest.raises((CatalogUnavailableError, StorageError, ArithmeticError)):
        create_table_as(lake.client, identifier=NAME, design=DESIGN, write=write)
    assert lake.sql_catalog.registry.list_tables() == ()
    lake.catalog.fails = lake.store.fails = lambda method, argument: None
    table, _ = created(lake, "2026-01-03")
    assert table.snapshot().num_files == 1


def overtaken(lake: Lake) -> None:
    """Another writer takes the name once version 0 of the first one is being written."""
    winners: list[Table] = []

    def overtake(method: str, location: Any) -> None:
        if method == "write_if_absent" and "_delta_log" in location and not winners:
            winners.append(None)
            winners.append(lake.new_table(description="winner"))

    lake.store.fails = overtake


@pytest.mark.requirements("CM-D3")
def test_the_second_creator_of_a_name_writes_to_the_winners_table_and_leaves_no_file(lake: Lake) -> None:
    overtaken(lake)
    creates: list[bool] = []
    versions: list[int] = []
    for attempt in write_attempts(lake.client, identifier=NAME):
        creates.append(attempt.creates)
        with attempt.target(DESIGN if attempt.creates else None) as target:
            versions.append(writing(lake, "2026-01-01")(target).version)
    table = attempt.table
    assert (creates, versions) == ([True, False], [1])
    assert table.snapshot().metadata.description == "winner"
    lake.client.wait_for_background()
    assert objects(lake) == {f"{table.location}/{path}" for path in lake.files(table)}


@pytest.mark.requirements("CM-D3")
def test_a_table_that_is_created_before_the_name_is_reserved_is_the_target(lake: Lake) -> None:
    """Of the same attempt, which has written nothing yet."""
    attempt = next(write_attempts(lake.client, identifier=NAME))
    assert attempt.creates
    winner = lake.new_table(description="winner")
    with attempt.target(DESIGN) as target:
        assert writing(lake, "2026-01-01")(target).version == 1
    assert attempt.refusal is None and attempt.table.table_id == winner.table_id
    assert attempt.table.snapshot().metadata.description == "winner"


@pytest.mark.requirements("CM-D3")
def test_the_second_creator_of_a_name_that_insists_on_creating_is_refused(lake: Lake) -> None:
    overtaken(lake)
    with pytest.raises(TableAlreadyExistsError):
        created(lake, "2026-01-01")
    assert lake.client.table(NAME).snapshot().num_files == 0


def test_a_registration_with_an_unknown_outcome_is_repeated(lake: Lake) -> None:
    lost = iter([CatalogUnavailableError("the answer was lost")])
    lake.catalog.fails_after = lambda method, _: next(lost, None) if method == "register_table" else None
    table, committed = created(lake, "2026-01-01")
    assert committed.version == 0
    assert [method for method, _ in lake.catalog.calls].count("register_table") == 2
    assert lake.data_files(table) == {"delta.txn=1/day=2026-01-01/part.parquet"}


@pytest.mark.requirements("CM-W5")
def test_files_stay_when_it_is_not_known_whether_the_table_was_registered(lake: Lake) -> None:
    lake.catalog.fails_after = lambda m, _: CatalogUnavailableError("lost") if m == "register_table" else None
    with pytest.raises(CommitStateUnknownError, match="whole or not at all"):
        created(lake, "2026-01-01")
    lake.catalog.fails_after = lambda method, _: None
    table = lake.client.table(NAME)
    assert (table.snapshot().version, table.snapshot().num_files) == (0, 1)
    assert len(lake.data_files(table)) == 1


def test_files_stay_when_the_name_is_refused_after_an_unanswered_request(lake: Lake) -> None:
    """The first request may still be under way, and the name may become free again."""
    answers = iter([CatalogUnavailableError("lost"), TableAlreadyExistsError("taken")])
    lake.catalog.fails = lambda method, _: next(answers, None) if method == "register_table" else None
    with pytest.raises(TableAlreadyExistsError):
        created(lake, "2026-01-01")
    assert len(objects(lake)) == 2


@pytest.mark.requirements("CM-W4")
def test_a_table_that_was_renamed_after_the_answer_of_its_registration_was_lost_was_created(lake: Lake) -> None:
    lost = iter([CatalogUnavailableError("the answer was lost")])
    renamed = TableIdentifier("main", "test", "renamed")

    def fails_after(method: str, table_id: Any) -> Exception | None:
        error = next(lost, None) if method == "register_table" else None
        if error is not None:
            lake.catalog.registry.rename_table(table_id, renamed)
        return error

    lake.catalog.fails_after = fails_after
    table, committed = created(lake, "2026-01-01")
    assert (table.identifier, committed.version, table.snapshot().num_files) == (renamed, 0, 1)
    assert lake.data_files(table) == {"delta.txn=1/day=2026-01-01/part.parquet"}


@pytest.mark.requirements("LOG-5")
def test_a_foreign_log_at_the_reserved_location_is_left_alone(lake: Lake) -> None:
    def occupied(method: str, answer: Any) -> Any:
        if method == "create_staging_table":
            lake.memory.write(f"{answer.location}/_delta_log/00000000000000000000.json", b"theirs")
        return answer

    lake.catalog.changes = occupied
    with pytest.raises(IllegalCommitError, match="already"):
        created(lake, "2026-01-01")
    logs = [status for status in lake.memory.list_recursive(ROOT) if "_delta_log" in status.location]
    assert [lake.memory.read(status.location) for status in logs] == [b"theirs"]


def test_a_creation_takes_one_commit_and_then_returns_the_table(lake: Lake) -> None:
    held: list[CreateTransaction] = []

    def write(creation: CreateTransaction) -> Committed:
        held.append(creation)
        with pytest.raises(InvalidArgumentError, match="no versions yet"):
            creation.table()
        initial = creation.snapshot()
        assert (initial.version, initial.published_version, initial.data_version) == (NO_VERSION,) * 3
        assert initial.num_files == 0 and initial.schema == SCHEMA and initial.partition_columns == ("day",)
        assert creation.find_transaction(app_id="job", version=7) is None
        late = creation.start_transaction(initial, operation="WRITE")
        committed = writing(lake, "2026-01-01", app_id="job")(creation)
        with pytest.raises(InvalidArgumentError, match="takes one write"):
            late.commit()
        return committed

    table, _ = create_table_as(lake.client, identifier=NAME, design=DESIGN, write=write)
    (creation,) = held
    for again in (
        creation.snapshot,
        creation.commit_empty,
        lambda: creation.find_transaction(app_id="job", version=7),
        lambda: creation.start_transaction(table.snapshot(), operation="WRITE"),
    ):
        with pytest.raises(InvalidArgumentError, match="takes one write"):
            again()
    assert creation.table().snapshot(version=0).num_files == table.snapshot().num_files == 1
    assert table.find_transaction(app_id="job", version=7) == 0
    assert writing(lake, "2026-01-02")(creation.table()).version == 1
    assert [(entry.version, entry.summary.operation) for entry in feed(lake)] == [(0, CREATE_TABLE_AS), (1, "WRITE")]


def test_a_verb_that_commits_nothing_creates_nothing(lake: Lake) -> None:
    with pytest.raises(InvalidArgumentError, match="nothing was committed"):
        create_table_as(lake.client, identifier=NAME, design=DESIGN, write=lambda table: table.snapshot())
    with pytest.raises(TableNotFoundError):
        lake.client.table(NAME)


def test_a_table_that_exists_is_written_to_without_a_design(lake: Lake) -> None:
    lake.new_table()

    (attempt,) = write_attempts(lake.client, identifier=NAME)
    assert not attempt.creates
    with attempt.target(None) as target:
        assert writing(lake, "2026-01-01")(target).version == 1


def test_directories_of_a_failed_creation_are_removed(tmp_path: Path) -> None:
    catalog = SqlCatalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    client = DeltaClient(catalog, stores=Stores())

    def write(table: Table) -> Committed:
        (Path(table.location.removeprefix("file://")) / "delta.txn=1/day=x").mkdir(parents=True)
        raise ArithmeticError("the user's")

    with pytest.raises(ArithmeticError):
        create_table_as(client, identifier=NAME, design=DESIGN, write=write)
    client.close()
    assert list((tmp_path / "warehouse" / "main" / "test").iterdir()) == []
